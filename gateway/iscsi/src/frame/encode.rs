//! From PDUs to slices for vectored writes.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

use super::padding;
use crate::digest;
use crate::pdu::OutPdu;

/// Payloads up to this many bytes are copied beside their header: cheaper than a slice of their own.
const COPIED_BYTES: usize = 512;

/// Consumed bytes at the front of the header buffer are dropped when there are this many.
const COMPACT_BYTES: usize = 64 * 1024;

/// A header buffer that has grown beyond this is given back when it is empty.
const KEPT_BYTES: usize = 256 * 1024;

/// PDUs encoded and waiting to be written, in order.
///
/// Headers, padding, digests and small payloads lie in one buffer that is used again and again; larger payloads stay
/// where they are. The queue does not limit itself: its owner looks at [`len_bytes`](Self::len_bytes) and stops
/// reading from a peer that does not take its answers.
#[derive(Debug, Default)]
pub struct WriteQueue {
    header_digest: bool,
    data_digest: bool,
    segments: VecDeque<Segment>,
    /// What of the first segment has been written.
    written: usize,
    /// The bytes of all `Segment::Heads`, in order, behind `heads_start` bytes that are written.
    heads: Vec<u8>,
    heads_start: usize,
    len_bytes: usize,
}

#[derive(Debug)]
enum Segment {
    /// This many bytes of `heads`.
    Heads(usize),
    Payload(Bytes),
}

impl WriteQueue {
    /// An empty queue, without digests.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which digests the PDUs carry that are pushed from now on.
    pub fn set_digests(&mut self, header: bool, data: bool) {
        self.header_digest = header;
        self.data_digest = data;
    }

    /// Bytes that wait to be written.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Encodes a PDU: fills in DataSegmentLength (TotalAHSLength is 0, a target sends none), appends padding and
    /// digests.
    ///
    /// # Panics
    ///
    /// If the data segment is 16 MiB or longer, which DataSegmentLength cannot express and no negotiated limit
    /// allows.
    pub fn push(&mut self, pdu: OutPdu) {
        let len_bytes = pdu.data_bytes();
        let OutPdu { mut bhs, data, more } = pdu;
        let len = len_bytes.to_be_bytes();
        let (high, low) = len.split_at(len.len() - 3);
        assert!(high.iter().all(|&byte| byte == 0), "data segment of {len_bytes} bytes");
        bhs.0[4] = 0;
        bhs.0[5..8].copy_from_slice(low);

        self.extend_heads(&bhs.0);
        if self.header_digest {
            let crc = digest::crc32c(&[&bhs.0]);
            self.extend_heads(&digest::to_wire(crc));
        }
        if len_bytes == 0 {
            return;
        }
        let pad = &[0; 3][..padding(len_bytes)];
        let data_digest = self.data_digest.then(|| {
            let crc = more.iter().fold(digest::crc32c(&[&data]), |crc, piece| digest::crc32c_append(crc, piece));
            digest::to_wire(digest::crc32c_append(crc, pad))
        });
        self.push_payload(data);
        more.into_iter().for_each(|piece| self.push_payload(piece));
        if !pad.is_empty() {
            self.extend_heads(pad);
        }
        if let Some(data_digest) = data_digest {
            self.extend_heads(&data_digest);
        }
    }

    /// Fills `slices` from the front with what is to be written next, and says how many were filled.
    pub fn io_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut heads = self.heads.get(self.heads_start..).unwrap_or_default();
        let mut skip = self.written;
        let mut filled = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            let bytes: &[u8] = match segment {
                // Of the first segment, what is written is behind `heads_start` already.
                Segment::Heads(len) => {
                    let (bytes, rest) = heads.split_at(len - skip);
                    heads = rest;
                    bytes
                }
                Segment::Payload(data) => &data[skip..],
            };
            skip = 0;
            *slice = IoSlice::new(bytes);
            filled += 1;
        }
        filled
    }

    /// Forgets the first `count` bytes: they are written. More than there are is taken as all.
    pub fn advance(&mut self, count: usize) {
        let mut count = count.min(self.len_bytes);
        self.len_bytes -= count;
        while let Some(segment) = self.segments.front() {
            let (left, is_heads) = match segment {
                Segment::Heads(len) => (len - self.written, true),
                Segment::Payload(data) => (data.len() - self.written, false),
            };
            let step = left.min(count);
            count -= step;
            if is_heads {
                self.heads_start += step;
            }
            if step < left {
                self.written += step;
                break;
            }
            self.written = 0;
            self.segments.pop_front();
        }
        self.compact();
    }

    fn push_payload(&mut self, data: Bytes) {
        if data.len() <= COPIED_BYTES {
            self.extend_heads(&data);
        } else {
            self.len_bytes += data.len();
            self.segments.push_back(Segment::Payload(data));
        }
    }

    fn extend_heads(&mut self, bytes: &[u8]) {
        self.heads.extend_from_slice(bytes);
        self.len_bytes += bytes.len();
        match self.segments.back_mut() {
            Some(Segment::Heads(len)) => *len += bytes.len(),
            _ => self.segments.push_back(Segment::Heads(bytes.len())),
        }
    }

    fn compact(&mut self) {
        if self.heads_start == self.heads.len() {
            self.heads.clear();
            self.heads_start = 0;
            if self.heads.capacity() > KEPT_BYTES {
                self.heads = Vec::new();
            }
        } else if self.heads_start >= COMPACT_BYTES && self.heads_start > self.heads.len() / 2 {
            self.heads.drain(..self.heads_start);
            self.heads_start = 0;
        }
    }
}

#[cfg(test)]
mod tests;
