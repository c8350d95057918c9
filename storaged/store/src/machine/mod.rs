//! The engine as a state machine: no threads, no clocks, no I/O. A shell brings it work and the outcome of I/O, and carries out what it
//! says; the simulation is one shell, `engine/` the other.
//!
//! Start reading in `form.rs` (work becomes a batch), `apply.rs` (a durable batch becomes state), `read.rs` and `checkpoint.rs`.
//!
//! What holds at every moment, across any crash:
//!
//! - The state in memory is that of the catalogue's last checkpoint with all durable batches after it applied in order.
//! - A batch is formed only when none is in flight, so a batch on the disk proves the one before.
//! - A slot that anything refers to, in memory, in the journal from its head on, or in the catalogue, is never handed out; one whose
//!   blocks a read under way may want is not written.

mod apply;
mod checkpoint;
mod form;
mod read;
mod survey;
mod versions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub(crate) use self::apply::ApplyError;
pub(crate) use self::checkpoint::{Checkpoint, ChunkId, Lower};
pub(crate) use self::form::{Formed, Stall};
pub(crate) use self::read::{Cold, Piece, ReadPlan};
pub use self::versions::ChunkVersion;
use crate::allocator::{Allocator, Contradiction};
use crate::dedupe::Known;
use crate::error::StoreError;
use crate::format::allocation::AllocationPage;
use crate::format::batch::ChainKey;
use crate::format::record::{Record, StateRecord};
use crate::format::superblock::Superblock;
pub(crate) use crate::grace::Epoch;
use crate::grace::Reads;
use crate::ids::{CHUNK_BYTES, ChunkIndex, ShardId, Slot};
use crate::journal::ring::Ring;
use crate::operation::Mutation;
use crate::shard::{Shard, ShardState};
use holdfast_proto::ids::{OpId, VolumeId};

/// Fewer free slots than this share of all, within these bounds, call for more.
const LOW_SLOTS: std::ops::Range<u32> = 64..1024;

/// What a batch is made of, before slots are given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Data change.
    Mutate(Mutation),
    /// A replica's numbers change; they never fall.
    State(StateRecord),
    /// Chunks become stale or fresh.
    Stale { shard: ShardId, first: ChunkIndex, count: u16, stale: bool },
    /// A shard is forgotten.
    Drop(ShardId),
}

/// Bounds of the state machine, bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Most memory for journalled blocks that are not in their slots yet.
    pub(crate) overlay_bytes: u64,
    /// Most chunks that are changed between two checkpoints.
    pub(crate) changed_chunks: usize,
    /// Slots that wait for a checkpoint before one is due.
    pub(crate) freed_slots: usize,
    /// Bytes of slots and payload in one batch, after which no more is added to it.
    pub(crate) batch_bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { overlay_bytes: 64 << 20, changed_chunks: 64 << 10, freed_slots: 4096, batch_bytes: 8 << 20 }
    }
}

/// Where the next batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    pub(crate) position: u64,
    pub(crate) number: u64,
    pub(crate) previous_crc: u32,
}

/// What a layer's changes did to the use of slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotChanges {
    pub(crate) added: Vec<Slot>,
    pub(crate) removed: Vec<Slot>,
}

/// Where more room may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// There is enough.
    Idle,
    /// The file should get this many slots more.
    Wanted(u32),
    /// It could not, the last time that it was tried.
    Failed,
}

