//! Accepts connections and spreads them over the workers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tracing::warn;

use crate::shared::Shared;
use crate::throttle::Throttle;
use crate::worker::{Accepted, Worker};

/// Pause after an error that is not the connection's fault, such as too many open files.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// Accepts until `stop` becomes true, then lets the workers end.
pub(crate) async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    mut stop: watch::Receiver<bool>,
) -> Vec<Worker> {
    let mut refusals = Throttle::new(Duration::from_secs(5));
    let mut errors = Throttle::new(Duration::from_secs(5));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return workers,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(suppressed) = errors.permit() {
                    warn!(%error, suppressed, "cannot accept a connection");
                }
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                continue;
            }
        };
        let total: usize = workers.iter().map(Worker::connections).sum();
        if total >= shared.limits.connections {
            shared.metrics.count_end("too_many_connections");
            if let Some(suppressed) = refusals.permit() {
                warn!(%peer, limit = shared.limits.connections, suppressed, "too many connections; this one is closed");
            }
            continue;
        }
        let Some(worker) = workers.iter().min_by_key(|worker| worker.connections()) else {
            return workers;
        };
        match prepared(stream) {
            Ok(stream) => worker.take(Accepted { stream, peer, slot: worker.slot() }),
            Err(error) => warn!(%peer, %error, "cannot set the connection up"),
        }
    }
}

/// The socket with its options set, free to move to another thread's runtime.
fn prepared(stream: TcpStream) -> io::Result<std::net::TcpStream> {
    // Responses are written whole; waiting for more would only delay them.
    stream.set_nodelay(true)?;
    stream.into_std()
}
