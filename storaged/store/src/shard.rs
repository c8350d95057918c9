//! One shard in memory: its numbers, which of its chunks have a slot, and what has changed since the last checkpoint.
//!
//! The map of a shard has four layers, the newest first: *active* (since the last checkpoint began), *frozen* (being
//! checkpointed), *recent* (what the last checkpoint wrote), and the catalogue. A chunk without a bit in `slots` has no
//! data, whatever the lower layers say, so most questions need no catalogue.

use std::collections::BTreeMap;

use crate::dedupe::Dedupe;
use crate::format::entry::Entry;
use crate::format::shard::{BITMAP_WORDS, Bitmap, ShardBitmaps, ShardRecord};
use crate::ids::{CHUNKS_PER_SHARD, ChunkIndex, Version};
use crate::overlay::{Base, Delta};

/// The numbers of a shard that replication keeps here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardState {
    /// Of the configuration; never falls.
    pub epoch: u64,
    /// Of the primary's reign; never falls.
    pub term: u64,
    /// Place of the last mutation.
    pub last: Version,
    /// Highest sequence that is known to be committed.
    pub committed: u64,
    /// The replica's journal or map was found corrupt: it must not lead, and be compared with the others.
    pub suspect: bool,
}

/// A shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shard {
    pub(crate) state: ShardState,
    pub(crate) dedupe: Dedupe,
    pub(crate) bitmaps: ShardBitmaps,
    pub(crate) active: BTreeMap<ChunkIndex, Delta>,
    pub(crate) frozen: BTreeMap<ChunkIndex, Delta>,
    pub(crate) recent: BTreeMap<ChunkIndex, Option<Entry>>,
    /// Chunks with a slot.
    pub(crate) slot_count: u32,
    /// The catalogue has other bitmaps.
    pub(crate) bitmaps_changed: bool,
}

/// Where the content of a chunk comes from, apart from blocks in the overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// No data.
    Nothing,
    /// This entry.
    Entry(&'a crate::format::entry::Content),
    /// What the catalogue says.
    Catalogue,
}

impl Shard {
    pub(crate) fn load(record: &ShardRecord, bitmaps: ShardBitmaps) -> Self {
        let state = ShardState {
            epoch: record.epoch,
            term: record.term,
            last: record.last,
            committed: record.committed,
            suspect: record.suspect,
        };
        let slot_count = bitmaps.slots.iter().map(|word| word.count_ones()).sum();
        Self { state, dedupe: Dedupe::from_rows(&record.dedupe), bitmaps, slot_count, ..Self::default() }
    }

    pub(crate) fn record(&self) -> ShardRecord {
        ShardRecord {
            epoch: self.state.epoch,
            term: self.state.term,
            last: self.state.last,
            committed: self.state.committed,
            suspect: self.state.suspect,
            dedupe: self.dedupe.rows(),
        }
    }

    pub(crate) fn has_slot(&self, chunk: ChunkIndex) -> bool {
        get(&self.bitmaps.slots, chunk)
    }

    pub(crate) fn set_slot(&mut self, chunk: ChunkIndex, value: bool) {
        if set(&mut self.bitmaps.slots, chunk, value) {
            self.bitmaps_changed = true;
            self.slot_count = if value { self.slot_count + 1 } else { self.slot_count.saturating_sub(1) };
        }
    }

    pub(crate) fn is_touched(&self, chunk: ChunkIndex) -> bool {
        get(&self.bitmaps.touched, chunk)
    }

    pub(crate) fn set_touched(&mut self, chunk: ChunkIndex, value: bool) {
        self.bitmaps_changed |= set(&mut self.bitmaps.touched, chunk, value);
    }

    /// Chunks from `from` up to `to`, excluded, that hold data since their last whole hole.
    pub(crate) fn touched_in(&self, from: u16, to: u16) -> Vec<ChunkIndex> {
        let mut found = Vec::new();
        let mut at = from;
        while at < to.min(CHUNKS_PER_SHARD) {
            let word = self.bitmaps.touched.get(usize::from(at / 64)).copied().unwrap_or_default() >> (at % 64);
            if word == 0 {
                at = (at / 64 + 1) * 64;
                continue;
            }
            at += u16::try_from(word.trailing_zeros()).unwrap_or_default();
            if at < to {
                found.extend(ChunkIndex::new(at));
            }
            at += 1;
        }
        found
    }

