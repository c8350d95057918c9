//! How much of the disk is left, and the soft threshold: thin volumes may promise more than there is, so somebody has to be told while
//! there is still time to add space or to remove data.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::Inner;
use crate::ids::CHUNK_BYTES;
use crate::machine::Gauges;

/// Tells how much more the file system can hold.
pub(crate) trait FreeSpace: Send + Sync {
    /// Bytes; an error counts as plenty, for growing will then tell.
    fn free_bytes(&self) -> u64;
}

/// Below the threshold by so many hundredths of the disk, space counts as enough again: who writes and unmaps just there is not told
/// every second.
const HYSTERESIS_PERCENT: u64 = 2;

/// How it stood when it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Space {
    usable_bytes: AtomicU64,
    low: AtomicBool,
}

impl Space {
    /// Bytes that blocks can take, those in use included.
    pub(super) fn usable_bytes(&self) -> u64 {
        self.usable_bytes.load(Relaxed)
    }

    /// Whether more is in use than the soft threshold says.
    pub(super) fn is_low(&self) -> bool {
        self.low.load(Relaxed)
    }
}

/// Whether space is low now, after it was `low` before.
fn is_low(low: bool, used_bytes: u64, usable_bytes: u64, percent: u8) -> bool {
    let percent = u64::from(percent).saturating_sub(if low { HYSTERESIS_PERCENT } else { 0 });
    u128::from(used_bytes) * 100 >= u128::from(usable_bytes) * u128::from(percent)
}

/// Looks, and says when the threshold is passed in either direction.
pub(super) fn look(inner: &Inner, gauges: &Gauges) {
    let used = u64::from(gauges.slots_used) * CHUNK_BYTES;
    let free = u64::from(gauges.slots.saturating_sub(gauges.slots_used)) * CHUNK_BYTES;
    let growth = inner.free_space.free_bytes().saturating_sub(inner.settings.space_reserve_bytes);
    let usable = used.saturating_add(free).saturating_add(growth);
    inner.space.usable_bytes.store(usable, Relaxed);
    let before = inner.space.is_low();
    let now = is_low(before, used, usable, inner.settings.soft_threshold_percent);
    inner.space.low.store(now, Relaxed);
    let percent = inner.settings.soft_threshold_percent;
    match (before, now) {
        (false, true) => tracing::warn!(
            used_bytes = used,
            usable_bytes = usable,
            "more than {percent} % of the disk is in use: add space, or unmap or move data, before writes fail"
        ),
        (true, false) => tracing::info!(used_bytes = used, usable_bytes = usable, "there is enough space again"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_when_it_passes_the_threshold_then_low_until_it_is_well_below() {
        let mut low = false;
        for (used, expected) in [(0, false), (79, false), (80, true), (79, true), (78, true), (77, false), (79, false)]
        {
            low = is_low(low, used, 100, 80);
            assert_eq!(low, expected, "{used}");
        }
        assert!(is_low(false, u64::MAX, u64::MAX, 100));
        assert!(!is_low(false, 1 << 62, u64::MAX, 100));
    }
}
