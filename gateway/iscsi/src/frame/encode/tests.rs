use proptest::prelude::*;

use super::*;
use crate::frame::Decoder;
use crate::pdu::Bhs;

fn pdu(opcode: u8, data: impl Into<Bytes>) -> OutPdu {
    let mut bhs = Bhs([0; 48]);
    for (i, byte) in bhs.0.iter_mut().enumerate() {
        *byte = u8::try_from(i).unwrap_or_default();
    }
    bhs.0[0] = opcode;
    OutPdu { bhs, data: data.into(), more: Vec::new() }
}

/// Everything in the queue, written in steps of up to `step` bytes through up to `max_slices` slices.
fn drain(queue: &mut WriteQueue, step: usize, max_slices: usize) -> Vec<u8> {
    let mut written = Vec::new();
    while !queue.is_empty() {
        let mut slices = vec![IoSlice::new(&[]); max_slices];
        let filled = queue.io_slices(&mut slices);
        assert!(filled > 0);
        let bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
        assert!(!bytes.is_empty());
        let count = bytes.len().min(step);
        written.extend(&bytes[..count]);
        let before = queue.len_bytes();
        queue.advance(count);
        assert_eq!(queue.len_bytes(), before - count);
    }
    let mut slices = [IoSlice::new(&[]); 4];
    assert_eq!(queue.io_slices(&mut slices), 0);
    written
}

#[test]
fn push_when_there_is_data_then_fills_in_the_lengths_and_pads() {
    let mut queue = WriteQueue::new();
    queue.push(pdu(0x20, &b"hello"[..]));
    let wire = drain(&mut queue, usize::MAX, 16);
    assert_eq!(wire.len(), 48 + 8);
    assert_eq!(wire[..8], [0x20, 1, 2, 3, 0, 0, 0, 5]);
    assert_eq!(wire[8..12], [8, 9, 10, 11]);
    assert_eq!(&wire[48..], b"hello\0\0\0");
}

#[test]
fn push_when_digests_are_on_then_appends_the_ones_of_the_rfc() {
    let mut queue = WriteQueue::new();
    queue.set_digests(true, true);
    // The READ(10) command of RFC 3720, B.4 as the header, 32 bytes of zeros as the data.
    let mut bhs = Bhs([0; 48]);
    for (at, byte) in [(0, 0x01), (1, 0xc0), (16, 0x14), (22, 4), (27, 0x14), (31, 0x18), (32, 0x28), (40, 2)] {
        bhs.0[at] = byte;
    }
    queue.push(OutPdu { bhs, data: Bytes::new(), more: Vec::new() });
    let wire = drain(&mut queue, usize::MAX, 16);
    assert_eq!(wire.len(), 52, "no data digest without data");
    assert_eq!(wire[48..], [0x56, 0x3a, 0x96, 0xd9]);

    queue.push(OutPdu { bhs, data: Bytes::from(vec![0; 32]), more: Vec::new() });
    let wire = drain(&mut queue, usize::MAX, 16);
    assert_eq!(wire.len(), 48 + 4 + 32 + 4);
    assert_eq!(wire[84..], [0xaa, 0x36, 0x91, 0x8a]);
}

#[test]
fn io_slices_when_payloads_are_large_then_they_are_not_copied_and_headers_share_slices() {
    let mut queue = WriteQueue::new();
    let payload = Bytes::from(vec![1; 4096]);
    for _ in 0..3 {
        queue.push(pdu(0x21, Bytes::new()));
        queue.push(pdu(0x25, payload.clone()));
    }
    let mut slices = [IoSlice::new(&[]); 16];
    assert_eq!(queue.io_slices(&mut slices), 6);
    assert_eq!(slices[0].len(), 96);
    assert_eq!(slices[1].as_ptr(), payload.as_ptr());
    assert_eq!(slices[2].len(), 96);
    assert_eq!(queue.len_bytes(), 3 * (96 + 4096));
}

#[test]
fn advance_when_more_than_all_is_written_then_is_empty() {
    let mut queue = WriteQueue::new();
    queue.push(pdu(0x25, vec![1; 5000]));
    queue.advance(usize::MAX);
    assert!(queue.is_empty());
    queue.push(pdu(0x21, Bytes::new()));
    assert_eq!(drain(&mut queue, 7, 1).len(), 48);
}

#[test]
fn advance_when_the_queue_never_runs_empty_then_the_header_buffer_does_not_grow() {
    let mut queue = WriteQueue::new();
    queue.push(pdu(0x21, vec![0; 400]));
    for _ in 0..10_000 {
        queue.push(pdu(0x21, vec![0; 400]));
        queue.advance(448);
    }
    assert!(queue.heads.len() < 4 * COMPACT_BYTES, "{} bytes", queue.heads.len());
    assert_eq!(queue.len_bytes(), 448);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn push_when_written_in_any_steps_then_the_decoder_reads_the_same(
        lens in prop::collection::vec(prop_oneof![Just(0), 1..20usize, 500..530usize, 16_000..40_000usize], 1..12),
        digests: (bool, bool),
        step in prop_oneof![1..50usize, 1000..100_000usize],
        max_slices in 1..8usize,
        cuts in prop::collection::vec(0..40_000usize, 0..4),
    ) {
        let mut queue = WriteQueue::new();
        queue.set_digests(digests.0, digests.1);
        for len in &lens {
            let mut whole = pdu(0x25, vec![len.to_le_bytes()[0]; *len]);
            for cut in &cuts {
                let last = whole.more.last_mut().unwrap_or(&mut whole.data);
                let rest = last.split_off((*cut).min(last.len()));
                whole.more.push(rest);
            }
            queue.push(whole);
        }
        let wire = drain(&mut queue, step, max_slices);
        let mut decoder = Decoder::new(1 << 20);
        decoder.set_digests(digests.0, digests.1);
        let mut found = Vec::new();
        for chunk in wire.chunks(1000) {
            decoder.buffer().extend_from_slice(chunk);
            while let Some(pdu) = decoder.decode().unwrap() {
                prop_assert!(pdu.data_digest_ok);
                prop_assert!(pdu.data.iter().all(|byte| *byte == pdu.data.len().to_le_bytes()[0]));
                found.push(pdu.data.len());
            }
        }
        prop_assert_eq!(found, lens);
    }
}
