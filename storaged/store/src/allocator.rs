//! Which slots are in use, and which of them the checkpoint on the disk knows of.
//!
//! A slot is *used* from the moment it is handed out until nothing that could be read or replayed names it: a freed one
//! comes back only after the checkpoint that no longer refers to it is durable ([`Allocator::release`]).

use std::collections::BTreeSet;

use crate::format::allocation::{AllocationPage, SLOTS_PER_PAGE};
use crate::ids::Slot;
use crate::mutants::{Mutant, broken};

const WORD_BITS: u32 = u64::BITS;

/// A bit for each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bits(Vec<u64>);

impl Bits {
    fn get(&self, slot: Slot) -> bool {
        self.0.get(word(slot)).is_some_and(|word| word & bit(slot) != 0)
    }

    /// Whether the bit was another before.
    fn set(&mut self, slot: Slot, value: bool) -> bool {
        if self.0.len() <= word(slot) {
            self.0.resize(word(slot) + 1, 0);
        }
        let Some(word) = self.0.get_mut(word(slot)) else {
            return false;
        };
        let was = *word & bit(slot) != 0;
        *word = if value { *word | bit(slot) } else { *word & !bit(slot) };
        was != value
    }
}

fn word(slot: Slot) -> usize {
    (slot.0 / WORD_BITS) as usize
}

fn bit(slot: Slot) -> u64 {
    1 << (slot.0 % WORD_BITS)
}

/// The slots of one disk.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    total: u32,
    used: Bits,
    used_count: u32,
    /// What the catalogue says: referenced as of the last checkpoint.
    durable: Bits,
    /// Where the search for a free one goes on, so that what is written together lies together.
    next: u32,
}

/// A slot that is used twice: the disk contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction(pub(crate) Slot);

impl Allocator {
    pub(crate) fn new(total: u32) -> Self {
        Self { total, used: Bits::default(), used_count: 0, durable: Bits::default(), next: 0 }
    }

