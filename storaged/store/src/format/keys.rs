//! Keys of the catalogue. The first byte is the table; the numbers behind it are big-endian, so that the order of the
//! bytes is the order of the numbers and a shard's or a volume's rows are one range.
//!
//! | table | rest of the key | value |
//! |---|---|---|
//! | `a` | page u32 | [`AllocationPage`](crate::format::allocation::AllocationPage) |
//! | `b` | volume u64, shard u32 | [`ShardBitmaps`](crate::format::shard::ShardBitmaps) |
//! | `c` | | [`CheckpointRecord`](crate::format::checkpoint::CheckpointRecord) |
//! | `i` | | [`IdentityRecord`](crate::format::checkpoint::IdentityRecord) |
//! | `m` | volume u64, shard u32, chunk u16 | [`Entry`](crate::format::entry::Entry) |
//! | `s` | volume u64, shard u32 | [`ShardRecord`](crate::format::shard::ShardRecord) |
//! | `v` | volume u64 | a volume's record, of the module `volumes` |

use std::ops::Range;

use holdfast_proto::ids::{ShardIndex, VolumeId};

use crate::ids::{ChunkIndex, ShardId};

/// First byte of the keys of one kind of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Table {
    /// Pages of the allocation bitmap.
    Allocation = b'a',
    /// Bitmaps of a shard.
    Bitmaps = b'b',
    /// The one checkpoint record.
    Checkpoint = b'c',
    /// The one identity record.
    Identity = b'i',
    /// Map entries.
    Map = b'm',
    /// Shard records.
    Shard = b's',
    /// Volume records.
    Volume = b'v',
}

impl Table {
    /// All keys of the table: from the first to the one behind the last.
    pub fn range(self) -> Range<Vec<u8>> {
        let first = self as u8;
        vec![first]..vec![first + 1]
    }
}

/// Key of an allocation page.
pub fn allocation(page: u32) -> Vec<u8> {
    key(Table::Allocation, &[&page.to_be_bytes()])
}

/// Key of a shard's bitmaps.
pub fn bitmaps(shard: ShardId) -> Vec<u8> {
    key(Table::Bitmaps, &[&shard.volume.0.to_be_bytes(), &shard.index.0.to_be_bytes()])
}

/// Key of the checkpoint record.
pub fn checkpoint() -> Vec<u8> {
    key(Table::Checkpoint, &[])
}

/// Key of the identity record.
pub fn identity() -> Vec<u8> {
    key(Table::Identity, &[])
}

/// Key of a map entry.
pub fn map(shard: ShardId, chunk: ChunkIndex) -> Vec<u8> {
    key(Table::Map, &[&shard.volume.0.to_be_bytes(), &shard.index.0.to_be_bytes(), &chunk.get().to_be_bytes()])
}

/// All map entries of a shard.
pub fn map_range(shard: ShardId) -> Range<Vec<u8>> {
    let first = key(Table::Map, &[&shard.volume.0.to_be_bytes(), &shard.index.0.to_be_bytes(), &[0; 2]]);
    // Behind the last chunk, as no chunk has this number.
    let end = key(Table::Map, &[&shard.volume.0.to_be_bytes(), &shard.index.0.to_be_bytes(), &[0xff; 2]]);
    first..end
}

/// Key of a shard's record.
pub fn shard(shard: ShardId) -> Vec<u8> {
    key(Table::Shard, &[&shard.volume.0.to_be_bytes(), &shard.index.0.to_be_bytes()])
}

/// Key of a volume's record.
pub fn volume(volume: VolumeId) -> Vec<u8> {
    key(Table::Volume, &[&volume.0.to_be_bytes()])
}

/// The page of an allocation key.
pub fn parse_allocation(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(row(Table::Allocation, key)?.try_into().ok()?))
}

/// The shard and chunk of a map key.
pub fn parse_map(key: &[u8]) -> Option<(ShardId, ChunkIndex)> {
    let (shard, chunk) = row(Table::Map, key)?.split_last_chunk::<2>()?;
    Some((shard_of(shard)?, ChunkIndex::new(u16::from_be_bytes(*chunk))?))
}

/// The shard of the key of a shard's record.
pub fn parse_shard(key: &[u8]) -> Option<ShardId> {
    shard_of(row(Table::Shard, key)?)
}

/// The shard of the key of a shard's bitmaps.
pub fn parse_bitmaps(key: &[u8]) -> Option<ShardId> {
    shard_of(row(Table::Bitmaps, key)?)
}

/// The volume of the key of a volume's record.
pub fn parse_volume(key: &[u8]) -> Option<VolumeId> {
    Some(VolumeId(u64::from_be_bytes(row(Table::Volume, key)?.try_into().ok()?)))
}

fn key(table: Table, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.push(table as u8);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

fn row(table: Table, key: &[u8]) -> Option<&[u8]> {
    key.split_first().filter(|(first, _)| **first == table as u8).map(|(_, row)| row)
}

fn shard_of(row: &[u8]) -> Option<ShardId> {
    let (volume, index) = row.split_first_chunk::<8>()?;
    let index = u32::from_be_bytes(index.try_into().ok()?);
    Some(ShardId { volume: VolumeId(u64::from_be_bytes(*volume)), index: ShardIndex(index) })
}
