//! The store that keeps blocks in files: puts directory, catalogue, journal and threads together.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use holdfast_proto::block::message::MAX_PAYLOAD_BYTES;
use holdfast_proto::checksum;
use holdfast_proto::ids::VolumeId;

use crate::catalogue::{Catalogue, Volume};
use crate::commit::{Committer, Health, Job};
use crate::directory::{Directory, DiskUuid, random};
use crate::error::{Context, OpenError, StoreError, VolumeError, no_such_target};
use crate::journal::{Journal, Record};
use crate::queue::Queue;
use crate::read::{Reads, join_others};
use crate::store::{Completion, MAX_OPERATION_BYTES, NewVolume, Operation, Output, Store, Usage, VolumeRecord};
use crate::volume::zeros;

/// Settings of a [`FileStore`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the journal; when it is full everything is synced and it starts anew. At least a few MiB make sense. On a
    /// file system in memory, where a sync costs nothing, at most 4 MiB are used: these stay in the processor's cache; space is
    /// taken for one longest write all the same.
    pub journal_bytes: u64,
    /// Threads for reads that are not in the page cache.
    pub reader_threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { journal_bytes: 64 << 20, reader_threads: 4 }
    }
}

/// Largest journal on a file system in memory.
const IN_MEMORY_JOURNAL_BYTES: u64 = 4 << 20;

/// Space that a journal takes even if it is to be shorter: for the longest write of a client, with its records.
const LONGEST_WRITE_BYTES: u64 = MAX_PAYLOAD_BYTES as u64 + (64 << 10);

/// A [`Store`] in one directory, on a file system that can take space in advance and punch holes (ext4, XFS, tmpfs).
///
/// On a file system that writes elsewhere what is overwritten (btrfs), a full disk fails the device; nothing
/// acknowledged is lost even then.
pub struct FileStore {
    catalogue: Arc<Catalogue>,
    commit: Arc<Queue<Job>>,
    health: Arc<Health>,
    reads: Reads,
    /// The commit thread; taken by the first close.
    committer: Mutex<Option<JoinHandle<()>>>,
}

impl FileStore {
    /// Opens the store in `dir`, or makes an empty one there. Repairs from the journal what a crash tore.
    pub fn open(dir: &Path, options: &Options) -> Result<Self, OpenError> {
        let directory = Directory::lock(dir)?;
        let disk = match directory.uuid() {
            Some(disk) => disk,
            None => create(&directory)?,
        };
        let catalogue = Arc::new(Catalogue::open(dir)?);
        let in_memory = is_in_memory(dir)?;
        let most = if in_memory { IN_MEMORY_JOURNAL_BYTES } else { u64::MAX };
        let journal_bytes = options.journal_bytes.min(most);
        let journal_path = dir.join("journal");
        let reserve_bytes = options.journal_bytes.min(LONGEST_WRITE_BYTES);
        let mut journal =
            Journal::open(dir, disk, journal_bytes, reserve_bytes, |record| redo(&catalogue, &journal_path, &record))?;
        if !journal.is_empty() {
            for volume in catalogue.all() {
                volume.files.iter().try_for_each(|files| files.sync()).context("sync the volumes in", dir)?;
            }
            journal.restart().context("start anew", &journal_path)?;
        }
        let commit = Arc::new(Queue::new());
        let health = Arc::new(Health::default());
        let reads = Reads::start(Arc::clone(&commit), Arc::clone(&health), in_memory, options.reader_threads)
            .context("start threads for", dir)?;
        let committer = Committer {
            queue: Arc::clone(&commit),
            catalogue: Arc::clone(&catalogue),
            health: Arc::clone(&health),
            journal,
            _directory: directory,
        };
        let committer = thread::Builder::new().name("store-commit".into()).spawn(move || committer.run());
        let committer = committer.context("start threads for", dir)?;
        Ok(Self { catalogue, commit, health, reads, committer: Mutex::new(Some(committer)) })
    }

