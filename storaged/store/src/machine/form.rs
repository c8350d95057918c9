//! Work becomes a batch: slots are given out, records made, the journal's room and the bounds of memory kept.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdfast_proto::units::BLOCK_LEN;
use smallvec::SmallVec;

use super::{Growth, InFlight, JournalEnd, Machine, Outcome, Work};
use crate::device::{Buffer, DeviceWrite};
use crate::error::StoreError;
use crate::format::batch::BatchBuilder;
use crate::format::record::{MutationRecord, Part, Record};
use crate::ids::{BLOCKS_PER_CHUNK, CHUNK_BLOCKS, CHUNK_LEN, ChunkIndex, ShardId, Slot};
use crate::journal::ring::Piece;
use crate::mutants::{Mutant, broken};
use crate::operation::{Change, Mutation};
use crate::pieces;
use crate::shard::Source;

/// Share of the journal, in quarters, from which writers are slowed to the pace of the checkpoint.
const SLOW_FROM_QUARTERS: u64 = 3;

/// A batch on its way to the disk. All of it has to be durable before it is applied.
#[derive(Debug)]
pub(crate) struct Formed {
    slots: Vec<DeviceWrite>,
    head: Vec<u8>,
    payload: Vec<Bytes>,
    payload_len: usize,
    places: [Piece; 2],
}

impl Formed {
    /// Bytes that go to the journal.
    pub(crate) fn journal_bytes(&self) -> u64 {
        self.places.iter().map(|piece| piece.len).sum()
    }

    /// What to write, the slots first; and the payload as one piece, which [`Machine::applied`] wants back. Memory of the
    /// journal's part is aligned to `align`.
    pub(crate) fn writes(self, align: usize) -> (Vec<DeviceWrite>, Bytes) {
        let head_len = self.head.len();
        let mut body = Buffer::with_capacity(align, head_len + self.payload_len);
        body.extend_from_slice(&self.head);
        for piece in &self.payload {
            body.extend_from_slice(piece);
        }
        let body = body.freeze();
        let mut writes = self.slots;
        let mut from = 0;
        for piece in self.places.iter().filter(|piece| piece.len > 0) {
            let to = from + usize::try_from(piece.len).unwrap_or(usize::MAX);
            writes.push(DeviceWrite::new(piece.offset, body.slice(from..to)));
            from = to;
        }
        (writes, body.slice(head_len..))
    }
}

/// Why the work at the front of the queue waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stall {
    /// For room in the journal or in memory.
    Room,
    /// For slots.
    Slots,
}

/// What the batch being formed does to chunks, before it is applied.
pub(super) type Local = BTreeMap<(ShardId, ChunkIndex), bool>;

/// One piece of work as it goes into a batch.
struct Plan {
    record: Record,
    slots: Vec<(Slot, Vec<Bytes>)>,
    payload: Vec<Bytes>,
    taken: Vec<Slot>,
    /// What a mutant writes over live blocks.
    in_place: Vec<(u64, Vec<Bytes>)>,
    local: Local,
}

/// No slot for a chunk that needs one.
struct Shortage {
    missing: usize,
    taken: Vec<Slot>,
}

