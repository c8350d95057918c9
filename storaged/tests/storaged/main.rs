//! The daemon as its callers see it: over TCP and in process, with the real store and with one that can be held back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod held_store;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::block::message::WIRE_VERSION;
use holdfast_proto::block::{
    ConnectError, Hello, Kind, Reply, ReplyReceiver, Request, RequestSender, Status, StreamError, connect,
    tuned_endpoint,
};
use holdfast_proto::channel::NodeChannel;
use holdfast_proto::checksum;
use holdfast_proto::ids::{Incarnation, OpId, ShardIndex, VolumeId};
use holdfast_proto::units::SHARD_BYTES;
use holdfast_proto::volumes::volumes_client::VolumesClient;
use holdfast_proto::volumes::{CreateRequest, GetRequest, ListRequest, VolumeKind};
use holdfast_storaged::{Config, Node, ServeError, Storaged};
use holdfast_store::StoreError;
use tonic::Code;
use tonic::transport::Endpoint;

use self::held_store::HeldStore;

/// No wait in these tests is for time to pass; this one only ends those that would hang.
const DEADLINE: Duration = Duration::from_secs(30);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("within the deadline")
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn open(dir: &tempfile::TempDir) -> Storaged {
    Storaged::open(Config { data_dir: dir.path().join("node"), ..Config::default() }).unwrap()
}

fn serve(storaged: &Storaged) -> Node {
    storaged.serve(listener(), listener()).unwrap()
}

async fn channel(address: SocketAddr) -> NodeChannel {
    tuned_endpoint(Endpoint::from_shared(format!("http://{address}")).unwrap()).connect().await.unwrap().into()
}

fn held() -> (Arc<HeldStore>, Storaged) {
    let store = Arc::new(HeldStore::default());
    (store.clone(), Storaged::with_store(store, &Config::default()))
}

fn hello() -> Hello {
    Hello { wire_version: WIRE_VERSION, cluster: String::new(), incarnation: 1, lane: 0, name: "test".to_owned() }
}

async fn stream(channel: &NodeChannel) -> (RequestSender, ReplyReceiver) {
    let (_, sender, receiver) = within(connect(channel.clone(), hello())).await.unwrap();
    (sender, receiver)
}

fn request(id: u64, volume: u64, kind: Kind, offset: u64, len: u64, payload: Bytes) -> Request {
    let payload = if payload.is_empty() { Vec::new() } else { vec![payload] };
    let at = if kind == Kind::WriteSame { 0 } else { offset };
    Request {
        id,
        volume: VolumeId(volume),
        shard: ShardIndex::of_offset(offset).unwrap().0,
        epoch: 1,
        term: 1,
        op: OpId { incarnation: Incarnation(1), lane: 0, sequence: id, part: 0 },
        acked_below: id,
        nexus: 1,
        path_epoch: 1,
        kind,
        offset,
        len,
        checksums: checksum::of_pieces(at, &payload),
        payload,
    }
}

fn write(id: u64, volume: u64, offset: u64, data: Bytes) -> Request {
    request(id, volume, Kind::Write, offset, data.len() as u64, data)
}

fn read(id: u64, volume: u64, offset: u64, len: u64) -> Request {
    request(id, volume, Kind::Read, offset, len, Bytes::new())
}

async fn ask(stream: &mut (RequestSender, ReplyReceiver), request: Request) -> Reply {
    stream.0.send(&request).unwrap();
    let reply = within(stream.1.recv()).await.unwrap().expect("a reply");
    assert_eq!(reply.id, request.id);
    reply
}

