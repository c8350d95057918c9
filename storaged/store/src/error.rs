//! Errors, by what the caller does next.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_proto::ids::VolumeName;
use thiserror::Error;

/// Why an operation was not carried out. Unless it says otherwise, nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The block at `offset` does not match its checksum: read it from another copy, or MEDIUM ERROR.
    #[error("checksum mismatch in the block at byte {offset}")]
    Checksum {
        /// Byte offset of the block in the volume.
        offset: u64,
    },
    /// The disk cannot read something that the operation needs: as [`StoreError::Checksum`].
    #[error("the range at byte {offset} cannot be read: {detail}")]
    Unreadable {
        /// Byte offset of the range in the volume.
        offset: u64,
        /// The system's error.
        detail: Arc<str>,
    },
    /// A write arrived with bytes that do not match its checksums (or the wrong number of them): send it again.
    #[error("the payload does not match its checksums at byte {offset}")]
    PayloadCorrupt {
        /// Byte offset of the first wrong piece.
        offset: u64,
    },
    /// No room for new blocks.
    #[error("no space left")]
    NoSpace,
    /// The range ends beyond the volume.
    #[error("the range ends beyond the volume")]
    OutOfRange,
    /// A read or write longer than [`MAX_OPERATION_BYTES`](crate::MAX_OPERATION_BYTES).
    #[error("the range is too long for one operation")]
    TooLong,
    /// The volume is not here.
    #[error("no such volume")]
    NoSuchVolume,
    /// The volume takes no writes.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The disk has failed and serves nothing until it is opened anew. Whether the operation took effect is
    /// not known.
    #[error("the disk has failed: {0}")]
    DeviceFailed(Arc<str>),
    /// [`Store::close`](crate::Store::close) was called.
    #[error("the store is closed")]
    Closed,
}

/// Why a volume was not made.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// Another volume has the name.
    #[error("a volume named {0} exists already")]
    NameTaken(VolumeName),
    /// Zero, not a multiple of the block size, or beyond the limit.
    #[error("size {size_bytes} is not a multiple of {block_size} between {block_size} and {max_bytes} bytes")]
    BadSize {
        /// What was asked for.
        size_bytes: u64,
        /// Logical block size.
        block_size: u32,
        /// Largest size.
        max_bytes: u64,
    },
    /// The store is closed or its disk has failed.
    #[error(transparent)]
    Unavailable(StoreError),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] IoContext),
}

/// Why a directory could not be opened as a store. One line that says what to do.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process serves it.
    #[error("{} is in use by another process; stop that one first, or give another data directory", .0.display())]
    InUse(PathBuf),
    /// The directory holds something else.
    #[error("{} is not a holdfast store: it has no file `format` but has {found:?}; give an empty directory", dir.display())]
    NotAStore {
        /// The directory.
        dir: PathBuf,
        /// What was found there.
        found: String,
    },
    /// Written by a later release.
    #[error("{} has format version {version}, this release knows up to {known}; use a newer release", path.display())]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest version that is understood here.
        known: u32,
    },
    /// Written by the first store, which no release has contained.
    #[error("{} was made by a pre-release version (format 1); export its volumes with that version", .0.display())]
    PreRelease(PathBuf),
    /// It belongs to another node of the cluster.
    #[error("{} belongs to node {found} and this is node {expected}; give this node its own directory, or start as node {found}", dir.display())]
    WrongNode {
        /// The directory.
        dir: PathBuf,
        /// Who was to serve it.
        expected: u64,
        /// Whose it is.
        found: u64,
    },
    /// Bytes on the disk are not what was written: a person must look, and the data come from another copy.
    #[error("{} is corrupt: {detail}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The system refused.
    #[error(transparent)]
    Io(#[from] IoContext),
}

/// An error of the system, and what was being done to which file.
#[derive(Debug, Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct IoContext {
    /// As in "cannot ACTION PATH".
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Says what was being done when an error happened.
pub(crate) trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, IoContext>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, IoContext> {
        self.map_err(|source| IoContext { action, path: path.to_owned(), source: source.into() })
    }
}

pub(crate) fn corrupt(path: &Path, detail: impl Into<String>) -> OpenError {
    OpenError::Corrupt { path: path.to_owned(), detail: detail.into() }
}
