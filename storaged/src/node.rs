//! The daemon's sockets: gRPC and admin HTTP, and how they are closed.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use holdfast_proto::block::tuned_server;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;
use tracing::{info, warn};

use crate::Storaged;
use crate::http;

/// How long requests in flight may take to be answered when the node stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long answers of the admin HTTP server may take then.
const HTTP_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a node does not serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The listener cannot be used.
    #[error("cannot serve on the {what} listener")]
    Listener {
        /// gRPC or HTTP.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Other machines would reach metrics and health.
    #[error("{0} for HTTP is open to other machines; use a loopback address, or allow it in the settings")]
    HttpBeyondLoopback(SocketAddr),
}

/// A storage node that serves. Dropping it leaves it serving; see [`Node::stop`].
#[derive(Debug)]
pub struct Node {
    storaged: Storaged,
    grpc: SocketAddr,
    http: SocketAddr,
    grpc_task: JoinHandle<Result<(), tonic::transport::Error>>,
    http_task: JoinHandle<io::Result<()>>,
    stop_http: oneshot::Sender<()>,
}

impl Storaged {
    /// Serves gRPC and admin HTTP on these listeners. Has to be called on a tokio runtime, whose tasks then serve.
    pub fn serve(&self, grpc: TcpListener, http: TcpListener) -> Result<Node, ServeError> {
        let (grpc, grpc_address) = adopt(grpc, "gRPC")?;
        let (http, http_address) = adopt(http, "HTTP")?;
        if !self.shared.http_beyond_loopback && !http_address.ip().is_loopback() {
            return Err(ServeError::HttpBeyondLoopback(http_address));
        }
        let incoming = TcpIncoming::from(grpc).with_nodelay(Some(true));
        let router = tuned_server().add_routes(self.routes());
        let grpc_task = tokio::spawn(router.serve_with_incoming_shutdown(incoming, self.stopped()));

        let (stop_http, http_stopped) = oneshot::channel::<()>();
        let server = axum::serve(http, http::router(self.http_state())).with_graceful_shutdown(async {
            // An error says that the node is gone: it has no way to stop then, and serves on.
            if http_stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        let http_task = tokio::spawn(async move { server.await });
        info!(grpc = %grpc_address, http = %http_address, "storage node serves");
        Ok(Node { storaged: self.clone(), grpc: grpc_address, http: http_address, grpc_task, http_task, stop_http })
    }
}

fn adopt(listener: TcpListener, what: &'static str) -> Result<(tokio::net::TcpListener, SocketAddr), ServeError> {
    let adopt = || {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    adopt().map_err(|source| ServeError::Listener { what, source })
}

impl Node {
    /// Where gRPC listens.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Where admin HTTP listens.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Takes no more requests, answers those in flight, and closes the sockets; readiness is gone at once, metrics are the last
    /// to go. The store stays open.
    pub async fn stop(self) {
        self.storaged.shared.stopping.send_replace(true);
        finish("gRPC", self.grpc_task, DRAIN_TIMEOUT).await;
        // The server may have ended by itself.
        let _ = self.stop_http.send(());
        finish("HTTP", self.http_task, HTTP_TIMEOUT).await;
        info!("storage node has stopped serving");
    }
}

/// Waits for a server to end by itself, then ends it.
async fn finish<E: std::error::Error>(what: &str, mut task: JoinHandle<Result<(), E>>, limit: Duration) {
    match tokio::time::timeout(limit, &mut task).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => warn!(what, %error, "server ended with an error"),
        Ok(Err(error)) => warn!(what, %error, "server task failed"),
        Err(_) => {
            warn!(what, limit_seconds = limit.as_secs(), "server did not end in time; connections are cut");
            task.abort();
        }
    }
}
