//! Bytes of the journal, all little-endian. Format version 1.
//!
//! ```text
//!    0  slot of even generations   magic "HFJRNL\0\0", version u32, reserved u32, disk uuid, generation u64,
//! 4096  slot of odd generations    reserved u32, crc32c u32 of the bytes before it                    (48 bytes)
//! 8192  batches, each from a multiple of 4096:
//!       header                     magic "HFBATCH\0", version u32, meta_bytes u32, disk uuid, generation u64,
//!                                  number u64, payload_bytes u64, records u32, previous u32, crc u32 (68 bytes)
//!       records, one by one        volume u64, first_block u64, blocks u64, kind u32 (1 write, 2 hole), reserved u32,
//!                                  and for a write one u32 entry for each block
//!       zeros up to a multiple of 4096
//!       payload                    blocks of the writes, in their order
//! ```
//!
//! Two slots, used in turn: a torn write of one leaves the other, whose batches are all still there. A batch's `crc`
//! covers header and records; the payload is covered by the entries, which were checked when it came in, so that
//! nothing is summed twice. `previous` is the `crc` of the batch before, or of the slot.

use bytes::Bytes;
use holdfast_proto::ids::VolumeId;
use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::directory::{DiskUuid, FORMAT_VERSION, seal};
use crate::journal::{Change, Record, entry_of};

/// Where the batches begin.
pub(super) const BATCHES_AT: u64 = 2 * BLOCK_BYTES;

/// Most bytes of header and records, and of payload, that a batch may claim when it is read: far above what the
/// commit thread ever writes, and a bound for the memory of a replay.
const MAX_META_BYTES: u32 = 16 << 20;
const MAX_PAYLOAD_BYTES: u64 = 256 << 20;

const SLOT_MAGIC: [u8; 8] = *b"HFJRNL\0\0";
pub(super) const BATCH_MAGIC: [u8; 8] = *b"HFBATCH\0";

