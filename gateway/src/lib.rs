//! The gateway daemon: iSCSI sessions in front, gRPC to storage behind.
//!
//! It keeps nothing on disk: what volumes there are comes from storage, who may use them from its configuration. Start
//! reading at [`Gateway::start`], then `worker.rs` (threads), `connection/` (the life of a connection) and `volume/` (the
//! way of a block operation to storage and back). The protocols are in the pure crates `holdfast_iscsi` and `holdfast_scsi`.
//!
//! It knows nothing of how storage keeps blocks; it sees the gRPC services of `holdfast_proto` alone.

mod access;
mod catalogue;
mod config;
mod connection;
mod http;
mod listener;
mod memory;
mod metrics;
mod sessions;
mod shared;
mod throttle;
mod volume;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use holdfast_proto::channel::NodeChannel;
use prometheus_client::registry::Registry as MetricsRegistry;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{info, warn};

pub use access::{AccessError, AccessRules};
pub use catalogue::TARGET_PREFIX;
pub use config::{Config, Limits};
pub use sessions::{ParameterInfo, SessionInfo};

use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::sessions::{EndCause, Registry, SessionCommand, SessionHandle};
use crate::shared::Shared;
use crate::throttle::Throttle;
use crate::worker::Worker;

/// Time between two looks at whether storage has been reached.
const READY_POLL: Duration = Duration::from_millis(5);

/// Time that operations at the storage node have to end when the gateway stops.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a channel to the storage node on the calling thread's runtime, or says why it cannot.
pub type StorageConnector =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<NodeChannel, String>> + Send>> + Send + Sync>;

/// Why a gateway does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A listening socket cannot be used.
    #[error("cannot use a listening socket: {0}")]
    Listener(io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// Rules are given for a volume that does not exist.
    #[error("the access file has rules for volume {0:?}, which does not exist")]
    UnknownVolume(String),
}

/// A gateway that serves.
pub struct Gateway {
    shared: Arc<Shared>,
    portal: SocketAddr,
    http: SocketAddr,
    listener: JoinHandle<Vec<Worker>>,
    background: Vec<JoinHandle<()>>,
}

impl Gateway {
    /// Reads the list of volumes and serves. While storage cannot be reached, logins are turned away and `/readyz` says so. Runs on
    /// the calling runtime and on threads of its own.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let (portal_socket, http_socket) = (config.portal.try_clone(), config.http.try_clone());
        let (listener, portal) = listener(portal_socket).map_err(StartError::Listener)?;
        let (http_listener, http) = self::listener(http_socket).map_err(StartError::Listener)?;
        let shared = Arc::new(shared(config));
        match catalogue::fetch(&shared).await {
            Ok(()) => check_access(&shared)?,
            Err(cause) => warn!(cause, "cannot read the list of volumes; no logins until that works"),
        }
        let workers = (0..worker_count(&shared))
            .map(|number| Worker::start(shared.clone(), number))
            .collect::<io::Result<Vec<_>>>()
            .map_err(StartError::Thread)?;
        let stopped = shared.stop.subscribe();
        let router = http::router(shared.clone());
        let background = vec![
            tokio::spawn(catalogue::keep_fresh(shared.clone())),
            tokio::spawn(async move {
                if let Err(error) = axum::serve(http_listener, router).await {
                    warn!(%error, "the http port has stopped");
                }
            }),
        ];
        let listener = tokio::spawn(listener::accept(listener, shared.clone(), workers, stopped));
        info!(%portal, %http, "gateway is listening");
        Ok(Self { shared, portal, http, listener, background })
    }

    /// Resolves when storage has been reached and commands are carried out.
    pub async fn ready(&self) {
        while !self.shared.is_ready() {
            tokio::time::sleep(READY_POLL).await;
        }
    }

    /// Address of the iSCSI port.
    pub fn portal(&self) -> SocketAddr {
        self.portal
    }

    /// Address of the HTTP port.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Orderly end: no new connections, initiators are asked to log out, and after a while their connections are closed. Returns
    /// when everything that was sent to storage is settled.
    pub async fn stop(self) {
        self.shared.stop.send_replace(true);
        let window = self.shared.limits.logout_window;
        let seconds = u16::try_from(window.as_secs().max(1)).unwrap_or(u16::MAX);
        tell(&self.shared.sessions.all(), || SessionCommand::RequestLogout { seconds });
        let deadline = tokio::time::Instant::now() + window;
        while !self.shared.sessions.all().is_empty() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tell(&self.shared.sessions.close(), || SessionCommand::Close(EndCause::Shutdown));
        match self.listener.await {
            Ok(workers) => join(workers).await,
            Err(error) => warn!(%error, "the listener has failed"),
        }
        self.background.iter().for_each(JoinHandle::abort);
        info!("gateway has stopped");
    }
}

fn tell(sessions: &[SessionHandle], command: impl Fn() -> SessionCommand) {
    for session in sessions {
        // One that is gone needs no telling.
        let _ = session.commands.send(command());
    }
}

/// Waits until the threads have settled their sessions; not for ever, for storage may be gone for good.
async fn join(workers: Vec<Worker>) {
    let (joined, all_joined) = oneshot::channel();
    std::thread::spawn(move || {
        workers.into_iter().for_each(Worker::join);
        // Nobody waits any more if it took too long.
        let _ = joined.send(());
    });
    if tokio::time::timeout(SETTLE_TIMEOUT, all_joined).await.is_err() {
        warn!("some operations are still open at the storage node; they end unanswered");
    }
}

/// The socket on this runtime, and its address.
fn listener(socket: io::Result<std::net::TcpListener>) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = socket?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    Ok((TcpListener::from_std(socket)?, address))
}

fn shared(config: Config) -> Shared {
    let mut metrics_registry = MetricsRegistry::default();
    let metrics = Metrics::new(&mut metrics_registry);
    let limits = config.limits;
    let first_burst = holdfast_iscsi::negotiation::Offered::default().first_burst_length as usize;
    Shared {
        id: config.id,
        incarnation: incarnation(),
        gateway_name: format!("gateway-{}", config.id),
        advertised: config.advertised,
        access: config.access,
        memory: Memory::new(limits.transfer_bytes, limits.unsolicited_bytes, first_burst),
        sessions: Registry::new(limits.clone()),
        catalogue: ArcSwap::default(),
        storage: config.storage,
        workers: config.workers,
        limits,
        metrics,
        metrics_registry,
        bad_input: Mutex::new(Throttle::new(Duration::from_secs(1))),
        ready: AtomicBool::new(false),
        refused_logins: Mutex::new(Throttle::new(Duration::from_millis(100))),
        storage_trouble: Mutex::new(Throttle::new(Duration::from_secs(1))),
        stop: watch::Sender::new(false),
    }
}

/// A number that no other run of a gateway has: there is no registration to take it from before the metadata is replicated.
fn incarnation() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes) | 1,
        Err(_) => u64::from(std::process::id()),
    }
}

fn worker_count(shared: &Shared) -> u32 {
    let wanted = match shared.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        given => given,
    };
    u32::try_from(wanted.clamp(1, 64)).unwrap_or(1)
}

/// Rules for a volume that does not exist are a slip of the pen that would leave the intended one open.
fn check_access(shared: &Shared) -> Result<(), StartError> {
    let catalogue = shared.catalogue.load();
    match shared.access.volumes().find(|name| !catalogue.targets().any(|target| target.volume == *name)) {
        Some(unknown) => Err(StartError::UnknownVolume(unknown.to_owned())),
        None => Ok(()),
    }
}
