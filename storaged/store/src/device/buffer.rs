//! Memory at an address that direct I/O takes.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;

/// Bytes whose first one lies at a multiple of the alignment, and that can be added to.
///
/// A vector with some slack before the first byte: the allocator promises no alignment for bytes.
#[derive(Debug)]
pub struct Buffer {
    align: usize,
    pad: usize,
    memory: Vec<u8>,
}

impl Buffer {
    /// Empty, with room for `len` bytes; more are taken after a copy. `align` is rounded up to a power of two.
    pub fn with_capacity(align: usize, len: usize) -> Self {
        let align = align.max(1).next_power_of_two();
        let mut memory = Vec::with_capacity(len.saturating_add(align - 1));
        let pad = pad_of(&memory, align);
        memory.resize(pad, 0);
        Self { align, pad, memory }
    }

    /// `len` zeros.
    pub fn zeroed(align: usize, len: usize) -> Self {
        let align = align.max(1).next_power_of_two();
        // Asked for as zeros, large memory comes so from the system and is not filled a second time.
        let mut memory = vec![0; len.saturating_add(align - 1)];
        let pad = pad_of(&memory, align);
        memory.truncate(pad.saturating_add(len));
        Self { align, pad, memory }
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.memory.len() - self.pad
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.memory.extend_from_slice(bytes);
    }

    /// Makes it `len` bytes long: cuts it, or adds zeros.
    pub fn resize_zeroed(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len()));
        self.memory.resize(self.pad.saturating_add(len), 0);
    }

    /// The bytes, still at an aligned address, not copied.
    pub fn freeze(self) -> Bytes {
        let pad = self.pad;
        Bytes::from(self.memory).slice(pad..)
    }

    /// Makes room without letting the vector move the bytes to an address of its own choice.
    fn reserve(&mut self, more: usize) {
        if self.memory.capacity() - self.memory.len() >= more {
            return;
        }
        let len = self.len().saturating_add(more).max(self.len().saturating_mul(2));
        let mut larger = Self::with_capacity(self.align, len);
        larger.memory.extend_from_slice(self);
        *self = larger;
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.get(self.pad..).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.pad..).unwrap_or_default()
    }
}

/// Whether the bytes can be given to direct I/O as they are. Nothing lies anywhere.
pub(crate) fn is_aligned(bytes: &[u8], align: usize) -> bool {
    align <= 1 || bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(align)
}

fn pad_of(memory: &[u8], align: usize) -> usize {
    memory.as_ptr().addr().wrapping_neg() & (align - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_when_made_filled_grown_and_frozen_then_always_aligned() {
        for align in [1, 512, 4096] {
            for len in [0, 1, 4096, 70_000] {
                let mut buffer = Buffer::with_capacity(align, len);
                let mut expected = Vec::new();
                for piece in 0..40_u8 {
                    let bytes = vec![piece; usize::from(piece) * 97];
                    buffer.extend_from_slice(&bytes);
                    expected.extend_from_slice(&bytes);
                    assert!(is_aligned(&buffer, align), "{align} {len} {piece}");
                }
                buffer.resize_zeroed(100_000);
                expected.resize(100_000, 0);
                assert_eq!(*buffer, *expected);
                buffer.resize_zeroed(5);
                assert_eq!((buffer.len(), &buffer[..]), (5, &expected[..5]));
                buffer.resize_zeroed(8);
                assert_eq!(&buffer[5..], [0; 3], "what was cut does not come back");
                let frozen = buffer.freeze();
                assert!(is_aligned(&frozen, align));
                assert_eq!(&frozen[..5], &expected[..5]);
            }
        }
    }

    #[test]
    fn zeroed_when_made_then_aligned_zeros_that_can_be_written() {
        for align in [1, 512, 4096, 65_536] {
            let mut buffer = Buffer::zeroed(align, 8192);
            assert!(is_aligned(&buffer, align));
            assert_eq!(buffer[..], [0; 8192]);
            buffer[8191] = 7;
            let frozen = buffer.freeze();
            assert!(is_aligned(&frozen, align));
            assert_eq!((frozen.len(), frozen[8191]), (8192, 7));
        }
        assert!(Buffer::zeroed(4096, 0).is_empty());
    }
}
