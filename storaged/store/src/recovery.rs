//! Making an engine's disk, and finding its state again after it was left in any way.
//!
//! The catalogue's last checkpoint, then the journal from the checkpoint's position. What was found is made durable before anything
//! is answered from it, and the place behind it is overwritten, so that the remains of a batch that was dropped never come back.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

use bytes::Bytes;
use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};
use thiserror::Error;

use crate::catalogue::{Catalogue, CatalogueError, Changes};
use crate::device::{Buffer, DEVICE_ALIGN, Device, DeviceWrite};
use crate::format::checkpoint::{CheckpointRecord, IdentityRecord};
use crate::format::keys::{self, Table};
use crate::format::record::{Part, Record};
use crate::format::shard::{ShardBitmaps, ShardRecord};
use crate::format::{AllocationPage, FormatError, Superblock};
use crate::ids::{CHUNK_BYTES, CHUNK_LEN, DiskUuid, Slot};
use crate::journal::{ScanError, Scanned, Start, Tail, Verdict, scan};
use crate::machine::{ApplyError, Bounds, ChunkId, JournalEnd, Machine};
use crate::mutants::{Mutant, broken};
use crate::shard::Shard;

/// Why the state could not be found.
#[derive(Debug, Error)]
pub(crate) enum RecoverError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] ScanError),
    /// The journal and the catalogue contradict each other.
    #[error("journal batch {batch} cannot be carried out: {source}")]
    Apply { batch: u64, source: ApplyError },
    /// The catalogue cannot be read or written.
    #[error("the catalogue: {0}")]
    Catalogue(#[from] CatalogueError),
    /// A structure of it is damaged, or newer.
    #[error("the catalogue: {0}")]
    Format(#[from] FormatError),
    /// The superblock is damaged, both copies, or newer.
    #[error(transparent)]
    Superblock(FormatError),
    /// A slot is used twice.
    #[error("the catalogue's allocation pages name slot {} beyond the disk's end, or twice", .0.0)]
    Allocation(Slot),
    /// The two parts belong to different disks.
    #[error("the data file is of disk {data}, the catalogue of disk {catalogue}")]
    OtherDisk { data: DiskUuid, catalogue: DiskUuid },
    /// The catalogue has no checkpoint.
    #[error("the catalogue has no checkpoint record")]
    NoCheckpoint,
    /// The device.
    #[error("cannot {action} the data file: {source}")]
    Io { action: &'static str, source: io::Error },
}

fn io_error(action: &'static str) -> impl FnOnce(io::Error) -> RecoverError {
    move |source| RecoverError::Io { action, source }
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Recovered<T> {
    pub(crate) machine: Machine<T>,
    /// Batches that were replayed.
    pub(crate) batches: u64,
    /// A batch that was never durable was dropped.
    pub(crate) torn: bool,
}

/// Makes an empty disk: room for the journal and some slots, the superblock, and a first checkpoint.
pub(crate) fn create(
    device: &dyn Device,
    catalogue: &dyn Catalogue,
    superblock: &Superblock,
    slots: u32,
) -> Result<(), RecoverError> {
    device.grow(superblock.slots_offset + u64::from(slots) * CHUNK_BYTES).map_err(io_error("take space for"))?;
    if !device.traits().instant {
        write_once(device, superblock)?;
    }
    let encoded = Bytes::from(superblock.encode());
    let copies = [DeviceWrite::new(0, encoded.clone()), DeviceWrite::new(DEVICE_ALIGN, encoded)];
    device.write(&copies).map_err(io_error("write"))?;
    device.sync().map_err(io_error("sync"))?;
    let start = Start::FIRST;
    let record = CheckpointRecord {
        number: 1,
        uuid: superblock.uuid,
        position: start.position,
        next_batch: start.next_batch,
        previous_crc: start.previous_crc,
    };
    let identity = IdentityRecord { uuid: superblock.uuid, node_id: superblock.node_id };
    let puts = vec![(keys::identity(), identity.encode()), (keys::checkpoint(), record.encode())];
    Ok(catalogue.commit(&Changes { puts, ..Changes::default() })?)
}

/// Writes the journal's place once, so that a batch never has to change where the file's bytes are.
fn write_once(device: &dyn Device, superblock: &Superblock) -> Result<(), RecoverError> {
    const STEP: u64 = 4 << 20;
    let zeros = Buffer::zeroed(device.traits().memory_align, 4 << 20).freeze();
    let end = superblock.journal_offset + superblock.journal_len;
    let mut at = superblock.journal_offset;
    while at < end {
        let len = STEP.min(end - at);
        let piece = zeros.slice(..usize::try_from(len).unwrap_or(usize::MAX).min(zeros.len()));
        device.write(&[DeviceWrite::new(at, piece)]).map_err(io_error("write"))?;
        at += len;
    }
    Ok(())
}

/// The superblock: the first good one of its two copies.
pub(crate) fn superblock(device: &dyn Device) -> Result<Superblock, RecoverError> {
    let both = device.read(0, 2 * BLOCK_LEN).map_err(io_error("read"))?;
    let (first, second) = both.split_at_checked(BLOCK_LEN).unwrap_or_default();
    Superblock::choose(first, second).map_err(RecoverError::Superblock)
}

/// Slots that a device has room for.
pub(crate) fn slots_of(device: &dyn Device, superblock: &Superblock) -> u32 {
    let bytes = device.len_bytes().saturating_sub(superblock.slots_offset);
    u32::try_from(bytes / CHUNK_BYTES).unwrap_or(u32::MAX)
}

/// The state as it was left, without changing a byte.
pub(crate) fn read<T>(
    device: &dyn Device,
    catalogue: &dyn Catalogue,
    superblock: &Superblock,
    bounds: Bounds,
) -> Result<Recovered<T>, RecoverError> {
    let checkpoint = catalogue.get(&keys::checkpoint())?.ok_or(RecoverError::NoCheckpoint)?;
    let checkpoint = CheckpointRecord::parse(&checkpoint)?;
    if checkpoint.uuid != superblock.uuid {
        return Err(RecoverError::OtherDisk { data: superblock.uuid, catalogue: checkpoint.uuid });
    }
    let start = Start::from(&checkpoint);
    let slots = slots_of(device, superblock);
    let mut machine = Machine::new(superblock, slots, bounds, end_at(start), checkpoint.number);
    load(catalogue, &mut machine)?;
    let end = scan(device, superblock, start, |batch| replay(device, superblock, &mut machine, &batch))?;
    Ok(Recovered { machine, batches: end.batches, torn: end.tail != Tail::Clean })
}

/// The state as it was left, made durable and ready to go on.
pub(crate) fn recover<T>(
    device: &dyn Device,
    catalogue: &dyn Catalogue,
    superblock: &Superblock,
    bounds: Bounds,
) -> Result<Recovered<T>, RecoverError> {
    let mut recovered = read(device, catalogue, superblock, bounds)?;
    // After a mere kill the last batch may have been read from the page cache. What proves it must not be on the disk before it is.
    device.sync().map_err(io_error("sync"))?;
    let machine = &mut recovered.machine;
    // A journal without room for one block has no place for the remains of a batch either.
    if machine.has_room_for_seal() {
        let (writes, payload) = machine.seal().writes(device.traits().memory_align);
        device.write_durably(&writes).map_err(io_error("write"))?;
        machine.applied(&payload);
    }
    Ok(recovered)
}

fn end_at(start: Start) -> JournalEnd {
    JournalEnd { position: start.position, number: start.next_batch, previous_crc: start.previous_crc }
}

/// Shards and allocation as of the checkpoint. The map stays where it is.
fn load<T>(catalogue: &dyn Catalogue, machine: &mut Machine<T>) -> Result<(), RecoverError> {
    let mut records = Vec::new();
    each(catalogue, Table::Shard, &mut |key, value| {
        let Some(shard) = keys::parse_shard(key) else { return Ok(()) };
        records.push((shard, ShardRecord::parse(shard, value)?));
        Ok(())
    })?;
    for (shard, record) in records {
        let bitmaps = match catalogue.get(&keys::bitmaps(shard))? {
            Some(value) => ShardBitmaps::parse(shard, &value)?,
            None => ShardBitmaps::default(),
        };
        machine.load_shard(shard, Shard::load(&record, bitmaps));
    }
    each(catalogue, Table::Allocation, &mut |key, value| {
        let Some(page) = keys::parse_allocation(key) else { return Ok(()) };
        let page = AllocationPage::parse(page, value)?;
        machine.load_allocation(&page).map_err(|contradiction| RecoverError::Allocation(contradiction.0))
    })
}

/// Is shown keys and values.
type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), RecoverError>;

/// Visits a table of the catalogue.
pub(crate) fn each(catalogue: &dyn Catalogue, table: Table, visit: Visit<'_>) -> Result<(), RecoverError> {
    let range = table.range();
    let mut result = Ok(());
    catalogue.range(&range.start, &range.end, &mut |key, value| match visit(key, value) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            result = Err(error);
            ControlFlow::Break(())
        }
    })?;
    result
}

