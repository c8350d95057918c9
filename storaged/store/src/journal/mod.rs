//! The redo journal: what is changed in data and checksum files is first made durable here.
//!
//! Append-only within a *generation*. Starting anew means writing a header with the next generation; what lies
//! behind it belongs to an older generation then and is never replayed. Layouts are in `layout.rs`; reading back is in
//! `replay.rs`.
//!
//! One batch is one write and one sync, however many operations it carries, and takes effect whole or not at all.

mod holes;
mod layout;
mod replay;

use std::fs;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use holdfast_proto::checksum;
use holdfast_proto::ids::VolumeId;
use holdfast_proto::units::BLOCK_BYTES;

use crate::directory::{DiskUuid, rename_durably};
use crate::disk_file::DiskFile;
use crate::error::{Context, IoContext, OpenError};
use crate::journal::layout::{BATCHES_AT, Link, encode_batch, encode_slot, slot_at};
use crate::volume::is_no_space;

/// A change of whole blocks of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) volume: VolumeId,
    pub(crate) first_block: u64,
    pub(crate) change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// New content; as many checksum entries (see [`entry_of`]) as blocks.
    Write { entries: Vec<u32>, payload: Vec<Bytes> },
    /// So many blocks become holes.
    Hole { blocks: u64 },
}

/// What the checksums file keeps for a block with this crc32c: 0 is taken, it means a hole.
pub(crate) fn entry_of(crc: u32) -> u32 {
    crc.max(1)
}

impl Record {
    pub(crate) fn blocks(&self) -> u64 {
        match &self.change {
            Change::Write { entries, .. } => entries.len() as u64,
            Change::Hole { blocks } => *blocks,
        }
    }

    pub(crate) fn touches(&self, volume: VolumeId, first_block: u64, blocks: u64) -> bool {
        self.volume == volume
            && self.first_block < first_block.saturating_add(blocks)
            && first_block < self.first_block.saturating_add(self.blocks())
    }

    pub(crate) fn is_hole(&self) -> bool {
        matches!(self.change, Change::Hole { .. })
    }

    fn payload(&self) -> &[Bytes] {
        match &self.change {
            Change::Write { payload, .. } => payload,
            Change::Hole { .. } => &[],
        }
    }
}

/// The journal of one store, open for appending.
pub(crate) struct Journal {
    file: DiskFile,
    disk: DiskUuid,
    /// What the next batch is chained to.
    link: Link,
    /// Where the next batch goes.
    position: u64,
    /// Bytes of the file that space is taken for.
    reserved_bytes: u64,
    limit_bytes: u64,
    /// The part of a batch before its payload; kept for its memory.
    meta: Vec<u8>,
}

/// Why a batch was not appended.
pub(crate) enum AppendError {
    /// There is no room; nothing was written, and the journal goes on.
    NoSpace,
    /// The device has failed.
    Device(io::Error),
}

impl Journal {
    /// Makes an empty journal for a new store. A file that is there already is replaced.
    pub(crate) fn create(dir: &Path, disk: DiskUuid) -> Result<(), IoContext> {
        let path = path_in(dir);
        let new = path.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("remove", &new)?,
            _ => {}
        }
        let file = DiskFile::create(&new).context("create", &new)?;
        let (slot, _) = encode_slot(disk, 1);
        file.set_len(BATCHES_AT).context("extend", &new)?;
        file.write(&mut [IoSlice::new(&slot)], slot_at(1)).context("write", &new)?;
        file.sync_all().context("sync", &new)?;
        rename_durably(&new, &path)
    }

    /// Opens the journal and gives every record of it to `redo`, oldest first, without the blocks of writes that a later
    /// record makes holes of.
    ///
    /// It starts anew at `limit_bytes`, and takes space for `reserve_bytes`, at least as many: a batch that is larger by
    /// itself fits there too. On a full file system it makes do with the space that it has.
    pub(crate) fn open(
        dir: &Path,
        disk: DiskUuid,
        limit_bytes: u64,
        reserve_bytes: u64,
        redo: impl FnMut(Record) -> Result<(), OpenError>,
    ) -> Result<Self, OpenError> {
        let path = path_in(dir);
        let file = DiskFile::open(&path).context("open", &path)?;
        let end = replay::replay(&file, &path, disk, redo)?;
        let wanted_bytes = reserve_bytes.max(limit_bytes).max(BATCHES_AT);
        let reserved_bytes = match file.reserve(0, wanted_bytes) {
            Ok(()) => wanted_bytes,
            Err(error) if is_no_space(&error) => {
                // All of the file has space: nothing but a reservation or a write makes it longer.
                let len_bytes = file.len().context("read", &path)?;
                tracing::warn!(path = %path.display(), wanted_bytes, len_bytes, %error, "no space for a larger journal");
                len_bytes.max(BATCHES_AT).min(wanted_bytes)
            }
            Err(error) => Err(error).context("take space for", &path)?,
        };
        Ok(Self {
            file,
            disk,
            link: end.link,
            position: end.position,
            reserved_bytes,
            limit_bytes: limit_bytes.clamp(BATCHES_AT, reserved_bytes),
            meta: Vec::new(),
        })
    }

    /// Whether batches were appended since the journal was last started anew.
    pub(crate) fn is_empty(&self) -> bool {
        self.position == BATCHES_AT
    }

    /// Length at which it starts anew.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Whether to start anew before `records` are appended.
    pub(crate) fn is_full_for(&self, records: &[Record]) -> bool {
        !self.is_empty() && self.position.saturating_add(batch_bytes(records)) > self.limit_bytes
    }

    /// Appends one batch and makes it durable.
    pub(crate) fn append(&mut self, records: &[Record]) -> Result<(), AppendError> {
        let end = self.position.saturating_add(batch_bytes(records));
        if end > self.reserved_bytes {
            self.grow(end)?;
        }
        let next = encode_batch(&mut self.meta, self.disk, self.link, records);
        let payload = records.iter().flat_map(Record::payload).map(|part| IoSlice::new(part));
        let mut parts: Vec<IoSlice<'_>> = std::iter::once(IoSlice::new(&self.meta)).chain(payload).collect();
        self.file.write(&mut parts, self.position).map_err(AppendError::Device)?;
        self.file.sync().map_err(AppendError::Device)?;
        self.position = end;
        self.link = next;
        Ok(())
    }

    /// Starts a new generation. Everything that was appended must be durable in the data and checksum files.
    pub(crate) fn restart(&mut self) -> io::Result<()> {
        let generation = self.link.generation + 1;
        let (slot, link) = encode_slot(self.disk, generation);
        self.file.write(&mut [IoSlice::new(&slot)], slot_at(generation))?;
        self.file.sync()?;
        self.position = BATCHES_AT;
        self.link = link;
        Ok(())
    }

    /// Only a batch that is larger than the whole journal comes here.
    fn grow(&mut self, end: u64) -> Result<(), AppendError> {
        match self.file.reserve(self.reserved_bytes, end - self.reserved_bytes) {
            Ok(()) => {
                self.reserved_bytes = end;
                Ok(())
            }
            Err(error) if is_no_space(&error) => Err(AppendError::NoSpace),
            Err(error) => Err(AppendError::Device(error)),
        }
    }
}

fn batch_bytes(records: &[Record]) -> u64 {
    let payload: u64 = records.iter().map(|record| checksum::len_bytes(record.payload())).sum();
    layout::meta_bytes(records).next_multiple_of(BLOCK_BYTES) + payload
}

fn path_in(dir: &Path) -> PathBuf {
    dir.join("journal")
}

#[cfg(test)]
mod tests;
