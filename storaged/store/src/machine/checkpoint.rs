//! A checkpoint: the state at the border of two batches goes into the catalogue, and the journal before it is free again.
//!
//! ```text
//! begin     active layer -> frozen layer; position P; the catalogue will say what is true at P
//! merge     lower entries + frozen deltas -> new entries, in slices; which blocks to write where
//! (grace)   reads that were planned before `begin` end
//! (apply)   the shell writes the blocks, in order of their places, and syncs the device
//! (commit)  the shell commits `changes` to the catalogue
//! finish    frozen layer -> recent; the journal before P, and the slots that nobody refers to, are free
//! ```
//!
//! The order is the safety: a block is applied only over what the journal can repeat; the map is committed only when what it says
//! is in the slots; the journal is trimmed, and a slot used again, only when the map no longer needs them.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdfast_proto::units::BLOCK_BYTES;

use super::{JournalEnd, Machine, SlotChanges};
use crate::catalogue::Changes;
use crate::format::allocation::AllocationPage;
use crate::format::checkpoint::CheckpointRecord;
use crate::format::entry::Entry;
use crate::format::keys;
use crate::format::record::Record;
use crate::format::shard::{ShardBitmaps, ShardRecord};
use crate::grace::Epoch;
use crate::ids::{ChunkIndex, DiskUuid, ShardId};
use crate::mutants::{Mutant, broken};
use crate::overlay::{Base, BlockChange, Merged};
use crate::shard::has_slot;

/// A chunk of a shard.
pub(crate) type ChunkId = (ShardId, ChunkIndex);

/// What the catalogue says of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lower {
    /// This, or nothing.
    Entry(Option<Entry>),
    /// Its entry cannot be read: what it had before is lost.
    Damaged,
}

/// A checkpoint under way.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    number: u64,
    end: JournalEnd,
    turn: Epoch,
    shards: BTreeMap<ShardId, Snapshot>,
    dropped: Vec<ShardId>,
    slot_changes: SlotChanges,
    /// Chunks that are still to be merged.
    waiting: Vec<ChunkId>,
    entries: Vec<(ChunkId, Option<Entry>)>,
    writes: Vec<(u64, Bytes)>,
}

/// A shard as it is at the checkpoint's position.
#[derive(Debug)]
struct Snapshot {
    record: ShardRecord,
    bitmaps: ShardBitmaps,
    bitmaps_changed: bool,
}

/// The bitmap pages that belong to a checkpoint.
pub(crate) type Tables = Vec<AllocationPage>;

impl Checkpoint {
    /// The next chunks to merge, at most `most`. Their lower entries are wanted.
    pub(crate) fn slice(&mut self, most: usize) -> Vec<ChunkId> {
        self.waiting.split_off(self.waiting.len().saturating_sub(most))
    }

    /// Blocks to be written to their slots, ascending by place. To be taken after the last merge.
    pub(crate) fn take_writes(&mut self) -> Vec<(u64, Bytes)> {
        let mut writes = std::mem::take(&mut self.writes);
        writes.sort_unstable_by_key(|(offset, _)| *offset);
        writes
    }

    /// Shards that are to be forgotten: their entries in the catalogue have to be shown to [`forget`](Self::forget).
    pub(crate) fn dropped(&self) -> &[ShardId] {
        &self.dropped
    }

    /// An entry of a shard that is dropped.
    pub(crate) fn forget(&mut self, entry: &Entry) {
        self.slot_changes.removed.extend(entry.content.map(|content| content.slot));
    }

    /// What the catalogue has to be told, all at once.
    pub(crate) fn changes(&self, uuid: DiskUuid, tables: &[AllocationPage]) -> Changes {
        let mut changes = Changes::default();
        for shard in &self.dropped {
            let range = keys::map_range(*shard);
            changes.delete_ranges.push((range.start, range.end));
            changes.deletes.push(keys::shard(*shard));
            changes.deletes.push(keys::bitmaps(*shard));
        }
        for ((shard, chunk), entry) in &self.entries {
            match entry {
                Some(entry) => changes.puts.push((keys::map(*shard, *chunk), entry.encode(*shard, *chunk))),
                None => changes.deletes.push(keys::map(*shard, *chunk)),
            }
        }
        for (shard, snapshot) in &self.shards {
            changes.puts.push((keys::shard(*shard), snapshot.record.encode(*shard)));
            if snapshot.bitmaps_changed {
                changes.puts.push((keys::bitmaps(*shard), snapshot.bitmaps.encode(*shard)));
            }
        }
        changes.puts.extend(tables.iter().map(|page| (keys::allocation(page.number), page.encode())));
        let record = CheckpointRecord {
            number: self.number,
            uuid,
            position: self.end.position,
            next_batch: self.end.number,
            previous_crc: self.end.previous_crc,
        };
        changes.puts.push((keys::checkpoint(), record.encode()));
        changes
    }
}