async fn create(channel: &NodeChannel, name: &str, size_bytes: u64, kind: VolumeKind, read_only: bool) -> u64 {
    let request = CreateRequest { name: name.to_owned(), size_bytes, block_size: 512, kind: kind.into(), read_only };
    let response = VolumesClient::new(channel.clone()).create(request).await.unwrap().into_inner();
    response.volume.unwrap().id
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

async fn get_async(address: SocketAddr, path: &'static str) -> (u16, String) {
    tokio::task::spawn_blocking(move || get(address, path)).await.unwrap()
}

/// What every caller may rely on, whatever lies between.
async fn exercise(channel: &NodeChannel) {
    let volume = create(channel, "disk0", 64 << 20, VolumeKind::Disk, false).await;
    let mut stream = stream(channel).await;
    let data = |seed: usize, len: usize| -> Bytes {
        (0..len).map(|at| u8::try_from((at * 7 + seed) % 251).unwrap()).collect::<Vec<_>>().into()
    };

    // Many in flight, of all sizes, none overlapping.
    let mut offset = 0;
    let mut written = Vec::new();
    for (id, len) in (0_u64..).zip([512, 4096, 8192, 65_536, 262_144, 1 << 20, 4 << 20].into_iter().cycle().take(60)) {
        let len = if id >= 14 { len.min(65_536) } else { len };
        let data = data(usize::try_from(id).unwrap(), len);
        stream.0.send(&write(id, volume, offset, data.clone())).unwrap();
        written.push((offset, data));
        offset += len as u64;
    }
    for _ in 0..written.len() {
        assert_eq!(within(stream.1.recv()).await.unwrap().expect("a reply").status, Status::Ok);
    }
    for (id, (offset, data)) in (0..).zip(&written) {
        stream.0.send(&read(id, volume, *offset, data.len() as u64)).unwrap();
    }
    for _ in 0..written.len() {
        let reply = within(stream.1.recv()).await.unwrap().expect("a reply");
        let (offset, data) = &written[usize::try_from(reply.id).unwrap()];
        assert_eq!(reply.status, Status::Ok);
        assert!(reply.payload.concat() == *data, "what was written at {offset}");
        assert_eq!(checksum::verify(*offset, &reply.payload, &reply.checksums), Ok(()));
    }

    // The other kinds.
    let block = data(3, 512);
    let same = request(1, volume, Kind::WriteSame, 1 << 20, 1 << 20, block.clone());
    assert_eq!(ask(&mut stream, same).await.status, Status::Ok);
    let reply = ask(&mut stream, read(2, volume, 1 << 20, 1 << 20)).await;
    assert!(reply.payload.concat() == block.repeat(2048));
    let unmap = request(3, volume, Kind::Unmap, 1 << 20, 1 << 19, Bytes::new());
    assert_eq!(ask(&mut stream, unmap).await.status, Status::Ok);
    let reply = ask(&mut stream, read(4, volume, 1 << 20, 1 << 19)).await;
    assert!(reply.payload.concat().iter().all(|byte| *byte == 0));
    let flush = request(5, volume, Kind::Flush, 0, 0, Bytes::new());
    assert_eq!(ask(&mut stream, flush).await.status, Status::Ok);

    let usage = VolumesClient::new(channel.clone()).get(GetRequest { name: "disk0".to_owned() }).await.unwrap();
    assert!(usage.into_inner().usage.unwrap().allocated_bytes > 1 << 20);
}

#[tokio::test]
async fn operations_when_over_tcp_then_every_kind_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let storaged = open(&dir);
    let node = serve(&storaged);
    exercise(&channel(node.grpc()).await).await;
    node.stop().await;
    storaged.close().unwrap();
}

#[tokio::test]
async fn operations_when_in_process_then_every_kind_does_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let storaged = open(&dir);
    exercise(&storaged.local_channel()).await;
    storaged.close().unwrap();
}

