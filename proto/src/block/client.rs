//! The caller's side of a block stream: [`connect`], then a [`RequestSender`] to clone and a [`ReplyReceiver`] to read from.
//!
//! Sending never waits: who sends bounds what is in flight. The stream ends, in order, when the last sender is dropped; at
//! once, when the receiver is.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Method, Version, header};
use http_body::Body as _;
use thiserror::Error;
use tonic::codegen::Service as _;
use tonic::codegen::StdError;
use tonic::{Code, body::Body};

pub use super::body::Closed;
use super::body::{Outbox, OutboxBody};
use super::message::{FromNode, Hello, MAX_MESSAGE_BYTES, Reply, Request, Welcome};
use super::reader::{MessageReader, ReaderError};
use super::wire::{self, WireError};
use super::{STREAM_PATH, message::WIRE_VERSION};
use crate::channel::NodeChannel;

/// Why there is no stream.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The server cannot be reached: try again later, or elsewhere.
    #[error("cannot reach the storage daemon")]
    Unreachable(#[source] StdError),
    /// The server refused this caller, as `FAILED_PRECONDITION` for good, or cannot serve now.
    #[error("refused by the storage daemon ({code:?}): {message}")]
    Refused {
        /// The gRPC status code.
        code: Code,
        /// The server's words.
        message: String,
    },
    /// The server speaks another version.
    #[error("the storage daemon speaks wire version {theirs}, this side {WIRE_VERSION}")]
    Version {
        /// The server's version.
        theirs: u32,
    },
    /// The stream ended before the server's first message.
    #[error("the stream ended during the handshake")]
    Handshake(#[source] StreamError),
}

/// Why a stream ended. Requests without a reply may or may not have taken effect.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The server ended it with a status other than OK.
    #[error("ended by the storage daemon ({code:?}): {message}")]
    Ended {
        /// The gRPC status code.
        code: Code,
        /// The server's words.
        message: String,
    },
    /// The connection was lost.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The stream ended without a gRPC status, or in the middle of a message.
    #[error("cut off in the middle")]
    Cut,
    /// What came is not gRPC.
    #[error("malformed stream")]
    Framing(#[from] ReaderError),
    /// What came is not a message of the block protocol.
    #[error("malformed message")]
    Message(#[from] WireError),
    /// A message of the handshake came at the wrong time.
    #[error("handshake message out of place")]
    OutOfPlace,
}

/// Opens a block stream over this channel and shakes hands.
pub async fn connect(
    channel: impl Into<NodeChannel>,
    hello: Hello,
) -> Result<(Welcome, RequestSender, ReplyReceiver), ConnectError> {
    let mut channel = channel.into();
    let outbox = Outbox::new(usize::MAX);
    let sender = RequestSender { shared: Arc::new(SenderShared { outbox: outbox.clone() }) };
    // The queue is new and open: it takes the first message.
    let queued = outbox.send(|chunks| wire::encode_hello(&hello, chunks));
    debug_assert_eq!(queued, Ok(()));

    let mut request = http::Request::new(Body::new(OutboxBody(outbox.clone())));
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = http::Uri::from_static(STREAM_PATH);
    let headers = request.headers_mut();
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));

    poll_fn(|context| channel.poll_ready(context)).await.map_err(ConnectError::Unreachable)?;
    let response = channel.call(request).await.map_err(ConnectError::Unreachable)?;
    let (head, body) = response.into_parts();
    if let Some(status) = tonic::Status::from_header_map(&head.headers) {
        return Err(ConnectError::Refused { code: status.code(), message: status.message().to_owned() });
    }
    if head.status != http::StatusCode::OK {
        let message = format!("http status {}", head.status);
        return Err(ConnectError::Refused { code: Code::Unavailable, message });
    }

    let mut receiver = ReplyReceiver { body, reader: MessageReader::new(MAX_MESSAGE_BYTES), outbox, end: None };
    let welcome = match receiver.recv_message().await {
        Ok(Some(FromNode::Welcome(welcome))) => welcome,
        Ok(Some(FromNode::Reply(_))) => return Err(ConnectError::Handshake(StreamError::OutOfPlace)),
        Ok(None) => return Err(ConnectError::Handshake(StreamError::Cut)),
        Err(StreamError::Ended { code, message }) => return Err(ConnectError::Refused { code, message }),
        Err(error) => return Err(ConnectError::Handshake(error)),
    };
    if welcome.wire_version != WIRE_VERSION {
        return Err(ConnectError::Version { theirs: welcome.wire_version });
    }
    Ok((welcome, sender, receiver))
}

/// Sends requests; clones share one stream.
#[derive(Clone, Debug)]
pub struct RequestSender {
    shared: Arc<SenderShared>,
}

#[derive(Debug)]
struct SenderShared {
    outbox: Arc<Outbox>,
}

