//! CRC32C (Castagnoli; RFC 7143, 12.1), from its polynomial: eight tables, eight bytes a step.

/// The reflected polynomial.
const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        #[allow(clippy::cast_possible_truncation, reason = "byte is below 256; TryFrom is not const")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// A checksum that is fed piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(u32);

impl Crc32c {
    /// The checksum of nothing so far.
    pub fn new() -> Self {
        Self(!0)
    }

    /// Adds the next bytes.
    #[must_use]
    pub fn update(self, bytes: &[u8]) -> Self {
        let mut crc = self.0;
        let mut pieces = bytes.chunks_exact(8);
        for piece in &mut pieces {
            let low = crc ^ u32::from_le_bytes([piece[0], piece[1], piece[2], piece[3]]);
            crc = 0;
            for (index, byte) in low.to_le_bytes().iter().chain(&piece[4..8]).enumerate() {
                crc ^= TABLES[7 - index][usize::from(*byte)];
            }
        }
        for byte in pieces.remainder() {
            crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
        }
        Self(crc)
    }

    /// The checksum of all that was added.
    pub fn value(self) -> u32 {
        !self.0
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// The checksum of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    Crc32c::new().update(bytes).value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_when_given_the_examples_of_rfc_7143_then_its_values() {
        // RFC 7143, appendix A.4 (RFC 3720, B.4). The RFC prints them in the order of transmission.
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(crc32c(&ascending).to_le_bytes(), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(crc32c(&descending).to_le_bytes(), [0x5c, 0xdb, 0x3f, 0x11]);
        let mut read10 = [0; 48];
        for (at, byte) in [(0, 0x01), (1, 0xc0), (16, 0x14), (22, 0x04), (27, 0x14), (31, 0x18), (32, 0x28), (40, 0x02)]
        {
            read10[at] = byte;
        }
        assert_eq!(crc32c(&read10).to_le_bytes(), [0x56, 0x3a, 0x96, 0xd9]);
    }

    #[test]
    fn update_when_fed_in_pieces_then_same_as_at_once() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for cut in [0, 1, 7, 8, 9, 500, 999, 1000] {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(Crc32c::new().update(first).update(second).value(), crc32c(&bytes), "cut at {cut}");
        }
    }
}
