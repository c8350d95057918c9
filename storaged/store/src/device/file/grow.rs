//! Taking space for a longer file, or leaving it as it was.

use std::fs::File;
use std::io;

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::Errno;

use super::transfer::write_fully;
use crate::device::{Buffer, DeviceWrite};

/// Zeros are written in pieces of so many bytes.
const ZEROS_LEN: usize = 1 << 20;

/// Makes the file `to` bytes long with all space taken, durably. After an error it is `from` bytes long again.
pub(super) fn grow(file: &File, from: u64, to: u64, memory_align: usize) -> io::Result<()> {
    let taken = take_space(file, from, to, memory_align).map_err(as_storage_full);
    let grown = taken.and_then(|()| file.sync_all().map_err(|error| as_sync_failed(&error)));
    let Err(error) = grown else { return Ok(()) };
    // A partly successful fallocate keeps its blocks, even beyond the end: cutting to the same length gives them back.
    match ftruncate(file, from) {
        Ok(()) => Err(error),
        Err(truncate) => Err(io::Error::other(format!("{error}; and the space cannot be given back: {truncate}"))),
    }
}

fn take_space(file: &File, from: u64, to: u64, memory_align: usize) -> io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), from, to - from) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return write_zeros(file, from, to, memory_align),
            Err(error) => return Err(error.into()),
        }
    }
}

/// For file systems that cannot take space otherwise.
fn write_zeros(file: &File, from: u64, to: u64, memory_align: usize) -> io::Result<()> {
    let zeros = Buffer::zeroed(memory_align, ZEROS_LEN).freeze();
    let mut offset = from;
    while offset < to {
        let len = usize::try_from(to - offset).unwrap_or(ZEROS_LEN).min(ZEROS_LEN);
        let piece: Bytes = zeros.slice(..len);
        write_fully(file, &DeviceWrite::new(offset, piece), memory_align)?;
        offset += len as u64;
    }
    Ok(())
}

/// A quota that is used up (EDQUOT) and a file as long as the file system takes (EFBIG) are a full disk, too.
fn as_storage_full(error: io::Error) -> io::Error {
    let full = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].iter().any(|e| error.raw_os_error() == Some(e.raw_os_error()));
    if full { io::Error::new(io::ErrorKind::StorageFull, error) } else { error }
}

/// Never as a full disk, even where that is the reason (delayed allocation, thin volumes): the sync was also for what others have
/// written to the file, and nobody knows what became of that (hazard C2).
fn as_sync_failed(error: &io::Error) -> io::Error {
    io::Error::other(format!("cannot sync: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_zeros_when_the_length_is_odd_then_exact() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        write_zeros(&file, 4096, (2 << 20) + 8192, 1).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (2 << 20) + 8192);
    }

    #[test]
    fn as_storage_full_when_the_quota_is_used_up_then_storage_full() {
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG] {
            assert_eq!(as_storage_full(errno.into()).kind(), io::ErrorKind::StorageFull);
        }
        assert_eq!(as_storage_full(Errno::IO.into()).raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
}
