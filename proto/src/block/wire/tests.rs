//! The hand-written encoding against prost's, both ways, and against every kind of broken input.

use proptest::prelude::*;

use super::*;
use crate::block::message::MAX_MESSAGE_BYTES;
use crate::block::reader::MessageReader;
use crate::ids::Incarnation;

fn request() -> Request {
    Request {
        id: 300,
        volume: VolumeId(7),
        shard: 2,
        epoch: 1,
        term: 4,
        op: OpId { incarnation: Incarnation(9), lane: 1, sequence: 128, part: 0 },
        acked_below: 127,
        nexus: 0,
        path_epoch: 5,
        kind: Kind::Write,
        offset: 0x8000_1000,
        len: 3,
        checksums: vec![0xdead_beef],
        payload: vec![Bytes::from_static(b"abc")],
    }
}

fn reply() -> Reply {
    Reply { id: 300, status: Status::Ok, checksums: vec![1, 2], payload: vec![Bytes::from_static(b"xyz")] }
}

/// What goes over the wire, in one piece.
fn stream(encode: impl FnOnce(&mut Chunks)) -> Vec<u8> {
    let mut chunks = Chunks::new();
    encode(&mut chunks);
    let len_bytes = chunks.len_bytes();
    let mut stream = Vec::new();
    while let Some(chunk) = chunks.pop() {
        stream.extend_from_slice(&chunk);
    }
    assert_eq!(stream.len(), len_bytes);
    assert!(chunks.is_empty());
    stream
}

/// One message without its gRPC prefix.
fn message(encode: impl FnOnce(&mut Chunks)) -> Bytes {
    let mut reader = MessageReader::new(MAX_MESSAGE_BYTES);
    reader.push(stream(encode).into());
    let pieces = reader.next().expect("well formed").expect("whole");
    assert!(!reader.is_mid_message());
    pieces.concat().into()
}

fn request_message(request: &Request) -> Bytes {
    message(|chunks| encode_request(request, chunks))
}

fn reply_message(reply: &Reply) -> Bytes {
    message(|chunks| encode_reply(reply, chunks))
}

fn joined(segments: &[Bytes]) -> Vec<Bytes> {
    if segments.iter().all(Bytes::is_empty) { Vec::new() } else { vec![segments.concat().into()] }
}

/// prost's view of a request.
fn generated_request(request: &Request) -> generated::ToNode {
    let op = generated::OpId {
        incarnation: request.op.incarnation.0,
        lane: request.op.lane,
        sequence: request.op.sequence,
        part: request.op.part,
    };
    generated::ToNode {
        message: Some(generated::to_node::Message::Request(generated::Request {
            id: request.id,
            volume: request.volume.0,
            shard: request.shard,
            epoch: request.epoch,
            term: request.term,
            op_id: Some(op),
            acked_below: request.acked_below,
            nexus: request.nexus,
            path_epoch: request.path_epoch,
            kind: i32::try_from(request.kind.to_wire()).expect("small"),
            offset: request.offset,
            len: request.len,
            crc32c: request.checksums.clone(),
            payload: request.payload.concat().into(),
        })),
    }
}

/// prost's view of a reply.
fn generated_reply(reply: &Reply) -> generated::FromNode {
    generated::FromNode {
        message: Some(generated::from_node::Message::Reply(generated::Reply {
            id: reply.id,
            status: i32::try_from(reply.status.to_wire()).expect("small"),
            detail: reply.status.detail().to_owned(),
            error_offset: reply.status.error_offset(),
            crc32c: reply.checksums.clone(),
            payload: reply.payload.concat().into(),
        })),
    }
}

#[test]
fn request_when_encoded_then_these_bytes() {
    let golden: &[u8] = &[
        0, 0, 0, 0, 47, // gRPC: not compressed, 47 bytes
        0x12, 45, // ToNode.request
        0x08, 0xac, 0x02, // id 300
        0x10, 7, // volume
        0x18, 2, // shard
        0x20, 1, // epoch
        0x28, 4, // term
        0x32, 7, 0x08, 9, 0x10, 1, 0x18, 0x80, 0x01, // op_id, part 0 left out
        0x38, 127, // acked_below; nexus 0 left out
        0x48, 5, // path_epoch
        0x50, 2, // kind WRITE
        0x58, 0x80, 0xa0, 0x80, 0x80, 0x08, // offset
        0x60, 3, // len
        0x6a, 4, 0xef, 0xbe, 0xad, 0xde, // crc32c, packed
        0x7a, 3, b'a', b'b', b'c', // payload, last
    ];
    assert_eq!(stream(|chunks| encode_request(&request(), chunks)), golden);
}

