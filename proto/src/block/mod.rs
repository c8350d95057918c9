//! The block service: one long-lived bidirectional stream per pair of processes, below tonic's codec.
//!
//! tonic carries the connection, HTTP/2 and everything unary. A block stream, though, moves whole payloads, and a codec
//! would copy each of them twice. So the stream has its own encoding ([`wire`]), which writes exactly what `block.proto`
//! describes, its own body ([`body`]), which coalesces small messages and hands large payloads to HTTP/2 as they are, and
//! its own reader ([`reader`]), which cuts payloads out of DATA frames. Any gRPC implementation can be the other end.
//!
//! Start reading at [`message`], then [`client`] and [`server`].

pub mod body;
pub mod client;
pub mod message;
pub mod reader;
pub mod server;
pub mod transport;
pub mod wire;

pub use client::{ConnectError, ReplyReceiver, RequestSender, StreamError, connect};
pub use message::{Hello, Kind, Reply, Request, Status, Welcome};
pub use server::{BlockHandler, BlockServer, Incoming, ReplySlot, RequestReceiver};
pub use transport::{tuned_endpoint, tuned_server};

/// Full name of the gRPC service.
pub const SERVICE_NAME: &str = "holdfast.block.v1.Block";

/// HTTP path of its only method.
pub const STREAM_PATH: &str = "/holdfast.block.v1.Block/Stream";

/// What prost and tonic make of `block.proto`: the reference that the hand-written encoding is tested against, and a plain
/// client and server for tools that do not need the speed.
pub mod generated {
    #![allow(
        missing_docs,
        unreachable_pub,
        clippy::all,
        clippy::allow_attributes_without_reason,
        clippy::cast_possible_truncation,
        clippy::semicolon_if_nothing_returned,
        reason = "generated code"
    )]
    tonic::include_proto!("holdfast.block.v1");
}
