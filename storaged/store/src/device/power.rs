//! The power supply of a simulated node: counts what its disks do, and fails at a chosen moment.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by everything that lies on one simulated disk (the device and the model catalogue): each of their operations
/// begins with [`begin`](Self::begin). Clones are handles of the same supply.
#[derive(Clone, Debug)]
pub struct Power {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    operations: AtomicU64,
    cut_at: AtomicU64,
}

/// Whether an operation has power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Yes, to its end.
    Powered,
    /// The power fails in the middle of it: it may have happened, or not, or in part, and it fails with [`PowerCut`].
    Cut,
    /// It never began: it does nothing and fails with [`PowerCut`].
    Off,
}

/// The error inside the [`io::Error`] of every operation without power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("power cut")]
pub struct PowerCut;

impl From<PowerCut> for io::Error {
    fn from(cut: PowerCut) -> Self {
        Self::other(cut)
    }
}

/// Whether an error is a [`PowerCut`].
pub fn is_power_cut(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<PowerCut>())
}

impl Default for Power {
    fn default() -> Self {
        Self::new()
    }
}

impl Power {
    /// Power that stays on.
    pub fn new() -> Self {
        let shared = Shared { operations: AtomicU64::new(0), cut_at: AtomicU64::new(u64::MAX) };
        Self { shared: Arc::new(shared) }
    }

    /// How many operations have begun with power, the one in which it failed included. They are numbered from 0.
    pub fn operations(&self) -> u64 {
        self.shared.operations.load(Ordering::SeqCst)
    }

    /// The power fails in operation number `operation`, or in the next one if that has begun already.
    pub fn cut_at(&self, operation: u64) {
        self.shared.cut_at.store(operation, Ordering::SeqCst);
    }

    /// The power is off from now on, between two operations.
    pub fn cut_now(&self) {
        self.shared.cut_at.store(OFF, Ordering::SeqCst);
    }

    /// Whether nothing works any more.
    pub fn is_off(&self) -> bool {
        self.shared.cut_at.load(Ordering::SeqCst) == OFF
    }

    /// An operation begins.
    pub fn begin(&self) -> Begun {
        let cut_at = self.shared.cut_at.load(Ordering::SeqCst);
        if cut_at == OFF {
            return Begun::Off;
        }
        let operation = self.shared.operations.fetch_add(1, Ordering::SeqCst);
        if operation < cut_at {
            return Begun::Powered;
        }
        // Of two threads that come here together only one was in the middle of something.
        match self.shared.cut_at.compare_exchange(cut_at, OFF, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Begun::Cut,
            Err(_) => Begun::Off,
        }
    }
}

/// What `cut_at` holds once the power has failed. The last number is "never", and no run gets as far as this one.
const OFF: u64 = u64::MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begin_when_the_cut_comes_then_one_operation_is_cut_and_none_begins_after() {
        let power = Power::new();
        power.cut_at(2);
        let begun: Vec<_> = (0..5).map(|_| power.clone().begin()).collect();
        assert_eq!(begun, [Begun::Powered, Begun::Powered, Begun::Cut, Begun::Off, Begun::Off]);
        assert_eq!(power.operations(), 3);
        assert!(power.is_off());
    }

    #[test]
    fn cut_at_when_the_operation_has_passed_then_the_next_is_cut() {
        let power = Power::new();
        assert_eq!([power.begin(), power.begin()], [Begun::Powered; 2]);
        power.cut_at(0);
        assert!(!power.is_off());
        assert_eq!([power.begin(), power.begin()], [Begun::Cut, Begun::Off]);
    }

    #[test]
    fn cut_now_when_called_then_nothing_is_cut_in_the_middle() {
        let power = Power::new();
        assert_eq!(power.begin(), Begun::Powered);
        power.cut_now();
        assert!(power.is_off());
        assert_eq!((power.begin(), power.operations()), (Begun::Off, 1));
    }

    #[test]
    fn is_power_cut_when_asked_then_only_of_that_error() {
        assert!(is_power_cut(&PowerCut.into()));
        assert!(!is_power_cut(&io::Error::other("power cut")));
        assert!(!is_power_cut(&io::Error::from_raw_os_error(5)));
    }
}
