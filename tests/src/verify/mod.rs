//! Blocks that name the write they came from, and the judge of what is read back.
//!
//! [`stamp`] fills and identifies a block; [`history`] remembers which writes were begun and which got GOOD, and decides
//! whether a block may be what it is; [`writer`] is the load that does both over a session.

pub mod history;
pub mod stamp;
pub mod writer;

pub use history::History;
pub use stamp::BLOCK_BYTES;
pub use writer::{Mix, Outcome, Unreadable, Violation, Writer};
