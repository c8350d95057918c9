//! What the gateway counts, in Prometheus' terms.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_iscsi::session::Counters;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::volume::PartError;

/// Kinds of commands that are measured apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the variants are the label's values")]
pub(crate) enum Operation {
    read,
    write,
    write_same,
    unmap,
    flush,
    other,
}

impl Operation {
    /// The label's value.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::read => "read",
            Self::write => "write",
            Self::write_same => "write_same",
            Self::unmap => "unmap",
            Self::flush => "flush",
            Self::other => "other",
        }
    }

    const COUNT: usize = Self::other as usize + 1;
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CommandLabels {
    volume: String,
    initiator: String,
    operation: Operation,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SenseKeyLabel {
    key: String,
}

/// Initiator names that get labels of their own.
const MAX_INITIATORS: usize = 256;

/// All metrics of a gateway; made once, passed down.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) connections: Gauge<i64, AtomicI64>,
    pub(crate) sessions: Gauge<i64, AtomicI64>,
    pub(crate) reserved_bytes: Gauge<i64, AtomicI64>,
    logins: Family<KindLabel, Counter>,
    ends: Family<KindLabel, Counter>,
    /// Names that have labels of their own.
    initiators: Mutex<HashSet<String>>,
    irregularities: Family<KindLabel, Counter>,
    check_conditions: Family<SenseKeyLabel, Counter>,
    durations: Family<CommandLabels, Histogram, fn() -> Histogram>,
    bytes: Family<CommandLabels, Counter>,
    pub(crate) storage: Arc<StorageMetrics>,
}

/// What happens between the gateway and storage.
#[derive(Debug, Default)]
pub(crate) struct StorageMetrics {
    pub(crate) reconnects: Counter,
    /// Streams that are open now, one for each thread.
    pub(crate) streams: Gauge<i64, AtomicI64>,
    errors: Family<KindLabel, Counter>,
}

/// 25 microseconds to 13 seconds, each bucket twice the one before.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(25e-6, 2.0, 20))
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Arc<Self> {
        let metrics = Self {
            connections: Gauge::default(),
            sessions: Gauge::default(),
            reserved_bytes: Gauge::default(),
            logins: Family::default(),
            ends: Family::default(),
            initiators: Mutex::default(),
            irregularities: Family::default(),
            check_conditions: Family::default(),
            durations: Family::new_with_constructor(duration_histogram as fn() -> Histogram),
            bytes: Family::default(),
            storage: Arc::default(),
        };
        let registry = registry.sub_registry_with_prefix("holdfast_gateway");
        registry.register("connections", "TCP connections that are open", metrics.connections.clone());
        registry.register("sessions", "iSCSI sessions that are logged in", metrics.sessions.clone());
        registry.register_with_unit(
            "transfer_memory",
            "Memory reserved for data in transfer",
            Unit::Bytes,
            metrics.reserved_bytes.clone(),
        );
        registry.register("logins", "Logins by outcome", metrics.logins.clone());
        registry.register(
            "connection_ends",
            "Connections that ended, by cause; protocol_error and frame_error are bad input",
            metrics.ends.clone(),
        );
        registry.register(
            "irregularities",
            "What initiators did that the protocol answers without ending the connection, by kind",
            metrics.irregularities.clone(),
        );
        registry.register(
            "check_conditions",
            "Commands ended with CHECK CONDITION, by sense key",
            metrics.check_conditions.clone(),
        );
        registry.register_with_unit(
            "command_duration",
            "Time from a command's arrival to its status",
            Unit::Seconds,
            metrics.durations.clone(),
        );
        registry.register_with_unit("command_data", "Data moved by commands", Unit::Bytes, metrics.bytes.clone());
        registry.register(
            "storage_streams",
            "Streams to storage that are open, one for each thread; 0 means that storage cannot be reached",
            metrics.storage.streams.clone(),
        );
        registry.register(
            "storage_reconnects",
            "Streams to storage that were lost or could not be opened",
            metrics.storage.reconnects.clone(),
        );
        registry.register("storage_errors", "Requests to storage that failed, by kind", metrics.storage.errors.clone());
        Arc::new(metrics)
    }

    pub(crate) fn count_login(&self, outcome: &'static str) {
        self.logins.get_or_create(&KindLabel { kind: outcome }).inc();
    }

    pub(crate) fn count_end(&self, cause: &'static str) {
        self.ends.get_or_create(&KindLabel { kind: cause }).inc();
    }

    pub(crate) fn count_check_condition(&self, sense_key: u8) {
        self.check_conditions.get_or_create(&SenseKeyLabel { key: format!("{sense_key:#04x}") }).inc();
    }

    /// The meters of one initiator on one volume. Beyond [`MAX_INITIATORS`] names, which where everybody may log in are the
    /// network's choice, initiators are counted together as `other`.
    pub(crate) fn nexus(&self, volume: &str, initiator: &str) -> NexusMeters {
        let mut known = self.initiators.lock().unwrap_or_else(PoisonError::into_inner);
        let initiator = if known.contains(initiator) || known.len() < MAX_INITIATORS {
            known.insert(initiator.to_owned());
            initiator
        } else {
            "other"
        };
        drop(known);
        NexusMeters {
            durations: self.durations.clone(),
            bytes: self.bytes.clone(),
            volume: volume.to_owned(),
            initiator: initiator.to_owned(),
            of_operation: Default::default(),
        }
    }
}

