//! The engine on threads: the state machine of `machine/` behind one lock, held for moments only and never over I/O.
//!
//! | thread | does |
//! |---|---|
//! | whoever submits | checks, queues; carries batches and reads out itself when the device is in memory |
//! | store-commit | forms batches, writes and syncs them, completes their operations (`commit.rs`) |
//! | store-read-N | reads that have to wait for the disk or the catalogue (`reads.rs`) |
//! | store-upkeep | checkpoints, growing the file, looking how much space is left (`upkeep.rs`, `space.rs`) |
//! | store-scrub | reads everything now and then, and compares (`scrub.rs`) |

mod cold;
mod commit;
mod reads;
mod scrub;
mod space;
mod statistics;
mod upkeep;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use holdfast_proto::ids::{OpId, VolumeId};

use self::cold::ColdMap;
use self::reads::ReadQueue;
pub(crate) use self::space::FreeSpace;
use self::space::Space;
use self::statistics::Counters;
pub use self::statistics::EngineStatistics;
use crate::catalogue::Catalogue;
use crate::checkpoint::Shared;
use crate::dedupe::Known;
use crate::device::Device;
use crate::error::StoreError;
use crate::format::entry::Entry;
use crate::format::record::StateRecord;
use crate::ids::{BLOCKS_PER_SHARD, ChunkIndex, DiskUuid, ShardId};
use crate::machine::{ChunkId, ChunkVersion, Machine, Outcome, Work};
use crate::operation::{Applied, Mutation, ReadDone};
use crate::recovery::Recovered;
use crate::shard::ShardState;

/// Settings of an [`Engine`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineSettings {
    /// Threads for reads that have to wait.
    pub(crate) reader_threads: usize,
    /// Memory for map entries that are only in the catalogue.
    pub(crate) cold_map_bytes: u64,
    /// Bytes that the file system has to have left after the data file has grown.
    pub(crate) space_reserve_bytes: u64,
    /// Share of the usable space in use, per cent, from which space counts as low.
    pub(crate) soft_threshold_percent: u8,
    /// How fast the scrub reads; 0: there is none.
    pub(crate) scrub_bytes_per_second: u64,
}

/// What the threads share.
struct Inner {
    control: Mutex<Control>,
    /// Wakes the commit thread.
    work: Condvar,
    /// Wakes the upkeep thread.
    upkeep: Condvar,
    device: Arc<dyn Device>,
    catalogue: Arc<dyn Catalogue>,
    cold: ColdMap,
    reads: ReadQueue,
    counters: Counters,
    free_space: Box<dyn FreeSpace>,
    space: Space,
    /// The scrub has to stop.
    stopped: Mutex<bool>,
    stop: Condvar,
    settings: EngineSettings,
    uuid: DiskUuid,
    /// Of memory that is written.
    align: usize,
    instant: bool,
}

/// What the lock guards.
struct Control {
    machine: Machine<Applied>,
    /// Some thread is carrying batches out.
    leading: bool,
    /// The work at the front waits for the upkeep thread.
    stalled: bool,
    /// The commit thread waits for work.
    committer_waits: bool,
    /// No more work is taken.
    closing: bool,
    /// The upkeep thread waits for reads to end.
    upkeep_waits_for_reads: bool,
    /// The commit thread has nothing left to do, and never will.
    committed_all: bool,
}

/// A disk of shards.
pub struct Engine {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the threads over what recovery has found.
    pub(crate) fn start(
        device: Arc<dyn Device>,
        catalogue: Arc<dyn Catalogue>,
        recovered: Recovered<Applied>,
        uuid: DiskUuid,
        free_space: Box<dyn FreeSpace>,
        settings: EngineSettings,
    ) -> std::io::Result<Self> {
        let traits = device.traits();
        let inner = Arc::new(Inner {
            control: Mutex::new(Control {
                machine: recovered.machine,
                leading: false,
                stalled: false,
                committer_waits: false,
                closing: false,
                upkeep_waits_for_reads: false,
                committed_all: false,
            }),
            work: Condvar::new(),
            upkeep: Condvar::new(),
            device,
            catalogue,
            cold: ColdMap::new(settings.cold_map_bytes),
            reads: ReadQueue::default(),
            counters: Counters::default(),
            free_space,
            space: Space::default(),
            stopped: Mutex::new(false),
            stop: Condvar::new(),
            settings,
            uuid,
            align: traits.memory_align,
            instant: traits.instant,
        });
        let mut threads = Vec::new();
        let spawn = |name: String, body: fn(&Inner)| {
            let inner = Arc::clone(&inner);
            thread::Builder::new().name(name).spawn(move || {
                let _watch = Watch(&inner);
                body(&inner);
            })
        };
        threads.push(spawn("store-commit".into(), commit::run)?);
        threads.push(spawn("store-upkeep".into(), upkeep::run)?);
        threads.push(spawn("store-scrub".into(), scrub::run)?);
        for number in 0..settings.reader_threads.max(1) {
            threads.push(spawn(format!("store-read-{number}"), reads::run)?);
        }
        Ok(Self { inner, threads: Mutex::new(threads) })
    }

