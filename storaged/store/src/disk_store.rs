//! The store of a node: puts directory, data file, catalogue, engine and volumes together.

use std::path::Path;
use std::sync::Arc;

use holdfast_proto::ids::VolumeId;

use crate::catalogue::rocks::{RocksCatalogue, RocksSettings};
use crate::catalogue::{Catalogue, CatalogueError};
use crate::device::{Device, FileDevice};
use crate::directory::{self, Directory, NewDirectory, Opened};
use crate::engine::{Engine, EngineSettings, EngineStatistics, FreeSpace};
use crate::error::{Context, IoContext, OpenError, VolumeError, corrupt};
use crate::format::checkpoint::IdentityRecord;
use crate::format::{FormatError, Superblock, keys};
use crate::journal::ScanError;
use crate::machine::Bounds;
use crate::operation::Applied;
use crate::recovery::{self, RecoverError, Recovered};
use crate::store::{Completion, NewVolume, Operation, Store, Usage, VolumeRecord};
use crate::volumes::Volumes;

/// Settings of a [`DiskStore`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The node that the directory belongs to, or will.
    pub node_id: u64,
    /// Size of the journal of a store that is made, bytes, at least 32 MiB; an existing one keeps its size.
    pub journal_bytes: u64,
    /// Memory for blocks and map entries, bytes, at least 32 MiB: half of it for journalled blocks on their way to their
    /// places, a quarter each for cached map entries and for the catalogue. Beyond it, 4 KiB are taken for each GiB of volumes
    /// that holds data.
    pub memory_bytes: u64,
    /// Threads for reads that wait for the disk, 1 to 64.
    pub reader_threads: usize,
    /// What the data file leaves free on its file system, bytes; for the catalogue, which grows beside it.
    pub space_reserve_bytes: u64,
    /// Share of the usable space in use, per cent, 1 to 100, from which space counts as low: a warning, and a metric.
    pub soft_threshold_percent: u8,
    /// How fast the weekly scrub reads, bytes a second; 0: there is none.
    pub scrub_bytes_per_second: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node_id: 1,
            journal_bytes: 128 << 20,
            memory_bytes: 128 << 20,
            reader_threads: 4,
            space_reserve_bytes: 64 << 20,
            soft_threshold_percent: 80,
            scrub_bytes_per_second: 32 << 20,
        }
    }
}

/// Least size of a journal: the longest write, even where all of it has to be journalled, takes a quarter of it.
const MIN_JOURNAL_BYTES: u64 = 48 << 20;

const MIN_MEMORY_BYTES: u64 = 32 << 20;

/// Slots of a new store.
const FIRST_SLOTS: u32 = 256;

/// Volumes of blocks in one directory.
pub struct DiskStore {
    volumes: Volumes,
    engine: Arc<Engine>,
    /// Gone last, so that no other process comes in before everything has stopped.
    _directory: Directory,
}

