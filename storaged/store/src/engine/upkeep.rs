//! The thread that keeps the engine going: it grows the file before slots run out, and writes checkpoints.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Control, Inner, space};
use crate::checkpoint::{Progress, Run};
use crate::ids::CHUNK_BYTES;

/// Without any batch for so long, what is journalled is checkpointed, so that the next start has little to do.
const IDLE: Duration = Duration::from_secs(5);

/// Between two tries to commit a checkpoint for which there is no space, or to grow the file.
const RETRY: Duration = Duration::from_secs(1);

/// Longest wait for reads that nobody ends; they are looked at again then.
const READS: Duration = Duration::from_millis(20);

/// The file grows by an eighth, at least and at most by so many slots.
const GROWTH_SLOTS: std::ops::Range<u32> = 256..16_384;

/// The upkeep thread.
pub(super) fn run(inner: &Inner) {
    let mut idle_since = (0, Instant::now());
    let mut failed_growth: Option<Instant> = None;
    let mut looked: Option<Instant> = None;
    let mut control = inner.lock();
    loop {
        if looked.is_none_or(|at| at.elapsed() >= RETRY) {
            looked = Some(Instant::now());
            let gauges = control.machine.gauges();
            drop(control);
            space::look(inner, &gauges);
            // What waits looks again whether it still has to: not every end of a read is told to this thread.
            unstall(inner);
            control = inner.lock();
        }
        let batch = control.machine.next_batch();
        if batch != idle_since.0 {
            idle_since = (batch, Instant::now());
        }
        if control.machine.failure().is_some() {
            if control.closing {
                return;
            }
            control = wait(inner, control, RETRY);
            continue;
        }
        if failed_growth.is_some_and(|at| at.elapsed() >= RETRY) && control.machine.is_low_on_slots() {
            failed_growth = None;
            control.machine.retry_growth();
        }
        if control.machine.wants_slots().is_some() {
            drop(control);
            if !grow(inner) {
                failed_growth = Some(Instant::now());
            }
            control = inner.lock();
            continue;
        }
        let idle = idle_since.1.elapsed() >= IDLE && control.machine.has_unwritten_changes();
        let last = control.committed_all && control.machine.has_changes();
        if control.machine.checkpoint_is_due() || idle || last {
            drop(control);
            if !checkpoint(inner) {
                return;
            }
            control = inner.lock();
            idle_since.1 = Instant::now();
            continue;
        }
        if control.committed_all {
            return;
        }
        control = wait(inner, control, RETRY);
    }
}

fn wait<'a>(inner: &'a Inner, control: MutexGuard<'a, Control>, timeout: Duration) -> MutexGuard<'a, Control> {
    inner.upkeep.wait_timeout(control, timeout).unwrap_or_else(PoisonError::into_inner).0
}

/// Work at the front of the queue may go on.
fn unstall(inner: &Inner) {
    let mut control = inner.lock();
    let wake = std::mem::take(&mut control.stalled)
        || (control.committer_waits && !control.leading && control.machine.has_work());
    drop(control);
    if wake {
        inner.work.notify_one();
    }
}

fn grow(inner: &Inner) -> bool {
    let (total, wanted) = {
        let control = inner.lock();
        (control.machine.total_slots(), control.machine.wants_slots().unwrap_or(1))
    };
    let mut more = (total / 8).clamp(GROWTH_SLOTS.start, GROWTH_SLOTS.end).max(wanted);
    let used = inner.device.len_bytes() - u64::from(total) * CHUNK_BYTES;
    loop {
        let bytes = u64::from(more) * CHUNK_BYTES;
        let fits = inner.free_space.free_bytes() >= bytes.saturating_add(inner.settings.space_reserve_bytes);
        let grown = if fits {
            inner.device.grow(used + u64::from(total + more) * CHUNK_BYTES)
        } else {
            Err(std::io::ErrorKind::StorageFull.into())
        };
        match grown {
            Ok(()) => {
                inner.lock().machine.grown(total + more);
                inner.counters.grown();
                unstall(inner);
                return true;
            }
            // A little may still fit.
            Err(error) if is_no_space(&error) && more > wanted => more = (more / 2).max(wanted),
            Err(error) if is_no_space(&error) => {
                inner.lock().machine.growth_failed();
                inner.counters.full();
                unstall(inner);
                return false;
            }
            Err(error) => {
                inner.fail(&Arc::from(format!("cannot grow the data file: {error}")));
                return false;
            }
        }
    }
}

fn is_no_space(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

/// Writes one checkpoint, and grows the file in between if it has to. False when it was given up, so that there can be no other.
fn checkpoint(inner: &Inner) -> bool {
    let started = Instant::now();
    let Some(mut run) = Run::begin(inner, inner.uuid) else {
        return true;
    };
    loop {
        match run.step(inner, &*inner.device, &*inner.catalogue) {
            Ok(Progress::More) => {}
            Ok(Progress::WaitForReads) => {
                let mut control = inner.lock();
                control.upkeep_waits_for_reads = true;
                wait(inner, control, READS).upkeep_waits_for_reads = false;
            }
            Ok(Progress::NoSpace) => {
                unstall(inner);
                let control = inner.lock();
                let gives_up = control.committed_all;
                drop(wait(inner, control, RETRY));
                if gives_up {
                    tracing::error!("no space for the last checkpoint; the journal keeps what it would have held");
                    return false;
                }
            }
            Ok(Progress::Done) => {
                inner.counters.checkpoint(started.elapsed());
                unstall(inner);
                return true;
            }
            Err(broken) => {
                inner.fail(&broken.0);
                return true;
            }
        }
        let (stalled, grows) = {
            let control = inner.lock();
            (control.stalled, control.machine.wants_slots().is_some())
        };
        if grows {
            grow(inner);
        } else if stalled {
            unstall(inner);
        }
    }
}
