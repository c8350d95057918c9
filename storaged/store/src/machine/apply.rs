//! A durable batch becomes state. Replay goes the same way, so that what is found after a crash is what was there before.

use bytes::Bytes;
use holdfast_proto::units::BLOCK_LEN;

use super::form::whole_chunks;
use super::{JournalEnd, Machine, Outcome};
use crate::allocator::Contradiction;
use crate::error::StoreError;
use crate::format::record::{MutationRecord, Part, Record, StateRecord};
use crate::ids::{CHUNK_BLOCKS, ChunkIndex, ShardId, Version};
use crate::mutants::{Mutant, broken};

/// Why the journal cannot be carried out: it contradicts the catalogue, or itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    /// A slot is given out that is in use.
    #[error("slot {} is given to a second chunk", .0.0)]
    SlotInUse(crate::ids::Slot),
    /// Blocks come without the bytes that belong to them.
    #[error("a batch has less payload than its records name")]
    PayloadMissing,
}

impl From<Contradiction> for ApplyError {
    fn from(contradiction: Contradiction) -> Self {
        Self::SlotInUse(contradiction.0)
    }
}

/// Who applies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// This run formed the batch, and has taken its slots.
    Commit,
    /// A former run did.
    Replay,
}

impl<T> Machine<T> {
    /// The batch in flight is durable. `payload` is what [`Formed::writes`](super::Formed::writes) gave.
    pub(crate) fn applied(&mut self, payload: &Bytes) -> Vec<Outcome<T>> {
        let Some(batch) = self.in_flight.take() else {
            return Vec::new();
        };
        self.unproven = !batch.records.is_empty();
        self.next = batch.end;
        debug_assert!(batch.len <= self.ring.len_bytes());
        let mut rest = payload.clone();
        for record in &batch.records {
            // A record of our own names slots that were taken for it, and blocks that were put behind it.
            if let Err(error) = self.apply(record, &mut rest, By::Commit) {
                let why = format!("the engine contradicts itself: {error}").into();
                self.in_flight = Some(batch);
                return self.fail(&why);
            }
        }
        batch.done.into_iter().map(|tag| (tag, Ok::<(), StoreError>(()))).collect()
    }

    /// A batch that a former run has left in the journal.
    pub(crate) fn replay(&mut self, records: &[Record], payload: &Bytes, end: JournalEnd) -> Result<(), ApplyError> {
        let mut rest = payload.clone();
        for record in records {
            self.apply(record, &mut rest, By::Replay)?;
        }
        self.next = end;
        Ok(())
    }

    fn apply(&mut self, record: &Record, payload: &mut Bytes, by: By) -> Result<(), ApplyError> {
        match record {
            Record::Mutation(mutation) => self.apply_mutation(mutation, payload, by)?,
            Record::State(record) => self.apply_state(record),
            Record::Stale { shard, first, count, stale } => self.apply_stale(*shard, *first, *count, *stale),
            Record::Drop { shard } => self.apply_drop(*shard),
        }
        Ok(())
    }

