//! Shows what a store that nobody serves holds, structure by structure. Changes nothing.
//!
//! What is damaged is shown as [`Item::Damage`], and the rest goes on; whether everything is as it should be is for
//! [`check`](super::check()) to say.

use std::path::Path;

use holdfast_proto::ids::VolumeId;
use serde::Serialize;

use super::finding::Finding;
use super::place;
use super::report::{Observer, Report};
use super::rows;
use crate::catalogue::Catalogue;
use crate::device::Device;
use crate::error::OpenError;
use crate::format::checkpoint::{CheckpointRecord, IdentityRecord};
use crate::format::keys::{self, Table};
use crate::format::shard::{ShardBitmaps, ShardRecord};
use crate::format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS};
use crate::format::{AllocationPage, Entry, Part, Record, Superblock};
use crate::ids::ShardId;
use crate::journal::{ScanError, Start, Tail, Verdict, scan};
use crate::recovery::slots_of;
use crate::store::Kind;
use crate::volumes::record;

/// What to show beside the summary.
#[derive(Clone, Debug, Default)]
pub struct DumpOptions {
    /// Each batch of the journal with its records.
    pub batches: bool,
    /// The map of a volume.
    pub map: Option<MapOf>,
}

/// Whose map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapOf {
    /// Name or number of the volume.
    pub volume: String,
    /// One shard of it; without it all.
    pub shard: Option<u32>,
}

/// One thing that the store holds. Numbers are those of the format; `bytes` and offsets are in bytes.
#[allow(missing_docs, reason = "the names are those of the structures in `format`, which explains them")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Item {
    Identity {
        of: &'static str,
        disk: String,
        node: u64,
    },
    Superblock {
        copy: u8,
        disk: String,
        node: u64,
        journal_offset: u64,
        journal_bytes: u64,
        slots_offset: u64,
    },
    Checkpoint {
        number: u64,
        position: u64,
        next_batch: u64,
        previous_crc: u32,
    },
    Journal {
        batches: u64,
        next_batch: u64,
        position: u64,
        torn_tail: bool,
    },
    Batch {
        number: u64,
        position: u64,
        bytes: u64,
        payload_blocks: u32,
        proven: bool,
        records: Vec<RecordItem>,
    },
    Volume {
        id: u64,
        name: String,
        naa: String,
        size_bytes: u64,
        block_size: u32,
        content: &'static str,
        read_only: bool,
    },
    Shard {
        volume: u64,
        index: u32,
        epoch: u64,
        term: u64,
        last: String,
        committed: u64,
        suspect: bool,
        operations: u64,
        chunks: u32,
    },
    Allocation {
        slots: u64,
        used: u64,
        pages: u64,
    },
    Entry {
        volume: u64,
        shard: u32,
        chunk: u16,
        version: String,
        stale: bool,
        slot: Option<u32>,
        mapped: u16,
        lost: u16,
        crcs: Vec<u32>,
    },
    Damage {
        place: String,
        detail: String,
    },
}

/// One record of a batch.
#[allow(missing_docs, reason = "as of `Item`")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RecordItem {
    Mutation {
        volume: u64,
        shard: u32,
        at: String,
        chunk_version: String,
        committed: u64,
        operation: Option<String>,
        parts: Vec<PartItem>,
    },
    State {
        volume: u64,
        shard: u32,
        epoch: u64,
        term: u64,
        committed: u64,
        suspect: bool,
    },
    Stale {
        volume: u64,
        shard: u32,
        chunk: u16,
        chunks: u16,
        stale: bool,
    },
    Drop {
        volume: u64,
        shard: u32,
    },
}

/// One part of a mutation.
#[allow(missing_docs, reason = "as of `Item`")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PartItem {
    Blocks { chunk: u16, first: u8, blocks: usize, fresh_slot: Option<u32> },
    Chunk { chunk: u16, slot: u32 },
    Hole { first_block: u32, blocks: u32 },
}

/// Shows what findings there are as items.
struct Damages<'a>(&'a mut dyn FnMut(Item));

