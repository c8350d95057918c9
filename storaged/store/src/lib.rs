//! The disk engine: a volume's blocks, thin, checksummed and durable.
//!
//! [`Store`] is the seam that the storage daemon talks to, [`DiskStore`] its implementation on one directory.
//!
//! ```text
//! DIR/lock          held with flock by the one process that serves the directory         directory.rs
//! DIR/format        version, disk uuid, node; written last, so a directory without it is no store
//! DIR/data          one file: superblock | journal, a ring of chained batches | slots of 64 KiB    format/, journal/
//! DIR/catalogue/    RocksDB: chunk map, shards, slots in use, as of the last checkpoint; volumes   catalogue/
//! ```
//!
//! Data and journal share one file so that one sync covers both. Checksums lie in the journal and in the catalogue, never beside the data
//! they are of, so that what strikes one does not strike the other.
//!
//! From the outside in:
//!
//! | module | concept |
//! |---|---|
//! | `disk_store` | opening: puts all of it together |
//! | `volumes` | byte ranges of volumes become whole blocks of shards; partial blocks are merged under locks |
//! | `engine` | the threads: commit, reads, upkeep |
//! | `machine` | the engine as a state machine, without threads, clocks or I/O: `form`, `apply`, `read`, `checkpoint` |
//! | `shard`, `overlay`, `allocator`, `dedupe`, `grace` | the parts of its state |
//! | `checkpoint`, `recovery`, `read` | what the state machine decides, carried out on a disk |
//! | `journal` | the ring, and reading it back |
//! | `format` | every structure on the disk, byte by byte |
//! | `device`, `catalogue` | the two seams: files and RocksDB, or a simulated disk and a model |
//! | `check`, `scrub` | looking whether all of it is right: of a stopped store, and of one that serves |
//! | `simulation`, `mutants` | power cuts everywhere, faults, and deliberate bugs that have to be noticed |
//!
//! The life of a write: `volumes` gives it a place in its shard's order; the engine's commit thread takes everything that is queued
//! into one batch: whole chunks go to free slots, all else into the journal, one sync covers both; then the batch is applied to the state in
//! memory and its operations complete. Blocks in the journal are put into their slots, and the map is brought up to date, by checkpoints.
//!
//! What holds at every instant, also across a kill or a power loss:
//!
//! - An operation completes only after its batch was synced; a read sees only what was synced.
//! - Live data is never overwritten before the journal holds its successor durably.
//! - A slot is used again only after the checkpoint that no longer refers to it is durable and the reads from before are over.
//! - The journal is trimmed only after the slots were synced and then the map.
//! - A failed sync or write fails the device for good: it is never tried again.

mod allocator;
pub mod catalogue;
pub mod check;
mod checkpoint;
mod dedupe;
pub mod device;
mod directory;
mod disk_store;
mod engine;
mod error;
pub mod format;
mod grace;
pub mod ids;
pub mod journal;
mod machine;
pub mod mutants;
pub mod operation;
mod overlay;
mod pieces;
mod read;
mod recovery;
mod scrub;
mod shard;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
mod store;
mod volumes;

pub use crate::dedupe::Known;
pub use crate::disk_store::{DiskStore, Options};
pub use crate::engine::{Engine, EngineStatistics};
pub use crate::error::{OpenError, StoreError, VolumeError};
pub use crate::machine::{ChunkVersion, Gauges};
pub use crate::shard::ShardState;
pub use crate::store::{
    Completion, Kind, MAX_OPERATION_BYTES, NewVolume, Operation, Output, Store, Usage, VolumeRecord,
};
pub use crate::volumes::MAX_VOLUME_BYTES;