#[tokio::test]
async fn data_when_the_daemon_is_opened_again_then_still_there() {
    let dir = tempfile::tempdir().unwrap();
    let storaged = open(&dir);
    let channel = storaged.local_channel();
    let volume = create(&channel, "disk0", 1 << 20, VolumeKind::Disk, false).await;
    let data = Bytes::from(vec![5; 4096]);
    let reply = ask(&mut stream(&channel).await, write(1, volume, 8192, data.clone())).await;
    assert_eq!(reply.status, Status::Ok);
    storaged.close().unwrap();
    // The directory is free when the last task of the daemon that knows the store has ended.
    let store = Arc::downgrade(&storaged.store());
    drop((channel, storaged));
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.strong_count(), 0);

    let storaged = open(&dir);
    let channel = storaged.local_channel();
    let reply = ask(&mut stream(&channel).await, read(1, volume, 8192, 4096)).await;
    assert_eq!(reply.payload.concat(), data);
}

#[tokio::test]
async fn requests_when_refused_then_each_for_its_own_reason_and_the_stream_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let storaged = open(&dir);
    let channel = storaged.local_channel();
    let volume = create(&channel, "disk0", 2 * SHARD_BYTES, VolumeKind::Disk, false).await;
    let read_only = create(&channel, "fixed", 1 << 20, VolumeKind::Disk, true).await;
    let mut stream = stream(&channel).await;
    let block = Bytes::from(vec![1; 4096]);
    let good = write(1, volume, 0, block.clone());
    let table = [
        ("no such volume", read(1, 99, 0, 4096), Status::NoSuchVolume),
        ("beyond the volume", read(2, volume, 2 * SHARD_BYTES, 512), Status::OutOfRange),
        ("over a shard's border", read(3, volume, SHARD_BYTES - 512, 1024), Status::OutOfRange),
        ("another shard", Request { id: 4, shard: 1, ..good.clone() }, Status::OutOfRange),
        ("read only", write(5, read_only, 0, block.clone()), Status::WriteProtected),
        ("corrupt on the way", Request { id: 6, checksums: vec![1], ..good.clone() }, Status::Checksum),
    ];
    for (name, request, status) in table {
        assert_eq!(ask(&mut stream, request).await.status, status, "{name}");
    }
    let invalid = [
        ("payload too short", Request { id: 7, len: 8192, ..good.clone() }),
        ("too few checksums", Request { id: 8, checksums: vec![], ..good.clone() }),
        ("read too long", read(9, volume, 0, (8 << 20) + 1)),
        ("empty", read(10, volume, 0, 0)),
        ("write same too long", request(11, volume, Kind::WriteSame, 0, 2 << 20, block.clone())),
    ];
    for (name, request) in invalid {
        assert!(matches!(ask(&mut stream, request).await.status, Status::Invalid(_)), "{name}");
    }
    assert_eq!(ask(&mut stream, Request { id: 12, ..good }).await.status, Status::Ok);
}

