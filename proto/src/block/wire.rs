//! Protobuf encoding and decoding of the block stream's messages, by hand.
//!
//! The bytes are exactly those that prost makes of `block.proto`: fields in ascending order, default values left out. What
//! is different is where payloads go: encoding hands them to [`Chunks`] by reference, decoding cuts them out of the
//! segments that arrived. Handshake messages are rare and small, so prost itself encodes and decodes them.

use bytes::{BufMut, Bytes};
use prost::Message as _;
use thiserror::Error;

use super::body::Chunks;
use super::generated;
use super::message::{FromNode, Hello, Kind, MAX_TEXT_BYTES, Reply, Request, Status, ToNode, Welcome};
use crate::ids::{OpId, VolumeId};

/// Length of the prefix that gRPC puts before each message: a compression flag and the length, big-endian.
pub const GRPC_PREFIX_BYTES: usize = 5;

/// Why a message could not be understood.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// The message ends inside a field.
    #[error("message ends inside a field")]
    Truncated,
    /// A varint is longer than ten bytes or does not fit into 64 bits.
    #[error("malformed varint")]
    Varint,
    /// A field number of 0, or a tag beyond 32 bits.
    #[error("malformed field tag {tag}")]
    Tag {
        /// The tag as it was read.
        tag: u64,
    },
    /// A field has another wire type than the `.proto` says, or one that does not exist.
    #[error("field {field} has wire type {wire_type}")]
    WireType {
        /// Number of the field.
        field: u32,
        /// Its wire type.
        wire_type: u32,
    },
    /// A list of fixed 32-bit numbers has a length that is not a multiple of four.
    #[error("packed list of {len_bytes} bytes is not a multiple of four")]
    PackedLength {
        /// Length in bytes.
        len_bytes: usize,
    },
    /// A text is not UTF-8.
    #[error("text is not utf-8")]
    Text,
    /// prost could not decode a handshake message.
    #[error("malformed handshake: {0}")]
    Handshake(#[from] prost::DecodeError),
    /// The message holds none of the variants that this version knows.
    #[error("message holds nothing this version knows")]
    Empty,
    /// The request is well formed but of a kind this version does not know: refuse the request, keep the stream.
    #[error("request {id} is of unknown kind {kind}")]
    UnknownKind {
        /// `id` of the request.
        id: u64,
        /// Number of the kind.
        kind: u32,
    },
}

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LEN: u32 = 2;
const FIXED32: u32 = 5;

/// Field numbers of `Request` and `Reply` that are not scalars.
const REQUEST_OP: u32 = 6;
const REQUEST_CHECKSUMS: u32 = 13;
const REPLY_DETAIL: u32 = 3;
const REPLY_CHECKSUMS: u32 = 5;
const PAYLOAD: u32 = 15;

/// Field number of the handshake and of the operation in `ToNode` and `FromNode`.
const HANDSHAKE: u32 = 1;
const OPERATION: u32 = 2;

/// Appends a request, with its gRPC prefix.
pub fn encode_request(request: &Request, out: &mut Chunks) {
    let mut op = Scalars::new();
    op.field(1, request.op.incarnation.0);
    op.field(2, u64::from(request.op.lane));
    op.field(3, request.op.sequence);
    op.field(4, u64::from(request.op.part));

    let mut scalars = Scalars::new();
    scalars.field(1, request.id);
    scalars.field(2, request.volume.0);
    scalars.field(3, u64::from(request.shard));
    scalars.field(4, request.epoch);
    scalars.field(5, request.term);
    scalars.message(REQUEST_OP, &op);
    scalars.field(7, request.acked_below);
    scalars.field(8, request.nexus);
    scalars.field(9, request.path_epoch);
    scalars.field(10, u64::from(request.kind.to_wire()));
    scalars.field(11, request.offset);
    scalars.field(12, request.len);

    encode(out, scalars.as_slice(), REQUEST_CHECKSUMS, &request.checksums, &request.payload);
}