/// The state machine. `T` names an operation to its caller.
#[derive(Debug)]
pub(crate) struct Machine<T> {
    key: ChainKey,
    ring: Ring,
    slots_offset: u64,
    bounds: Bounds,
    shards: BTreeMap<ShardId, Shard>,
    /// Shards with changes since the last checkpoint began.
    dirty: BTreeSet<ShardId>,
    /// Forgotten, and the catalogue does not know yet.
    dropped: BTreeSet<ShardId>,
    allocator: Allocator,
    /// Of the active layer.
    slot_changes: SlotChanges,
    /// Slots that no checkpoint refers to any more, and the reads that have to end before they can be used again.
    freed: VecDeque<(Epoch, Vec<Slot>)>,
    /// From where replay would begin.
    head: u64,
    next: JournalEnd,
    /// Number of the last checkpoint.
    checkpoint_number: u64,
    queue: VecDeque<(Work, T)>,
    in_flight: Option<InFlight<T>>,
    reads: Reads,
    /// Bytes of blocks in the active and in the frozen layer.
    active_bytes: u64,
    frozen_bytes: u64,
    active_chunks: usize,
    checkpointing: bool,
    /// Bytes that may be journalled although the journal is nearly full, because as many were applied.
    credit: u64,
    growth: Growth,
    /// The last batch has no successor that proves it.
    unproven: bool,
    /// A checkpoint could not be committed for want of space.
    catalogue_full: bool,
    /// A checkpoint is the only way on.
    checkpoint_wanted: bool,
    /// Changes of the active layer, and of the frozen one, that may let go of slots.
    may_free: bool,
    frozen_may_free: bool,
    failed: Option<Arc<str>>,
}

/// The batch that is being written.
#[derive(Debug)]
struct InFlight<T> {
    records: Vec<Record>,
    done: Vec<T>,
    end: JournalEnd,
    len: u64,
    /// Chunks that it writes, and that count on the slots they have.
    chunks: form::Local,
}

/// What an operation came to.
pub(crate) type Outcome<T> = (T, Result<(), StoreError>);

impl<T> Machine<T> {
    /// An engine without data, whose journal goes on at `next`.
    pub(crate) fn new(
        superblock: &Superblock,
        total_slots: u32,
        bounds: Bounds,
        next: JournalEnd,
        checkpoint_number: u64,
    ) -> Self {
        Self {
            key: ChainKey::of(superblock),
            ring: Ring::of(superblock),
            slots_offset: superblock.slots_offset,
            bounds,
            shards: BTreeMap::new(),
            dirty: BTreeSet::new(),
            dropped: BTreeSet::new(),
            allocator: Allocator::new(total_slots),
            slot_changes: SlotChanges::default(),
            freed: VecDeque::new(),
            head: next.position,
            next,
            checkpoint_number,
            queue: VecDeque::new(),
            in_flight: None,
            reads: Reads::default(),
            active_bytes: 0,
            frozen_bytes: 0,
            active_chunks: 0,
            checkpointing: false,
            credit: 0,
            growth: Growth::Idle,
            unproven: false,
            catalogue_full: false,
            checkpoint_wanted: false,
            may_free: false,
            frozen_may_free: false,
            failed: None,
        }
    }

    /// Takes work in; [`form`](Self::form) will put it into a batch. Refused when the disk has failed.
    pub(crate) fn submit(&mut self, work: Work, tag: T) -> Result<(), (T, StoreError)> {
        if let Some(why) = &self.failed {
            return Err((tag, StoreError::DeviceFailed(Arc::clone(why))));
        }
        self.queue.push_back((work, tag));
        Ok(())
    }

    /// The disk has failed: everything that waits ends, and nothing begins any more.
    pub(crate) fn fail(&mut self, why: &Arc<str>) -> Vec<Outcome<T>> {
        let why = Arc::clone(self.failed.get_or_insert_with(|| Arc::clone(why)));
        let in_flight = self.in_flight.take().into_iter().flat_map(|batch| batch.done);
        let waiting = self.queue.drain(..).map(|(_, tag)| tag);
        in_flight.chain(waiting).map(|tag| (tag, Err(StoreError::DeviceFailed(Arc::clone(&why))))).collect()
    }

    /// Why the disk serves nothing any more.
    pub(crate) fn failure(&self) -> Option<&Arc<str>> {
        self.failed.as_ref()
    }

    /// Whether there is work that no batch has taken up.
    pub(crate) fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether the last batch could be taken for a torn one; an empty batch behind it rules that out.
    pub(crate) fn wants_seal(&self) -> bool {
        self.unproven && self.in_flight.is_none() && self.queue.is_empty() && self.failed.is_none()
    }