impl<T> Machine<T> {
    /// The next batch, if there is work, none is in flight, and there is room. Work that cannot be done is put into
    /// `refused`. A stall ends with a checkpoint, with more slots, or with the end of a read that slots wait for.
    pub(crate) fn form(&mut self, refused: &mut Vec<Outcome<T>>) -> Result<Option<Formed>, Stall> {
        if self.in_flight.is_some() || self.failed.is_some() {
            return Ok(None);
        }
        let mut batch = Batch {
            builder: BatchBuilder::new(self.key),
            slots: Vec::new(),
            payload: Vec::new(),
            local: Local::new(),
            bytes: 0,
            done: Vec::new(),
            records: Vec::new(),
        };
        let mut stall = None;
        while let Some((work, tag)) = self.queue.pop_front() {
            if batch.bytes >= self.bounds.batch_bytes {
                self.queue.push_front((work, tag));
                break;
            }
            if self.waits_for_a_drop(&work) {
                self.queue.push_front((work, tag));
                stall = Some(Stall::Room);
                break;
            }
            let plan = match self.plan(&work, &batch.local) {
                Ok(plan) => plan,
                Err(shortage) => {
                    if self.refuses_for_space(&shortage) {
                        refused.push((tag, Err(StoreError::NoSpace)));
                        continue;
                    }
                    self.queue.push_front((work, tag));
                    stall = Some(Stall::Slots);
                    break;
                }
            };
            let room = batch.builder.len_after(&plan.record);
            if self.has_room(room, batch.builder.is_empty()) {
                batch.add(plan, tag, self.slots_offset);
                // What follows must not count on what the shard had.
                if matches!(work, Work::Drop(_)) {
                    break;
                }
                continue;
            }
            plan.taken.iter().for_each(|slot| self.allocator.release(*slot));
            if batch.builder.is_empty() && room > self.ring.len_bytes() / 2 {
                refused.push((tag, Err(StoreError::TooLong)));
                continue;
            }
            if batch.builder.is_empty() && self.catalogue_full && !self.journal_has(room) {
                refused.push((tag, Err(StoreError::NoSpace)));
                continue;
            }
            self.queue.push_front((work, tag));
            stall = Some(Stall::Room);
            break;
        }
        match (batch.builder.is_empty(), stall) {
            (false, _) => Ok(Some(self.finish_batch(batch))),
            (true, None) => Ok(None),
            (true, Some(stall)) => {
                self.checkpoint_wanted |= stall == Stall::Room;
                Err(stall)
            }
        }
    }

    /// An empty batch that proves the last one.
    pub(crate) fn form_seal(&mut self) -> Option<Formed> {
        if !self.wants_seal() || !self.has_room_for_seal() {
            return None;
        }
        Some(self.seal())
    }

    /// Whether an empty batch fits.
    pub(crate) fn has_room_for_seal(&self) -> bool {
        self.journal_has(BLOCK_LEN as u64)
    }

    /// As [`form_seal`](Self::form_seal), whatever the last batch was: what lies beyond the journal's end is overwritten.
    pub(crate) fn seal(&mut self) -> Formed {
        let batch = Batch {
            builder: BatchBuilder::new(self.key),
            slots: Vec::new(),
            payload: Vec::new(),
            local: Local::new(),
            bytes: 0,
            done: Vec::new(),
            records: Vec::new(),
        };
        self.finish_batch(batch)
    }

    fn finish_batch(&mut self, batch: Batch<T>) -> Formed {
        let JournalEnd { position, number, previous_crc } = self.next;
        let len = batch.builder.total_len();
        let (head, crc) = batch.builder.finish(number, position, previous_crc);
        let next_number = if broken(Mutant::ReuseBatchNumber) && number > 3 { number } else { number + 1 };
        let end = JournalEnd { position: position + len, number: next_number, previous_crc: crc };
        self.credit = self.credit.saturating_sub(len);
        self.in_flight = Some(InFlight { records: batch.records, done: batch.done, end, len, chunks: batch.local });
        Formed {
            slots: batch.slots,
            payload_len: batch.payload.iter().map(Bytes::len).sum(),
            head,
            payload: batch.payload,
            places: self.ring.pieces(position, len),
        }
    }

    /// Whether work that lacks slots has to be refused: there is nothing left to wait for.
    fn refuses_for_space(&mut self, shortage: &Shortage) -> bool {
        shortage.taken.iter().for_each(|slot| self.allocator.release(*slot));
        match self.growth {
            Growth::Wanted(_) => false,
            Growth::Idle => {
                self.growth = Growth::Wanted(u32::try_from(shortage.missing).unwrap_or(u32::MAX));
                false
            }
            // What was freed comes back with a checkpoint.
            Growth::Failed if self.will_free_slots() && !self.catalogue_full => {
                self.checkpoint_wanted = true;
                false
            }
            Growth::Failed => true,
        }
    }

    fn will_free_slots(&self) -> bool {
        self.may_free || (self.checkpointing && self.frozen_may_free) || !self.freed.is_empty()
    }

    /// A shard is dropped, and begun anew, only while no checkpoint has a part of it.
    fn waits_for_a_drop(&self, work: &Work) -> bool {
        let shard = match work {
            Work::Mutate(mutation) => mutation.shard,
            Work::State(record) => record.shard,
            Work::Stale { shard, .. } | Work::Drop(shard) => *shard,
        };
        self.dropped.contains(&shard) || (self.checkpointing && matches!(work, Work::Drop(_)))
    }

