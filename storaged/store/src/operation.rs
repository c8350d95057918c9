//! What the engine is asked to do with a shard: whole 4 KiB blocks only, each with its checksum.
//!
//! Everything smaller than a block, and everything larger than a shard, is made of these in `volumes/`.

use bytes::Bytes;

use crate::error::StoreError;
use crate::format::record::OperationRecord;
use crate::ids::{ShardId, Version};

/// One ordered change of a shard: one record of the journal, all or nothing across power loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// What is changed.
    pub shard: ShardId,
    /// Its place in the shard's order. Rises from mutation to mutation; one that was refused leaves a gap.
    pub at: Version,
    /// The version that the changed chunks get, if it is not `at`: a copy keeps the version of what it was copied from.
    pub chunk_version: Option<Version>,
    /// Highest sequence of the shard that is known to be committed once this mutation is durable.
    pub committed: u64,
    /// The operation that it carries out, for the dedupe table.
    pub operation: Option<OperationRecord>,
    /// In any order; no two of them touch the same block.
    pub changes: Vec<Change>,
}

/// A change of consecutive blocks that lie in one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// New content.
    Write {
        /// Number of the first block in the shard.
        first_block: u32,
        /// The blocks, one after the other, cut into buffers anyhow.
        data: Vec<Bytes>,
        /// CRC32C of each block.
        crcs: Vec<u32>,
    },
    /// The blocks read as zeros from now on, and take no space.
    Hole {
        /// Number of the first block in the shard.
        first_block: u32,
        /// How many, at least one.
        blocks: u32,
    },
}

impl Change {
    /// Number of the first block in the shard.
    pub fn first_block(&self) -> u32 {
        match self {
            Self::Write { first_block, .. } | Self::Hole { first_block, .. } => *first_block,
        }
    }

    /// How many blocks it changes.
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Write { crcs, .. } => crcs.len() as u64,
            Self::Hole { blocks, .. } => u64::from(*blocks),
        }
    }
}

/// Content of consecutive blocks of a shard, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlocksRead {
    /// The blocks, one after the other, cut into buffers anyhow. Holes are zeros.
    pub data: Vec<Bytes>,
    /// CRC32C of each block.
    pub crcs: Vec<u32>,
}

/// Called exactly once when a mutation is durable or refused; on any thread, also inside the call that started it.
pub type Applied = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Called exactly once with what was read; on any thread, also inside the call that started it.
pub type ReadDone = Box<dyn FnOnce(Result<BlocksRead, StoreError>) + Send>;
