//! Sense data that the transport itself reports (RFC 7143, 11.4.7.2).

use bytes::Bytes;

/// SAM status CHECK CONDITION.
pub(super) const CHECK_CONDITION: u8 = 0x02;

/// SAM status TASK ABORTED.
pub(super) const TASK_ABORTED: u8 = 0x40;

/// Why a task failed before its command could be carried out. The sense key is ABORTED COMMAND for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A data segment failed its digest: PROTOCOL SERVICE CRC ERROR.
    DataDigest,
    /// Unsolicited data where none is allowed: WRITE ERROR - UNEXPECTED UNSOLICITED DATA.
    UnexpectedUnsolicitedData,
    /// A sequence ended before all of its data came: WRITE ERROR - NOT ENOUGH UNSOLICITED DATA.
    IncorrectAmountOfData,
    /// Data beyond the end of its sequence: TOO MUCH WRITE DATA.
    TooMuchData,
    /// A gap in DataSN or in the offsets: DATA OFFSET ERROR.
    Offset,
    /// A Target Transfer Tag that is not outstanding: INVALID TARGET PORT TRANSFER TAG RECEIVED.
    TransferTag,
}

impl Failure {
    /// Fixed format sense data (SPC-4, 4.5.3).
    pub(super) fn sense(self) -> Bytes {
        let (asc, ascq) = self.additional_sense();
        let mut sense = [0; 18];
        sense[0] = 0x70;
        sense[2] = 0x0b;
        sense[7] = 10;
        sense[12] = asc;
        sense[13] = ascq;
        Bytes::copy_from_slice(&sense)
    }

    fn additional_sense(self) -> (u8, u8) {
        match self {
            Self::DataDigest => (0x47, 0x05),
            Self::UnexpectedUnsolicitedData => (0x0c, 0x0c),
            Self::IncorrectAmountOfData => (0x0c, 0x0d),
            Self::TooMuchData => (0x4b, 0x02),
            Self::Offset => (0x4b, 0x05),
            Self::TransferTag => (0x4b, 0x01),
        }
    }
}