/// Appends a reply, with its gRPC prefix.
pub fn encode_reply(reply: &Reply, out: &mut Chunks) {
    let mut scalars = Scalars::new();
    scalars.field(1, reply.id);
    scalars.field(2, u64::from(reply.status.to_wire()));
    let detail = clip(reply.status.detail());
    if detail.is_empty() {
        scalars.field(4, reply.status.error_offset());
        encode(out, scalars.as_slice(), REPLY_CHECKSUMS, &reply.checksums, &reply.payload);
        return;
    }
    // Only failures have a text: they may cost an allocation.
    let mut head = scalars.as_slice().to_vec();
    put_varint(&mut head, u64::from(REPLY_DETAIL << 3 | LEN));
    put_varint(&mut head, detail.len() as u64);
    head.extend_from_slice(detail.as_bytes());
    let mut rest = Scalars::new();
    rest.field(4, reply.status.error_offset());
    head.extend_from_slice(rest.as_slice());
    encode(out, &head, REPLY_CHECKSUMS, &reply.checksums, &reply.payload);
}

/// Appends the first message of the caller, with its gRPC prefix.
pub fn encode_hello(hello: &Hello, out: &mut Chunks) {
    let message = generated::ToNode {
        message: Some(generated::to_node::Message::Hello(generated::Hello {
            wire_version: hello.wire_version,
            cluster: clip(&hello.cluster).to_owned(),
            incarnation: hello.incarnation,
            lane: hello.lane,
            name: clip(&hello.name).to_owned(),
        })),
    };
    encode_handshake(&message.encode_to_vec(), out);
}

/// Appends the first message of the server, with its gRPC prefix.
pub fn encode_welcome(welcome: &Welcome, out: &mut Chunks) {
    let message = generated::FromNode {
        message: Some(generated::from_node::Message::Welcome(generated::Welcome {
            wire_version: welcome.wire_version,
            cluster: clip(&welcome.cluster).to_owned(),
            node_id: welcome.node_id,
            incarnation: welcome.incarnation,
            max_payload_bytes: welcome.max_payload_bytes,
        })),
    };
    encode_handshake(&message.encode_to_vec(), out);
}

fn encode_handshake(message: &[u8], out: &mut Chunks) {
    let buffer = out.buffer(GRPC_PREFIX_BYTES + message.len());
    put_grpc_prefix(buffer, message.len());
    buffer.extend_from_slice(message);
}

/// The common part: wrapper, scalar fields as they are, checksums, payload.
fn encode(out: &mut Chunks, scalars: &[u8], checksum_field: u32, checksums: &[u32], payload: &[Bytes]) {
    let payload_len: usize = payload.iter().map(Bytes::len).sum();
    let packed_len = checksums.len() * 4;
    let inner_len = scalars.len() + delimited_len(packed_len) + delimited_len(payload_len);
    let message_len = 1 + varint_len(inner_len as u64) + inner_len;

    let head_len = GRPC_PREFIX_BYTES + message_len - payload_len;
    let buffer = out.buffer(head_len);
    put_grpc_prefix(buffer, message_len);
    put_varint(buffer, u64::from(OPERATION << 3 | LEN));
    put_varint(buffer, inner_len as u64);
    buffer.extend_from_slice(scalars);
    if packed_len > 0 {
        put_varint(buffer, u64::from(checksum_field << 3 | LEN));
        put_varint(buffer, packed_len as u64);
        for checksum in checksums {
            buffer.put_u32_le(*checksum);
        }
    }
    if payload_len > 0 {
        put_varint(buffer, u64::from(PAYLOAD << 3 | LEN));
        put_varint(buffer, payload_len as u64);
        out.payload(payload);
    }
}

fn put_grpc_prefix(buffer: &mut impl BufMut, message_len: usize) {
    buffer.put_u8(0);
    // A message beyond 4 GiB cannot be announced; the receiver refuses far shorter ones.
    buffer.put_u32(u32::try_from(message_len).unwrap_or(u32::MAX));
}

fn put_varint(buffer: &mut impl BufMut, value: u64) {
    let (bytes, len) = varint(value);
    buffer.put_slice(bytes.get(..len).unwrap_or_default());
}

