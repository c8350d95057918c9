use proptest::prelude::*;

use super::*;
use crate::pdu::Opcode;

/// CRC32C by a table of its own, as a second opinion on the one in use.
fn other_crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            #[allow(clippy::cast_possible_truncation, reason = "below 256")]
            let mut crc = i as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
                bit += 1;
            }
            table[i] = crc;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0u32, |crc, byte| (crc >> 8) ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

/// A PDU as an initiator would put it on the wire.
#[derive(Clone, Debug)]
struct Sent {
    bhs: [u8; 48],
    ahs: Vec<u8>,
    data: Vec<u8>,
}

impl Sent {
    fn new(opcode: u8, ahs_words: u8, data_bytes: usize) -> Self {
        let mut bhs = [0; 48];
        bhs[0] = opcode;
        bhs[4] = ahs_words;
        bhs[5..8].copy_from_slice(&data_bytes.to_be_bytes()[5..]);
        for (i, byte) in bhs.iter_mut().enumerate().skip(8) {
            *byte = u8::try_from(i).unwrap_or_default();
        }
        let ahs = (0..usize::from(ahs_words) * 4).map(|i| i.to_le_bytes()[0]).collect();
        let data = (0..data_bytes).map(|i| (i * 7).to_le_bytes()[0]).collect();
        Self { bhs, ahs, data }
    }

    fn wire(&self, header_digest: bool, data_digest: bool) -> Vec<u8> {
        let mut wire = self.bhs.to_vec();
        wire.extend(&self.ahs);
        if header_digest {
            wire.extend(other_crc32c(&wire).to_le_bytes());
        }
        if !self.data.is_empty() {
            let mut body = self.data.clone();
            body.resize(body.len().next_multiple_of(4), 0);
            let crc = other_crc32c(&body);
            wire.extend(body);
            if data_digest {
                wire.extend(crc.to_le_bytes());
            }
        }
        wire
    }

    fn assert_is(&self, pdu: &Pdu) {
        assert_eq!(pdu.bhs.0, self.bhs);
        assert_eq!(pdu.ahs, self.ahs);
        assert!(pdu.data == self.data, "data differs");
    }
}

fn decoder(header_digest: bool, data_digest: bool) -> Decoder {
    let mut decoder = Decoder::new(256 * 1024);
    decoder.set_digests(header_digest, data_digest);
    decoder
}

/// Feeds bytes as reads from a socket would: never more than the spare capacity.
fn feed(decoder: &mut Decoder, mut bytes: &[u8], max_read: usize) -> Vec<Pdu> {
    let mut pdus = Vec::new();
    while !bytes.is_empty() {
        let buffer = decoder.buffer();
        let spare = buffer.capacity() - buffer.len();
        assert!(spare > 0, "no room to read into");
        let (now, later) = bytes.split_at(spare.min(max_read).min(bytes.len()));
        buffer.extend_from_slice(now);
        bytes = later;
        while let Some(pdu) = decoder.decode().unwrap_or_else(|error| panic!("{error}")) {
            pdus.push(pdu);
        }
    }
    pdus
}

#[test]
fn decode_when_given_the_read_command_of_the_rfc_then_gives_its_fields() {
    // RFC 3720, B.4: a READ(10) command PDU and its digest.
    let mut wire = [
        0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0, 0, 0, 0, 0x14, 0, 0, 0,
        0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0, 0x56, 0x3a, 0x96, 0xd9,
    ];
    let mut decoder = decoder(true, true);
    let pdus = feed(&mut decoder, &wire, usize::MAX);
    assert_eq!(pdus.len(), 1);
    assert_eq!(pdus[0].bhs.opcode(), Some(Opcode::ScsiCommand));
    assert_eq!(pdus[0].bhs.initiator_task_tag(), 0x1400_0000);
    assert!(pdus[0].ahs.is_empty() && pdus[0].data.is_empty() && pdus[0].data_digest_ok);

    wire[20] ^= 1;
    decoder.buffer().extend_from_slice(&wire);
    assert_eq!(decoder.decode().unwrap_err(), FrameError::HeaderDigest);
    assert_eq!(decoder.decode().unwrap_err(), FrameError::HeaderDigest, "the error stays");
}