#[test]
fn reply_when_encoded_then_these_bytes() {
    let golden: &[u8] = &[
        0, 0, 0, 0, 22, // gRPC
        0x12, 20, // FromNode.reply
        0x08, 0xac, 0x02, // id 300
        0x10, 1, // status OK
        0x2a, 8, 1, 0, 0, 0, 2, 0, 0, 0, // crc32c
        0x7a, 3, b'x', b'y', b'z', // payload
    ];
    assert_eq!(stream(|chunks| encode_reply(&reply(), chunks)), golden);
    let failed = Reply::new(1, Status::Failed("no".to_owned()));
    assert_eq!(&reply_message(&failed)[..], [0x12, 8, 0x08, 1, 0x10, 13, 0x1a, 2, b'n', b'o']);
    let medium = Reply::new(1, Status::MediumError { offset: 5 });
    assert_eq!(&reply_message(&medium)[..], [0x12, 6, 0x08, 1, 0x10, 3, 0x20, 5]);
}

#[test]
fn handshake_when_encoded_then_decoded_the_same() {
    let hello =
        Hello { wire_version: 1, cluster: "lab".to_owned(), incarnation: 77, lane: 3, name: "gateway-1".to_owned() };
    let bytes = message(|chunks| encode_hello(&hello, chunks));
    assert_eq!(decode_to_node(vec![bytes]), Ok(ToNode::Hello(hello)));
    let welcome =
        Welcome { wire_version: 1, cluster: "lab".to_owned(), node_id: 1, incarnation: 5, max_payload_bytes: 8 << 20 };
    let bytes = message(|chunks| encode_welcome(&welcome, chunks));
    assert_eq!(decode_from_node(vec![bytes]), Ok(FromNode::Welcome(welcome)));
}

#[test]
fn request_when_cut_anywhere_then_refused() {
    let whole = request_message(&request());
    for end in 0..whole.len() {
        let result = decode_to_node(vec![whole.slice(..end)]);
        assert!(result.is_err(), "cut at {end}: {result:?}");
    }
}