/// The varint's bytes and how many of them count.
fn varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut len = 0;
    for byte in &mut bytes {
        len += 1;
        *byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    (bytes, len)
}

const fn varint_len(value: u64) -> usize {
    // Seven bits a byte; 0 takes one as well.
    (((value | 1).ilog2() as usize) / 7) + 1
}

/// Length of a field with a one-byte tag and this many bytes, which is left out when it is empty.
const fn delimited_len(len: usize) -> usize {
    if len == 0 { 0 } else { 1 + varint_len(len as u64) + len }
}

/// The text up to the longest that is sent, cut at a character.
fn clip(text: &str) -> &str {
    let longest = text.len().min(MAX_TEXT_BYTES);
    (0..=longest).rev().find_map(|end| text.get(..end)).unwrap_or_default()
}

/// Scalar fields of one message, gathered on the stack so that the length is known before the message is begun.
struct Scalars {
    bytes: [u8; Scalars::CAPACITY],
    len: usize,
}

impl Scalars {
    /// Twelve fields of a tag byte and ten bytes each, and the nested operation id.
    const CAPACITY: usize = 12 * 11 + 4 * 11 + 2;

    const fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn append(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(target) = self.bytes.get_mut(self.len..end) {
            target.copy_from_slice(bytes);
            self.len = end;
        } else {
            debug_assert!(false, "more scalar fields than any message has");
        }
    }

    fn varint(&mut self, value: u64) {
        let (bytes, len) = varint(value);
        self.append(bytes.get(..len).unwrap_or_default());
    }

    /// A varint field, left out when it is 0 as proto3 does.
    fn field(&mut self, number: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(number << 3 | VARINT));
            self.varint(value);
        }
    }

    /// A nested message, present even when it is empty.
    fn message(&mut self, number: u32, message: &Scalars) {
        self.varint(u64::from(number << 3 | LEN));
        self.varint(message.len as u64);
        self.append(message.as_slice());
    }
}

/// Decodes one message of the caller, without its gRPC prefix. The segments in their order are the message.
pub fn decode_to_node(message: Vec<Bytes>) -> Result<ToNode, WireError> {
    let mut cursor = Cursor::new(message);
    let mut decoded = None;
    while let Some((field, wire_type)) = cursor.next_field(0)? {
        match field {
            HANDSHAKE => {
                let bytes = cursor.bytes(field, wire_type)?;
                let mut hello = match decoded {
                    Some(ToNodeParts::Hello(hello)) => hello,
                    _ => generated::Hello::default(),
                };
                hello.merge(bytes)?;
                decoded = Some(ToNodeParts::Hello(hello));
            }
            OPERATION => {
                let end = cursor.nested(field, wire_type)?;
                let mut request = match decoded {
                    Some(ToNodeParts::Request(request)) => request,
                    _ => RequestParts::default(),
                };
                request.merge(&mut cursor, end)?;
                decoded = Some(ToNodeParts::Request(request));
            }
            _ => cursor.skip(field, wire_type)?,
        }
    }
    match decoded {
        Some(ToNodeParts::Hello(hello)) => Ok(ToNode::Hello(Hello {
            wire_version: hello.wire_version,
            cluster: hello.cluster,
            incarnation: hello.incarnation,
            lane: hello.lane,
            name: hello.name,
        })),
        Some(ToNodeParts::Request(request)) => request.finish().map(ToNode::Request),
        None => Err(WireError::Empty),
    }
}

