//! The commit thread: the only one that changes blocks, for all volumes of the store.
//!
//! The life of a write: it waits in the queue while the batch before it is synced; it is checked against its checksums,
//! merged into whole blocks, and given space (`prepare`); it goes to the journal with everything else that was waiting,
//! by one write and one sync; it is applied to the files of its volume; it is answered. There is no delay by design:
//! batches grow by themselves while the disk is busy (group commit).
//!
//! Reads that raced with a change, and flushes, go the same way, so that they are in order with the changes.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use holdfast_proto::checksum;
use holdfast_proto::ids::VolumeId;
use holdfast_proto::units::BLOCK_BYTES;

use crate::catalogue::Catalogue;
use crate::directory::Directory;
use crate::disk_file::Wait;
use crate::error::StoreError;
use crate::journal::{AppendError, Change, Journal, Record};
use crate::merge::{self, Block};
use crate::queue::Queue;
use crate::store::{Completion, Operation, Output};
use crate::volume::{Blocks, ReadError, ReserveError, VolumeFiles};

/// Most bytes of the journal, and most jobs, that a batch takes; of a journal at most half. A job that is longer goes by
/// itself, so that no other fails with it if there is no room.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_JOBS: usize = 1024;

/// More than the journal takes for the records of a job, of which there are at most three, without their entries.
const RECORDS_BYTES: u64 = 256;

/// One operation for the commit thread; its range is inside the volume.
pub(crate) struct Job {
    pub(crate) files: Arc<VolumeFiles>,
    pub(crate) operation: Operation,
    pub(crate) done: Completion,
}

/// Whether the device has failed, and by what.
#[derive(Default)]
pub(crate) struct Health(OnceLock<Arc<str>>);

impl Health {
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            None => Ok(()),
            Some(reason) => Err(StoreError::DeviceFailed(Arc::clone(reason))),
        }
    }

    /// Fails the device for good; the first reason stays.
    fn fail(&self, action: &str, error: &io::Error) -> StoreError {
        let reason = self.0.get_or_init(|| {
            let reason = format!("cannot {action}: {error}");
            tracing::error!(%reason, "the disk has failed; it serves nothing until the store is opened anew");
            reason.into()
        });
        StoreError::DeviceFailed(Arc::clone(reason))
    }
}

pub(crate) struct Committer {
    pub(crate) queue: Arc<Queue<Job>>,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) health: Arc<Health>,
    pub(crate) journal: Journal,
    /// Held until the thread has ended, so that nobody else comes in before the last write.
    pub(crate) _directory: Directory,
}

/// Jobs that become durable together.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    /// The volume of each record.
    targets: Vec<Arc<VolumeFiles>>,
    waiting: Vec<Waiting>,
    /// Bound of what the jobs take in the journal.
    journal_bytes: u64,
    has_holes: bool,
}

/// A job of a batch, to be answered at its end.
struct Waiting {
    done: Completion,
    kind: WaitingKind,
}

enum WaitingKind {
    Change,
    Flush,
    Read { files: Arc<VolumeFiles>, offset: u64, len: u64 },
}

/// Why a job is not in the batch.
enum Refusal {
    /// It is over.
    Job(StoreError),
    /// It has to wait for the next batch.
    NextBatch(Operation),
    /// The device has failed.
    Device(io::Error),
}

impl Committer {
    /// Runs until the queue is closed and empty, then leaves an empty journal behind.
    pub(crate) fn run(mut self) {
        let mut jobs = VecDeque::new();
        while self.queue.take_all(&mut jobs) {
            while !jobs.is_empty() {
                let batch = self.gather(&mut jobs);
                self.commit(batch);
            }
        }
        if self.health.check().is_ok() && !self.journal.is_empty() {
            // A failure has been logged, and the journal repeats what was not synced.
            let _ = self.checkpoint();
        }
    }