impl Observer for Damages<'_> {
    fn found(&mut self, finding: &Finding) {
        self.0(Item::Damage { place: finding.place.clone(), detail: finding.detail.clone() });
    }

    fn note(&mut self, _: &str) {}

    fn progress(&mut self, _: u64, _: u64) {}
}

/// Shows the store in `dir`. An error means that there is nothing to show: no store, one in use, or one of a later release.
pub fn dump(dir: &Path, options: &DumpOptions, show: &mut dyn FnMut(Item)) -> Result<(), OpenError> {
    let parts = {
        let mut damages = Damages(show);
        place::open(dir, &mut Report::new(&mut damages))?
    };
    if let Some(identity) = parts.identity {
        show(Item::Identity { of: "directory", disk: identity.uuid.to_string(), node: identity.node_id });
    }
    let device = parts.device.as_deref();
    let superblock = device.and_then(|device| superblocks(device, show));
    let Some(catalogue) = parts.catalogue.as_deref() else { return Ok(()) };
    identity(catalogue, show);
    let checkpoint = checkpoint(catalogue, show);
    if let (Some((device, superblock)), Some(checkpoint)) = (device.zip(superblock.as_ref()), checkpoint) {
        journal(device, superblock, &checkpoint, options.batches, show);
    }
    let volumes = volumes(catalogue, show);
    shards(catalogue, show);
    allocation(catalogue, device.zip(superblock.as_ref()).map(|(device, block)| slots_of(device, block)), show);
    if let Some(of) = &options.map {
        map(catalogue, of, &volumes, show);
    }
    Ok(())
}

fn damage(show: &mut dyn FnMut(Item), place: impl Into<String>, detail: impl ToString) {
    show(Item::Damage { place: place.into(), detail: detail.to_string() });
}

fn superblocks(device: &dyn Device, show: &mut dyn FnMut(Item)) -> Option<Superblock> {
    let mut good = None;
    for (copy, offset) in (1..).zip(SUPERBLOCK_OFFSETS) {
        let place = format!("copy {copy} of the superblock");
        match device.read(offset, SUPERBLOCK_LEN).map(|bytes| Superblock::parse(&bytes)) {
            Ok(Ok(block)) => {
                show(Item::Superblock {
                    copy,
                    disk: block.uuid.to_string(),
                    node: block.node_id,
                    journal_offset: block.journal_offset,
                    journal_bytes: block.journal_len,
                    slots_offset: block.slots_offset,
                });
                good = good.or(Some(block));
            }
            Ok(Err(error)) => damage(show, place, error),
            Err(error) => damage(show, place, error),
        }
    }
    good
}

/// A row that there is one of.
fn row<T, E: ToString>(
    catalogue: &dyn Catalogue,
    key: &[u8],
    place: &str,
    parse: impl Fn(&[u8]) -> Result<T, E>,
    show: &mut dyn FnMut(Item),
) -> Option<T> {
    match catalogue.get(key).map(|value| value.map(|value| parse(&value))) {
        Ok(Some(Ok(record))) => return Some(record),
        Ok(Some(Err(error))) => damage(show, place, error.to_string()),
        Ok(None) => damage(show, place, "it is not there"),
        Err(error) => damage(show, place, error),
    }
    None
}

fn identity(catalogue: &dyn Catalogue, show: &mut dyn FnMut(Item)) {
    if let Some(record) = row(catalogue, &keys::identity(), "the catalogue's identity", IdentityRecord::parse, show) {
        show(Item::Identity { of: "catalogue", disk: record.uuid.to_string(), node: record.node_id });
    }
}

fn checkpoint(catalogue: &dyn Catalogue, show: &mut dyn FnMut(Item)) -> Option<CheckpointRecord> {
    let record = row(catalogue, &keys::checkpoint(), "the checkpoint record", CheckpointRecord::parse, show)?;
    let CheckpointRecord { number, position, next_batch, previous_crc, .. } = record;
    show(Item::Checkpoint { number, position, next_batch, previous_crc });
    Some(record)
}

