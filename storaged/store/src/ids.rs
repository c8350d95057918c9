//! What the engine counts in: shards of a volume, chunks of a shard, slots of the disk, versions of a chunk.

use std::fmt;

use holdfast_proto::ids::{ShardIndex, VolumeId};
use holdfast_proto::units::{BLOCK_BYTES, SHARD_BYTES};

/// The unit of allocation and resync: 64 KiB, aligned in the shard.
pub const CHUNK_BYTES: u64 = 64 << 10;

/// [`CHUNK_BYTES`] as the length of a slice.
pub const CHUNK_LEN: usize = 64 << 10;

/// Blocks of a chunk.
pub const BLOCKS_PER_CHUNK: usize = 16;

/// Chunks of a shard.
pub const CHUNKS_PER_SHARD: u16 = 16_384;

/// Blocks of a shard.
pub const BLOCKS_PER_SHARD: u32 = 262_144;

/// Blocks of a chunk, as it goes into block numbers.
pub(crate) const CHUNK_BLOCKS: u32 = 16;

const _: () = {
    assert!(CHUNKS_PER_SHARD as u64 * CHUNK_BYTES == SHARD_BYTES);
    assert!(BLOCKS_PER_SHARD as u64 * BLOCK_BYTES == SHARD_BYTES);
    assert!(CHUNK_BLOCKS as usize == BLOCKS_PER_CHUNK && BLOCKS_PER_CHUNK as u64 * BLOCK_BYTES == CHUNK_BYTES);
};

/// One shard of a volume: 1 GiB of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId {
    /// Whose.
    pub volume: VolumeId,
    /// Which of it.
    pub index: ShardIndex,
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.volume, self.index)
    }
}

/// Number of a chunk in its shard, below [`CHUNKS_PER_SHARD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkIndex(u16);

impl ChunkIndex {
    /// `None` at and beyond [`CHUNKS_PER_SHARD`].
    pub fn new(index: u16) -> Option<Self> {
        (index < CHUNKS_PER_SHARD).then_some(Self(index))
    }

    /// The chunk that holds a block of the shard; `None` beyond the shard.
    pub fn of_block(block: u32) -> Option<Self> {
        u16::try_from(block / CHUNK_BLOCKS).ok().and_then(Self::new)
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// Number of its first block in the shard.
    pub fn first_block(self) -> u32 {
        u32::from(self.0) * CHUNK_BLOCKS
    }
}

/// Number of a place for one chunk on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// When something was last changed: the reign of the primary that ordered the change, and its place in that order.
/// The default, zero, is "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Rises whenever a primary activates.
    pub term: u64,
    /// Rises by one with each ordered operation of the shard.
    pub sequence: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.term, self.sequence)
    }
}

/// Name of one disk: made at random when the store is created, and part of every structure on it, so that what belongs
/// to another disk is never taken for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskUuid(pub [u8; 16]);

impl fmt::Display for DiskUuid {
    /// As RFC 9562 writes one: `01234567-89ab-cdef-0123-456789abcdef`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_uuid_when_printed_then_the_usual_text() {
        let uuid = DiskUuid([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(uuid.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
    }

    #[test]
    fn chunk_index_when_beyond_the_shard_then_none() {
        assert_eq!(ChunkIndex::new(CHUNKS_PER_SHARD), None);
        assert_eq!(ChunkIndex::of_block(BLOCKS_PER_SHARD), None);
        assert_eq!(ChunkIndex::of_block(BLOCKS_PER_SHARD - 1), ChunkIndex::new(CHUNKS_PER_SHARD - 1));
        assert_eq!(ChunkIndex::of_block(u32::MAX), None);
    }
}