    /// How many slots more the file should get, if it should.
    pub(crate) fn wants_slots(&self) -> Option<u32> {
        match self.growth {
            Growth::Wanted(slots) => Some(slots),
            Growth::Idle => self.is_low_on_slots().then_some(1),
            Growth::Failed => None,
        }
    }

    /// Whether it is worth trying to grow again after a failure.
    pub(crate) fn is_low_on_slots(&self) -> bool {
        self.allocator.free() < (self.allocator.total() / 8).clamp(LOW_SLOTS.start, LOW_SLOTS.end)
    }

    /// Slots that the file holds.
    pub(crate) fn total_slots(&self) -> u32 {
        self.allocator.total()
    }

    /// Number of the next batch.
    pub(crate) fn next_batch(&self) -> u64 {
        self.next.number
    }

    /// Number of the last checkpoint.
    pub(crate) fn checkpoint_number(&self) -> u64 {
        self.checkpoint_number
    }

    /// The file now holds so many slots.
    pub(crate) fn grown(&mut self, total_slots: u32) {
        self.allocator.grow_to(total_slots);
        self.growth = Growth::Idle;
    }

    /// The next shortage tries to grow again.
    pub(crate) fn retry_growth(&mut self) {
        self.growth = Growth::Idle;
    }

    /// The file could not grow.
    pub(crate) fn growth_failed(&mut self) {
        self.growth = Growth::Failed;
    }

    pub(crate) fn shard_state(&self, shard: ShardId) -> ShardState {
        self.shards.get(&shard).map(|shard| shard.state).unwrap_or_default()
    }

    pub(crate) fn known(&self, shard: ShardId, id: &OpId) -> Known {
        self.shards.get(&shard).map_or(Known::New, |shard| shard.dedupe.known(id))
    }

    /// Bytes of slots that a volume's shards use.
    pub(crate) fn allocated_bytes(&self, volume: VolumeId) -> u64 {
        let first = ShardId { volume, index: holdfast_proto::ids::ShardIndex(0) };
        let shards = self.shards.range(first..).take_while(|(shard, _)| shard.volume == volume);
        shards.map(|(_, shard)| u64::from(shard.slot_count) * CHUNK_BYTES).sum()
    }

    /// What the engine holds, for metrics and for pacing.
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges {
            journal_bytes: self.ring.len_bytes(),
            journal_used_bytes: self.next.position - self.head,
            overlay_bytes: self.active_bytes + self.frozen_bytes,
            changed_chunks: self.active_chunks as u64,
            slots: self.allocator.total(),
            slots_used: self.allocator.used(),
            checkpoint_number: self.checkpoint_number,
            queued: self.queue.len() as u64,
        }
    }

    /// Takes over a shard as the catalogue has it.
    pub(crate) fn load_shard(&mut self, id: ShardId, shard: Shard) {
        self.shards.insert(id, shard);
    }

    /// Takes over which slots the catalogue refers to.
    pub(crate) fn load_allocation(&mut self, page: &AllocationPage) -> Result<(), Contradiction> {
        self.allocator.load(page)
    }

    /// Slot numbers as places on the device.
    fn slot_offset(&self, slot: Slot) -> u64 {
        self.slots_offset + u64::from(slot.0) * CHUNK_BYTES
    }
}

/// Figures of the engine at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Size of the journal.
    pub journal_bytes: u64,
    /// Of which not yet checkpointed.
    pub journal_used_bytes: u64,
    /// Journalled blocks in memory.
    pub overlay_bytes: u64,
    /// Chunks changed since the last checkpoint.
    pub changed_chunks: u64,
    /// Slots of the disk.
    pub slots: u32,
    /// Of which hold data, or did until the next checkpoint.
    pub slots_used: u32,
    /// Number of the last checkpoint.
    pub checkpoint_number: u64,
    /// Operations that wait for a batch.
    pub queued: u64,
}