/// Decodes one message of the server, without its gRPC prefix. The segments in their order are the message.
pub fn decode_from_node(message: Vec<Bytes>) -> Result<FromNode, WireError> {
    let mut cursor = Cursor::new(message);
    let mut decoded = None;
    while let Some((field, wire_type)) = cursor.next_field(0)? {
        match field {
            HANDSHAKE => {
                let bytes = cursor.bytes(field, wire_type)?;
                let mut welcome = match decoded {
                    Some(FromNodeParts::Welcome(welcome)) => welcome,
                    _ => generated::Welcome::default(),
                };
                welcome.merge(bytes)?;
                decoded = Some(FromNodeParts::Welcome(welcome));
            }
            OPERATION => {
                let end = cursor.nested(field, wire_type)?;
                let mut reply = match decoded {
                    Some(FromNodeParts::Reply(reply)) => reply,
                    _ => ReplyParts::default(),
                };
                reply.merge(&mut cursor, end)?;
                decoded = Some(FromNodeParts::Reply(reply));
            }
            _ => cursor.skip(field, wire_type)?,
        }
    }
    match decoded {
        Some(FromNodeParts::Welcome(welcome)) => Ok(FromNode::Welcome(Welcome {
            wire_version: welcome.wire_version,
            cluster: welcome.cluster,
            node_id: welcome.node_id,
            incarnation: welcome.incarnation,
            max_payload_bytes: welcome.max_payload_bytes,
        })),
        Some(FromNodeParts::Reply(reply)) => Ok(FromNode::Reply(reply.finish())),
        None => Err(WireError::Empty),
    }
}

// A message field that occurs twice is merged, and of a `oneof` the last one counts: hence the parts.
enum ToNodeParts {
    Hello(generated::Hello),
    Request(RequestParts),
}

enum FromNodeParts {
    Welcome(generated::Welcome),
    Reply(ReplyParts),
}

#[derive(Default)]
struct RequestParts {
    id: u64,
    volume: u64,
    shard: u32,
    epoch: u64,
    term: u64,
    op: OpParts,
    acked_below: u64,
    nexus: u64,
    path_epoch: u64,
    kind: u32,
    offset: u64,
    len: u64,
    checksums: Vec<u32>,
    payload: Vec<Bytes>,
}

