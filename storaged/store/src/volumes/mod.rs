//! Volumes on top of the engine: the [`Store`] that the storage daemon talks to.
//!
//! The engine knows shards and whole blocks. This module makes volumes of any size and byte ranges of any alignment of
//! them. It owns the volume records, the locks that make a change of a part of a block atomic, and the order of each
//! shard's changes. It never touches the disk itself, and never blocks a thread for it: what has to wait is a
//! continuation.
//!
//! Start reading in `volume.rs` (the life of an operation), then `change.rs` and `read.rs`. `split.rs` says which blocks a
//! byte range is, `ranges.rs` who has to wait for whom, `order.rs` in what order the engine gets changes, `flight.rs` what a
//! flush waits for, `turn.rs` how continuations call each other, `record.rs` what the catalogue holds, and `blocks.rs` what
//! is asked of the engine.
//!
//! Why blocks are atomic registers: the engine applies the changes of a shard one after the other, each as a whole, and
//! its reads see durable blocks as a whole. A change of a part of a block is a read and a change of the whole block,
//! between which nothing else changes that block.

mod blocks;
mod change;
mod flight;
mod merge;
mod order;
mod ranges;
mod read;
pub(crate) mod record;
mod split;
mod turn;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use holdfast_proto::ids::VolumeId;

pub(crate) use self::blocks::Blocks;
pub use self::record::MAX_VOLUME_BYTES;
use self::volume::Volume;
use crate::catalogue::{Catalogue, CatalogueError, Changes};
use crate::error::{Context, IoContext, OpenError, StoreError, VolumeError};
use crate::format::FormatError;
use crate::format::keys::{self, Table};
use crate::store::{Completion, Kind, NewVolume, Operation, Store, Usage, VolumeRecord};

/// The volumes of one disk.
pub(crate) struct Volumes {
    blocks: Arc<dyn Blocks>,
    volumes: RwLock<BTreeMap<VolumeId, Arc<Volume>>>,
    creation: Mutex<Creation>,
}

/// Held by the one creation at a time.
struct Creation {
    /// Id of the next volume.
    next_id: u64,
    /// Why there can be no more volumes.
    refused: Option<StoreError>,
}

impl Volumes {
    /// Reads which volumes there are. `catalogue_path` is what errors name.
    pub(crate) fn open(blocks: Arc<dyn Blocks>, catalogue_path: &Path) -> Result<Self, OpenError> {
        let (records, next_id) = load(&**blocks.catalogue(), catalogue_path)?;
        let open = |record: VolumeRecord| (record.id, Arc::new(Volume::new(record, Arc::clone(&blocks))));
        let volumes = records.into_iter().map(open).collect();
        Ok(Self { blocks, volumes: RwLock::new(volumes), creation: Mutex::new(Creation { next_id, refused: None }) })
    }

    fn get(&self, id: VolumeId) -> Option<Arc<Volume>> {
        self.read().get(&id).cloned()
    }

    /// Makes record and counter durable.
    fn commit(&self, record: &VolumeRecord, creation: &mut Creation) -> Result<(), VolumeError> {
        let mut changes = Changes::default();
        changes.put(keys::volume(record.id), record::encode(record));
        changes.put(record::counter_key(), record::encode_counter(record.id.0 + 1));
        let unavailable = match self.blocks.catalogue().commit(&changes) {
            Ok(()) => return Ok(()),
            // Nothing was changed.
            Err(CatalogueError::NoSpace { .. }) => StoreError::NoSpace,
            // Nobody knows whether the volume is there, until the store is opened again.
            Err(error @ (CatalogueError::Corrupt { .. } | CatalogueError::Failed { .. })) => {
                tracing::error!(%error, volume = %record.name, "cannot make a volume, nor any other until the store is opened anew");
                let error = StoreError::DeviceFailed(error.to_string().into());
                creation.refused = Some(error.clone());
                error
            }
        };
        Err(VolumeError::Unavailable(unavailable))
    }