    fn journal_has(&self, len: u64) -> bool {
        len <= self.ring.free(self.head, self.next.position)
    }

    /// Whether a batch of `len` bytes may go into the journal now. The first record of a batch is only held back where it must.
    fn has_room(&self, len: u64, first: bool) -> bool {
        if !self.journal_has(len) || (len > self.ring.max_batch_bytes() && !first) {
            return false;
        }
        let overlay = self.active_bytes + self.frozen_bytes;
        if overlay > 0 && overlay + len > self.bounds.overlay_bytes.max(len) {
            return false;
        }
        let used = self.next.position - self.head + len;
        let slow = used > self.ring.len_bytes() / 4 * SLOW_FROM_QUARTERS;
        !slow || self.catalogue_full || (self.checkpointing && self.credit >= len)
    }

    fn plan(&mut self, work: &Work, local: &Local) -> Result<Plan, Shortage> {
        let simple = |record| Plan {
            record,
            slots: Vec::new(),
            payload: Vec::new(),
            taken: Vec::new(),
            in_place: Vec::new(),
            local: Local::new(),
        };
        match work {
            Work::State(record) => Ok(simple(Record::State(*record))),
            Work::Stale { shard, first, count, stale } => {
                Ok(simple(Record::Stale { shard: *shard, first: *first, count: *count, stale: *stale }))
            }
            Work::Drop(shard) => Ok(simple(Record::Drop { shard: *shard })),
            Work::Mutate(mutation) => self.plan_mutation(mutation, local, true).or_else(|shortage| {
                // Whole chunks may have taken what others cannot do without.
                shortage.taken.iter().for_each(|slot| self.allocator.release(*slot));
                self.plan_mutation(mutation, local, false)
            }),
        }
    }

    /// `redirect`: whole chunks go to new slots if there are any; otherwise through the journal, where they have a slot.
    fn plan_mutation(&mut self, mutation: &Mutation, batch: &Local, redirect: bool) -> Result<Plan, Shortage> {
        let shard = mutation.shard;
        let mut plan = Plan {
            record: Record::Mutation(MutationRecord {
                shard,
                at: mutation.at,
                chunk_version: mutation.chunk_version.unwrap_or(mutation.at),
                committed: mutation.committed,
                operation: mutation.operation,
                parts: SmallVec::new(),
            }),
            slots: Vec::new(),
            payload: Vec::new(),
            taken: Vec::new(),
            in_place: Vec::new(),
            local: Local::new(),
        };
        let mut parts = SmallVec::new();
        let mut missing = 0;
        for change in &mutation.changes {
            match change {
                Change::Hole { first_block, blocks } => {
                    parts.push(Part::Hole { first_block: *first_block, blocks: *blocks });
                    self.unmap_locally(shard, *first_block, *blocks, batch, &mut plan.local);
                }
                Change::Write { first_block, data, crcs } => {
                    let mut done = 0;
                    for (chunk, first, count) in spans(*first_block, crcs.len()) {
                        let sums = crcs.get(done..done + count).unwrap_or_default();
                        let has = self.has_slot_now(shard, chunk, batch, &plan.local);
                        let whole = <[u32; BLOCKS_PER_CHUNK]>::try_from(sums).ok().filter(|_| redirect || !has);
                        let wants = whole.is_some() || !has;
                        let slot = if wants { self.allocator.take(1).first().copied() } else { None };
                        plan.taken.extend(slot);
                        missing += usize::from(slot.is_none() && !has);
                        let mut bytes = Vec::new();
                        pieces::cut(data, done * BLOCK_LEN, count * BLOCK_LEN, &mut bytes);
                        if let (Some(crcs), Some(slot)) = (whole, slot) {
                            parts.push(Part::Chunk { chunk, slot, crcs });
                            plan.slots.push((slot, bytes));
                        } else {
                            parts.push(Part::Blocks {
                                chunk,
                                first,
                                fresh: slot,
                                crcs: sums.iter().copied().collect(),
                            });
                            if broken(Mutant::OverwriteInPlace) {
                                plan.in_place.extend(self.place_of(shard, chunk, first).map(|at| (at, bytes.clone())));
                            }
                            plan.payload.append(&mut bytes);
                        }
                        plan.local.insert((shard, chunk), true);
                        done += count;
                    }
                }
            }
        }
        if missing > 0 {
            return Err(Shortage { missing, taken: plan.taken });
        }
        if let Record::Mutation(record) = &mut plan.record {
            record.parts = parts;
        }
        Ok(plan)
    }