impl DiskStore {
    /// Opens the store in `dir`, or makes an empty one there. Repairs from the journal what a crash left undone.
    pub fn open(dir: &Path, options: &Options) -> Result<Self, OpenError> {
        if cfg!(feature = "mutant-skip-sync") {
            tracing::warn!("built with mutant-skip-sync: nothing is durable, a power cut loses what was acknowledged");
        }
        let memory_bytes = options.memory_bytes.max(MIN_MEMORY_BYTES);
        let rocks = RocksSettings {
            memory_bytes: usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX),
            ..RocksSettings::default()
        };
        let directory = match directory::open(dir, options.node_id)? {
            Opened::Store(directory) => directory,
            Opened::Empty(new) => create(new, options, &rocks)?,
        };
        let (data_path, catalogue_path) = (directory.data_path(), directory.catalogue_path());
        let device = FileDevice::open(&data_path).context("open", &data_path)?;
        // Before the catalogue is opened, which writes to its folder: what is refused stays as it is.
        let superblock = recovery::superblock(&device).map_err(|error| open_error(&directory, error))?;
        check_disk(&directory, &device, &superblock)?;
        let catalogue =
            RocksCatalogue::open(&catalogue_path, &rocks).map_err(|error| catalogue_error(&catalogue_path, error))?;
        let (device, catalogue): (Arc<dyn Device>, Arc<dyn Catalogue>) = (Arc::new(device), Arc::new(catalogue));
        check_catalogue(&directory, &*catalogue)?;
        let bounds = Bounds { overlay_bytes: memory_bytes / 2, ..Bounds::default() };
        let recovered: Recovered<Applied> = recovery::recover(&*device, &*catalogue, &superblock, bounds)
            .map_err(|error| open_error(&directory, error))?;
        if recovered.batches > 0 {
            tracing::info!(dir = %dir.display(), batches = recovered.batches, torn = recovered.torn, "journal replayed");
        }
        let settings = EngineSettings {
            reader_threads: options.reader_threads.clamp(1, 64),
            cold_map_bytes: memory_bytes / 4,
            space_reserve_bytes: options.space_reserve_bytes,
            soft_threshold_percent: options.soft_threshold_percent.clamp(1, 100),
            scrub_bytes_per_second: options.scrub_bytes_per_second,
        };
        let space = Box::new(FileSystem(data_path));
        let engine = Engine::start(device, catalogue, recovered, superblock.uuid, space, settings)
            .context("start threads for", dir)?;
        let engine = Arc::new(engine);
        let volumes = Volumes::open(engine.clone(), &catalogue_path)?;
        Ok(Self { volumes, engine, _directory: directory })
    }

    /// The shards below the volumes.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl Store for DiskStore {
    fn volumes(&self) -> Vec<VolumeRecord> {
        self.volumes.volumes()
    }

    fn create_volume(&self, new: NewVolume) -> Result<VolumeRecord, VolumeError> {
        self.volumes.create_volume(new)
    }

    fn submit(&self, volume: VolumeId, operation: Operation, done: Completion) {
        self.volumes.submit(volume, operation, done);
    }

    fn usage(&self, volume: VolumeId) -> Option<Usage> {
        self.volumes.usage(volume)
    }

    fn statistics(&self) -> Option<EngineStatistics> {
        Some(self.engine.statistics())
    }

    fn failure(&self) -> Option<Arc<str>> {
        self.engine.failure()
    }

    fn close(&self) {
        self.volumes.close();
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes an empty store; the directory counts as one only when all of it is durable.
fn create(new: NewDirectory, options: &Options, rocks: &RocksSettings) -> Result<Directory, OpenError> {
    let (data_path, catalogue_path) = (new.data_path(), new.catalogue_path());
    let identity = new.identity();
    let key = directory::random()?;
    let journal_bytes = options.journal_bytes.max(MIN_JOURNAL_BYTES);
    let superblock = Superblock::new(identity.uuid, identity.node_id, key, journal_bytes)
        .ok_or_else(|| corrupt(&data_path, format!("a journal of {journal_bytes} bytes is not possible")))?;
    let device = FileDevice::create(&data_path, 0).context("create", &data_path)?;
    let catalogue =
        RocksCatalogue::open(&catalogue_path, rocks).map_err(|error| catalogue_error(&catalogue_path, error))?;
    recovery::create(&device, &catalogue, &superblock, FIRST_SLOTS).map_err(|error| match error {
        RecoverError::Io { action, source } => IoContext { action, path: data_path.clone(), source }.into(),
        error => corrupt(&catalogue_path, error.to_string()),
    })?;
    drop(catalogue);
    new.complete()
}

/// The data file has to be of the directory's disk, and to have its journal.
fn check_disk(directory: &Directory, device: &FileDevice, superblock: &Superblock) -> Result<(), OpenError> {
    let (found, expected) = (superblock.uuid, directory.identity().uuid);
    if found != expected {
        let detail = format!("it is of disk {found}, the directory of disk {expected}");
        return Err(corrupt(&directory.data_path(), detail));
    }
    let (len, journal_end) = (device.len_bytes(), superblock.slots_offset);
    if len < journal_end {
        let detail = format!("it was cut: it ends at byte {len}, its journal at {journal_end}");
        return Err(corrupt(&directory.data_path(), detail));
    }
    Ok(())
}

/// The catalogue has to be of the directory's disk and node.
fn check_catalogue(directory: &Directory, catalogue: &dyn Catalogue) -> Result<(), OpenError> {
    let (path, identity) = (directory.catalogue_path(), directory.identity());
    let value = catalogue.get(&keys::identity()).map_err(|error| catalogue_error(&path, error))?;
    let value = value.ok_or_else(|| corrupt(&path, "it does not say which disk it belongs to"))?;
    let found = IdentityRecord::parse(&value).map_err(|error| format_error(&path, error))?;
    if (found.uuid, found.node_id) != (identity.uuid, identity.node_id) {
        let (disk, node) = (identity.uuid, identity.node_id);
        let detail = format!(
            "it is of disk {} of node {}, the directory of disk {disk} of node {node}",
            found.uuid, found.node_id
        );
        return Err(corrupt(&path, detail));
    }
    Ok(())
}

fn open_error(directory: &Directory, error: RecoverError) -> OpenError {
    let (data_path, catalogue_path) = (directory.data_path(), directory.catalogue_path());
    match error {
        RecoverError::Journal(ScanError::Newer { source, .. }) => format_error(&data_path, source),
        RecoverError::Journal(ScanError::Io { source, .. }) => {
            IoContext { action: "read", path: data_path, source }.into()
        }
        RecoverError::Io { action, source } => IoContext { action, path: data_path, source }.into(),
        RecoverError::Journal(error @ ScanError::Corrupt { .. }) => corrupt(&data_path, error.to_string()),
        RecoverError::Superblock(error) => format_error(&data_path, error),
        RecoverError::Catalogue(error) => catalogue_error(&catalogue_path, error),
        RecoverError::Format(error) => format_error(&catalogue_path, error),
        error @ (RecoverError::Apply { .. }
        | RecoverError::Allocation(_)
        | RecoverError::OtherDisk { .. }
        | RecoverError::NoCheckpoint) => corrupt(&catalogue_path, error.to_string()),
    }
}

fn format_error(path: &Path, error: FormatError) -> OpenError {
    match error {
        FormatError::Newer { version, known, .. } => OpenError::NewerFormat { path: path.to_owned(), version, known },
        FormatError::Corrupt { .. } => corrupt(path, error.to_string()),
    }
}

fn catalogue_error(path: &Path, error: CatalogueError) -> OpenError {
    match error {
        CatalogueError::Corrupt { detail } => corrupt(path, detail),
        CatalogueError::NoSpace { detail } | CatalogueError::Failed { detail } => {
            IoContext { action: "use", path: path.to_owned(), source: std::io::Error::other(detail) }.into()
        }
    }
}

/// The file system that a file lies in.
struct FileSystem(std::path::PathBuf);

impl FreeSpace for FileSystem {
    fn free_bytes(&self) -> u64 {
        match rustix::fs::statvfs(&self.0) {
            Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
            Err(error) => {
                tracing::warn!(path = %self.0.display(), %error, "cannot tell how much space is left");
                u64::MAX
            }
        }
    }
}

#[cfg(test)]
mod tests;
