//! The disk engine: a volume's blocks, thin, checksummed and durable.
//!
//! [`Store`] is the seam that the storage daemon talks to; [`FileStore`] is its first, short implementation, which
//! keeps the blocks in files of one directory. Start reading in `store.rs` (the contract), then `file_store.rs`
//! (how it is put together), `commit.rs` (the life of a write) and `read.rs` (the life of a read).
//!
//! ```text
//! DIR/lock                    held with flock by the one process that serves the directory
//! DIR/format                  version and disk uuid; written last, so a directory without it holds nothing
//! DIR/journal                 redo log of all volumes, see journal.rs
//! DIR/volumes/ID/record       identity and size, see catalogue.rs
//! DIR/volumes/ID/data.N       blocks, sparse; block b at byte b * 4096 of the concatenation, 8 TiB a file
//! DIR/volumes/ID/checksums    crc32c of each block, 4 bytes little-endian at b * 4; 0 is a hole, a crc of 0 is kept as 1
//! ```
//!
//! What holds at every instant, also across a kill or a power loss:
//!
//! - A mutation is answered only after the journal holds it and was synced.
//! - Data and checksum files are changed only from what the journal already holds durably, so that the journal
//!   repairs whatever a crash tore; and so a read never sees what could vanish.
//! - The journal is started anew only after the data and checksum files were synced.
//! - A failed sync or write fails the device for good: it is never tried again.

mod catalogue;
mod commit;
#[cfg(test)]
mod crash_tests;
mod directory;
mod disk_file;
mod error;
mod file_store;
mod journal;
mod merge;
mod queue;
mod read;
mod store;
mod stripes;
#[cfg(test)]
mod tape;
mod volume;

pub use crate::catalogue::MAX_VOLUME_BYTES;
pub use crate::error::{OpenError, StoreError, VolumeError};
pub use crate::file_store::{FileStore, Options};
pub use crate::store::{
    Completion, Kind, MAX_OPERATION_BYTES, NewVolume, Operation, Output, Store, Usage, VolumeRecord,
};
