//! How much payload the gateway holds at any moment, over all sessions.
//!
//! Two budgets keep the sum bounded (field report 39). *Transfers* - data that was asked for by R2T, and read data on its way
//! to the initiator - take a [`Reservation`] before the first byte moves; without one they wait in order. *Unsolicited data*
//! comes unasked with a command, so it is bounded by the number of commands an initiator may send: [`Memory::command_window`]
//! divides its budget among the sessions.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

/// Bytes that one permit stands for.
const UNIT_BYTES: u64 = 4096;
/// No session's command window is made smaller than this.
const MIN_COMMAND_WINDOW: usize = 2;
/// A session may hold this part of the transfer budget, so that one that does not go on cannot stop all others.
const SHARE_OF_ONE_SESSION: u32 = 4;
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
    /// Sessions that wait for room in the transfer budget.
    waiting: AtomicUsize,
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
                waiting: AtomicUsize::new(0),
            }),
        }
    }

    /// Units that one session may hold.
    fn session_units(&self) -> u32 {
        (self.shared.transfer_units / SHARE_OF_ONE_SESSION).max(1)
    }

    /// Whether some session waits for room.
    pub(crate) fn is_contended(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) > 0
    }

    /// Counts a session in for as long as the guard lives.
    pub(crate) fn enter_session(&self) -> SessionShare {
        self.shared.sessions.fetch_add(1, Ordering::Relaxed);
        SessionShare { memory: self.clone(), held_units: Rc::default() }
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
    held_by_session: Rc<Cell<u32>>,
}

impl Reservation {
    /// Bytes that it stands for, rounded up.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.units) * UNIT_BYTES
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.shared.transfers.add_permits(self.units as usize);
        self.held_by_session.set(self.held_by_session.get().saturating_sub(self.units));
    }
}

/// One session's claim to a share of both budgets.
#[derive(Debug)]
pub(crate) struct SessionShare {
    memory: Memory,
    held_units: Rc<Cell<u32>>,
}

/// What a session is told that asks for room.
#[derive(Debug)]
pub(crate) enum Room {
    /// Here it is.
    Granted(Reservation),
    /// The session holds its share already: when it gives something back, ask again.
    ShareUsedUp,
    /// Others hold it: [`SessionShare::wait`].
    Wait,
}

impl SessionShare {
    /// A transfer larger than a session's share takes all of it rather than waiting for ever.
    fn clamp(&self, bytes: u64) -> u32 {
        units(bytes).min(self.memory.session_units())
    }

    /// Room for `bytes`, if the session's share allows it, it is free and nobody waits for it.
    pub(crate) fn try_reserve(&self, bytes: u64) -> Room {
        let units = self.clamp(bytes);
        if self.held_units.get().saturating_add(units) > self.memory.session_units() {
            return Room::ShareUsedUp;
        }
        match self.memory.shared.transfers.try_acquire_many(units) {
            Ok(permit) => {
                permit.forget();
                Room::Granted(hold(&self.memory, &self.held_units, units))
            }
            Err(_) => Room::Wait,
        }
    }

    /// Room for `bytes`, as soon as those who asked before have theirs.
    pub(crate) fn wait(&self, bytes: u64) -> impl Future<Output = Reservation> + 'static {
        let (memory, held_units) = (self.memory.clone(), self.held_units.clone());
        let units = self.clamp(bytes);
        async move {
            let waiting = Waiter::new(&memory);
            match memory.shared.transfers.acquire_many(units).await {
                Ok(permit) => permit.forget(),
                Err(_) => unreachable!("the semaphore is never closed"),
            }
            drop(waiting);
            hold(&memory, &held_units, units)
        }
    }
}

fn hold(memory: &Memory, held_units: &Rc<Cell<u32>>, units: u32) -> Reservation {
    held_units.set(held_units.get() + units);
    Reservation { memory: memory.clone(), units, held_by_session: held_units.clone() }
}

impl Drop for SessionShare {
    fn drop(&mut self) {
        self.memory.shared.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts one who waits, whether he gets what he waits for or gives up.
struct Waiter<'a>(&'a Memory);

impl<'a> Waiter<'a> {
    fn new(memory: &'a Memory) -> Self {
        memory.shared.waiting.fetch_add(1, Ordering::Relaxed);
        Self(memory)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.shared.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(room: Room) -> Reservation {
        match room {
            Room::Granted(reservation) => reservation,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reservation_when_dropped_gives_its_room_back() {
        let memory = Memory::new(64 * 4096, 1 << 20, 1 << 16);
        let share = memory.enter_session();
        let first = granted(share.try_reserve(10 * 4096));
        assert_eq!((first.bytes(), memory.reserved_bytes()), (10 * 4096, 10 * 4096));
        assert!(matches!(share.try_reserve(7 * 4096), Room::ShareUsedUp));
        drop(first);
        granted(share.try_reserve(7 * 4096));
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[test]
    fn session_that_holds_its_share_leaves_the_rest_to_others() {
        let memory = Memory::new(64 * 4096, 1 << 20, 1 << 16);
        let greedy = memory.enter_session();
        let held: Vec<_> = (0..16).map(|_| granted(greedy.try_reserve(4096))).collect();
        assert!(matches!(greedy.try_reserve(1), Room::ShareUsedUp));
        granted(memory.enter_session().try_reserve(16 * 4096));
        drop(held);
        granted(greedy.try_reserve(1));
    }

    #[test]
    fn reservation_larger_than_the_share_takes_all_of_it() {
        let memory = Memory::new(16 * 4096, 1 << 20, 1 << 16);
        let share = memory.enter_session();
        let all = granted(share.try_reserve(1 << 40));
        assert_eq!(all.bytes(), 4 * 4096);
        drop(all);
        granted(share.try_reserve(1));
    }

    #[test]
    fn command_window_shrinks_with_the_number_of_sessions_but_never_closes() {
        let memory = Memory::new(4096, 128 << 20, 64 << 10);
        assert_eq!(memory.command_window(), 128);
        let shares: Vec<_> = (0..64).map(|_| memory.enter_session()).collect();
        assert_eq!(memory.command_window(), 32);
        let more: Vec<_> = (0..10_000).map(|_| memory.enter_session()).collect();
        assert_eq!(memory.command_window(), 2);
        drop((shares, more));
        assert_eq!(memory.command_window(), 128);
    }

    #[test]
    fn reserve_when_others_wait_keeps_their_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let memory = Memory::new(4 * 4096, 1 << 20, 1 << 16);
            let shares: Vec<_> = (0..6).map(|_| memory.enter_session()).collect();
            let mut held: Vec<_> = shares[..4].iter().map(|share| granted(share.try_reserve(4096))).collect();
            assert!(matches!(shares[4].try_reserve(4096), Room::Wait));
            let mut first = Box::pin(shares[4].wait(4096));
            let mut second = Box::pin(shares[5].wait(4096));
            assert!(futures_pending(&mut first).await && futures_pending(&mut second).await);
            assert!(memory.is_contended());
            held.pop();
            // Nobody overtakes those who wait.
            assert!(matches!(shares[3].try_reserve(4096), Room::Wait));
            drop(first.await);
            drop(second.await);
            assert!(!memory.is_contended());
        });
    }

    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
        })
        .await
    }
}
