//! One chunk in the map: its version, its place, the checksums of its blocks. A chunk that was never written has no
//! entry at all; a hole has one without a slot, so that its version is kept.
//!
//! ```text
//!  0  version     u8, 1
//!  1  flags       u8: bit 0 stale, bit 1 content
//!  2  mapped      u16, bit per block; 0 without content
//!  4  lost        u16, bit per block: mapped, and nobody knows its content; 0 without content
//!  6  reserved    u16
//!  8  snapshot    u32, 0: room for copy-on-write of chunks
//! 12  references  u32: 1 with content, 0 without
//! 16  term        u64
//! 24  sequence    u64
//! 32  slot        u32, only with content
//! 36  crcs        u32 for each mapped block, in order, only with content
//!  .  crc         u32 of key and value
//! ```
//!
//! The fixed part comes first and has a multiple of 4 bytes; a hole takes 36 bytes, a full chunk 104. Blocks that are
//! not mapped read as zeros and take no room, so a chunk with one block is 44 bytes.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::codec::{CRC_LEN, put, seal, unseal};
use crate::format::error::FormatError;
use crate::format::keys;
use crate::ids::{BLOCKS_PER_CHUNK, ChunkIndex, ShardId, Slot, Version};

const WHAT: &str = "a map entry";
const VERSION: u8 = 1;
const STALE: u8 = 1;
const CONTENT: u8 = 2;

/// One chunk in the map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of its last change.
    pub version: Version,
    /// Differs from the primary's and is not to be read until it was copied.
    pub stale: bool,
    /// 0.
    pub snapshot: u32,
    /// How many maps name the slot: at least 1 with content, 0 without.
    pub references: u32,
    /// `None`: a hole, reads as zeros.
    pub content: Option<Content>,
}

/// A chunk's place and checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Where it is.
    pub slot: Slot,
    /// Bit n: block n is there; 0 bits read as zeros.
    pub mapped: u16,
    /// Bit n: nobody knows the content of block n and reading it is an error, until it is written again. Only of mapped
    /// blocks.
    pub lost: u16,
    /// crc32c of each block. Those of blocks that are not mapped are not stored and read back as 0.
    pub crcs: [u32; BLOCKS_PER_CHUNK],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Layout {
    flags: u8,
    mapped: U16,
    lost: U16,
    reserved: U16,
    snapshot: U32,
    references: U32,
    term: U64,
    sequence: U64,
}

const _: () = assert!(size_of::<Layout>() == 31);

impl Entry {
    /// A chunk whose entry was damaged, in a new slot: nothing of it is known.
    pub fn lost(slot: Slot) -> Self {
        let content = Content { slot, mapped: u16::MAX, lost: u16::MAX, crcs: [0; BLOCKS_PER_CHUNK] };
        Self { version: Version::default(), stale: false, snapshot: 0, references: 1, content: Some(content) }
    }

    /// The value for [`keys::map`].
    pub fn encode(&self, shard: ShardId, chunk: ChunkIndex) -> Vec<u8> {
        assert_eq!(self.references > 0, self.content.is_some(), "a slot and nothing else is referenced");
        let mapped = self.content.map_or(0, |content| content.mapped);
        assert!(self.content.is_none_or(|content| content.lost & !mapped == 0), "only a mapped block can be lost");
        let layout = Layout {
            flags: if self.stale { STALE } else { 0 } | if self.content.is_some() { CONTENT } else { 0 },
            mapped: mapped.into(),
            lost: self.content.map_or(0, |content| content.lost).into(),
            reserved: 0.into(),
            snapshot: self.snapshot.into(),
            references: self.references.into(),
            term: self.version.term.into(),
            sequence: self.version.sequence.into(),
        };
        let mut value = Vec::with_capacity(1 + size_of::<Layout>() + 4 + BLOCKS_PER_CHUNK * 4 + CRC_LEN);
        value.push(VERSION);
        put(&mut value, &layout);
        if let Some(content) = &self.content {
            value.extend_from_slice(&content.slot.0.to_le_bytes());
            for (block, crc) in content.crcs.iter().enumerate() {
                if mapped >> block & 1 == 1 {
                    value.extend_from_slice(&crc.to_le_bytes());
                }
            }
        }
        seal(&keys::map(shard, chunk), &mut value);
        value
    }

    /// The value of [`keys::map`].
    pub fn parse(shard: ShardId, chunk: ChunkIndex, value: &[u8]) -> Result<Self, FormatError> {
        let mut input = unseal(WHAT, VERSION, &keys::map(shard, chunk), value)?;
        let layout: Layout = input.take()?;
        let (mapped, lost, references) = (layout.mapped.get(), layout.lost.get(), layout.references.get());
        input.demand(lost & !mapped == 0, "a block is lost that is not mapped")?;
        input.demand(layout.flags & !(STALE | CONTENT) == 0, "a flag is not known")?;
        let content = if layout.flags & CONTENT == 0 {
            input.demand(mapped == 0 && references == 0, "a hole has blocks or references")?;
            None
        } else {
            input.demand(references > 0, "it has a slot and no reference")?;
            let slot = Slot(input.take::<U32>()?.get());
            let mut crcs = [0; BLOCKS_PER_CHUNK];
            for (block, crc) in crcs.iter_mut().enumerate() {
                if mapped >> block & 1 == 1 {
                    *crc = input.take::<U32>()?.get();
                }
            }
            Some(Content { slot, mapped, lost, crcs })
        };
        input.end()?;
        Ok(Self {
            version: Version { term: layout.term.get(), sequence: layout.sequence.get() },
            stale: layout.flags & STALE != 0,
            snapshot: layout.snapshot.get(),
            references,
            content,
        })
    }
}
