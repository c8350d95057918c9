//! A channel to a server in the same process, over pipes in memory: all of gRPC, no socket.
//!
//! Server and client run on the runtime of the caller. On a `current_thread` runtime an operation then crosses no thread,
//! which is what makes a cluster in one process fast.

use std::io;

use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Error, Uri};

use super::transport::{windows_of_endpoint, windows_of_server};

/// How many bytes a pipe holds in each direction.
pub const PIPE_BYTES: usize = 256 << 10;

/// Serves `routes` on a task of this runtime until every channel to it is dropped or `stop` resolves, and connects to it.
pub async fn connect_local(routes: Routes, stop: impl Future<Output = ()> + Send + 'static) -> Result<Channel, Error> {
    // A pipe for each time the channel connects: once, unless the server ends the connection.
    let (pipes, accepted) = mpsc::unbounded_channel::<DuplexStream>();
    let incoming = UnboundedReceiverStream::new(accepted).map(Ok::<_, io::Error>);
    // No keep-alive: both ends live and die together, and one that was frozen finds the other as it was.
    let router = windows_of_server().add_routes(routes);
    tokio::spawn(router.serve_with_incoming_shutdown(incoming, stop));

    let connector = tower::service_fn(move |_: Uri| {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let sent = pipes.send(far).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused));
        std::future::ready(sent.map(|()| TokioIo::new(near)))
    });
    windows_of_endpoint(Endpoint::from_static("http://local")).connect_with_connector(connector).await
}
