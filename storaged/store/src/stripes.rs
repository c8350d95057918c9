//! Lets a reader find out whether a range was being changed while it read.
//!
//! A sequence lock for each stripe of the volume: odd while the one writer changes a block of it. A reader takes a
//! stamp, reads, and compares; it never waits and never makes the writer wait. Only the commit thread writes.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of the volume in one stripe; stripes repeat after [`STRIPES`] of them.
const STRIPE_BYTES: u64 = 128 << 10;

const STRIPES: usize = 256;

pub(crate) struct Stripes(Box<[AtomicU64; STRIPES]>);

/// What [`Stripes::stamp`] saw.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stripes {
    pub(crate) fn new() -> Self {
        Self(Box::new([const { AtomicU64::new(0) }; STRIPES]))
    }

    /// State of a range; `None` while it is being changed.
    pub(crate) fn stamp(&self, offset: u64, len: u64) -> Option<Stamp> {
        // The sum of sequences that only grow stays the same only if each of them does.
        let mut sum = 0u64;
        for sequence in self.touched(offset, len) {
            let sequence = sequence.load(Ordering::SeqCst);
            if sequence % 2 == 1 {
                return None;
            }
            sum = sum.wrapping_add(sequence);
        }
        fence(Ordering::SeqCst);
        Some(Stamp(sum))
    }

    /// Whether nothing of the range was changed since `stamp` was taken of the same range.
    pub(crate) fn unchanged(&self, offset: u64, len: u64, stamp: Stamp) -> bool {
        fence(Ordering::SeqCst);
        self.stamp(offset, len) == Some(stamp)
    }

    /// Runs `change`, which changes the range. On an error the range stays marked as being changed: the device
    /// has failed then, and what half of it holds is nobody's business.
    pub(crate) fn change<T, E>(&self, offset: u64, len: u64, change: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.step(offset, len);
        let value = change()?;
        self.step(offset, len);
        Ok(value)
    }

    fn step(&self, offset: u64, len: u64) {
        for sequence in self.touched(offset, len) {
            sequence.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn touched(&self, offset: u64, len: u64) -> impl Iterator<Item = &AtomicU64> {
        let first = offset / STRIPE_BYTES;
        let last = offset.saturating_add(len.saturating_sub(1)) / STRIPE_BYTES;
        let start = usize::try_from(first % STRIPES as u64).unwrap_or(0);
        let count = usize::try_from(last - first + 1).unwrap_or(STRIPES).min(STRIPES);
        let (before, from) = self.0.split_at(start);
        from.iter().chain(before).take(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed_by(read: (u64, u64), write: (u64, u64)) -> bool {
        let stripes = Stripes::new();
        let stamp = stripes.stamp(read.0, read.1).unwrap();
        let done: Result<(), ()> = stripes.change(write.0, write.1, || {
            assert_eq!(stripes.stamp(read.0, read.1).is_none(), !stripes.unchanged(read.0, read.1, stamp));
            Ok(())
        });
        done.unwrap();
        !stripes.unchanged(read.0, read.1, stamp)
    }

    #[test]
    fn stamp_when_the_range_changes_then_differs() {
        assert!(changed_by((0, 4096), (0, 4096)));
        assert!(changed_by((0, 4096), (STRIPE_BYTES - 1, 1)));
        assert!(changed_by((0, 2 * STRIPE_BYTES), (STRIPE_BYTES, 1)));
        assert!(changed_by((STRIPE_BYTES * 300, 1), (0, u64::MAX)));
        assert!(changed_by((0, u64::MAX), (STRIPE_BYTES * 7777, 1)));
        assert!(changed_by((STRIPE_BYTES * 255, STRIPE_BYTES + 1), (STRIPE_BYTES * 256, 1)));
    }

    #[test]
    fn stamp_when_another_stripe_changes_then_the_same() {
        assert!(!changed_by((0, STRIPE_BYTES), (STRIPE_BYTES, STRIPE_BYTES)));
        assert!(!changed_by((STRIPE_BYTES * 10, 4096), (STRIPE_BYTES * 3, 4096)));
    }

    #[test]
    fn change_when_it_fails_then_stays_marked() {
        let stripes = Stripes::new();
        assert_eq!(stripes.change(0, 1, || Err::<(), _>("lost")), Err("lost"));
        assert!(stripes.stamp(0, 1).is_none());
    }
}
