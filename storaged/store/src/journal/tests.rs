//! Bytes of the journal, pinned; and that no bytes make reading it panic.

use proptest::prelude::*;

use super::layout::{Batch, Claim, decode_slot};
use super::*;
use crate::error::OpenError;
use crate::tape::fast_dir;

const DISK: DiskUuid = DiskUuid(*b"0123456789abcdef");

fn block(fill: u8) -> Bytes {
    Bytes::from(vec![fill; 4096])
}

fn records() -> Vec<Record> {
    let payload = vec![block(1), block(2)];
    let entries = checksum::of_pieces(0, &payload);
    vec![
        Record { volume: VolumeId(1), first_block: 7, change: Change::Write { entries, payload } },
        Record { volume: VolumeId(0x0203), first_block: 1 << 40, change: Change::Hole { blocks: 1 << 33 } },
    ]
}

#[test]
fn slot_when_encoded_then_exact_bytes() {
    let (slot, link) = encode_slot(DISK, 5);
    assert_eq!(&slot[..44], b"HFJRNL\0\0\x01\0\0\0\0\0\0\x000123456789abcdef\x05\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(slot[44..], SLOT_CRC.to_le_bytes());
    assert_eq!(link, Link { generation: 5, number: 1, previous: SLOT_CRC });
    assert_eq!(decode_slot(&slot, DISK), Some(link));
    assert_eq!(decode_slot(&slot, DiskUuid([0; 16])), None);
    assert_eq!((slot_at(5), slot_at(6)), (4096, 0));
}

#[test]
fn batch_when_encoded_then_exact_bytes() {
    let mut meta = Vec::new();
    let link = Link { generation: 5, number: 3, previous: 0xaabb_ccdd };
    let next = encode_batch(&mut meta, DISK, link, &records());
    let mut golden = Vec::new();
    golden.extend_from_slice(b"HFBATCH\0\x01\0\0\0\x8c\0\0\x000123456789abcdef");
    golden.extend_from_slice(b"\x05\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x00\x20\0\0\0\0\0\0\x02\0\0\0\xdd\xcc\xbb\xaa");
    golden.extend_from_slice(&BATCH_CRC.to_le_bytes());
    golden.extend_from_slice(b"\x01\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0");
    golden.extend_from_slice(&ENTRY_OF_ONES.to_le_bytes());
    golden.extend_from_slice(&ENTRY_OF_TWOS.to_le_bytes());
    golden.extend_from_slice(b"\x03\x02\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x02\0\0\0\x02\0\0\0\0\0\0\0");
    assert_eq!(golden.len(), 0x8c);
    golden.resize(4096, 0);
    assert_eq!(meta, golden);
    assert_eq!(next, Link { generation: 5, number: 4, previous: BATCH_CRC });
    assert_eq!(batch_bytes(&records()), 3 * 4096);

    let claim = Claim::decode(&meta, DISK).unwrap();
    assert_eq!((claim.link, claim.meta_len, claim.batch_bytes()), (link, 0x8c, 3 * 4096));
    let payload = Bytes::from([block(1), block(2)].concat());
    let batch = Batch::decode(&meta[..0x8c]).unwrap();
    let mut expected = records();
    expected[0].change = match &expected[0].change {
        Change::Write { entries, .. } => Change::Write { entries: entries.clone(), payload: vec![payload.clone()] },
        Change::Hole { .. } => unreachable!(),
    };
    assert_eq!(batch.with_payload(&payload), Some(expected));
    let swapped = Bytes::from([block(2), block(1)].concat());
    assert_eq!(Batch::decode(&meta[..0x8c]).unwrap().with_payload(&swapped), None);
}

// From an independent implementation of CRC32C.
const SLOT_CRC: u32 = 0x8067_4ea2;
const BATCH_CRC: u32 = 0x858a_ac7c;
const ENTRY_OF_ONES: u32 = 0x4218_6b7f;
const ENTRY_OF_TWOS: u32 = 0x28d7_6294;

#[test]
fn batch_when_cut_or_a_length_lies_then_not_decoded() {
    let mut meta = Vec::new();
    encode_batch(&mut meta, DISK, Link { generation: 1, number: 1, previous: 0 }, &records());
    for len in 0..0x8c {
        assert!(Batch::decode(&meta[..len]).is_none(), "{len} bytes");
    }
    // With the crc made right again: count of records, payload length, blocks and kind of the first record.
    for (at, value) in [(56, 3), (56, 1), (48, 1), (68 + 16, 3), (68 + 23, 0xff), (68 + 24, 3), (68 + 24, 2)] {
        let mut bad = meta[..0x8c].to_vec();
        assert_ne!(bad[at], value);
        bad[at] = value;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bad[..64]), &bad[68..]);
        bad[64..68].copy_from_slice(&crc.to_le_bytes());
        assert!(Batch::decode(&bad).is_none(), "byte {at} = {value}");
    }
    for (at, value) in [(0, b'X'), (8, 2), (15, 0xff), (16, 0), (55, 1)] {
        let mut bad = meta.clone();
        bad[at] = value;
        assert!(Claim::decode(&bad, DISK).is_none(), "byte {at} = {value}");
    }
}