    pub(crate) fn delta(&mut self, chunk: ChunkIndex) -> &mut Delta {
        self.active.entry(chunk).or_insert_with(Delta::new)
    }

    /// What lies below the overlay's blocks of a chunk.
    pub(crate) fn source(&self, chunk: ChunkIndex) -> Source<'_> {
        for layer in [&self.active, &self.frozen] {
            match layer.get(&chunk).map(|delta| &delta.base) {
                Some(Base::Hole) => return Source::Nothing,
                Some(Base::Slot(content)) => return Source::Entry(content),
                Some(Base::Below) | None => {}
            }
        }
        if !self.has_slot(chunk) {
            return Source::Nothing;
        }
        match self.recent.get(&chunk) {
            Some(entry) => {
                entry.as_ref().and_then(|entry| entry.content.as_ref()).map_or(Source::Nothing, Source::Entry)
            }
            None => Source::Catalogue,
        }
    }
}

/// Whether the chunk has a slot in these bitmaps.
pub(crate) fn has_slot(bitmaps: &ShardBitmaps, chunk: ChunkIndex) -> bool {
    get(&bitmaps.slots, chunk)
}

/// Whether the chunk holds data in these bitmaps.
pub(crate) fn is_touched(bitmaps: &ShardBitmaps, chunk: ChunkIndex) -> bool {
    get(&bitmaps.touched, chunk)
}

/// The chunk has a slot and data in these bitmaps, or has not.
pub(crate) fn mark(bitmaps: &mut ShardBitmaps, chunk: ChunkIndex, value: bool) {
    set(&mut bitmaps.slots, chunk, value);
    set(&mut bitmaps.touched, chunk, value);
}

/// The chunk has no slot in these bitmaps.
pub(crate) fn clear_slot(bitmaps: &mut ShardBitmaps, chunk: ChunkIndex) {
    set(&mut bitmaps.slots, chunk, false);
}

fn get(bitmap: &Bitmap, chunk: ChunkIndex) -> bool {
    let index = usize::from(chunk.get());
    bitmap.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

/// Whether the bit was another before.
fn set(bitmap: &mut Bitmap, chunk: ChunkIndex, value: bool) -> bool {
    const { assert!(BITMAP_WORDS * 64 == CHUNKS_PER_SHARD as usize) };
    let index = usize::from(chunk.get());
    let Some(word) = bitmap.get_mut(index / 64) else {
        return false;
    };
    let bit = 1u64 << (index % 64);
    let was = *word & bit != 0;
    *word = if value { *word | bit } else { *word & !bit };
    was != value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(index: u16) -> ChunkIndex {
        ChunkIndex::new(index).unwrap()
    }

    #[test]
    fn touched_in_when_some_are_then_just_those_in_the_range() {
        let mut shard = Shard::default();
        for index in [0, 63, 64, 200, 16_383] {
            shard.set_touched(chunk(index), true);
        }
        let found = |from, to| shard.touched_in(from, to).iter().map(|chunk| chunk.get()).collect::<Vec<_>>();
        assert_eq!(found(0, 16_384), [0, 63, 64, 200, 16_383]);
        assert_eq!(found(1, 200), [63, 64]);
        assert!(found(64, 64).is_empty());
        assert_eq!(found(65, 201), [200]);
    }

    #[test]
    fn slots_when_set_and_cleared_then_counted_once() {
        let mut shard = Shard::default();
        for (value, count) in [(true, 1), (true, 1), (false, 0), (false, 0)] {
            shard.set_slot(chunk(77), value);
            assert_eq!((shard.has_slot(chunk(77)), shard.slot_count), (value, count));
        }
    }

    #[test]
    fn record_when_loaded_then_the_same_again() {
        let state =
            ShardState { epoch: 1, term: 2, last: Version { term: 2, sequence: 9 }, committed: 8, suspect: true };
        let mut shard = Shard { state, ..Shard::default() };
        shard.set_slot(chunk(5), true);
        let again = Shard::load(&shard.record(), shard.bitmaps.clone());
        assert_eq!((again.state, again.slot_count, again.has_slot(chunk(5))), (shard.state, 1, true));
    }
}
