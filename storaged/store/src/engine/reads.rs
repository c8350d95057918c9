//! The life of a read: planned in a moment, carried out without the lock.
//!
//! What lies in memory is answered by whoever asks. What has to wait goes to the reader threads, unless the device never lets anybody wait.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use holdfast_proto::units::{BLOCK_BYTES, SHARD_BYTES};

use super::Inner;
use crate::catalogue::CatalogueError;
use crate::checkpoint::read_entries;
use crate::error::StoreError;
use crate::format::entry::{Content, Entry};
use crate::format::keys;
use crate::ids::{ChunkIndex, ShardId};
use crate::machine::{ChunkVersion, Cold, Lower, Piece, ReadPlan};
use crate::operation::{BlocksRead, ReadDone};
use crate::read::{FaultKind, ReadFault, carry_out};

/// A range of blocks, and who wants it.
struct Read {
    shard: ShardId,
    first_block: u32,
    blocks: u32,
    done: ReadDone,
}

/// Reads that wait for a thread.
#[derive(Default)]
pub(super) struct ReadQueue {
    state: Mutex<QueueState>,
    more: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Read>,
    closed: bool,
}

impl ReadQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the read back when the queue is closed.
    fn push(&self, read: Read) -> Option<Read> {
        let mut state = self.lock();
        if state.closed {
            return Some(read);
        }
        state.waiting.push_back(read);
        drop(state);
        self.more.notify_one();
        None
    }

    /// `None` when the queue is closed and empty.
    fn pop(&self) -> Option<Read> {
        let mut state = self.lock();
        loop {
            if let Some(read) = state.waiting.pop_front() {
                return Some(read);
            }
            if state.closed {
                return None;
            }
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_all();
    }
}

/// A reader thread.
pub(super) fn run(inner: &Inner) {
    while let Some(read) = inner.reads.pop() {
        let result = now(inner, &read);
        (read.done)(result);
    }
}

/// Starts a read.
pub(super) fn submit(inner: &Arc<Inner>, shard: ShardId, first_block: u32, blocks: u32, done: ReadDone) {
    let read = Read { shard, first_block, blocks, done };
    if inner.instant {
        let result = now(inner, &read);
        return (read.done)(result);
    }
    match from_memory(inner, &read) {
        Ok(Some(found)) => (read.done)(Ok(found)),
        Ok(None) => {
            if let Some(read) = inner.reads.push(read) {
                (read.done)(Err(StoreError::Closed));
            }
        }
        Err(error) => (read.done)(Err(error)),
    }
}

/// What can be answered without waiting.
fn from_memory(inner: &Inner, read: &Read) -> Result<Option<BlocksRead>, StoreError> {
    let mut control = inner.lock();
    inner.check(&control)?;
    let plan =
        control.machine.plan_read(read.shard, read.first_block, read.blocks, |chunk| inner.cold.get(read.shard, chunk));
    let ReadPlan::Ready { pieces, planned } = plan else {
        return Ok(None);
    };
    // Nothing but memory is read, so there is nothing to keep for it.
    inner.read_is_over(&mut control, planned);
    drop(control);
    if pieces.iter().any(|piece| matches!(piece, Piece::Disk { .. } | Piece::Lost)) {
        return Ok(None);
    }
    carry_out(&*inner.device, &pieces).map(Some).map_err(|fault| inner.error_of(read, fault))
}

/// Reads, however long it takes.
fn now(inner: &Inner, read: &Read) -> Result<BlocksRead, StoreError> {
    let mut loaded: (u64, BTreeMap<ChunkIndex, Option<Content>>) = Default::default();
    loop {
        let (pieces, planned) = {
            let mut control = inner.lock();
            inner.check(&control)?;
            let current = control.machine.checkpoint_number();
            let known = |chunk| match loaded.1.get(&chunk) {
                Some(content) if loaded.0 == current => Cold::Known(*content),
                _ => inner.cold.get(read.shard, chunk),
            };
            match control.machine.plan_read(read.shard, read.first_block, read.blocks, known) {
                ReadPlan::Ready { pieces, planned } => (pieces, planned),
                ReadPlan::Load { chunks, checkpoint } => {
                    drop(control);
                    loaded = (checkpoint, load(inner, read, chunks, checkpoint)?);
                    continue;
                }
                ReadPlan::Missing(chunk) => {
                    return Err(unreadable(read.shard, chunk.first_block(), "its map entry is missing"));
                }
            }
        };
        let result = carry_out(&*inner.device, &pieces);
        inner.read_is_over(&mut inner.lock(), planned);
        return result.map_err(|fault| inner.error_of(read, fault));
    }
}

