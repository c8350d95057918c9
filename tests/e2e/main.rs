//! End-to-end tests: real processes, initiators of others and the harness' own.
//!
//! Each module is a subject. Every test starts what it needs on free ports in a folder of its own, so that all can run
//! at once. `HOLDFAST_SOAK=1` runs them at full counts; `HOLDFAST_SEED` repeats a random run.

mod access;
mod bad_input;
mod command_line;
mod conformance;
mod crash;
mod digests;
mod discovery;
mod failed_sync;
mod full_disk;
mod image;
mod liveness;
mod login;
mod memory;
mod power_cut;
mod shutdown;
mod store_check;
mod store_directory;
mod support;
mod tasks;
mod transfers;
