//! The first block of the data file: whose disk it is and where its areas are. 4096 bytes, at offset 0 and again at
//! 4096; written at creation and never changed, so that either copy will do.
//!
//! ```text
//!    0  magic           "HOLDFAST"
//!    8  version         u32, 1
//!   12  reserved        u32, zero
//!   16  uuid            16 bytes
//!   32  node_id         u64
//!   40  journal_key     16 bytes
//!   56  journal_offset  u64, bytes
//!   64  journal_len     u64, bytes
//!   72  slots_offset    u64, bytes
//!   80  zeros
//! 4092  crc             u32, crc32c of the 4092 bytes before it
//! ```
//!
//! Magic, version and crc stay where they are in every later version.

use holdfast_proto::units::BLOCK_BYTES;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::codec::{CRC_LEN, Input, check_version};
use crate::format::error::FormatError;
use crate::ids::{CHUNK_BYTES, DiskUuid};

/// Bytes of one copy.
pub const SUPERBLOCK_LEN: usize = 4096;

/// Byte offsets of the two copies in the data file.
pub const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 4096];

/// Where the journal of a new disk begins, in bytes: one chunk for the superblock and what may come beside it.
pub const JOURNAL_OFFSET: u64 = CHUNK_BYTES;

const WHAT: &str = "the superblock";
const MAGIC: [u8; 8] = *b"HOLDFAST";
const VERSION: u32 = 1;

/// Whose disk it is and where its areas are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The disk.
    pub uuid: DiskUuid,
    /// The node that it belongs to.
    pub node_id: u64,
    /// Random; goes into the crc of every batch header, so that no payload can imitate one.
    pub journal_key: [u8; 16],
    /// Byte offset of the journal in the data file, a multiple of 4096 and at least 8192.
    pub journal_offset: u64,
    /// Bytes of the journal, a multiple of 4096 and not zero.
    pub journal_len: u64,
    /// Byte offset of slot 0, a multiple of 4096, not before the end of the journal.
    pub slots_offset: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
    uuid: [u8; 16],
    node_id: U64,
    journal_key: [u8; 16],
    journal_offset: U64,
    journal_len: U64,
    slots_offset: U64,
}

const LAYOUT_LEN: usize = size_of::<Layout>();
const CRC_AT: usize = SUPERBLOCK_LEN - CRC_LEN;
const _: () = assert!(LAYOUT_LEN == 80);

impl Superblock {
    /// The layout of a new disk: the journal behind the superblock's 64 KiB, the slots behind it from a multiple of 64
    /// KiB. `None` if `journal_len` is zero, not a multiple of 4096, or beyond any disk.
    pub fn new(uuid: DiskUuid, node_id: u64, journal_key: [u8; 16], journal_len: u64) -> Option<Self> {
        let slots_offset = JOURNAL_OFFSET.checked_add(journal_len)?.checked_next_multiple_of(CHUNK_BYTES)?;
        let superblock = Self { uuid, node_id, journal_key, journal_offset: JOURNAL_OFFSET, journal_len, slots_offset };
        superblock.check().is_ok().then_some(superblock)
    }

    /// The bytes of either copy.
    pub fn encode(&self) -> Vec<u8> {
        let layout = Layout {
            magic: MAGIC,
            version: VERSION.into(),
            reserved: 0.into(),
            uuid: self.uuid.0,
            node_id: self.node_id.into(),
            journal_key: self.journal_key,
            journal_offset: self.journal_offset.into(),
            journal_len: self.journal_len.into(),
            slots_offset: self.slots_offset.into(),
        };
        let mut bytes = Vec::with_capacity(SUPERBLOCK_LEN);
        bytes.extend_from_slice(layout.as_bytes());
        bytes.resize(CRC_AT, 0);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// One copy; bytes beyond 4096 are not looked at.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let input = Input::new(WHAT, bytes);
        let (body, rest) = bytes.split_at_checked(CRC_AT).ok_or_else(|| input.corrupt("it ends too early"))?;
        let crc = rest.first_chunk::<CRC_LEN>().ok_or_else(|| input.corrupt("it ends too early"))?;
        let mut body = Input::new(WHAT, body);
        let layout: Layout = body.take()?;
        body.demand(layout.magic == MAGIC, "it does not begin with HOLDFAST")?;
        body.demand(crc32c::crc32c(&bytes[..CRC_AT]) == u32::from_le_bytes(*crc), "its checksum does not match")?;
        check_version(WHAT, layout.version.get(), VERSION)?;
        let superblock = Self {
            uuid: DiskUuid(layout.uuid),
            node_id: layout.node_id.get(),
            journal_key: layout.journal_key,
            journal_offset: layout.journal_offset.get(),
            journal_len: layout.journal_len.get(),
            slots_offset: layout.slots_offset.get(),
        };
        superblock.check()?;
        Ok(superblock)
    }

    /// The first copy that is good. A copy of a newer version counts before an older one beside it: a later release
    /// may have been stopped between the two.
    pub fn choose(first: &[u8], second: &[u8]) -> Result<Self, FormatError> {
        match (Self::parse(first), Self::parse(second)) {
            (Err(newer @ FormatError::Newer { .. }), _) | (_, Err(newer @ FormatError::Newer { .. })) => Err(newer),
            (Ok(superblock), _) | (Err(_), Ok(superblock)) => Ok(superblock),
            (Err(error), Err(_)) => Err(error),
        }
    }

    fn check(&self) -> Result<(), FormatError> {
        let aligned =
            [self.journal_offset, self.journal_len, self.slots_offset].iter().all(|at| at.is_multiple_of(BLOCK_BYTES));
        let behind = self.journal_offset >= 2 * BLOCK_BYTES && self.journal_len > 0;
        let end = self.journal_offset.checked_add(self.journal_len);
        let ordered = end.is_some_and(|end| end <= self.slots_offset) && i64::try_from(self.slots_offset).is_ok();
        Input::new(WHAT, &[]).demand(aligned && behind && ordered, "its areas overlap or are not aligned")
    }
}
