//! Reads under way, and when all that began before some moment are over.
//!
//! A read knows from its plan which slots it reads. What it may find there is changed only after a *grace period*: the time until
//! every read that was planned before has finished.

use std::collections::BTreeMap;

/// A moment between two plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(u64);

/// Counts the reads under way by the epoch in which they were planned.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    epoch: u64,
    under_way: BTreeMap<u64, u32>,
}

impl Reads {
    /// A read is planned now. [`Reads::end`] has to follow.
    pub(crate) fn begin(&mut self) -> Epoch {
        *self.under_way.entry(self.epoch).or_default() += 1;
        Epoch(self.epoch)
    }

    /// A read is over.
    pub(crate) fn end(&mut self, planned: Epoch) {
        if let Some(count) = self.under_way.get_mut(&planned.0) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&planned.0);
            }
        }
    }

    /// Begins a grace period.
    pub(crate) fn turn(&mut self) -> Epoch {
        self.epoch += 1;
        Epoch(self.epoch)
    }

    /// Whether no read that was planned before `turn` is under way.
    pub(crate) fn are_over(&self, turn: Epoch) -> bool {
        self.under_way.keys().next().is_none_or(|oldest| *oldest >= turn.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_when_an_old_read_is_under_way_then_not_over() {
        let mut reads = Reads::default();
        let (first, second) = (reads.begin(), reads.begin());
        let turn = reads.turn();
        let later = reads.begin();
        assert!(!reads.are_over(turn));
        reads.end(first);
        assert!(!reads.are_over(turn));
        reads.end(second);
        assert!(reads.are_over(turn));
        let next = reads.turn();
        assert!(!reads.are_over(next) && reads.are_over(turn));
        reads.end(later);
        assert!(reads.are_over(next));
    }
}
