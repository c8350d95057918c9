//! The storage daemon's side of a block stream: a tower service that stands beside tonic's generated ones.
//!
//! [`BlockServer`] shakes hands and then runs [`BlockHandler::serve`] as a task of its own, with a [`RequestReceiver`] that
//! yields each request together with the [`ReplySlot`] for its answer. A slot can be answered from any thread, and always
//! is: dropping it answers too. While requests and queued replies of a stream exceed its limit, no more are read, and
//! HTTP/2's window holds the caller back.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use http_body::Body as _;
use thiserror::Error;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status as GrpcStatus};

use super::body::{Outbox, OutboxBody};
use super::message::{Hello, MAX_MESSAGE_BYTES, Reply, Request, Status, ToNode, WIRE_VERSION, Welcome};
use super::reader::{MessageReader, ReaderError};
use super::wire::{self, WireError};
use super::{SERVICE_NAME, STREAM_PATH};

/// How many bytes one stream may have in flight and queued before the server stops reading it.
pub const MAX_IN_FLIGHT_BYTES: usize = 64 << 20;

/// What a request costs beside its payload, in bytes: the memory of its fields here and in the store.
const REQUEST_COST_BYTES: usize = 512;

/// How long a caller may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// What a storage daemon does with block streams.
pub trait BlockHandler: Send + Sync + 'static {
    /// What the handler knows of an accepted stream, from its welcome to its end.
    type Session: Send + 'static;

    /// Accepts the caller, or refuses it with a gRPC status. The wire version has been checked. The caller sends no request
    /// before it has the welcome, and may give up waiting: then this future is dropped.
    fn welcome(
        &self,
        hello: &Hello,
        peer: Option<SocketAddr>,
    ) -> impl Future<Output = Result<(Welcome, Self::Session), GrpcStatus>> + Send;

    /// Serves a stream until it ends or the daemon stops; runs as a task of its own. When it returns, the stream ends as
    /// soon as every request has been answered, in order unless [`RequestReceiver`] met an error before.
    fn serve(
        self: Arc<Self>,
        session: Self::Session,
        requests: RequestReceiver,
    ) -> impl Future<Output = ()> + Send + 'static;
}

/// The block service, for `tonic::transport::Server::add_service` or `tonic::service::Routes`.
#[derive(Debug)]
pub struct BlockServer<H> {
    handler: Arc<H>,
    max_in_flight_bytes: usize,
}

impl<H> Clone for BlockServer<H> {
    fn clone(&self) -> Self {
        Self { handler: self.handler.clone(), max_in_flight_bytes: self.max_in_flight_bytes }
    }
}

impl<H: BlockHandler> BlockServer<H> {
    /// A service with the standard limit of [`MAX_IN_FLIGHT_BYTES`] for each stream.
    pub fn new(handler: Arc<H>) -> Self {
        Self { handler, max_in_flight_bytes: MAX_IN_FLIGHT_BYTES }
    }

    /// Another limit for each stream, in bytes.
    #[must_use]
    pub fn max_in_flight_bytes(mut self, limit: usize) -> Self {
        self.max_in_flight_bytes = limit;
        self
    }
}

impl<H> NamedService for BlockServer<H> {
    const NAME: &'static str = SERVICE_NAME;
}

impl<H: BlockHandler> Service<http::Request<Body>> for BlockServer<H> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.open(request).await.unwrap_or_else(|status| status.into_http())) })
    }
}

impl<H: BlockHandler> BlockServer<H> {
    /// Shakes hands and starts the handler. An error is answered as a gRPC status without a body.
    #[allow(clippy::result_large_err, reason = "once per stream, and tonic's own currency")]
    async fn open(self, request: http::Request<Body>) -> Result<http::Response<Body>, GrpcStatus> {
        let (head, body) = request.into_parts();
        if head.uri.path() != STREAM_PATH {
            return Err(GrpcStatus::unimplemented("no such method"));
        }
        if head.headers.get("grpc-encoding").is_some_and(|encoding| encoding != "identity") {
            return Err(GrpcStatus::unimplemented("compression is not supported"));
        }
        let peer = head.extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);

        let outbox = Outbox::new(self.max_in_flight_bytes);
        let mut requests = RequestReceiver {
            body,
            reader: MessageReader::new(MAX_MESSAGE_BYTES),
            outbox: outbox.clone(),
            is_over: false,
        };
        let hello = tokio::time::timeout(HELLO_TIMEOUT, requests.hello())
            .await
            .map_err(|_| GrpcStatus::deadline_exceeded("no hello in time"))?
            .map_err(|error| error.to_grpc())?;
        if hello.wire_version != WIRE_VERSION {
            return Err(GrpcStatus::failed_precondition(format!(
                "wire version {} is not supported, only {WIRE_VERSION}",
                hello.wire_version
            )));
        }
        let (welcome, session) = self.handler.welcome(&hello, peer).await?;
        let body = OutboxBody(outbox.clone());
        outbox
            .send(|chunks| wire::encode_welcome(&welcome, chunks))
            .map_err(|_| GrpcStatus::internal("stream closed during the handshake"))?;

