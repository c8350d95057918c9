//! The storage daemon: the block and volumes services over a disk engine, metrics and health.
//!
//! It owns the way from the wire to the store and back: who may open a stream, what a request has to look like, what the
//! caller is told, what is counted. It keeps no data itself; that is [`holdfast_store`]'s.
//!
//! Start reading at [`Storaged`], then `block_service.rs` (the life of a request), `admission.rs` (what a request may ask)
//! and `lanes.rs` (why a new stream waits for the old one).

mod admission;
mod block_service;
mod error;
mod http;
mod lanes;
mod metrics;
mod node;
mod store_metrics;
mod volumes_service;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use holdfast_proto::block::BlockServer;
use holdfast_proto::channel::NodeChannel;
use holdfast_proto::volumes::volumes_server::VolumesServer;
use holdfast_store::{DiskStore, OpenError, Options, Store};
use thiserror::Error;
use tokio::sync::watch;
use tonic::service::Routes;

pub use self::admission::MAX_WRITE_SAME_BYTES;
pub use self::node::{Node, ServeError};

use self::block_service::{BlockService, Identity};
use self::http::HttpState;
use self::lanes::Lanes;
use self::metrics::{LogLimit, Metrics};
use self::volumes_service::VolumesService;

/// Settings of a storage daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the store; made if it does not exist.
    pub data_dir: PathBuf,
    /// Settings of the store.
    pub store: Options,
    /// Name of the cluster: a caller that names another one is refused.
    pub cluster: String,
    /// Number of this node.
    pub node_id: u64,
    /// Let the admin HTTP server listen on addresses that other machines can reach.
    pub http_beyond_loopback: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("holdfast-data"),
            store: Options::default(),
            cluster: "holdfast".to_owned(),
            node_id: 1,
            http_beyond_loopback: false,
        }
    }
}

/// The store could not be closed in order.
#[derive(Debug, Error)]
pub enum CloseError {
    /// The device failed while the daemon ran; what was answered is safe, what was not may be there or not.
    #[error("the device had failed; look at its log before it is used again")]
    DeviceFailed,
}

/// A storage daemon with its store open. Clones are the same daemon.
#[derive(Clone)]
pub struct Storaged {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    routes: Routes,
    /// Turns true once, when the daemon stops.
    stopping: watch::Sender<bool>,
    http_beyond_loopback: bool,
}

impl std::fmt::Debug for Storaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Storaged").finish_non_exhaustive()
    }
}

impl Storaged {
    /// Opens the store, or makes an empty one. Blocks for the disk.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        // Whose the directory is, is asked of the node and nobody else.
        let options = Options { node_id: config.node_id, ..config.store };
        let store = DiskStore::open(&config.data_dir, &options)?;
        Ok(Self::with_store(Arc::new(store), &config))
    }

    /// A daemon over any store.
    pub fn with_store(store: Arc<dyn Store>, config: &Config) -> Self {
        let metrics = Arc::new(Metrics::new(Some(&store)));
        let (stopping, stop) = watch::channel(false);
        let block = BlockService {
            identity: Identity { cluster: config.cluster.clone(), node_id: config.node_id, incarnation: incarnation() },
            store: store.clone(),
            metrics: metrics.clone(),
            lanes: Arc::new(Lanes::default()),
            stopping: stop,
            started: Instant::now(),
            refusals: LogLimit::default(),
            failures: Arc::new(LogLimit::default()),
        };
        let volumes = VolumesService { store: store.clone() };
        let routes = Routes::new(BlockServer::new(Arc::new(block))).add_service(VolumesServer::new(volumes)).prepare();
        let http_beyond_loopback = config.http_beyond_loopback;
        Self { shared: Arc::new(Shared { store, metrics, routes, stopping, http_beyond_loopback }) }
    }

    /// The store, for work in the same process.
    pub fn store(&self) -> Arc<dyn Store> {
        self.shared.store.clone()
    }

    /// The gRPC services, to be served by whoever wants.
    pub fn routes(&self) -> Routes {
        self.shared.routes.clone()
    }

    /// A gRPC channel that calls the services directly. They run on the caller's runtime, so that on a `current_thread` one
    /// nothing but the disk is on another thread.
    pub fn local_channel(&self) -> NodeChannel {
        NodeChannel::local(self.routes(), self.shared.stopping.subscribe())
    }

    /// Stops taking requests, lets the store complete what it has, and closes it. Blocks for the disk.
    pub fn close(&self) -> Result<(), CloseError> {
        self.shared.stopping.send_replace(true);
        self.shared.store.close();
        let failed = self.shared.metrics.device_failed() || self.shared.store.failure().is_some();
        if failed { Err(CloseError::DeviceFailed) } else { Ok(()) }
    }

    /// Resolves when the daemon stops.
    fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stopping = self.shared.stopping.subscribe();
        async move {
            // An error says that the daemon itself is gone.
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }
    }

    fn http_state(&self) -> HttpState {
        HttpState {
            store: self.shared.store.clone(),
            metrics: self.shared.metrics.clone(),
            stopping: self.shared.stopping.subscribe(),
        }
    }
}

/// Tells this run of the daemon from the ones before. Nothing is ordered by it: the metadata will assign it.
fn incarnation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