fn journal(
    device: &dyn Device,
    superblock: &Superblock,
    checkpoint: &CheckpointRecord,
    batches: bool,
    show: &mut dyn FnMut(Item),
) {
    let scanned = scan(device, superblock, Start::from(checkpoint), |batch| {
        if batches {
            let header = &batch.header;
            show(Item::Batch {
                number: header.number,
                position: header.position,
                bytes: header.total_len(),
                payload_blocks: header.payload_blocks,
                proven: batch.proven,
                records: batch.records.iter().map(record_item).collect(),
            });
        }
        Ok::<_, ScanError>(Verdict::Accept)
    });
    match scanned {
        Ok(end) => show(Item::Journal {
            batches: end.batches,
            next_batch: end.next.next_batch,
            position: end.next.position,
            torn_tail: end.tail != Tail::Clean,
        }),
        Err(error) => damage(show, "the journal", error),
    }
}

fn record_item(record: &Record) -> RecordItem {
    let of = |shard: &ShardId| (shard.volume.0, shard.index.0);
    match record {
        Record::Mutation(mutation) => {
            let (volume, shard) = of(&mutation.shard);
            let operation = mutation.operation.map(|operation| {
                let id = operation.id;
                format!("{}/{}/{}/{}", id.incarnation.0, id.lane, id.sequence, id.part)
            });
            RecordItem::Mutation {
                volume,
                shard,
                at: mutation.at.to_string(),
                chunk_version: mutation.chunk_version.to_string(),
                committed: mutation.committed,
                operation,
                parts: mutation.parts.iter().map(part_item).collect(),
            }
        }
        Record::State(state) => {
            let (volume, shard) = of(&state.shard);
            let (epoch, term, committed, suspect) = (state.epoch, state.term, state.committed, state.suspect);
            RecordItem::State { volume, shard, epoch, term, committed, suspect }
        }
        Record::Stale { shard, first, count, stale } => {
            let (volume, shard) = of(shard);
            RecordItem::Stale { volume, shard, chunk: first.get(), chunks: *count, stale: *stale }
        }
        Record::Drop { shard } => {
            let (volume, shard) = of(shard);
            RecordItem::Drop { volume, shard }
        }
    }
}

fn part_item(part: &Part) -> PartItem {
    match part {
        Part::Blocks { chunk, first, fresh, crcs } => PartItem::Blocks {
            chunk: chunk.get(),
            first: *first,
            blocks: crcs.len(),
            fresh_slot: fresh.map(|slot| slot.0),
        },
        Part::Chunk { chunk, slot, .. } => PartItem::Chunk { chunk: chunk.get(), slot: slot.0 },
        Part::Hole { first_block, blocks } => PartItem::Hole { first_block: *first_block, blocks: *blocks },
    }
}

/// Visits a table and shows its damage.
fn table(
    catalogue: &dyn Catalogue,
    range: std::ops::Range<Vec<u8>>,
    place: &str,
    show: &mut dyn FnMut(Item),
    mut visit: impl FnMut(&[u8], &[u8], &mut dyn FnMut(Item)),
) {
    let walked = rows::walk(catalogue, range, &mut |key, value| match value {
        Ok(value) => visit(key, value, show),
        Err(error) => damage(show, place, error),
    });
    if let Err(gap) = walked {
        damage(show, place, gap.error);
    }
}

fn volumes(catalogue: &dyn Catalogue, show: &mut dyn FnMut(Item)) -> Vec<(VolumeId, String)> {
    let mut names = Vec::new();
    table(catalogue, Table::Volume.range(), "a volume record", show, |key, value, show| {
        if key == record::counter_key() {
            return;
        }
        match record::parse(key, value) {
            Ok(volume) => {
                names.push((volume.id, volume.name.to_string()));
                show(Item::Volume {
                    id: volume.id.0,
                    name: volume.name.to_string(),
                    naa: format!("{:016x}", volume.naa),
                    size_bytes: volume.size_bytes,
                    block_size: volume.block_size.bytes(),
                    content: match volume.kind {
                        Kind::Disk => "disk",
                        Kind::Null => "null",
                    },
                    read_only: volume.read_only,
                });
            }
            Err(error) => damage(show, "a volume record", error),
        }
    });
    names
}

