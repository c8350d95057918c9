//! Threads that serve sessions: each runs its own single-threaded runtime and its own lane to storage, so that a command
//! goes from the socket to storage and back without changing threads (field report 37).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};
use tracing::{error, warn};

use crate::connection;
use crate::shared::Shared;
use crate::volume::Lane;

/// A connection that the listener has accepted.
pub(crate) struct Accepted {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) peer: SocketAddr,
    /// Counts the connection for as long as it lives.
    pub(crate) slot: ConnectionSlot,
}

/// A serving thread, as the listener sees it.
pub(crate) struct Worker {
    accepted: mpsc::UnboundedSender<Accepted>,
    connections: Arc<AtomicUsize>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    /// Starts thread number `number`.
    pub(crate) fn start(shared: Arc<Shared>, number: u32) -> io::Result<Self> {
        let (accepted, queue) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name(format!("gateway-{number}")).spawn(move || {
            let local = LocalSet::new();
            runtime.block_on(local.run_until(serve(shared, number, queue)));
        })?;
        Ok(Self { accepted, connections: Arc::default(), thread })
    }

    /// Connections that the thread serves now.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// A place among this worker's connections.
    pub(crate) fn slot(&self) -> ConnectionSlot {
        self.connections.fetch_add(1, Ordering::Relaxed);
        ConnectionSlot { count: self.connections.clone() }
    }

    /// Hands a connection over.
    pub(crate) fn take(&self, accepted: Accepted) {
        if self.accepted.send(accepted).is_err() {
            error!("a gateway thread has ended; the connection is dropped");
        }
    }

    /// Lets the thread end its connections, which have been told to close, and waits for it.
    pub(crate) fn join(self) {
        drop(self.accepted);
        if self.thread.join().is_err() {
            error!("a gateway thread has panicked");
        }
    }
}

/// One connection's place; free again when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    count: Arc<AtomicUsize>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The thread's main task: ends when the listener is gone and the last connection is closed.
async fn serve(shared: Arc<Shared>, number: u32, mut queue: mpsc::UnboundedReceiver<Accepted>) {
    let lane = Lane::new(shared.incarnation, number, shared.metrics.storage.clone());
    tokio::task::spawn_local(lane.clone().run(shared.storage.clone(), shared.gateway_name.clone()));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = queue.recv() => match accepted {
                Some(Accepted { stream, peer, slot }) => match TcpStream::from_std(stream) {
                    Ok(stream) => {
                        connections.spawn_local(connection::serve(shared.clone(), lane.clone(), stream, peer, slot));
                    }
                    Err(error) => warn!(%peer, %error, "cannot serve the connection"),
                },
                None => break,
            },
            Some(ended) = connections.join_next() => report(ended),
        }
    }
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        error!(%error, "the task of a connection has failed");
    }
}
