//! What an initiator is shown: logical units, their limits, and the target that maps them.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::io::BlockRange;
use crate::sense::{Sense, SenseFormat};

/// Length of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockSize {
    /// 512 bytes on 4 KiB physical blocks (512e).
    Bytes512,
    /// 4,096 bytes (4Kn).
    Bytes4096,
}

/// A block size that no logical unit can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("block size {0} is not supported: 512 and 4096 are")]
pub struct UnknownBlockSize(pub u32);

impl BlockSize {
    /// Bytes in a logical block.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Bytes512 => 512,
            Self::Bytes4096 => 4096,
        }
    }

    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT (SBC-3, 5.16): physical blocks have 4 KiB.
    pub const fn physical_exponent(self) -> u8 {
        match self {
            Self::Bytes512 => 3,
            Self::Bytes4096 => 0,
        }
    }

    /// Whole logical blocks in `bytes`.
    pub(crate) const fn blocks_in(self, bytes: u32) -> u32 {
        bytes / self.bytes()
    }
}

impl TryFrom<u32> for BlockSize {
    type Error = UnknownBlockSize;

    fn try_from(bytes: u32) -> Result<Self, UnknownBlockSize> {
        match bytes {
            512 => Ok(Self::Bytes512),
            4096 => Ok(Self::Bytes4096),
            other => Err(UnknownBlockSize(other)),
        }
    }
}

/// What one command may ask for: the block limits VPD page (SBC-3). Enforced, not just reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest READ, WRITE and the like, in bytes.
    pub max_transfer_bytes: u32,
    /// Transfer length that is recommended, in bytes.
    pub optimal_transfer_bytes: u32,
    /// Granularity of transfer lengths that is recommended, in bytes.
    pub optimal_granularity_bytes: u32,
    /// Longest WRITE SAME, in bytes.
    pub max_write_same_bytes: u32,
    /// Logical blocks that one UNMAP command may name in all its descriptors together.
    pub max_unmap_blocks: u32,
    /// Descriptors in one UNMAP command.
    pub max_unmap_descriptors: u16,
    /// What UNMAP can really free, in bytes.
    pub unmap_granularity_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_transfer_bytes: 8 << 20,
            optimal_transfer_bytes: 1 << 20,
            optimal_granularity_bytes: 4 << 10,
            max_write_same_bytes: 16 << 20,
            max_unmap_blocks: 1 << 20,
            max_unmap_descriptors: 256,
            unmap_granularity_bytes: 4 << 10,
        }
    }
}

/// A 64-bit NAA identifier of the locally assigned kind (SPC-4, 7.8.6: NAA 3h in the first nibble), made of 60
/// bits that the caller has drawn. Made once per volume, never used again.
pub const fn locally_assigned_naa(bits: u64) -> u64 {
    (bits & 0x0fff_ffff_ffff_ffff) | (0x3 << 60)
}

/// A logical unit as every initiator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalUnit {
    /// 64-bit NAA identifier of the volume; see [`locally_assigned_naa`].
    pub naa: u64,
    /// Unit serial number: printable ASCII, of which the first 252 characters are shown.
    pub serial: String,
    /// Name of the volume, for logs and metrics.
    pub name: String,
    /// Length of a logical block.
    pub block_size: BlockSize,
    /// Number of logical blocks; at least 1.
    pub blocks: u64,
    /// Writes are refused with DATA PROTECT.
    pub read_only: bool,
    /// Thin provisioned: UNMAP frees space (LBPME=1), and unmapped blocks read as zeros (LBPRZ=1).
    pub thin: bool,
    /// Sense data in descriptor format (D_SENSE of the control mode page).
    pub descriptor_sense: bool,
    /// What one command may ask for.
    pub limits: Limits,
}

impl LogicalUnit {
    /// Capacity in bytes.
    pub const fn capacity_bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size.bytes() as u64)
    }

    /// Encoding of this unit's sense data.
    pub const fn sense_format(&self) -> SenseFormat {
        if self.descriptor_sense { SenseFormat::Descriptor } else { SenseFormat::Fixed }
    }

    /// The range, if it ends at the last logical block or before. An empty range may begin just behind the last block.
    pub(crate) fn range(&self, lba: u64, blocks: u64) -> Result<BlockRange, Sense> {
        match lba.checked_add(blocks) {
            Some(end) if end <= self.blocks => Ok(BlockRange { lba, blocks }),
            _ => Err(Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE),
        }
    }

    /// Blocks from `lba` to the end; `lba` must be a block of the unit.
    pub(crate) fn range_to_end(&self, lba: u64) -> Result<BlockRange, Sense> {
        match self.blocks.checked_sub(lba) {
            Some(blocks @ 1..) => Ok(BlockRange { lba, blocks }),
            _ => Err(Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE),
        }
    }

    /// Longest READ or WRITE in logical blocks.
    pub(crate) const fn max_transfer_blocks(&self) -> u32 {
        self.block_size.blocks_in(self.limits.max_transfer_bytes)
    }

    /// Longest WRITE SAME in logical blocks: never more than the unit has.
    pub(crate) fn max_write_same_blocks(&self) -> u64 {
        u64::from(self.block_size.blocks_in(self.limits.max_write_same_bytes)).min(self.blocks)
    }
}

/// A target port as one initiator sees it: its names, and the logical units that are mapped for this initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// iSCSI name of the target device.
    pub name: String,
    /// Relative target port identifier of the gateway's port, 1 or more.
    pub relative_port: u16,
    /// Target port group, which is the gateway and also its iSCSI portal group tag.
    pub port_group: u16,
    /// Mapped logical units by LUN, 0 to [`crate::MAX_LUN`].
    pub luns: BTreeMap<u16, Arc<LogicalUnit>>,
}