impl RequestParts {
    fn merge(&mut self, cursor: &mut Cursor, end: usize) -> Result<(), WireError> {
        while let Some((field, wire_type)) = cursor.next_field(end)? {
            match field {
                1 => self.id = cursor.uint64(field, wire_type)?,
                2 => self.volume = cursor.uint64(field, wire_type)?,
                3 => self.shard = cursor.uint32(field, wire_type)?,
                4 => self.epoch = cursor.uint64(field, wire_type)?,
                5 => self.term = cursor.uint64(field, wire_type)?,
                REQUEST_OP => {
                    let end = cursor.nested(field, wire_type)?;
                    self.op.merge(cursor, end)?;
                }
                7 => self.acked_below = cursor.uint64(field, wire_type)?,
                8 => self.nexus = cursor.uint64(field, wire_type)?,
                9 => self.path_epoch = cursor.uint64(field, wire_type)?,
                10 => self.kind = cursor.uint32(field, wire_type)?,
                11 => self.offset = cursor.uint64(field, wire_type)?,
                12 => self.len = cursor.uint64(field, wire_type)?,
                REQUEST_CHECKSUMS => cursor.fixed32_list(field, wire_type, &mut self.checksums)?,
                PAYLOAD => self.payload = cursor.segments(field, wire_type)?,
                _ => cursor.skip(field, wire_type)?,
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Request, WireError> {
        let Some(kind) = Kind::from_wire(self.kind) else {
            return Err(WireError::UnknownKind { id: self.id, kind: self.kind });
        };
        Ok(Request {
            id: self.id,
            volume: VolumeId(self.volume),
            shard: self.shard,
            epoch: self.epoch,
            term: self.term,
            op: self.op.finish(),
            acked_below: self.acked_below,
            nexus: self.nexus,
            path_epoch: self.path_epoch,
            kind,
            offset: self.offset,
            len: self.len,
            checksums: self.checksums,
            payload: self.payload,
        })
    }
}

#[derive(Default)]
struct OpParts {
    incarnation: u64,
    lane: u32,
    sequence: u64,
    part: u32,
}

impl OpParts {
    fn merge(&mut self, cursor: &mut Cursor, end: usize) -> Result<(), WireError> {
        while let Some((field, wire_type)) = cursor.next_field(end)? {
            match field {
                1 => self.incarnation = cursor.uint64(field, wire_type)?,
                2 => self.lane = cursor.uint32(field, wire_type)?,
                3 => self.sequence = cursor.uint64(field, wire_type)?,
                4 => self.part = cursor.uint32(field, wire_type)?,
                _ => cursor.skip(field, wire_type)?,
            }
        }
        Ok(())
    }

    fn finish(self) -> OpId {
        OpId {
            incarnation: crate::ids::Incarnation(self.incarnation),
            lane: self.lane,
            sequence: self.sequence,
            part: self.part,
        }
    }
}

#[derive(Default)]
struct ReplyParts {
    id: u64,
    status: u32,
    detail: String,
    error_offset: u64,
    checksums: Vec<u32>,
    payload: Vec<Bytes>,
}

impl ReplyParts {
    fn merge(&mut self, cursor: &mut Cursor, end: usize) -> Result<(), WireError> {
        while let Some((field, wire_type)) = cursor.next_field(end)? {
            match field {
                1 => self.id = cursor.uint64(field, wire_type)?,
                2 => self.status = cursor.uint32(field, wire_type)?,
                REPLY_DETAIL => {
                    let bytes = cursor.bytes(field, wire_type)?;
                    let text = std::str::from_utf8(&bytes).map_err(|_| WireError::Text)?;
                    self.detail = text.to_owned();
                }
                4 => self.error_offset = cursor.uint64(field, wire_type)?,
                REPLY_CHECKSUMS => cursor.fixed32_list(field, wire_type, &mut self.checksums)?,
                PAYLOAD => self.payload = cursor.segments(field, wire_type)?,
                _ => cursor.skip(field, wire_type)?,
            }
        }
        Ok(())
    }

    fn finish(self) -> Reply {
        Reply {
            id: self.id,
            status: Status::from_wire(self.status, self.detail, self.error_offset),
            checksums: self.checksums,
            payload: self.payload,
        }
    }
}

/// Reads through the segments of one message. Positions are counted from the end: `left` bytes are still unread.
struct Cursor {
    current: Bytes,
    /// The segments after `current`, the next one last.
    rest: Vec<Bytes>,
    left: usize,
}

impl Cursor {
    fn new(mut segments: Vec<Bytes>) -> Self {
        let left = segments.iter().map(Bytes::len).sum();
        segments.reverse();
        let current = segments.pop().unwrap_or_default();
        Self { current, rest: segments, left }
    }

    /// The next field's number and wire type, or nothing when only `end` bytes are left.
    fn next_field(&mut self, end: usize) -> Result<Option<(u32, u32)>, WireError> {
        if self.left <= end {
            // A field that reaches beyond its message ends up here with less than `end` left.
            return if self.left == end { Ok(None) } else { Err(WireError::Truncated) };
        }
        let tag = self.varint()?;
        let narrow = u32::try_from(tag).map_err(|_| WireError::Tag { tag })?;
        let (field, wire_type) = (narrow >> 3, narrow & 7);
        if field == 0 {
            return Err(WireError::Tag { tag });
        }
        Ok(Some((field, wire_type)))
    }

    /// Moves to the next segment that is not empty.
    fn refill(&mut self) -> Result<(), WireError> {
        while self.current.is_empty() {
            self.current = self.rest.pop().ok_or(WireError::Truncated)?;
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        if self.current.is_empty() {
            self.refill()?;
        }
        let byte = *self.current.first().ok_or(WireError::Truncated)?;
        self.advance(1);
        Ok(byte)
    }

    /// Steps over bytes that are known to be in the current segment.
    fn advance(&mut self, count: usize) {
        bytes::Buf::advance(&mut self.current, count);
        self.left -= count;
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        if let Some(&first) = self.current.first()
            && first < 0x80
        {
            self.advance(1);
            return Ok(u64::from(first));
        }
        let in_place = self.current.iter().take(10).position(|byte| *byte < 0x80);
        if let Some(last) = in_place {
            let mut value = 0_u64;
            for (index, byte) in self.current.iter().take(last + 1).enumerate() {
                value |= u64::from(byte & 0x7f) << (7 * index);
            }
            let overflows = last == 9 && self.current.get(9).is_some_and(|byte| *byte > 1);
            self.advance(last + 1);
            return if overflows { Err(WireError::Varint) } else { Ok(value) };
        }
        self.split_varint()
    }

    /// A varint that crosses segments.
    fn split_varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for index in 0..10 {
            let byte = self.byte()?;
            if index == 9 && byte > 1 {
                return Err(WireError::Varint);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Varint)
    }

    fn uint64(&mut self, field: u32, wire_type: u32) -> Result<u64, WireError> {
        expect(field, wire_type, VARINT)?;
        self.varint()
    }

    fn uint32(&mut self, field: u32, wire_type: u32) -> Result<u32, WireError> {
        // Protobuf cuts a longer number down to 32 bits.
        self.uint64(field, wire_type).map(|value| (value & 0xffff_ffff) as u32)
    }

    /// The length of a delimited field, which lies within the message.
    fn length(&mut self, field: u32, wire_type: u32) -> Result<usize, WireError> {
        expect(field, wire_type, LEN)?;
        let len = usize::try_from(self.varint()?).map_err(|_| WireError::Truncated)?;
        if len > self.left { Err(WireError::Truncated) } else { Ok(len) }
    }

    /// Enters a nested message; the result is what will be left after it.
    fn nested(&mut self, field: u32, wire_type: u32) -> Result<usize, WireError> {
        let len = self.length(field, wire_type)?;
        Ok(self.left - len)
    }

    /// The bytes of a delimited field, cut out of the segments without a copy.
    fn segments(&mut self, field: u32, wire_type: u32) -> Result<Vec<Bytes>, WireError> {
        let mut len = self.length(field, wire_type)?;
        let mut segments = Vec::with_capacity(usize::from(len > 0));
        while len > 0 {
            self.refill()?;
            let part = self.current.split_to(len.min(self.current.len()));
            self.left -= part.len();
            len -= part.len();
            segments.push(part);
        }
        Ok(segments)
    }

    /// The bytes of a short delimited field in one piece.
    fn bytes(&mut self, field: u32, wire_type: u32) -> Result<Bytes, WireError> {
        let mut segments = self.segments(field, wire_type)?;
        Ok(match segments.len() {
            0 => Bytes::new(),
            1 => segments.pop().unwrap_or_default(),
            _ => segments.concat().into(),
        })
    }

    /// Fixed 32-bit numbers, packed or one by one.
    fn fixed32_list(&mut self, field: u32, wire_type: u32, list: &mut Vec<u32>) -> Result<(), WireError> {
        if wire_type == FIXED32 {
            list.push(self.fixed32()?);
            return Ok(());
        }
        let len_bytes = self.length(field, wire_type)?;
        if len_bytes % 4 != 0 {
            return Err(WireError::PackedLength { len_bytes });
        }
        list.reserve_exact(len_bytes / 4);
        for _ in 0..len_bytes / 4 {
            list.push(self.fixed32()?);
        }
        Ok(())
    }

    fn fixed32(&mut self) -> Result<u32, WireError> {
        if let Some(bytes) = self.current.first_chunk::<4>() {
            let value = u32::from_le_bytes(*bytes);
            self.advance(4);
            return Ok(value);
        }
        let mut bytes = [0; 4];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(u32::from_le_bytes(bytes))
    }

    /// Steps over a field that this version does not know.
    fn skip(&mut self, field: u32, wire_type: u32) -> Result<(), WireError> {
        let mut count = match wire_type {
            VARINT => return self.varint().map(|_| ()),
            FIXED64 => 8,
            FIXED32 => 4,
            LEN => self.length(field, wire_type)?,
            // Groups are not part of proto3.
            _ => return Err(WireError::WireType { field, wire_type }),
        };
        while count > 0 {
            self.refill()?;
            let part = count.min(self.current.len());
            self.advance(part);
            count -= part;
        }
        Ok(())
    }
}

fn expect(field: u32, wire_type: u32, wanted: u32) -> Result<(), WireError> {
    if wire_type == wanted { Ok(()) } else { Err(WireError::WireType { field, wire_type }) }
}

#[cfg(test)]
mod tests;