#[test]
fn reply_when_cut_anywhere_then_refused() {
    let failed = Reply { status: Status::Failed("why".to_owned()), ..reply() };
    for whole in [reply_message(&reply()), reply_message(&failed)] {
        for end in 0..whole.len() {
            assert!(decode_from_node(vec![whole.slice(..end)]).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn message_when_in_two_pieces_cut_anywhere_then_the_same() {
    let whole = request_message(&request());
    for cut in 0..=whole.len() {
        let pieces = vec![whole.slice(..cut), Bytes::new(), whole.slice(cut..)];
        let Ok(ToNode::Request(mut decoded)) = decode_to_node(pieces) else {
            panic!("cut at {cut}");
        };
        decoded.payload = joined(&decoded.payload);
        assert_eq!(decoded, request(), "cut at {cut}");
    }
}

#[test]
fn length_when_it_lies_then_refused() {
    // A payload longer than the request, within the message of the outer level.
    let nested = [0x12, 4, 0x08, 1, 0x7a, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    assert_eq!(decode_to_node(vec![Bytes::copy_from_slice(&nested)]), Err(WireError::Truncated));
    for lying in [
        &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01][..], // 2^64 - 1
        &[0x12, 3, 0x7a, 0xff, 0x7f],
        &[0x12, 2, 0x7a, 1],
        &[0x12, 3, 0x6a, 4, 1],
        &[0x0a, 9, 1],
        &[0x12, 3, 0x32, 8, 0x08, 1], // op_id reaches beyond its request
    ] {
        assert!(decode_to_node(vec![Bytes::copy_from_slice(lying)]).is_err(), "{lying:?}");
    }
    // Not whole numbers of four bytes.
    let odd = [0x12, 7, 0x6a, 5, 1, 2, 3, 4, 5];
    assert_eq!(decode_to_node(vec![Bytes::copy_from_slice(&odd)]), Err(WireError::PackedLength { len_bytes: 5 }));
}

#[test]
fn varint_when_too_long_or_too_large_then_refused() {
    let eleven = [&[0x12, 12, 0x08][..], &[0x80; 10], &[0x01]].concat();
    assert_eq!(decode_to_node(vec![eleven.into()]), Err(WireError::Varint));
    let beyond = [&[0x12, 11, 0x08][..], &[0xff; 9], &[0x02]].concat();
    assert_eq!(decode_to_node(vec![beyond.clone().into()]), Err(WireError::Varint));
    let pieces = beyond.iter().map(|byte| Bytes::copy_from_slice(&[*byte])).collect();
    assert_eq!(decode_to_node(pieces), Err(WireError::Varint));
    let largest = [&[0x12, 13, 0x50, 1, 0x08][..], &[0xff; 9], &[0x01]].concat();
    assert!(matches!(decode_to_node(vec![largest.into()]), Ok(ToNode::Request(Request { id: u64::MAX, .. }))));
}

#[test]
fn tag_when_malformed_then_refused() {
    let decode = |bytes: &[u8]| decode_to_node(vec![Bytes::copy_from_slice(bytes)]);
    assert_eq!(decode(&[0x00]), Err(WireError::Tag { tag: 0 }));
    assert_eq!(decode(&[0x80, 0x80, 0x80, 0x80, 0x10, 0]), Err(WireError::Tag { tag: 1 << 32 }));
    assert_eq!(decode(&[0x10, 1]), Err(WireError::WireType { field: 2, wire_type: 0 }));
    assert_eq!(decode(&[0x12, 1, 0x0b]), Err(WireError::WireType { field: 1, wire_type: 3 }));
    assert_eq!(decode(&[0x1f]), Err(WireError::WireType { field: 3, wire_type: 7 }));
    assert_eq!(decode(&[]), Err(WireError::Empty));
    assert_eq!(decode(&[0x18, 1]), Err(WireError::Empty));
}

#[test]
fn unknown_fields_when_of_any_wire_type_then_skipped() {
    let mut inner: Vec<u8> = request_message(&request())[2..].to_vec();
    inner.extend([0xa0, 0x06, 0xff, 0x01]); // field 100, varint
    inner.extend([0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]); // 64 bits
    inner.extend([0xa2, 0x06, 3, 1, 2, 3]); // bytes
    inner.extend([0xa5, 0x06, 1, 2, 3, 4]); // 32 bits
    let mut bytes = vec![0x1a, 2, 9, 9, 0x12, u8::try_from(inner.len()).expect("short")];
    bytes.extend(inner);
    let in_single_bytes = bytes.iter().map(|byte| Bytes::copy_from_slice(&[*byte])).collect();
    for pieces in [vec![Bytes::from(bytes)], in_single_bytes] {
        let Ok(ToNode::Request(mut decoded)) = decode_to_node(pieces) else {
            panic!("refused");
        };
        decoded.payload = joined(&decoded.payload);
        assert_eq!(decoded, request());
    }
}

#[test]
fn kind_when_unknown_then_the_request_can_still_be_answered() {
    let bytes = Bytes::from_static(&[0x12, 4, 0x08, 9, 0x50, 77]);
    assert_eq!(decode_to_node(vec![bytes]), Err(WireError::UnknownKind { id: 9, kind: 77 }));
}

#[test]
fn detail_when_too_long_then_cut_at_a_character() {
    let long = Reply::new(1, Status::Failed("ä".repeat(2000)));
    let Ok(FromNode::Reply(Reply { status: Status::Failed(detail), .. })) =
        decode_from_node(vec![reply_message(&long)])
    else {
        panic!("refused");
    };
    assert_eq!(detail, "ä".repeat(MAX_TEXT_BYTES / 2));
}

#[test]
fn large_payload_when_encoded_and_decoded_then_never_copied() {
    let large = Bytes::from(vec![3; 1 << 20]);
    let write = Request { payload: vec![large.clone()], ..request() };
    let mut chunks = Chunks::new();
    encode_request(&write, &mut chunks);
    let mut reader = MessageReader::new(MAX_MESSAGE_BYTES);
    let mut seen = false;
    while let Some(chunk) = chunks.pop() {
        seen |= chunk.as_ptr() == large.as_ptr() && chunk.len() == large.len();
        reader.push(chunk);
    }
    assert!(seen, "the payload is a chunk by itself");
    let pieces = reader.next().expect("well formed").expect("whole");
    let Ok(ToNode::Request(decoded)) = decode_to_node(pieces) else {
        panic!("refused");
    };
    assert_eq!(decoded.payload.len(), 1);
    assert_eq!(decoded.payload[0].as_ptr(), large.as_ptr());
}

prop_compose! {
    fn segments()(lens in proptest::collection::vec(0_usize..40_000, 0..4), byte in any::<u8>()) -> Vec<Bytes> {
        lens.into_iter().map(|len| Bytes::from(vec![byte; len])).collect()
    }
}

/// Numbers of all lengths, zero and one among them.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..65).prop_map(|(value, shift)| value.checked_shr(shift).unwrap_or(0))
}

fn number32() -> impl Strategy<Value = u32> {
    number().prop_map(|value| (value & 0xffff_ffff) as u32)
}

fn any_request() -> impl Strategy<Value = Request> {
    let op = (number(), number32(), number(), number32()).prop_map(|(incarnation, lane, sequence, part)| OpId {
        incarnation: Incarnation(incarnation),
        lane,
        sequence,
        part,
    });
    let numbers = proptest::array::uniform9(number());
    let checksums = proptest::collection::vec(any::<u32>(), 0..40);
    (numbers, number32(), op, proptest::sample::select(Kind::ALL.to_vec()), checksums, segments()).prop_map(
        |(numbers, shard, op, kind, checksums, payload)| {
            let [id, volume, epoch, term, acked_below, nexus, path_epoch, offset, len] = numbers;
            let volume = VolumeId(volume);
            Request {
                id,
                volume,
                shard,
                epoch,
                term,
                op,
                acked_below,
                nexus,
                path_epoch,
                kind,
                offset,
                len,
                checksums,
                payload,
            }
        },
    )
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let checksums = proptest::collection::vec(any::<u32>(), 0..40);
    (number(), 1_u32..14, ".{0,40}", number(), checksums, segments()).prop_map(
        |(id, status, detail, offset, checksums, payload)| {
            let status = Status::from_wire(status, detail, offset);
            Reply { id, status, checksums, payload }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn request_when_encoded_then_exactly_as_prost_does(request in any_request()) {
        let ours = request_message(&request);
        prop_assert_eq!(&ours[..], &generated_request(&request).encode_to_vec()[..]);
    }

    #[test]
    fn reply_when_encoded_then_exactly_as_prost_does(reply in any_reply()) {
        let ours = reply_message(&reply);
        prop_assert_eq!(&ours[..], &generated_reply(&reply).encode_to_vec()[..]);
    }

    #[test]
    fn messages_of_prost_when_decoded_in_any_pieces_then_the_same(
        request in any_request(),
        reply in any_reply(),
        piece in 1_usize..70_000,
    ) {
        let cut = |bytes: Vec<u8>| bytes.chunks(piece).map(Bytes::copy_from_slice).collect::<Vec<_>>();
        let Ok(ToNode::Request(mut decoded)) = decode_to_node(cut(generated_request(&request).encode_to_vec())) else {
            panic!("refused");
        };
        decoded.payload = joined(&decoded.payload);
        prop_assert_eq!(decoded, Request { payload: joined(&request.payload), ..request });
        let Ok(FromNode::Reply(mut decoded)) = decode_from_node(cut(generated_reply(&reply).encode_to_vec())) else {
            panic!("refused");
        };
        decoded.payload = joined(&decoded.payload);
        prop_assert_eq!(decoded, Reply { payload: joined(&reply.payload), ..reply });
    }

    #[test]
    fn random_bytes_when_decoded_then_no_panic(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..6),
    ) {
        let pieces: Vec<Bytes> = pieces.into_iter().map(Bytes::from).collect();
        let _ = decode_to_node(pieces.clone());
        let _ = decode_from_node(pieces);
    }

    /// A message with a few bytes changed is accepted by both decoders or by neither, and read in the same way.
    #[test]
    fn damaged_message_when_decoded_then_judged_as_prost_judges(
        changes in proptest::collection::vec((0_usize..47, any::<u8>()), 1..4),
        piece in 1_usize..60,
    ) {
        let mut bytes = request_message(&request()).to_vec();
        for (at, value) in changes {
            bytes[at] = value;
        }
        let ours = decode_to_node(bytes.chunks(piece).map(Bytes::copy_from_slice).collect());
        let theirs = generated::ToNode::decode(&bytes[..]);
        match (ours, theirs) {
            (Ok(ToNode::Request(mut ours)), Ok(generated::ToNode { message: Some(generated::to_node::Message::Request(theirs)) })) => {
                ours.payload = joined(&ours.payload);
                prop_assert_eq!(ours.id, theirs.id);
                prop_assert_eq!(ours.shard, theirs.shard);
                prop_assert_eq!(ours.offset, theirs.offset);
                prop_assert_eq!(ours.op.sequence, theirs.op_id.unwrap_or_default().sequence);
                prop_assert_eq!(&ours.checksums, &theirs.crc32c);
                prop_assert_eq!(ours.payload.concat(), theirs.payload.to_vec());
            }
            (Ok(ToNode::Hello(ours)), Ok(generated::ToNode { message: Some(generated::to_node::Message::Hello(theirs)) })) => {
                prop_assert_eq!(ours.name, theirs.name);
            }
            (Err(WireError::UnknownKind { id, .. }), Ok(generated::ToNode { message: Some(generated::to_node::Message::Request(theirs)) })) => {
                prop_assert_eq!(id, theirs.id);
                prop_assert!(generated::Kind::try_from(theirs.kind).map_or(true, |kind| kind == generated::Kind::Unspecified));
            }
            (Err(WireError::Empty), Ok(generated::ToNode { message: None })) => {}
            // prost steps over groups, which proto3 does not have.
            (Err(WireError::WireType { wire_type: 3, .. }), Ok(_)) => {}
            (Err(_), Err(_)) => {}
            (ours, theirs) => prop_assert!(false, "ours {ours:?}, prost's {theirs:?}"),
        }
    }
}
