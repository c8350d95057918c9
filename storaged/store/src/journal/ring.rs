//! Places in the journal. Positions are absolute: they count the bytes ever appended and never fall, so that laps
//! cannot be mixed up; the place on the device is the remainder.

use std::ops::Range;

use holdfast_proto::units::BLOCK_BYTES;

use crate::format::superblock::Superblock;

/// The journal's area on the device. Positions and lengths are multiples of 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    offset: u64,
    len: u64,
}

/// A run of bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Byte offset on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Ring {
    /// The one of a disk.
    pub fn of(superblock: &Superblock) -> Self {
        Self { offset: superblock.journal_offset, len: superblock.journal_len }
    }

    /// Bytes of one lap.
    pub fn len_bytes(&self) -> u64 {
        self.len
    }

    /// Most bytes of one batch that the writer makes: a quarter of the ring, so that a batch in flight, one that
    /// collects and a checkpoint that lags never wait for each other.
    pub fn max_batch_bytes(&self) -> u64 {
        (self.len / 4 / BLOCK_BYTES * BLOCK_BYTES).max(BLOCK_BYTES)
    }

    /// Byte offset on the device of an absolute position.
    pub fn place(&self, position: u64) -> u64 {
        self.offset + position % self.len
    }

    /// Where `len` bytes from `position` on are: one piece, or two around the end of the ring. `len` is at most the
    /// ring's; what is beyond would be the same bytes again and is left out. The second piece is empty if there is one.
    pub fn pieces(&self, position: u64, len: u64) -> [Piece; 2] {
        let len = len.min(self.len);
        let first = len.min(self.len - position % self.len);
        [Piece { offset: self.place(position), len: first }, Piece { offset: self.offset, len: len - first }]
    }

    /// Bytes that can be appended: `head` is where replay would begin, `next` where the next batch goes. Everything
    /// from `head` on is still needed.
    pub fn free(&self, head: u64, next: u64) -> u64 {
        self.len.saturating_sub(next.saturating_sub(head))
    }

    /// The positions of the lap that begins at `head`: all that can belong to the journal while `head` is where replay
    /// begins.
    pub fn lap(&self, head: u64) -> Range<u64> {
        head..head.saturating_add(self.len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_when_around_the_end_then_two() {
        let ring = Ring { offset: 65_536, len: 8 * 4096 };
        let piece = |block: u64, blocks: u64| Piece { offset: 65_536 + block * 4096, len: blocks * 4096 };
        assert_eq!(ring.pieces(6 * 4096, 2 * 4096), [piece(6, 2), piece(0, 0)]);
        assert_eq!(ring.pieces(14 * 4096, 3 * 4096), [piece(6, 2), piece(0, 1)]);
        assert_eq!(ring.pieces(8 * 4096, 99 * 4096), [piece(0, 8), piece(0, 0)]);
        assert_eq!(ring.pieces(9 * 4096, 99 * 4096), [piece(1, 7), piece(0, 1)]);
    }

    #[test]
    fn free_when_full_or_empty_then_exact() {
        let ring = Ring { offset: 0, len: 8 * 4096 };
        assert_eq!(ring.free(4096, 4096), 8 * 4096);
        assert_eq!(ring.free(4096, 4096 * 9), 0);
        assert_eq!(ring.free(0, 4096 * 7), 4096);
        assert_eq!(ring.max_batch_bytes(), 2 * 4096);
    }

    proptest! {
        #[test]
        fn pieces_when_of_any_range_then_each_block_is_in_its_place(
            blocks in 1u64..40, first in 0u64..1 << 40, count in 0u64..50
        ) {
            let ring = Ring { offset: 1 << 16, len: blocks * BLOCK_BYTES };
            let pieces = ring.pieces(first * BLOCK_BYTES, count * BLOCK_BYTES);
            let places: Vec<u64> = pieces
                .iter()
                .flat_map(|piece| (0..piece.len / BLOCK_BYTES).map(move |block| piece.offset + block * BLOCK_BYTES))
                .collect();
            let expected: Vec<u64> =
                (first..first + count.min(blocks)).map(|block| ring.place(block * BLOCK_BYTES)).collect();
            prop_assert_eq!(&places, &expected);
            prop_assert!(places.iter().all(|place| (1 << 16..(1 << 16) + ring.len).contains(place)));
            let used = count.min(blocks) * BLOCK_BYTES;
            prop_assert_eq!(ring.free(first * BLOCK_BYTES, first * BLOCK_BYTES + used) + used, ring.len);
        }
    }
}
