//! A block operation cut into the parts that storage takes: each inside one shard and, where it carries data, at most
//! [`MAX_PART_BYTES`] long, so that no command holds up the stream behind it (hazard A10). Pure.

use std::collections::VecDeque;

use bytes::Bytes;
use holdfast_proto::block::Kind;
use holdfast_proto::units::SHARD_BYTES;

/// Most bytes of data in one part.
pub(crate) const MAX_PART_BYTES: u64 = 1 << 20;

/// A range of bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    /// First byte.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// What is to be done to a volume.
#[derive(Clone, Debug)]
pub(crate) enum BlockOperation {
    /// Read a range.
    Read(ByteRange),
    /// Write a range with as many bytes.
    Write(ByteRange, Vec<Bytes>),
    /// Write a range with one logical block repeated.
    WriteSame(ByteRange, Bytes),
    /// Turn ranges into holes, which read as zeros.
    Unmap(Vec<ByteRange>),
    /// Everything acknowledged before is durable.
    Flush,
}

/// One request to storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) kind: Kind,
    pub(crate) range: ByteRange,
    /// Data to write; a single logical block for WRITE SAME.
    pub(crate) payload: Vec<Bytes>,
}

/// The parts of an operation, in ascending order, made one at a time so that a huge range costs no memory.
#[derive(Debug)]
pub(crate) struct Parts {
    kind: Kind,
    ranges: VecDeque<ByteRange>,
    payload: VecDeque<Bytes>,
}

impl Parts {
    pub(crate) fn new(operation: BlockOperation) -> Self {
        let (kind, ranges, payload) = match operation {
            BlockOperation::Read(range) => (Kind::Read, vec![range], vec![]),
            BlockOperation::Write(range, data) => (Kind::Write, vec![range], data),
            BlockOperation::WriteSame(range, block) => (Kind::WriteSame, vec![range], vec![block]),
            BlockOperation::Unmap(ranges) => (Kind::Unmap, ranges, vec![]),
            // A flush has no range, but one part goes to the volume all the same.
            BlockOperation::Flush => (Kind::Flush, vec![ByteRange { offset: 0, len: 0 }], vec![]),
        };
        let ranges = ranges.into_iter().filter(|range| range.len > 0 || kind == Kind::Flush).collect();
        Self { kind, ranges, payload: payload.into() }
    }

    fn most_bytes(&self) -> u64 {
        match self.kind {
            Kind::Read | Kind::Write | Kind::WriteSame => MAX_PART_BYTES,
            Kind::Unmap | Kind::Flush => SHARD_BYTES,
        }
    }

    /// Takes the next `len` bytes off the front of the payload.
    fn take_payload(&mut self, mut len: u64) -> Vec<Bytes> {
        let mut taken = Vec::with_capacity(1);
        while len > 0 {
            let Some(mut segment) = self.payload.pop_front() else {
                break;
            };
            if segment.len() as u64 > len {
                let at = usize::try_from(len).unwrap_or(segment.len());
                let rest = segment.split_off(at);
                self.payload.push_front(rest);
            }
            len -= segment.len() as u64;
            if !segment.is_empty() {
                taken.push(segment);
            }
        }
        taken
    }
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let whole = self.ranges.pop_front()?;
        let to_border = SHARD_BYTES - whole.offset % SHARD_BYTES;
        let len = whole.len.min(to_border).min(self.most_bytes());
        if len < whole.len {
            self.ranges.push_front(ByteRange { offset: whole.offset + len, len: whole.len - len });
        }
        let payload = match self.kind {
            Kind::Write => self.take_payload(len),
            Kind::WriteSame => self.payload.iter().cloned().collect(),
            Kind::Read | Kind::Unmap | Kind::Flush => Vec::new(),
        };
        Some(Part { kind: self.kind, range: ByteRange { offset: whole.offset, len }, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges(operation: BlockOperation) -> Vec<(u64, u64)> {
        Parts::new(operation).map(|part| (part.range.offset, part.range.len)).collect()
    }

    #[test]
    fn read_over_a_shard_border_is_cut_there() {
        let range = ByteRange { offset: SHARD_BYTES - 4096, len: 8192 };
        assert_eq!(ranges(BlockOperation::Read(range)), [(SHARD_BYTES - 4096, 4096), (SHARD_BYTES, 4096)]);
    }

    #[test]
    fn unmap_takes_whole_shards_and_skips_empty_ranges() {
        let all = vec![ByteRange { offset: 0, len: 2 * SHARD_BYTES + 512 }, ByteRange { offset: 7, len: 0 }];
        assert_eq!(
            ranges(BlockOperation::Unmap(all)),
            [(0, SHARD_BYTES), (SHARD_BYTES, SHARD_BYTES), (2 * SHARD_BYTES, 512)]
        );
    }

    #[test]
    fn flush_is_one_part() {
        assert_eq!(ranges(BlockOperation::Flush), [(0, 0)]);
    }

    proptest! {
        #[test]
        fn write_parts_together_are_the_write(
            start in 0u64..(3 * SHARD_BYTES / 512),
            segments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..700_000), 1..6),
        ) {
            let data: Vec<u8> = segments.concat();
            let range = ByteRange { offset: start * 512, len: data.len() as u64 };
            let payload = segments.into_iter().map(Bytes::from).collect();
            let mut at = range.offset;
            let mut seen = Vec::new();
            for part in Parts::new(BlockOperation::Write(range, payload)) {
                prop_assert_eq!(part.range.offset, at);
                prop_assert!(part.range.len <= MAX_PART_BYTES);
                let last = part.range.offset + part.range.len - 1;
                prop_assert_eq!(part.range.offset / SHARD_BYTES, last / SHARD_BYTES);
                let bytes: Vec<u8> = part.payload.iter().flat_map(|b| b.iter().copied()).collect();
                prop_assert_eq!(bytes.len() as u64, part.range.len);
                seen.extend(bytes);
                at += part.range.len;
            }
            prop_assert_eq!(seen, data);
        }
    }
}
