//! The disk below the engine: one flat range of bytes that grows, and that loses what was not synced.
//!
//! [`Device`] is one of the engine's two seams (the other is the catalogue). [`FileDevice`] is a
//! file of a real file system; [`SimDisk`] is a disk in memory whose power can be cut and whose faults
//! are chosen by a seed. Both pass the same tests (`suite.rs`).
//!
//! A device never retries and never hides: an error of a write or a sync means that nobody knows what the disk holds,
//! and the engine treats it as the end of the device (hazard C2).

pub mod buffer;
pub mod file;
pub mod power;
pub mod sim;
#[cfg(test)]
mod suite;

use std::io;

use bytes::Bytes;

pub use self::buffer::Buffer;
pub use self::file::FileDevice;
pub use self::power::Power;
pub use self::sim::SimDisk;

/// Offsets and lengths of all I/O are multiples of it, bytes.
pub const DEVICE_ALIGN: u64 = 4096;

/// [`DEVICE_ALIGN`] as the length of a slice.
pub(crate) const PAGE_LEN: usize = 4096;

/// What a device is like: how the engine had better use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTraits {
    /// It lies in memory: no operation ever waits, so a thread that would do nothing but wait is not worth it.
    pub instant: bool,
    /// It goes past the page cache.
    pub direct: bool,
    /// Alignment of memory that is written without a copy, bytes; a power of two, 1 when any memory will do.
    pub memory_align: usize,
}

/// One contiguous write.
#[derive(Clone, Debug, Default)]
pub struct DeviceWrite {
    /// Byte offset, a multiple of [`DEVICE_ALIGN`].
    pub offset: u64,
    /// The bytes, in order, in any memory and cut anywhere; together a multiple of [`DEVICE_ALIGN`]. A device that needs
    /// aligned memory copies what is not aligned ([`DeviceTraits::memory_align`]).
    pub pieces: Vec<Bytes>,
}

impl DeviceWrite {
    /// A write of one piece.
    pub fn new(offset: u64, piece: Bytes) -> Self {
        Self { offset, pieces: vec![piece] }
    }

    /// Length of all pieces, bytes.
    pub fn len_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// What a device has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStatistics {
    /// Reads.
    pub reads: u64,
    /// Bytes of them.
    pub bytes_read: u64,
    /// Writes; a call with several counts as several.
    pub writes: u64,
    /// Bytes of them.
    pub bytes_written: u64,
    /// Times that the disk was told to make something durable.
    pub syncs: u64,
}

/// A disk. Every call blocks until it is done and may be made from several threads at once.
///
/// A call whose range is not aligned to [`DEVICE_ALIGN`] is refused as `InvalidInput`, one that reaches beyond the end
/// as `UnexpectedEof`, both before anything is read or written.
pub trait Device: Send + Sync + 'static {
    /// What it is like; never changes.
    fn traits(&self) -> DeviceTraits;

    /// Its length, bytes.
    fn len_bytes(&self) -> u64;

    /// Exactly `len` bytes. What was never written reads as zeros.
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Writes all; when it returns, reads see them, but a power cut may take any part of them. There is no order among
    /// them: they may run in parallel, and must not overlap.
    fn write(&self, writes: &[DeviceWrite]) -> io::Result<()>;

    /// As [`write`](Self::write), and these writes are durable when it returns; others may still not be.
    fn write_durably(&self, writes: &[DeviceWrite]) -> io::Result<()>;

    /// Makes all writes durable that have returned before.
    fn sync(&self) -> io::Result<()>;

    /// Makes it at least so long, a multiple of [`DEVICE_ALIGN`]. The space is taken, so that a write into it does not fail
    /// for want of space, and the new length is durable when it returns. `StorageFull` leaves everything as it was.
    fn grow(&self, len_bytes: u64) -> io::Result<()>;

    /// Counters since it was opened.
    fn statistics(&self) -> DeviceStatistics;
}

/// Refuses a range that is not aligned, or not inside a device of `len_bytes`.
fn check_range(what: &str, offset: u64, len: u64, len_bytes: u64) -> io::Result<()> {
    if !offset.is_multiple_of(DEVICE_ALIGN) || !len.is_multiple_of(DEVICE_ALIGN) {
        let detail = format!("{what} of {len} bytes at {offset} is not aligned to {DEVICE_ALIGN}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, detail));
    }
    if offset.checked_add(len).is_none_or(|end| end > len_bytes) {
        let detail = format!("{what} of {len} bytes at {offset} ends beyond the device's {len_bytes}");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, detail));
    }
    Ok(())
}

/// [`check_range`] of every one, so that a refused call has written nothing.
fn check_writes(writes: &[DeviceWrite], len_bytes: u64) -> io::Result<()> {
    writes.iter().try_for_each(|write| check_range("a write", write.offset, write.len_bytes(), len_bytes))
}

/// Refuses a length that a device cannot have.
fn check_len(len_bytes: u64) -> io::Result<()> {
    if len_bytes.is_multiple_of(DEVICE_ALIGN) && i64::try_from(len_bytes).is_ok() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a device cannot be {len_bytes} bytes long")))
}