    /// Where a block lies that nothing in memory replaces, for a mutant.
    fn place_of(&self, shard: ShardId, chunk: ChunkIndex, first: u8) -> Option<u64> {
        match self.shards.get(&shard)?.source(chunk) {
            Source::Entry(content) => Some(self.slot_offset(content.slot) + u64::from(first) * BLOCK_LEN as u64),
            Source::Nothing | Source::Catalogue => None,
        }
    }

    fn has_slot_now(&self, shard: ShardId, chunk: ChunkIndex, batch: &Local, plan: &Local) -> bool {
        let local = plan.get(&(shard, chunk)).or_else(|| batch.get(&(shard, chunk)));
        local.copied().unwrap_or_else(|| self.shards.get(&shard).is_some_and(|state| state.has_slot(chunk)))
    }

    /// The whole chunks of a hole will have no slot.
    fn unmap_locally(&self, shard: ShardId, first_block: u32, blocks: u32, batch: &Local, plan: &mut Local) {
        let (from, to) = whole_chunks(first_block, blocks);
        if from >= to {
            return;
        }
        let touched = self.shards.get(&shard).map(|state| state.touched_in(from, to)).unwrap_or_default();
        let inside = |chunk: ChunkIndex| (from..to).contains(&chunk.get());
        let known: Vec<ChunkIndex> = batch
            .iter()
            .chain(plan.iter())
            .filter(|((of, chunk), _)| *of == shard && inside(*chunk))
            .map(|((_, chunk), _)| *chunk)
            .collect();
        for chunk in touched.into_iter().chain(known) {
            plan.insert((shard, chunk), false);
        }
    }
}

/// A batch being put together.
struct Batch<T> {
    builder: BatchBuilder,
    slots: Vec<DeviceWrite>,
    payload: Vec<Bytes>,
    local: Local,
    bytes: u64,
    done: Vec<T>,
    records: Vec<Record>,
}

impl<T> Batch<T> {
    fn add(&mut self, mut plan: Plan, tag: T, slots_offset: u64) {
        self.builder.push(&plan.record);
        self.bytes +=
            plan.slots.len() as u64 * CHUNK_LEN as u64 + u64::from(plan.record.payload_blocks()) * BLOCK_LEN as u64;
        for (slot, bytes) in plan.slots {
            let offset = slots_offset + u64::from(slot.0) * CHUNK_LEN as u64;
            match self.slots.last_mut() {
                Some(last) if last.offset + last.len_bytes() == offset => last.pieces.extend(bytes),
                _ => self.slots.push(DeviceWrite { offset, pieces: bytes }),
            }
        }
        self.slots.extend(plan.in_place.into_iter().map(|(offset, pieces)| DeviceWrite { offset, pieces }));
        self.payload.append(&mut plan.payload);
        self.local.append(&mut plan.local);
        self.records.push(plan.record);
        self.done.push(tag);
    }
}

/// The chunks that a run of blocks touches: chunk, first block in it, number of blocks in it.
pub(super) fn spans(first_block: u32, blocks: usize) -> impl Iterator<Item = (ChunkIndex, u8, usize)> {
    let mut at = first_block;
    let mut rest = blocks;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let chunk = ChunkIndex::of_block(at)?;
        let first = at - chunk.first_block();
        let count = rest.min(BLOCKS_PER_CHUNK - usize::try_from(first).ok()?);
        at = at.checked_add(u32::try_from(count).ok()?)?;
        rest -= count;
        Some((chunk, u8::try_from(first).ok()?, count))
    })
}

/// Chunks from the first up to the second, excluded, that a run of blocks covers as a whole.
pub(super) fn whole_chunks(first_block: u32, blocks: u32) -> (u16, u16) {
    let from = first_block.div_ceil(CHUNK_BLOCKS);
    let to = first_block.saturating_add(blocks) / CHUNK_BLOCKS;
    (u16::try_from(from).unwrap_or(u16::MAX), u16::try_from(to).unwrap_or(u16::MAX))
}