#[tokio::test]
async fn store_errors_when_they_happen_then_mapped_and_counted() {
    let (store, storaged) = held();
    let node = serve(&storaged);
    let mut stream = stream(&channel(node.grpc()).await).await;
    for (id, error, status) in [
        (1, StoreError::Checksum { offset: 4096 }, Status::MediumError { offset: 4096 }),
        (2, StoreError::NoSpace, Status::NoSpace),
        (
            3,
            StoreError::DeviceFailed("input/output error".into()),
            Status::DeviceFailed("input/output error".to_owned()),
        ),
    ] {
        stream.0.send(&read(id, 1, 0, 4096)).unwrap();
        within(store.submitted(1)).await;
        store.complete_next(Err(error));
        assert_eq!(within(stream.1.recv()).await.unwrap().expect("a reply").status, status);
    }
    let (status, metrics) = get_async(node.http(), "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "holdfast_storaged_requests_total{kind=\"read\"} 3",
        "holdfast_storaged_request_bytes_total{kind=\"read\"} 12288",
        "holdfast_storaged_errors_total{status=\"no_space\"} 1",
        "holdfast_storaged_checksum_errors_total{place=\"medium\"} 1",
        "holdfast_storaged_streams 1",
    ] {
        assert!(metrics.contains(line), "{line} in\n{metrics}");
    }
    let (status, body) = get_async(node.http(), "/readyz").await;
    assert!(status == 503 && body.ends_with("the device has failed\n"), "{body}");
    assert_eq!(get_async(node.http(), "/healthz").await.0, 200);
    assert!(storaged.close().is_err());
}

#[tokio::test]
async fn disk_when_it_fails_behind_the_back_of_requests_then_readiness_and_close_tell() {
    let (store, storaged) = held();
    let node = serve(&storaged);
    assert_eq!(get_async(node.http(), "/readyz").await.0, 200);
    store.fail("cannot sync");
    let (status, body) = get_async(node.http(), "/readyz").await;
    assert!(status == 503 && body.ends_with("the device has failed\n"), "{body}");
    assert!(storaged.close().is_err());
}

#[tokio::test]
async fn version_or_cluster_when_another_then_the_hello_is_refused() {
    let (_store, storaged) = held();
    let channel = storaged.local_channel();
    for hello in
        [Hello { wire_version: WIRE_VERSION + 1, ..hello() }, Hello { cluster: "elsewhere".to_owned(), ..hello() }]
    {
        let error = within(connect(channel.clone(), hello)).await.unwrap_err();
        assert!(matches!(error, ConnectError::Refused { code: Code::FailedPrecondition, .. }), "{error:?}");
    }
    let hello = Hello { cluster: "holdfast".to_owned(), ..hello() };
    within(connect(channel, hello)).await.unwrap();
}

#[tokio::test]
async fn a4_new_stream_of_a_lane_when_the_old_one_has_requests_in_flight_then_welcomed_after_they_are_settled() {
    let (store, storaged) = held();
    let node = serve(&storaged);
    // The old connection is not closed: nobody but the gateway knows that it gave it up.
    let old_channel = channel(node.grpc()).await;
    let (old_sender, mut old_receiver) = stream(&old_channel).await;
    old_sender.send(&write(1, 1, 0, Bytes::from(vec![1; 4096]))).unwrap();
    within(store.submitted(1)).await;

    let new_channel = channel(node.grpc()).await;
    let mut new_stream = tokio::spawn(async move { connect(new_channel, hello()).await });
    // Another lane does not wait.
    let other = Hello { lane: 1, ..hello() };
    within(connect(old_channel.clone(), other)).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(100), &mut new_stream).await;
    assert!(early.is_err(), "welcomed while a write of the old stream is in flight");

    store.complete_next(Ok(holdfast_store::Output::default()));
    within(new_stream).await.unwrap().unwrap();
    // The old stream is told, after its answer.
    assert_eq!(within(old_receiver.recv()).await.unwrap().expect("a reply").id, 1);
    let error = within(old_receiver.recv()).await.unwrap_err();
    assert!(matches!(error, StreamError::Ended { code: Code::Aborted, .. }), "{error:?}");
    assert!(old_sender.send(&read(2, 1, 0, 512)).is_err());
    assert_eq!(store.count(), 0, "nothing of the old stream is started any more");
}

#[tokio::test]
async fn connection_when_cut_in_the_middle_then_the_store_finishes_and_the_next_stream_is_welcomed() {
    let (store, storaged) = held();
    let node = serve(&storaged);
    let channel_1 = channel(node.grpc()).await;
    let (sender, receiver) = stream(&channel_1).await;
    sender.send(&write(1, 1, 0, Bytes::from(vec![1; 4096]))).unwrap();
    within(store.submitted(1)).await;
    drop((sender, receiver, channel_1));

    let channel_2 = channel(node.grpc()).await;
    let mut next = tokio::spawn(async move { connect(channel_2, hello()).await });
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut next).await.is_err());
    store.complete_next(Ok(holdfast_store::Output::default()));
    within(next).await.unwrap().unwrap();
}