/// What of a session's irregularities has been counted already.
#[derive(Debug, Default)]
pub(crate) struct Irregularities {
    counted: [u64; 6],
}

impl Irregularities {
    /// Adds what is new in a session's `counters`.
    pub(crate) fn report(&mut self, counters: &Counters, metrics: &Metrics) {
        let kinds = [
            ("reject", counters.rejects),
            ("ignored_request", counters.ignored_requests),
            ("discarded_data_out", counters.discarded_data_out),
            ("data_digest_error", counters.data_digest_errors),
            ("failed_task", counters.failed_tasks),
            ("aborted_task", counters.aborted_tasks),
        ];
        for ((kind, count), counted) in kinds.into_iter().zip(&mut self.counted) {
            if count > *counted {
                metrics.irregularities.get_or_create(&KindLabel { kind }).inc_by(count - *counted);
                *counted = count;
            }
        }
    }
}

impl StorageMetrics {
    pub(crate) fn count_error(&self, error: &PartError) {
        let kind = match error {
            PartError::Medium { .. } => "medium",
            PartError::NoSpace => "no_space",
            PartError::WriteProtected => "write_protected",
            PartError::DataDamaged => "data_damaged",
            PartError::ConnectionLost => "connection_lost",
            PartError::Cancelled => "cancelled",
            PartError::Failed(_) => "failed",
        };
        self.errors.get_or_create(&KindLabel { kind }).inc();
    }
}

/// Duration and bytes of one initiator's commands on one volume. A series begins with the first command of its kind.
#[derive(Debug)]
pub(crate) struct NexusMeters {
    durations: Family<CommandLabels, Histogram, fn() -> Histogram>,
    bytes: Family<CommandLabels, Counter>,
    volume: String,
    initiator: String,
    of_operation: [OnceCell<Meter>; Operation::COUNT],
}

#[derive(Debug)]
struct Meter {
    duration: Histogram,
    bytes: Counter<u64, AtomicU64>,
}

impl NexusMeters {
    pub(crate) fn record(&self, operation: Operation, duration: Duration, bytes: u64) {
        let meter = self.of_operation[operation as usize].get_or_init(|| self.begin(operation));
        meter.duration.observe(duration.as_secs_f64());
        if bytes > 0 {
            meter.bytes.inc_by(bytes);
        }
    }

    fn begin(&self, operation: Operation) -> Meter {
        let labels = CommandLabels { volume: self.volume.clone(), initiator: self.initiator.clone(), operation };
        Meter {
            duration: self.durations.get_or_create(&labels).clone(),
            bytes: self.bytes.get_or_create(&labels).clone(),
        }
    }
}
