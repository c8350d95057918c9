//! What is in flight, so that a flush and a close know when everything before them is over.
//!
//! Operations belong to the group that was the newest when they began; a flush waits for its group and all before it, and
//! opens a new one.

use std::collections::VecDeque;

/// Operations in flight, in groups. `F` is a flush.
#[derive(Debug)]
pub(super) struct Flight<F> {
    /// Number of the first of `groups`.
    first: u64,
    /// Never empty; the last one has no flushes.
    groups: VecDeque<Group<F>>,
}

/// The group of an operation. Given back with [`Flight::end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupId(u64);

#[derive(Debug)]
struct Group<F> {
    running: u64,
    flushes: Vec<F>,
}

impl<F> Group<F> {
    const EMPTY: Self = Self { running: 0, flushes: Vec::new() };
}

impl<F> Flight<F> {
    pub(super) fn new() -> Self {
        Self { first: 0, groups: VecDeque::from([Group::EMPTY]) }
    }

    /// An operation begins.
    pub(super) fn begin(&mut self) -> GroupId {
        let last = self.groups.len() - 1;
        self.groups[last].running += 1;
        GroupId(self.first + last as u64)
    }

    /// An operation is over. Gives the flushes that waited for nothing else.
    #[must_use]
    pub(super) fn end(&mut self, group: GroupId) -> Vec<F> {
        let group = self.groups.get_mut(usize::try_from(group.0 - self.first).unwrap_or(usize::MAX));
        group.into_iter().for_each(|group| group.running -= 1);
        let mut due = Vec::new();
        while self.groups.len() > 1
            && self.groups.front().is_some_and(|group| group.running == 0)
            && let Some(over) = self.groups.pop_front()
        {
            self.first += 1;
            due.extend(over.flushes);
        }
        due
    }

    /// Gives the flush back if there is nothing to wait for; else [`end`](Self::end) gives it when that is over.
    pub(super) fn flush(&mut self, flush: F) -> Option<F> {
        let last = self.groups.len() - 1;
        let newest = &mut self.groups[last];
        if newest.running > 0 {
            newest.flushes.push(flush);
            self.groups.push_back(Group::EMPTY);
            return None;
        }
        // Nothing came since the flush before.
        match last.checked_sub(1).and_then(|index| self.groups.get_mut(index)) {
            Some(before) => before.flushes.push(flush),
            None => return Some(flush),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flush_when_nothing_is_in_flight_then_at_once() {
        let mut flight = Flight::new();
        assert_eq!(flight.flush(1), Some(1));
        let group = flight.begin();
        assert!(flight.end(group).is_empty());
        assert_eq!(flight.flush(2), Some(2));
    }

    #[test]
    fn flush_when_operations_are_in_flight_then_after_those_before_it_only() {
        let mut flight = Flight::new();
        let (a, b) = (flight.begin(), flight.begin());
        assert_eq!(flight.flush(1), None);
        assert_eq!(flight.flush(2), None);
        let c = flight.begin();
        assert_eq!(flight.flush(3), None);
        let d = flight.begin();
        assert!(flight.end(c).is_empty());
        assert!(flight.end(b).is_empty());
        assert_eq!(flight.end(a), [1, 2, 3]);
        assert_eq!(flight.flush(4), None);
        assert_eq!(flight.end(d), [4]);
        assert_eq!(flight.flush(5), Some(5));
        assert_eq!(flight.groups.len(), 1);
    }
}