    fn gather(&mut self, jobs: &mut VecDeque<Job>) -> Batch {
        let mut batch = Batch::default();
        let limit_bytes = BATCH_BYTES.min(self.journal.limit_bytes() / 2);
        while batch.waiting.len() < BATCH_JOBS {
            let job_bytes = jobs.front().map_or(0, |job| journal_bytes(&job.operation));
            if batch.journal_bytes > 0 && batch.journal_bytes + job_bytes > limit_bytes {
                break;
            }
            let Some(Job { files, operation, done }) = jobs.pop_front() else {
                break;
            };
            if let Err(error) = self.health.check() {
                done(Err(error));
                continue;
            }
            match batch.add(&files, operation) {
                Ok(kind) => {
                    batch.journal_bytes += job_bytes;
                    batch.waiting.push(Waiting { done, kind });
                }
                Err(Refusal::Job(error)) => done(Err(error)),
                Err(Refusal::NextBatch(operation)) => {
                    jobs.push_front(Job { files, operation, done });
                    break;
                }
                Err(Refusal::Device(error)) => done(Err(self.health.fail("take space", &error))),
            }
        }
        batch
    }

    fn commit(&mut self, batch: Batch) {
        let changed = self.make_durable(&batch).and_then(|()| self.apply(&batch));
        for Waiting { done, kind } in batch.waiting {
            done(match (self.health.check(), kind) {
                (Err(error), _) => Err(error),
                (Ok(()), WaitingKind::Change) => changed.clone().map(|()| Output::default()),
                (Ok(()), WaitingKind::Flush) => Ok(Output::default()),
                (Ok(()), WaitingKind::Read { files, offset, len }) => read_in_order(&files, offset, len),
            });
        }
    }

    fn make_durable(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.health.check()?;
        if batch.records.is_empty() {
            return Ok(());
        }
        if self.journal.is_full_for(&batch.records) {
            self.checkpoint()?;
        }
        match self.journal.append(&batch.records) {
            Ok(()) => Ok(()),
            Err(AppendError::NoSpace) => {
                release(batch);
                Err(StoreError::NoSpace)
            }
            Err(AppendError::Device(error)) => Err(self.health.fail("write the journal", &error)),
        }
    }

    fn apply(&self, batch: &Batch) -> Result<(), StoreError> {
        for (record, files) in batch.records.iter().zip(&batch.targets) {
            files.apply(record).map_err(|error| self.health.fail("write blocks", &error))?;
        }
        Ok(())
    }

    /// Makes durable what was applied, and starts the journal anew.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        for files in self.catalogue.all().iter().filter_map(|volume| volume.files.as_ref()) {
            files.sync().map_err(|error| self.health.fail("sync blocks", &error))?;
        }
        self.journal.restart().map_err(|error| self.health.fail("start the journal anew", &error))
    }
}

impl Batch {
    fn add(&mut self, files: &Arc<VolumeFiles>, operation: Operation) -> Result<WaitingKind, Refusal> {
        match operation {
            Operation::Flush => Ok(WaitingKind::Flush),
            Operation::Read { offset, len } => Ok(WaitingKind::Read { files: Arc::clone(files), offset, len }),
            Operation::Write { offset, data, checksums } => self.add_write(files, offset, data, checksums),
            Operation::Unmap { offset, len } => self.add_unmap(files, offset, len),
        }
    }

    fn add_write(
        &mut self,
        files: &Arc<VolumeFiles>,
        offset: u64,
        data: Vec<Bytes>,
        checksums: Vec<u32>,
    ) -> Result<WaitingKind, Refusal> {
        let blocks = Blocks::of(offset, checksum::len_bytes(&data));
        // Whether a block needs space is read from the checksums file, which does not know of this batch's holes yet.
        if self.has_holes && self.touching(files.id, &blocks).any(Record::is_hole) {
            return Err(Refusal::NextBatch(Operation::Write { offset, data, checksums }));
        }
        checksum::verify(offset, &data, &checksums)
            .map_err(|offset| Refusal::Job(StoreError::PayloadCorrupt { offset }))?;
        if blocks.count == 0 {
            return Ok(WaitingKind::Change);
        }
        let old = |block| Ok(self.block(files, block)?.unwrap_or_else(merge::zero_block));
        let change = merge::write(offset, data, checksums, old).map_err(Refusal::Job)?;
        files.reserve(&blocks, self.touching(files.id, &blocks)).map_err(|error| match error {
            ReserveError::Refused(error) => Refusal::Job(error),
            ReserveError::Device(error) => Refusal::Device(error),
        })?;
        self.push(files, blocks.first, change);
        Ok(WaitingKind::Change)
    }

