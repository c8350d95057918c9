//! Hashing of 32-bit tags and numbers.

use std::hash::Hasher;

/// Spreads a `u32` by one multiplication. An initiator can make tags collide; that costs it a walk over its own
/// tasks, of which there are as many as its command window allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TagHasher(u64);

impl Hasher for TagHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, tag: u32) {
        // 2^64 divided by the golden ratio; the halves are swapped because the table looks at both ends.
        self.0 = (self.0 ^ u64::from(tag)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
