//! The life of a mutation after it was queued: batches are formed, made durable, applied, and their operations completed.
//!
//! One thread *leads* at a time. On a disk that is the commit thread. On a device in memory nothing ever waits, so whoever
//! submits leads for a few rounds: its own operation then completes without any thread being woken.

use std::sync::Arc;
use std::time::Duration;

use super::statistics::JournalShare;
use super::{Control, Inner, Watch, complete};
use crate::machine::Formed;

/// Batches that a submitter carries out before it leaves the rest to the commit thread.
pub(super) const INLINE_ROUNDS: usize = 8;

/// Time without a batch after which an empty one proves the last.
const SEAL_AFTER: Duration = Duration::from_secs(1);

/// The commit thread.
pub(super) fn run(inner: &Inner) {
    let mut control = inner.lock();
    let mut last_batch = 0;
    loop {
        if !control.leading && !control.stalled && control.machine.has_work() {
            control.leading = true;
            drop(control);
            lead(inner, usize::MAX);
            control = inner.lock();
            continue;
        }
        if control.closing && !control.machine.has_work() && !control.leading {
            control.committed_all = true;
            inner.upkeep.notify_all();
            return;
        }
        control.committer_waits = true;
        let (guard, waited) =
            inner.work.wait_timeout(control, SEAL_AFTER).unwrap_or_else(std::sync::PoisonError::into_inner);
        control = guard;
        control.committer_waits = false;
        let batch = control.machine.next_batch();
        if waited.timed_out()
            && batch == last_batch
            && !control.leading
            && let Some(seal) = control.machine.form_seal()
        {
            control.leading = true;
            drop(control);
            carry_out(inner, seal);
            control = inner.lock();
            control.leading = false;
        }
        last_batch = control.machine.next_batch();
    }
}

/// Carries batches out until there is no work, it has to wait, or `rounds` are over. The caller has set `leading`.
pub(super) fn lead(inner: &Inner, rounds: usize) {
    let _watch = Watch(inner);
    for _ in 0..rounds {
        let mut refused = Vec::new();
        let mut control = inner.lock();
        let formed = control.machine.form(&mut refused);
        match formed {
            Ok(Some(batch)) => {
                drop(control);
                complete(refused);
                carry_out(inner, batch);
            }
            Ok(None) if !refused.is_empty() => {
                drop(control);
                complete(refused);
            }
            Ok(None) => {
                control.leading = false;
                let closing = control.closing;
                drop(control);
                if closing {
                    inner.work.notify_all();
                }
                return;
            }
            Err(stall) => {
                control.leading = false;
                control.stalled = true;
                drop(control);
                inner.counters.stall(stall);
                inner.upkeep.notify_all();
                complete(refused);
                return;
            }
        }
    }
    inner.lock().leading = false;
    inner.work.notify_one();
}

fn carry_out(inner: &Inner, batch: Formed) {
    let journal_bytes = batch.journal_bytes();
    let (writes, payload) = batch.writes(inner.align);
    inner.counters.batch(&writes, JournalShare { total_bytes: journal_bytes, payload_bytes: payload.len() as u64 });
    match inner.device.write_durably(&writes) {
        Ok(()) => {
            let mut control = inner.lock();
            let outcomes = control.machine.applied(&payload);
            let wants_upkeep = control.wants_upkeep();
            drop(control);
            if wants_upkeep {
                inner.upkeep.notify_one();
            }
            complete(outcomes);
        }
        Err(error) => inner.fail(&Arc::from(format!("cannot write to the data file: {error}"))),
    }
}

impl Control {
    /// Whether the upkeep thread has something to do.
    pub(super) fn wants_upkeep(&self) -> bool {
        self.machine.checkpoint_is_due() || self.machine.wants_slots().is_some()
    }
}
