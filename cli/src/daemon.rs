//! What all daemons need: a runtime, listening sockets, and the signals that end them.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context, Result, bail};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing::info;

/// The runtime of listeners, HTTP and gRPC. Sessions have threads of their own.
pub(crate) fn runtime() -> Result<Runtime> {
    raise_file_limit();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("holdfast")
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// Every session takes a file descriptor; the usual soft limit of 1024 is a relic.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        info!(%error, limit = limit.current, "cannot raise the limit of open files");
    }
}

/// Listens on `address`; `what` and `flag` tell the user what it was for and how to choose another.
pub(crate) fn listen(address: SocketAddr, what: &str, flag: &str) -> Result<TcpListener> {
    match TcpListener::bind(address) {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => bail!(
            "cannot listen on {address} for {what}: the port is in use; stop what uses it or choose another with {flag}"
        ),
        Err(error) => {
            bail!("cannot listen on {address} for {what}: {error}; choose another address with {flag}")
        }
    }
}

/// Refuses an address that other machines can reach, unless the user insists: nothing is encrypted or authenticated there.
pub(crate) fn loopback_unless_insecure(address: SocketAddr, insecure: bool, flag: &str) -> Result<()> {
    if address.ip().is_loopback() || insecure {
        return Ok(());
    }
    bail!(
        "{flag} {address} is open to other machines without encryption or authentication; \
         use a loopback address, or add --insecure on a network that you trust"
    )
}

/// SIGINT and SIGTERM, caught from `listen` on: one that arrives while a daemon starts ends it in order as soon as it has
/// started, also as process 1 of a container, whom the kernel does not end by a signal it does not handle. A second one
/// ends the process at once.
pub(crate) struct StopSignal(oneshot::Receiver<()>);

impl StopSignal {
    /// Called inside a runtime, before anything is started that wants to be stopped in order.
    pub(crate) fn listen() -> Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
        let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
        let (told, stop) = oneshot::channel();
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => info!("interrupted; stopping"),
                _ = terminate.recv() => info!("asked to terminate; stopping"),
            }
            // Whoever started may have failed and be gone.
            let _ = told.send(());
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            eprintln!("holdfast: stopped at once; what was acknowledged is safe");
            std::process::exit(130);
        });
        Ok(Self(stop))
    }

    /// Resolves at the first signal.
    pub(crate) async fn received(self) {
        // The sender is dropped unused only with the runtime.
        let _ = self.0.await;
    }
}
