//! Keeps what the network can provoke from flooding the log.

use std::time::{Duration, Instant};

/// Lets one event through per interval and counts the others.
#[derive(Debug)]
pub(crate) struct Throttle {
    interval: Duration,
    last: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, last: None, suppressed: 0 }
    }

    /// `Some` if the event is to be logged now, with the number of those kept back since the last one.
    pub(crate) fn permit(&mut self) -> Option<u64> {
        self.permit_at(Instant::now())
    }

    fn permit_at(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permit_within_the_interval_is_refused_and_counted() {
        let mut throttle = Throttle::new(Duration::from_secs(5));
        let start = Instant::now();
        assert_eq!(throttle.permit_at(start), Some(0));
        assert_eq!(throttle.permit_at(start + Duration::from_secs(1)), None);
        assert_eq!(throttle.permit_at(start + Duration::from_secs(4)), None);
        assert_eq!(throttle.permit_at(start + Duration::from_secs(5)), Some(2));
    }
}
