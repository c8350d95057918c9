//! The disk engine's figures, read when somebody asks for them.

use std::sync::Arc;

use holdfast_store::{EngineStatistics, Store};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Asks a store for its figures at each scrape.
pub(crate) struct StoreMetrics(pub(crate) Arc<dyn Store>);

impl std::fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreMetrics").finish_non_exhaustive()
    }
}

/// Name, help and unit of a figure, and where it is.
type Figure = (&'static str, &'static str, Option<Unit>, fn(&EngineStatistics) -> u64);

/// Figures that only rise.
const COUNTERS: &[Figure] = &[
    ("holdfast_store_batches", "Batches written to the journal", None, |s| s.batches),
    ("holdfast_store_journal", "Bytes written to the journal", Some(Unit::Bytes), |s| s.journal_bytes),
    (
        "holdfast_store_journalled_blocks",
        "Bytes of blocks in the journal, which are written again to their slots",
        Some(Unit::Bytes),
        |s| s.journalled_block_bytes,
    ),
    (
        "holdfast_store_direct_slots",
        "Bytes of whole chunks written to slots once, beside the journal",
        Some(Unit::Bytes),
        |s| s.batch_slot_bytes,
    ),
    ("holdfast_store_checkpoints", "Checkpoints written", None, |s| s.checkpoints),
    ("holdfast_store_room_stalls", "Times that writes waited for room in the journal or in memory", None, |s| {
        s.room_stalls
    }),
    ("holdfast_store_slot_stalls", "Times that writes waited for free slots", None, |s| s.slot_stalls),
    ("holdfast_store_growths", "Times that the data file grew", None, |s| s.growths),
    ("holdfast_store_growths_refused", "Times that the data file could not grow for want of space", None, |s| {
        s.refused_growths
    }),
    ("holdfast_store_crc_errors", "Blocks on the disk that did not match their checksum", None, |s| s.crc_errors),
    ("holdfast_store_damaged_map_entries", "Map entries that could not be read", None, |s| s.damaged_entries),
    ("holdfast_store_scrubbed_chunks", "Chunks that the scrub has read", None, |s| s.scrubbed_chunks),
    ("holdfast_store_scrub_findings", "Bad blocks that the scrub has found", None, |s| s.scrub_findings),
    ("holdfast_store_scrub_passes", "Times that the scrub has read everything", None, |s| s.scrub_passes),
    ("holdfast_store_device_reads", "Reads of the data file", None, |s| s.device.reads),
    ("holdfast_store_device_read", "Bytes read from the data file", Some(Unit::Bytes), |s| s.device.bytes_read),
    ("holdfast_store_device_writes", "Writes to the data file", None, |s| s.device.writes),
    (
        "holdfast_store_device_written",
        "Bytes written to the data file, journal and slots together",
        Some(Unit::Bytes),
        |s| s.device.bytes_written,
    ),
    ("holdfast_store_device_syncs", "Times that the data file was synced", None, |s| s.device.syncs),
    ("holdfast_store_catalogue_commits", "Commits of the catalogue", None, |s| s.catalogue.commits),
    ("holdfast_store_catalogue_syncs", "Syncs of the catalogue's log", None, |s| s.catalogue.syncs),
    ("holdfast_store_catalogue_log", "Bytes written to the catalogue's log", Some(Unit::Bytes), |s| {
        s.catalogue.wal_bytes
    }),
    (
        "holdfast_store_catalogue_flushed",
        "Bytes of tables that the catalogue wrote from memory",
        Some(Unit::Bytes),
        |s| s.catalogue.flushed_bytes,
    ),
    (
        "holdfast_store_catalogue_compacted",
        "Bytes of tables that the catalogue wrote by merging",
        Some(Unit::Bytes),
        |s| s.catalogue.compacted_bytes,
    ),
];

/// Figures that rise and fall.
const GAUGES: &[Figure] = &[
    ("holdfast_store_journal_size", "Size of the journal", Some(Unit::Bytes), |s| s.gauges.journal_bytes),
    ("holdfast_store_journal_used", "Bytes of the journal that no checkpoint covers yet", Some(Unit::Bytes), |s| {
        s.gauges.journal_used_bytes
    }),
    ("holdfast_store_overlay", "Bytes of journalled blocks in memory", Some(Unit::Bytes), |s| s.gauges.overlay_bytes),
    ("holdfast_store_changed_chunks", "Chunks changed since the last checkpoint began", None, |s| {
        s.gauges.changed_chunks
    }),
    ("holdfast_store_slots", "Slots of 64 KiB that the data file has", None, |s| s.gauges.slots.into()),
    ("holdfast_store_slots_used", "Slots that hold data, or did until the next checkpoint", None, |s| {
        s.gauges.slots_used.into()
    }),
    ("holdfast_store_usable", "Bytes that blocks can take, those in use included", Some(Unit::Bytes), |s| {
        s.usable_bytes
    }),
    ("holdfast_store_space_low", "1 when more space is in use than the soft threshold says", None, |s| {
        s.space_is_low.into()
    }),
    ("holdfast_store_queued_operations", "Operations that wait for a batch", None, |s| s.gauges.queued),
    ("holdfast_store_cached_map_entries", "Map entries of the catalogue that are in memory", None, |s| {
        s.cached_entries
    }),
    ("holdfast_store_catalogue_size", "Bytes that the catalogue's files take", Some(Unit::Bytes), |s| {
        s.catalogue.disk_bytes
    }),
];

impl Collector for StoreMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(statistics) = self.0.statistics() else {
            return Ok(());
        };
        for (name, help, unit, figure) in COUNTERS {
            let metric = ConstCounter::new(figure(&statistics));
            metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)?;
        }
        for (name, help, unit, figure) in GAUGES {
            // Beyond 2^63 no figure gets.
            let metric = ConstGauge::new(i64::try_from(figure(&statistics)).unwrap_or(i64::MAX));
            metric.encode(encoder.encode_descriptor(name, help, unit.as_ref(), metric.metric_type())?)?;
        }
        let failed = ConstGauge::new(i64::from(self.0.failure().is_some()));
        let (name, help) =
            ("holdfast_store_device_failed", "1 when the disk has failed: nothing on it is served any more");
        failed.encode(encoder.encode_descriptor(name, help, None, failed.metric_type())?)?;
        let seconds = ConstCounter::new(statistics.checkpoint_time.as_secs_f64());
        let (name, help) = ("holdfast_store_checkpoint_duration", "Time that checkpoints took, together");
        seconds.encode(encoder.encode_descriptor(name, help, Some(&Unit::Seconds), seconds.metric_type())?)?;
        // Of what was written by clients, once: whole chunks, and blocks in the journal.
        let client_bytes = statistics.batch_slot_bytes + statistics.journalled_block_bytes;
        let catalogue = &statistics.catalogue;
        let all =
            statistics.device.bytes_written + catalogue.wal_bytes + catalogue.flushed_bytes + catalogue.compacted_bytes;
        #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = if client_bytes == 0 { 0.0 } else { all as f64 / client_bytes as f64 };
        let amplification = ConstGauge::new(ratio);
        let (name, help) = (
            "holdfast_store_write_amplification",
            "Bytes written to the disk for each byte that clients wrote, since the start",
        );
        amplification.encode(encoder.encode_descriptor(name, help, Some(&Unit::Ratios), amplification.metric_type())?)
    }
}
