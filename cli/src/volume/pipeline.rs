//! Requests to a storage node, several at once, answered in the order in which they were asked.

use std::collections::VecDeque;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use holdfast_proto::block::message::WIRE_VERSION;
use holdfast_proto::block::{Hello, Kind, Reply, ReplyReceiver, Request, RequestSender, Status, connect};
use holdfast_proto::checksum;
use holdfast_proto::ids::{Incarnation, OpId, ShardIndex, VolumeId};
use holdfast_proto::units::SHARD_BYTES;
use tonic::transport::Channel;

/// Most bytes of one request.
pub(super) const MAX_REQUEST_BYTES: u64 = 1 << 20;

/// Requests under way at once.
const DEPTH: usize = 16;

/// Epoch and term of a volume with one copy.
const ONLY_EPOCH: u64 = 1;

/// A block stream with requests under way to one volume.
pub(super) struct Pipeline {
    volume: VolumeId,
    incarnation: u64,
    sender: RequestSender,
    receiver: ReplyReceiver,
    next_id: u64,
    asked: VecDeque<Asked>,
}

struct Asked {
    id: u64,
    kind: Kind,
    offset: u64,
    len: u64,
    reply: Option<Reply>,
}

/// What a read has brought, or that a change is durable.
pub(super) struct Answer {
    pub(super) len: u64,
    pub(super) data: Vec<Bytes>,
}

impl Pipeline {
    pub(super) async fn open(channel: Channel, volume: VolumeId) -> Result<Self> {
        let incarnation = u64::from(std::process::id()) << 32 | u64::from(started_nanoseconds());
        let hello = Hello {
            wire_version: WIRE_VERSION,
            cluster: String::new(),
            incarnation,
            lane: 0,
            name: "holdfast volume".to_owned(),
        };
        let (_, sender, receiver) =
            connect(channel, hello).await.context("cannot open a stream to the storage node")?;
        Ok(Self { volume, incarnation, sender, receiver, next_id: 1, asked: VecDeque::new() })
    }

    /// Bytes from `offset` that fit into one request, of `remaining_bytes`.
    pub(super) fn step(offset: u64, remaining_bytes: u64, most_bytes: u64) -> u64 {
        remaining_bytes.min(most_bytes).min(SHARD_BYTES - offset % SHARD_BYTES)
    }

    /// Whether another request may be asked before an answer is taken.
    pub(super) fn has_room(&self) -> bool {
        self.asked.len() < DEPTH
    }

    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Asks for one range inside one shard.
    pub(super) fn ask(&mut self, kind: Kind, offset: u64, len: u64, data: Vec<Bytes>) -> Result<()> {
        let id = self.next_id;
        self.next_id += 1;
        let request = Request {
            id,
            volume: self.volume,
            shard: ShardIndex::of_offset(offset).context("offset out of range")?.0,
            epoch: ONLY_EPOCH,
            term: ONLY_EPOCH,
            op: OpId { incarnation: Incarnation(self.incarnation), lane: 0, sequence: id, part: 0 },
            acked_below: self.asked.front().map_or(id, |oldest| oldest.id),
            nexus: 0,
            path_epoch: ONLY_EPOCH,
            kind,
            offset,
            len,
            checksums: if kind == Kind::Write { checksum::of_pieces(offset, &data) } else { Vec::new() },
            payload: data,
        };
        if self.sender.send(&request).is_err() {
            bail!("the storage node has closed the stream");
        }
        self.asked.push_back(Asked { id, kind, offset, len, reply: None });
        Ok(())
    }

    /// The answer to the oldest request.
    pub(super) async fn answer(&mut self) -> Result<Answer> {
        while self.asked.front().is_some_and(|oldest| oldest.reply.is_none()) {
            let reply = self.receiver.recv().await.context("lost the storage node")?;
            let reply = reply.context("the storage node has closed the stream")?;
            match self.asked.iter_mut().find(|asked| asked.id == reply.id) {
                Some(asked) => asked.reply = Some(reply),
                None => bail!("the storage node answered request {}, which was never asked", reply.id),
            }
        }
        let asked = self.asked.pop_front().context("nothing was asked")?;
        let reply = asked.reply.context("no answer")?;
        if reply.status != Status::Ok {
            bail!("at byte {}: {}", asked.offset, reply.status);
        }
        if asked.kind == Kind::Read
            && (checksum::len_bytes(&reply.payload) != asked.len
                || checksum::verify(asked.offset, &reply.payload, &reply.checksums).is_err())
        {
            bail!("at byte {}: the data was damaged on its way", asked.offset);
        }
        Ok(Answer { len: asked.len, data: reply.payload })
    }
}

/// Tells two runs with the same process id apart; nothing is measured by it.
fn started_nanoseconds() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.subsec_nanos())
}
