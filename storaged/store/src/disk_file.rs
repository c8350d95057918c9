//! One file of the store: positioned reads and writes through the page cache, space, and syncs.
//!
//! Every change that the engine makes to blocks, checksums or journal goes through here, so that tests can record it,
//! cut it off and make it fail (`tape.rs`). Creation of files and renames are in `directory.rs`.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

/// Most buffers that the kernel takes in one call (UIO_MAXIOV).
const MAX_BUFFERS: usize = 1024;

pub(crate) struct DiskFile {
    file: File,
    /// Changed since the last sync.
    dirty: AtomicBool,
    #[cfg(test)]
    tape: Option<crate::tape::Handle>,
}

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Allowed,
    /// Answers `WouldBlock` when the range is not in the page cache.
    Never,
}

impl DiskFile {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self::new(file, path))
    }

    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Self::new(file, path))
    }

    #[cfg_attr(not(test), expect(unused_variables, reason = "only the tests' tape wants the name"))]
    fn new(file: File, path: &Path) -> Self {
        Self {
            file,
            dirty: AtomicBool::new(false),
            #[cfg(test)]
            tape: crate::tape::Handle::of(path),
        }
    }

    /// Reads exactly `len` bytes into a new buffer.
    pub(crate) fn read(&self, len: usize, offset: u64, wait: Wait) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(len)?;
        self.read_more(&mut buffer, len, offset, wait)?;
        Ok(buffer)
    }

    /// Reads exactly `len` bytes and appends them to `buffer`.
    pub(crate) fn read_more(&self, buffer: &mut Vec<u8>, len: usize, offset: u64, wait: Wait) -> io::Result<()> {
        let end = buffer.len().saturating_add(len);
        if wait == Wait::Never {
            let start = buffer.len();
            buffer.resize(end, 0);
            return self.read_into(buffer.get_mut(start..).unwrap_or_default(), offset, wait);
        }
        buffer.try_reserve_exact(len)?;
        let mut offset = offset;
        while buffer.len() < end {
            // What is reserved beyond `len` may be read too; it is cut off below.
            match rustix::io::pread(&self.file, spare_capacity(buffer), offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => offset += count as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        buffer.truncate(end);
        Ok(())
    }

    /// Fills `buffer`.
    pub(crate) fn read_into(&self, buffer: &mut [u8], offset: u64, wait: Wait) -> io::Result<()> {
        let mut rest = buffer;
        let mut offset = offset;
        while !rest.is_empty() {
            let result = match wait {
                Wait::Allowed => rustix::io::pread(&self.file, &mut *rest, offset),
                Wait::Never => {
                    let into = &mut [IoSliceMut::new(rest)];
                    rustix::io::preadv2(&self.file, into, offset, ReadWriteFlags::NOWAIT)
                }
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    offset += count as u64;
                    rest = rest.get_mut(count..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                // A file system that does not know the flag may always block.
                Err(Errno::OPNOTSUPP) if wait == Wait::Never => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes the concatenation of `parts` at `offset`. `parts` is used up.
    pub(crate) fn write(&self, mut parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.dirty.store(true, Ordering::Relaxed);
        #[cfg(test)]
        if let Some(tape) = &self.tape {
            tape.write(&self.file, parts, offset)?;
        }
        let mut offset = offset;
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let some = parts.get(..MAX_BUFFERS).unwrap_or(parts);
            match rustix::io::pwritev(&self.file, some, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut parts, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Makes a range read as zeros and gives its whole blocks back to the file system.
    pub(crate) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.dirty.store(true, Ordering::Relaxed);
        #[cfg(test)]
        if let Some(tape) = &self.tape {
            tape.punch(offset, len)?;
        }
        Ok(retry(|| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&self.file, flags, offset, len)
        })?)
    }

    /// Takes space for a range, so that writing it cannot fail for lack of space. Content stays. Makes the file longer
    /// if the range ends beyond it.
    pub(crate) fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        self.dirty.store(true, Ordering::Relaxed);
        #[cfg(test)]
        if let Some(tape) = &self.tape {
            tape.reserve()?;
        }
        Ok(retry(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, len))?)
    }

    /// First byte from `offset` on that is not in a hole of the file.
    pub(crate) fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes everything that was changed before durable. After an error the device has failed: the kernel may have
    /// dropped the pages, and a second try would report a success that is none.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if !self.dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        #[cfg(test)]
        if let Some(tape) = &self.tape {
            tape.sync()?;
        }
        Ok(retry(|| rustix::fs::fdatasync(&self.file))?)
    }

    /// Sets the length, without taking space.
    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    /// Makes length and content durable, once, after creation.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        self.dirty.store(false, Ordering::Relaxed);
        self.file.sync_all()
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(crate) fn allocated_bytes(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.file.metadata()?.blocks().saturating_mul(512))
    }
}

fn retry(mut call: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, DiskFile) {
        let dir = tempfile::tempdir().unwrap();
        let file = DiskFile::create(&dir.path().join("file")).unwrap();
        (dir, file)
    }

    #[test]
    fn write_when_there_are_more_buffers_than_one_call_takes_then_all_are_written() {
        let (_dir, file) = file();
        let bytes: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
        let mut parts: Vec<IoSlice<'_>> = bytes.chunks(2).map(IoSlice::new).collect();
        parts.insert(0, IoSlice::new(&[]));
        file.write(&mut parts, 3).unwrap();
        assert_eq!(file.read(5000, 3, Wait::Allowed).unwrap(), bytes);
        let mut more = vec![9];
        file.read_more(&mut more, 4, 3, Wait::Allowed).unwrap();
        assert_eq!(more, [9, 0, 1, 2, 3]);
    }

    #[test]
    fn read_when_beyond_the_end_then_an_error() {
        let (_dir, file) = file();
        file.set_len(10).unwrap();
        assert_eq!(file.read(11, 0, Wait::Allowed).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(file.read_into(&mut [0; 5], 8, Wait::Allowed).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn punch_when_the_range_is_unaligned_then_zeros_there_only() {
        let (_dir, file) = file();
        file.write(&mut [IoSlice::new(&[7; 20_000])], 0).unwrap();
        file.punch(5, 15_000).unwrap();
        let bytes = file.read(20_000, 0, Wait::Allowed).unwrap();
        assert!(bytes[..5].iter().chain(&bytes[15_005..]).all(|byte| *byte == 7));
        assert!(bytes[5..15_005].iter().all(|byte| *byte == 0));
        assert_eq!(file.len().unwrap(), 20_000);
    }
}
