//! The catalogue but for the map: every row of every other table is read and parsed.

use std::collections::BTreeSet;
use std::ops::Range;

use holdfast_proto::ids::{ShardIndex, VolumeId};
use holdfast_proto::units::SHARD_BYTES;

use super::finding::{Finding, Problem};
use super::report::Report;
use super::rows::{self, walk_with};
use super::slots::SlotSet;
use crate::catalogue::{Catalogue, CatalogueError};
use crate::directory::Identity;
use crate::format::checkpoint::{CheckpointRecord, IdentityRecord};
use crate::format::keys::{self, Table};
use crate::format::shard::{ShardBitmaps, ShardRecord};
use crate::format::{AllocationPage, FormatError, SLOTS_PER_PAGE};
use crate::ids::ShardId;
use crate::store::VolumeRecord;
use crate::volumes::record;

/// What the tables say.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) checkpoint: Option<CheckpointRecord>,
    /// Shards with a record, be it good or not.
    pub(super) records: BTreeSet<ShardId>,
    /// There may be records that cannot be read.
    pub(super) records_untold: bool,
    /// Shards with bitmaps.
    pub(super) bitmaps: BTreeSet<ShardId>,
    /// Volumes whose record is damaged.
    pub(super) bad_volumes: BTreeSet<VolumeId>,
    /// Slots that are marked as used.
    pub(super) marked: SlotSet,
    /// All allocation pages are good.
    pub(super) pages_are_whole: bool,
}

/// Reads them. `total_slots` is what the data file has room for.
pub(super) fn read(report: &mut Report<'_>, catalogue: &dyn Catalogue, total_slots: u32) -> Tables {
    let mut tables = Tables { pages_are_whole: true, ..Tables::default() };
    unknown_rows(report, catalogue);
    volumes(report, catalogue, &mut tables);
    checkpoint(report, catalogue, &mut tables);
    shards(report, catalogue, &mut tables);
    pages(report, catalogue, &mut tables, total_slots);
    tables
}

/// Compares whose catalogue it is with whose directory and data file it is.
pub(super) fn check_identity(report: &mut Report<'_>, catalogue: &dyn Catalogue, expected: &[(&str, Identity)]) {
    let place = "the catalogue's identity";
    let record = match catalogue.get(&keys::identity()) {
        Ok(Some(value)) => match IdentityRecord::parse(&value) {
            Ok(record) => record,
            Err(error) => return report.unparsed(Problem::Row, place, &error),
        },
        Ok(None) => return report.found(Finding::new(Problem::Row, place, "it is not there")),
        Err(error) => return report.found(Finding::new(Problem::Row, place, error.to_string())),
    };
    for (what, Identity { uuid, node_id }) in expected {
        if (record.uuid, record.node_id) != (*uuid, *node_id) {
            let detail = format!(
                "it is of disk {} of node {}, {what} is of disk {uuid} of node {node_id}",
                record.uuid, record.node_id
            );
            report.found(Finding::new(Problem::OtherDisk, place, detail));
        }
    }
}

/// Whatever lies outside the tables.
fn unknown_rows(report: &mut Report<'_>, catalogue: &dyn Catalogue) {
    let tables = [
        Table::Allocation,
        Table::Bitmaps,
        Table::Checkpoint,
        Table::Identity,
        Table::Map,
        Table::Shard,
        Table::Volume,
    ];
    let mut ranges: Vec<Range<Vec<u8>>> = tables.iter().map(|table| table.range()).collect();
    ranges.sort_by(|one, other| one.start.cmp(&other.start));
    let mut from = Vec::new();
    let end = Range { start: vec![u8::MAX; 64], end: Vec::new() };
    for range in ranges.into_iter().chain([end]) {
        let gap = walk_with(catalogue, from..range.start, std::iter::empty(), &mut |key, _| unknown_row(report, key));
        if let Some(error) = gap {
            damaged(report, "rows of no known table", &error);
        }
        from = range.end;
    }
}

