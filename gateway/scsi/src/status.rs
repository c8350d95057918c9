//! How a command ends: the SAM status code, sense data and Data-In.

use bytes::Bytes;

use crate::sense::{Sense, SenseFormat};

/// Status of a command (SAM-5, 5.3.1). The number is the byte that goes over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the variants carry the names of SAM-5")]
pub enum Status {
    Good = 0x00,
    CheckCondition = 0x02,
    ConditionMet = 0x04,
    Busy = 0x08,
    ReservationConflict = 0x18,
    TaskSetFull = 0x28,
    AcaActive = 0x30,
    TaskAborted = 0x40,
}

impl Status {
    /// The status byte.
    pub const fn byte(self) -> u8 {
        self as u8
    }
}

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// SAM status.
    pub status: Status,
    /// Sense data; present exactly when the status is CHECK CONDITION.
    pub sense: Option<Sense>,
    /// How the logical unit wants its sense data encoded (D_SENSE of the control mode page).
    pub sense_format: SenseFormat,
    /// Data for the initiator, already cut to the CDB's allocation length.
    pub data_in: Bytes,
}

impl Response {
    /// GOOD without data.
    pub const fn good() -> Self {
        Self { status: Status::Good, sense: None, sense_format: SenseFormat::Fixed, data_in: Bytes::new() }
    }

    /// GOOD with data.
    pub const fn good_with(data_in: Bytes) -> Self {
        Self { status: Status::Good, sense: None, sense_format: SenseFormat::Fixed, data_in }
    }

    /// GOOD with the part of `data` that fits into the allocation length (SPC-4, 4.2.5.6).
    pub(crate) fn allocated(mut data: Vec<u8>, allocation_length: u32) -> Self {
        data.truncate(usize::try_from(allocation_length).unwrap_or(usize::MAX));
        Self::good_with(data.into())
    }

    /// CHECK CONDITION with sense data.
    pub const fn check(sense: Sense, sense_format: SenseFormat) -> Self {
        Self { status: Status::CheckCondition, sense: Some(sense), sense_format, data_in: Bytes::new() }
    }

    /// A status other than GOOD and CHECK CONDITION, such as BUSY or TASK SET FULL.
    pub const fn only(status: Status) -> Self {
        Self { status, sense: None, sense_format: SenseFormat::Fixed, data_in: Bytes::new() }
    }

    /// The sense data as bytes, without the length field that iSCSI puts before it; empty when there is none.
    pub fn sense_bytes(&self) -> Bytes {
        self.sense.as_ref().map_or_else(Bytes::new, |sense| sense.to_bytes(self.sense_format))
    }
}
