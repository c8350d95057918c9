//! What a read will find where, decided at one moment; carried out afterwards, while other things go on.

use bytes::Bytes;
use smallvec::SmallVec;

use super::Machine;
use crate::format::entry::Content;
use crate::grace::Epoch;
use crate::ids::{BLOCKS_PER_CHUNK, ChunkIndex, ShardId};
use crate::overlay::{Base, BlockChange};
use crate::shard::{Shard, Source};
use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};

/// Consecutive blocks that come from one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Holes.
    Zeros { blocks: u32 },
    /// A block that is journalled and not in its slot yet.
    Memory { bytes: Bytes, crc: u32 },
    /// A block whose content nobody knows.
    Lost,
    /// Blocks of a slot, `offset` bytes into the device.
    Disk { offset: u64, crcs: SmallVec<[u32; BLOCKS_PER_CHUNK]> },
}

impl Piece {
    /// How many blocks it gives.
    pub(crate) fn blocks(&self) -> usize {
        match self {
            Self::Zeros { blocks } => usize::try_from(*blocks).unwrap_or(usize::MAX),
            Self::Memory { .. } | Self::Lost => 1,
            Self::Disk { crcs, .. } => crcs.len(),
        }
    }
}

/// How to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadPlan {
    /// These pieces, in order. [`Machine::read_is_over`] has to follow.
    Ready { pieces: Vec<Piece>, planned: Epoch },
    /// These chunks' entries are wanted first, as the catalogue has them at this checkpoint.
    Load { chunks: Vec<ChunkIndex>, checkpoint: u64 },
    /// The catalogue has no entry of a chunk that has a slot: the map is damaged.
    Missing(ChunkIndex),
}

/// What is known of a chunk's entry in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cold {
    /// Nothing yet.
    Unknown,
    /// It is there, with this content or without any.
    Known(Option<Content>),
}

impl<T> Machine<T> {
    /// Plans a read of `count` blocks, at least one. `cold` tells what is known of the catalogue's entries as of the last
    /// checkpoint; it is asked only for what lies nowhere above.
    pub(crate) fn plan_read(
        &mut self,
        shard: ShardId,
        first_block: u32,
        count: u32,
        mut cold: impl FnMut(ChunkIndex) -> Cold,
    ) -> ReadPlan {
        let mut pieces = Pieces(Vec::new());
        let Some(state) = self.shards.get(&shard) else {
            pieces.zeros(count);
            return ReadPlan::Ready { pieces: pieces.0, planned: self.reads.begin() };
        };
        let mut wanted = Vec::new();
        for (chunk, first, blocks) in super::form::spans(first_block, usize::try_from(count).unwrap_or(usize::MAX)) {
            let content = match state.source(chunk) {
                Source::Nothing => None,
                Source::Entry(content) => Some(*content),
                // A chunk that the overlay covers needs no entry.
                Source::Catalogue if covered(state, chunk, first, blocks) => None,
                Source::Catalogue => match cold(chunk) {
                    Cold::Known(Some(content)) => Some(content),
                    Cold::Known(None) => return ReadPlan::Missing(chunk),
                    Cold::Unknown => {
                        wanted.push(chunk);
                        continue;
                    }
                },
            };
            let at = content.map(|content| self.slot_offset(content.slot)).unwrap_or_default();
            for block in (first..).take(blocks) {
                match change_of(state, chunk, block) {
                    Some(BlockChange::Data { bytes, crc }) => {
                        pieces.0.push(Piece::Memory { bytes: bytes.clone(), crc: *crc });
                    }
                    Some(BlockChange::Hole) => pieces.zeros(1),
                    None => pieces.slot_block(content.as_ref(), at, block),
                }
            }
        }
        if wanted.is_empty() {
            ReadPlan::Ready { pieces: pieces.0, planned: self.reads.begin() }
        } else {
            ReadPlan::Load { chunks: wanted, checkpoint: self.checkpoint_number }
        }
    }

    /// A planned read has ended. Whether slots came back with it, for which work may be waiting.
    pub(crate) fn read_is_over(&mut self, planned: Epoch) -> bool {
        self.reads.end(planned);
        self.collect()
    }

    /// Slots whose grace period is over can be used again. Whether there were any.
    pub(super) fn collect(&mut self) -> bool {
        let waiting = self.freed.len();
        while let Some((turn, _)) = self.freed.front()
            && self.reads.are_over(*turn)
            && let Some((_, slots)) = self.freed.pop_front()
        {
            slots.into_iter().for_each(|slot| self.allocator.release(slot));
            if self.growth == super::Growth::Failed {
                self.growth = super::Growth::Idle;
            }
        }
        self.freed.len() < waiting
    }
}

/// What became of a block since the last checkpoint.
fn change_of(shard: &Shard, chunk: ChunkIndex, block: u8) -> Option<&BlockChange> {
    for layer in [&shard.active, &shard.frozen] {
        if let Some(delta) = layer.get(&chunk) {
            if let Some(change) = delta.block(block) {
                return Some(change);
            }
            // What lies below a new base is gone.
            if delta.base != Base::Below {
                return None;
            }
        }
    }
    None
}

fn covered(shard: &Shard, chunk: ChunkIndex, first: u8, blocks: usize) -> bool {
    (first..).take(blocks).all(|block| change_of(shard, chunk, block).is_some())
}

struct Pieces(Vec<Piece>);

impl Pieces {
    fn zeros(&mut self, more: u32) {
        match self.0.last_mut() {
            Some(Piece::Zeros { blocks }) => *blocks += more,
            _ => self.0.push(Piece::Zeros { blocks: more }),
        }
    }

    fn slot_block(&mut self, content: Option<&Content>, slot_at: u64, block: u8) {
        let Some(content) = content.filter(|content| content.mapped >> block & 1 == 1) else {
            return self.zeros(1);
        };
        if content.lost >> block & 1 == 1 {
            return self.0.push(Piece::Lost);
        }
        let crc = content.crcs.get(usize::from(block)).copied().unwrap_or_default();
        let at = slot_at + u64::from(block) * BLOCK_BYTES;
        match self.0.last_mut() {
            Some(Piece::Disk { offset, crcs }) if *offset + (crcs.len() * BLOCK_LEN) as u64 == at => crcs.push(crc),
            _ => self.0.push(Piece::Disk { offset: at, crcs: SmallVec::from_iter([crc]) }),
        }
    }
}
