//! From bytes to PDUs, incrementally.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use super::padding;
use crate::digest::{self, DIGEST_BYTES};
use crate::pdu::{BHS_BYTES, Bhs, Pdu};

/// Capacity of the buffer through which small PDUs are read. The largest small PDU (48 + 1020 bytes of headers, both
/// digests, 16 KiB of data) fits in more than once.
const SHARED_BYTES: usize = 32 * 1024;

/// Data segments above this many bytes are received into a buffer of their own, without a copy.
const IN_PLACE_BYTES: usize = 16 * 1024;

/// The byte stream cannot be followed any further: at ErrorRecoveryLevel 0 the connection ends (RFC 7143, 7.7, 7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The header digest does not match, so that no length in the header can be believed.
    #[error("header digest does not match")]
    HeaderDigest,
    /// The data segment is longer than this end has declared.
    #[error("data segment of {len_bytes} bytes exceeds the declared maximum of {max_bytes}")]
    DataSegmentTooLong {
        /// DataSegmentLength as received.
        len_bytes: usize,
        /// MaxRecvDataSegmentLength as declared.
        max_bytes: usize,
    },
}

/// Cuts a byte stream into PDUs.
///
/// Read from the socket into [`buffer`](Self::buffer), then call [`decode`](Self::decode) until it gives `None`. Small
/// PDUs go through one shared buffer and their payload is copied out of it, so that a small payload never pins a
/// large buffer. A data segment above 16 KiB gets a buffer of exactly its own size, which becomes the payload.
#[derive(Debug)]
pub struct Decoder {
    max_data_segment_bytes: usize,
    header_digest: bool,
    data_digest: bool,
    shared: BytesMut,
    /// What of `shared` has been consumed.
    start: usize,
    in_place: Option<InPlace>,
    failed: Option<FrameError>,
}

/// A PDU whose data segment is being received in place.
#[derive(Debug)]
struct InPlace {
    bhs: Bhs,
    ahs: Bytes,
    /// Data, padding and digest, as far as they are here.
    body: BytesMut,
    /// How long `body` has to become.
    body_bytes: usize,
}

impl Decoder {
    /// A decoder without digests for data segments up to `max_data_segment_bytes`.
    pub fn new(max_data_segment_bytes: u32) -> Self {
        Self {
            max_data_segment_bytes: max_data_segment_bytes as usize,
            header_digest: false,
            data_digest: false,
            shared: BytesMut::new(),
            start: 0,
            in_place: None,
            failed: None,
        }
    }

    /// Which digests the PDUs carry, from the next one on.
    pub fn set_digests(&mut self, header: bool, data: bool) {
        self.header_digest = header;
        self.data_digest = data;
    }

    /// Longest data segment to accept in bytes, from the next PDU on.
    pub fn set_max_data_segment(&mut self, max_data_segment_bytes: u32) {
        self.max_data_segment_bytes = max_data_segment_bytes as usize;
    }

    /// Where the next bytes from the socket are to be appended. It has spare capacity; fill no more than that.
    pub fn buffer(&mut self) -> &mut BytesMut {
        if self.in_place.is_none() {
            self.compact();
        }
        match &mut self.in_place {
            Some(in_place) => {
                // Nothing is missing only after a read that `decode` was not called for.
                let missing = in_place.body_bytes.saturating_sub(in_place.body.len());
                in_place.body.reserve(missing.max(1));
                &mut in_place.body
            }
            None => &mut self.shared,
        }
    }

    /// Whether a part of a PDU is here and the rest of it is not: an end of the stream here is not an orderly one.
    pub fn is_mid_pdu(&self) -> bool {
        self.in_place.is_some() || self.start < self.shared.len()
    }

