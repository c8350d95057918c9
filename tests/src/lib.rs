//! What the end-to-end tests stand on: real processes, real initiators, and independent judges of both.
//!
//! - [`cluster`] starts `holdfast dev` in a folder of its own on free ports, kills it, starts it again.
//! - [`split`] starts gateway and storage node apart, so that one of them can be frozen.
//! - [`initiator`] is an iSCSI initiator written from the RFCs alone. It shares no code with the target, checks every
//!   sequence number it is sent, and can send what no honest initiator would.
//! - [`verify`] writes blocks that name the write they came from, and judges what is read after a crash.
//! - [`vm`] starts virtual machines and cuts their power.
//! - [`mount`] makes file systems that can be full or read-only.
//! - [`injection`] makes system calls of a running process fail.
//! - [`tools`] drives the initiators of others: libiscsi's utilities and qemu-img; [`relay`] holds their sessions open.
//!
//! Nothing here sleeps to let something happen: [`wait`] waits for conditions, with a deadline. The tests themselves
//! are in `tests/e2e`, one binary with a module for each subject.

pub mod binary;
pub mod cluster;
pub mod http;
pub mod initiator;
pub mod injection;
pub mod mount;
pub mod process;
pub mod random;
pub mod relay;
pub mod report;
pub mod split;
pub mod tools;
pub mod verify;
pub mod vm;
pub mod wait;
