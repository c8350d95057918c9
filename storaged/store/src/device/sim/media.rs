//! What a simulated disk holds: what is durable, what reads see, and the writes between the two.
//!
//! All of it in pages of 4 KiB that are shared and never changed, so that a copy of a disk costs a map of pointers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::random::Random;
use crate::device::{DEVICE_ALIGN, DeviceWrite, PAGE_LEN};

/// What a disk writes as a whole, bytes: a power cut tears between sectors.
pub const SECTOR_LEN: usize = 512;

type Page = Arc<[u8; PAGE_LEN]>;
type Pages = BTreeMap<u64, Page>;

/// A write that a power cut may take. Pages that something later made durable are no longer in it.
#[derive(Clone, Debug)]
struct Pending {
    /// The call that made it.
    call: u64,
    pages: Vec<(u64, Page)>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Media {
    len_bytes: u64,
    /// A length that a power cut in the middle of growing may have left.
    perhaps_len_bytes: Option<u64>,
    durable: Pages,
    seen: Pages,
    /// In the order in which they were made: of two that both survive, the later one counts.
    pending: Vec<Pending>,
    unreadable: BTreeSet<u64>,
}

impl Media {
    pub(super) fn new(len_bytes: u64) -> Self {
        Self { len_bytes, ..Self::default() }
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    pub(super) fn grow(&mut self, len_bytes: u64) {
        self.len_bytes = self.len_bytes.max(len_bytes);
    }

    /// The power fails while it grows.
    pub(super) fn perhaps_grow(&mut self, len_bytes: u64) {
        self.perhaps_len_bytes = Some(len_bytes);
    }

    /// `None`: a page of it cannot be read.
    pub(super) fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let first = offset / DEVICE_ALIGN;
        let mut bytes = vec![0; len];
        for (number, place) in (first..).zip(bytes.chunks_exact_mut(PAGE_LEN)) {
            if self.unreadable.contains(&number) {
                return None;
            }
            if let Some(page) = self.seen.get(&number) {
                place.copy_from_slice(&page[..]);
            }
        }
        Some(bytes)
    }

    /// Reads see it; a power cut may take it.
    pub(super) fn write(&mut self, call: u64, offset: u64, write: &DeviceWrite) {
        let mut pages = pages_of(offset, write);
        pages.retain(|(number, _)| *number < self.len_bytes / DEVICE_ALIGN);
        self.see(&pages);
        self.pending.push(Pending { call, pages });
    }

    /// A write that failed or had no power: any of its sectors may have changed, and may change until the next sync.
    pub(super) fn perhaps_write(&mut self, call: u64, write: &DeviceWrite, random: &mut Random) {
        let mut pages = pages_of(write.offset, write);
        for (number, page) in &mut pages {
            *page = torn(self.seen.get(number), page, random);
        }
        self.see(&pages);
        self.pending.push(Pending { call, pages });
    }

    fn see(&mut self, pages: &[(u64, Page)]) {
        for (number, page) in pages {
            self.seen.insert(*number, Arc::clone(page));
            self.unreadable.remove(number);
        }
    }

    /// Everything becomes durable.
    pub(super) fn sync(&mut self) {
        for (number, page) in self.pending.drain(..).flat_map(|pending| pending.pages) {
            self.durable.insert(number, page);
        }
    }

    /// The writes of this call become durable, and nothing else.
    pub(super) fn sync_call(&mut self, call: u64) {
        let mut synced = Pages::new();
        let mut others = Vec::new();
        for mut pending in std::mem::take(&mut self.pending).into_iter().rev() {
            if pending.call == call {
                synced.extend(pending.pages);
                continue;
            }
            // An older write that still waits must not come over a newer one that is durable.
            pending.pages.retain(|(number, _)| !synced.contains_key(number));
            if !pending.pages.is_empty() {
                others.push(pending);
            }
        }
        others.reverse();
        self.pending = others;
        self.durable.extend(synced);
    }

    /// A sync that failed: some writes are dropped, some have become durable, of some nothing is known until the next
    /// sync. Reads go on seeing the dropped ones, or do not.
    pub(super) fn drop_some(&mut self, random: &mut Random) {
        let mut kept = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            let mut rest = Vec::new();
            for (number, page) in pending.pages {
                match random.below(4) {
                    0 => rest.push((number, page)),
                    1 => {
                        self.durable.insert(number, page);
                    }
                    2 => {}
                    _ => self.forget(number),
                }
            }
            if !rest.is_empty() {
                kept.push(Pending { call: pending.call, pages: rest });
            }
        }
        self.pending = kept;
    }

    /// Reads see the durable page again.
    fn forget(&mut self, number: u64) {
        match self.durable.get(&number) {
            Some(page) => self.seen.insert(number, Arc::clone(page)),
            None => self.seen.remove(&number),
        };
    }