fn shards(catalogue: &dyn Catalogue, show: &mut dyn FnMut(Item)) {
    table(catalogue, Table::Shard.range(), "a shard's record", show, |key, value, show| {
        let Some(id) = keys::parse_shard(key) else { return damage(show, "a shard's record", "its key means nothing") };
        let record = match ShardRecord::parse(id, value) {
            Ok(record) => record,
            Err(error) => return damage(show, format!("the record of shard {id}"), error),
        };
        let bitmaps =
            match catalogue.get(&keys::bitmaps(id)).map(|value| value.map(|value| ShardBitmaps::parse(id, &value))) {
                Ok(None) => ShardBitmaps::default(),
                Ok(Some(Ok(bitmaps))) => bitmaps,
                Ok(Some(Err(error))) => return damage(show, format!("the bitmaps of shard {id}"), error),
                Err(error) => return damage(show, format!("the bitmaps of shard {id}"), error),
            };
        show(Item::Shard {
            volume: id.volume.0,
            index: id.index.0,
            epoch: record.epoch,
            term: record.term,
            last: record.last.to_string(),
            committed: record.committed,
            suspect: record.suspect,
            operations: record.dedupe.iter().map(|row| row.done.len() as u64).sum(),
            chunks: bitmaps.slots.iter().map(|word| word.count_ones()).sum(),
        });
    });
}

fn allocation(catalogue: &dyn Catalogue, slots: Option<u32>, show: &mut dyn FnMut(Item)) {
    let (mut used, mut pages) = (0, 0);
    table(catalogue, Table::Allocation.range(), "an allocation page", show, |key, value, show| {
        let Some(number) = keys::parse_allocation(key) else {
            return damage(show, "an allocation page", "its key means nothing");
        };
        match AllocationPage::parse(number, value) {
            Ok(page) => {
                pages += 1;
                used += page.words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            }
            Err(error) => damage(show, format!("allocation page {number}"), error),
        }
    });
    show(Item::Allocation { slots: slots.map(u64::from).unwrap_or_default(), used, pages });
}

fn map(catalogue: &dyn Catalogue, of: &MapOf, volumes: &[(VolumeId, String)], show: &mut dyn FnMut(Item)) {
    let by_name = volumes.iter().find(|(_, name)| *name == of.volume).map(|(id, _)| *id);
    let Some(volume) = by_name.or_else(|| of.volume.parse().ok().map(VolumeId)) else {
        return damage(show, format!("volume {}", of.volume), "there is no good record of such a volume");
    };
    let first = |index: u32| keys::map_range(ShardId { volume, index: holdfast_proto::ids::ShardIndex(index) });
    let range = match of.shard {
        Some(index) => first(index),
        None => first(0).start..first(u32::MAX).end,
    };
    table(catalogue, range, "a map entry", show, |key, value, show| {
        let Some((id, chunk)) = keys::parse_map(key) else {
            return damage(show, "a map entry", "its key means nothing");
        };
        match Entry::parse(id, chunk, value) {
            Ok(entry) => show(Item::Entry {
                volume: id.volume.0,
                shard: id.index.0,
                chunk: chunk.get(),
                version: entry.version.to_string(),
                stale: entry.stale,
                slot: entry.content.map(|content| content.slot.0),
                mapped: entry.content.map(|content| content.mapped).unwrap_or_default(),
                lost: entry.content.map(|content| content.lost).unwrap_or_default(),
                crcs: entry.content.map(|content| content.crcs.to_vec()).unwrap_or_default(),
            }),
            Err(error) => damage(show, format!("map entry of chunk {} of shard {id}", chunk.get()), error),
        }
    });
}