pub(super) fn unknown_row(report: &mut Report<'_>, key: &[u8]) {
    let text: String = key.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
    report.found(Finding::new(Problem::UnknownRow, format!("the catalogue's row {text}"), "its key means nothing"));
}

fn damaged(report: &mut Report<'_>, what: &str, error: &CatalogueError) {
    report.found(Finding::new(Problem::Catalogue, format!("the catalogue, {what}"), error.to_string()));
}

fn volumes(report: &mut Report<'_>, catalogue: &dyn Catalogue, tables: &mut Tables) {
    let counter_key = record::counter_key();
    let place = "the counter of volumes";
    let next_id = match catalogue.get(&counter_key).map(|value| value.map(|value| record::parse_counter(&value))) {
        Ok(Some(Ok(next_id))) => Some(next_id),
        Ok(None) => None,
        Ok(Some(Err(error))) => {
            report.unparsed(Problem::Row, place, &error);
            Some(u64::MAX)
        }
        Err(error) => {
            report.found(Finding::new(Problem::Row, place, error.to_string()));
            Some(u64::MAX)
        }
    };
    let known = next_id.filter(|next_id| *next_id < u64::MAX).unwrap_or_default();
    let candidates = (1..known).map(|id| keys::volume(VolumeId(id)));
    let mut records: Vec<VolumeRecord> = Vec::new();
    let gap = walk_with(catalogue, Table::Volume.range(), candidates, &mut |key, value| {
        let id = keys::parse_volume(key);
        let place = id.map(|id| format!("the record of volume number {id}"));
        match (place, value) {
            _ if key == counter_key => {}
            (None, _) => unknown_row(report, key),
            (Some(place), Err(error)) => {
                tables.bad_volumes.extend(id);
                report.found(Finding::new(Problem::Row, place, error.to_string()));
            }
            (Some(place), Ok(value)) => match record::parse(key, value) {
                Ok(record) => records.push(record),
                Err(error) => {
                    tables.bad_volumes.extend(id);
                    report.unparsed(Problem::Row, place, &error);
                }
            },
        }
    });
    if let Some(error) = gap {
        damaged(report, "records of volumes", &error);
    }
    let (mut names, mut naas) = (BTreeSet::new(), BTreeSet::new());
    for record in &records {
        let mut contradiction = |detail: &str| {
            report.found(Finding::new(Problem::Volumes, format!("the record of volume {}", record.name), detail));
        };
        if !names.insert(&record.name) {
            contradiction("another volume has the same name");
        }
        if !naas.insert(record.naa) {
            contradiction("another volume has the same identifier");
        }
        if next_id.is_none_or(|next_id| record.id.0 >= next_id) {
            contradiction("its number was not given yet, as the counter of volumes says");
        }
    }
    report.summary.volumes = records.len() as u64;
    report.volumes = records.into_iter().map(|record| (record.id, record)).collect();
}

fn checkpoint(report: &mut Report<'_>, catalogue: &dyn Catalogue, tables: &mut Tables) {
    let place = "the checkpoint record";
    match catalogue.get(&keys::checkpoint()) {
        Ok(Some(value)) => match CheckpointRecord::parse(&value) {
            Ok(record) => tables.checkpoint = Some(record),
            Err(error) => report.unparsed(Problem::Row, place, &error),
        },
        Ok(None) => report.found(Finding::new(Problem::Row, place, "it is not there")),
        Err(error) => report.found(Finding::new(Problem::Row, place, error.to_string())),
    }
    for (table, only) in [(Table::Checkpoint, keys::checkpoint()), (Table::Identity, keys::identity())] {
        let gap = walk_with(catalogue, table.range(), std::iter::empty(), &mut |key, _| {
            if key != only {
                unknown_row(report, key);
            }
        });
        if let Some(error) = gap {
            damaged(report, "checkpoint and identity", &error);
        }
    }
}

/// Parses a row whose key names a shard.
type ParseShard<'a> = (fn(&[u8]) -> Option<ShardId>, &'a dyn Fn(ShardId, &[u8]) -> Result<(), FormatError>);

