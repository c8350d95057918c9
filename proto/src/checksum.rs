//! Checksums of the data path: one CRC32C for each *piece* of a byte range.
//!
//! A range is cut at every multiple of 4 KiB ([`BLOCK_BYTES`]) of the volume, so that only its first and last piece
//! can be shorter than a block. The checksum of a whole piece is that of the block on the disk, and is
//! made once, in the gateway.

use bytes::Bytes;

use crate::units::{BLOCK_BYTES, BLOCK_LEN};

/// Checksum of a block of zeros, which is what a hole reads as.
pub const ZERO_BLOCK: u32 = 0x98f9_4189;

/// How many pieces the range has. At most `len_bytes` / 4096 + 2.
pub fn piece_count(offset: u64, len_bytes: u64) -> u64 {
    let head = offset % BLOCK_BYTES;
    (u128::from(head) + u128::from(len_bytes)).div_ceil(u128::from(BLOCK_BYTES)).try_into().unwrap_or(u64::MAX)
}

/// Bytes from `offset` to the end of its block, or `remaining_bytes` if that is less.
pub fn piece_len(offset: u64, remaining_bytes: u64) -> u64 {
    remaining_bytes.min(BLOCK_BYTES - offset % BLOCK_BYTES)
}

/// One checksum for each piece of the bytes that `data` holds one after the other, of which the first
/// lies at byte `offset` of the volume.
pub fn of_pieces(offset: u64, data: &[Bytes]) -> Vec<u32> {
    let pieces = piece_count(offset, len_bytes(data));
    let mut checksums = Vec::with_capacity(usize::try_from(pieces).unwrap_or(0));
    Pieces::new(offset, data).for_each(|(_, checksum)| checksums.push(checksum));
    checksums
}

/// Whether `checksums` are those of `data`; otherwise the volume offset of the first piece that differs
/// (or is missing, or left over).
pub fn verify(offset: u64, data: &[Bytes], checksums: &[u32]) -> Result<(), u64> {
    let mut expected = checksums.iter();
    let mut end = offset;
    for (at, checksum) in Pieces::new(offset, data) {
        if expected.next() != Some(&checksum) {
            return Err(at);
        }
        end = at.saturating_add(BLOCK_BYTES - at % BLOCK_BYTES);
    }
    if expected.next().is_some() { Err(end) } else { Ok(()) }
}

/// Checksums of a range that reads as zeros.
pub fn of_zeros(offset: u64, len_bytes: u64) -> Vec<u32> {
    const ZEROS: [u8; BLOCK_LEN] = [0; BLOCK_LEN];
    let mut checksums = Vec::with_capacity(usize::try_from(piece_count(offset, len_bytes)).unwrap_or(0));
    let mut done = 0;
    while done < len_bytes {
        let piece = piece_len(offset.wrapping_add(done), len_bytes - done);
        checksums.push(match usize::try_from(piece).ok().and_then(|len| ZEROS.get(..len)) {
            Some(partial) if partial.len() < ZEROS.len() => crc32c::crc32c(partial),
            _ => ZERO_BLOCK,
        });
        done += piece;
    }
    checksums
}

/// Sum of the lengths of `data`.
pub fn len_bytes(data: &[Bytes]) -> u64 {
    data.iter().map(|chunk| chunk.len() as u64).sum()
}

/// Offset and checksum of each piece.
struct Pieces<'a> {
    offset: u64,
    chunk: &'a [u8],
    rest: std::slice::Iter<'a, Bytes>,
}

impl<'a> Pieces<'a> {
    fn new(offset: u64, data: &'a [Bytes]) -> Self {
        Self { offset, chunk: &[], rest: data.iter() }
    }
}

impl Iterator for Pieces<'_> {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        let start = self.offset;
        let mut wanted = BLOCK_BYTES - start % BLOCK_BYTES;
        let mut checksum = 0;
        while wanted > 0 {
            if self.chunk.is_empty() {
                match self.rest.next() {
                    Some(next) => self.chunk = next,
                    None => break,
                }
                continue;
            }
            let len = usize::try_from(wanted).unwrap_or(usize::MAX).min(self.chunk.len());
            let (part, rest) = self.chunk.split_at(len);
            checksum = crc32c::crc32c_append(checksum, part);
            self.chunk = rest;
            wanted -= len as u64;
            self.offset = self.offset.wrapping_add(len as u64);
        }
        (self.offset != start).then_some((start, checksum))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn checksum_when_standard_vectors_then_as_rfc_3720_appendix_b4() {
        let vectors: [(Vec<u8>, u32); 4] = [
            (vec![0; 32], 0x8a91_36aa),
            (vec![0xff; 32], 0x62a8_ab43),
            ((0..32).collect(), 0x46dd_794e),
            ((0..32).rev().collect(), 0x113f_db5c),
        ];
        for (data, checksum) in vectors {
            assert_eq!(of_pieces(0, &[Bytes::from(data)]), [checksum]);
        }
    }

    #[test]
    fn zero_block_when_computed_then_the_constant() {
        assert_eq!(of_pieces(0, &[Bytes::from(vec![0; 4096])]), [ZERO_BLOCK]);
    }

    #[test]
    fn pieces_when_range_is_unaligned_then_cut_at_block_borders() {
        assert_eq!(piece_count(0, 0), 0);
        assert_eq!(piece_count(4095, 2), 2);
        assert_eq!(piece_count(0, 4096), 1);
        assert_eq!(piece_count(512, 4096), 2);
        assert_eq!(piece_count(u64::MAX, u64::MAX), (1 << 52) + 1);
        assert_eq!(piece_len(4095, 2), 1);
        assert_eq!(piece_len(4096, 2), 2);
    }

    #[test]
    fn verify_when_wrong_then_offset_of_the_piece() {
        let data = [Bytes::from(vec![1; 10_000])];
        let good = of_pieces(100, &data);
        assert_eq!(verify(100, &data, &good), Ok(()));
        for (index, at) in [100, 4096, 8192].into_iter().enumerate() {
            let mut bad = good.clone();
            bad[index] ^= 1;
            assert_eq!(verify(100, &data, &bad), Err(at));
        }
        assert_eq!(verify(100, &data, &good[..2]), Err(8192));
        assert_eq!(verify(0, &[], &[7]), Err(0));
    }

    proptest! {
        #[test]
        fn pieces_when_chunked_anyhow_then_the_same_checksums(
            offset in 0u64..20_000, data in prop::collection::vec(any::<u8>(), 0..20_000), cuts in prop::collection::vec(0usize..20_000, 0..8)
        ) {
            let mut expected = Vec::new();
            let mut at = 0;
            while at < data.len() {
                let len = usize::try_from(piece_len(offset + at as u64, (data.len() - at) as u64)).unwrap();
                expected.push(crc32c::crc32c(&data[at..at + len]));
                at += len;
            }
            let whole = Bytes::from(data);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).chain([0, whole.len()]).collect();
            cuts.sort_unstable();
            let chunks: Vec<Bytes> = cuts.windows(2).map(|cut| whole.slice(cut[0]..cut[1])).collect();
            prop_assert_eq!(of_pieces(offset, &chunks), &expected[..]);
            prop_assert_eq!(verify(offset, &chunks, &expected), Ok(()));
            prop_assert_eq!(piece_count(offset, whole.len() as u64), expected.len() as u64);
            let zeros = vec![Bytes::from(vec![0; whole.len()])];
            prop_assert_eq!(of_zeros(offset, whole.len() as u64), of_pieces(offset, &zeros));
        }
    }
}
