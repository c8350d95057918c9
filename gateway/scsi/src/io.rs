//! What is left of a command for the medium to do.

use std::sync::Arc;

use crate::unit::LogicalUnit;

/// A range of logical blocks that lies inside its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRange {
    /// First logical block.
    pub lba: u64,
    /// Number of logical blocks.
    pub blocks: u64,
}

impl BlockRange {
    /// Offset of the first byte in the volume.
    pub fn offset_bytes(&self, unit: &LogicalUnit) -> u64 {
        self.lba.saturating_mul(u64::from(unit.block_size.bytes()))
    }

    /// Length in bytes.
    pub fn len_bytes(&self, unit: &LogicalUnit) -> u64 {
        self.blocks.saturating_mul(u64::from(unit.block_size.bytes()))
    }

    /// First block behind the range.
    pub(crate) const fn end(&self) -> u64 {
        self.lba.saturating_add(self.blocks)
    }
}

/// An operation on the medium. Ranges are never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read the range; its bytes are the Data-In of the command.
    Read(BlockRange),
    /// Write the Data-Out to the range.
    Write(BlockRange),
    /// Write one block again and again over the range.
    WriteSame {
        /// Where to.
        range: BlockRange,
        /// The range may be unmapped instead, but only if the block is all zeros: unmapped blocks read as zeros, and
        /// the host reads what it wrote (SBC-3, WRITE SAME (16): with LBPRZ=1 other data is written).
        unmap: bool,
        /// The block comes as Data-Out; otherwise (NDOB) it is all zeros.
        data_out: bool,
    },
    /// Unmap the ranges, which are in the order of the parameter list; neighbours are already joined.
    Unmap(Vec<BlockRange>),
    /// Make the range durable.
    Flush(BlockRange),
}

/// A command that has passed every check that needs no medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Io {
    /// The unit.
    pub unit: Arc<LogicalUnit>,
    /// Its LUN on this nexus.
    pub lun: u16,
    /// What to do.
    pub operation: Operation,
    /// Bytes of Data-Out that the CDB asks of the initiator (before any comparison with what the initiator has
    /// announced: that is the transport's business).
    pub data_out_bytes: u64,
}

impl Io {
    /// Bytes of Data-In that the operation makes.
    pub fn data_in_bytes(&self) -> u64 {
        match &self.operation {
            Operation::Read(range) => range.len_bytes(&self.unit),
            Operation::Write(_) | Operation::WriteSame { .. } | Operation::Unmap(_) | Operation::Flush(_) => 0,
        }
    }
}
