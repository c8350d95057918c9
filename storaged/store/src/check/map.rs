//! The map, one shard at a time: its entries against the bitmaps and the allocation pages, and the data against the entries.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

use super::blocks::{self, ChunkPlan};
use super::finding::{Finding, Problem};
use super::report::{Report, problem_of};
use super::rows::{self, walk_with};
use super::slots::SlotSet;
use super::state::{self, State};
use super::tables::{Tables, name_of, unknown_row};
use crate::catalogue::Catalogue;
use crate::device::Device;
use crate::format::Entry;
use crate::format::keys::{self, Table};
use crate::format::shard::ShardBitmaps;
use crate::ids::{BLOCKS_PER_CHUNK, CHUNK_BYTES, CHUNKS_PER_SHARD, ChunkIndex, ShardId, Slot};
use crate::machine::{ChunkId, Cold, Piece, ReadPlan};
use crate::read::{FaultKind, ReadFault};
use crate::shard;

/// Blocks of a chunk, as it goes into counts of blocks.
const CHUNK_BLOCKS: u32 = 16;
const _: () = assert!(CHUNK_BLOCKS as usize == BLOCKS_PER_CHUNK);

/// Slots whose users are looked for; of more than that the first are told.
const MOST_SUSPECTS: usize = 10_000;

/// What the walk over the map has come to.
pub(super) struct MapWalk<'a> {
    catalogue: &'a dyn Catalogue,
    /// The data, and the state that says where it is.
    data: Option<(&'a dyn Device, State)>,
    tables: &'a Tables,
    referenced: SlotSet,
    suspects: BTreeSet<Slot>,
    /// Entries that could not be read: slots that are marked may belong to them.
    unknown_entries: u64,
    /// Volumes that were told to be unknown.
    unknown_volumes: BTreeSet<holdfast_proto::ids::VolumeId>,
    /// Errors of the catalogue that were told.
    told: BTreeSet<String>,
}

/// The entries of one shard.
#[derive(Default)]
struct Entries {
    good: BTreeMap<ChunkIndex, Entry>,
    bad: BTreeMap<ChunkIndex, (Problem, String)>,
}

