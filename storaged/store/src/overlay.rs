//! What has happened to a chunk since a checkpoint, and how that changes its map entry.
//!
//! A [`Delta`] needs not know what lies below it: a write never has to read the map first. [`Delta::merge`] puts the two
//! together once the lower entry is known.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::format::entry::{Content, Entry};
use crate::ids::{BLOCKS_PER_CHUNK, Slot, Version};

/// What lies below the blocks that a [`Delta`] changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// Whatever the layer below says.
    Below,
    /// Nothing: the chunk was unmapped as a whole.
    Hole,
    /// A slot that the chunk got in this layer.
    Slot(Box<Content>),
}

/// One block that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockChange {
    /// Journalled, and not in the slot yet.
    Data { bytes: Bytes, crc: u32 },
    /// Unmapped.
    Hole,
}

/// The changes of one chunk in one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Of the last change to content; `None` if there was none in this layer.
    pub(crate) version: Option<Version>,
    pub(crate) base: Base,
    /// The stale flag, where it was changed.
    pub(crate) stale: Option<bool>,
    /// By number of the block, ascending.
    blocks: SmallVec<[(u8, BlockChange); 1]>,
}

/// Slots that a change of a delta lets go of.
pub(crate) type Freed = Option<Slot>;

impl Delta {
    pub(crate) fn new() -> Self {
        Self { version: None, base: Base::Below, stale: None, blocks: SmallVec::new() }
    }

    /// What became of block number `block` of the chunk in this layer, apart from the base.
    pub(crate) fn block(&self, block: u8) -> Option<&BlockChange> {
        self.blocks
            .binary_search_by_key(&block, |(number, _)| *number)
            .ok()
            .and_then(|at| self.blocks.get(at))
            .map(|(_, change)| change)
    }

    /// All changed blocks, ascending.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u8, &BlockChange)> {
        self.blocks.iter().map(|(number, change)| (*number, change))
    }

    /// The slot that the chunk got in this layer.
    pub(crate) fn own_slot(&self) -> Option<Slot> {
        match &self.base {
            Base::Slot(content) => Some(content.slot),
            Base::Below | Base::Hole => None,
        }
    }

    /// Bytes of memory that its blocks hold.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.blocks()
            .map(|(_, change)| if let BlockChange::Data { bytes, .. } = change { bytes.len() as u64 } else { 0 })
            .sum()
    }

    /// The chunk gets an empty slot.
    pub(crate) fn put_slot(&mut self, slot: Slot) -> Freed {
        self.replace(Base::Slot(Box::new(Content { slot, mapped: 0, lost: 0, crcs: [0; BLOCKS_PER_CHUNK] })))
    }

    /// The whole chunk is in a new slot.
    pub(crate) fn put_chunk(&mut self, version: Version, slot: Slot, crcs: [u32; BLOCKS_PER_CHUNK]) -> Freed {
        self.version = Some(version);
        self.replace(Base::Slot(Box::new(Content { slot, mapped: u16::MAX, lost: 0, crcs })))
    }

    /// The whole chunk is unmapped.
    pub(crate) fn put_hole(&mut self, version: Version) -> Freed {
        self.version = Some(version);
        self.replace(Base::Hole)
    }

    /// One block, whose bytes the journal holds.
    pub(crate) fn put_block(&mut self, version: Version, block: u8, bytes: Bytes, crc: u32) {
        self.version = Some(version);
        self.put(block, BlockChange::Data { bytes, crc });
    }

    /// One block is unmapped; the chunk keeps its slot.
    pub(crate) fn put_block_hole(&mut self, version: Version, block: u8) {
        self.version = Some(version);
        self.put(block, BlockChange::Hole);
    }

    /// For a mutant: all changes of blocks are lost.
    pub(crate) fn forget_blocks(&mut self) {
        self.blocks.clear();
    }

    fn put(&mut self, block: u8, change: BlockChange) {
        match self.blocks.binary_search_by_key(&block, |(number, _)| *number) {
            Ok(at) => {
                if let Some(place) = self.blocks.get_mut(at) {
                    place.1 = change;
                }
            }
            Err(at) => self.blocks.insert(at, (block, change)),
        }
    }

    fn replace(&mut self, base: Base) -> Freed {
        let freed = self.own_slot();
        self.blocks.clear();
        self.base = base;
        freed
    }

    /// The entry that this delta makes of the `lower` one, once its blocks are in the slot, and the slot of `lower` that
    /// is no longer used. A chunk without a single mapped block keeps no slot, unless `keep_slot`.
    pub(crate) fn merge(&self, lower: Option<&Entry>, keep_slot: bool) -> Merged {
        let below = lower.and_then(|entry| entry.content.as_ref());
        let mut content = match &self.base {
            Base::Below => below.copied(),
            Base::Hole => None,
            Base::Slot(content) => Some(**content),
        };
        if let Some(content) = &mut content {
            for (block, change) in self.blocks() {
                let bit = 1u16 << block;
                content.lost &= !bit;
                match change {
                    BlockChange::Data { crc, .. } => {
                        content.mapped |= bit;
                        if let Some(place) = content.crcs.get_mut(usize::from(block)) {
                            *place = *crc;
                        }
                    }
                    BlockChange::Hole => content.mapped &= !bit,
                }
            }
        }
        let mut freed = SmallVec::new();
        if let Some(old) = below.map(|content| content.slot)
            && content.as_ref().is_none_or(|content| content.slot != old)
        {
            freed.push(old);
        }
        let emptied = content.as_ref().is_some_and(|content| content.mapped == 0) && !keep_slot;
        if emptied && let Some(content) = content.take() {
            freed.push(content.slot);
        }
        let version = self.version.or(lower.map(|entry| entry.version)).unwrap_or_default();
        let stale = self.stale.unwrap_or(lower.is_some_and(|entry| entry.stale));
        let entry = Entry { version, stale, snapshot: 0, references: u32::from(content.is_some()), content };
        let never = entry.version == Version::default() && !entry.stale && entry.content.is_none();
        Merged { entry: if never { None } else { Some(entry) }, freed, emptied }
    }
}

