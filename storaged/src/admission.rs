//! From a request on the wire to an operation of the store, or to the reason why not.
//!
//! Everything that can be said without the store is said here; the store itself knows volumes, their sizes and checksums.

use bytes::Bytes;
use holdfast_proto::block::message::MAX_PAYLOAD_BYTES;
use holdfast_proto::block::{Kind, Request, Status};
use holdfast_proto::checksum;
use holdfast_proto::units::{BLOCK_BYTES, SHARD_BYTES};
use holdfast_store::Operation;

/// Longest range of one WRITE SAME, in bytes: it is written out in the journal.
pub const MAX_WRITE_SAME_BYTES: u64 = 1 << 20;

/// Most memory that the repeated block of a WRITE SAME takes.
const WRITE_SAME_SEGMENT_BYTES: u64 = 64 << 10;

/// The store's operation for this request, which has not been started yet.
pub(crate) fn operation(request: Request) -> Result<Operation, Status> {
    let Request { kind, offset, len, shard, checksums, payload, .. } = request;
    if kind == Kind::Flush {
        return Ok(Operation::Flush);
    }
    within_shard(shard, offset, len)?;
    match kind {
        Kind::Read => {
            without_payload(&payload, &checksums)?;
            at_most(len, MAX_PAYLOAD_BYTES as u64)?;
            Ok(Operation::Read { offset, len })
        }
        Kind::Write => {
            at_most(len, MAX_PAYLOAD_BYTES as u64)?;
            let payload_bytes = checksum::len_bytes(&payload);
            if payload_bytes != len {
                return Err(invalid(format!("{payload_bytes} bytes of payload for a range of {len}")));
            }
            let pieces = checksum::piece_count(offset, len);
            if checksums.len() as u64 != pieces {
                return Err(invalid(format!("{} checksums for {pieces} pieces", checksums.len())));
            }
            Ok(Operation::Write { offset, data: payload, checksums })
        }
        Kind::WriteSame => write_same(offset, len, &payload, &checksums),
        Kind::Unmap => {
            without_payload(&payload, &checksums)?;
            Ok(Operation::Unmap { offset, len })
        }
        Kind::Flush => Ok(Operation::Flush),
    }
}

/// The range is not empty and lies in the shard that the request names.
fn within_shard(shard: u32, offset: u64, len: u64) -> Result<(), Status> {
    if len == 0 {
        return Err(invalid("an empty range".to_owned()));
    }
    let last = offset.checked_add(len - 1).ok_or(Status::OutOfRange)?;
    let shard = u64::from(shard);
    if offset / SHARD_BYTES == shard && last / SHARD_BYTES == shard { Ok(()) } else { Err(Status::OutOfRange) }
}

fn at_most(len: u64, limit: u64) -> Result<(), Status> {
    if len <= limit { Ok(()) } else { Err(invalid(format!("a range of {len} bytes, the limit is {limit}"))) }
}

fn without_payload(payload: &[Bytes], checksums: &[u32]) -> Result<(), Status> {
    if checksum::len_bytes(payload) == 0 && checksums.is_empty() {
        Ok(())
    } else {
        Err(invalid("a payload or checksums that the kind does not have".to_owned()))
    }
}

/// Repeats the block over the range. The repetitions share one segment, so that memory does not grow with the range.
fn write_same(offset: u64, len: u64, payload: &[Bytes], checksums: &[u32]) -> Result<Operation, Status> {
    at_most(len, MAX_WRITE_SAME_BYTES)?;
    let block_bytes = checksum::len_bytes(payload);
    if !(1..=BLOCK_BYTES).contains(&block_bytes) || !len.is_multiple_of(block_bytes) {
        return Err(invalid(format!("a block of {block_bytes} bytes for a range of {len}")));
    }
    // The checksum is of the block by itself, as if it stood at the beginning of the volume.
    if checksum::verify(0, payload, checksums).is_err() {
        return Err(Status::Checksum);
    }
    let repetitions = usize::try_from(len.min(WRITE_SAME_SEGMENT_BYTES) / block_bytes).unwrap_or_default();
    let segment = Bytes::from(payload.concat().repeat(repetitions));
    let checksums = repeated_checksums(offset, len, block_bytes, &segment);
    let mut data = Vec::new();
    let mut rest = usize::try_from(len).unwrap_or_default();
    while rest > 0 && !segment.is_empty() {
        let part = segment.slice(..rest.min(segment.len()));
        rest -= part.len();
        data.push(part);
    }
    Ok(Operation::Write { offset, data, checksums })
}

/// The checksums of the pieces of a range that `segment` repeats over; summed anew only where the bytes differ from
/// those of the piece before, which with blocks that divide 4 KiB is so at the edges alone.
fn repeated_checksums(offset: u64, len: u64, block_bytes: u64, segment: &Bytes) -> Vec<u32> {
    let mut checksums = Vec::with_capacity(usize::try_from(checksum::piece_count(offset, len)).unwrap_or_default());
    let mut last = None;
    let mut done = 0;
    while done < len {
        let piece = checksum::piece_len(offset + done, len - done);
        // The segment is the whole range, or longer than a block and a piece.
        let from = done % block_bytes;
        let sum = match last {
            Some((at, of, sum)) if (at, of) == (from, piece) => sum,
            _ => {
                let from = usize::try_from(from).unwrap_or(usize::MAX).min(segment.len());
                let to = from.saturating_add(usize::try_from(piece).unwrap_or(usize::MAX)).min(segment.len());
                let sums = checksum::of_pieces(offset + done, &[segment.slice(from..to)]);
                sums.into_iter().next().unwrap_or_default()
            }
        };
        last = Some((from, piece, sum));
        checksums.push(sum);
        done += piece;
    }
    checksums
}