fn open(dir: &Path, limit_bytes: u64) -> (Result<Journal, OpenError>, Vec<Record>) {
    let mut found = Vec::new();
    let journal = Journal::open(dir, DISK, limit_bytes, 0, |record| {
        found.push(record);
        Ok(())
    });
    (journal, found)
}

#[test]
fn journal_when_started_anew_many_times_then_only_the_last_generation_is_read() {
    let dir = fast_dir();
    Journal::create(dir.path(), DISK).unwrap();
    let mut expected = 0;
    for generation in 0..6 {
        let (journal, found) = open(dir.path(), 64 << 10);
        let mut journal = journal.unwrap();
        assert_eq!(found.len(), expected);
        journal.restart().unwrap();
        assert!(journal.is_empty());
        // Fewer each time, so that older batches stay behind the end.
        for _ in 0..6 - generation {
            assert!(journal.append(&records()).is_ok());
        }
        expected = (6 - generation) * 2;
    }
}

#[test]
fn journal_when_a_batch_does_not_fit_then_full_and_an_oversize_one_makes_it_grow() {
    let dir = fast_dir();
    Journal::create(dir.path(), DISK).unwrap();
    let mut journal = open(dir.path(), 32 << 10).0.unwrap();
    assert!(!journal.is_full_for(&records()));
    assert!(journal.append(&records()).is_ok());
    assert!(!journal.is_full_for(&records()));
    assert!(journal.append(&records()).is_ok());
    assert!(journal.is_full_for(&records()));
    journal.restart().unwrap();
    let payload = vec![Bytes::from(vec![9; 100 * 4096])];
    let entries = checksum::of_pieces(0, &payload);
    let big = [Record { volume: VolumeId(1), first_block: 0, change: Change::Write { entries, payload } }];
    assert!(!journal.is_full_for(&big));
    assert!(journal.append(&big).is_ok());
    drop(journal);
    assert_eq!(open(dir.path(), 32 << 10).1, big);
}

proptest! {
    #[test]
    fn decoders_when_any_bytes_then_no_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), seal in any::<bool>()) {
        if seal && bytes.len() >= 68 {
            bytes[..12].copy_from_slice(b"HFBATCH\0\x01\0\0\0");
            bytes[16..32].copy_from_slice(&DISK.0);
            bytes[56..60].copy_from_slice(&[3, 0, 0, 0]);
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..64]), &bytes[68..]);
            bytes[64..68].copy_from_slice(&crc.to_le_bytes());
        }
        let _ = decode_slot(&bytes, DISK);
        let _ = Claim::decode(&bytes, DISK);
        if let Some(batch) = Batch::decode(&bytes) {
            let _ = batch.with_payload(&Bytes::new());
        }
    }
}
