//! How much payload the gateway holds at any moment, over all sessions.
//!
//! Two budgets keep the sum bounded (field report 39). *Transfers* - data that was asked for by R2T, and read data on its way
//! to the initiator - take a [`Reservation`] before the first byte moves; without one they wait in order. *Unsolicited data*
//! comes unasked with a command, so it is bounded by the number of commands an initiator may send: [`Memory::command_window`]
//! divides its budget among the sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

/// Bytes that one permit stands for.
const UNIT_BYTES: u64 = 4096;
/// No session's command window is made smaller than this.
const MIN_COMMAND_WINDOW: usize = 8;
/// No session's command window is larger than this.
const MAX_COMMAND_WINDOW: usize = 128;

/// The gateway's payload budgets; cloned freely, all clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    transfers: Arc<Semaphore>,
    transfer_units: u32,
    unsolicited_bytes: usize,
    first_burst_bytes: usize,
    sessions: AtomicUsize,
}

impl Memory {
    /// Budgets of `transfer_bytes` for solicited and read data and `unsolicited_bytes` for unsolicited data, of which a
    /// command may bring up to `first_burst_bytes`.
    pub(crate) fn new(transfer_bytes: u64, unsolicited_bytes: usize, first_burst_bytes: usize) -> Self {
        let transfer_units = units(transfer_bytes);
        Self {
            shared: Arc::new(Shared {
                transfers: Arc::new(Semaphore::new(transfer_units as usize)),
                transfer_units,
                unsolicited_bytes,
                first_burst_bytes: first_burst_bytes.max(1),
                sessions: AtomicUsize::new(0),
            }),
        }
    }

    /// Room for `bytes`, if it is free and nobody waits for it.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Option<Reservation> {
        let units = self.clamp(bytes);
        self.shared.transfers.try_acquire_many(units).ok()?.forget();
        Some(Reservation { memory: self.clone(), units })
    }

    /// Room for `bytes`, as soon as those who asked before have theirs.
    pub(crate) async fn reserve(self, bytes: u64) -> Reservation {
        let units = self.clamp(bytes);
        if let Ok(permit) = self.shared.transfers.acquire_many(units).await {
            permit.forget();
        } else {
            unreachable!("the semaphore is never closed");
        }
        Reservation { memory: self, units }
    }

    /// A transfer larger than the whole budget takes all of it rather than waiting for ever.
    fn clamp(&self, bytes: u64) -> u32 {
        units(bytes).min(self.shared.transfer_units)
    }

    /// Counts a session in for as long as the guard lives.
    pub(crate) fn enter_session(&self) -> SessionShare {
        self.shared.sessions.fetch_add(1, Ordering::Relaxed);
        SessionShare { memory: self.clone() }
    }

    /// How many commands a session may have outstanding now.
    pub(crate) fn command_window(&self) -> u16 {
        let sessions = self.shared.sessions.load(Ordering::Relaxed).max(1);
        let share = self.shared.unsolicited_bytes / self.shared.first_burst_bytes / sessions;
        u16::try_from(share.clamp(MIN_COMMAND_WINDOW, MAX_COMMAND_WINDOW)).unwrap_or(u16::MAX)
    }

    /// Bytes reserved for transfers at this moment.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        let free = self.shared.transfers.available_permits() as u64;
        u64::from(self.shared.transfer_units).saturating_sub(free) * UNIT_BYTES
    }
}

/// Permits for `bytes`, at least one.
fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES).max(1)).unwrap_or(u32::MAX)
}

/// Room in the transfer budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Memory,
    units: u32,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.shared.transfers.add_permits(self.units as usize);
    }
}

/// One session's claim to a share of the unsolicited budget.
#[derive(Debug)]
pub(crate) struct SessionShare {
    memory: Memory,
}

impl Drop for SessionShare {
    fn drop(&mut self) {
        self.memory.shared.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservation_when_dropped_gives_its_room_back() {
        let memory = Memory::new(16 * 4096, 1 << 20, 1 << 16);
        let first = memory.try_reserve(10 * 4096).unwrap();
        assert!(memory.try_reserve(7 * 4096).is_none());
        assert_eq!(memory.reserved_bytes(), 10 * 4096);
        drop(first);
        assert!(memory.try_reserve(7 * 4096).is_some());
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[test]
    fn reservation_larger_than_the_budget_takes_all_of_it() {
        let memory = Memory::new(4 * 4096, 1 << 20, 1 << 16);
        let all = memory.try_reserve(1 << 40).unwrap();
        assert!(memory.try_reserve(1).is_none());
        drop(all);
        assert!(memory.try_reserve(1).is_some());
    }

    #[test]
    fn command_window_shrinks_with_the_number_of_sessions_but_never_closes() {
        let memory = Memory::new(4096, 128 << 20, 64 << 10);
        assert_eq!(memory.command_window(), 128);
        let shares: Vec<_> = (0..64).map(|_| memory.enter_session()).collect();
        assert_eq!(memory.command_window(), 32);
        let more: Vec<_> = (0..10_000).map(|_| memory.enter_session()).collect();
        assert_eq!(memory.command_window(), 8);
        drop((shares, more));
        assert_eq!(memory.command_window(), 128);
    }

    #[test]
    fn reserve_when_others_wait_keeps_their_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let memory = Memory::new(4 * 4096, 1 << 20, 1 << 16);
            let held = memory.try_reserve(3 * 4096).unwrap();
            let mut large = Box::pin(memory.clone().reserve(4 * 4096));
            assert!(futures_pending(&mut large).await);
            // A small one that would fit may not overtake: else large transfers starve.
            let mut small = Box::pin(memory.clone().reserve(4096));
            assert!(futures_pending(&mut small).await);
            drop(held);
            drop(large.await);
            drop(small.await);
        });
    }

    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
        })
        .await
    }
}
