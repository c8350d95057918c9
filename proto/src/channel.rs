//! Ways to a storage daemon's gRPC services: over a connection, or inside one process.
//!
//! What runs in the caller's process is called directly. Messages, services and streams are the same as over a connection, byte
//! for byte; only HTTP/2, whose frames would copy every payload twice, is left out: a body's chunks pass from one side to the
//! other as they are. The limits are those of the streams themselves.

use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::codegen::{Service, StdError};
use tonic::service::Routes;
use tonic::transport::Channel;

/// The services of one storage daemon. Clones share the connection, where there is one.
#[derive(Clone, Debug)]
pub enum NodeChannel {
    /// Over HTTP/2.
    Remote(Channel),
    /// In this process.
    Local(LocalServices),
}

/// The services of a daemon in this process.
#[derive(Clone, Debug)]
pub struct LocalServices {
    routes: Routes,
    stopping: watch::Receiver<bool>,
}

/// The daemon takes no calls any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the storage daemon is stopping")]
pub struct Stopping;

impl NodeChannel {
    /// Calls `routes` directly until `stopping` turns true. Handlers and the tasks that they spawn run on the runtime of the caller:
    /// on a `current_thread` one an operation then crosses no thread but the store's.
    pub fn local(routes: Routes, stopping: watch::Receiver<bool>) -> Self {
        Self::Local(LocalServices { routes, stopping })
    }
}

impl From<Channel> for NodeChannel {
    fn from(channel: Channel) -> Self {
        Self::Remote(channel)
    }
}

impl Service<Request<Body>> for NodeChannel {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, StdError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        match self {
            Self::Remote(channel) => channel.poll_ready(context).map_err(StdError::from),
            Self::Local(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self {
            Self::Remote(channel) => {
                let response = channel.call(request);
                Box::pin(async move { response.await.map_err(StdError::from) })
            }
            Self::Local(local) if *local.stopping.borrow() => Box::pin(ready(Err(Stopping.into()))),
            Self::Local(local) => {
                let response = local.routes.call(request);
                Box::pin(async move { response.await.map_err(|never| match never {}) })
            }
        }
    }
}
