//! What is asked of the engine: changes of few chunks in few shards, so that they meet each other often.

use bytes::Bytes;
use holdfast_proto::ids::{Incarnation, OpId, ShardIndex, VolumeId};
use holdfast_proto::units::{BLOCK_LEN, BlockSize, SHARD_BYTES};

use crate::catalogue::Changes;
use crate::device::sim::Random;
use crate::format::keys;
use crate::format::record::{OperationRecord, StateRecord};
use crate::ids::{BLOCKS_PER_SHARD, CHUNK_BLOCKS, CHUNKS_PER_SHARD, ChunkIndex, ShardId, Version};
use crate::machine::Work;
use crate::operation::{Change, Mutation};
use crate::store::{Kind, VolumeRecord};
use crate::volumes::record;

/// Chunks at the beginning of each shard that are used; besides them, the last one of the shard.
const CHUNKS: u32 = 6;

/// The shards.
pub(super) fn shards() -> [ShardId; 3] {
    let shard = |volume, index| ShardId { volume: VolumeId(volume), index: ShardIndex(index) };
    [shard(1, 0), shard(1, 1), shard(7, 3)]
}

/// The records of their volumes.
pub(super) fn volumes() -> Changes {
    let record = |shard: ShardId| VolumeRecord {
        id: shard.volume,
        name: format!("disk{}", shard.volume).parse().unwrap(),
        naa: record::NAA_LOCAL | shard.volume.0,
        size_bytes: 4 * SHARD_BYTES,
        block_size: BlockSize::B512,
        kind: Kind::Disk,
        read_only: false,
    };
    let mut changes = Changes::default();
    for record in shards().map(record) {
        changes.put(keys::volume(record.id), record::encode(&record));
    }
    changes.put(record::counter_key(), record::encode_counter(8));
    changes
}

/// The chunks of each that are used.
pub(super) fn chunks() -> impl Iterator<Item = ChunkIndex> {
    (0..CHUNKS as u16).chain([CHUNKS_PER_SHARD - 1]).filter_map(ChunkIndex::new)
}

/// What a block holds that was written with this number, never 0.
pub(super) fn content(number: u64) -> [u8; BLOCK_LEN] {
    let mut block = [0; BLOCK_LEN];
    for (index, word) in (0u64..).zip(block.chunks_exact_mut(8)) {
        word.copy_from_slice(&(number ^ (index << 48)).to_le_bytes());
    }
    block
}

/// The number with which a block was written; 0 for zeros.
pub(super) fn number_of(block: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*block.first_chunk()?);
    let expected = if number == 0 { [0; BLOCK_LEN] } else { content(number) };
    (block == expected).then_some(number)
}

/// Invents operations. Versions rise per shard, also over lives.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    /// Numbers of blocks that were used.
    written: u64,
    sequence: u64,
    life: u64,
}

impl Workload {
    /// Numbers of a later life are higher.
    pub(super) fn new(life: u64) -> Self {
        Self { written: life << 20, sequence: life << 20, life }
    }

    pub(super) fn next(&mut self, random: &mut Random) -> Work {
        let shard = shards()[random.index(3)];
        match random.below(40) {
            0 => Work::Drop(shard),
            1..=2 => Work::State(StateRecord {
                shard,
                epoch: random.below(9),
                term: random.below(9),
                committed: random.below(1000),
                suspect: random.one_in(2),
            }),
            3..=5 => {
                let first = ChunkIndex::new(random.below(u64::from(CHUNKS)) as u16).unwrap();
                let count = 1 + random.below(4) as u16;
                Work::Stale { shard, first, count, stale: random.one_in(2) }
            }
            _ => Work::Mutate(self.mutation(random, shard)),
        }
    }

    fn mutation(&mut self, random: &mut Random, shard: ShardId) -> Mutation {
        self.sequence += 1;
        let at = Version { term: 1 + self.life, sequence: self.sequence };
        let mut changes = vec![self.change(random)];
        if random.one_in(10) {
            changes = emptied(random);
        } else if random.one_in(5) {
            let second = self.change(random);
            let (from, to) = range(&second);
            let (other_from, other_to) = range(&changes[0]);
            if to <= other_from || other_to <= from {
                changes.push(second);
            }
        }
        let id = OpId {
            incarnation: Incarnation(1 + self.life),
            lane: random.below(2) as u32,
            sequence: self.sequence,
            part: random.below(2) as u32,
        };
        let acked_below = self.sequence.saturating_sub(random.below(12)).max(1);
        let operation = random.one_in(2).then(|| OperationRecord { id, acked_below, outcome: random.below(3) as u8 });
        let copied = Version { term: 1, sequence: random.below(self.sequence) + 1 };
        let chunk_version = random.one_in(6).then_some(copied);
        let committed = self.sequence.saturating_sub(random.below(4));
        Mutation { shard, at, chunk_version, committed, operation, changes }
    }

    fn change(&mut self, random: &mut Random) -> Change {
        let end = CHUNKS * CHUNK_BLOCKS;
        let (first_block, blocks) = match random.below(16) {
            // a few blocks anywhere
            0..=7 => {
                let first = random.below(u64::from(end)) as u32;
                (first, (1 + random.below(5) as u32).min(end - first))
            }
            // whole chunks
            8..=11 => {
                let first = random.below(u64::from(CHUNKS)) as u32;
                (first * CHUNK_BLOCKS, (1 + random.below(3) as u32).min(CHUNKS - first) * CHUNK_BLOCKS)
            }
            // over borders
            12..=13 => {
                let first = random.below(u64::from(end)) as u32;
                (first, (CHUNK_BLOCKS + random.below(30) as u32).min(end - first))
            }
            // the end of the shard
            _ => {
                let len = 1 + random.below(u64::from(CHUNK_BLOCKS)) as u32;
                (BLOCKS_PER_SHARD - len, len)
            }
        };
        match random.below(10) {
            0 => Change::Hole { first_block: 0, blocks: BLOCKS_PER_SHARD },
            1..=2 => Change::Hole { first_block, blocks },
            _ => self.write(random, first_block, blocks),
        }
    }

    fn write(&mut self, random: &mut Random, first_block: u32, blocks: u32) -> Change {
        let mut bytes = Vec::new();
        let mut crcs = Vec::new();
        for _ in 0..blocks {
            self.written += 1;
            let block = content(self.written);
            crcs.push(crc32c::crc32c(&block));
            bytes.extend_from_slice(&block);
        }
        let bytes = Bytes::from(bytes);
        let cut = random.index(bytes.len() + 1);
        Change::Write { first_block, data: vec![bytes.slice(..cut), bytes.slice(cut..)], crcs }
    }
}

/// A chunk loses its blocks, not as a whole.
fn emptied(random: &mut Random) -> Vec<Change> {
    let first = random.below(u64::from(CHUNKS)) as u32 * CHUNK_BLOCKS;
    let at = 1 + random.below(u64::from(CHUNK_BLOCKS) - 1) as u32;
    let hole = |first_block, blocks| Change::Hole { first_block, blocks };
    vec![hole(first, at), hole(first + at, CHUNK_BLOCKS - at)]
}

fn range(change: &Change) -> (u64, u64) {
    let first = u64::from(change.first_block());
    (first, first + change.blocks())
}
