//! HTTP/2 settings for block streams, the same on both sides.
//!
//! The largest frame is the receiver's limit, so that the client's setting governs reads and the server's governs writes.
//! With the defaults (16 KiB frames, 64 KiB windows) large transfers run at a third of the speed.

use std::time::Duration;

use tonic::transport::{Endpoint, Server};

/// Largest HTTP/2 frame either side takes, in bytes.
pub const MAX_FRAME_BYTES: u32 = 512 << 10;

/// HTTP/2 flow-control window of one stream, in bytes.
pub const STREAM_WINDOW_BYTES: u32 = 8 << 20;

/// HTTP/2 flow-control window of one connection, in bytes: room for unary calls beside a full stream.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// How often a quiet connection is asked for a sign of life.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// How long the sign of life may take.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The endpoint with the settings for block streams.
pub fn tuned_endpoint(endpoint: Endpoint) -> Endpoint {
    endpoint
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
}

/// A server with the settings for block streams. `Server::tcp_nodelay` has no effect with `serve_with_incoming`: accept
/// through `TcpIncoming::with_nodelay`.
pub fn tuned_server() -> Server {
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
}
