//! Virtual machines whose power can be cut: what `kill -9` of a process cannot show, because the page cache survives it.
//!
//! - [`image`] is what all guests start from (`tests/vm/image.sh`), and the disk with which a test brings its programs in.
//! - [`disk`] is a disk with a volatile write cache: what the guest has not flushed dies with the process that serves it.
//! - [`guest`] is a qemu without KVM. Its console is a file; lines that begin with `vm:` are for the harness.
//!
//! Guests are slow, so tests with them belong to `make soak` and `make vm-test`: see [`wanted`].

pub mod disk;
pub mod guest;
pub mod image;

pub use disk::{Disk, Flushes, Served, Unflushed};
pub use guest::{Guest, GuestFailed, Options};
pub use image::Image;

use crate::report;

/// Whether tests with virtual machines run: in a soak, or with `HOLDFAST_VM=1`. Otherwise `test` is noted as skipped.
pub fn wanted(test: &str) -> bool {
    let wanted = report::is_soak() || std::env::var("HOLDFAST_VM").is_ok_and(|value| value == "1");
    if !wanted {
        report::skipped(test, "needs virtual machines: `make vm-test` or `make soak`");
    }
    wanted
}
