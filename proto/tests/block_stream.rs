//! The block stream over real connections: our two ends with each other, and each with tonic's generated other end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its patterns of bytes may wrap"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::block::message::{MAX_MESSAGE_BYTES, WIRE_VERSION};
use holdfast_proto::block::{
    BlockHandler, BlockServer, ConnectError, Hello, Incoming, Kind, ReplyReceiver, Request, RequestReceiver,
    RequestSender, Status, StreamError, Welcome, connect, generated, tuned_endpoint, tuned_server,
};
use holdfast_proto::channel::NodeChannel;
use holdfast_proto::ids::{Incarnation, OpId, VolumeId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status as GrpcStatus};

/// No wait in these tests is for time to pass; this one only ends those that would hang.
const DEADLINE: Duration = Duration::from_secs(30);

/// Keeps what is written, answers what is read. `gate` lets so many operations through.
struct Memory {
    blocks: Mutex<HashMap<u64, Bytes>>,
    gate: Semaphore,
    received: mpsc::UnboundedSender<u64>,
    ended: mpsc::UnboundedSender<Result<(), String>>,
}

/// What a test sees of the server.
struct Seen {
    memory: Arc<Memory>,
    received: mpsc::UnboundedReceiver<u64>,
    ended: mpsc::UnboundedReceiver<Result<(), String>>,
}

fn memory(permits: usize) -> Seen {
    let (received, received_rx) = mpsc::unbounded_channel();
    let (ended, ended_rx) = mpsc::unbounded_channel();
    let memory = Memory { blocks: Mutex::default(), gate: Semaphore::new(permits), received, ended };
    Seen { memory: Arc::new(memory), received: received_rx, ended: ended_rx }
}

impl BlockHandler for Memory {
    type Session = Hello;

    async fn welcome(&self, hello: &Hello, _peer: Option<SocketAddr>) -> Result<(Welcome, Hello), GrpcStatus> {
        if hello.cluster != "lab" {
            return Err(GrpcStatus::failed_precondition("another cluster"));
        }
        let welcome = Welcome {
            wire_version: WIRE_VERSION,
            cluster: "lab".to_owned(),
            node_id: 3,
            incarnation: 4,
            max_payload_bytes: 8 << 20,
        };
        Ok((welcome, hello.clone()))
    }

    async fn serve(self: Arc<Self>, hello: Hello, mut requests: RequestReceiver) {
        let result = loop {
            let Incoming { request, reply } = match requests.recv().await {
                Ok(Some(incoming)) => incoming,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.to_string()),
            };
            let _ = self.received.send(request.id);
            if request.kind == Kind::Flush && hello.name == "stops" {
                reply.send(Status::Ok);
                requests.end(&GrpcStatus::unavailable("stopping"));
                break Ok(());
            }
            let memory = self.clone();
            tokio::spawn(async move {
                memory.gate.acquire().await.expect("never closed").forget();
                match request.kind {
                    Kind::Write => {
                        let data = request.payload.concat().into();
                        memory.blocks.lock().unwrap().insert(request.offset, data);
                        reply.send(Status::Ok);
                    }
                    Kind::Read => {
                        let data = memory.blocks.lock().unwrap().get(&request.offset).cloned();
                        match data {
                            Some(data) => reply.send_with(Status::Ok, vec![1, 2, 3], vec![data]),
                            None => reply.send(Status::MediumError { offset: request.offset }),
                        }
                    }
                    Kind::Unmap => drop(reply),
                    Kind::WriteSame | Kind::Flush => reply.send(Status::Ok),
                }
            });
        };
        requests.drained().await;
        let _ = self.ended.send(result);
    }
}

async fn serve_tcp(server: BlockServer<Memory>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tokio::spawn(tuned_server().add_service(server).serve_with_incoming(incoming));
    address
}

async fn channel(address: SocketAddr) -> Channel {
    tuned_endpoint(Endpoint::from_shared(format!("http://{address}")).unwrap()).connect().await.unwrap()
}

fn in_process(routes: Routes) -> NodeChannel {
    let (_, never) = tokio::sync::watch::channel(false);
    NodeChannel::local(routes, never)
}

fn pipe(memory: &Arc<Memory>) -> NodeChannel {
    let routes = Routes::new(BlockServer::new(memory.clone()));
    in_process(routes)
}

fn hello() -> Hello {
    Hello { wire_version: WIRE_VERSION, cluster: "lab".to_owned(), incarnation: 1, lane: 2, name: "test".to_owned() }
}

