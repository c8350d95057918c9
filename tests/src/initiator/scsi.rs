//! SCSI commands as an initiator sends them (SPC-4, SBC-3), by bytes.

use std::sync::Arc;

/// Status codes (SAM-5, 5.3.1).
#[allow(missing_docs, reason = "the names of SAM-5, 5.3.1")]
pub mod status {
    pub const GOOD: u8 = 0x00;
    pub const CHECK_CONDITION: u8 = 0x02;
    pub const BUSY: u8 = 0x08;
    pub const TASK_SET_FULL: u8 = 0x28;
    pub const TASK_ABORTED: u8 = 0x40;
}

/// A command to be sent.
#[derive(Clone, Debug)]
pub struct Command {
    /// The logical unit.
    pub lun: u16,
    /// The command descriptor block; more than 16 bytes travel in an extended-CDB AHS.
    pub cdb: Vec<u8>,
    /// What is written, shared between commands.
    pub data_out: Arc<[u8]>,
    /// How much may be read, in bytes.
    pub data_in_len_bytes: usize,
    /// An ExpectedDataTransferLength other than the two above say, in bytes.
    pub expected_len_bytes: Option<u32>,
    /// Task attribute (RFC 7143, 11.3.1): 1 SIMPLE, 2 ORDERED, 3 HEAD OF QUEUE.
    pub attribute: u8,
    /// Delivered at once, without regard to CmdSN.
    pub immediate: bool,
}

impl Command {
    /// A command without data.
    pub fn bare(cdb: impl Into<Vec<u8>>) -> Self {
        Self {
            lun: 0,
            cdb: cdb.into(),
            data_out: Arc::from([]),
            data_in_len_bytes: 0,
            expected_len_bytes: None,
            attribute: 1,
            immediate: false,
        }
    }

    /// A command that reads up to `len_bytes`.
    pub fn data_in(cdb: impl Into<Vec<u8>>, len_bytes: usize) -> Self {
        Self { data_in_len_bytes: len_bytes, ..Self::bare(cdb) }
    }

    /// A command that writes `data`.
    pub fn data_out(cdb: impl Into<Vec<u8>>, data: impl Into<Arc<[u8]>>) -> Self {
        Self { data_out: data.into(), ..Self::bare(cdb) }
    }

    /// To another logical unit than 0.
    #[must_use]
    pub fn to_lun(self, lun: u16) -> Self {
        Self { lun, ..self }
    }

    /// TEST UNIT READY.
    pub fn test_unit_ready() -> Self {
        Self::bare([0; 6])
    }

    /// INQUIRY of standard data, or of a VPD page.
    pub fn inquiry(page: Option<u8>) -> Self {
        Self::data_in([0x12, u8::from(page.is_some()), page.unwrap_or(0), 0x01, 0x00, 0], 256)
    }

    /// READ CAPACITY (16).
    pub fn read_capacity_16() -> Self {
        let mut cdb = vec![0x9e, 0x10];
        cdb.resize(13, 0);
        cdb.extend([32, 0, 0]);
        Self::data_in(cdb, 32)
    }

    /// REPORT LUNS.
    pub fn report_luns() -> Self {
        Self::data_in([0xa0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0], 4096)
    }

    /// READ (16) of `blocks` logical blocks of `block_len_bytes` each.
    pub fn read_16(lba: u64, blocks: u32, block_len_bytes: usize) -> Self {
        Self::data_in(cdb_16(0x88, lba, blocks), blocks as usize * block_len_bytes)
    }

    /// WRITE (16) of `data`, which is whole logical blocks of `block_len_bytes` each.
    pub fn write_16(lba: u64, data: impl Into<Arc<[u8]>>, block_len_bytes: usize) -> Self {
        let data = data.into();
        let blocks = u32::try_from(data.len() / block_len_bytes).unwrap_or(u32::MAX);
        Self::data_out(cdb_16(0x8a, lba, blocks), data)
    }

    /// SYNCHRONIZE CACHE (16) of the whole unit.
    pub fn synchronize_cache_16() -> Self {
        Self::bare(cdb_16(0x91, 0, 0))
    }

    /// UNMAP of one range.
    pub fn unmap(lba: u64, blocks: u32) -> Self {
        let mut parameters = vec![0, 22, 0, 16, 0, 0, 0, 0];
        parameters.extend(lba.to_be_bytes());
        parameters.extend(blocks.to_be_bytes());
        parameters.extend([0; 4]);
        Self::data_out([0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], parameters)
    }
}

/// A CDB of 16 bytes with an LBA of eight and a length of four (SBC-3, 5.12 for instance).
fn cdb_16(opcode: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, 0];
    cdb.extend(lba.to_be_bytes());
    cdb.extend(blocks.to_be_bytes());
    cdb.extend([0, 0]);
    cdb
}

/// Sense data, as far as the tests look at it (SPC-4, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The sense key.
    pub key: u8,
    /// Additional sense code and qualifier.
    pub code: (u8, u8),
}

impl Sense {
    /// Reads fixed or descriptor format; `None` when it is neither.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? & 0x7f {
            0x70 | 0x71 => Some(Self { key: bytes.get(2)? & 0x0f, code: (*bytes.get(12)?, *bytes.get(13)?) }),
            0x72 | 0x73 => Some(Self { key: bytes.get(1)? & 0x0f, code: (*bytes.get(2)?, *bytes.get(3)?) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_16_when_made_then_lba_and_blocks_at_their_offsets() {
        let command = Command::write_16(0x0102_0304_0506_0708, vec![0; 1024], 512);
        assert_eq!(command.cdb, [0x8a, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 2, 0, 0]);
    }

    #[test]
    fn sense_when_fixed_or_descriptor_then_same_meaning() {
        let fixed = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0x01, 0, 0, 0, 0];
        let descriptor = [0x72, 5, 0x24, 0x01, 0, 0, 0, 0];
        assert_eq!(Sense::parse(&fixed), Some(Sense { key: 5, code: (0x24, 1) }));
        assert_eq!(Sense::parse(&fixed), Sense::parse(&descriptor));
        assert_eq!(Sense::parse(&[0x70, 0, 5]), None);
    }
}
