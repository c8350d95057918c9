//! The lane against a scripted storage node, over real gRPC, with a connection that the test can cut.

use std::net::SocketAddr;
use std::sync::Mutex;

use bytes::Bytes;
use holdfast_proto::block::{BlockHandler, BlockServer, Incoming, RequestReceiver, Welcome, tuned_server};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet};

use super::*;
use crate::volume::parts::ByteRange;

/// Hands every request to the test.
struct Script {
    requests: mpsc::UnboundedSender<Incoming>,
}

impl BlockHandler for Script {
    type Session = ();

    async fn welcome(&self, hello: &Hello, _: Option<SocketAddr>) -> Result<(Welcome, ()), tonic::Status> {
        let welcome = Welcome {
            wire_version: hello.wire_version,
            cluster: String::new(),
            node_id: 1,
            incarnation: 1,
            max_payload_bytes: 8 << 20,
        };
        Ok((welcome, ()))
    }

    async fn serve(self: Arc<Self>, (): (), mut requests: RequestReceiver) {
        while let Ok(Some(incoming)) = requests.recv().await {
            self.requests.send(incoming).unwrap();
        }
    }
}

/// A node, and the wire to it.
struct Node {
    requests: mpsc::UnboundedReceiver<Incoming>,
    wires: Arc<Mutex<Vec<AbortHandle>>>,
    connect: StorageConnector,
}

impl Node {
    fn new() -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        let handler = Arc::new(Script { requests: sender });
        let wires = Arc::new(Mutex::new(Vec::new()));
        let kept = wires.clone();
        let connect: StorageConnector = Arc::new(move || {
            let (near, relay_near) = tokio::io::duplex(1 << 16);
            let (relay_far, far) = tokio::io::duplex(1 << 16);
            let relay = tokio::spawn(relay(relay_near, relay_far));
            kept.lock().unwrap().push(relay.abort_handle());
            let accepted = tokio_stream::once(Ok::<_, std::io::Error>(far));
            let router = tuned_server().add_service(BlockServer::new(handler.clone()));
            tokio::spawn(router.serve_with_incoming(accepted));
            let mut near = Some(near);
            Box::pin(async move {
                tonic::transport::Endpoint::from_static("http://node")
                    .connect_with_connector(tower::service_fn(move |_| {
                        let near =
                            near.take().ok_or_else(|| std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                        std::future::ready(near.map(TokioIo::new))
                    }))
                    .await
                    .map(Into::into)
                    .map_err(|error| error.to_string())
            })
        });
        Self { requests, wires, connect }
    }

    fn cut(&self) {
        self.wires.lock().unwrap().drain(..).for_each(|wire| wire.abort());
    }

    async fn request(&mut self) -> Incoming {
        self.requests.recv().await.unwrap()
    }
}

async fn relay(mut near: DuplexStream, mut far: DuplexStream) {
    // Ends when either side closes, or when the test cuts the wire.
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}

/// A lane to a node, and where its parts come back.
struct Rig {
    lane: Lane,
    done: Rc<Completions>,
    node: Node,
}

impl Rig {
    fn unconnected() -> Self {
        Self { lane: Lane::new(7, 3, Arc::default()), done: Completions::new(), node: Node::new() }
    }

    fn connect(&self) {
        tokio::task::spawn_local(self.lane.clone().run(self.node.connect.clone(), "gateway-1".to_owned()));
    }

    fn submit(&self, kind: Kind, offset: u64, payload: &[u8]) -> u64 {
        let payload = if payload.is_empty() { vec![] } else { vec![Bytes::copy_from_slice(payload)] };
        let part = Part { kind, range: ByteRange { offset, len: 4096 }, payload };
        let token = PartToken { operation: offset, buffer_offset: 0 };
        self.lane.submit(VolumeId(1), 9, part, &self.done, token)
    }

    async fn done(&self) -> (u64, Result<Vec<Bytes>, PartError>) {
        std::future::poll_fn(|context| self.done.poll_ready(context)).await;
        let part = self.done.pop().unwrap();
        (part.token.operation, part.result)
    }
}

fn run<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

fn answer_read(incoming: Incoming, byte: u8) {
    let payload = vec![Bytes::from(vec![byte; 4096])];
    let checksums = checksum::of_pieces(incoming.request.offset, &payload);
    incoming.reply.send_with(Status::Ok, checksums, payload);
}

