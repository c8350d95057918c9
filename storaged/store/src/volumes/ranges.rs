//! Range locks of one volume: what changes a block in part reads it, merges and writes it back, and nothing else may
//! change that block meanwhile. Changes of whole blocks do not wait for each other; the engine orders them.
//!
//! First come, first served: who comes later waits for everybody it conflicts with, whether that one is in flight or waits
//! itself, so that nobody waits for ever. No thread waits: who has to is parked, and handed back when it is its turn.
//! Each holder knows whom it blocks, so that nothing is searched at a release.

use crate::volumes::split::Footprint;

/// Marks a place that nobody has; conflicts with nothing.
const FREE: Footprint = Footprint { first: 0, end: 0, head_partial: false, tail_partial: false };

/// Who holds or waits for ranges of a volume. `P` is what is parked.
#[derive(Debug)]
pub(super) struct Ranges<P> {
    /// Of each place. Apart from the rest, so that looking for conflicts reads little memory.
    footprints: Vec<Footprint>,
    places: Vec<Place<P>>,
    free: Vec<usize>,
    /// Places that change blocks in part. Without any there are no conflicts.
    partial: usize,
    /// A deliberate bug, to show that the tests find it: nobody ever waits.
    #[cfg(test)]
    pub(super) mutant_no_locks: bool,
}

/// A place among those that hold or wait. Given back with [`Ranges::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(usize);

#[derive(Debug)]
struct Place<P> {
    /// How many earlier ones it waits for.
    blockers: usize,
    /// Who waits for it, among others.
    blocked: Vec<usize>,
    parked: Option<P>,
}

impl<P> Ranges<P> {
    pub(super) fn new() -> Self {
        Self {
            footprints: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            partial: 0,
            #[cfg(test)]
            mutant_no_locks: false,
        }
    }

    /// Takes a place for the blocks. `Ok` holds them; who gets `Err` has to [`park`](Self::park).
    pub(super) fn acquire(&mut self, footprint: Footprint) -> Result<Token, Token> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.footprints.push(FREE);
            self.places.push(Place { blockers: 0, blocked: Vec::new(), parked: None });
            self.places.len() - 1
        });
        let is_partial = !footprint.is_whole();
        let mut blockers = 0;
        if self.may_conflict(is_partial) {
            for (other, place) in self.footprints.iter().zip(&mut self.places) {
                if other.conflicts(&footprint) {
                    place.blocked.push(index);
                    blockers += 1;
                }
            }
        }
        self.partial += usize::from(is_partial);
        self.footprints[index] = footprint;
        self.places[index].blockers = blockers;
        if blockers == 0 { Ok(Token(index)) } else { Err(Token(index)) }
    }

    fn may_conflict(&self, is_partial: bool) -> bool {
        #[cfg(test)]
        if self.mutant_no_locks {
            return false;
        }
        is_partial || self.partial > 0
    }

    /// Leaves what is to go on when it is this place's turn.
    pub(super) fn park(&mut self, token: Token, parked: P) {
        self.places[token.0].parked = Some(parked);
    }

    /// Gives the blocks back. Those whose turn it is now hold theirs.
    #[must_use]
    pub(super) fn release(&mut self, token: Token) -> Vec<(Token, P)> {
        self.partial -= usize::from(!self.footprints[token.0].is_whole());
        self.footprints[token.0] = FREE;
        let mut ready = Vec::new();
        for index in std::mem::take(&mut self.places[token.0].blocked) {
            let place = &mut self.places[index];
            place.blockers -= 1;
            if place.blockers == 0
                && let Some(parked) = place.parked.take()
            {
                ready.push((Token(index), parked));
            }
        }
        self.free.push(token.0);
        if self.free.len() == self.places.len() {
            // A search is never longer than the most that were in flight since nothing was.
            self.footprints.clear();
            self.places.clear();
            self.free.clear();
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(offset: u64, len: u64) -> Footprint {
        Footprint::of(offset, len, 1 << 30).unwrap()
    }

    #[test]
    fn acquire_when_whole_blocks_overlap_then_nobody_waits() {
        let mut ranges = Ranges::<u32>::new();
        let first = ranges.acquire(bytes(0, 8192)).unwrap();
        let second = ranges.acquire(bytes(4096, 8192)).unwrap();
        assert!(ranges.release(first).is_empty());
        assert!(ranges.release(second).is_empty());
        assert!(ranges.places.is_empty());
    }

    #[test]
    fn acquire_when_a_part_of_a_block_then_first_come_first_served() {
        let mut ranges = Ranges::new();
        let whole = ranges.acquire(bytes(0, 8192)).unwrap();
        let part = ranges.acquire(bytes(4096, 512)).unwrap_err();
        ranges.park(part, "part");
        // Waits for the one that waits, though it would not conflict with the one in flight.
        let later = ranges.acquire(bytes(4096, 4096)).unwrap_err();
        ranges.park(later, "later");
        // Another part of the same block: not before either of them.
        let last = ranges.acquire(bytes(5000, 100)).unwrap_err();
        ranges.park(last, "last");
        let apart = ranges.acquire(bytes(100, 100)).unwrap_err();
        ranges.park(apart, "apart");
        assert!(ranges.acquire(bytes(8192, 100)).is_ok());
        assert_eq!(ranges.release(whole), [(part, "part"), (apart, "apart")]);
        assert_eq!(ranges.release(apart), []);
        assert_eq!(ranges.release(part), [(later, "later")]);
        assert_eq!(ranges.release(later), [(last, "last")]);
        assert_eq!(ranges.release(last), []);
    }

    proptest! {
        #[test]
        fn ranges_when_any_requests_then_no_conflict_is_held_and_all_come_to_their_turn(
            steps in prop::collection::vec((any::<bool>(), 0u64..40_000, 1u64..9000, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut ranges = Ranges::new();
            let mut held: Vec<(Token, Footprint, usize)> = Vec::new();
            let mut waiting: Vec<(Footprint, usize)> = Vec::new();
            for (number, (acquire, offset, len, index)) in steps.into_iter().enumerate() {
                if acquire {
                    let footprint = bytes(offset, len);
                    match ranges.acquire(footprint) {
                        Ok(token) => {
                            // Also nobody who waits was overtaken.
                            prop_assert!(!waiting.iter().any(|(other, _)| other.conflicts(&footprint)));
                            held.push((token, footprint, number));
                        }
                        Err(token) => {
                            ranges.park(token, (footprint, number));
                            waiting.push((footprint, number));
                        }
                    }
                } else if !held.is_empty() {
                    let (token, ..) = held.swap_remove(index.index(held.len()));
                    for (token, (footprint, number)) in ranges.release(token) {
                        waiting.retain(|(_, other)| *other != number);
                        held.push((token, footprint, number));
                    }
                }
                for (at, (_, a, _)) in held.iter().enumerate() {
                    prop_assert!(!held[..at].iter().any(|(_, b, _)| a.conflicts(b)));
                }
                // Who waits has a reason: somebody earlier.
                for (footprint, number) in &waiting {
                    let held = held.iter().any(|(_, other, earlier)| earlier < number && other.conflicts(footprint));
                    prop_assert!(held || waiting.iter().any(|(other, earlier)| earlier < number && other.conflicts(footprint)));
                }
            }
            while let Some((token, ..)) = held.pop() {
                held.extend(ranges.release(token).into_iter().map(|(token, (footprint, number))| {
                    waiting.retain(|(_, other)| *other != number);
                    (token, footprint, number)
                }));
            }
            prop_assert!(waiting.is_empty() && ranges.places.is_empty());
        }
    }
}
