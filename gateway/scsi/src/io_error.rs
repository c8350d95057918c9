//! One table from what can go wrong in storage to status and sense data.

use thiserror::Error;

use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::status::Response;
use crate::unit::LogicalUnit;

/// Why an [`crate::Io`] failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum IoError {
    /// No copy of this logical block can be read.
    #[error("unrecovered read error at block {lba}")]
    Medium {
        /// First block that is lost.
        lba: u64,
    },
    /// The block could not be written.
    #[error("write error at block {lba}")]
    Write {
        /// First block that was not written.
        lba: u64,
    },
    /// There is no space for what would have to be allocated.
    #[error("no space")]
    NoSpace,
    /// The volume is read-only.
    #[error("write protected")]
    WriteProtected,
    /// The volume cannot be used at present; the host should try again.
    #[error("not ready")]
    NotReady,
    /// The connection to storage was lost and what happens to the command is settled: it never runs.
    #[error("connection to storage lost")]
    TransportLost,
    /// Data-Out arrived damaged and nothing of it was written.
    #[error("data-out damaged")]
    DataOutDamaged,
    /// The range is not inside the volume (it became smaller, or gateway and storage disagree).
    #[error("out of range")]
    OutOfRange,
    /// A comparison failed.
    #[error("miscompare at byte {0}")]
    MiscompareAt(
        /// Offset in the Data-Out of the first byte that differs.
        u64,
    ),
    /// A mistake of this target.
    #[error("internal target failure")]
    Internal,
}

impl IoError {
    /// The sense data.
    pub const fn sense(&self) -> Sense {
        match *self {
            Self::Medium { lba } => {
                Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR).with_information(lba)
            }
            Self::Write { lba } => {
                Sense::new(SenseKey::MediumError, AdditionalSense::WRITE_ERROR).with_information(lba)
            }
            Self::NoSpace => Sense::new(SenseKey::DataProtect, AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT),
            Self::WriteProtected => Sense::WRITE_PROTECTED,
            Self::NotReady => Sense::new(SenseKey::NotReady, AdditionalSense::BECOMING_READY),
            Self::TransportLost => Sense::new(SenseKey::AbortedCommand, AdditionalSense::COMMUNICATION_FAILURE),
            Self::DataOutDamaged => Sense::new(SenseKey::AbortedCommand, AdditionalSense::DATA_PHASE_CRC_ERROR),
            Self::OutOfRange => Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE,
            Self::MiscompareAt(offset) => {
                Sense::new(SenseKey::Miscompare, AdditionalSense::MISCOMPARE_DURING_VERIFY).with_information(offset)
            }
            Self::Internal => Sense::new(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE),
        }
    }

    /// CHECK CONDITION with the sense data, in the format that `unit` wants.
    pub const fn response(&self, unit: &LogicalUnit) -> Response {
        Response::check(self.sense(), unit.sense_format())
    }
}
