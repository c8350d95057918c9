//! The two rows that there is one of: which disk the catalogue belongs to, and what it holds the state of.
//!
//! ```text
//! checkpoint  version u8 (1), reserved 3 bytes, number u64, uuid 16 bytes, position u64, next_batch u64,
//!             previous_crc u32, crc u32                                                             (52 bytes)
//! identity    version u8 (1), reserved 3 bytes, uuid 16 bytes, node_id u64, crc u32                (32 bytes)
//! ```
//!
//! The uuid in the checkpoint record ties catalogue and data file together a second time: a catalogue copied beside
//! another data file is found out even when somebody wrote its identity row by hand.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::codec::{put, seal, unseal};
use crate::format::error::FormatError;
use crate::format::keys;
use crate::ids::DiskUuid;

const CHECKPOINT: &str = "the checkpoint record";
const IDENTITY: &str = "the catalogue's identity";
const VERSION: u8 = 1;

/// What the catalogue holds the state of: everything up to a border between two batches of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// Counts checkpoints, from 1.
    pub number: u64,
    /// The disk.
    pub uuid: DiskUuid,
    /// Absolute position in the journal where the next batch begins, bytes, a multiple of 4096.
    pub position: u64,
    /// Number of the next batch, from 1.
    pub next_batch: u64,
    /// Crc of the last batch's header; 0 if there was none.
    pub previous_crc: u32,
}

/// Which disk and node the catalogue belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityRecord {
    /// The disk.
    pub uuid: DiskUuid,
    /// The node.
    pub node_id: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct CheckpointLayout {
    reserved: [u8; 3],
    number: U64,
    uuid: [u8; 16],
    position: U64,
    next_batch: U64,
    previous_crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct IdentityLayout {
    reserved: [u8; 3],
    uuid: [u8; 16],
    node_id: U64,
}

const _: () = assert!(size_of::<CheckpointLayout>() == 47 && size_of::<IdentityLayout>() == 27);

impl CheckpointRecord {
    /// The value for [`keys::checkpoint`].
    pub fn encode(&self) -> Vec<u8> {
        let layout = CheckpointLayout {
            reserved: [0; 3],
            number: self.number.into(),
            uuid: self.uuid.0,
            position: self.position.into(),
            next_batch: self.next_batch.into(),
            previous_crc: self.previous_crc.into(),
        };
        let mut value = vec![VERSION];
        put(&mut value, &layout);
        seal(&keys::checkpoint(), &mut value);
        value
    }

    /// The value of [`keys::checkpoint`].
    pub fn parse(value: &[u8]) -> Result<Self, FormatError> {
        let mut input = unseal(CHECKPOINT, VERSION, &keys::checkpoint(), value)?;
        let layout: CheckpointLayout = input.take()?;
        let record = Self {
            number: layout.number.get(),
            uuid: DiskUuid(layout.uuid),
            position: layout.position.get(),
            next_batch: layout.next_batch.get(),
            previous_crc: layout.previous_crc.get(),
        };
        input.demand(record.position.is_multiple_of(4096), "its position is not a multiple of 4096")?;
        input.demand(record.next_batch > 0, "batches are counted from 1")?;
        input.end()?;
        Ok(record)
    }
}

impl IdentityRecord {
    /// The value for [`keys::identity`].
    pub fn encode(&self) -> Vec<u8> {
        let layout = IdentityLayout { reserved: [0; 3], uuid: self.uuid.0, node_id: self.node_id.into() };
        let mut value = vec![VERSION];
        put(&mut value, &layout);
        seal(&keys::identity(), &mut value);
        value
    }

    /// The value of [`keys::identity`].
    pub fn parse(value: &[u8]) -> Result<Self, FormatError> {
        let mut input = unseal(IDENTITY, VERSION, &keys::identity(), value)?;
        let layout: IdentityLayout = input.take()?;
        input.end()?;
        Ok(Self { uuid: DiskUuid(layout.uuid), node_id: layout.node_id.get() })
    }
}