#[tokio::test]
async fn node_when_it_stops_then_what_is_in_flight_is_answered_and_the_sockets_are_closed() {
    let (store, storaged) = held();
    let node = serve(&storaged);
    let (grpc, http) = (node.grpc(), node.http());
    let channel = channel(grpc).await;
    let (sender, mut receiver) = stream(&channel).await;
    sender.send(&read(1, 1, 0, 512)).unwrap();
    within(store.submitted(1)).await;

    let stop = tokio::spawn(node.stop());
    within(async {
        while get_async(http, "/readyz").await.0 != 503 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    store.complete_next(Ok(holdfast_store::Output::default()));
    assert_eq!(within(receiver.recv()).await.unwrap().expect("a reply").status, Status::Ok);
    let error = within(receiver.recv()).await.unwrap_err();
    assert!(matches!(error, StreamError::Ended { code: Code::Unavailable, .. }), "{error:?}");
    drop(channel);
    within(stop).await.unwrap();
    assert!(TcpStream::connect(grpc).is_err());
    assert!(TcpStream::connect(http).is_err());
    storaged.close().unwrap();
}

#[tokio::test]
async fn volumes_when_created_then_listed_and_refused_for_the_right_reason() {
    let dir = tempfile::tempdir().unwrap();
    let storaged = open(&dir);
    let channel = storaged.local_channel();
    let mut client = VolumesClient::new(channel.clone());
    let id = create(&channel, "disk0", 1 << 30, VolumeKind::Disk, false).await;
    create(&channel, "null", 1 << 40, VolumeKind::Null, true).await;
    let volumes = client.list(ListRequest {}).await.unwrap().into_inner().volumes;
    let [disk, null] = &volumes[..] else { panic!("{volumes:?}") };
    assert_eq!((disk.id, disk.name.as_str(), disk.size_bytes, disk.block_size), (id, "disk0", 1 << 30, 512));
    assert_eq!((null.kind(), null.read_only), (VolumeKind::Null, true));
    assert_ne!(disk.naa, null.naa);

    let good = CreateRequest {
        name: "disk1".to_owned(),
        size_bytes: 1 << 20,
        block_size: 4096,
        kind: VolumeKind::Disk.into(),
        read_only: false,
    };
    let table = [
        (CreateRequest { name: "disk0".to_owned(), ..good.clone() }, Code::AlreadyExists),
        (CreateRequest { name: "Disk 1".to_owned(), ..good.clone() }, Code::InvalidArgument),
        (CreateRequest { size_bytes: 1000, ..good.clone() }, Code::InvalidArgument),
        (CreateRequest { size_bytes: 0, ..good.clone() }, Code::InvalidArgument),
        (CreateRequest { block_size: 1024, ..good.clone() }, Code::InvalidArgument),
        (CreateRequest { kind: 0, ..good.clone() }, Code::InvalidArgument),
        (CreateRequest { kind: 77, ..good.clone() }, Code::InvalidArgument),
    ];
    for (request, code) in table {
        let status = client.create(request.clone()).await.unwrap_err();
        assert_eq!(status.code(), code, "{request:?}: {status:?}");
    }
    let status = client.get(GetRequest { name: "other".to_owned() }).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    client.create(good).await.unwrap();
    storaged.close().unwrap();
    let status = client.create(CreateRequest { name: "late".to_owned(), ..CreateRequest::default() }).await;
    assert!(status.is_err());
}

#[tokio::test]
async fn http_when_on_an_address_that_others_reach_then_refused_unless_allowed() {
    let store = Arc::new(HeldStore::default());
    let everywhere = || TcpListener::bind("0.0.0.0:0").unwrap();
    let storaged = Storaged::with_store(store.clone(), &Config::default());
    let error = storaged.serve(listener(), everywhere()).unwrap_err();
    assert!(matches!(error, ServeError::HttpBeyondLoopback(_)), "{error:?}");
    let config = Config { http_beyond_loopback: true, ..Config::default() };
    Storaged::with_store(store, &config).serve(listener(), everywhere()).unwrap();
}
