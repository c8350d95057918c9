//! RFC 7143 (iSCSI) as a pure library, the target's side: no sockets, no clocks, no randomness of its own.

pub mod chap;
pub mod connection;
pub mod digest;
pub mod environment;
pub mod frame;
pub mod login;
pub mod name;
pub mod negotiation;
pub mod output;
pub mod params;
pub mod pdu;
pub mod serial;
pub mod session;
pub mod text;
pub mod text_request;

#[cfg(test)]
mod testing;