    fn apply_mutation(&mut self, mutation: &MutationRecord, payload: &mut Bytes, by: By) -> Result<(), ApplyError> {
        self.dirty.insert(mutation.shard);
        let shard = self.shards.entry(mutation.shard).or_default();
        shard.state.last = shard.state.last.max(mutation.at);
        shard.state.committed = shard.state.committed.max(mutation.committed);
        if let Some(operation) = &mutation.operation {
            shard.dedupe.record(operation);
        }
        for part in &mutation.parts {
            match part {
                Part::Blocks { chunk, first, fresh, crcs } => {
                    if let Some(slot) = fresh {
                        if by == By::Replay {
                            self.allocator.claim(*slot)?;
                        }
                        self.slot_changes.added.push(*slot);
                    }
                    let len = crcs.len() * BLOCK_LEN;
                    if payload.len() < len {
                        return Err(ApplyError::PayloadMissing);
                    }
                    let bytes = payload.split_to(len);
                    self.put_blocks(mutation.shard, mutation.chunk_version, *chunk, *first, *fresh, crcs, &bytes);
                }
                Part::Chunk { chunk, slot, crcs } => {
                    if by == By::Replay {
                        self.allocator.claim(*slot)?;
                    }
                    self.slot_changes.added.push(*slot);
                    self.may_free = true;
                    self.change(mutation.shard, *chunk, |shard, chunk| {
                        shard.set_slot(chunk, true);
                        shard.set_touched(chunk, true);
                        shard.delta(chunk).put_chunk(mutation.chunk_version, *slot, *crcs)
                    });
                }
                Part::Hole { first_block, blocks } => {
                    self.put_hole(mutation.shard, mutation.chunk_version, *first_block, *blocks);
                }
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of a record's part, in its order")]
    fn put_blocks(
        &mut self,
        shard: ShardId,
        version: Version,
        chunk: ChunkIndex,
        first: u8,
        fresh: Option<crate::ids::Slot>,
        crcs: &[u32],
        bytes: &Bytes,
    ) {
        self.change(shard, chunk, |shard, chunk| {
            shard.set_slot(chunk, true);
            shard.set_touched(chunk, true);
            let delta = shard.delta(chunk);
            let freed = fresh.and_then(|slot| delta.put_slot(slot));
            for ((block, crc), at) in (first..).zip(crcs).zip((0..).step_by(BLOCK_LEN)) {
                delta.put_block(version, block, bytes.slice(at..at + BLOCK_LEN), *crc);
            }
            freed
        });
    }

    /// Whole chunks lose their slots; a chunk that holds nothing stays as it is, so that its version does not depend on how often
    /// nothing was unmapped.
    fn put_hole(&mut self, shard: ShardId, version: Version, first_block: u32, blocks: u32) {
        let (from, to) = whole_chunks(first_block, blocks);
        let touched = self.shards.get(&shard).map(|shard| shard.touched_in(from, to)).unwrap_or_default();
        self.may_free |= !touched.is_empty();
        for chunk in touched {
            self.change(shard, chunk, |shard, chunk| {
                shard.set_slot(chunk, false);
                shard.set_touched(chunk, false);
                shard.delta(chunk).put_hole(version)
            });
        }
        let end = first_block.saturating_add(blocks);
        let head_end = (u32::from(from) * CHUNK_BLOCKS).min(end);
        let tail = (u32::from(to) * CHUNK_BLOCKS).max(head_end);
        for (from, to) in [(first_block, head_end), (tail, end)] {
            if from < to {
                self.put_block_holes(shard, version, from, to);
            }
        }
    }

    /// Blocks of one chunk, which keeps its slot.
    fn put_block_holes(&mut self, shard: ShardId, version: Version, from: u32, to: u32) {
        for (chunk, first, count) in super::form::spans(from, usize::try_from(to - from).unwrap_or_default()) {
            if !self.shards.get(&shard).is_some_and(|shard| shard.is_touched(chunk)) {
                continue;
            }
            self.may_free = true;
            let drops_overlay = broken(Mutant::HoleDropsOverlay);
            self.change(shard, chunk, |shard, chunk| {
                let has_slot = shard.has_slot(chunk);
                let delta = shard.delta(chunk);
                delta.version = Some(version);
                if drops_overlay {
                    delta.forget_blocks();
                }
                if has_slot {
                    (first..).take(count).for_each(|block| delta.put_block_hole(version, block));
                }
                None
            });
        }
    }

    /// Changes a chunk and keeps the sums over all chunks.
    fn change(
        &mut self,
        shard: ShardId,
        chunk: ChunkIndex,
        change: impl FnOnce(&mut crate::shard::Shard, ChunkIndex) -> crate::overlay::Freed,
    ) {
        self.dirty.insert(shard);
        let shard = self.shards.entry(shard).or_default();
        let before = shard.active.get(&chunk).map(crate::overlay::Delta::data_bytes);
        let freed = change(shard, chunk);
        self.slot_changes.removed.extend(freed);
        let after = shard.active.get(&chunk).map(crate::overlay::Delta::data_bytes);
        self.active_chunks += usize::from(before.is_none() && after.is_some());
        self.active_bytes = (self.active_bytes + after.unwrap_or_default()).saturating_sub(before.unwrap_or_default());
    }

    fn apply_state(&mut self, record: &StateRecord) {
        self.dirty.insert(record.shard);
        let state = &mut self.shards.entry(record.shard).or_default().state;
        state.epoch = state.epoch.max(record.epoch);
        state.term = state.term.max(record.term);
        state.committed = state.committed.max(record.committed);
        state.suspect = record.suspect;
    }

    fn apply_stale(&mut self, shard: ShardId, first: ChunkIndex, count: u16, stale: bool) {
        for chunk in (first.get()..first.get().saturating_add(count)).filter_map(ChunkIndex::new) {
            self.change(shard, chunk, |shard, chunk| {
                shard.delta(chunk).stale = Some(stale);
                None
            });
        }
    }

    /// Its slots in the catalogue are found, and freed, by the next checkpoint.
    fn apply_drop(&mut self, shard: ShardId) {
        let Some(gone) = self.shards.remove(&shard) else {
            return;
        };
        self.dirty.remove(&shard);
        self.dropped.insert(shard);
        self.may_free = true;
        for delta in gone.active.values() {
            self.slot_changes.removed.extend(delta.own_slot());
            self.active_bytes = self.active_bytes.saturating_sub(delta.data_bytes());
        }
        self.active_chunks = self.active_chunks.saturating_sub(gone.active.len());
    }
}
