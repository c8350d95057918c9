//! What the engine counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::Inner;
use crate::catalogue::CatalogueStatistics;
use crate::device::{DeviceStatistics, DeviceWrite};
use crate::machine::{Gauges, Stall};

/// Counters that several threads raise.
#[derive(Debug, Default)]
pub(super) struct Counters {
    batches: AtomicU64,
    journal_bytes: AtomicU64,
    journalled_block_bytes: AtomicU64,
    batch_slot_bytes: AtomicU64,
    checkpoints: AtomicU64,
    checkpoint_us: AtomicU64,
    room_stalls: AtomicU64,
    slot_stalls: AtomicU64,
    growths: AtomicU64,
    refused_growths: AtomicU64,
    crc_errors: AtomicU64,
    damaged_entries: AtomicU64,
    scrubbed_chunks: AtomicU64,
    scrub_findings: AtomicU64,
    scrub_passes: AtomicU64,
}

impl Counters {
    /// A batch goes to the disk; its slots come before its journal pieces, which are as long as its head and payload.
    pub(super) fn batch(&self, writes: &[DeviceWrite], journal: JournalShare) {
        let all: u64 = writes.iter().map(DeviceWrite::len_bytes).sum();
        self.batches.fetch_add(1, Relaxed);
        self.journal_bytes.fetch_add(journal.total_bytes, Relaxed);
        self.journalled_block_bytes.fetch_add(journal.payload_bytes, Relaxed);
        self.batch_slot_bytes.fetch_add(all.saturating_sub(journal.total_bytes), Relaxed);
    }

    pub(super) fn checkpoint(&self, took: Duration) {
        self.checkpoints.fetch_add(1, Relaxed);
        self.checkpoint_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn stall(&self, stall: Stall) {
        match stall {
            Stall::Room => &self.room_stalls,
            Stall::Slots => &self.slot_stalls,
        }
        .fetch_add(1, Relaxed);
    }

    pub(super) fn grown(&self) {
        self.growths.fetch_add(1, Relaxed);
    }

    pub(super) fn full(&self) {
        self.refused_growths.fetch_add(1, Relaxed);
    }

    pub(super) fn crc_error(&self) {
        self.crc_errors.fetch_add(1, Relaxed);
    }

    pub(super) fn damaged_entry(&self) {
        self.damaged_entries.fetch_add(1, Relaxed);
    }

    pub(super) fn scrubbed(&self) {
        self.scrubbed_chunks.fetch_add(1, Relaxed);
    }

    pub(super) fn scrub_finding(&self) {
        self.scrub_findings.fetch_add(1, Relaxed);
    }

    pub(super) fn scrub_pass(&self) {
        self.scrub_passes.fetch_add(1, Relaxed);
    }
}

/// What of a batch goes into the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalShare {
    pub(super) total_bytes: u64,
    pub(super) payload_bytes: u64,
}

/// Figures of the engine since it was opened, and how it stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStatistics {
    /// Batches that were written.
    pub batches: u64,
    /// Bytes that went to the journal.
    pub journal_bytes: u64,
    /// Of which blocks; they are written a second time, to their slots.
    pub journalled_block_bytes: u64,
    /// Bytes of whole chunks that went to their slots at once.
    pub batch_slot_bytes: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
    /// Time that they took, together.
    pub checkpoint_time: Duration,
    /// Times that work waited for room in the journal or in memory.
    pub room_stalls: u64,
    /// Times that work waited for slots.
    pub slot_stalls: u64,
    /// Times that the data file grew.
    pub growths: u64,
    /// Times that it could not, for want of space.
    pub refused_growths: u64,
    /// Blocks that did not match their checksum.
    pub crc_errors: u64,
    /// Map entries that could not be read.
    pub damaged_entries: u64,
    /// Chunks that the scrub has read.
    pub scrubbed_chunks: u64,
    /// Bad blocks that it has found.
    pub scrub_findings: u64,
    /// Times that it has read everything.
    pub scrub_passes: u64,
    /// Bytes that blocks can take, those in use included; looked at once a second.
    pub usable_bytes: u64,
    /// Whether more of them is in use than the soft threshold says.
    pub space_is_low: bool,
    /// Map entries in the cache.
    pub cached_entries: u64,
    /// How it stands.
    pub gauges: Gauges,
    /// What the data file did.
    pub device: DeviceStatistics,
    /// What the catalogue did.
    pub catalogue: CatalogueStatistics,
}

impl Inner {
    pub(super) fn statistics(&self) -> EngineStatistics {
        let counters = &self.counters;
        EngineStatistics {
            batches: counters.batches.load(Relaxed),
            journal_bytes: counters.journal_bytes.load(Relaxed),
            journalled_block_bytes: counters.journalled_block_bytes.load(Relaxed),
            batch_slot_bytes: counters.batch_slot_bytes.load(Relaxed),
            checkpoints: counters.checkpoints.load(Relaxed),
            checkpoint_time: Duration::from_micros(counters.checkpoint_us.load(Relaxed)),
            room_stalls: counters.room_stalls.load(Relaxed),
            slot_stalls: counters.slot_stalls.load(Relaxed),
            growths: counters.growths.load(Relaxed),
            refused_growths: counters.refused_growths.load(Relaxed),
            crc_errors: counters.crc_errors.load(Relaxed),
            damaged_entries: counters.damaged_entries.load(Relaxed),
            scrubbed_chunks: counters.scrubbed_chunks.load(Relaxed),
            scrub_findings: counters.scrub_findings.load(Relaxed),
            scrub_passes: counters.scrub_passes.load(Relaxed),
            usable_bytes: self.space.usable_bytes(),
            space_is_low: self.space.is_low(),
            cached_entries: self.cold.len(),
            gauges: self.lock().machine.gauges(),
            device: self.device.statistics(),
            catalogue: self.catalogue.statistics(),
        }
    }
}