    /// Carries a mutation out; mutations of a shard take effect in the order of the calls. Its checksums have to be right.
    pub fn apply(&self, mutation: Mutation, done: Applied) {
        self.inner.submit(Work::Mutate(mutation), done);
    }

    /// Raises a replica's numbers.
    pub fn set_state(&self, record: StateRecord, done: Applied) {
        self.inner.submit(Work::State(record), done);
    }

    /// Marks chunks as stale, or as good again.
    pub fn set_stale(&self, shard: ShardId, first: ChunkIndex, count: u16, stale: bool, done: Applied) {
        self.inner.submit(Work::Stale { shard, first, count, stale }, done);
    }

    /// Forgets a shard with all its data.
    pub fn drop_shard(&self, shard: ShardId, done: Applied) {
        self.inner.submit(Work::Drop(shard), done);
    }

    /// Reads blocks, at least one and inside the shard.
    pub fn read(&self, shard: ShardId, first_block: u32, blocks: u32, done: ReadDone) {
        if blocks == 0 || first_block.checked_add(blocks).is_none_or(|end| end > BLOCKS_PER_SHARD) {
            return done(Err(StoreError::OutOfRange));
        }
        reads::submit(&self.inner, shard, first_block, blocks, done);
    }

    /// The numbers of a shard.
    pub fn shard_state(&self, shard: ShardId) -> ShardState {
        self.inner.lock().machine.shard_state(shard)
    }

    /// What is known of an operation on a shard.
    pub fn known(&self, shard: ShardId, operation: &OpId) -> Known {
        self.inner.lock().machine.known(shard, operation)
    }

    /// Bytes that a volume's blocks take on the disk.
    pub fn allocated_bytes(&self, volume: VolumeId) -> u64 {
        self.inner.lock().machine.allocated_bytes(volume)
    }

    /// Versions and stale flags of all chunks of a shard that were ever written.
    pub fn versions(&self, shard: ShardId) -> Result<Vec<(ChunkIndex, ChunkVersion)>, StoreError> {
        reads::versions(&self.inner, shard)
    }

    /// Where checkpoints go, for rows of other modules.
    pub fn catalogue(&self) -> &Arc<dyn Catalogue> {
        &self.inner.catalogue
    }

    /// Figures since the start.
    pub fn statistics(&self) -> EngineStatistics {
        self.inner.statistics()
    }

    /// Why the disk serves nothing any more, if it has failed.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.inner.lock().machine.failure().cloned()
    }

    /// Completes what was submitted, writes a checkpoint and stops.
    pub fn close(&self) {
        self.inner.lock().closing = true;
        self.inner.work.notify_all();
        self.inner.upkeep.notify_all();
        self.inner.reads.close();
        self.inner.stop_scrub();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != thread::current().id()) {
            // A thread that panicked has told so itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, work: Work, done: Applied) {
        let mut control = self.lock();
        if control.closing {
            drop(control);
            return done(Err(StoreError::Closed));
        }
        if let Err((done, error)) = control.machine.submit(work, done) {
            drop(control);
            return done(Err(error));
        }
        if control.leading || control.stalled {
            return;
        }
        if self.instant {
            control.leading = true;
            drop(control);
            commit::lead(self, commit::INLINE_ROUNDS);
        } else if control.committer_waits {
            drop(control);
            self.work.notify_one();
        }
    }

    /// The disk has failed: says so once, and ends everything.
    fn fail(&self, why: &Arc<str>) {
        let outcomes = {
            let mut control = self.lock();
            if control.machine.failure().is_none() {
                tracing::error!(reason = %why, "the disk has failed, nothing on it is served any more");
            }
            control.machine.fail(why)
        };
        self.work.notify_all();
        self.upkeep.notify_all();
        complete(outcomes);
    }
}

impl Shared<Applied> for Inner {
    fn with<R>(&self, use_it: impl FnOnce(&mut Machine<Applied>) -> R) -> R {
        use_it(&mut self.lock().machine)
    }

    fn retire(&self, entries: Vec<(ChunkId, Option<Entry>)>) {
        self.cold.put(entries);
    }
}

/// Makes a panic below it the end of the disk: who waits for the thread that is gone would wait for ever.
struct Watch<'a>(&'a Inner);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(&Arc::from("a thread of the store panicked"));
        }
    }
}

/// Calls back, with no lock held.
fn complete(outcomes: Vec<Outcome<Applied>>) {
    for (done, result) in outcomes {
        done(result);
    }
}

#[cfg(test)]
mod tests;
