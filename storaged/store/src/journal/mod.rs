//! The journal: a ring of chained batches. The bytes are `format/batch.rs`; here are places in the ring (`ring.rs`) and
//! the reading back (`scan.rs`, over `reader.rs`). Who appends is the engine's core: one batch at a time, each only
//! after the sync of the one before has returned. Everything that `scan.rs` concludes rests on that.

mod reader;
pub mod ring;
pub mod scan;
#[cfg(test)]
mod tests;

pub use self::ring::{Piece, Ring};
pub use self::scan::{ScanEnd, ScanError, Scanned, Start, Tail, Verdict, scan};