impl Drop for SenderShared {
    fn drop(&mut self) {
        self.outbox.end_now(None);
    }
}

impl RequestSender {
    /// Queues a request. Never waits; fails when the stream has ended, and then every request without a reply is lost.
    pub fn send(&self, request: &Request) -> Result<(), Closed> {
        self.shared.outbox.send(|chunks| wire::encode_request(request, chunks))
    }

    /// Whether the stream still takes requests.
    pub fn is_open(&self) -> bool {
        self.shared.outbox.is_open()
    }
}

/// Receives the replies of one stream. Dropping it ends the stream.
#[derive(Debug)]
pub struct ReplyReceiver {
    body: Body,
    reader: MessageReader,
    outbox: Arc<Outbox>,
    /// The body is exhausted: what is to be said once the reader is empty.
    end: Option<Ending>,
}

impl Drop for ReplyReceiver {
    fn drop(&mut self) {
        self.outbox.gone();
    }
}

/// How the body ended.
#[derive(Debug)]
enum Ending {
    Status(Code, String),
    Lost(String),
    Nothing,
}

impl ReplyReceiver {
    /// The next reply, `None` when the stream was ended in order. Cancel safe.
    pub async fn recv(&mut self) -> Result<Option<Reply>, StreamError> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// As [`ReplyReceiver::recv`], for a hand-written future.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Reply>, StreamError>> {
        self.poll_message(context).map(|message| match message? {
            Some(FromNode::Reply(reply)) => Ok(Some(reply)),
            Some(FromNode::Welcome(_)) => {
                self.outbox.gone();
                Err(StreamError::OutOfPlace)
            }
            None => Ok(None),
        })
    }

    /// A reply that has been received already, without waiting. Errors show in the next [`ReplyReceiver::recv`].
    pub fn try_next(&mut self) -> Option<Reply> {
        let pieces = match self.reader.next() {
            Ok(pieces) => pieces?,
            Err(error) => {
                self.fail(&error.to_string());
                return None;
            }
        };
        match wire::decode_from_node(pieces) {
            Ok(FromNode::Reply(reply)) => Some(reply),
            Ok(FromNode::Welcome(_)) => {
                self.fail(&StreamError::OutOfPlace.to_string());
                None
            }
            Err(error) => {
                self.fail(&error.to_string());
                None
            }
        }
    }

    /// The stream cannot be understood any more: the next `recv` says why.
    fn fail(&mut self, why: &str) {
        self.outbox.gone();
        self.reader = MessageReader::new(MAX_MESSAGE_BYTES);
        self.body = Body::empty();
        self.end = Some(Ending::Lost(why.to_owned()));
    }

    async fn recv_message(&mut self) -> Result<Option<FromNode>, StreamError> {
        poll_fn(|context| self.poll_message(context)).await
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<FromNode>, StreamError>> {
        let result = self.poll_message_inner(context);
        if let Poll::Ready(Err(_) | Ok(None)) = result {
            self.outbox.gone();
        }
        result
    }

    fn poll_message_inner(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<FromNode>, StreamError>> {
        loop {
            if let Some(pieces) = self.reader.next()? {
                return Poll::Ready(Ok(Some(wire::decode_from_node(pieces)?)));
            }
            if let Some(end) = &self.end {
                return Poll::Ready(end.result(self.reader.is_mid_message()));
            }
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.reader.push(data),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        self.end = Some(Ending::of_trailers(&trailers));
                    }
                },
                Some(Err(status)) => self.end = Some(Ending::of_status(&status)),
                None => self.end = Some(Ending::Nothing),
            }
        }
    }
}

impl Ending {
    fn of_trailers(trailers: &HeaderMap) -> Self {
        match tonic::Status::from_header_map(trailers) {
            Some(status) => Ending::Status(status.code(), status.message().to_owned()),
            None => Ending::Nothing,
        }
    }

    /// tonic turns errors of HTTP/2 into a status: it is not one the server sent.
    fn of_status(status: &tonic::Status) -> Self {
        let mut text = status.message().to_owned();
        let mut source = std::error::Error::source(status);
        while let Some(error) = source {
            text = format!("{text}: {error}");
            source = error.source();
        }
        Ending::Lost(text)
    }

    fn result(&self, is_mid_message: bool) -> Result<Option<FromNode>, StreamError> {
        match self {
            Ending::Lost(why) => Err(StreamError::Lost(why.clone())),
            Ending::Nothing => Err(StreamError::Cut),
            Ending::Status(Code::Ok, _) if is_mid_message => Err(StreamError::Cut),
            Ending::Status(Code::Ok, _) => Ok(None),
            Ending::Status(code, message) => Err(StreamError::Ended { code: *code, message: message.clone() }),
        }
    }
}
