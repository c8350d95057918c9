//! PDUs as bytes: a header of 48 bytes with fields at the offsets that RFC 7143, section 11, draws.

/// Opcodes that an initiator sends (RFC 7143, 11.2.1.2).
#[allow(missing_docs, reason = "the names of RFC 7143, 11.2.1.2")]
pub mod request {
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
}

/// Opcodes that a target sends (RFC 7143, 11.2.1.2).
#[allow(missing_docs, reason = "the names of RFC 7143, 11.2.1.2")]
pub mod response {
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI: u8 = 0x21;
    pub const TASK_MANAGEMENT: u8 = 0x22;
    pub const LOGIN: u8 = 0x23;
    pub const TEXT: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// "No tag" (RFC 7143, 11.2.1.8).
pub const NO_TAG: u32 = 0xffff_ffff;
/// F: final (RFC 7143, 11.2.1.3).
pub const FINAL: u8 = 0x80;
/// I: immediate delivery (RFC 7143, 11.2.1.1).
pub const IMMEDIATE: u8 = 0x40;

/// A basic header segment (RFC 7143, 11.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bhs(pub [u8; 48]);

impl Bhs {
    /// A header of zeros with this opcode byte and this second byte.
    pub fn new(opcode: u8, flags: u8) -> Self {
        let mut bytes = [0; 48];
        bytes[0] = opcode;
        bytes[1] = flags;
        Self(bytes)
    }

    /// Sets the four bytes at `offset`.
    #[must_use]
    pub fn with_u32(mut self, offset: usize, value: u32) -> Self {
        self.0[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
        self
    }

    /// Sets the two bytes at `offset`.
    #[must_use]
    pub fn with_u16(mut self, offset: usize, value: u16) -> Self {
        self.0[offset..offset + 2].copy_from_slice(&value.to_be_bytes());
        self
    }

    /// Sets bytes at `offset`.
    #[must_use]
    pub fn with_bytes(mut self, offset: usize, value: &[u8]) -> Self {
        self.0[offset..offset + value.len()].copy_from_slice(value);
        self
    }

    /// Sets the initiator task tag.
    #[must_use]
    pub fn with_task_tag(self, tag: u32) -> Self {
        self.with_u32(16, tag)
    }

    /// Sets the LUN (bytes 8 to 15).
    #[must_use]
    pub fn with_lun(self, lun: u16) -> Self {
        self.with_bytes(8, &lun_bytes(lun))
    }

    /// The four bytes at `offset`.
    pub fn u32_at(&self, offset: usize) -> u32 {
        u32::from_be_bytes([self.0[offset], self.0[offset + 1], self.0[offset + 2], self.0[offset + 3]])
    }

    /// The two bytes at `offset`.
    pub fn u16_at(&self, offset: usize) -> u16 {
        u16::from_be_bytes([self.0[offset], self.0[offset + 1]])
    }

    /// The opcode.
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// The second byte: F and what is particular to the opcode.
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// The initiator task tag.
    pub fn task_tag(&self) -> u32 {
        self.u32_at(16)
    }

    /// The target transfer tag.
    pub fn transfer_tag(&self) -> u32 {
        self.u32_at(20)
    }

    /// TotalAHSLength in bytes (the field counts words of four).
    pub fn ahs_len_bytes(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// DataSegmentLength in bytes, without padding.
    pub fn data_len_bytes(&self) -> usize {
        (self.u32_at(4) & 0x00ff_ffff) as usize
    }

    /// Sets TotalAHSLength and DataSegmentLength.
    #[must_use]
    pub fn with_lengths(self, ahs_len_bytes: usize, data_len_bytes: usize) -> Self {
        let words = u8::try_from(ahs_len_bytes.div_ceil(4)).unwrap_or(u8::MAX);
        let length = u32::try_from(data_len_bytes).unwrap_or(u32::MAX) & 0x00ff_ffff;
        self.with_u32(4, u32::from(words) << 24 | length)
    }
}

/// A LUN in eight bytes: single level, peripheral addressing below 256 and flat space above (SAM-5, 4.7).
pub fn lun_bytes(lun: u16) -> [u8; 8] {
    let [high, low] = lun.to_be_bytes();
    let high = if lun < 256 { 0 } else { 0x40 | high };
    [high, low, 0, 0, 0, 0, 0, 0]
}

/// A whole PDU, without padding and digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// The basic header segment.
    pub bhs: Bhs,
    /// The additional header segments, as they came.
    pub ahs: Vec<u8>,
    /// The data segment.
    pub data: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_lengths_when_both_are_set_then_words_and_bytes() {
        let bhs = Bhs::new(request::SCSI_COMMAND, FINAL).with_lengths(20, 0x01_0203);
        assert_eq!(bhs.0[4..8], [5, 1, 2, 3]);
        assert_eq!((bhs.ahs_len_bytes(), bhs.data_len_bytes()), (20, 0x01_0203));
    }

    #[test]
    fn lun_bytes_when_above_255_then_flat_space() {
        assert_eq!(lun_bytes(3)[..2], [0, 3]);
        assert_eq!(lun_bytes(0x1234)[..2], [0x52, 0x34]);
    }
}