const WRITE: u32 = 1;
const HOLE: u32 = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Slot {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
    disk: [u8; 16],
    generation: U64,
    reserved_2: U32,
    crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BatchHeader {
    magic: [u8; 8],
    version: U32,
    meta_bytes: U32,
    disk: [u8; 16],
    generation: U64,
    number: U64,
    payload_bytes: U64,
    records: U32,
    previous: U32,
    crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RecordHeader {
    volume: U64,
    first_block: U64,
    blocks: U64,
    kind: U32,
    reserved: U32,
}

const HEADER_LEN: usize = size_of::<BatchHeader>();
const CRC_LEN: usize = size_of::<U32>();
const RECORD_LEN: usize = size_of::<RecordHeader>();

/// What a batch is chained to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) generation: u64,
    /// Number of the next batch, from 1 in each generation.
    pub(super) number: u64,
    /// `crc` of the batch before it, or of the slot.
    pub(super) previous: u32,
}

/// Where the slot of a generation is.
pub(super) fn slot_at(generation: u64) -> u64 {
    generation % 2 * BLOCK_BYTES
}

/// A slot, and the link to the first batch of the generation.
pub(super) fn encode_slot(disk: DiskUuid, generation: u64) -> (Vec<u8>, Link) {
    let mut slot = Slot {
        magic: SLOT_MAGIC,
        version: FORMAT_VERSION.into(),
        reserved: 0.into(),
        disk: disk.0,
        generation: generation.into(),
        reserved_2: 0.into(),
        crc: 0.into(),
    };
    let crc = seal(slot.as_bytes());
    slot.crc = crc.into();
    (slot.as_bytes().to_vec(), Link { generation, number: 1, previous: crc })
}

/// The link of a slot if its bytes are whole and belong to this disk.
pub(super) fn decode_slot(bytes: &[u8], disk: DiskUuid) -> Option<Link> {
    let (slot, _) = Slot::read_from_prefix(bytes).ok()?;
    let whole = slot.magic == SLOT_MAGIC
        && slot.version.get() == FORMAT_VERSION
        && slot.disk == disk.0
        && slot.crc.get() == seal(slot.as_bytes());
    whole.then_some(Link { generation: slot.generation.get(), number: 1, previous: slot.crc.get() })
}

/// Length of header and records.
pub(super) fn meta_bytes(records: &[Record]) -> u64 {
    let entries: usize = records.iter().map(|record| entries_of(record).len()).sum();
    (HEADER_LEN + records.len() * RECORD_LEN + entries * CRC_LEN) as u64
}

/// Fills `meta` with everything of a batch before its payload; gives the link to the next batch.
pub(super) fn encode_batch(meta: &mut Vec<u8>, disk: DiskUuid, link: Link, records: &[Record]) -> Link {
    meta.clear();
    meta.resize(HEADER_LEN, 0);
    let mut payload_bytes = 0;
    for record in records {
        let kind = match &record.change {
            Change::Write { .. } => WRITE,
            Change::Hole { .. } => HOLE,
        };
        let header = RecordHeader {
            volume: record.volume.0.into(),
            first_block: record.first_block.into(),
            blocks: record.blocks().into(),
            kind: kind.into(),
            reserved: 0.into(),
        };
        meta.extend_from_slice(header.as_bytes());
        let entries = entries_of(record);
        entries.iter().for_each(|entry| meta.extend_from_slice(&entry.to_le_bytes()));
        payload_bytes += entries.len() as u64 * BLOCK_BYTES;
    }
    let mut header = BatchHeader {
        magic: BATCH_MAGIC,
        version: FORMAT_VERSION.into(),
        meta_bytes: u32::try_from(meta.len()).unwrap_or(u32::MAX).into(),
        disk: disk.0,
        generation: link.generation.into(),
        number: link.number.into(),
        payload_bytes: payload_bytes.into(),
        records: u32::try_from(records.len()).unwrap_or(u32::MAX).into(),
        previous: link.previous.into(),
        crc: 0.into(),
    };
    let (head, body) = meta.split_at_mut(HEADER_LEN);
    let crc = crc32c::crc32c_append(seal(header.as_bytes()), body);
    header.crc = crc.into();
    head.copy_from_slice(header.as_bytes());
    meta.resize(meta.len().next_multiple_of(BLOCK_LEN), 0);
    Link { generation: link.generation, number: link.number + 1, previous: crc }
}

fn entries_of(record: &Record) -> &[u32] {
    match &record.change {
        Change::Write { entries, .. } => entries,
        Change::Hole { .. } => &[],
    }
}

/// What the first block of a batch says of it; nothing of it has been checked but the magic, the disk and the bounds.
pub(super) struct Claim {
    pub(super) link: Link,
    pub(super) meta_len: usize,
    pub(super) payload_bytes: u64,
}

impl Claim {
    pub(super) fn decode(first_block: &[u8], disk: DiskUuid) -> Option<Self> {
        let (header, _) = BatchHeader::read_from_prefix(first_block).ok()?;
        let plausible = header.magic == BATCH_MAGIC
            && header.version.get() == FORMAT_VERSION
            && header.disk == disk.0
            && header.meta_bytes.get() <= MAX_META_BYTES
            && header.payload_bytes.get() <= MAX_PAYLOAD_BYTES;
        plausible.then_some(Self {
            link: Link {
                generation: header.generation.get(),
                number: header.number.get(),
                previous: header.previous.get(),
            },
            meta_len: usize::try_from(header.meta_bytes.get()).ok()?,
            payload_bytes: header.payload_bytes.get(),
        })
    }

    /// Length of the batch in the file.
    pub(super) fn batch_bytes(&self) -> u64 {
        (self.meta_len as u64).next_multiple_of(BLOCK_BYTES) + self.payload_bytes
    }
}

/// Header and records of a batch, whose crc was right.
pub(super) struct Batch {
    /// Without payload yet.
    records: Vec<Record>,
    pub(super) next: Link,
}

impl Batch {
    /// `meta` is what [`Claim::meta_len`] said.
    pub(super) fn decode(meta: &[u8]) -> Option<Self> {
        let (header, mut rest) = BatchHeader::read_from_prefix(meta).ok()?;
        if header.crc.get() != crc32c::crc32c_append(seal(header.as_bytes()), rest) {
            return None;
        }
        let mut records = Vec::new();
        let mut payload_bytes = 0u64;
        for _ in 0..header.records.get() {
            let (record, after) = RecordHeader::read_from_prefix(rest).ok()?;
            let blocks = record.blocks.get();
            record.first_block.get().checked_add(blocks)?;
            let change = match record.kind.get() {
                WRITE => {
                    let len = usize::try_from(blocks).ok()?.checked_mul(CRC_LEN)?;
                    let (entries, after) = after.split_at_checked(len)?;
                    rest = after;
                    payload_bytes = payload_bytes.checked_add(blocks.checked_mul(BLOCK_BYTES)?)?;
                    let entries = entries.as_chunks().0.iter().map(|entry| u32::from_le_bytes(*entry)).collect();
                    Change::Write { entries, payload: Vec::new() }
                }
                HOLE => {
                    rest = after;
                    Change::Hole { blocks }
                }
                _ => return None,
            };
            let volume = VolumeId(record.volume.get());
            records.push(Record { volume, first_block: record.first_block.get(), change });
        }
        let whole = rest.is_empty() && payload_bytes == header.payload_bytes.get();
        let next = Link {
            generation: header.generation.get(),
            number: header.number.get().checked_add(1)?,
            previous: header.crc.get(),
        };
        whole.then_some(Self { records, next })
    }

    /// The records with their blocks, if every block matches its entry.
    pub(super) fn with_payload(self, payload: &Bytes) -> Option<Vec<Record>> {
        let mut records = self.records;
        let mut at = 0;
        for record in &mut records {
            if let Change::Write { entries, payload: parts } = &mut record.change {
                let end = entries.len().checked_mul(BLOCK_LEN)?.checked_add(at)?;
                if end > payload.len() {
                    return None;
                }
                let part = payload.slice(at..end);
                let blocks = part.as_chunks::<BLOCK_LEN>().0;
                let whole =
                    blocks.iter().zip(entries.iter()).all(|(block, entry)| entry_of(crc32c::crc32c(block)) == *entry);
                if !whole {
                    return None;
                }
                parts.push(part);
                at = end;
            }
        }
        Some(records)
    }
}
