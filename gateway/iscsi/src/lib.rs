//! RFC 7143 (iSCSI) as a pure library, the target's side: no sockets, no clocks, no randomness of its own.

pub mod chap;
pub mod environment;
pub mod login;
pub mod name;
pub mod params;
pub mod pdu;
pub mod text;
