//! One volume, and the life of an operation on it: admitted, counted, given its range, carried out, answered.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use holdfast_proto::checksum;
use holdfast_proto::units::BLOCK_LEN;

use crate::error::StoreError;
use crate::store::{Completion, Kind, MAX_OPERATION_BYTES, Operation, Output, VolumeRecord};
use crate::volumes::blocks::Blocks;
use crate::volumes::change::Change;
use crate::volumes::flight::{Flight, GroupId};
use crate::volumes::order::Order;
use crate::volumes::ranges::{Ranges, Token};
use crate::volumes::split::Footprint;
use crate::volumes::turn;

/// A volume that is open.
pub(super) struct Volume {
    pub(super) record: VolumeRecord,
    pub(super) blocks: Arc<dyn Blocks>,
    pub(super) order: Order,
    traffic: Mutex<Traffic>,
    /// Nothing is in flight, after a close.
    idle: Condvar,
}

/// What is in flight. The lock is held for moments only.
struct Traffic {
    closed: bool,
    /// Operations and flushes whose completion has not returned yet.
    unanswered: u64,
    flight: Flight<Completion>,
    ranges: Ranges<Box<Parked>>,
}

/// A change that waits for its range.
struct Parked {
    footprint: Footprint,
    change: Change,
    group: GroupId,
    done: Completion,
}

/// An operation that is being carried out.
pub(super) struct Running {
    pub(super) volume: Arc<Volume>,
    group: GroupId,
    range: Option<Token>,
    done: Completion,
}

impl Volume {
    pub(super) fn new(record: VolumeRecord, blocks: Arc<dyn Blocks>) -> Self {
        let order = Order::new(record.id, Arc::clone(&blocks));
        let traffic = Traffic { closed: false, unanswered: 0, flight: Flight::new(), ranges: Ranges::new() };
        Self { record, blocks, order, traffic: Mutex::new(traffic), idle: Condvar::new() }
    }

    /// Starts an operation.
    pub(super) fn submit(self: &Arc<Self>, operation: Operation, done: Completion) {
        match admit(&self.record, &operation) {
            Ok(()) => turn::enter(|| self.start(operation, done)),
            Err(error) => done(Err(error)),
        }
    }

    fn start(self: &Arc<Self>, operation: Operation, done: Completion) {
        if self.record.kind == Kind::Null {
            return self.answer(null(operation), done);
        }
        match operation {
            Operation::Flush => self.flush(done),
            Operation::Read { len: 0, .. } => self.answer(Output::default(), done),
            Operation::Read { offset, len } => self.start_read(offset, len, done),
            Operation::Write { offset, data, checksums } => match checksum::verify(offset, &data, &checksums) {
                Err(offset) => done(Err(StoreError::PayloadCorrupt { offset })),
                Ok(()) => {
                    let len = checksum::len_bytes(&data);
                    self.start_change(offset, len, Change::Write { offset, data, checksums }, done);
                }
            },
            Operation::Unmap { offset, len } => self.start_change(offset, len, Change::Unmap { offset, len }, done),
        }
    }

    fn start_read(self: &Arc<Self>, offset: u64, len: u64, done: Completion) {
        let mut traffic = self.lock();
        if traffic.closed {
            drop(traffic);
            return done(Err(StoreError::Closed));
        }
        let group = traffic.begin();
        drop(traffic);
        Running { volume: Arc::clone(self), group, range: None, done }.read(offset, len);
    }

    fn start_change(self: &Arc<Self>, offset: u64, len: u64, change: Change, done: Completion) {
        let Some(footprint) = Footprint::of(offset, len, self.record.size_bytes) else {
            return self.answer(Output::default(), done);
        };
        let mut traffic = self.lock();
        if traffic.closed {
            drop(traffic);
            return done(Err(StoreError::Closed));
        }
        let group = traffic.begin();
        match traffic.ranges.acquire(footprint) {
            Ok(token) => {
                drop(traffic);
                self.running(group, token, done).change(footprint, change);
            }
            Err(token) => traffic.ranges.park(token, Box::new(Parked { footprint, change, group, done })),
        }
    }

