//! Sets of slots: which are marked as used, and which something refers to.

use crate::format::allocation::{AllocationPage, SLOTS_PER_PAGE};
use crate::ids::Slot;

const WORD_BITS: u32 = u64::BITS;

/// A set of slots, a bit for each up to the highest.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotSet {
    words: Vec<u64>,
}

impl SlotSet {
    #[cfg(test)]
    fn contains(&self, slot: Slot) -> bool {
        self.words.get(word(slot)).is_some_and(|word| word >> (slot.0 % WORD_BITS) & 1 == 1)
    }

    /// False if it was there already.
    pub(super) fn insert(&mut self, slot: Slot) -> bool {
        if self.words.len() <= word(slot) {
            self.words.resize(word(slot) + 1, 0);
        }
        let Some(word) = self.words.get_mut(word(slot)) else { return false };
        let bit = 1 << (slot.0 % WORD_BITS);
        let was = *word & bit != 0;
        *word |= bit;
        !was
    }

    /// All slots that a page marks and that are below `total`; how many it marks beyond.
    pub(super) fn insert_page(&mut self, page: &AllocationPage, total: u32) -> u64 {
        let first = u64::from(page.number) * u64::from(SLOTS_PER_PAGE);
        let mut beyond = 0;
        for (word, bits) in (0u64..).zip(page.words.iter()) {
            for bit in (0..WORD_BITS).filter(|bit| bits >> bit & 1 == 1) {
                let slot = first + word * u64::from(WORD_BITS) + u64::from(bit);
                match u32::try_from(slot) {
                    Ok(slot) if slot < total => {
                        self.insert(Slot(slot));
                    }
                    _ => beyond += 1,
                }
            }
        }
        beyond
    }

    /// Slots that are here and not in the other, as runs: the first, and how many.
    pub(super) fn runs_without(&self, other: &Self) -> Vec<(Slot, u32)> {
        let mut runs: Vec<(Slot, u32)> = Vec::new();
        for (word, bits) in (0u32..).zip(&self.words) {
            let mut left = bits & !other.words.get(word as usize).copied().unwrap_or_default();
            while left != 0 {
                let slot = word * WORD_BITS + left.trailing_zeros();
                left &= left - 1;
                match runs.last_mut() {
                    Some((first, count)) if first.0 + *count == slot => *count += 1,
                    _ => runs.push((Slot(slot), 1)),
                }
            }
        }
        runs
    }
}

fn word(slot: Slot) -> usize {
    (slot.0 / WORD_BITS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_when_compared_then_runs_across_words() {
        let (mut all, mut some) = (SlotSet::default(), SlotSet::default());
        for slot in [1, 62, 63, 64, 65, 200] {
            assert!(all.insert(Slot(slot)) && !all.insert(Slot(slot)));
        }
        some.insert(Slot(64));
        assert_eq!(all.runs_without(&some), [(Slot(1), 1), (Slot(62), 2), (Slot(65), 1), (Slot(200), 1)]);
        assert_eq!(some.runs_without(&all), []);
        assert!(all.contains(Slot(200)) && !all.contains(Slot(201)) && !all.contains(Slot(9999)));
    }

    #[test]
    fn insert_page_when_it_marks_slots_beyond_the_end_then_they_are_counted() {
        let mut page = AllocationPage::empty(1);
        page.words[0] = 0b1011;
        let mut set = SlotSet::default();
        assert_eq!(set.insert_page(&page, 4098), 1);
        assert!(set.contains(Slot(4096)) && set.contains(Slot(4097)) && !set.contains(Slot(4099)));
    }
}
