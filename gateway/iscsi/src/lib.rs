//! RFC 7143 (iSCSI) as a pure library, the target's side: no sockets, no clocks, no randomness of its own.

pub mod pdu;