fn request(id: u64, kind: Kind, offset: u64, payload: Vec<Bytes>) -> Request {
    let len = if payload.is_empty() { 4096 } else { payload.iter().map(|part| part.len() as u64).sum() };
    Request {
        id,
        volume: VolumeId(1),
        shard: 0,
        epoch: 0,
        term: 0,
        op: OpId { incarnation: Incarnation(1), lane: 2, sequence: id, part: 0 },
        acked_below: 0,
        nexus: 0,
        path_epoch: 0,
        kind,
        offset,
        len,
        checksums: Vec::new(),
        payload,
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("within the deadline")
}

/// Writes of many sizes, all in flight at once, then reads of them all, answered in whatever order.
async fn exercise(sender: &RequestSender, receiver: &mut ReplyReceiver) {
    let payloads: Vec<Vec<Bytes>> = [0_usize, 1, 512, 4096, 16_384, 16_385, 262_144, 1 << 20, 3 << 20, 8 << 20]
        .into_iter()
        .cycle()
        .take(200)
        .enumerate()
        .map(|(index, len)| {
            // The large ones only once, and in several segments.
            let len = if index >= 10 { len.min(20_000) } else { len };
            let whole: Bytes = (0..len).map(|at| (at * 31 + index) as u8).collect::<Vec<_>>().into();
            let cut = len / 3;
            vec![whole.slice(..cut), whole.slice(cut..)]
        })
        .collect();
    let count = payloads.len() as u64;
    for (id, payload) in (0..).zip(&payloads) {
        sender.send(&request(id, Kind::Write, id, payload.clone())).unwrap();
    }
    let mut waiting: std::collections::BTreeSet<u64> = (0..count).collect();
    while !waiting.is_empty() {
        let reply = within(receiver.recv()).await.unwrap().expect("a reply");
        assert_eq!(reply.status, Status::Ok);
        assert!(waiting.remove(&reply.id), "answered once");
    }
    for id in 0..=count {
        sender.send(&request(count + id, Kind::Read, id, Vec::new())).unwrap();
    }
    for _ in 0..=count {
        let reply = within(receiver.recv()).await.unwrap().expect("a reply");
        let index = usize::try_from(reply.id - count).unwrap();
        match payloads.get(index) {
            Some(payload) => {
                assert_eq!(reply.status, Status::Ok);
                assert_eq!(reply.checksums, [1, 2, 3]);
                assert!(reply.payload.concat() == payload.concat(), "data of {index}");
            }
            None => assert_eq!(reply.status, Status::MediumError { offset: count }),
        }
    }
}

#[tokio::test]
async fn requests_when_many_in_flight_over_tcp_then_each_answered_once_with_its_data() {
    let seen = memory(Semaphore::MAX_PERMITS);
    let channel = channel(serve_tcp(BlockServer::new(seen.memory)).await).await;
    let (welcome, sender, mut receiver) = connect(channel, hello()).await.unwrap();
    assert_eq!((welcome.node_id, welcome.incarnation, welcome.cluster.as_str()), (3, 4, "lab"));
    exercise(&sender, &mut receiver).await;
}

#[tokio::test]
async fn requests_when_many_in_flight_over_the_pipe_then_each_answered_once_with_its_data() {
    let seen = memory(Semaphore::MAX_PERMITS);
    let (_, sender, mut receiver) = connect(pipe(&seen.memory), hello()).await.unwrap();
    exercise(&sender, &mut receiver).await;
}

#[tokio::test]
async fn senders_when_all_dropped_then_what_is_in_flight_is_answered_and_the_stream_ends_in_order() {
    let mut seen = memory(0);
    let (_, sender, mut receiver) = connect(pipe(&seen.memory), hello()).await.unwrap();
    sender.send(&request(7, Kind::Flush, 0, Vec::new())).unwrap();
    drop(sender);
    assert_eq!(within(seen.received.recv()).await, Some(7));
    seen.memory.gate.add_permits(1);
    assert_eq!(within(receiver.recv()).await.unwrap().expect("a reply").id, 7);
    assert!(within(receiver.recv()).await.unwrap().is_none());
    assert_eq!(within(seen.ended.recv()).await, Some(Ok(())));
}

#[tokio::test]
async fn receiver_when_dropped_then_the_server_settles_what_it_has_and_sending_fails() {
    let mut seen = memory(0);
    let (_, sender, receiver) = connect(pipe(&seen.memory), hello()).await.unwrap();
    sender.send(&request(1, Kind::Write, 5, vec![Bytes::from_static(b"x")])).unwrap();
    assert_eq!(within(seen.received.recv()).await, Some(1));
    drop(receiver);
    within(async {
        while sender.is_open() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(sender.send(&request(2, Kind::Flush, 0, Vec::new())).is_err());
    assert!(seen.ended.try_recv().is_err(), "not settled while a request is in flight");
    seen.memory.gate.add_permits(1);
    assert!(within(seen.ended.recv()).await.is_some());
    assert_eq!(seen.memory.blocks.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn version_when_unknown_then_refused_before_the_handler_sees_it() {
    let seen = memory(0);
    let hello = Hello { wire_version: WIRE_VERSION + 1, ..hello() };
    let error = connect(pipe(&seen.memory), hello).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { code: Code::FailedPrecondition, .. }), "{error:?}");
}

#[tokio::test]
async fn cluster_when_another_then_refused_in_the_servers_words() {
    let seen = memory(0);
    let hello = Hello { cluster: "other".to_owned(), ..hello() };
    let error = connect(pipe(&seen.memory), hello).await.unwrap_err();
    let ConnectError::Refused { code: Code::FailedPrecondition, message } = error else {
        panic!("{error:?}");
    };
    assert_eq!(message, "another cluster");
}

#[tokio::test]
async fn connection_when_cut_in_the_middle_then_both_sides_are_told() {
    let mut seen = memory(0);
    let server = serve_tcp(BlockServer::new(seen.memory.clone())).await;
    // A proxy that can be cut.
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = proxy.local_addr().unwrap();
    let relay = tokio::spawn(async move {
        let (mut near, _) = proxy.accept().await.unwrap();
        let mut far = TcpStream::connect(server).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    let (_, sender, mut receiver) = connect(channel(address).await, hello()).await.unwrap();
    sender.send(&request(1, Kind::Write, 0, vec![Bytes::from(vec![1; 1 << 20])])).unwrap();
    assert_eq!(within(seen.received.recv()).await, Some(1));
    relay.abort();
    let error = within(receiver.recv()).await.unwrap_err();
    assert!(matches!(error, StreamError::Lost(_) | StreamError::Cut), "{error:?}");
    assert!(!sender.is_open());
    seen.memory.gate.add_permits(1);
    assert!(within(seen.ended.recv()).await.unwrap().is_err());
}

#[tokio::test]
async fn server_when_it_ends_the_stream_then_answers_come_first_and_the_status_last() {
    let seen = memory(0);
    let hello = Hello { name: "stops".to_owned(), ..hello() };
    let (_, sender, mut receiver) = connect(pipe(&seen.memory), hello).await.unwrap();
    sender.send(&request(1, Kind::WriteSame, 0, Vec::new())).unwrap();
    sender.send(&request(2, Kind::Flush, 0, Vec::new())).unwrap();
    sender.send(&request(3, Kind::Flush, 0, Vec::new())).unwrap();
    assert_eq!(within(receiver.recv()).await.unwrap().expect("a reply").id, 2);
    seen.memory.gate.add_permits(1);
    assert_eq!(within(receiver.recv()).await.unwrap().expect("a reply").id, 1);
    let error = within(receiver.recv()).await.unwrap_err();
    assert!(matches!(error, StreamError::Ended { code: Code::Unavailable, .. }), "{error:?}");
    assert!(!sender.is_open());
}

#[tokio::test]
async fn slot_when_dropped_then_the_request_is_answered_as_failed() {
    let seen = memory(1);
    let (_, sender, mut receiver) = connect(pipe(&seen.memory), hello()).await.unwrap();
    sender.send(&request(1, Kind::Unmap, 0, Vec::new())).unwrap();
    let reply = within(receiver.recv()).await.unwrap().expect("a reply");
    assert!(matches!(reply.status, Status::Failed(_)));
}

#[tokio::test]
async fn stream_when_too_much_is_in_flight_then_no_more_is_read_until_something_is_answered() {
    let mut seen = memory(0);
    let server = BlockServer::new(seen.memory.clone()).max_in_flight_bytes(10 * 4096);
    let channel = in_process(Routes::new(server));
    let (_, sender, mut receiver) = connect(channel, hello()).await.unwrap();
    for id in 0..100 {
        sender.send(&request(id, Kind::Write, id, vec![Bytes::from(vec![1; 4096])])).unwrap();
    }
    let mut held = 0;
    while tokio::time::timeout(Duration::from_millis(200), seen.received.recv()).await.is_ok() {
        held += 1;
    }
    assert!((8..=10).contains(&held), "{held} requests of 4 KiB against a limit of 40 KiB");
    seen.memory.gate.add_permits(100);
    for _ in 0..100 {
        assert_eq!(within(receiver.recv()).await.unwrap().expect("a reply").status, Status::Ok);
    }
}

#[tokio::test]
async fn replies_when_received_already_then_taken_without_waiting() {
    let seen = memory(Semaphore::MAX_PERMITS);
    let (_, sender, mut receiver) = connect(pipe(&seen.memory), hello()).await.unwrap();
    assert!(receiver.try_next().is_none());
    for id in 0..50 {
        sender.send(&request(id, Kind::Flush, 0, Vec::new())).unwrap();
    }
    let mut count = 0;
    while count < 50 {
        within(receiver.recv()).await.unwrap().expect("a reply");
        count += 1;
        while receiver.try_next().is_some() {
            count += 1;
        }
    }
    assert_eq!(count, 50);
}

/// tonic's own client, prost's own encoding, against our server.
#[tokio::test]
async fn generated_client_when_it_talks_to_our_server_then_understood() {
    use generated::{from_node, to_node};
    let seen = memory(Semaphore::MAX_PERMITS);
    let mut client = generated::block_client::BlockClient::new(pipe(&seen.memory));
    let (sender, messages) = mpsc::channel(16);
    let wrap = |message| generated::ToNode { message: Some(message) };
    let hello = generated::Hello { wire_version: WIRE_VERSION, cluster: "lab".to_owned(), ..Default::default() };
    sender.send(wrap(to_node::Message::Hello(hello))).await.unwrap();
    let mut replies = client.stream(ReceiverStream::new(messages)).await.unwrap().into_inner();
    let welcome = within(replies.next()).await.unwrap().unwrap();
    assert!(matches!(welcome.message, Some(from_node::Message::Welcome(welcome)) if welcome.node_id == 3));
    let write = generated::Request {
        id: 5,
        kind: generated::Kind::Write.into(),
        offset: 77,
        payload: vec![8; 100_000].into(),
        ..Default::default()
    };
    sender.send(wrap(to_node::Message::Request(write))).await.unwrap();
    let reply = within(replies.next()).await.unwrap().unwrap();
    assert!(matches!(reply.message, Some(from_node::Message::Reply(reply)) if reply.id == 5 && reply.status == 1));
    let read = generated::Request { id: 6, kind: generated::Kind::Read.into(), offset: 77, ..Default::default() };
    sender.send(wrap(to_node::Message::Request(read))).await.unwrap();
    let reply = within(replies.next()).await.unwrap().unwrap();
    assert!(matches!(reply.message, Some(from_node::Message::Reply(reply)) if reply.payload == vec![8; 100_000]));
    // A kind that only a later version has: that request is refused, the stream goes on.
    let later = generated::Request { id: 7, kind: 99, ..Default::default() };
    sender.send(wrap(to_node::Message::Request(later))).await.unwrap();
    let reply = within(replies.next()).await.unwrap().unwrap();
    let invalid = i32::from(generated::StatusCode::Invalid);
    assert!(
        matches!(reply.message, Some(from_node::Message::Reply(reply)) if reply.id == 7 && reply.status == invalid)
    );
    drop(sender);
    assert!(within(replies.next()).await.is_none());
}

struct Generated;

#[tonic::async_trait]
impl generated::block_server::Block for Generated {
    type StreamStream = ReceiverStream<Result<generated::FromNode, GrpcStatus>>;

    async fn stream(
        &self,
        request: tonic::Request<tonic::Streaming<generated::ToNode>>,
    ) -> Result<tonic::Response<Self::StreamStream>, GrpcStatus> {
        use generated::{from_node, to_node};
        let mut messages = request.into_inner();
        let (sender, replies) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Some(Ok(message)) = messages.next().await {
                let message = match message.message {
                    Some(to_node::Message::Hello(hello)) => from_node::Message::Welcome(generated::Welcome {
                        wire_version: hello.wire_version,
                        node_id: 9,
                        ..Default::default()
                    }),
                    Some(to_node::Message::Request(request)) if request.id == 13 => {
                        let _ = sender.send(Err(GrpcStatus::data_loss("thirteen"))).await;
                        return;
                    }
                    Some(to_node::Message::Request(request)) => from_node::Message::Reply(generated::Reply {
                        id: request.id,
                        status: generated::StatusCode::Ok.into(),
                        crc32c: request.crc32c,
                        payload: request.payload,
                        ..Default::default()
                    }),
                    None => return,
                };
                let _ = sender.send(Ok(generated::FromNode { message: Some(message) })).await;
            }
        });
        Ok(tonic::Response::new(ReceiverStream::new(replies)))
    }
}

/// Our client against tonic's own server, prost's own encoding.
#[tokio::test]
async fn generated_server_when_our_client_talks_to_it_then_understood() {
    let server = generated::block_server::BlockServer::new(Generated)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let channel = in_process(Routes::new(server));
    let (welcome, sender, mut receiver) = connect(channel, hello()).await.unwrap();
    assert_eq!(welcome.node_id, 9);
    for (id, len) in [(1, 1), (2, 4096), (3, 100_000), (4, 8 << 20)] {
        let payload = vec![Bytes::from(vec![6; len])];
        let sent = Request { checksums: vec![7, 8], ..request(id, Kind::Write, 0, payload.clone()) };
        sender.send(&sent).unwrap();
        let reply = within(receiver.recv()).await.unwrap().expect("a reply");
        assert_eq!((reply.id, &reply.status, &reply.checksums[..]), (id, &Status::Ok, &[7, 8][..]));
        assert!(reply.payload.concat() == payload.concat());
    }
    sender.send(&request(13, Kind::Flush, 0, Vec::new())).unwrap();
    let error = within(receiver.recv()).await.unwrap_err();
    let StreamError::Ended { code: Code::DataLoss, message } = error else {
        panic!("{error:?}");
    };
    assert_eq!(message, "thirteen");
}

/// A stream whose body is whatever the test says; the result is the gRPC status that it got.
async fn raw_stream(channel: &mut NodeChannel, path: &str, body: Vec<u8>) -> GrpcStatus {
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;
    let body = http_body_util::Full::new(Bytes::from(body));
    let request = http::Request::post(path)
        .version(http::Version::HTTP_2)
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(tonic::body::Body::new(body))
        .unwrap();
    let service = within(channel.ready()).await.unwrap();
    let response = within(tonic::codegen::Service::call(service, request)).await.unwrap();
    if let Some(status) = GrpcStatus::from_header_map(response.headers()) {
        return status;
    }
    let collected = within(response.into_body().collect()).await.unwrap();
    GrpcStatus::from_header_map(collected.trailers().expect("trailers")).expect("a gRPC status")
}

/// Frames of a hello, then the rest.
fn after_hello(rest: &[u8]) -> Vec<u8> {
    use prost::Message as _;
    let hello = generated::Hello { wire_version: 1, cluster: "lab".to_owned(), ..Default::default() };
    let message = generated::ToNode { message: Some(generated::to_node::Message::Hello(hello)) };
    let mut bytes = framed(&message.encode_to_vec());
    bytes.extend_from_slice(rest);
    bytes
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

#[tokio::test]
async fn garbage_when_on_a_stream_then_a_grpc_status_and_other_streams_of_the_connection_go_on() {
    let seen = memory(Semaphore::MAX_PERMITS);
    let mut channel = pipe(&seen.memory);
    let (_, sender, mut receiver) = connect(channel.clone(), hello()).await.unwrap();
    let path = holdfast_proto::block::STREAM_PATH;
    let table: [(&str, Vec<u8>, Code); 9] = [
        ("no hello at all", vec![], Code::FailedPrecondition),
        ("garbage for a hello", framed(&[0xff; 9]), Code::InvalidArgument),
        ("a request first", framed(&[0x12, 2, 0x50, 1]), Code::FailedPrecondition),
        ("garbage for a request", after_hello(&framed(&[0xff; 20])), Code::InvalidArgument),
        ("hello twice", after_hello(&after_hello(&[])), Code::FailedPrecondition),
        ("cut in a prefix", after_hello(&[0, 0]), Code::InvalidArgument),
        ("cut in a message", after_hello(&[0, 0, 0, 0, 9, 1, 2]), Code::InvalidArgument),
        ("too long", after_hello(&[0, 0xff, 0xff, 0xff, 0xff]), Code::ResourceExhausted),
        ("compressed", after_hello(&[1, 0, 0, 0, 0]), Code::Unimplemented),
    ];
    for (name, body, code) in table {
        let status = raw_stream(&mut channel, path, body).await;
        assert_eq!(status.code(), code, "{name}: {status:?}");
        sender.send(&request(1, Kind::Flush, 0, Vec::new())).unwrap();
        assert!(within(receiver.recv()).await.unwrap().is_some(), "{name}");
    }
    let status = raw_stream(&mut channel, "/holdfast.block.v1.Block/Other", after_hello(&[])).await;
    assert_eq!(status.code(), Code::Unimplemented);
}