impl<'a> MapWalk<'a> {
    pub(super) fn new(catalogue: &'a dyn Catalogue, data: Option<(&'a dyn Device, State)>, tables: &'a Tables) -> Self {
        Self {
            catalogue,
            data,
            tables,
            referenced: SlotSet::default(),
            suspects: BTreeSet::new(),
            unknown_entries: 0,
            unknown_volumes: BTreeSet::new(),
            told: BTreeSet::new(),
        }
    }

    /// Checks all shards, and then the slots.
    pub(super) fn run(mut self, report: &mut Report<'_>) {
        let machine = self.data.as_ref().map(|(_, state)| &state.machine);
        let known = state::shards_to_walk(self.tables, machine);
        let chunks = machine.map_or(0, |machine| {
            machine.shard_ids().iter().filter_map(|shard| machine.slot_count(*shard)).map(u64::from).sum()
        });
        report.expect_chunks(chunks);
        let (mut cursor, mut last) = (state::map_start(), None);
        loop {
            let next_known = known.range((last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)).next();
            let shard = match self.first_row(&cursor, report) {
                Some(key) => match keys::parse_map(&key) {
                    Some((found, _)) => next_known.map_or(found, |known| found.min(*known)),
                    None => {
                        unknown_row(report, &key);
                        cursor = rows::after(&key);
                        continue;
                    }
                },
                None => match next_known {
                    Some(known) => *known,
                    None => break,
                },
            };
            self.shard(report, shard);
            report.summary.shards += 1;
            cursor = cursor.max(state::behind(shard));
            last = Some(shard);
        }
        self.compare_slots(report);
    }

    /// The key of the first row of the map from `cursor` on; `None` if there is none, or it cannot be read.
    fn first_row(&mut self, cursor: &[u8], report: &mut Report<'_>) -> Option<Vec<u8>> {
        let mut first = None;
        let visited = self.catalogue.range(cursor, &Table::Map.range().end, &mut |key, _| {
            first = Some(key.to_vec());
            ControlFlow::Break(())
        });
        if let Err(error) = visited {
            self.tell_damage(report, error.to_string());
        }
        first
    }

    /// Damage of the catalogue is met again and again, and told once.
    fn tell_damage(&mut self, report: &mut Report<'_>, error: String) {
        if self.told.len() < MOST_SUSPECTS && self.told.insert(error.clone()) {
            report.found(Finding::new(Problem::Catalogue, "the catalogue, map entries", error));
        }
    }

    fn shard(&mut self, report: &mut Report<'_>, shard: ShardId) {
        let entries = self.entries(report, shard);
        self.unknown_entries += entries.bad.len() as u64;
        self.check_owner(report, shard, &entries);
        for (chunk, entry) in &entries.good {
            let Some(content) = &entry.content else { continue };
            if !self.referenced.insert(content.slot) {
                self.suspects.insert(content.slot);
            }
            if report.volumes.get(&shard.volume).is_some_and(|record| {
                report.range(shard, chunk.first_block(), CHUNK_BLOCKS).bytes.start >= record.size_bytes
            }) {
                let place = format!("{}, chunk {}", name_of(report, shard), chunk.get());
                let range = report.range(shard, chunk.first_block(), CHUNK_BLOCKS);
                report.found(Finding::of(Problem::Unreachable, range, place, "it lies beyond the end of the volume"));
            }
        }
        self.compare_bitmaps(report, shard, &entries);
        self.verify(report, shard, &entries);
    }

    fn entries(&mut self, report: &mut Report<'_>, shard: ShardId) -> Entries {
        let mut entries = Entries::default();
        let chunks = (0..CHUNKS_PER_SHARD).filter_map(ChunkIndex::new).map(|chunk| keys::map(shard, chunk));
        let gap = walk_with(self.catalogue, keys::map_range(shard), chunks, &mut |key, value| {
            let Some((_, chunk)) = keys::parse_map(key) else { return unknown_row(report, key) };
            match value.map(|value| Entry::parse(shard, chunk, value)) {
                Ok(Ok(entry)) => {
                    entries.good.insert(chunk, entry);
                }
                Ok(Err(error)) => {
                    entries.bad.insert(chunk, (problem_of(Problem::Entry, &error), error.to_string()));
                }
                Err(error) => {
                    entries.bad.insert(chunk, (Problem::Entry, error.to_string()));
                }
            }
        });
        if let Some(error) = gap {
            self.tell_damage(report, error.to_string());
        }
        entries
    }

    /// Whose data it is.
    fn check_owner(&mut self, report: &mut Report<'_>, shard: ShardId, entries: &Entries) {
        let volume = shard.volume;
        let is_named = report.volumes.contains_key(&volume) || self.tables.bad_volumes.contains(&volume);
        if !is_named && self.unknown_volumes.insert(volume) {
            let detail = "it has data, and there is no record of it";
            report.found(Finding::new(Problem::Unreachable, format!("volume number {volume}"), detail));
        }
        if self.tables.records.contains(&shard) || self.tables.records_untold {
            return;
        }
        let has_rows = !entries.good.is_empty() || !entries.bad.is_empty() || self.tables.bitmaps.contains(&shard);
        if has_rows {
            let detail = "it has rows in the catalogue, and no record there";
            report.found(Finding::new(Problem::Unreachable, name_of(report, shard), detail));
        }
    }

    /// As of the checkpoint.
    fn compare_bitmaps(&self, report: &mut Report<'_>, shard: ShardId, entries: &Entries) {
        let bitmaps = match self.catalogue.get(&keys::bitmaps(shard)) {
            Ok(Some(value)) => match ShardBitmaps::parse(shard, &value) {
                Ok(bitmaps) => bitmaps,
                Err(_) => return,
            },
            Ok(None) => ShardBitmaps::default(),
            Err(_) => return,
        };
        let mut wrong: Vec<(ChunkIndex, &str)> = Vec::new();
        for chunk in (0..CHUNKS_PER_SHARD).filter_map(ChunkIndex::new) {
            if entries.bad.contains_key(&chunk) {
                continue;
            }
            let entry = entries.good.get(&chunk);
            let has_slot = entry.is_some_and(|entry| entry.content.is_some());
            let (slot_bit, touched) = (shard::has_slot(&bitmaps, chunk), shard::is_touched(&bitmaps, chunk));
            let detail = match (slot_bit, has_slot) {
                (true, false) => "the bitmap says that it has a slot, the map that it has none",
                (false, true) => "the bitmap says that it has no slot, the map that it has one",
                _ if has_slot && !touched => "it has a slot, and the bitmap says that it holds nothing",
                _ if touched && entry.is_none() => "the bitmap says that it holds something, and it has no map entry",
                _ => continue,
            };
            wrong.push((chunk, detail));
        }
        for run in wrong.chunk_by(|one, other| adjoins(one.0, other.0) && one.1 == other.1) {
            let Some(((first, detail), (last, _))) = run.first().zip(run.last()) else { continue };
            let blocks = (u32::from(last.get() - first.get()) + 1) * CHUNK_BLOCKS;
            let range = report.range(shard, first.first_block(), blocks);
            report.found(Finding::of(Problem::Bitmaps, range, chunks_of(report, shard, *first, *last), *detail));
        }
    }

    /// What a read would find, once the journal is carried out.
    fn verify(&mut self, report: &mut Report<'_>, shard: ShardId, entries: &Entries) {
        let Some((device, state)) = &mut self.data else { return self.tell_bad_entries(report, shard, entries) };
        let machine = &mut state.machine;
        if machine.slot_count(shard).is_none() && !self.tables.records.contains(&shard) {
            machine.load_shard(shard, state::load_shard(self.catalogue, shard));
        }
        let mut plans = Vec::new();
        let mut missing: Vec<(ChunkIndex, String)> = Vec::new();
        let mut needed: Vec<ChunkIndex> = Vec::new();
        let mut beyond: Vec<(ChunkIndex, ReadFault)> = Vec::new();
        for chunk in machine.chunks_with_slot(shard) {
            let cold = |chunk: ChunkIndex| match entries.good.get(&chunk) {
                _ if entries.bad.contains_key(&chunk) => Cold::Unknown,
                entry => Cold::Known(entry.and_then(|entry| entry.content)),
            };
            match machine.plan_read(shard, chunk.first_block(), CHUNK_BLOCKS, cold) {
                ReadPlan::Ready { pieces, planned } => {
                    machine.read_is_over(planned);
                    match ends_beyond(&pieces, device.len_bytes()) {
                        Some(block) => {
                            beyond.push((chunk, ReadFault { block, kind: FaultKind::Io(String::new()) }));
                            report.chunks_done(1);
                        }
                        None => plans.push(ChunkPlan { chunk, pieces }),
                    }
                }
                ReadPlan::Load { chunks, .. } => {
                    needed.extend(chunks);
                    report.chunks_done(1);
                }
                ReadPlan::Missing(chunk) => {
                    missing.push((chunk, "it has a slot, and no map entry says which".into()));
                    report.chunks_done(1);
                }
            }
        }
        let is_certain = state.is_certain;
        let faults = blocks::verify(*device, plans, &mut |chunks| report.chunks_done(chunks));
        tell_chunks(report, shard, Problem::MissingEntry, &missing);
        let beyond: Vec<(ChunkIndex, String)> = beyond
            .into_iter()
            .map(|(chunk, _)| (chunk, "its slot lies beyond the end of the data file".to_owned()))
            .collect();
        tell_chunks(report, shard, Problem::BeyondEnd, &beyond);
        tell_faults(report, shard, &faults, is_certain);
        let needed: BTreeSet<ChunkIndex> = needed.into_iter().collect();
        for (chunk, (problem, error)) in &entries.bad {
            let more =
                if needed.contains(chunk) { "" } else { "; its data is in the journal as a whole, or was unmapped" };
            tell_chunks(report, shard, *problem, &[(*chunk, format!("{error}{more}"))]);
        }
    }

    fn tell_bad_entries(&self, report: &mut Report<'_>, shard: ShardId, entries: &Entries) {
        for (chunk, (problem, error)) in &entries.bad {
            tell_chunks(report, shard, *problem, &[(*chunk, error.clone())]);
        }
    }

    /// The allocation pages against the map, both as of the checkpoint.
    fn compare_slots(mut self, report: &mut Report<'_>) {
        let shared = self.suspects.clone();
        let mut unmarked = Vec::new();
        if self.tables.pages_are_whole {
            unmarked = self.referenced.runs_without(&self.tables.marked);
            let slots = unmarked.iter().flat_map(|(first, count)| (first.0..first.0 + count).map(Slot));
            self.suspects.extend(slots.take(MOST_SUSPECTS));
        }
        let users = self.users(report);
        for slot in &shared {
            for (shard, chunk) in users.get(slot).into_iter().flatten() {
                let range = report.range(*shard, chunk.first_block(), CHUNK_BLOCKS);
                let detail = "another chunk has the same slot";
                report.found(Finding::of(Problem::SharedSlot, range, format!("slot {}", slot.0), detail));
            }
        }
        for slot in unmarked.iter().flat_map(|(first, count)| (first.0..first.0 + count).map(Slot)) {
            let place = format!("slot {}", slot.0);
            let detail = "the allocation page says that it is free";
            for (shard, chunk) in users.get(&slot).into_iter().flatten() {
                let range = report.range(*shard, chunk.first_block(), CHUNK_BLOCKS);
                report.found(Finding::of(Problem::UnmarkedSlot, range, place.as_str(), detail));
            }
        }
        let leaks = self.tables.marked.runs_without(&self.referenced);
        let count: u64 = leaks.iter().map(|(_, count)| u64::from(*count)).sum();
        if self.unknown_entries > 0 || !self.told.is_empty() {
            if count > 0 {
                report.note(format!("{count} slots are marked as used by the damaged map entries, or by nothing"));
            }
            return;
        }
        for (first, count) in leaks {
            let place = format!("{count} slots from {}, {} bytes", first.0, u64::from(count) * CHUNK_BYTES);
            report.found(Finding::new(
                Problem::Leak,
                place,
                "the allocation page marks them, and no map entry names them",
            ));
        }
    }

    /// Which chunks have the suspicious slots.
    fn users(&self, report: &mut Report<'_>) -> BTreeMap<Slot, Vec<ChunkId>> {
        let mut users: BTreeMap<Slot, Vec<ChunkId>> = BTreeMap::new();
        if self.suspects.is_empty() {
            return users;
        }
        let walked = rows::walk(self.catalogue, Table::Map.range(), &mut |key, value| {
            let Some(((shard, chunk), value)) = keys::parse_map(key).zip(value.ok()) else { return };
            let content = Entry::parse(shard, chunk, value).ok().and_then(|entry| entry.content);
            if let Some(content) = content.filter(|content| self.suspects.contains(&content.slot)) {
                users.entry(content.slot).or_default().push((shard, chunk));
            }
        });
        if walked.is_err() {
            report.note("some of the chunks that share slots, or use free ones, are hidden by the catalogue's damage");
        }
        users
    }
}

