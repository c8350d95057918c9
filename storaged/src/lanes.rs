//! One stream at a time for each lane of each gateway.
//!
//! A gateway that has lost a stream opens another under the same incarnation and lane. What it sent on the old one may still
//! be on its way to the disk, so the new one is welcomed only when every request that was taken from the old one has been
//! answered: then the gateway knows that none of them takes effect any more (hazards A4 and A7).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedMutexGuard, watch};

/// Streams of this many lanes at most, over all gateways.
const MAX_LANES: usize = 4096;

/// Incarnation and lane number.
pub(crate) type LaneId = (u64, u32);

/// The lanes that have a stream, or one that waits for its predecessor to end.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    entries: Mutex<HashMap<LaneId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// Held by the stream that is being served.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Number of the newest stream.
    newest: watch::Sender<u64>,
    /// Streams that are served or wait.
    count: usize,
}

/// There are too many lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyLanes;

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, HashMap<LaneId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the lane's present stream, waits until it is settled, and takes its place.
    pub(crate) async fn enter(self: &Arc<Self>, id: LaneId) -> Result<LaneTicket, TooManyLanes> {
        let (claim, turn) = self.claim(id)?;
        let turn = turn.lock_owned().await;
        Ok(LaneTicket { _turn: turn, claim })
    }

    fn claim(self: &Arc<Self>, id: LaneId) -> Result<(Claim, Arc<tokio::sync::Mutex<()>>), TooManyLanes> {
        let mut entries = self.lock();
        if entries.len() >= MAX_LANES && !entries.contains_key(&id) {
            return Err(TooManyLanes);
        }
        let entry = entries.entry(id).or_insert_with(|| Entry {
            turn: Arc::default(),
            newest: watch::Sender::new(0),
            count: 0,
        });
        entry.count += 1;
        entry.newest.send_modify(|newest| *newest += 1);
        let number = *entry.newest.borrow();
        let claim = Claim { lanes: self.clone(), id, number, newest: entry.newest.subscribe() };
        Ok((claim, entry.turn.clone()))
    }
}

/// A stream's place in its lane, from its hello on.
#[derive(Debug)]
struct Claim {
    lanes: Arc<Lanes>,
    id: LaneId,
    number: u64,
    newest: watch::Receiver<u64>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut entries = self.lanes.lock();
        if let Some(entry) = entries.get_mut(&self.id) {
            entry.count = entry.count.saturating_sub(1);
            if entry.count == 0 {
                entries.remove(&self.id);
            }
        }
    }
}

/// The right to serve a lane's stream. Dropped when every request that was taken from it has been answered.
#[derive(Debug)]
pub(crate) struct LaneTicket {
    // Given back before the claim, so that an entry without claims has no holder.
    _turn: OwnedMutexGuard<()>,
    claim: Claim,
}

impl LaneTicket {
    /// Resolves when a newer stream of this lane has said hello.
    pub(crate) async fn superseded(&mut self) {
        let number = self.claim.number;
        // The sender lives as long as this claim does.
        let _ = self.claim.newest.wait_for(|newest| *newest != number).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    async fn is_pending<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
        poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
    }

    #[tokio::test]
    async fn newer_stream_when_it_says_hello_then_waits_until_the_older_one_is_settled() {
        let lanes = Arc::new(Lanes::default());
        let mut first = lanes.enter((1, 0)).await.unwrap();
        assert!(is_pending(pin!(first.superseded())).await);
        let mut second = pin!(lanes.enter((1, 0)));
        assert!(is_pending(second.as_mut()).await);
        first.superseded().await;
        drop(first);
        let mut second = second.await.unwrap();
        assert!(is_pending(pin!(second.superseded())).await);
        drop(second);
        assert!(lanes.lock().is_empty());
    }

    #[tokio::test]
    async fn other_lane_when_one_is_busy_then_does_not_wait() {
        let lanes = Arc::new(Lanes::default());
        let _first = lanes.enter((1, 0)).await.unwrap();
        let _other_lane = lanes.enter((1, 1)).await.unwrap();
        let _other_incarnation = lanes.enter((2, 0)).await.unwrap();
        assert_eq!(lanes.lock().len(), 3);
    }

    #[tokio::test]
    async fn waiting_stream_when_it_gives_up_then_leaves_nothing_behind() {
        let lanes = Arc::new(Lanes::default());
        let first = lanes.enter((1, 0)).await.unwrap();
        {
            let second = pin!(lanes.enter((1, 0)));
            assert!(is_pending(second).await);
        }
        drop(first);
        assert!(lanes.lock().is_empty());
        lanes.enter((1, 0)).await.unwrap();
    }

    #[tokio::test]
    async fn lanes_when_too_many_then_refused() {
        let lanes = Arc::new(Lanes::default());
        let mut tickets = Vec::new();
        for incarnation in 0..MAX_LANES as u64 {
            tickets.push(lanes.enter((incarnation, 0)).await.unwrap());
        }
        assert_eq!(lanes.enter((u64::MAX, 0)).await.unwrap_err(), TooManyLanes);
        tickets.pop();
        lanes.enter((u64::MAX, 0)).await.unwrap();
    }
}
