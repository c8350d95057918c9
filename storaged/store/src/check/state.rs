//! The state that the engine would find: the catalogue with the journal carried out in memory.
//!
//! Recovery gives up at the first damage. A check goes on with whatever is good.

use crate::catalogue::Catalogue;
use crate::device::Device;
use crate::format::keys::{self, Table};
use crate::format::shard::{ShardBitmaps, ShardRecord};
use crate::format::{AllocationPage, Entry, Superblock};
use crate::ids::ShardId;
use crate::journal::{ScanError, Start, Tail, scan};
use crate::machine::{Bounds, JournalEnd, Machine};
use crate::recovery::{self, RecoverError, replay, slots_of};
use crate::shard::{self, Shard};

use super::finding::{Finding, Problem};
use super::report::{Report, problem_of};
use super::rows;
use super::tables::Tables;

/// A state.
pub(super) struct State {
    pub(super) machine: Machine<()>,
    /// It is what the engine would find; else some of the journal, or of what it builds on, is missing.
    pub(super) is_certain: bool,
}

/// Reads it.
pub(super) fn read(
    report: &mut Report<'_>,
    device: &dyn Device,
    catalogue: &dyn Catalogue,
    superblock: &Superblock,
    tables: &Tables,
) -> State {
    match recovery::read(device, catalogue, superblock, Bounds::default()) {
        Ok(recovered) => {
            report.summary.batches = recovered.batches;
            if recovered.torn {
                note_torn(report);
            }
            State { machine: recovered.machine, is_certain: true }
        }
        Err(error) => {
            explain(report, error);
            let mut machine = load(device, catalogue, superblock, tables);
            replay_journal(report, device, superblock, tables, &mut machine);
            State { machine, is_certain: false }
        }
    }
}

fn note_torn(report: &mut Report<'_>) {
    report.note("the journal ends in the remains of a batch that was never acknowledged, as a power cut leaves it");
}

/// What the walk over the tables and the replay below do not tell by themselves.
fn explain(report: &mut Report<'_>, error: RecoverError) {
    let place = "the store as a whole";
    match error {
        RecoverError::Journal(_) | RecoverError::Apply { .. } => {}
        RecoverError::OtherDisk { .. } => report.found(Finding::new(Problem::OtherDisk, place, error.to_string())),
        RecoverError::Io { .. } => report.found(Finding::new(Problem::DataFile, place, error.to_string())),
        RecoverError::Allocation(_) => report.found(Finding::new(Problem::Row, place, error.to_string())),
        RecoverError::Catalogue(_)
        | RecoverError::Format(_)
        | RecoverError::NoCheckpoint
        | RecoverError::Superblock(_) => {
            if report.summary.damage == 0 {
                report.found(Finding::new(Problem::Catalogue, place, error.to_string()));
            }
        }
    }
}

/// All that is good of the catalogue.
fn load(device: &dyn Device, catalogue: &dyn Catalogue, superblock: &Superblock, tables: &Tables) -> Machine<()> {
    let start = tables.checkpoint.as_ref().map_or(Start::FIRST, Start::from);
    let end = JournalEnd { position: start.position, number: start.next_batch, previous_crc: start.previous_crc };
    let number = tables.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.number);
    let mut machine = Machine::new(superblock, slots_of(device, superblock), Bounds::default(), end, number);
    for shard in &tables.records {
        machine.load_shard(*shard, load_shard(catalogue, *shard));
    }
    let pages = slots_of(device, superblock).div_ceil(crate::format::SLOTS_PER_PAGE);
    for number in 0..pages {
        if let Ok(Some(value)) = catalogue.get(&keys::allocation(number))
            && let Ok(page) = AllocationPage::parse(number, &value)
        {
            // A contradiction has been found by the walk over the pages.
            let _ = machine.load_allocation(&page);
        }
    }
    machine
}

/// A shard as far as its rows are good; its bitmaps are made of its map where they are not.
pub(super) fn load_shard(catalogue: &dyn Catalogue, id: ShardId) -> Shard {
    let get = |key: Vec<u8>| catalogue.get(&key).ok().flatten();
    let record = get(keys::shard(id)).and_then(|value| ShardRecord::parse(id, &value).ok()).unwrap_or_default();
    let bitmaps = get(keys::bitmaps(id)).and_then(|value| ShardBitmaps::parse(id, &value).ok());
    Shard::load(&record, bitmaps.unwrap_or_else(|| bitmaps_of_map(catalogue, id)))
}

fn bitmaps_of_map(catalogue: &dyn Catalogue, id: ShardId) -> ShardBitmaps {
    let mut bitmaps = ShardBitmaps::default();
    // Damage of the map is told when the map is walked.
    let _ = rows::walk(catalogue, keys::map_range(id), &mut |key, value| {
        let Some((_, chunk)) = keys::parse_map(key) else { return };
        let entry = value.ok().map(|value| Entry::parse(id, chunk, value));
        // An entry that is damaged may have had data.
        let has_data = !matches!(entry, Some(Ok(Entry { content: None, .. })));
        shard::mark(&mut bitmaps, chunk, has_data);
    });
    bitmaps
}

/// Carries out what can be read of the journal, and tells why the rest cannot.
fn replay_journal(
    report: &mut Report<'_>,
    device: &dyn Device,
    superblock: &Superblock,
    tables: &Tables,
    machine: &mut Machine<()>,
) {
    let Some(checkpoint) = &tables.checkpoint else {
        return report.note("without a checkpoint record nobody knows where the journal begins: it was not checked");
    };
    let mut batches = 0;
    let result = scan(device, superblock, Start::from(checkpoint), |batch| {
        let verdict = replay(device, superblock, machine, &batch)?;
        batches += 1;
        Ok(verdict)
    });
    report.summary.batches = batches;
    match result {
        Ok(end) if end.tail != Tail::Clean => note_torn(report),
        Ok(_) => {}
        Err(RecoverError::Journal(error)) => {
            let problem = match &error {
                ScanError::Newer { source, .. } => problem_of(Problem::Journal, source),
                ScanError::Corrupt { .. } | ScanError::Io { .. } => Problem::Journal,
            };
            report.found(Finding::new(problem, "the journal", error.to_string()));
        }
        Err(error) => report.found(Finding::new(Problem::Journal, "the journal", error.to_string())),
    }
}

/// All shards that have rows, whatever else is wrong with them: to be walked one by one.
pub(super) fn shards_to_walk(tables: &Tables, machine: Option<&Machine<()>>) -> std::collections::BTreeSet<ShardId> {
    let of_journal = machine.map(Machine::shard_ids).unwrap_or_default();
    tables.records.union(&tables.bitmaps).copied().chain(of_journal).collect()
}

/// The first key of a table behind a shard's rows of the map.
pub(super) fn behind(shard: ShardId) -> Vec<u8> {
    keys::map_range(shard).end
}

/// The map as a whole.
pub(super) fn map_start() -> Vec<u8> {
    Table::Map.range().start
}
