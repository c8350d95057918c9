//! What gateways, storage daemons and tools say to each other, and the words they say it with.
//!
//! The crate owns the `.proto` files, the types for ids and units ([`ids`], [`units`]), the checksums of block data
//! ([`checksum`]), and the fast block stream ([`block`]). It decides nothing: no storage, no SCSI, no policy.

pub mod block;
pub mod channel;
pub mod checksum;
pub mod ids;
pub mod units;

/// The volumes service of a storage daemon, as tonic generates it from `volumes.proto`.
pub mod volumes {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::allow_attributes_without_reason,
        clippy::cast_possible_truncation,
        clippy::semicolon_if_nothing_returned,
        reason = "generated code"
    )]
    tonic::include_proto!("holdfast.volumes.v1");
}
