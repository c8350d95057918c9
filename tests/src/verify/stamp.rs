//! One block of 4 KiB: what is in it says where it belongs and which write put it there.
//!
//! ```text
//! 0        8              16       24            28                        4096
//! | magic  | block number | op id  | crc32c      | bytes drawn from block    |
//! |        |              |        | of the rest | number and op id          |
//! ```

use crate::initiator::crc32c::Crc32c;
use crate::random::Random;

/// Length of a stamped block.
pub const BLOCK_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"hfverify";
const HEAD_BYTES: usize = 28;

/// What a block turned out to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros: it was never written, or unmapped.
    Zeros,
    /// Whole, from this write.
    Op(u64),
    /// Anything else, with a description.
    Damaged(String),
}

/// Fills `bytes`, one block, as write number `op` of block number `block`.
pub fn fill(bytes: &mut [u8], block: u64, op: u64) {
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&block.to_le_bytes());
    bytes[16..24].copy_from_slice(&op.to_le_bytes());
    Random::from_seed(block ^ op.rotate_left(32)).fill(&mut bytes[HEAD_BYTES..]);
    let crc = checksum(bytes);
    bytes[24..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// What `bytes`, read as block number `block`, hold.
pub fn identify(bytes: &[u8], block: u64) -> Content {
    let damaged = |what: String| Content::Damaged(format!("block {block}: {what}"));
    if bytes.len() != BLOCK_BYTES {
        return damaged(format!("{} bytes", bytes.len()));
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Content::Zeros;
    }
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    if bytes[..8] != MAGIC {
        return damaged(format!("begins with {:02x?}", &bytes[..16]));
    }
    if bytes[24..HEAD_BYTES] != checksum(bytes).to_le_bytes() {
        return damaged(format!("torn; its head says block {} op {}", word(8), word(16)));
    }
    if word(8) != block {
        return damaged(format!("holds block {} op {}", word(8), word(16)));
    }
    Content::Op(word(16))
}

fn checksum(bytes: &[u8]) -> u32 {
    Crc32c::new().update(&bytes[..24]).update(&bytes[HEAD_BYTES..]).value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identify_when_filled_then_its_op() {
        let mut bytes = vec![0; BLOCK_BYTES];
        assert_eq!(identify(&bytes, 5), Content::Zeros);
        fill(&mut bytes, 5, 77);
        assert_eq!(identify(&bytes, 5), Content::Op(77));
    }

    #[test]
    fn identify_when_misplaced_or_changed_then_damaged() {
        let mut bytes = vec![0; BLOCK_BYTES];
        fill(&mut bytes, 5, 77);
        assert!(matches!(identify(&bytes, 6), Content::Damaged(_)));
        for at in [0, 9, 17, 25, 28, 511, 512, 4095] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(matches!(identify(&changed, 5), Content::Damaged(_)), "byte {at}");
        }
        let mut torn = bytes.clone();
        fill(&mut torn, 5, 78);
        torn[2048..].copy_from_slice(&bytes[2048..]);
        assert!(matches!(identify(&torn, 5), Content::Damaged(_)));
    }
}
