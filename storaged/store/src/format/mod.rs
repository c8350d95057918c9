//! Every structure on the disk, byte by byte. Start with the picture, then `batch.rs` and `record.rs` (the journal),
//! then `entry.rs` (the map).
//!
//! ```text
//! DIR/data
//!       0   superblock        superblock.rs: whose disk, where the areas are; never changed after creation
//!    4096   its copy
//!    8192   zeros, to 64 KiB  room for what may be needed beside it
//!  65536    journal           a ring of batches, batch.rs; absolute positions count on, place = position % length
//!           [batch: header, records | payload blocks][batch ...
//!       .   slots             64 KiB each, only data: no header, no checksum
//!           [slot 0][slot 1][slot 2] ...                                   the file grows here
//!
//! DIR/catalogue (RocksDB), keys.rs
//!   a  which slots are referenced at the checkpoint        allocation.rs
//!   b  per shard: which chunks have a slot, were touched   shard.rs
//!   c  the checkpoint: where replay begins                 checkpoint.rs
//!   i  whose catalogue                                     checkpoint.rs
//!   m  per chunk: version, slot, checksums                 entry.rs
//!   s  per shard: epoch, term, done operations             shard.rs
//!   v  per volume                                          (module volumes)
//! ```
//!
//! Why this order: the superblock is found without knowing anything; the journal stands before the slots because it
//! never grows and the slots do. Both are in one file so that one sync covers a batch and the slots that it names.
//! Checksums are in the journal's records and in the map, never beside the data they protect, so that a lost or
//! misdirected write does not take its checksum along.
//!
//! All numbers are little-endian (keys of the catalogue are big-endian, for their order). Every structure has a version
//! and a crc32c. A structure that is whole but of a later version is [`FormatError::Newer`], anything else that is not
//! as it should be [`FormatError::Corrupt`]; no input panics or makes the parser allocate more than a small multiple of
//! its own length. Encoding the other way asserts that what it writes could be read back.
//!
//! The crc of a catalogue value covers its key too, so a value knows where it belongs; `encode` and `parse` take
//! what makes the key. It has a crc of its own, though RocksDB has checksums, because values pass through memory and
//! the engine's cache.

pub mod allocation;
pub mod batch;
pub mod checkpoint;
mod codec;
pub mod entry;
mod error;
pub mod keys;
pub mod record;
#[cfg(test)]
pub(crate) mod samples;
pub mod shard;
pub mod superblock;
#[cfg(test)]
mod tests;

pub use self::allocation::{AllocationPage, SLOTS_PER_PAGE};
pub use self::batch::{BatchBuilder, BatchHeader, ChainKey, HeaderError};
pub use self::checkpoint::{CheckpointRecord, IdentityRecord};
pub use self::entry::{Content, Entry};
pub use self::error::FormatError;
pub use self::record::{Crcs, MutationRecord, OperationRecord, Part, Parts, Record, StateRecord};
pub use self::shard::{Bitmap, DedupeRow, DoneOperation, ShardBitmaps, ShardRecord};
pub use self::superblock::Superblock;
