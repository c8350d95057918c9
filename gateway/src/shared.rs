//! What all threads of a gateway share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use prometheus_client::registry::Registry as MetricsRegistry;
use tokio::sync::watch;

use crate::StorageConnector;
use crate::access::AccessRules;
use crate::catalogue::Catalogue;
use crate::config::Limits;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::sessions::Registry;
use crate::throttle::Throttle;

/// State of one gateway process, seen by its workers, its listener and its HTTP port.
pub(crate) struct Shared {
    /// Portal group tag and target port group.
    pub(crate) id: u16,
    /// Names this run of the process.
    pub(crate) incarnation: u64,
    /// For the storage node's log.
    pub(crate) gateway_name: String,
    pub(crate) advertised: Option<String>,
    pub(crate) access: AccessRules,
    /// Threads asked for; 0 for one a core.
    pub(crate) workers: usize,
    pub(crate) limits: Limits,
    pub(crate) memory: Memory,
    pub(crate) sessions: Arc<Registry>,
    pub(crate) catalogue: ArcSwap<Catalogue>,
    pub(crate) storage: StorageConnector,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) metrics_registry: MetricsRegistry,
    /// Limits the log lines about bad input.
    pub(crate) bad_input: Mutex<Throttle>,
    pub(crate) refused_logins: Mutex<Throttle>,
    pub(crate) storage_trouble: Mutex<Throttle>,
    /// Turns true when the gateway stops.
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) ready: AtomicBool,
}

impl Shared {
    /// Whether targets are known. While storage is away logins go on, and only commands wait.
    pub(crate) fn accepts_logins(&self) -> bool {
        self.ready.load(Ordering::Acquire) && !self.is_stopping()
    }

    /// Whether commands can be carried out too.
    pub(crate) fn is_ready(&self) -> bool {
        self.accepts_logins() && self.metrics.storage.streams.get() > 0
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// What SendTargets says of this portal to an initiator that has connected to `local`.
    pub(crate) fn portal_address(&self, local: SocketAddr) -> String {
        // A link-local address without its zone would lead nowhere, but it is where the initiator is connected already.
        self.advertised.clone().unwrap_or_else(|| local.to_string())
    }
}