/// The first block that lies beyond the end of the data file.
fn ends_beyond(pieces: &[Piece], len_bytes: u64) -> Option<u64> {
    let mut block = 0;
    for piece in pieces {
        if let Piece::Disk { offset, crcs } = piece
            && offset.saturating_add(crcs.len() as u64 * holdfast_proto::units::BLOCK_BYTES) > len_bytes
        {
            return Some(block);
        }
        block += piece.blocks() as u64;
    }
    None
}

fn chunks_of(report: &Report<'_>, shard: ShardId, first: ChunkIndex, last: ChunkIndex) -> String {
    let name = name_of(report, shard);
    match last.get() - first.get() {
        0 => format!("{name}, chunk {}", first.get()),
        _ => format!("{name}, chunks {} to {}", first.get(), last.get()),
    }
}

/// Neighbours with the same fault are one finding.
fn tell_chunks(report: &mut Report<'_>, shard: ShardId, problem: Problem, chunks: &[(ChunkIndex, String)]) {
    for run in chunks.chunk_by(|one, other| adjoins(one.0, other.0) && one.1 == other.1) {
        let Some(((first, detail), (last, _))) = run.first().zip(run.last()) else { continue };
        let blocks = (u32::from(last.get() - first.get()) + 1) * CHUNK_BLOCKS;
        let range = report.range(shard, first.first_block(), blocks);
        report.found(Finding::of(problem, range, chunks_of(report, shard, *first, *last), detail.as_str()));
    }
}

