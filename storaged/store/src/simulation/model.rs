//! What has to be there: the same operations on maps of numbers, written from the meaning of the operations alone.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_proto::ids::OpId;
use holdfast_proto::units::BLOCK_LEN;

use super::workload::number_of;
use crate::dedupe::Known;
use crate::format::record::OperationRecord;
use crate::ids::{CHUNK_BLOCKS, ChunkIndex, ShardId, Version};
use crate::machine::{ChunkVersion, Work};
use crate::operation::{Change, Mutation};
use crate::shard::ShardState;

/// All shards.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) shards: BTreeMap<ShardId, ShardModel>,
    /// Numbers that were ever written to a block, for disks that lose what was durable.
    pub(super) history: BTreeMap<(ShardId, u32), BTreeSet<u64>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ShardModel {
    pub(super) state: ShardState,
    /// Number of each block that is not a hole.
    pub(super) blocks: BTreeMap<u32, u64>,
    chunks: BTreeMap<ChunkIndex, ChunkModel>,
    operations: Vec<OperationRecord>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ChunkModel {
    version: Version,
    stale: bool,
    /// Written since it was last unmapped as a whole.
    written: bool,
}

impl Model {
    pub(super) fn apply(&mut self, work: &Work) {
        match work {
            Work::Mutate(mutation) => self.mutate(mutation),
            Work::State(record) => {
                let state = &mut self.shards.entry(record.shard).or_default().state;
                state.epoch = state.epoch.max(record.epoch);
                state.term = state.term.max(record.term);
                state.committed = state.committed.max(record.committed);
                state.suspect = record.suspect;
            }
            Work::Stale { shard, first, count, stale } => {
                let shard = self.shards.entry(*shard).or_default();
                for chunk in (first.get()..first.get() + count).filter_map(ChunkIndex::new) {
                    shard.chunks.entry(chunk).or_default().stale = *stale;
                }
            }
            Work::Drop(shard) => {
                self.shards.remove(shard);
            }
        }
    }

    fn mutate(&mut self, mutation: &Mutation) {
        let Mutation { shard: id, at, chunk_version, committed, operation, changes } = mutation;
        let shard = self.shards.entry(*id).or_default();
        shard.state.last = shard.state.last.max(*at);
        shard.state.committed = shard.state.committed.max(*committed);
        shard.operations.extend(operation);
        let version = chunk_version.unwrap_or(*at);
        for change in changes {
            match change {
                Change::Write { first_block, data, .. } => {
                    for (block, bytes) in (*first_block..).zip(data.concat().chunks(BLOCK_LEN)) {
                        let number = number_of(bytes).unwrap();
                        shard.blocks.insert(block, number);
                        self.history.entry((*id, block)).or_default().insert(number);
                        let chunk = ChunkIndex::of_block(block).unwrap();
                        let chunk = shard.chunks.entry(chunk).or_default();
                        (chunk.version, chunk.written) = (version, true);
                    }
                }
                Change::Hole { first_block, blocks } => shard.unmap(*first_block, first_block + blocks, version),
            }
        }
    }
}

impl ShardModel {
    /// A chunk without data is not changed by a hole.
    fn unmap(&mut self, from: u32, to: u32, version: Version) {
        let gone: Vec<u32> = self.blocks.range(from..to).map(|(block, _)| *block).collect();
        for block in gone {
            self.blocks.remove(&block);
        }
        for (chunk, state) in &mut self.chunks {
            let first = chunk.first_block();
            let end = first + CHUNK_BLOCKS;
            if state.written && first < to && from < end {
                state.version = version;
                state.written = from > first || to < end;
            }
        }
    }

    /// What the shard has to answer for its versions.
    pub(super) fn versions(&self) -> Vec<(ChunkIndex, ChunkVersion)> {
        let known = self.chunks.iter().filter(|(_, chunk)| chunk.version != Version::default() || chunk.stale);
        let answer =
            |chunk: &ChunkModel| ChunkVersion { version: chunk.version, stale: chunk.stale, has_data: chunk.written };
        known.map(|(index, chunk)| (*index, answer(chunk))).collect()
    }

    /// How many chunks take space: at least those that hold a block, at most those that were written since their last whole hole.
    pub(super) fn slots(&self) -> (usize, usize) {
        let holding: BTreeSet<_> = self.blocks.keys().filter_map(|block| ChunkIndex::of_block(*block)).collect();
        (holding.len(), self.chunks.values().filter(|chunk| chunk.written).count())
    }

    /// What has to be known of an operation.
    pub(super) fn known(&self, id: &OpId) -> Known {
        let lane =
            self.operations.iter().filter(|done| (done.id.incarnation, done.id.lane) == (id.incarnation, id.lane));
        if lane.clone().any(|done| id.sequence < done.acked_below) {
            return Known::Forgotten;
        }
        lane.clone().find(|done| done.id == *id).map_or(Known::New, |done| Known::Done(done.outcome))
    }

    /// Operations to ask for.
    pub(super) fn operations(&self) -> impl Iterator<Item = OpId> {
        self.operations.iter().map(|done| done.id)
    }
}