        let ending = EndOnDrop(outbox);
        tokio::spawn(async move {
            self.handler.serve(session, requests).await;
            drop(ending);
        });

        let mut response = http::Response::new(Body::new(body));
        response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
        Ok(response)
    }
}

/// Ends the stream in order when the handler's task is over, even if that was killed.
struct EndOnDrop(Arc<Outbox>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end_when_idle(Some(trailers(&GrpcStatus::new(Code::Ok, ""))));
    }
}

fn trailers(status: &GrpcStatus) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        // Only a message that cannot be a header fails, and tonic escapes those.
        trailers.insert("grpc-status", http::HeaderValue::from(status.code() as i32));
    }
    trailers
}

/// Why no more requests come.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The caller or the connection went away without ending the stream.
    #[error("caller went away: {0}")]
    Lost(String),
    /// What came is not gRPC.
    #[error("malformed stream: {0}")]
    Framing(#[from] ReaderError),
    /// What came is not a message of the block protocol.
    #[error("malformed message: {0}")]
    Message(#[from] WireError),
    /// The stream ended in the middle of a message.
    #[error("stream ended in the middle of a message")]
    Cut,
    /// A hello that is not the first message, or a first message that is not a hello.
    #[error("handshake message missing or out of place")]
    OutOfPlace,
}

impl ReceiveError {
    /// The one table of what the caller is told.
    fn to_grpc(&self) -> GrpcStatus {
        let code = match self {
            ReceiveError::Lost(_) => Code::Cancelled,
            ReceiveError::Framing(ReaderError::Compressed { .. }) => Code::Unimplemented,
            ReceiveError::Framing(ReaderError::TooLong { .. }) => Code::ResourceExhausted,
            ReceiveError::Message(_) | ReceiveError::Cut => Code::InvalidArgument,
            ReceiveError::OutOfPlace => Code::FailedPrecondition,
        };
        GrpcStatus::new(code, self.to_string())
    }
}

/// The requests of one stream, in the order in which they were sent.
#[derive(Debug)]
pub struct RequestReceiver {
    body: Body,
    reader: MessageReader,
    outbox: Arc<Outbox>,
    /// The caller has ended its side.
    is_over: bool,
}

impl RequestReceiver {
    /// The next request and the slot for its answer; `None` when the caller has ended the stream in order. Waits while too
    /// much is in flight. After an error the stream is over and the caller has been told. Cancel safe.
    pub async fn recv(&mut self) -> Result<Option<Incoming>, ReceiveError> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// As [`RequestReceiver::recv`], for a hand-written future.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ReceiveError>> {
        let result = self.poll_request(context);
        if let Poll::Ready(Err(error)) = &result {
            self.is_over = true;
            self.outbox.end_now(Some(trailers(&error.to_grpc())));
        }
        result
    }

    /// Ends the stream from this side: what is in flight is still answered, then the caller is told this status.
    pub fn end(&self, status: &GrpcStatus) {
        self.outbox.end_when_idle(Some(trailers(status)));
    }

    /// Resolves when every request that was received has been answered, whether the caller is still there or not: from then
    /// on nothing of this stream can take effect.
    pub async fn drained(self) {
        drop(self.body);
        poll_fn(|context| self.outbox.poll_idle(context)).await;
    }

    async fn hello(&mut self) -> Result<Hello, ReceiveError> {
        match poll_fn(|context| self.poll_message(context)).await? {
            Some(ToNode::Hello(hello)) => Ok(hello),
            Some(ToNode::Request(_)) | None => Err(ReceiveError::OutOfPlace),
        }
    }

    fn poll_request(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Incoming>, ReceiveError>> {
        loop {
            let room = std::task::ready!(self.outbox.poll_room(context));
            if room.is_err() {
                return Poll::Ready(Err(ReceiveError::Lost("replies cannot be sent any more".to_owned())));
            }
            let request = match std::task::ready!(self.poll_message(context)) {
                Ok(Some(ToNode::Request(request))) => request,
                Ok(Some(ToNode::Hello(_))) => return Poll::Ready(Err(ReceiveError::OutOfPlace)),
                Ok(None) => return Poll::Ready(Ok(None)),
                Err(ReceiveError::Message(WireError::UnknownKind { id, kind })) => {
                    let text = format!("kind {kind} is not known to this version");
                    ReplySlot::new(&self.outbox, id, 0).send(Status::Invalid(text));
                    continue;
                }
                Err(error) => return Poll::Ready(Err(error)),
            };
            let reply = ReplySlot::new(&self.outbox, request.id, cost_bytes(&request));
            return Poll::Ready(Ok(Some(Incoming { request, reply })));
        }
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<ToNode>, ReceiveError>> {
        loop {
            if let Some(pieces) = self.reader.next()? {
                return Poll::Ready(Ok(Some(wire::decode_to_node(pieces)?)));
            }
            if self.is_over {
                let is_cut = self.reader.is_mid_message();
                return Poll::Ready(if is_cut { Err(ReceiveError::Cut) } else { Ok(None) });
            }
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    // Trailers of a request mean nothing in gRPC.
                    if let Ok(data) = frame.into_data() {
                        self.reader.push(data);
                    }
                }
                Some(Err(status)) => {
                    self.is_over = true;
                    return Poll::Ready(Err(ReceiveError::Lost(status.to_string())));
                }
                None => self.is_over = true,
            }
        }
    }
}

