//! What the daemon counts. Made once; the hot path touches only handles that were looked up before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_proto::block::{Kind, Status};
use holdfast_store::{Store, StoreError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::store_metrics::StoreMetrics;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PlaceLabel {
    place: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// All metrics of one storage daemon.
pub(crate) struct Metrics {
    registry: Registry,
    kinds: [KindMetrics; Kind::ALL.len()],
    errors: Family<StatusLabel, Counter>,
    checksum_errors: Family<PlaceLabel, Counter>,
    streams: Gauge,
    streams_refused: Family<ReasonLabel, Counter>,
    streams_broken: Counter,
    /// The device has failed since the daemon started: it serves nothing any more.
    device_failed: AtomicBool,
}

/// Metrics of one kind of request.
struct KindMetrics {
    requests: Counter,
    bytes: Counter,
    in_flight: Gauge,
    seconds: Histogram,
}

/// 16 µs to about 4 s.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(16e-6, 2.0, 19))
}

impl Metrics {
    /// `store` is asked for its figures at each scrape.
    pub(crate) fn new(store: Option<&Arc<dyn Store>>) -> Self {
        let mut all = Registry::default();
        if let Some(store) = store {
            all.register_collector(Box::new(StoreMetrics(Arc::clone(store))));
        }
        let registry = all.sub_registry_with_prefix("holdfast_storaged");
        let requests = Family::<KindLabel, Counter>::default();
        registry.register("requests", "Block requests received", requests.clone());
        let bytes = Family::<KindLabel, Counter>::default();
        registry.register_with_unit("request", "Bytes of volumes that requests covered", Unit::Bytes, bytes.clone());
        let in_flight = Family::<KindLabel, Gauge>::default();
        registry.register("requests_in_flight", "Block requests that are not answered yet", in_flight.clone());
        let seconds = Family::<KindLabel, Histogram>::new_with_constructor(buckets);
        registry.register_with_unit(
            "request_duration",
            "Time from the receipt of a block request to its answer",
            Unit::Seconds,
            seconds.clone(),
        );
        let kinds = Kind::ALL.map(|kind| {
            let label = KindLabel { kind: kind.name() };
            KindMetrics {
                requests: requests.get_or_create_owned(&label),
                bytes: bytes.get_or_create_owned(&label),
                in_flight: in_flight.get_or_create_owned(&label),
                seconds: seconds.get_or_create_owned(&label),
            }
        });

        let errors = Family::default();
        registry.register("errors", "Block requests answered with another status than ok", errors.clone());
        let checksum_errors = Family::default();
        registry.register(
            "checksum_errors",
            "Checksums that did not match: of a payload on arrival, or of the medium",
            checksum_errors.clone(),
        );
        let streams = Gauge::default();
        registry.register("streams", "Block streams that are open", streams.clone());
        let streams_refused = Family::default();
        registry.register("streams_refused", "Block streams refused at their hello", streams_refused.clone());
        let streams_broken = Counter::default();
        registry.register("streams_broken", "Block streams that ended out of order", streams_broken.clone());
        Self {
            registry: all,
            kinds,
            errors,
            checksum_errors,
            streams,
            streams_refused,
            streams_broken,
            device_failed: AtomicBool::new(false),
        }
    }

    fn kind(&self, kind: Kind) -> &KindMetrics {
        let [read, write, write_same, unmap, flush] = &self.kinds;
        match kind {
            Kind::Read => read,
            Kind::Write => write,
            Kind::WriteSame => write_same,
            Kind::Unmap => unmap,
            Kind::Flush => flush,
        }
    }

    /// A request has been received.
    pub(crate) fn begin(&self, kind: Kind, len_bytes: u64) {
        let metrics = self.kind(kind);
        metrics.requests.inc();
        metrics.bytes.inc_by(len_bytes);
        metrics.in_flight.inc();
    }

    /// A request has been answered.
    pub(crate) fn end(&self, kind: Kind, took: Duration, status: &Status) {
        let metrics = self.kind(kind);
        metrics.in_flight.dec();
        metrics.seconds.observe(took.as_secs_f64());
        if *status != Status::Ok {
            self.errors.get_or_create(&StatusLabel { status: status.name() }).inc();
        }
        match status {
            Status::Checksum => self.checksum_errors("payload"),
            Status::DeviceFailed(_) => self.device_failed.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// The store met a block that is not what was written.
    pub(crate) fn store_error(&self, error: &StoreError) {
        if let StoreError::Checksum { .. } = error {
            self.checksum_errors("medium");
        }
    }

    fn checksum_errors(&self, place: &'static str) {
        self.checksum_errors.get_or_create(&PlaceLabel { place }).inc();
    }

    pub(crate) fn stream_opened(&self) {
        self.streams.inc();
    }

    pub(crate) fn stream_closed(&self, in_order: bool) {
        self.streams.dec();
        if !in_order {
            self.streams_broken.inc();
        }
    }

    pub(crate) fn stream_refused(&self, reason: &'static str) {
        self.streams_refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Whether the device failed.
    pub(crate) fn device_failed(&self) -> bool {
        self.device_failed.load(Ordering::Relaxed)
    }

    /// All of it as OpenMetrics text.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// At most one log line a second for what the network can repeat at will.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    /// Second since the process's start of the last line, plus one.
    last: AtomicU64,
}

impl LogLimit {
    /// Whether a line may be written now.
    pub(crate) fn allows(&self, uptime: Duration) -> bool {
        let second = uptime.as_secs() + 1;
        self.last.swap(second, Ordering::Relaxed) != second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_when_requests_end_then_counted_by_kind_and_status() {
        let metrics = Metrics::new(None);
        for (kind, status) in [
            (Kind::Read, Status::Ok),
            (Kind::Write, Status::Checksum),
            (Kind::Write, Status::DeviceFailed("eio".to_owned())),
        ] {
            metrics.begin(kind, 4096);
            metrics.end(kind, Duration::from_micros(100), &status);
        }
        metrics.begin(Kind::Flush, 0);
        metrics.store_error(&StoreError::Checksum { offset: 0 });
        let text = metrics.text().unwrap();
        for line in [
            "holdfast_storaged_requests_total{kind=\"write\"} 2",
            "holdfast_storaged_request_bytes_total{kind=\"read\"} 4096",
            "holdfast_storaged_requests_in_flight{kind=\"flush\"} 1",
            "holdfast_storaged_requests_in_flight{kind=\"write\"} 0",
            "holdfast_storaged_request_duration_seconds_count{kind=\"read\"} 1",
            "holdfast_storaged_errors_total{status=\"checksum\"} 1",
            "holdfast_storaged_errors_total{status=\"device_failed\"} 1",
            "holdfast_storaged_checksum_errors_total{place=\"payload\"} 1",
            "holdfast_storaged_checksum_errors_total{place=\"medium\"} 1",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in\n{text}");
        }
        assert!(metrics.device_failed());
    }

    #[test]
    fn log_limit_when_asked_often_then_once_a_second() {
        let limit = LogLimit::default();
        assert!(limit.allows(Duration::from_millis(100)));
        assert!(!limit.allows(Duration::from_millis(900)));
        assert!(limit.allows(Duration::from_millis(1100)));
        assert!(!limit.allows(Duration::from_millis(1101)));
    }
}
