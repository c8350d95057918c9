//! A disk that is a file of a real file system.
//!
//! Direct I/O where the file system has it: then data goes once over the memory bus, the page cache does not hold a second
//! copy of what the engine caches itself, and an error belongs to the write that met it. Whether it has it is found out
//! by trying, not by the file system's name: overlays differ with what lies below them. Only what lies in memory is not asked.
//!
//! What was chosen by measuring (docs/measurements.md, "Disk access"; `benches/disk.rs`):
//!
//! - Writes of a call that lie side by side are joined; of four and more places helper threads write some
//!   (`file/parallel.rs`). io_uring is as fast as they are and takes less than half of their CPU for sixteen scattered slots; but
//!   slots are mostly given out side by side, where joining takes less still, it is no faster for the single append
//!   that most batches are, and many containers forbid it: not worth its unsafe code and a second way of writing.
//! - A batch is made durable by fdatasync. RWF_DSYNC is not clearly faster for a single write, and does nothing for a
//!   batch of several: so there is one way, and one call whose failure means the end of the device.

mod grow;
mod parallel;
mod probe;
mod transfer;

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use self::parallel::Writer;
use self::transfer::read_exact;
use super::{Device, DeviceStatistics, DeviceTraits, DeviceWrite, check_len, check_range, check_writes};
use bytes::Bytes;

/// The file, open for as long as the value lives.
#[derive(Debug)]
pub struct FileDevice {
    path: PathBuf,
    file: Arc<File>,
    writer: Writer,
    read_only: bool,
    traits: DeviceTraits,
    len_bytes: AtomicU64,
    /// One grows at a time.
    growing: Mutex<()>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    bytes_read: AtomicU64,
    writes: AtomicU64,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
}

impl FileDevice {
    /// Makes a file of `len_bytes`, all of which is taken; the file and its name are durable when it returns. One that exists
    /// is refused as `AlreadyExists`. After an error there is no such file.
    pub fn create(path: &Path, len_bytes: u64) -> io::Result<Self> {
        check_len(len_bytes)?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let made = Self::with_file(path, file, false).and_then(|device| {
            device.grow(len_bytes)?;
            device.file.sync_all()?;
            sync_folder_of(path)?;
            Ok(device)
        });
        if made.is_err() {
            // The first error is the one to tell; a file that stays behind is found by the directory's next creation.
            let _unlinked = std::fs::remove_file(path);
        }
        made
    }

    /// Opens what [`create`](Self::create) made. A length that is no multiple of the alignment means that the file was cut or is
    /// no device: `InvalidData`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Self::with_file(path, file, false)
    }

    /// As [`open`](Self::open), and whatever would change it fails as `PermissionDenied`. Works on a read-only file system.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).open(path)?;
        Self::with_file(path, file, true)
    }

    /// As [`open`](Self::open), through the page cache whatever the file system has. For measuring.
    pub fn open_buffered(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let instant = probe::lies_in_memory(&file)?;
        let traits = DeviceTraits { instant, direct: false, memory_align: 1 };
        Self::with_traits(path, file, traits, false)
    }

    fn with_file(path: &Path, file: File, read_only: bool) -> io::Result<Self> {
        // Newer kernels take the flag on tmpfs, where it only costs: aligned copies, and no page cache is spared.
        let instant = probe::lies_in_memory(&file)?;
        let direct = if instant { None } else { probe::open_direct(path, &file, read_only)? };
        let (file, direct, memory_align) = match direct {
            Some((direct, memory_align)) => (direct, true, memory_align),
            None => (file, false, 1),
        };
        Self::with_traits(path, file, DeviceTraits { instant, direct, memory_align }, read_only)
    }

    fn with_traits(path: &Path, file: File, traits: DeviceTraits, read_only: bool) -> io::Result<Self> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let len_bytes = metadata.len();
        if check_len(len_bytes).is_err() {
            let detail =
                format!("its length of {len_bytes} bytes is no multiple of {}: it was cut", super::DEVICE_ALIGN);
            return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
        }
        let file = Arc::new(file);
        Ok(Self {
            path: path.to_owned(),
            writer: Writer::new(Arc::clone(&file), traits.memory_align, traits.direct && !traits.instant),
            file,
            read_only,
            traits,
            len_bytes: AtomicU64::new(len_bytes),
            growing: Mutex::new(()),
            counters: Counters::default(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.read_only {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only"))
        } else {
            Ok(())
        }
    }
}

impl Device for FileDevice {
    fn traits(&self) -> DeviceTraits {
        self.traits
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        check_range("a read", offset, len as u64, self.len_bytes())?;
        let bytes = read_exact(&self.file, offset, len, self.traits.memory_align)?;
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes_read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    fn write(&self, writes: &[DeviceWrite]) -> io::Result<()> {
        self.check_writable()?;
        check_writes(writes, self.len_bytes())?;
        self.writer.write(writes)?;
        self.counters.writes.fetch_add(writes.len() as u64, Ordering::Relaxed);
        let bytes = writes.iter().map(DeviceWrite::len_bytes).sum();
        self.counters.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn write_durably(&self, writes: &[DeviceWrite]) -> io::Result<()> {
        self.write(writes)?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        if cfg!(feature = "mutant-skip-sync") {
            return Ok(());
        }
        self.file.sync_data()?;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn grow(&self, len_bytes: u64) -> io::Result<()> {
        self.check_writable()?;
        check_len(len_bytes)?;
        let _one = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.len_bytes();
        if len_bytes <= before {
            return Ok(());
        }
        grow::grow(&self.file, before, len_bytes, self.traits.memory_align)?;
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.len_bytes.store(len_bytes, Ordering::Release);
        Ok(())
    }

    fn statistics(&self) -> DeviceStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { reads, bytes_read, writes, bytes_written, syncs } = &self.counters;
        DeviceStatistics {
            reads: read(reads),
            bytes_read: read(bytes_read),
            writes: read(writes),
            bytes_written: read(bytes_written),
            syncs: read(syncs),
        }
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}