    fn new_naa(&self) -> Result<u64, IoContext> {
        let path = Path::new("/dev/urandom");
        let mut file = File::open(path).context("open", path)?;
        loop {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes).context("read", path)?;
            let naa = record::NAA_LOCAL | (u64::from_ne_bytes(bytes) >> 4);
            if self.read().values().all(|volume| volume.record.naa != naa) {
                return Ok(naa);
            }
        }
    }

    fn creation(&self) -> MutexGuard<'_, Creation> {
        self.creation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<VolumeId, Arc<Volume>>> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Volumes {
    fn volumes(&self) -> Vec<VolumeRecord> {
        self.read().values().map(|volume| volume.record.clone()).collect()
    }

    fn create_volume(&self, new: NewVolume) -> Result<VolumeRecord, VolumeError> {
        let NewVolume { name, size_bytes, block_size, kind, read_only } = new;
        if !record::is_size(size_bytes, block_size) {
            let block_size = block_size.bytes();
            return Err(VolumeError::BadSize { size_bytes, block_size, max_bytes: MAX_VOLUME_BYTES });
        }
        let mut creation = self.creation();
        if let Some(error) = &creation.refused {
            return Err(VolumeError::Unavailable(error.clone()));
        }
        self.blocks.health().map_err(VolumeError::Unavailable)?;
        if self.read().values().any(|volume| volume.record.name == name) {
            return Err(VolumeError::NameTaken(name));
        }
        let id = VolumeId(creation.next_id);
        let record = VolumeRecord { id, name, naa: self.new_naa()?, size_bytes, block_size, kind, read_only };
        self.commit(&record, &mut creation)?;
        creation.next_id += 1;
        let volume = Arc::new(Volume::new(record.clone(), Arc::clone(&self.blocks)));
        self.volumes.write().unwrap_or_else(PoisonError::into_inner).insert(id, volume);
        tracing::info!(volume = %id, name = %record.name, size_bytes, "volume made");
        Ok(record)
    }

    fn submit(&self, volume: VolumeId, operation: Operation, done: Completion) {
        match self.get(volume) {
            Some(volume) => volume.submit(operation, done),
            None => done(Err(StoreError::NoSuchVolume)),
        }
    }

    fn usage(&self, volume: VolumeId) -> Option<Usage> {
        let volume = self.get(volume)?;
        let allocated_bytes = match volume.record.kind {
            Kind::Disk => self.blocks.allocated_bytes(volume.record.id),
            Kind::Null => 0,
        };
        Some(Usage { allocated_bytes })
    }

    fn close(&self) {
        self.creation().refused = Some(StoreError::Closed);
        let volumes: Vec<_> = self.read().values().cloned().collect();
        volumes.iter().for_each(|volume| volume.refuse());
        // What is in flight may be waiting for the completion that calls this.
        if turn::is_active() {
            return;
        }
        volumes.iter().for_each(|volume| volume.wait());
        self.blocks.close();
    }
}

impl Drop for Volumes {
    fn drop(&mut self) {
        self.close();
    }
}

/// All volume records, by id, and the id of the next volume.
fn load(catalogue: &dyn Catalogue, path: &Path) -> Result<(Vec<VolumeRecord>, u64), OpenError> {
    let corrupt = |detail: String| OpenError::Corrupt { path: path.to_owned(), detail };
    let format_error = |error| match error {
        FormatError::Newer { version, known, .. } => OpenError::NewerFormat { path: path.to_owned(), version, known },
        error @ FormatError::Corrupt { .. } => corrupt(error.to_string()),
    };
    let mut counter = None;
    let mut records = Vec::new();
    let mut result = Ok(());
    let range = Table::Volume.range();
    let visited = catalogue.range(&range.start, &range.end, &mut |key, value| {
        result = if key == record::counter_key() {
            record::parse_counter(value).map(|next_id| counter = Some(next_id))
        } else {
            record::parse(key, value).map(|record| records.push(record))
        };
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    visited.map_err(|error| match error {
        CatalogueError::Corrupt { detail } => corrupt(detail),
        CatalogueError::NoSpace { .. } | CatalogueError::Failed { .. } => {
            IoContext { action: "read", path: path.to_owned(), source: io::Error::other(error) }.into()
        }
    })?;
    result.map_err(format_error)?;
    let next_id = match (counter, records.last()) {
        (None, None) => 1,
        (None, Some(_)) => return Err(corrupt("it has volumes and no counter of them".into())),
        (Some(next_id), Some(last)) if last.id.0 >= next_id => {
            return Err(corrupt(format!("volume {} has an id that was not given yet", last.id)));
        }
        (Some(next_id), _) => next_id,
    };
    let (mut names, mut naas) = (BTreeSet::new(), BTreeSet::new());
    for record in &records {
        if !names.insert(record.name.clone()) || !naas.insert(record.naa) {
            return Err(corrupt(format!("volume {} has the name or the identifier of another volume", record.id)));
        }
    }
    Ok((records, next_id))
}

#[cfg(test)]
mod tests;
