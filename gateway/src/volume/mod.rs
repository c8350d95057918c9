//! Block operations on volumes: cut into parts, sent to storage, put together again.

mod completions;
mod lane;
mod null;
mod parts;
mod running;

pub(crate) use completions::PartError;
pub(crate) use lane::Lane;
pub(crate) use parts::{BlockOperation, ByteRange};
pub(crate) use running::{Backend, OperationDone, Operations};