impl<T> Machine<T> {
    /// Whether it is time for a checkpoint.
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        let used = self.next.position - self.head;
        self.may_begin_checkpoint()
            && (used >= self.ring.len_bytes() / 2
                || self.active_bytes >= self.bounds.overlay_bytes / 2
                || self.active_chunks >= self.bounds.changed_chunks
                || self.slot_changes.added.len() >= self.bounds.freed_slots
                || (self.checkpoint_wanted && self.has_changes()))
    }

    /// Not while another is under way, nor while a batch in flight drops a shard: the shard would be gone before its changes are
    /// merged.
    fn may_begin_checkpoint(&self) -> bool {
        let drops = self
            .in_flight
            .as_ref()
            .is_some_and(|batch| batch.records.iter().any(|record| matches!(record, Record::Drop { .. })));
        !self.checkpointing && self.failed.is_none() && !drops
    }

    /// Whether there is anything that the catalogue does not have.
    pub(crate) fn has_changes(&self) -> bool {
        !self.dirty.is_empty() || !self.dropped.is_empty() || self.next.position != self.head
    }

    /// Whether there is more to checkpoint than empty batches.
    pub(crate) fn has_unwritten_changes(&self) -> bool {
        !self.checkpointing && (!self.dirty.is_empty() || !self.dropped.is_empty())
    }

    /// Begins a checkpoint of everything that was applied up to now; `None` while that is not possible.
    pub(crate) fn begin_checkpoint(&mut self) -> Option<Checkpoint> {
        if !self.may_begin_checkpoint() {
            return None;
        }
        self.checkpointing = true;
        self.frozen_may_free = std::mem::take(&mut self.may_free);
        self.credit = 0;
        self.frozen_bytes = std::mem::take(&mut self.active_bytes);
        self.active_chunks = 0;
        let mut shards = BTreeMap::new();
        let mut waiting = Vec::new();
        for id in std::mem::take(&mut self.dirty) {
            let Some(shard) = self.shards.get_mut(&id) else { continue };
            debug_assert!(shard.frozen.is_empty(), "two checkpoints at once");
            shard.frozen = std::mem::take(&mut shard.active);
            waiting.extend(shard.frozen.keys().map(|chunk| (id, *chunk)));
            let bitmaps_changed = std::mem::take(&mut shard.bitmaps_changed);
            shards.insert(id, Snapshot { record: shard.record(), bitmaps: shard.bitmaps.clone(), bitmaps_changed });
        }
        waiting.reverse();
        let dropped = self.dropped.iter().copied().collect();
        if broken(Mutant::TrimBeforeCommit) {
            self.head = self.next.position;
        }
        Some(Checkpoint {
            number: self.checkpoint_number + 1,
            end: self.next,
            turn: self.reads.turn(),
            shards,
            dropped,
            slot_changes: std::mem::take(&mut self.slot_changes),
            waiting,
            entries: Vec::new(),
            writes: Vec::new(),
        })
    }

    /// The entry of a chunk as of the last checkpoint, where it is in memory: `None` when only the catalogue has it.
    pub(crate) fn recent_entry(&self, (shard, chunk): ChunkId) -> Option<Option<Entry>> {
        self.shards.get(&shard).and_then(|shard| shard.recent.get(&chunk)).cloned()
    }

    /// Merges chunks of a [slice](Checkpoint::slice) with their lower entries. An error means that the disk has to be given up.
    pub(crate) fn merge(
        &mut self,
        checkpoint: &mut Checkpoint,
        slice: Vec<(ChunkId, Lower)>,
    ) -> Result<(), &'static str> {
        for ((id, chunk), lower) in slice {
            let slots_offset = self.slots_offset;
            let Some(shard) = self.shards.get_mut(&id) else { continue };
            let Some(delta) = shard.frozen.get(&chunk) else { continue };
            // Only a chunk that stays in the slot that it had needs its entry; that there is none is damage then, too.
            let had_slot = checkpoint.shards.get(&id).is_some_and(|snapshot| has_slot(&snapshot.bitmaps, chunk));
            let needs_slot = delta.base == Base::Below && had_slot;
            let lower = match lower {
                Lower::Entry(entry) if !needs_slot || entry.as_ref().is_some_and(|entry| entry.content.is_some()) => {
                    entry
                }
                Lower::Damaged if !needs_slot => None,
                Lower::Damaged | Lower::Entry(_) => {
                    let slot = self.allocator.take(1).first().copied();
                    let slot = slot.ok_or(
                        "a map entry is damaged or missing, and there is no slot for what was written to its chunk since",
                    )?;
                    checkpoint.slot_changes.added.push(slot);
                    Some(Entry::lost(slot))
                }
            };
            // A later change of the chunk counts on the slot, be it in memory or on its way to the disk.
            let in_flight = !broken(Mutant::FreeSlotOfBatchInFlight)
                && self.in_flight.as_ref().is_some_and(|batch| batch.chunks.contains_key(&(id, chunk)));
            let keep_slot = shard.active.contains_key(&chunk) || in_flight;
            let Merged { entry, freed, emptied } = delta.merge(lower.as_ref(), keep_slot);
            if broken(Mutant::ReuseSlotEarly) {
                freed.iter().for_each(|slot| self.allocator.release(*slot));
            }
            checkpoint.slot_changes.removed.extend(freed);
            if let Some(content) = entry.as_ref().and_then(|entry| entry.content) {
                let at = slots_offset + u64::from(content.slot.0) * crate::ids::CHUNK_BYTES;
                checkpoint.writes.extend(delta.blocks().filter_map(|(block, change)| match change {
                    BlockChange::Data { bytes, .. } => Some((at + u64::from(block) * BLOCK_BYTES, bytes.clone())),
                    BlockChange::Hole => None,
                }));
            }
            if emptied {
                shard.set_slot(chunk, false);
                if let Some(snapshot) = checkpoint.shards.get_mut(&id) {
                    crate::shard::clear_slot(&mut snapshot.bitmaps, chunk);
                    snapshot.bitmaps_changed = true;
                }
            }
            checkpoint.entries.push(((id, chunk), entry));
        }
        Ok(())
    }

    /// Whether the checkpoint's blocks may be written: no read may be looking at their places any more.
    pub(crate) fn may_apply(&self, checkpoint: &Checkpoint) -> bool {
        broken(Mutant::NoGrace) || self.reads.are_over(checkpoint.turn)
    }

    /// So many bytes were written to slots: writers may journal as many.
    pub(crate) fn progressed(&mut self, bytes: u64) {
        self.credit += bytes;
    }

    /// The pages of the allocation bitmap for a checkpoint whose chunks are all merged.
    pub(crate) fn tables(&self, checkpoint: &mut Checkpoint) -> Tables {
        if broken(Mutant::ForgetFreedSlot) {
            checkpoint.slot_changes.removed.pop();
        }
        if broken(Mutant::BlurredCheckpoint) {
            checkpoint.end = self.next;
        }
        self.allocator.pages_with(&checkpoint.slot_changes.added, &checkpoint.slot_changes.removed)
    }

    /// The catalogue had no space. The checkpoint's commit will be tried again.
    pub(crate) fn catalogue_is_full(&mut self) {
        self.catalogue_full = true;
    }

    /// The entries of the checkpoint before the one under way, which move on to the cache before [`finish`](Self::finish_checkpoint):
    /// up to `most`, of the first shard that has any.
    pub(crate) fn retiring(&self, after: Option<ChunkId>, most: usize) -> Vec<(ChunkId, Option<Entry>)> {
        let shards = match after {
            Some((shard, _)) => self.shards.range(shard..),
            None => self.shards.range(..),
        };
        let entries =
            shards.flat_map(|(id, shard)| shard.recent.iter().map(|(chunk, entry)| ((*id, *chunk), entry.clone())));
        entries.filter(|(chunk, _)| after.is_none_or(|after| *chunk > after)).take(most).collect()
    }

    /// The checkpoint is in the catalogue.
    pub(crate) fn finish_checkpoint(&mut self, checkpoint: Checkpoint) {
        let Checkpoint {
            number, end, shards, dropped, slot_changes: SlotChanges { added, mut removed }, entries, ..
        } = checkpoint;
        for shard in self.shards.values_mut().filter(|shard| !shard.recent.is_empty()) {
            shard.recent.clear();
        }
        for shard in shards.keys() {
            if let Some(shard) = self.shards.get_mut(shard) {
                shard.frozen.clear();
            }
        }
        for ((shard, chunk), entry) in entries {
            if let Some(shard) = self.shards.get_mut(&shard) {
                shard.recent.insert(chunk, entry);
            }
        }
        for shard in dropped {
            self.dropped.remove(&shard);
        }
        self.allocator.committed(&added, &removed);
        removed.sort_unstable();
        removed.dedup();
        let turn = self.reads.turn();
        if !removed.is_empty() {
            self.freed.push_back((turn, removed));
        }
        self.head = end.position;
        self.checkpoint_number = number;
        self.frozen_bytes = 0;
        self.checkpointing = false;
        self.checkpoint_wanted = false;
        self.catalogue_full = false;
        self.credit = 0;
        self.collect();
    }
}
