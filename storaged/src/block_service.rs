//! The block service: requests of a stream go to the store, its answers back, and nothing here waits for the disk.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use holdfast_proto::block::message::{MAX_PAYLOAD_BYTES, WIRE_VERSION};
use holdfast_proto::block::server::ReceiveError;
use holdfast_proto::block::{BlockHandler, Hello, Incoming, Kind, ReplySlot, RequestReceiver, Status, Welcome};
use holdfast_store::{Output, Store, StoreError};
use tokio::sync::watch;
use tonic::Status as GrpcStatus;
use tracing::{debug, info, warn};

use crate::admission;
use crate::error::block_status;
use crate::lanes::{LaneTicket, Lanes};
use crate::metrics::{LogLimit, Metrics};

/// Requests that are taken from a stream before other tasks get their turn.
const REQUESTS_PER_TURN: usize = 64;

/// And bytes that they may ask for. A store in memory answers within the call: without this all answers to a burst of long reads were
/// made before the first one left, and caller and node worked in turns instead of at the same time.
const BYTES_PER_TURN: u64 = 256 << 10;

/// Who this node is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: String,
    pub(crate) node_id: u64,
    pub(crate) incarnation: u64,
}

pub(crate) struct BlockService {
    pub(crate) identity: Identity,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lanes: Arc<Lanes>,
    /// Turns true when the daemon stops.
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) started: Instant,
    pub(crate) refusals: LogLimit,
    pub(crate) failures: Arc<LogLimit>,
}

/// An accepted stream.
pub(crate) struct Session {
    hello: Hello,
    peer: Option<SocketAddr>,
    ticket: LaneTicket,
}

/// Why a stream is over.
enum Over {
    ByCaller,
    Broken(ReceiveError),
    Superseded,
    Stopping,
}

/// What the serving loop does next.
#[allow(clippy::large_enum_variant, reason = "moved once, and a box for each request would cost more")]
enum Step {
    Take(Incoming),
    End(Over),
}

impl BlockHandler for BlockService {
    type Session = Session;

    async fn welcome(&self, hello: &Hello, peer: Option<SocketAddr>) -> Result<(Welcome, Session), GrpcStatus> {
        let refuse = |reason: &'static str, status: GrpcStatus| {
            self.metrics.stream_refused(reason);
            if self.refusals.allows(self.started.elapsed()) {
                warn!(?peer, name = hello.name, reason, "block stream refused: {}", status.message());
            }
            Err(status)
        };
        if *self.stopping.borrow() {
            return refuse("stopping", GrpcStatus::unavailable("the storage daemon is stopping"));
        }
        if !hello.cluster.is_empty() && hello.cluster != self.identity.cluster {
            let text = format!("this is cluster {:?}, not {:?}", self.identity.cluster, hello.cluster);
            return refuse("cluster", GrpcStatus::failed_precondition(text));
        }
        let Ok(ticket) = self.lanes.enter((hello.incarnation, hello.lane)).await else {
            return refuse("lanes", GrpcStatus::resource_exhausted("too many block streams"));
        };
        let welcome = Welcome {
            wire_version: WIRE_VERSION,
            cluster: self.identity.cluster.clone(),
            node_id: self.identity.node_id,
            incarnation: self.identity.incarnation,
            max_payload_bytes: MAX_PAYLOAD_BYTES as u64,
        };
        Ok((welcome, Session { hello: hello.clone(), peer, ticket }))
    }

    async fn serve(self: Arc<Self>, session: Session, mut requests: RequestReceiver) {
        let Session { hello, peer, mut ticket } = session;
        let span = tracing::info_span!(
            "block_stream",
            ?peer,
            name = hello.name,
            incarnation = hello.incarnation,
            lane = hello.lane
        );
        self.metrics.stream_opened();
        span.in_scope(|| info!("block stream opened"));

        let over = self.serve_until_over(&mut ticket, &mut requests).await;
        match &over {
            Over::Stopping => requests.end(&GrpcStatus::unavailable("the storage daemon is stopping")),
            Over::Superseded => requests.end(&GrpcStatus::aborted("a newer stream has taken the lane")),
            Over::ByCaller | Over::Broken(_) => {}
        }
        requests.drained().await;
        drop(ticket);

        self.metrics.stream_closed(matches!(over, Over::ByCaller | Over::Stopping));
        span.in_scope(|| match over {
            Over::ByCaller => info!("block stream closed"),
            Over::Stopping => info!("block stream closed to stop"),
            Over::Superseded => info!("block stream replaced by a newer one of its lane"),
            Over::Broken(ReceiveError::Lost(error)) => info!(%error, "block stream lost"),
            Over::Broken(error) => warn!(%error, "block stream broken by its caller"),
        });
    }
}

