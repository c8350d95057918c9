//! The thread that reads all data now and then, slowly, so that what has rotten is found while other copies are good.

use std::sync::PoisonError;
use std::time::Duration;

use super::Inner;
use crate::ids::{CHUNK_BYTES, ShardId};
use crate::read::FaultKind;
use crate::scrub::{ChunkVerdict, verify_chunk};

/// From the start to the first pass: what restarts often is not read all the time.
const FIRST: Duration = Duration::from_secs(3600);

/// From the end of a pass to the beginning of the next.
const BETWEEN: Duration = Duration::from_secs(7 * 24 * 3600);

/// Chunks between two pauses.
const STRIDE: u64 = 16;

/// Findings of one pass that are logged; all are counted.
const LOGGED: u64 = 20;

/// The scrub thread.
pub(super) fn run(inner: &Inner) {
    let rate = inner.settings.scrub_bytes_per_second;
    if rate == 0 || !inner.pause(FIRST) {
        return;
    }
    // Where it begins differs from start to start, so that passes that are never finished come to everything.
    let mut from = usize::from(inner.uuid.0[0]) ^ usize::try_from(std::process::id()).unwrap_or_default();
    loop {
        let pace = |bytes: u64| inner.pause(Duration::from_secs_f64(bytes as f64 / rate as f64));
        if !pass(inner, from, pace) || !inner.pause(BETWEEN) {
            return;
        }
        from = from.wrapping_add(1);
    }
}

/// Reads all chunks that have data, from some shard on. `pace` is told how many bytes were read and says whether to go on.
pub(super) fn pass(inner: &Inner, from: usize, mut pace: impl FnMut(u64) -> bool) -> bool {
    let mut shards = inner.lock().machine.shard_ids();
    if !shards.is_empty() {
        let first = from % shards.len();
        shards.rotate_left(first);
    }
    let (mut chunks, mut findings) = (0u64, 0);
    for shard in shards {
        let with_data = inner.lock().machine.chunks_with_slot(shard);
        for chunk in with_data {
            if inner.lock().machine.failure().is_some() {
                return false;
            }
            match verify_chunk(inner, &*inner.device, &*inner.catalogue, shard, chunk) {
                Ok(ChunkVerdict::Blocks(faults)) => {
                    for fault in faults {
                        let block = u64::from(chunk.first_block()) + fault.block;
                        let what = match fault.kind {
                            FaultKind::Checksum => "it is not what was written".to_owned(),
                            FaultKind::Lost => "its content was lost with its map entry".to_owned(),
                            FaultKind::Io(error) => error,
                        };
                        found(inner, shard, block, &what, &mut findings);
                    }
                }
                Ok(ChunkVerdict::NoEntry) => {
                    found(inner, shard, chunk.first_block().into(), "its map entry is damaged", &mut findings);
                }
                Err(error) => found(inner, shard, chunk.first_block().into(), &error.to_string(), &mut findings),
            }
            inner.counters.scrubbed();
            chunks += 1;
            if chunks.is_multiple_of(STRIDE) && !pace(STRIDE * CHUNK_BYTES) {
                return false;
            }
        }
    }
    inner.counters.scrub_pass();
    tracing::info!(chunks, findings, "all data was read and compared with its checksums");
    true
}

fn found(inner: &Inner, shard: ShardId, block: u64, what: &str, findings: &mut u64) {
    inner.counters.scrub_finding();
    *findings += 1;
    if *findings <= LOGGED {
        let offset = super::reads::offset_of(shard, block);
        tracing::error!(volume = %shard.volume, offset, what, "a block on the disk is bad");
    }
}

impl Inner {
    /// Waits, and says whether to go on.
    fn pause(&self, time: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.stop.wait_timeout_while(stopped, time, |stopped| !*stopped);
        !*result.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Ends all pauses.
    pub(super) fn stop_scrub(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.notify_all();
    }
}