    /// The next PDU, if all of it is here. After an error every call gives that error.
    pub fn decode(&mut self) -> Result<Option<Pdu>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let decoded = if self.in_place.is_some() { Ok(self.finish_in_place()) } else { self.decode_shared() };
        if let Err(error) = decoded {
            self.failed = Some(error);
        }
        decoded
    }

    /// Moves what is not consumed to the front, so that the whole remaining capacity is usable.
    fn compact(&mut self) {
        if self.start == self.shared.len() {
            self.shared.clear();
        } else if self.start > 0 {
            let rest = self.shared.len() - self.start;
            self.shared.copy_within(self.start.., 0);
            self.shared.truncate(rest);
        }
        self.start = 0;
        if self.shared.capacity() < SHARED_BYTES {
            self.shared.reserve(SHARED_BYTES - self.shared.len());
        } else if self.shared.capacity() == self.shared.len() {
            // Not reached by callers that decode after each read: a small PDU fits.
            self.shared.reserve(SHARED_BYTES);
        }
    }

    fn decode_shared(&mut self) -> Result<Option<Pdu>, FrameError> {
        let Some(available) = self.shared.get(self.start..) else {
            return Ok(None);
        };
        let Some((bhs, after_bhs)) = available.split_first_chunk::<BHS_BYTES>() else {
            return Ok(None);
        };
        let bhs = Bhs(*bhs);
        let header_digest_bytes = if self.header_digest { DIGEST_BYTES } else { 0 };
        let Some((ahs, after_ahs)) = after_bhs.split_at_checked(bhs.ahs_bytes()) else {
            return Ok(None);
        };
        let Some((header_digest, after_header)) = after_ahs.split_at_checked(header_digest_bytes) else {
            return Ok(None);
        };
        if self.header_digest && header_digest != digest::to_wire(digest::crc32c(&[&bhs.0, ahs])) {
            return Err(FrameError::HeaderDigest);
        }

        let data_bytes = bhs.data_segment_bytes();
        if data_bytes > self.max_data_segment_bytes {
            return Err(FrameError::DataSegmentTooLong {
                len_bytes: data_bytes,
                max_bytes: self.max_data_segment_bytes,
            });
        }
        let body_bytes = self.body_bytes(data_bytes);
        let header_bytes = BHS_BYTES + ahs.len() + header_digest_bytes;
        let ahs = if ahs.is_empty() { Bytes::new() } else { Bytes::copy_from_slice(ahs) };

        if data_bytes > IN_PLACE_BYTES {
            let mut body = BytesMut::with_capacity(body_bytes);
            let here = after_header.get(..body_bytes).unwrap_or(after_header);
            body.extend_from_slice(here);
            self.start += header_bytes + here.len();
            self.in_place = Some(InPlace { bhs, ahs, body, body_bytes });
            return Ok(self.finish_in_place());
        }
        let Some(body) = after_header.get(..body_bytes) else {
            return Ok(None);
        };
        let (data, data_digest_ok) = check_body(body, data_bytes, self.data_digest);
        let data = if data.is_empty() { Bytes::new() } else { Bytes::copy_from_slice(data) };
        self.start += header_bytes + body_bytes;
        Ok(Some(Pdu { bhs, ahs, data, data_digest_ok }))
    }

    fn finish_in_place(&mut self) -> Option<Pdu> {
        let InPlace { bhs, ahs, mut body, body_bytes } =
            self.in_place.take_if(|in_place| in_place.body.len() >= in_place.body_bytes)?;
        if body.len() > body_bytes {
            // The caller's read went past the spare capacity that was asked for; the excess is the next PDU.
            self.compact();
            self.shared.extend_from_slice(&body[body_bytes..]);
            body.truncate(body_bytes);
        }
        let data_bytes = bhs.data_segment_bytes();
        let (_, data_digest_ok) = check_body(&body, data_bytes, self.data_digest);
        body.truncate(data_bytes);
        Some(Pdu { bhs, ahs, data: body.freeze(), data_digest_ok })
    }

    /// Length of a data segment of `data_bytes` with padding and digest.
    fn body_bytes(&self, data_bytes: usize) -> usize {
        // No data segment, no data digest (RFC 7143, 11.2.4).
        if data_bytes == 0 {
            return 0;
        }
        data_bytes + padding(data_bytes) + if self.data_digest { DIGEST_BYTES } else { 0 }
    }
}

/// The data in a whole body, and whether its digest matches. The digest covers the padding too (RFC 7143, 11.2.4).
fn check_body(body: &[u8], data_bytes: usize, has_digest: bool) -> (&[u8], bool) {
    let ok = !has_digest
        || match body.split_last_chunk::<DIGEST_BYTES>() {
            Some((padded, sent)) => *sent == digest::to_wire(digest::crc32c(&[padded])),
            None => true,
        };
    (body.get(..data_bytes).unwrap_or(body), ok)
}

#[cfg(test)]
mod tests;