#[test]
fn parts_submitted_before_there_is_a_stream_go_out_in_order_when_there_is() {
    run(async {
        let mut rig = Rig::unconnected();
        rig.submit(Kind::Write, 0, &[1; 4096]);
        rig.submit(Kind::Read, 4096, &[]);
        rig.connect();
        let write = rig.node.request().await;
        assert_eq!((write.request.kind, write.request.offset, write.request.nexus), (Kind::Write, 0, 9));
        assert_eq!(write.request.checksums, checksum::of_pieces(0, &write.request.payload));
        assert_eq!((write.request.op.incarnation.0, write.request.op.lane), (7, 3));
        let read = rig.node.request().await;
        assert_eq!((read.request.kind, read.request.offset), (Kind::Read, 4096));
        assert!(read.request.op.sequence > write.request.op.sequence);
        assert_eq!(read.request.acked_below, write.request.op.sequence);
        answer_read(read, 5);
        assert_eq!(rig.done().await, (4096, Ok(vec![Bytes::from(vec![5; 4096])])));
        write.reply.send(Status::Ok);
        assert_eq!(rig.done().await, (0, Ok(vec![])));
    });
}

#[test]
fn lost_stream_ends_writes_only_after_the_next_welcome_and_asks_reads_again() {
    run(async {
        let mut rig = Rig::unconnected();
        rig.connect();
        rig.submit(Kind::Write, 0, &[1; 4096]);
        rig.submit(Kind::Read, 4096, &[]);
        rig.submit(Kind::Unmap, 8192, &[]);
        let lost = [rig.node.request().await, rig.node.request().await, rig.node.request().await];
        rig.node.cut();
        // The read comes again under the name that it had: the write and the unmap never do.
        let again = rig.node.request().await;
        assert_eq!(again.request.kind, Kind::Read);
        assert_eq!(again.request.op, lost[1].request.op);
        assert_eq!(rig.done().await, (0, Err(PartError::ConnectionLost)));
        assert_eq!(rig.done().await, (8192, Err(PartError::ConnectionLost)));
        answer_read(again, 6);
        assert_eq!(rig.done().await.1.unwrap(), [Bytes::from(vec![6; 4096])]);
        drop(lost);
    });
}

#[test]
fn cancelled_part_that_was_not_sent_never_is() {
    run(async {
        let mut rig = Rig::unconnected();
        let first = rig.submit(Kind::Write, 0, &[1; 4096]);
        rig.submit(Kind::Write, 4096, &[2; 4096]);
        rig.lane.cancel(first);
        assert_eq!(rig.done().await, (0, Err(PartError::Cancelled)));
        rig.connect();
        let sent = rig.node.request().await;
        assert_eq!(sent.request.offset, 4096);
        // One that has been sent stays until the node answers.
        rig.lane.cancel(sent.request.op.sequence);
        sent.reply.send(Status::Ok);
        assert_eq!(rig.done().await, (4096, Ok(vec![])));
    });
}

#[test]
fn read_whose_data_does_not_fit_its_checksums_or_length_is_not_delivered() {
    run(async {
        let mut rig = Rig::unconnected();
        rig.connect();
        let good = Bytes::from(vec![7; 4096]);
        let sums = checksum::of_pieces(0, std::slice::from_ref(&good));
        for (checksums, payload) in [
            (vec![sums[0] ^ 1], vec![good.clone()]),
            (vec![], vec![good.clone()]),
            (checksum::of_pieces(0, &[good.slice(..512)]), vec![good.slice(..512)]),
            (vec![], vec![]),
        ] {
            rig.submit(Kind::Read, 0, &[]);
            rig.node.request().await.reply.send_with(Status::Ok, checksums, payload);
            assert_eq!(rig.done().await, (0, Err(PartError::DataDamaged)));
        }
    });
}

#[test]
fn refusals_of_the_node_keep_their_meaning() {
    run(async {
        let mut rig = Rig::unconnected();
        rig.connect();
        for (status, error) in [
            (Status::Checksum, PartError::DataDamaged),
            (Status::MediumError { offset: 512 }, PartError::Medium { offset: 512 }),
            (Status::NoSpace, PartError::NoSpace),
            (Status::WriteProtected, PartError::WriteProtected),
            (Status::Stopping, PartError::ConnectionLost),
            (Status::DeviceFailed("eio".into()), PartError::Failed("device failed: eio".into())),
        ] {
            rig.submit(Kind::Write, 0, &[1; 4096]);
            rig.node.request().await.reply.send(status);
            assert_eq!(rig.done().await, (0, Err(error)));
        }
    });
}
