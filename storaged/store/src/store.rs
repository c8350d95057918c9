//! The seam between the storage daemon and a disk engine: what a store is asked, and what it promises.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::block::message::MAX_PAYLOAD_BYTES;
use holdfast_proto::ids::{VolumeId, VolumeName};
use holdfast_proto::units::BlockSize;

use crate::engine::EngineStatistics;
use crate::error::{StoreError, VolumeError};

/// Longest range of one [`Operation::Read`] or [`Operation::Write`], in bytes: what a message can carry. Unmap has no
/// limit.
pub const MAX_OPERATION_BYTES: u64 = MAX_PAYLOAD_BYTES as u64;

/// Called exactly once with the outcome of an operation, on the submitting thread or on one of the engine's. It has
/// to be quick and must not block: the engine waits for it.
pub type Completion = Box<dyn FnOnce(Result<Output, StoreError>) + Send>;

/// Volumes of blocks on one disk.
///
/// Each 4 KiB block is an atomic register: an operation that starts after a mutation has completed sees it or a later
/// one, and nothing that was ever read or acknowledged is lost by a crash. Operations that are in flight at the same
/// time may take effect in any order.
pub trait Store: Send + Sync + 'static {
    /// All volumes, by id.
    fn volumes(&self) -> Vec<VolumeRecord>;

    /// Makes a volume that reads as zeros; it is durable when this returns. Blocks the calling thread. A name that is
    /// taken is refused.
    fn create_volume(&self, new: NewVolume) -> Result<VolumeRecord, VolumeError>;

    /// Starts an operation. Does not block for the disk. The caller bounds how much is in flight. One that lies in
    /// several shards (of 1 GiB) and fails may have been carried out in some of them.
    fn submit(&self, volume: VolumeId, operation: Operation, done: Completion);

    /// Space that the volume takes; `None` when there is no such volume.
    fn usage(&self, volume: VolumeId) -> Option<Usage>;

    /// What the disk has done and how it stands; `None` for a store that does not count.
    fn statistics(&self) -> Option<EngineStatistics> {
        None
    }

    /// Why nothing is served any more, once the disk has failed: also when no operation has met it yet.
    fn failure(&self) -> Option<Arc<str>> {
        None
    }

    /// Completes what was submitted, syncs everything and stops. What the store has taken for itself, other processes may have
    /// once the value is dropped. Later operations are answered
    /// [`StoreError::Closed`]. Called from a completion, it only refuses later operations.
    fn close(&self);
}

/// One operation on a volume. Offsets and lengths are bytes; any alignment is allowed.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Answers `len` bytes from `offset`, with their checksums. Holes read as zeros.
    Read {
        /// First byte.
        offset: u64,
        /// Number of bytes, at most [`MAX_OPERATION_BYTES`].
        len: u64,
    },
    /// Stores the concatenation of `data` at `offset`; durable when it completes.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes; at most [`MAX_OPERATION_BYTES`] in all.
        data: Vec<Bytes>,
        /// One per piece, as [`holdfast_proto::checksum::of_pieces`] makes them. Checked before anything is changed.
        checksums: Vec<u32>,
    },
    /// Makes a range read as zeros and frees its whole blocks; durable when it completes.
    Unmap {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Completes after everything that was submitted to the volume before it has completed.
    Flush,
}

/// What an operation answers; empty except for a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The bytes that were read, to be taken one chunk after the other.
    pub data: Vec<Bytes>,
    /// One per piece of the range, as [`holdfast_proto::checksum::of_pieces`] makes them.
    pub checksums: Vec<u32>,
}

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// Unique in the store.
    pub name: VolumeName,
    /// A positive multiple of the block size, at most [`MAX_VOLUME_BYTES`](crate::MAX_VOLUME_BYTES).
    pub size_bytes: u64,
    /// Logical block size shown to initiators; the store itself takes any byte range.
    pub block_size: BlockSize,
    /// Whether there is a disk behind it.
    pub kind: Kind,
    /// Refuse writes and unmaps.
    pub read_only: bool,
}

/// A volume as it is kept; nothing of it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Never reused.
    pub id: VolumeId,
    /// Unique in the store.
    pub name: VolumeName,
    /// NAA identifier (SPC-4, section 7.8.6.6): locally assigned, so its top four bits are 3; the others are random.
    pub naa: u64,
    /// Capacity.
    pub size_bytes: u64,
    /// Logical block size shown to initiators.
    pub block_size: BlockSize,
    /// Whether there is a disk behind it.
    pub kind: Kind,
    /// Writes and unmaps are refused.
    pub read_only: bool,
}

/// What stands behind a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Blocks on the disk.
    #[default]
    Disk,
    /// Nothing: writes are dropped and reads give zeros. For measuring everything above the disk.
    Null,
}

/// Space that a volume takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes allocated on the disk for its blocks.
    pub allocated_bytes: u64,
}