#[test]
fn decode_when_the_stream_is_cut_anywhere_then_waits_and_goes_on() {
    for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)] {
        for (ahs_words, data_bytes) in [(0, 0), (2, 0), (0, 1), (3, 513), (255, 40)] {
            let sent = Sent::new(0x01, ahs_words, data_bytes);
            let wire = sent.wire(header_digest, data_digest);
            for at in 0..wire.len() {
                let mut decoder = decoder(header_digest, data_digest);
                let (head, tail) = wire.split_at(at);
                assert!(feed(&mut decoder, head, usize::MAX).is_empty(), "cut at {at} of {}", wire.len());
                assert_eq!(decoder.is_mid_pdu(), at > 0);
                let pdus = feed(&mut decoder, tail, usize::MAX);
                assert_eq!(pdus.len(), 1);
                sent.assert_is(&pdus[0]);
                assert!(pdus[0].data_digest_ok && !decoder.is_mid_pdu());
            }
        }
    }
}

#[test]
fn decode_when_a_large_segment_is_cut_anywhere_near_its_ends_then_waits_and_goes_on() {
    let sent = Sent::new(0x05, 1, IN_PLACE_BYTES + 1);
    let wire = sent.wire(true, true);
    let cuts = (0..80).chain(wire.len() - 12..wire.len());
    for at in cuts {
        let mut decoder = decoder(true, true);
        let (head, tail) = wire.split_at(at);
        assert!(feed(&mut decoder, head, usize::MAX).is_empty());
        let pdus = feed(&mut decoder, tail, usize::MAX);
        assert_eq!(pdus.len(), 1);
        sent.assert_is(&pdus[0]);
    }
}

#[test]
fn decode_when_a_segment_is_large_then_it_is_received_in_place() {
    let sent = Sent::new(0x05, 0, 256 * 1024);
    let wire = sent.wire(false, true);
    let mut decoder = decoder(false, true);
    assert!(feed(&mut decoder, &wire[..48], usize::MAX).is_empty());
    let buffer = decoder.buffer();
    assert_eq!(buffer.capacity(), 256 * 1024 + 4, "exactly the missing bytes");
    let address = buffer.as_ptr();
    let pdus = feed(&mut decoder, &wire[48..], 1460);
    assert_eq!(pdus.len(), 1);
    assert_eq!(pdus[0].data.as_ptr(), address);
    sent.assert_is(&pdus[0]);
}

#[test]
fn decode_when_a_read_goes_past_a_large_segment_then_nothing_is_lost() {
    let (first, second) = (Sent::new(0x05, 0, 20_000), Sent::new(0x01, 0, 8));
    let mut decoder = decoder(false, false);
    let wire = first.wire(false, false);
    assert!(feed(&mut decoder, &wire[..100], usize::MAX).is_empty());
    let buffer = decoder.buffer();
    buffer.extend_from_slice(&wire[100..]);
    buffer.extend_from_slice(&second.wire(false, false));
    first.assert_is(&decoder.decode().unwrap().unwrap());
    second.assert_is(&decoder.decode().unwrap().unwrap());
    assert!(decoder.decode().unwrap().is_none());
}

#[test]
fn decode_when_a_small_payload_is_kept_then_it_does_not_share_the_read_buffer() {
    let sent = Sent::new(0x01, 0, 4096);
    let mut decoder = decoder(false, false);
    let wire = sent.wire(false, false);
    let first = feed(&mut decoder, &wire, usize::MAX);
    let read_buffer = decoder.buffer().as_ptr();
    let second = feed(&mut decoder, &wire, usize::MAX);
    assert_eq!(decoder.buffer().as_ptr(), read_buffer, "the buffer is used again");
    sent.assert_is(&first[0]);
    sent.assert_is(&second[0]);
}