    fn flush(&self, done: Completion) {
        let mut traffic = self.lock();
        if traffic.closed {
            drop(traffic);
            return done(Err(StoreError::Closed));
        }
        traffic.unanswered += 1;
        let due = traffic.flight.flush(done);
        drop(traffic);
        self.answer_flushes(due);
    }

    /// Answers what needs no work.
    fn answer(&self, output: Output, done: Completion) {
        let closed = self.lock().closed;
        done(if closed { Err(StoreError::Closed) } else { Ok(output) });
    }

    fn answer_flushes(&self, due: impl IntoIterator<Item = Completion>) {
        for done in due {
            // What was written is durable already; but a failed disk is not to be kept quiet about.
            done(self.blocks.health().map(|()| Output::default()));
            let mut traffic = self.lock();
            traffic.unanswered -= 1;
            self.notify_if_idle(&traffic);
        }
    }

    fn running(self: &Arc<Self>, group: GroupId, token: Token, done: Completion) -> Running {
        Running { volume: Arc::clone(self), group, range: Some(token), done }
    }

    /// From now on operations are answered [`StoreError::Closed`].
    pub(super) fn refuse(&self) {
        self.lock().closed = true;
    }

    /// Waits until everything is answered.
    pub(super) fn wait(&self) {
        let mut traffic = self.lock();
        while traffic.unanswered > 0 {
            traffic = self.idle.wait(traffic).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn notify_if_idle(&self, traffic: &Traffic) {
        if traffic.closed && traffic.unanswered == 0 {
            self.idle.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A deliberate bug: no range is ever locked.
    #[cfg(test)]
    pub(super) fn switch_locks_off(&self) {
        self.lock().ranges.mutant_no_locks = true;
    }
}

impl Traffic {
    fn begin(&mut self) -> GroupId {
        self.unanswered += 1;
        self.flight.begin()
    }
}

impl Running {
    /// Answers the operation, and starts what waited for it.
    pub(super) fn finish(self, result: Result<Output, StoreError>) {
        let Self { volume, group, range, done } = self;
        done(result);
        let mut traffic = volume.lock();
        let ready = range.map(|token| traffic.ranges.release(token)).unwrap_or_default();
        let flushes = traffic.flight.end(group);
        traffic.unanswered -= 1;
        volume.notify_if_idle(&traffic);
        drop(traffic);
        for (token, parked) in ready {
            let Parked { footprint, change, group, done } = *parked;
            volume.running(group, token, done).change(footprint, change);
        }
        volume.answer_flushes(flushes);
    }
}

/// Whether the volume takes the operation.
fn admit(volume: &VolumeRecord, operation: &Operation) -> Result<(), StoreError> {
    let (offset, len, most) = match operation {
        Operation::Flush => return Ok(()),
        Operation::Read { offset, len } => (*offset, *len, MAX_OPERATION_BYTES),
        Operation::Write { offset, data, .. } => (*offset, checksum::len_bytes(data), MAX_OPERATION_BYTES),
        Operation::Unmap { offset, len } => (*offset, *len, u64::MAX),
    };
    if volume.read_only && !matches!(operation, Operation::Read { .. }) {
        return Err(StoreError::ReadOnly);
    }
    if offset.checked_add(len).is_none_or(|end| end > volume.size_bytes) {
        return Err(StoreError::OutOfRange);
    }
    if len > most { Err(StoreError::TooLong) } else { Ok(()) }
}

/// What a null volume answers.
fn null(operation: Operation) -> Output {
    match operation {
        Operation::Read { offset, len } => Output { data: zeros(len), checksums: checksum::of_zeros(offset, len) },
        Operation::Write { .. } | Operation::Unmap { .. } | Operation::Flush => Output::default(),
    }
}

/// `len` zeros, in buffers of the program itself.
fn zeros(len: u64) -> Vec<Bytes> {
    static ZEROS: [u8; 16 * BLOCK_LEN] = [0; 16 * BLOCK_LEN];
    let mut left = usize::try_from(len).unwrap_or(usize::MAX);
    let mut data = Vec::with_capacity(left.div_ceil(ZEROS.len()));
    while left > 0 {
        let zeros = ZEROS.get(..left).unwrap_or(&ZEROS);
        data.push(Bytes::from_static(zeros));
        left -= zeros.len();
    }
    data
}
