//! One worker's stream to the storage node: numbers requests, pipelines them, and settles their fate when the stream breaks.
//!
//! A request that was sent on a stream which then broke may or may not have been done. The node answers the hello of the next
//! stream only after everything that it took from the previous one is finished, so from then on the fate of those requests
//! no longer changes. Reads are asked again; writes end as [`PartError::ConnectionLost`] and the initiator, which alone
//! knows what it has sent since, decides (hazards A5 and A7).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::block::message::WIRE_VERSION;
use holdfast_proto::block::{self, Hello, Kind, Reply, ReplyReceiver, Request, RequestSender, Status};
use holdfast_proto::checksum;
use holdfast_proto::ids::{Incarnation, OpId, ShardIndex, VolumeId};
use tracing::{info, warn};

use super::completions::{Completions, PartDone, PartError, PartToken};
use super::parts::Part;
use crate::StorageConnector;
use crate::metrics::StorageMetrics;

/// Pause before the first try to connect again; doubled up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Epoch, term and path epoch of a volume that has one copy on one node and never moves.
const ONLY_EPOCH: u64 = 1;

/// A worker's stream to storage. Clones share it; it never leaves its thread.
#[derive(Clone)]
pub(crate) struct Lane {
    state: Rc<RefCell<State>>,
}

struct State {
    sender: Option<RequestSender>,
    incarnation: u64,
    number: u32,
    next_sequence: u64,
    in_flight: BTreeMap<u64, InFlight>,
    metrics: Arc<StorageMetrics>,
}

struct InFlight {
    progress: Progress,
    kind: Kind,
    offset: u64,
    len: u64,
    done: Rc<Completions>,
    token: PartToken,
}

enum Progress {
    /// Waits for a stream; may still be dropped without a trace.
    Unsent(Box<Request>),
    /// Sent; reads keep what it takes to ask again.
    Sent(Option<Box<Request>>),
}

