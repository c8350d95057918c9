//! Reads, outside the commit thread: answered by the caller's own thread if that cannot block, otherwise by a small pool.
//!
//! What is in the files is durable already (the journal was synced before), so a read need not wait for anybody. It only
//! must not give a mixture of a block before and after a change: then it is tried again, and in the end takes its place
//! in the commit thread's queue.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::commit::{Health, Job};
use crate::disk_file::Wait;
use crate::error::StoreError;
use crate::queue::Queue;
use crate::store::{Completion, Operation};
use crate::volume::{ReadError, VolumeFiles};

/// How often a read that raced with a change is tried again before it queues up behind the changes.
const TRIES: usize = 3;

/// Longer reads go to the pool even if the page cache may have them: there they need no zeroed buffer, and the
/// caller's thread is free for others while they are copied.
const INLINE_BYTES: u64 = 64 << 10;

/// Starts reads.
pub(crate) struct Reads {
    /// The files are in memory, so that no read ever waits for a disk.
    in_memory: bool,
    pool: Arc<Queue<ReadJob>>,
    runner: Runner,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct ReadJob {
    files: Arc<VolumeFiles>,
    offset: u64,
    len: u64,
    done: Completion,
}

#[derive(Clone)]
struct Runner {
    commit: Arc<Queue<Job>>,
    health: Arc<Health>,
}

impl Reads {
    pub(crate) fn start(
        commit: Arc<Queue<Job>>,
        health: Arc<Health>,
        in_memory: bool,
        threads: usize,
    ) -> io::Result<Self> {
        let reads = Self {
            in_memory,
            pool: Arc::new(Queue::new()),
            runner: Runner { commit, health },
            threads: Mutex::new(Vec::new()),
        };
        for index in 0..if in_memory { 0 } else { threads.max(1) } {
            let pool = Arc::clone(&reads.pool);
            let runner = reads.runner.clone();
            let thread = thread::Builder::new().name(format!("store-read-{index}")).spawn(move || {
                while let Some(job) = pool.take() {
                    if let Some(job) = runner.run(job, Wait::Allowed) {
                        (job.done)(Err(StoreError::Closed));
                    }
                }
            });
            match thread {
                Ok(thread) => reads.lock().push(thread),
                Err(error) => {
                    reads.close();
                    return Err(error);
                }
            }
        }
        Ok(reads)
    }

    pub(crate) fn submit(&self, files: Arc<VolumeFiles>, offset: u64, len: u64, done: Completion) {
        let mut job = ReadJob { files, offset, len, done };
        if self.in_memory || len <= INLINE_BYTES {
            let wait = if self.in_memory { Wait::Allowed } else { Wait::Never };
            match self.runner.run(job, wait) {
                None => return,
                Some(blocked) => job = blocked,
            }
        }
        if let Err(job) = self.pool.push(job) {
            (job.done)(Err(StoreError::Closed));
        }
    }

    /// Waits for the reads that were submitted. Safe to call from a completion.
    pub(crate) fn close(&self) {
        self.pool.close();
        let threads = std::mem::take(&mut *self.lock());
        join_others(threads);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner {
    /// Answers the read, or gives it back if it would have to wait.
    fn run(&self, job: ReadJob, wait: Wait) -> Option<ReadJob> {
        if let Err(error) = self.health.check() {
            (job.done)(Err(error));
            return None;
        }
        for _ in 0..TRIES {
            match job.files.read(job.offset, job.len, wait) {
                Ok(output) => {
                    (job.done)(Ok(output));
                    return None;
                }
                Err(ReadError::Store(error)) => {
                    (job.done)(Err(error));
                    return None;
                }
                Err(ReadError::WouldBlock) => return Some(job),
                Err(ReadError::Raced) => {}
            }
        }
        let ReadJob { files, offset, len, done } = job;
        if let Err(job) = self.commit.push(Job { files, operation: Operation::Read { offset, len }, done }) {
            (job.done)(Err(StoreError::Closed));
        }
        None
    }
}

/// Joins threads, except the one that calls this.
pub(crate) fn join_others(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        if thread.thread().id() != thread::current().id() && thread.join().is_err() {
            tracing::error!("a thread of the store has panicked");
        }
    }
}