    /// Takes over a page of the catalogue.
    pub(crate) fn load(&mut self, page: &AllocationPage) -> Result<(), Contradiction> {
        let first = page.number.saturating_mul(SLOTS_PER_PAGE);
        for (word, bits) in (0..).zip(page.words.iter()) {
            for bit in (0..WORD_BITS).filter(|bit| bits >> bit & 1 == 1) {
                let slot = Slot(first.saturating_add(word * WORD_BITS + bit));
                self.claim(slot)?;
                self.durable.set(slot, true);
            }
        }
        Ok(())
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn used(&self) -> u32 {
        self.used_count
    }

    pub(crate) fn free(&self) -> u32 {
        self.total - self.used_count.min(self.total)
    }

    /// The file has grown.
    pub(crate) fn grow_to(&mut self, total: u32) {
        self.total = self.total.max(total);
    }

    /// Up to `count` slots; fewer only when there are no more.
    pub(crate) fn take(&mut self, count: usize) -> Vec<Slot> {
        let mut taken = Vec::with_capacity(count);
        let mut looked = 0;
        while taken.len() < count && looked <= self.total && self.used_count < self.total {
            if self.next >= self.total {
                self.next = 0;
            }
            let slot = Slot(self.next);
            let full = slot.0.is_multiple_of(WORD_BITS) && self.used.0.get(word(slot)) == Some(&u64::MAX);
            let step = if full { WORD_BITS } else { 1 };
            if !full && self.used.set(slot, true) {
                self.used_count += 1;
                taken.push(slot);
            }
            self.next = self.next.saturating_add(step);
            looked = looked.saturating_add(step);
        }
        taken
    }

    /// Replay finds that a slot is in use.
    pub(crate) fn claim(&mut self, slot: Slot) -> Result<(), Contradiction> {
        if slot.0 >= self.total || !self.used.set(slot, true) {
            return Err(Contradiction(slot));
        }
        self.used_count += 1;
        Ok(())
    }

    /// Gives a slot back that nothing refers to any more, in memory, in the journal or in the catalogue.
    pub(crate) fn release(&mut self, slot: Slot) {
        let early = self.durable.get(slot) && !broken(Mutant::ReuseSlotEarly);
        debug_assert!(!early, "{slot:?} is free and referenced by the checkpoint");
        if self.used.set(slot, false) {
            self.used_count -= 1;
        }
    }

    /// The pages as they are to be written with a checkpoint that refers to `added` and no longer to `removed`.
    /// A slot in both is not referred to.
    pub(crate) fn pages_with(&self, added: &[Slot], removed: &[Slot]) -> Vec<AllocationPage> {
        let numbers: BTreeSet<u32> = added.iter().chain(removed).map(|slot| AllocationPage::place(*slot).0).collect();
        let mut pages: Vec<AllocationPage> = numbers.into_iter().map(|page| self.durable_page(page)).collect();
        for (slots, value) in [(added, true), (removed, false)] {
            for slot in slots {
                let (number, place) = AllocationPage::place(*slot);
                let page =
                    pages.binary_search_by_key(&number, |page| page.number).ok().and_then(|at| pages.get_mut(at));
                if let Some(word) = page.and_then(|page| page.words.get_mut(word(Slot(place)))) {
                    *word = if value { *word | bit(*slot) } else { *word & !bit(*slot) };
                }
            }
        }
        pages
    }

    fn durable_page(&self, number: u32) -> AllocationPage {
        let mut page = AllocationPage::empty(number);
        let first = word(Slot(number.saturating_mul(SLOTS_PER_PAGE)));
        for (place, word) in page.words.iter_mut().zip(self.durable.0.iter().skip(first)) {
            *place = *word;
        }
        page
    }

    /// The checkpoint with these changes is durable.
    pub(crate) fn committed(&mut self, added: &[Slot], removed: &[Slot]) {
        for (slots, value) in [(added, true), (removed, false)] {
            for slot in slots {
                self.durable.set(*slot, value);
            }
        }
    }

    /// Whether the checkpoint refers to the slot.
    #[cfg(test)]
    pub(crate) fn is_durable(&self, slot: Slot) -> bool {
        self.durable.get(slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn take_when_more_is_wanted_than_there_is_then_what_there_is() {
        let mut allocator = Allocator::new(3);
        assert_eq!(allocator.take(2), [Slot(0), Slot(1)]);
        assert_eq!(allocator.take(2), [Slot(2)]);
        assert_eq!(allocator.take(1), []);
        allocator.grow_to(4);
        assert_eq!((allocator.take(2), allocator.free()), (vec![Slot(3)], 0));
        allocator.release(Slot(1));
        assert_eq!(allocator.take(1), [Slot(1)]);
    }

    #[test]
    fn claim_when_used_or_beyond_the_end_then_a_contradiction() {
        let mut allocator = Allocator::new(2);
        assert_eq!(allocator.claim(Slot(1)), Ok(()));
        assert_eq!(allocator.claim(Slot(1)), Err(Contradiction(Slot(1))));
        assert_eq!(allocator.claim(Slot(2)), Err(Contradiction(Slot(2))));
        assert_eq!(allocator.take(2), [Slot(0)]);
    }

    #[test]
    fn pages_when_written_and_loaded_then_the_same_slots_are_used() {
        let mut allocator = Allocator::new(10_000);
        let taken = allocator.take(9000);
        let (gone, kept) = taken.split_at(4500);
        let pages = allocator.pages_with(&taken, gone);
        allocator.committed(&taken, gone);
        gone.iter().for_each(|slot| allocator.release(*slot));
        let mut again = Allocator::new(10_000);
        pages.iter().for_each(|page| again.load(page).unwrap());
        assert_eq!(again.used(), 4500);
        assert!(kept.iter().all(|slot| again.is_durable(*slot) && again.claim(*slot).is_err()));
        assert!(gone.iter().all(|slot| !again.is_durable(*slot)));
        assert_eq!(again.used, allocator.used);
    }

    proptest! {
        #[test]
        fn take_when_slots_come_and_go_then_none_is_handed_out_twice(steps in prop::collection::vec((any::<bool>(), 0usize..90), 1..60)) {
            let mut allocator = Allocator::new(300);
            let mut out: Vec<Slot> = Vec::new();
            for (take, count) in steps {
                if take {
                    let free = allocator.free() as usize;
                    let taken = allocator.take(count);
                    prop_assert_eq!(taken.len(), count.min(free));
                    prop_assert!(taken.iter().all(|slot| slot.0 < 300 && !out.contains(slot)));
                    out.extend(taken);
                } else {
                    for slot in out.drain(..count.min(out.len())) {
                        allocator.release(slot);
                    }
                }
                prop_assert_eq!(allocator.used() as usize, out.len());
            }
        }
    }
}