/// Carries a batch out, if it is whole. For `journal::scan`.
pub(crate) fn replay<T>(
    device: &dyn Device,
    superblock: &Superblock,
    machine: &mut Machine<T>,
    batch: &Scanned,
) -> Result<Verdict, RecoverError> {
    let verify = !batch.proven && !broken(Mutant::SkipSlotCheck);
    if verify && !slots_are_whole(device, superblock, &batch.records)? {
        return Ok(Verdict::Torn);
    }
    let end = end_at(Start::after(&batch.header));
    machine
        .replay(&batch.records, &batch.payload, end)
        .map_err(|source| RecoverError::Apply { batch: batch.header.number, source })?;
    Ok(Verdict::Accept)
}

/// Whether the chunks that a batch put into slots are there. Only the last batch can lack some.
///
/// A block that the same batch has journalled later may hold anything: a checkpoint that was cut may have been writing it, and replay
/// covers it.
fn slots_are_whole(device: &dyn Device, superblock: &Superblock, records: &[Record]) -> Result<bool, RecoverError> {
    let mutations = records.iter().filter_map(|record| match record {
        Record::Mutation(mutation) => Some(mutation),
        Record::State(_) | Record::Stale { .. } | Record::Drop { .. } => None,
    });
    let parts = mutations.flat_map(|mutation| mutation.parts.iter().map(|part| (mutation.shard, part)));
    let mut journalled: BTreeMap<ChunkId, u16> = BTreeMap::new();
    for (shard, part) in parts.collect::<Vec<_>>().into_iter().rev() {
        let (chunk, slot, crcs) = match part {
            Part::Chunk { chunk, slot, crcs } => (*chunk, *slot, crcs),
            Part::Blocks { chunk, first, crcs, .. } if !broken(Mutant::VerifyJournalledBlocks) => {
                let blocks = journalled.entry((shard, *chunk)).or_default();
                (*first..).zip(crcs).for_each(|(block, _)| *blocks |= 1 << (block % 16));
                continue;
            }
            Part::Blocks { .. } | Part::Hole { .. } => continue,
        };
        let covered = journalled.remove(&(shard, chunk)).unwrap_or_default();
        let offset = superblock.slots_offset + u64::from(slot.0) * CHUNK_BYTES;
        if offset + CHUNK_BYTES > device.len_bytes() {
            return Ok(false);
        }
        let bytes = device.read(offset, CHUNK_LEN).map_err(io_error("read"))?;
        for ((number, block), crc) in (0..).zip(bytes.chunks(BLOCK_LEN)).zip(crcs) {
            if covered >> number & 1 == 0 && crc32c::crc32c(block) != *crc {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

const _: () = assert!(BLOCK_BYTES == DEVICE_ALIGN);
