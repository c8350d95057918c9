//! CRC32C, the digest of headers and data segments (RFC 7143, 13.1).

/// Length of a digest on the wire in bytes.
pub const DIGEST_BYTES: usize = 4;

/// CRC32C over the concatenation of `parts`.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c_append(crc, part))
}

/// CRC32C of what `crc` is of, followed by `part`.
pub fn crc32c_append(crc: u32, part: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, part)
}

/// A CRC32C in the byte order in which iSCSI sends it: least significant byte first.
pub fn to_wire(crc: u32) -> [u8; DIGEST_BYTES] {
    crc.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720, B.4, which RFC 7143, A.3 repeats: input and the bytes of the digest as sent.
    #[test]
    fn crc32c_when_given_the_examples_of_the_rfc_then_gives_their_digests() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let mut read_10 = [0; 48];
        read_10[0] = 0x01;
        read_10[1] = 0xc0;
        read_10[16] = 0x14;
        read_10[22] = 0x04;
        read_10[27] = 0x14;
        read_10[31] = 0x18;
        read_10[32] = 0x28;
        read_10[40] = 0x02;
        let vectors: [(&[u8], [u8; 4]); 5] = [
            (&[0; 32], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&ascending, [0x4e, 0x79, 0xdd, 0x46]),
            (&descending, [0x5c, 0xdb, 0x3f, 0x11]),
            (&read_10, [0x56, 0x3a, 0x96, 0xd9]),
        ];
        for (input, digest) in vectors {
            assert_eq!(to_wire(crc32c(&[input])), digest);
        }
    }

    #[test]
    fn crc32c_when_the_input_is_in_parts_then_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = crc32c(&[&bytes]);
        for at in 0..bytes.len() {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(crc32c(&[head, &[], tail]), whole);
        }
    }
}