impl Lane {
    /// A lane that is not connected yet. `incarnation` names this run of the gateway, `number` the lane in it.
    pub(crate) fn new(incarnation: u64, number: u32, metrics: Arc<StorageMetrics>) -> Self {
        let state = State { sender: None, incarnation, number, next_sequence: 1, in_flight: BTreeMap::new(), metrics };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// Sends a part, or keeps it until there is a stream. The result arrives in `done` under `token`. Returns a handle for
    /// [`Self::cancel`].
    pub(crate) fn submit(
        &self,
        volume: VolumeId,
        nexus: u64,
        part: Part,
        done: &Rc<Completions>,
        token: PartToken,
    ) -> u64 {
        let state = &mut *self.state.borrow_mut();
        let sequence = state.next_sequence;
        state.next_sequence += 1;
        let checksums = match part.kind {
            Kind::Write => checksum::of_pieces(part.range.offset, &part.payload),
            Kind::WriteSame => checksum::of_pieces(0, &part.payload),
            _ => Vec::new(),
        };
        let acked_below = state.in_flight.first_key_value().map_or(sequence, |(oldest, _)| *oldest);
        let request = Request {
            id: sequence,
            volume,
            shard: ShardIndex::of_offset(part.range.offset).map_or(u32::MAX, |shard| shard.0),
            epoch: ONLY_EPOCH,
            term: ONLY_EPOCH,
            op: OpId { incarnation: Incarnation(state.incarnation), lane: state.number, sequence, part: 0 },
            acked_below,
            nexus,
            path_epoch: ONLY_EPOCH,
            kind: part.kind,
            offset: part.range.offset,
            len: part.range.len,
            checksums,
            payload: part.payload,
        };
        let mut in_flight = InFlight {
            progress: Progress::Sent(None),
            kind: part.kind,
            offset: part.range.offset,
            len: part.range.len,
            done: done.clone(),
            token,
        };
        in_flight.send(request, state.sender.as_ref());
        state.in_flight.insert(sequence, in_flight);
        sequence
    }

    /// Drops a part that has not been sent yet; one that has been sent ends when storage answers.
    pub(crate) fn cancel(&self, handle: u64) {
        let mut state = self.state.borrow_mut();
        let unsent = state.in_flight.get(&handle).is_some_and(|part| matches!(part.progress, Progress::Unsent(_)));
        if unsent && let Some(part) = state.in_flight.remove(&handle) {
            part.finish(Err(PartError::Cancelled));
        }
    }

    /// Keeps the lane connected for as long as the worker runs.
    pub(crate) async fn run(self, connect: StorageConnector, gateway_name: String) {
        let mut backoff = MIN_BACKOFF;
        loop {
            match self.connect_once(&connect, &gateway_name).await {
                Ok(mut receiver) => {
                    backoff = MIN_BACKOFF;
                    self.state.borrow().metrics.streams.inc();
                    let cause = self.receive_until_lost(&mut receiver).await;
                    self.state.borrow().metrics.streams.dec();
                    self.state.borrow_mut().sender = None;
                    warn!(cause, "lost the stream to the storage node");
                }
                Err(cause) => warn!(cause, retry_ms = backoff.as_millis(), "cannot reach the storage node"),
            }
            self.state.borrow().metrics.reconnects.inc();
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    async fn connect_once(&self, connect: &StorageConnector, gateway_name: &str) -> Result<ReplyReceiver, String> {
        let channel = connect().await?;
        let hello = {
            let state = self.state.borrow();
            Hello {
                wire_version: WIRE_VERSION,
                cluster: String::new(),
                incarnation: state.incarnation,
                lane: state.number,
                name: gateway_name.to_owned(),
            }
        };
        let (welcome, sender, receiver) = block::connect(channel, hello).await.map_err(|error| error.to_string())?;
        info!(node = welcome.node_id, "connected to the storage node");
        self.settle_previous_stream(sender);
        Ok(receiver)
    }

    /// Everything sent on the previous stream is settled at the node now: see the module's words.
    fn settle_previous_stream(&self, sender: RequestSender) {
        let state = &mut *self.state.borrow_mut();
        let previous = std::mem::take(&mut state.in_flight);
        for (sequence, mut part) in previous {
            match std::mem::replace(&mut part.progress, Progress::Sent(None)) {
                Progress::Unsent(request) | Progress::Sent(Some(request)) => {
                    part.send(*request, Some(&sender));
                    state.in_flight.insert(sequence, part);
                }
                Progress::Sent(None) => part.finish(Err(PartError::ConnectionLost)),
            }
        }
        state.sender = Some(sender);
    }

    async fn receive_until_lost(&self, receiver: &mut ReplyReceiver) -> String {
        loop {
            match receiver.recv().await {
                Ok(Some(reply)) => {
                    self.finish(reply);
                    while let Some(reply) = receiver.try_next() {
                        self.finish(reply);
                    }
                }
                Ok(None) => return "closed by the node".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn finish(&self, reply: Reply) {
        let state = &mut *self.state.borrow_mut();
        let Some(part) = state.in_flight.remove(&reply.id) else {
            warn!(id = reply.id, "the storage node answered a request that was never sent");
            return;
        };
        let result = verified(&part, reply);
        if let Err(error) = &result {
            state.metrics.count_error(error);
        }
        part.finish(result);
    }
}

impl InFlight {
    fn send(&mut self, request: Request, sender: Option<&RequestSender>) {
        // A stream that closes under our hands is noticed by the receiver, which settles what was sent on it.
        let sent = sender.is_some_and(|sender| sender.send(&request).is_ok());
        self.progress = match request.kind {
            _ if !sent => Progress::Unsent(Box::new(request)),
            Kind::Read | Kind::Flush => Progress::Sent(Some(Box::new(request))),
            Kind::Write | Kind::WriteSame | Kind::Unmap => Progress::Sent(None),
        };
    }

    fn finish(self, result: Result<Vec<bytes::Bytes>, PartError>) {
        self.done.push(PartDone { token: self.token, result });
    }
}

/// What a reply means, the data it brings checked against its checksums.
fn verified(part: &InFlight, reply: Reply) -> Result<Vec<bytes::Bytes>, PartError> {
    match reply.status {
        Status::Ok if part.kind == Kind::Read => {
            let whole = checksum::len_bytes(&reply.payload) == part.len;
            if whole && checksum::verify(part.offset, &reply.payload, &reply.checksums).is_ok() {
                Ok(reply.payload)
            } else {
                Err(PartError::DataDamaged)
            }
        }
        Status::Ok => Ok(Vec::new()),
        status => Err(status.into()),
    }
}

impl From<Status> for PartError {
    /// What the node's refusal means to the initiator. [`Status::Ok`] is no error and never comes here.
    fn from(status: Status) -> Self {
        match status {
            Status::Checksum => Self::DataDamaged,
            Status::MediumError { offset } => Self::Medium { offset },
            Status::NoSpace => Self::NoSpace,
            Status::WriteProtected => Self::WriteProtected,
            // The node did nothing; by the time that the initiator repeats the command there may be one that can.
            Status::Stopping | Status::StaleEpoch | Status::StalePath => Self::ConnectionLost,
            other => Self::Failed(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
