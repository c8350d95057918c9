//! Fields of a command descriptor block.

/// A command descriptor block as it was received: any length, including none (SPC-4, 4.2.5).
///
/// Fields beyond its end read as zero. Before a command's handler sees a CDB its length has been compared with the
/// usage map of the command, so that a handler never meets that case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb<'a>(&'a [u8]);

impl<'a> Cdb<'a> {
    /// Wraps the bytes of a CDB.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Number of bytes that were received.
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether nothing was received.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Operation code; `None` for an empty CDB.
    pub fn opcode(self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Five-bit service action of byte 1 (SPC-4, 4.2.5.3).
    pub fn service_action(self) -> u16 {
        u16::from(self.u8(1) & 0x1f)
    }

    /// One byte.
    pub fn u8(self, at: usize) -> u8 {
        self.0.get(at).copied().unwrap_or(0)
    }

    /// One bit.
    pub fn bit(self, at: usize, bit: u8) -> bool {
        self.u8(at) & (1 << bit) != 0
    }

    /// Big-endian 16-bit field.
    pub fn u16(self, at: usize) -> u16 {
        self.array(at).map_or(0, u16::from_be_bytes)
    }

    /// Big-endian 24-bit field.
    pub fn u24(self, at: usize) -> u32 {
        self.array(at).map_or(0, |[high, middle, low]: [u8; 3]| u32::from_be_bytes([0, high, middle, low]))
    }

    /// Big-endian 32-bit field.
    pub fn u32(self, at: usize) -> u32 {
        self.array(at).map_or(0, u32::from_be_bytes)
    }

    /// Big-endian 64-bit field.
    pub fn u64(self, at: usize) -> u64 {
        self.array(at).map_or(0, u64::from_be_bytes)
    }

    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian_and_zero_beyond_the_end() {
        let cdb = Cdb::new(&[0x9e, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(cdb.opcode(), Some(0x9e));
        assert_eq!(cdb.service_action(), 0x10);
        assert_eq!(cdb.u16(2), 0x0102);
        assert_eq!(cdb.u24(2), 0x01_0203);
        assert_eq!(cdb.u32(2), 0x0102_0304);
        assert_eq!(cdb.u64(2), 0x0102_0304_0506_0708);
        assert!(cdb.bit(1, 7) && !cdb.bit(1, 0));
        assert_eq!(cdb.u64(3), 0);
        assert_eq!(cdb.u8(10), 0);
        assert_eq!(cdb.u8(usize::MAX), 0);
        assert_eq!(Cdb::new(&[]).opcode(), None);
    }
}