/// What [`Delta::merge`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    /// `None`: as if never written.
    pub(crate) entry: Option<Entry>,
    /// Slots that the chunk used and does not use any more.
    pub(crate) freed: SmallVec<[Slot; 2]>,
    /// The last mapped block went, and the slot with it.
    pub(crate) emptied: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(sequence: u64) -> Version {
        Version { term: 1, sequence }
    }

    fn lower(mapped: u16) -> Entry {
        let content = Some(Content { slot: Slot(7), mapped, lost: 0, crcs: [9; 16] });
        Entry { version: version(1), stale: false, snapshot: 0, references: 1, content }
    }

    #[test]
    fn merge_when_blocks_are_written_then_the_slot_stays_and_their_crcs_change() {
        let mut delta = Delta::new();
        delta.put_block(version(2), 3, Bytes::from_static(b"x"), 33);
        delta.put_block_hole(version(3), 4);
        let merged = delta.merge(Some(&lower(0x0013)), false);
        let content = merged.entry.as_ref().unwrap().content.as_ref().unwrap();
        assert_eq!((content.slot, content.mapped, content.crcs[3], content.crcs[0]), (Slot(7), 0x000b, 33, 9));
        assert_eq!(merged.entry.unwrap().version, version(3));
        assert!(merged.freed.is_empty());
    }

    #[test]
    fn merge_when_the_chunk_moves_then_the_old_slot_is_freed() {
        let mut delta = Delta::new();
        assert_eq!(delta.put_chunk(version(2), Slot(8), [1; 16]), None);
        assert_eq!(delta.put_chunk(version(3), Slot(9), [2; 16]), Some(Slot(8)));
        let merged = delta.merge(Some(&lower(1)), false);
        assert_eq!(merged.freed.as_slice(), [Slot(7)]);
        assert_eq!(merged.entry.unwrap().content.unwrap().slot, Slot(9));
    }

    #[test]
    fn merge_when_the_last_block_goes_then_so_does_the_slot() {
        let mut delta = Delta::new();
        delta.put_block_hole(version(2), 0);
        let merged = delta.merge(Some(&lower(1)), false);
        assert_eq!((merged.freed.as_slice(), merged.emptied), (&[Slot(7)][..], true));
        let entry = merged.entry.unwrap();
        assert_eq!((entry.version, entry.content, entry.references), (version(2), None, 0));
        assert!(!delta.merge(Some(&lower(1)), true).emptied);
    }

    #[test]
    fn merge_when_only_the_flag_changes_then_the_version_stays() {
        let mut delta = Delta::new();
        delta.stale = Some(true);
        let merged = delta.merge(Some(&lower(1)), false);
        assert_eq!(merged.entry, Some(Entry { stale: true, ..lower(1) }));
        delta.stale = Some(false);
        assert_eq!(delta.merge(None, false).entry, None);
    }

    #[test]
    fn block_when_changed_twice_then_the_last_counts() {
        let mut delta = Delta::new();
        for (block, crc) in [(5, 1), (2, 2), (5, 3)] {
            delta.put_block(version(1), block, Bytes::from_static(b"1234"), crc);
        }
        assert_eq!(delta.blocks().map(|(block, _)| block).collect::<Vec<_>>(), [2, 5]);
        assert_eq!(delta.block(5), Some(&BlockChange::Data { bytes: Bytes::from_static(b"1234"), crc: 3 }));
        assert_eq!(delta.data_bytes(), 8);
        assert_eq!(delta.put_hole(version(2)), None);
        assert_eq!(delta.data_bytes(), 0);
    }
}