fn invalid(why: String) -> Status {
    Status::Invalid(why)
}

#[cfg(test)]
mod tests {
    use holdfast_proto::ids::{Incarnation, OpId, VolumeId};

    use super::*;

    fn request(kind: Kind, offset: u64, len: u64, payload: &[u8]) -> Request {
        let payload = if payload.is_empty() { Vec::new() } else { vec![Bytes::copy_from_slice(payload)] };
        let at = if kind == Kind::WriteSame { 0 } else { offset };
        Request {
            id: 1,
            volume: VolumeId(1),
            shard: u32::try_from(offset / SHARD_BYTES).unwrap(),
            epoch: 0,
            term: 0,
            op: OpId { incarnation: Incarnation(1), lane: 0, sequence: 1, part: 0 },
            acked_below: 0,
            nexus: 0,
            path_epoch: 0,
            kind,
            offset,
            len,
            checksums: checksum::of_pieces(at, &payload),
            payload,
        }
    }

    fn refused(request: Request) -> Status {
        operation(request).unwrap_err()
    }

    #[test]
    fn range_when_beyond_the_shard_then_out_of_range() {
        let within = request(Kind::Read, SHARD_BYTES - 4096, 4096, &[]);
        assert!(operation(within.clone()).is_ok());
        assert_eq!(refused(Request { len: 4097, ..within.clone() }), Status::OutOfRange);
        assert_eq!(refused(Request { shard: 1, ..within.clone() }), Status::OutOfRange);
        assert_eq!(refused(Request { offset: u64::MAX, len: 2, ..within.clone() }), Status::OutOfRange);
        assert_eq!(refused(Request { len: u64::MAX, ..within.clone() }), Status::OutOfRange);
        assert!(matches!(refused(Request { len: 0, ..within }), Status::Invalid(_)));
    }

    #[test]
    fn flush_when_it_names_no_range_then_taken() {
        assert!(matches!(operation(request(Kind::Flush, 0, 0, &[])), Ok(Operation::Flush)));
    }

    #[test]
    fn write_when_payload_or_checksums_do_not_fit_then_invalid() {
        let write = request(Kind::Write, 100, 5000, &[7; 5000]);
        let Ok(Operation::Write { offset: 100, data, checksums }) = operation(write.clone()) else {
            panic!("refused");
        };
        assert_eq!((checksum::len_bytes(&data), checksums.len()), (5000, 2));
        assert!(matches!(refused(Request { len: 4999, ..write.clone() }), Status::Invalid(_)));
        assert!(matches!(refused(Request { payload: vec![], ..write.clone() }), Status::Invalid(_)));
        assert!(matches!(refused(Request { checksums: vec![1], ..write.clone() }), Status::Invalid(_)));
        let long = Request { len: MAX_PAYLOAD_BYTES as u64 + 1, ..write };
        assert!(matches!(refused(long), Status::Invalid(_)));
    }

    #[test]
    fn read_or_unmap_when_it_carries_a_payload_then_invalid() {
        for kind in [Kind::Read, Kind::Unmap] {
            assert!(matches!(refused(request(kind, 0, 4096, &[1])), Status::Invalid(_)));
            assert!(operation(request(kind, 0, 4096, &[])).is_ok());
        }
        let long = request(Kind::Read, 0, MAX_PAYLOAD_BYTES as u64 + 1, &[]);
        assert!(matches!(refused(long), Status::Invalid(_)));
        assert!(operation(request(Kind::Unmap, 0, SHARD_BYTES, &[])).is_ok());
    }

    #[test]
    fn write_same_when_well_formed_then_the_block_fills_the_range() {
        let block: Vec<u8> = (0..512_u16).map(|at| (at % 251) as u8).collect();
        let Ok(Operation::Write { offset, data, checksums }) =
            operation(request(Kind::WriteSame, 1024, 512 * 20, &block))
        else {
            panic!("refused");
        };
        assert_eq!(offset, 1024);
        assert_eq!(data.concat(), block.repeat(20));
        assert_eq!(checksum::verify(1024, &data, &checksums), Ok(()));
    }

    #[test]
    fn write_same_when_long_then_the_repetitions_share_one_segment_and_the_sums_are_right() {
        for (offset, block_len, blocks) in
            [(0, 512, 2048), (512, 512, 300), (4096, 4096, 256), (700, 520, 1000), (3, 1, 9000)]
        {
            let block: Vec<u8> = (0..block_len).map(|at: u32| (at % 251) as u8).collect();
            let len = u64::from(block_len) * blocks as u64;
            let Ok(Operation::Write { data, checksums, .. }) = operation(request(Kind::WriteSame, offset, len, &block))
            else {
                panic!("refused");
            };
            assert!(data.iter().all(|part| part.as_ptr() == data[0].as_ptr() && part.len() <= 64 << 10));
            assert_eq!(data.concat(), block.repeat(blocks));
            assert_eq!(checksum::of_pieces(offset, &data), checksums);
        }
    }

    #[test]
    fn write_same_when_malformed_then_refused() {
        let same = |len, payload: &[u8]| request(Kind::WriteSame, 0, len, payload);
        assert!(operation(same(MAX_WRITE_SAME_BYTES, &[1; 512])).is_ok());
        assert!(matches!(refused(same(MAX_WRITE_SAME_BYTES + 512, &[1; 512])), Status::Invalid(_)));
        assert!(matches!(refused(same(1000, &[1; 512])), Status::Invalid(_)));
        assert!(matches!(refused(same(4096, &[])), Status::Invalid(_)));
        assert!(matches!(refused(same(8192, &[1; 8192])), Status::Invalid(_)));
        let corrupt = Request { checksums: vec![0], ..same(4096, &[1; 512]) };
        assert_eq!(refused(corrupt), Status::Checksum);
    }
}