    fn start(&self, volume: &Volume, operation: Operation, done: Completion) {
        let Some(files) = &volume.files else {
            return done(Ok(null(operation)));
        };
        match operation {
            Operation::Read { offset, len } => self.reads.submit(Arc::clone(files), offset, len, done),
            operation => {
                if let Err(job) = self.commit.push(Job { files: Arc::clone(files), operation, done }) {
                    (job.done)(Err(StoreError::Closed));
                }
            }
        }
    }
}

impl Store for FileStore {
    fn volumes(&self) -> Vec<VolumeRecord> {
        self.catalogue.all().iter().map(|volume| volume.record.clone()).collect()
    }

    fn create_volume(&self, new: NewVolume) -> Result<VolumeRecord, VolumeError> {
        // Held against a close, which lets another process in.
        let committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner);
        if committer.is_none() {
            return Err(VolumeError::Unavailable(StoreError::Closed));
        }
        self.health.check().map_err(VolumeError::Unavailable)?;
        self.catalogue.create_volume(new)
    }

    fn submit(&self, volume: VolumeId, operation: Operation, done: Completion) {
        let Some(volume) = self.catalogue.get(volume) else {
            return done(Err(StoreError::NoSuchVolume));
        };
        match admit(&volume.record, &operation).and_then(|()| self.health.check()) {
            Ok(()) => self.start(&volume, operation, done),
            Err(error) => done(Err(error)),
        }
    }

    fn usage(&self, volume: VolumeId) -> Option<Usage> {
        let volume = self.catalogue.get(volume)?;
        let Some(files) = &volume.files else {
            return Some(Usage::default());
        };
        match files.allocated_bytes() {
            Ok(allocated_bytes) => Some(Usage { allocated_bytes }),
            Err(error) => {
                tracing::warn!(volume = %volume.record.id, %error, "cannot tell the space that a volume takes");
                None
            }
        }
    }

    fn close(&self) {
        self.reads.close();
        self.commit.close();
        let committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner).take();
        join_others(committer);
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.close();
    }
}

fn create(directory: &Directory) -> Result<DiskUuid, OpenError> {
    let disk = DiskUuid(random()?);
    Catalogue::create(directory.path())?;
    Journal::create(directory.path(), disk)?;
    directory.complete(disk)?;
    Ok(disk)
}

fn redo(catalogue: &Catalogue, journal_path: &Path, record: &Record) -> Result<(), OpenError> {
    let volume = catalogue.get(record.volume);
    let files = volume.as_ref().and_then(|volume| volume.files.as_ref()).filter(|files| files.holds(record));
    let files = files.ok_or_else(|| no_such_target(journal_path, record.volume))?;
    Ok(files.apply(record).context("carry out what is in", journal_path)?)
}

/// Everything that can be said of an operation before it starts.
fn admit(volume: &VolumeRecord, operation: &Operation) -> Result<(), StoreError> {
    let (offset, len, most) = match operation {
        Operation::Flush => return Ok(()),
        Operation::Read { offset, len } => (*offset, *len, MAX_OPERATION_BYTES),
        Operation::Write { offset, data, .. } => (*offset, checksum::len_bytes(data), MAX_OPERATION_BYTES),
        Operation::Unmap { offset, len } => (*offset, *len, u64::MAX),
    };
    if volume.read_only && !matches!(operation, Operation::Read { .. }) {
        return Err(StoreError::ReadOnly);
    }
    if offset.checked_add(len).is_none_or(|end| end > volume.size_bytes) {
        return Err(StoreError::OutOfRange);
    }
    if len > most { Err(StoreError::TooLong) } else { Ok(()) }
}

/// What a null volume answers.
fn null(operation: Operation) -> Output {
    match operation {
        Operation::Read { offset, len } => Output { data: zeros(len), checksums: checksum::of_zeros(offset, len) },
        Operation::Write { .. } | Operation::Unmap { .. } | Operation::Flush => Output::default(),
    }
}

/// Whether the file system keeps files in memory only, so that reading one never waits for a disk.
fn is_in_memory(dir: &Path) -> Result<bool, OpenError> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let kind = rustix::fs::statfs(dir).context("look at", dir)?.f_type;
    Ok([TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind))
}

#[cfg(test)]
pub(crate) mod tests;
