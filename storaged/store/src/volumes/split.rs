//! From byte ranges of a volume to blocks: which of them an operation touches, which only in part, and in which shard
//! they lie.

use holdfast_proto::ids::ShardIndex;
use holdfast_proto::units::BLOCK_BYTES;

use crate::ids::BLOCKS_PER_SHARD;

/// The blocks of a volume that an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Number of the first block in the volume.
    pub(super) first: u64,
    /// Number of the block behind the last; above `first`.
    pub(super) end: u64,
    /// Something of the first block stays as it is.
    pub(super) head_partial: bool,
    /// Something of the last block stays as it is. False if that is the first one too, for which `head_partial` says it.
    pub(super) tail_partial: bool,
}

impl Footprint {
    /// Of a range in a volume of `size_bytes`; `None` if it is empty. What a last, short block has beyond the volume is
    /// zeros and counts as nothing.
    pub(super) fn of(offset: u64, len_bytes: u64, size_bytes: u64) -> Option<Self> {
        let end_bytes = offset.checked_add(len_bytes).filter(|_| len_bytes > 0)?;
        let (first, last) = (offset / BLOCK_BYTES, (end_bytes - 1) / BLOCK_BYTES);
        let short_end = end_bytes < ((last + 1) * BLOCK_BYTES).min(size_bytes);
        Some(Self {
            first,
            end: last + 1,
            head_partial: !offset.is_multiple_of(BLOCK_BYTES) || (first == last && short_end),
            tail_partial: first != last && short_end,
        })
    }

    /// How many blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.end - self.first
    }

    /// The blocks whose old content is needed.
    pub(super) fn partial(&self) -> impl Iterator<Item = u64> + use<> {
        let head = self.head_partial.then_some(self.first);
        head.into_iter().chain(self.tail_partial.then(|| self.end - 1))
    }

    /// Whether no old content is needed.
    pub(super) fn is_whole(&self) -> bool {
        !self.head_partial && !self.tail_partial
    }

    /// Whether the two must not be in flight at the same time: one of them changes a block in part that the other
    /// changes too, so that one would write back what the other has just replaced.
    pub(super) fn conflicts(&self, other: &Self) -> bool {
        self.partial().any(|block| other.touches(block)) || other.partial().any(|block| self.touches(block))
    }

    fn touches(&self, block: u64) -> bool {
        (self.first..self.end).contains(&block)
    }
}

/// Consecutive blocks of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardBlocks {
    /// Which shard of the volume.
    pub(super) shard: ShardIndex,
    /// Number of the first block in the shard.
    pub(super) first: u32,
    /// At least one, and not beyond the shard.
    pub(super) blocks: u32,
}

/// The parts of the blocks `first..end` of a volume in each shard.
pub(super) fn by_shard(first: u64, end: u64) -> impl Iterator<Item = ShardBlocks> + Send + use<> {
    let per_shard = u64::from(BLOCKS_PER_SHARD);
    let mut at = first;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let inside = at % per_shard;
        let blocks = (end - at).min(per_shard - inside);
        // Volumes have at most 2^20 shards, see `MAX_VOLUME_BYTES`.
        let shard = ShardIndex(u32::try_from(at / per_shard).ok()?);
        at += blocks;
        Some(ShardBlocks { shard, first: u32::try_from(inside).ok()?, blocks: u32::try_from(blocks).ok()? })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn footprint(first: u64, end: u64, head_partial: bool, tail_partial: bool) -> Option<Footprint> {
        Some(Footprint { first, end, head_partial, tail_partial })
    }

    #[test]
    fn footprint_when_edges_are_short_then_partial() {
        let size = 10 * 4096 + 512;
        assert_eq!(Footprint::of(4096, 0, size), None);
        assert_eq!(Footprint::of(u64::MAX, 1, size), None);
        assert_eq!(Footprint::of(4096, 8192, size), footprint(1, 3, false, false));
        assert_eq!(Footprint::of(4096, 100, size), footprint(1, 2, true, false));
        assert_eq!(Footprint::of(4196, 100, size), footprint(1, 2, true, false));
        assert_eq!(Footprint::of(8191, 1, size), footprint(1, 2, true, false));
        assert_eq!(Footprint::of(8191, 2, size), footprint(1, 3, true, true));
        assert_eq!(Footprint::of(4096, 8191, size), footprint(1, 3, false, true));
        // To the end of the volume, in the middle of a block.
        assert_eq!(Footprint::of(10 * 4096, 512, size), footprint(10, 11, false, false));
        assert_eq!(Footprint::of(9 * 4096 + 1, 4607, size), footprint(9, 11, true, false));
        assert_eq!(Footprint::of(10 * 4096, 511, size), footprint(10, 11, true, false));
        assert_eq!(Footprint::of(10 * 4096 + 1, 511, size), footprint(10, 11, true, false));
    }

    #[test]
    fn by_shard_when_over_borders_then_a_part_for_each() {
        let part = |shard, first, blocks| ShardBlocks { shard: ShardIndex(shard), first, blocks };
        assert_eq!(by_shard(5, 5).count(), 0);
        assert_eq!(by_shard(5, 7).collect::<Vec<_>>(), [part(0, 5, 2)]);
        assert_eq!(by_shard(262_143, 262_145).collect::<Vec<_>>(), [part(0, 262_143, 1), part(1, 0, 1)]);
        let parts: Vec<_> = by_shard(262_144, 3 * 262_144 + 1).collect();
        assert_eq!(parts, [part(1, 0, 262_144), part(2, 0, 262_144), part(3, 0, 1)]);
    }

    proptest! {
        #[test]
        fn conflict_when_by_blocks_then_a_shared_block_is_partial_in_one(
            a in (0u64..8 * 4096, 1u64..20_000), b in (0u64..8 * 4096, 1u64..20_000)
        ) {
            let size = 14 * 4096;
            // Per block: None, or whether it is changed in part.
            let touch = |(offset, len): (u64, u64), block: u64| {
                let (from, to) = (offset.max(block * 4096), (offset + len).min((block + 1) * 4096));
                (from < to).then(|| to - from < 4096)
            };
            let expected = (0..14).any(|block| matches!(
                (touch(a, block), touch(b, block)),
                (Some(x), Some(y)) if x || y
            ));
            let of = |(offset, len)| Footprint::of(offset, len, size).unwrap();
            prop_assert_eq!(of(a).conflicts(&of(b)), expected);
            prop_assert_eq!(of(b).conflicts(&of(a)), expected);
        }
    }
}