#[test]
fn decode_when_a_data_digest_is_wrong_then_the_pdu_says_so_and_the_stream_goes_on() {
    for data_bytes in [5, 4096, 100_000] {
        let sent = Sent::new(0x05, 0, data_bytes);
        let mut wire = sent.wire(true, true);
        let middle = 52 + data_bytes / 2;
        wire[middle] ^= 0x10;
        wire.extend(sent.wire(true, true));
        let pdus = feed(&mut decoder(true, true), &wire, usize::MAX);
        assert_eq!(pdus.iter().map(|pdu| pdu.data_digest_ok).collect::<Vec<_>>(), [false, true]);
    }
}

#[test]
fn decode_when_the_padding_is_not_zero_then_the_digest_covers_it() {
    let mut wire = Sent::new(0x05, 0, 5).wire(false, true);
    wire[48 + 6] = 1;
    let pdus = feed(&mut decoder(false, true), &wire, usize::MAX);
    assert!(!pdus[0].data_digest_ok);
    assert_eq!(pdus[0].data.len(), 5);
}

#[test]
fn decode_when_a_segment_is_longer_than_declared_then_fails_before_it_is_read() {
    let mut decoder = Decoder::new(8192);
    let wire = Sent::new(0x03, 0, 8193).wire(false, false);
    decoder.buffer().extend_from_slice(&wire[..48]);
    let error = decoder.decode().unwrap_err();
    assert_eq!(error, FrameError::DataSegmentTooLong { len_bytes: 8193, max_bytes: 8192 });

    let mut decoder = Decoder::new(8192);
    let exact = Sent::new(0x03, 0, 8192);
    exact.assert_is(&feed(&mut decoder, &exact.wire(false, false), usize::MAX)[0]);
}

#[test]
fn decode_when_digests_are_switched_on_then_the_next_pdu_has_them() {
    let sent = Sent::new(0x03, 0, 100);
    let mut decoder = decoder(false, false);
    sent.assert_is(&feed(&mut decoder, &sent.wire(false, false), usize::MAX)[0]);
    decoder.set_digests(true, true);
    sent.assert_is(&feed(&mut decoder, &sent.wire(true, true), usize::MAX)[0]);
}

fn any_sent() -> impl Strategy<Value = Sent> {
    let data_bytes = prop_oneof![Just(0), 1..64usize, 4000..5000usize, 16_000..17_000usize, 30_000..70_000usize];
    let ahs_words = prop_oneof![4 => Just(0), 1 => any::<u8>()];
    (any::<u8>(), ahs_words, data_bytes).prop_map(|(opcode, ahs, data)| Sent::new(opcode, ahs, data))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn decode_when_reads_have_any_size_then_gives_what_was_sent(
        sent in prop::collection::vec(any_sent(), 1..12),
        max_read in prop_oneof![1..40usize, 1000..2000usize, 20_000..100_000usize],
        digests: (bool, bool),
    ) {
        let wire: Vec<u8> = sent.iter().flat_map(|sent| sent.wire(digests.0, digests.1)).collect();
        let mut decoder = decoder(digests.0, digests.1);
        let pdus = feed(&mut decoder, &wire, max_read);
        prop_assert_eq!(pdus.len(), sent.len());
        for (sent, pdu) in sent.iter().zip(&pdus) {
            sent.assert_is(pdu);
            prop_assert!(pdu.data_digest_ok);
        }
        prop_assert!(!decoder.is_mid_pdu());
    }

    #[test]
    fn decode_when_given_random_bytes_then_stays_bounded(
        bytes in prop::collection::vec(any::<u8>(), 0..4000),
        repeats in 1..20usize,
        digests: (bool, bool),
    ) {
        let mut decoder = Decoder::new(64 * 1024);
        decoder.set_digests(digests.0, digests.1);
        for _ in 0..repeats {
            let buffer = decoder.buffer();
            prop_assert!(buffer.capacity() > buffer.len());
            prop_assert!(buffer.capacity() <= 2 * SHARED_BYTES + 64 * 1024 + 8);
            buffer.extend_from_slice(&bytes);
            loop {
                match decoder.decode() {
                    Ok(Some(pdu)) => prop_assert!(pdu.data.len() <= 64 * 1024 && pdu.ahs.len() <= 1020),
                    Ok(None) => break,
                    Err(_) => return Ok(()),
                }
            }
        }
    }
}
