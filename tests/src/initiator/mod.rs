//! An iSCSI initiator of the tests' own, written from RFC 7143, RFC 1994 and SBC-3 at the level of bytes.
//!
//! It shares no code with the target, so that the two can only agree by agreeing with the standards. It is strict:
//! every StatSN, DataSN, R2TSN, buffer offset, burst and digest that the target sends is checked, and a deviation is an
//! error. It is also able to lie: [`wire::Wire`] sends any bytes.
//!
//! Begin at [`login::Login`], which yields a [`session::Session`].

pub mod chap;
pub mod crc32c;
pub mod login;
pub mod pdu;
pub mod scsi;
pub mod session;
pub mod text;
pub mod wire;

pub use chap::{Algorithm, Chap};
pub use login::{Login, LoginError, Negotiated};
pub use pdu::{Bhs, Pdu};
pub use scsi::Command;
pub use session::{Completion, Event, Session};
pub use wire::{Wire, WireError};