/// Memory that the request takes until its reply has been sent.
fn cost_bytes(request: &Request) -> usize {
    let range_bytes = match request.kind {
        // A read brings so much, and a WRITE SAME is written out to so much.
        super::Kind::Read | super::Kind::WriteSame => {
            usize::try_from(request.len).unwrap_or(usize::MAX).min(MAX_MESSAGE_BYTES)
        }
        _ => 0,
    };
    REQUEST_COST_BYTES + request.payload_bytes() + range_bytes
}

/// A request and where its answer goes.
#[derive(Debug)]
pub struct Incoming {
    /// What the caller wants.
    pub request: Request,
    /// Where the answer goes.
    pub reply: ReplySlot,
}

/// The place for the answer to one request. May be answered from any thread; dropped, it answers that the request failed.
#[derive(Debug)]
#[must_use = "a request wants an answer"]
pub struct ReplySlot {
    outbox: Arc<Outbox>,
    id: u64,
    cost_bytes: usize,
    is_answered: bool,
}

impl ReplySlot {
    fn new(outbox: &Arc<Outbox>, id: u64, cost_bytes: usize) -> Self {
        outbox.charge(cost_bytes);
        Self { outbox: outbox.clone(), id, cost_bytes, is_answered: false }
    }

    /// Answers without data.
    pub fn send(self, status: Status) {
        self.send_with(status, Vec::new(), Vec::new());
    }

    /// Answers with data and the checksums of its pieces. Never waits; dropped when the caller is gone.
    pub fn send_with(mut self, status: Status, checksums: Vec<u32>, payload: Vec<bytes::Bytes>) {
        self.answer(&Reply { id: self.id, status, checksums, payload });
    }

    /// `id` of the request.
    pub fn id(&self) -> u64 {
        self.id
    }

    fn answer(&mut self, reply: &Reply) {
        self.is_answered = true;
        self.outbox.answer(self.cost_bytes, |chunks| wire::encode_reply(reply, chunks));
    }
}

impl Drop for ReplySlot {
    fn drop(&mut self) {
        if !self.is_answered {
            let status = Status::Failed("the request was given up".to_owned());
            self.answer(&Reply::new(self.id, status));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Kind;
    use crate::ids::{Incarnation, OpId, VolumeId};

    #[test]
    fn cost_when_read_or_write_same_then_counts_the_range() {
        let request = |kind, len| Request {
            id: 1,
            volume: VolumeId(1),
            shard: 0,
            epoch: 0,
            term: 0,
            op: OpId { incarnation: Incarnation(1), lane: 0, sequence: 1, part: 0 },
            acked_below: 0,
            nexus: 0,
            path_epoch: 0,
            kind,
            offset: 0,
            len,
            checksums: Vec::new(),
            payload: vec![bytes::Bytes::from_static(&[1; 512])],
        };
        let fixed = REQUEST_COST_BYTES + 512;
        assert_eq!(cost_bytes(&request(Kind::WriteSame, 1 << 20)), fixed + (1 << 20));
        assert_eq!(cost_bytes(&request(Kind::Read, 4096)), fixed + 4096);
        assert_eq!(cost_bytes(&request(Kind::WriteSame, u64::MAX)), fixed + MAX_MESSAGE_BYTES);
        assert_eq!(cost_bytes(&request(Kind::Unmap, 1 << 40)), fixed);
    }
}