fn tell_faults(report: &mut Report<'_>, shard: ShardId, faults: &[(ChunkIndex, ReadFault)], is_certain: bool) {
    let blocks: Vec<(u64, Problem, String)> = faults
        .iter()
        .map(|(chunk, fault)| {
            let (problem, detail) = match &fault.kind {
                FaultKind::Checksum if is_certain => (Problem::Checksum, "it does not match its checksum".to_owned()),
                FaultKind::Checksum => {
                    let detail = "it does not match its checksum, or the journal, which cannot be read, had newer data";
                    (Problem::Checksum, detail.to_owned())
                }
                FaultKind::Lost => (Problem::Lost, "nobody knows what was written there".to_owned()),
                FaultKind::Io(error) => (Problem::Unreadable, error.clone()),
            };
            (u64::from(chunk.first_block()) + fault.block, problem, detail)
        })
        .collect();
    for run in blocks.chunk_by(|one, other| one.0 + 1 == other.0 && (one.1, &one.2) == (other.1, &other.2)) {
        let Some(((first, problem, detail), (last, _, _))) = run.first().zip(run.last()) else { continue };
        let first_block = u32::try_from(*first).unwrap_or(u32::MAX);
        let range = report.range(shard, first_block, u32::try_from(last - first + 1).unwrap_or(u32::MAX));
        let chunk = |block: u64| ChunkIndex::of_block(u32::try_from(block).unwrap_or(u32::MAX));
        let Some((first_chunk, last_chunk)) = chunk(*first).zip(chunk(*last)) else { continue };
        let place = chunks_of(report, shard, first_chunk, last_chunk);
        report.found(Finding::of(*problem, range, place, detail.as_str()));
    }
}

/// Whether the second chunk is the next one.
fn adjoins(first: ChunkIndex, second: ChunkIndex) -> bool {
    first.get() + 1 == second.get()
}