/// Gets entries from the catalogue. They count as long as no later checkpoint is there.
fn load(
    inner: &Inner,
    read: &Read,
    chunks: Vec<ChunkIndex>,
    checkpoint: u64,
) -> Result<BTreeMap<ChunkIndex, Option<Content>>, StoreError> {
    let wanted = chunks.into_iter().map(|chunk| (read.shard, chunk)).collect();
    let entries = read_entries(&*inner.catalogue, wanted)
        .map_err(|error| unreadable(read.shard, read.first_block, &error.to_string()))?;
    let mut found = Vec::with_capacity(entries.len());
    for ((shard, chunk), lower) in entries {
        match lower {
            Lower::Entry(entry) => found.push(((shard, chunk), entry.and_then(|entry| entry.content))),
            Lower::Damaged => {
                inner.counters.damaged_entry();
                return Err(unreadable(shard, chunk.first_block(), "its map entry is damaged"));
            }
        }
    }
    let control = inner.lock();
    if control.machine.checkpoint_number() == checkpoint {
        inner.cold.fill(&found);
    }
    drop(control);
    Ok(found.into_iter().map(|((_, chunk), content)| (chunk, content)).collect())
}

/// Versions of all chunks of a shard.
pub(super) fn versions(inner: &Inner, shard: ShardId) -> Result<Vec<(ChunkIndex, ChunkVersion)>, StoreError> {
    loop {
        let checkpoint = inner.lock().machine.checkpoint_number();
        let entries = entries_of(inner, shard)?;
        let control = inner.lock();
        inner.check(&control)?;
        if control.machine.checkpoint_number() == checkpoint {
            return Ok(control.machine.versions(shard, &entries));
        }
    }
}

fn entries_of(inner: &Inner, shard: ShardId) -> Result<BTreeMap<ChunkIndex, Entry>, StoreError> {
    let range = keys::map_range(shard);
    let mut entries = BTreeMap::new();
    let mut damaged = None;
    let visited = inner.catalogue.range(&range.start, &range.end, &mut |key, value| {
        let Some((shard, chunk)) = keys::parse_map(key) else { return ControlFlow::Continue(()) };
        match Entry::parse(shard, chunk, value) {
            Ok(entry) => {
                entries.insert(chunk, entry);
                ControlFlow::Continue(())
            }
            Err(error) => {
                damaged = Some((chunk, error));
                ControlFlow::Break(())
            }
        }
    });
    if let Err(error) = visited {
        return Err(match error {
            CatalogueError::Failed { detail } => StoreError::DeviceFailed(detail.into()),
            error => unreadable(shard, 0, &error.to_string()),
        });
    }
    match damaged {
        Some((chunk, error)) => Err(unreadable(shard, chunk.first_block(), &error.to_string())),
        None => Ok(entries),
    }
}

/// Byte offset in the volume of a block of a shard.
pub(super) fn offset_of(shard: ShardId, block: u64) -> u64 {
    u64::from(shard.index.0) * SHARD_BYTES + block * BLOCK_BYTES
}

fn unreadable(shard: ShardId, block: u32, detail: &str) -> StoreError {
    StoreError::Unreadable { offset: offset_of(shard, block.into()), detail: detail.into() }
}

impl Inner {
    fn check(&self, control: &super::Control) -> Result<(), StoreError> {
        match control.machine.failure() {
            Some(why) => Err(StoreError::DeviceFailed(Arc::clone(why))),
            None => Ok(()),
        }
    }

    pub(super) fn read_is_over(&self, control: &mut super::Control, planned: crate::machine::Epoch) {
        let slots_came_back = control.machine.read_is_over(planned);
        if control.upkeep_waits_for_reads {
            self.upkeep.notify_one();
        }
        if slots_came_back && std::mem::take(&mut control.stalled) {
            self.work.notify_one();
        }
    }

    fn error_of(&self, read: &Read, fault: ReadFault) -> StoreError {
        let offset = offset_of(read.shard, u64::from(read.first_block) + fault.block);
        match fault.kind {
            FaultKind::Checksum => {
                self.counters.crc_error();
                StoreError::Checksum { offset }
            }
            FaultKind::Lost => {
                StoreError::Unreadable { offset, detail: "its content was lost with its map entry".into() }
            }
            FaultKind::Io(detail) => StoreError::Unreadable { offset, detail: detail.into() },
        }
    }
}