impl BlockService {
    async fn serve_until_over(&self, ticket: &mut LaneTicket, requests: &mut RequestReceiver) -> Over {
        let mut stopping = self.stopping.clone();
        // An error says that the daemon itself is gone.
        let mut stop = pin!(async {
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => Over::Stopping,
                () = ticket.superseded() => Over::Superseded,
            }
        });
        let (mut taken, mut bytes, mut turn_is_over) = (0, 0, false);
        loop {
            if taken >= REQUESTS_PER_TURN || bytes >= BYTES_PER_TURN {
                // Not by waking itself: a task that does runs again and again before the main task of its thread, where a gateway's
                // connections are.
                tokio::task::yield_now().await;
                (taken, bytes, turn_is_over) = (0, 0, true);
            }
            // Looking at `stop` only when there is nothing to take, or a turn is over, keeps it off the path of a request.
            let step = std::future::poll_fn(|context| {
                if std::mem::take(&mut turn_is_over)
                    && let Poll::Ready(over) = stop.as_mut().poll(context)
                {
                    return Poll::Ready(Step::End(over));
                }
                if let Poll::Ready(result) = requests.poll_recv(context) {
                    return Poll::Ready(match result {
                        Ok(Some(incoming)) => Step::Take(incoming),
                        Ok(None) => Step::End(Over::ByCaller),
                        Err(error) => Step::End(Over::Broken(error)),
                    });
                }
                (taken, bytes) = (0, 0);
                stop.as_mut().poll(context).map(Step::End)
            })
            .await;
            match step {
                Step::Take(incoming) => {
                    taken += 1;
                    // An unmap may name any length, and costs nothing for it.
                    bytes += if incoming.request.kind == Kind::Unmap { 0 } else { incoming.request.len };
                    self.start(incoming);
                }
                Step::End(over) => return over,
            }
        }
    }

    /// Hands a request to the store, or answers it at once.
    fn start(&self, incoming: Incoming) {
        let Incoming { request, reply } = incoming;
        let kind = request.kind;
        self.metrics.begin(kind, request.len);
        let pending = Pending {
            kind,
            received: Instant::now(),
            metrics: self.metrics.clone(),
            failures: self.failures.clone(),
            started: self.started,
            reply,
        };
        let volume = request.volume;
        match admission::operation(request) {
            Ok(operation) => self.store.submit(volume, operation, Box::new(move |result| pending.finish(result))),
            Err(status) => pending.answer(status, Output::default()),
        }
    }
}

/// A request that the store works on.
struct Pending {
    kind: Kind,
    received: Instant,
    metrics: Arc<Metrics>,
    failures: Arc<LogLimit>,
    started: Instant,
    reply: ReplySlot,
}

impl Pending {
    fn finish(self, result: Result<Output, StoreError>) {
        match result {
            Ok(output) => self.answer(Status::Ok, output),
            Err(error) => {
                self.metrics.store_error(&error);
                self.log(&error);
                self.answer(block_status(&error), Output::default());
            }
        }
    }

    /// What the medium does wrong is for a person to see; what the caller does wrong, for whoever looks for it.
    fn log(&self, error: &StoreError) {
        let request = self.reply.id();
        match error {
            StoreError::Checksum { .. } | StoreError::Unreadable { .. } | StoreError::DeviceFailed(_) => {
                if self.failures.allows(self.started.elapsed()) {
                    tracing::error!(kind = self.kind.name(), request, %error, "the store failed a request");
                }
            }
            StoreError::PayloadCorrupt { .. } | StoreError::NoSpace => {
                if self.failures.allows(self.started.elapsed()) {
                    warn!(kind = self.kind.name(), request, %error, "the store refused a request");
                }
            }
            _ => debug!(kind = self.kind.name(), request, %error, "the store refused a request"),
        }
    }

    fn answer(self, status: Status, output: Output) {
        self.metrics.end(self.kind, self.received.elapsed(), &status);
        self.reply.send_with(status, output.checksums, output.data);
    }
}