fn shards(report: &mut Report<'_>, catalogue: &dyn Catalogue, tables: &mut Tables) {
    let record: ParseShard<'_> = (keys::parse_shard, &|shard, value| ShardRecord::parse(shard, value).map(drop));
    let bitmaps: ParseShard<'_> = (keys::parse_bitmaps, &|shard, value| ShardBitmaps::parse(shard, value).map(drop));
    (tables.records, tables.records_untold) =
        shard_table(report, catalogue, (Table::Shard, keys::shard), "the record", record);
    (tables.bitmaps, _) = shard_table(report, catalogue, (Table::Bitmaps, keys::bitmaps), "the bitmaps", bitmaps);
}

fn shard_table(
    report: &mut Report<'_>,
    catalogue: &dyn Catalogue,
    (table, key): (Table, fn(ShardId) -> Vec<u8>),
    what: &str,
    (parse_key, parse): ParseShard<'_>,
) -> (BTreeSet<ShardId>, bool) {
    let sizes: Vec<(VolumeId, u64)> =
        report.volumes.values().map(|record| (record.id, record.size_bytes.div_ceil(SHARD_BYTES))).collect();
    let candidates = sizes.iter().flat_map(|(volume, shards)| {
        (0..u32::try_from(*shards).unwrap_or(u32::MAX))
            .map(|index| key(ShardId { volume: *volume, index: ShardIndex(index) }))
    });
    let mut found = BTreeSet::new();
    // Beyond damage nobody knows which of the rows are there.
    let mut untold = 0u64;
    let gap = walk_with(catalogue, table.range(), candidates, &mut |key, value| match (parse_key(key), value) {
        (None, _) => unknown_row(report, key),
        (Some(_), Err(_)) => untold += 1,
        (Some(shard), Ok(value)) => {
            found.insert(shard);
            if let Err(error) = parse(shard, value) {
                report.unparsed(Problem::Row, format!("{what} of {}", name_of(report, shard)), &error);
            }
        }
    });
    let is_untold = untold > 0 || gap.is_some();
    match gap {
        Some(error) => damaged(report, &format!("{what} of up to {untold} shards"), &error),
        None if untold > 0 => {
            let detail = format!("{untold} rows cannot be read singly");
            report.found(Finding::new(Problem::Catalogue, format!("the catalogue, {what} of shards"), detail));
        }
        None => {}
    }
    (found, is_untold)
}

/// A shard in words.
pub(super) fn name_of(report: &Report<'_>, shard: ShardId) -> String {
    match report.volumes.get(&shard.volume) {
        Some(record) => format!("shard {} of volume {}", shard.index, record.name),
        None => format!("shard {} of volume number {}", shard.index, shard.volume),
    }
}

fn pages(report: &mut Report<'_>, catalogue: &dyn Catalogue, tables: &mut Tables, total_slots: u32) {
    let candidates = (0..total_slots.div_ceil(SLOTS_PER_PAGE)).map(keys::allocation);
    let mut untold = 0u64;
    let gap = rows::walk_with(catalogue, Table::Allocation.range(), candidates, &mut |key, value| {
        let Some(page) = keys::parse_allocation(key) else { return unknown_row(report, key) };
        let Ok(value) = value else {
            untold += 1;
            return;
        };
        let place = format!("allocation page {page}");
        match AllocationPage::parse(page, value) {
            Ok(page) => {
                let beyond = tables.marked.insert_page(&page, total_slots);
                if beyond > 0 {
                    let detail = format!("it marks {beyond} slots beyond the end of the data file");
                    report.found(Finding::new(Problem::DataFile, place, detail));
                }
            }
            Err(error) => {
                tables.pages_are_whole = false;
                report.unparsed(Problem::Row, place, &error);
            }
        }
    });
    tables.pages_are_whole &= untold == 0 && gap.is_none();
    if let Some(error) = gap {
        damaged(report, &format!("up to {untold} allocation pages"), &error);
    } else if untold > 0 {
        let detail = format!("{untold} rows cannot be read singly");
        report.found(Finding::new(Problem::Catalogue, "the catalogue, allocation pages", detail));
    }
}