    fn add_unmap(&mut self, files: &Arc<VolumeFiles>, offset: u64, len: u64) -> Result<WaitingKind, Refusal> {
        let mut end = offset + len;
        if end == files.size_bytes {
            // What a last, partial block has beyond the volume is zeros anyway.
            end = end.next_multiple_of(BLOCK_BYTES);
        }
        let whole_from = offset.next_multiple_of(BLOCK_BYTES).min(end);
        let whole_to = (end - end % BLOCK_BYTES).max(whole_from);
        // Both edges before anything is pushed: the job is in the batch as a whole or not at all.
        let head = self.zeroed(files, offset, whole_from)?;
        let tail = self.zeroed(files, whole_to, end)?;
        let whole = Blocks { first: whole_from / BLOCK_BYTES, count: (whole_to - whole_from) / BLOCK_BYTES };
        for (block, change) in head.into_iter().chain(tail) {
            self.push(files, block, change);
        }
        if whole.count > 0 {
            self.push(files, whole.first, Change::Hole { blocks: whole.count });
        }
        Ok(WaitingKind::Change)
    }

    /// The block that holds the range, with zeros there; nothing if that changes nothing.
    fn zeroed(&self, files: &Arc<VolumeFiles>, from: u64, to: u64) -> Result<Option<(u64, Change)>, Refusal> {
        if from == to {
            return Ok(None);
        }
        let block = from / BLOCK_BYTES;
        let old = self.block(files, block).map_err(Refusal::Job)?;
        Ok(old.map(|old| (block, merge::zero_part(old, from % BLOCK_BYTES, to - from))))
    }

    /// Content of a block after everything in this batch; `None` for a hole.
    fn block(&self, files: &VolumeFiles, block: u64) -> Result<Option<Block>, StoreError> {
        match self.touching(files.id, &Blocks { first: block, count: 1 }).next() {
            None => files.block(block),
            Some(Record { change: Change::Hole { .. }, .. }) => Ok(None),
            Some(Record { first_block, change: Change::Write { payload, .. }, .. }) => {
                Ok(Some(merge::block_of(payload, block - first_block)))
            }
        }
    }

    /// Records of this batch that touch the blocks, latest first.
    fn touching(&self, volume: VolumeId, blocks: &Blocks) -> impl Iterator<Item = &Record> {
        let Blocks { first, count } = *blocks;
        self.records.iter().rev().filter(move |record| record.touches(volume, first, count))
    }

    fn push(&mut self, files: &Arc<VolumeFiles>, first_block: u64, change: Change) {
        self.has_holes |= matches!(change, Change::Hole { .. });
        self.records.push(Record { volume: files.id, first_block, change });
        self.targets.push(Arc::clone(files));
    }
}

/// Most bytes that an operation takes in the journal.
fn journal_bytes(operation: &Operation) -> u64 {
    let blocks = match operation {
        Operation::Read { .. } | Operation::Flush => return 0,
        Operation::Write { offset, data, .. } => Blocks::of(*offset, checksum::len_bytes(data)).count,
        // The blocks at both edges.
        Operation::Unmap { .. } => 2,
    };
    RECORDS_BYTES + blocks * (BLOCK_BYTES + size_of::<u32>() as u64)
}

/// Gives back the space that a refused batch took.
fn release(batch: &Batch) {
    for (record, files) in batch.records.iter().zip(&batch.targets).filter(|(record, _)| !record.is_hole()) {
        let blocks = Blocks { first: record.first_block, count: record.blocks() };
        if let Err(error) = files.release(&blocks) {
            tracing::warn!(volume = %files.id, %error, "cannot give back the space of a refused write");
        }
    }
}

/// The commit thread's own read: nothing races with it, so that a mismatch is one.
fn read_in_order(files: &VolumeFiles, offset: u64, len: u64) -> Result<Output, StoreError> {
    files.read(offset, len, Wait::Allowed).map_err(|error| match error {
        ReadError::Store(error) => error,
        ReadError::Raced | ReadError::WouldBlock => {
            StoreError::Unreadable { offset, detail: "the range never came to rest".into() }
        }
    })
}
