//! Reads one lap of the ring in large pieces, each byte once as long as positions ascend.

use std::io;

use bytes::{Bytes, BytesMut};
use holdfast_proto::units::BLOCK_BYTES;

use crate::device::Device;
use crate::journal::ring::Ring;

/// Bytes of a read, if nothing else limits it: large enough for the full speed of a disk, small beside the memory that
/// a recovery has anyway.
const READ_BYTES: u64 = 4 << 20;

/// A window that moves over the lap.
pub(super) struct Reader<'a> {
    device: &'a dyn Device,
    ring: Ring,
    /// Nothing is read from here on.
    lap_end: u64,
    window: Bytes,
    /// Absolute position of the window.
    at: u64,
}

impl<'a> Reader<'a> {
    /// Reads the lap that begins at `head`.
    pub(super) fn new(device: &'a dyn Device, ring: Ring, head: u64) -> Self {
        Self { device, ring, lap_end: ring.lap(head).end, window: Bytes::new(), at: head }
    }

    pub(super) fn lap_end(&self) -> u64 {
        self.lap_end
    }

    /// Exactly `len` bytes. Both numbers are multiples of 4096 and the range lies in the lap.
    pub(super) fn exact(&mut self, position: u64, len: u64) -> io::Result<Bytes> {
        if let Some(rest) = self.loaded_from(position) {
            let rest_len = rest.len() as u64;
            if len <= rest_len {
                return Ok(rest.slice(..in_memory(len)));
            }
            // Two windows: only what crosses their border is copied.
            self.load(position + rest_len, len - rest_len)?;
            let mut joined = BytesMut::with_capacity(in_memory(len));
            joined.extend_from_slice(&rest);
            joined.extend_from_slice(&self.window[..in_memory(len - rest_len)]);
            return Ok(joined.freeze());
        }
        self.load(position, len)?;
        Ok(self.window.slice(..in_memory(len)))
    }

    /// One block or more, whatever is at hand.
    pub(super) fn some(&mut self, position: u64) -> io::Result<Bytes> {
        if let Some(rest) = self.loaded_from(position) {
            return Ok(rest);
        }
        self.load(position, BLOCK_BYTES)?;
        Ok(self.window.clone())
    }

    /// What the window holds from `position` on, at least a block.
    fn loaded_from(&self, position: u64) -> Option<Bytes> {
        let skip = usize::try_from(position.checked_sub(self.at)?).ok()?;
        (skip < self.window.len()).then(|| self.window.slice(skip..))
    }

    /// Moves the window: `need` bytes at least, more if the device has them in one piece.
    fn load(&mut self, position: u64, need: u64) -> io::Result<()> {
        let wish = READ_BYTES.max(need).min(self.lap_end.saturating_sub(position));
        let [first, second] = self.ring.pieces(position, wish);
        let window = self.device.read(first.offset, in_memory(first.len))?;
        self.window = if first.len >= need {
            window
        } else {
            let mut joined = BytesMut::with_capacity(in_memory(need));
            joined.extend_from_slice(&window);
            joined.extend_from_slice(&self.device.read(second.offset, in_memory(need - first.len))?);
            joined.freeze()
        };
        self.at = position;
        Ok(())
    }
}

/// Lengths here are at most a batch's or [`READ_BYTES`], far below what memory can address.
#[allow(clippy::cast_possible_truncation, reason = "at most 64 MiB")]
fn in_memory(len: u64) -> usize {
    len as usize
}