    /// Turns a bit over, wherever the byte is held.
    pub(super) fn rot(&mut self, offset: u64, bit: u8) {
        let rotten = offset / DEVICE_ALIGN;
        let index = usize::try_from(offset % DEVICE_ALIGN).unwrap_or_default();
        let flip = |page: &mut Page| {
            if let Some(byte) = Arc::make_mut(page).get_mut(index) {
                *byte ^= 1 << (bit % 8);
            }
        };
        flip(self.durable.entry(rotten).or_insert_with(zeros));
        flip(self.seen.entry(rotten).or_insert_with(zeros));
        let pending = self.pending.iter_mut().flat_map(|pending| &mut pending.pages);
        pending.filter(|(number, _)| *number == rotten).for_each(|(_, page)| flip(page));
    }

    pub(super) fn make_unreadable(&mut self, offset: u64) {
        self.unreadable.insert(offset / DEVICE_ALIGN);
    }

    /// How many writes a power cut may take.
    pub(super) fn unsynced(&self) -> usize {
        self.pending.len()
    }

    /// What is there when the power comes back.
    pub(super) fn after_power_cut(&self, random: &mut Random) -> Self {
        let mut durable = self.durable.clone();
        let mut fates = Fates::new(self.pending.len(), random);
        for (index, pending) in self.pending.iter().enumerate() {
            let fate = fates.next(index, random);
            for (number, page) in &pending.pages {
                let page = match fate {
                    Fate::Lost => continue,
                    Fate::Kept => Arc::clone(page),
                    Fate::Torn => torn(durable.get(number), page, random),
                };
                durable.insert(*number, page);
            }
        }
        let grown = self.perhaps_len_bytes.filter(|_| random.one_in(2)).unwrap_or_default();
        Self {
            len_bytes: self.len_bytes.max(grown),
            perhaps_len_bytes: None,
            seen: durable.clone(),
            durable,
            pending: Vec::new(),
            unreadable: self.unreadable.clone(),
        }
    }

    /// Crc32c of the length and of all that reads see.
    pub(super) fn digest(&self) -> u32 {
        let start = crc32c::crc32c(&self.len_bytes.to_le_bytes());
        self.seen.iter().filter(|(_, page)| page.iter().any(|byte| *byte != 0)).fold(start, |crc, (number, page)| {
            crc32c::crc32c_append(crc32c::crc32c_append(crc, &number.to_le_bytes()), &page[..])
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    Kept,
    Torn,
}

/// Decides over the unsynced writes. The extremes, which independent throws would hardly ever reach, have their share.
enum Fates {
    All(Fate),
    /// All but this one have the fate; this one has the opposite, or is torn.
    AllBut(usize, Fate),
    /// The writes before this one were kept, the later ones lost.
    Prefix(usize),
    Each,
}

impl Fates {
    fn new(writes: usize, random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::All(Fate::Lost),
            1 => Self::All(Fate::Kept),
            2 => Self::AllBut(random.index(writes), Fate::Kept),
            3 => Self::AllBut(random.index(writes), Fate::Lost),
            4 => Self::Prefix(random.index(writes)),
            _ => Self::Each,
        }
    }

    fn next(&mut self, index: usize, random: &mut Random) -> Fate {
        match self {
            Self::All(fate) => *fate,
            Self::AllBut(one, fate) if index != *one => *fate,
            Self::AllBut(_, Fate::Kept) if random.one_in(2) => Fate::Lost,
            Self::AllBut(_, Fate::Lost) if random.one_in(2) => Fate::Kept,
            Self::AllBut(..) => Fate::Torn,
            Self::Prefix(end) if index < *end => Fate::Kept,
            Self::Prefix(_) => Fate::Lost,
            Self::Each => match random.below(3) {
                0 => Fate::Lost,
                1 => Fate::Kept,
                _ => Fate::Torn,
            },
        }
    }
}

fn zeros() -> Page {
    Arc::new([0; PAGE_LEN])
}

/// The old page with any subset of the new one's sectors; often a prefix, as a disk head would leave it.
fn torn(old: Option<&Page>, new: &Page, random: &mut Random) -> Page {
    let mut page = old.map_or([0; PAGE_LEN], |page| **page);
    let sectors = PAGE_LEN / SECTOR_LEN;
    let prefix = random.one_in(2).then(|| random.index(sectors + 1));
    let pairs = page.chunks_exact_mut(SECTOR_LEN).zip(new.chunks_exact(SECTOR_LEN));
    for (index, (old, new)) in pairs.enumerate() {
        if prefix.map_or_else(|| random.one_in(2), |prefix| index < prefix) {
            old.copy_from_slice(new);
        }
    }
    Arc::new(page)
}

/// The pages of a write that goes to `offset`.
fn pages_of(offset: u64, write: &DeviceWrite) -> Vec<(u64, Page)> {
    let mut bytes = Vec::with_capacity(usize::try_from(write.len_bytes()).unwrap_or_default());
    write.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    let numbers = offset / DEVICE_ALIGN..;
    let (pages, _) = bytes.as_chunks::<PAGE_LEN>();
    numbers.zip(pages.iter().map(|page| Arc::new(*page))).collect()
}
