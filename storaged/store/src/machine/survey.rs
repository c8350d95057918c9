//! What an offline check asks of a state: which shards and chunks there are.

use super::Machine;
use crate::ids::{CHUNKS_PER_SHARD, ChunkIndex, ShardId};

impl<T> Machine<T> {
    /// All shards, ascending.
    pub(crate) fn shard_ids(&self) -> Vec<ShardId> {
        self.shards.keys().copied().collect()
    }

    /// How many chunks of a shard have a slot; `None` when there is no such shard.
    pub(crate) fn slot_count(&self, shard: ShardId) -> Option<u32> {
        self.shards.get(&shard).map(|shard| shard.slot_count)
    }

    /// The chunks of a shard that have a slot, ascending: all others read as zeros.
    pub(crate) fn chunks_with_slot(&self, shard: ShardId) -> Vec<ChunkIndex> {
        let Some(shard) = self.shards.get(&shard) else { return Vec::new() };
        (0..CHUNKS_PER_SHARD).filter_map(ChunkIndex::new).filter(|chunk| shard.has_slot(*chunk)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::samples::{chunk, sample_shard, sample_superblock};
    use crate::machine::{Bounds, JournalEnd};
    use crate::shard::Shard;

    #[test]
    fn chunks_with_slot_when_some_have_then_those() {
        let end = JournalEnd { position: 0, number: 1, previous_crc: 0 };
        let mut machine = Machine::<()>::new(&sample_superblock(), 8, Bounds::default(), end, 1);
        let mut shard = Shard::default();
        for index in [0, 70, 16_383] {
            shard.set_slot(chunk(index), true);
        }
        machine.load_shard(sample_shard(), shard);
        assert_eq!(machine.shard_ids(), [sample_shard()]);
        assert_eq!(machine.chunks_with_slot(sample_shard()), [chunk(0), chunk(70), chunk(16_383)]);
        assert_eq!(machine.slot_count(sample_shard()), Some(3));
        let other = ShardId { index: holdfast_proto::ids::ShardIndex(9), ..sample_shard() };
        assert_eq!((machine.slot_count(other), machine.chunks_with_slot(other).len()), (None, 0));
    }
}
