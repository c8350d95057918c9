//! Exact bytes of every structure. They were made by a short program of its own, in another language, with a bitwise
//! crc32c, from the diagrams in the module docs.

use holdfast_proto::ids::{Incarnation, VolumeId};
use proptest::prelude::*;

use crate::format::samples::{
    any_chunk, any_shard, assert_sealed, chunk, crc32c_bitwise, hex, reseal, sample_shard, sample_superblock,
};
use crate::format::{
    AllocationPage, CheckpointRecord, Content, DedupeRow, DoneOperation, Entry, FormatError, IdentityRecord,
    ShardBitmaps, ShardRecord, Superblock, keys,
};
use crate::ids::{ChunkIndex, ShardId, Slot, Version};

fn is_newer<T>(result: Result<T, FormatError>) -> bool {
    matches!(result, Err(FormatError::Newer { .. }))
}

fn is_corrupt<T>(result: Result<T, FormatError>) -> bool {
    matches!(result, Err(FormatError::Corrupt { .. }))
}

const SUPERBLOCK: &str = "
    484f4c44464153540100000000000000101112131415161718191a1b1c1d1e1f07000000000000002021222324252627
    28292a2b2c2d2e2f000001000000000000001000000000000000110000000000";

fn resealed_superblock(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = sample_superblock().encode();
    change(&mut bytes);
    let crc = crc32c_bitwise(&bytes[..4092]);
    bytes[4092..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn superblock_when_encoded_then_the_golden_bytes() {
    let mut golden = hex(SUPERBLOCK);
    golden.resize(4092, 0);
    golden.extend_from_slice(&0x6bb3_e717_u32.to_le_bytes());
    assert_eq!(sample_superblock().encode(), golden);
    assert_eq!(Superblock::parse(&golden).unwrap(), sample_superblock());
}

#[test]
fn superblock_when_cut_or_changed_then_corrupt() {
    let bytes = sample_superblock().encode();
    for len in 0..bytes.len() {
        assert!(is_corrupt(Superblock::parse(&bytes[..len])));
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(is_corrupt(Superblock::parse(&changed)), "byte {at}");
    }
}

#[test]
fn superblock_when_newer_then_said_so_and_no_older_copy_counts() {
    let newer = resealed_superblock(|bytes| bytes[8] = 2);
    let good = sample_superblock().encode();
    assert!(is_newer(Superblock::parse(&newer)));
    assert!(is_newer(Superblock::choose(&newer, &good)));
    assert!(is_newer(Superblock::choose(&good, &newer)));
    assert!(is_corrupt(Superblock::parse(&resealed_superblock(|bytes| bytes[8] = 0))));
}

#[test]
fn superblock_when_one_copy_is_bad_then_the_other_counts() {
    let good = sample_superblock().encode();
    assert_eq!(Superblock::choose(&good, &[0; 4096]).unwrap(), sample_superblock());
    assert_eq!(Superblock::choose(&[], &good).unwrap(), sample_superblock());
    assert!(is_corrupt(Superblock::choose(&[0; 4096], &[0; 4096])));
}

#[test]
fn superblock_when_its_areas_lie_then_corrupt() {
    for (at, value) in [
        (56, 4096_u64),         // the journal over the copy
        (56, 65_537),           // not aligned
        (64, 0),                // no journal
        (64, u64::MAX - 4095),  // an end beyond all numbers
        (64, (1 << 20) + 4096), // the journal over the slots
        (72, u64::MAX - 4095),  // slots beyond all offsets
    ] {
        let bytes = resealed_superblock(|bytes| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()));
        assert!(is_corrupt(Superblock::parse(&bytes)), "{value} at {at}");
    }
    let Superblock { uuid, node_id, journal_key, .. } = sample_superblock();
    for journal_len in [0, 4095, u64::MAX, u64::MAX - 4095, 1 << 63] {
        assert_eq!(Superblock::new(uuid, node_id, journal_key, journal_len), None);
    }
    assert_eq!(Superblock::new(uuid, node_id, journal_key, 4096).unwrap().slots_offset, 2 << 16);
}

#[test]
fn checkpoint_and_identity_when_encoded_then_the_golden_bytes() {
    let uuid = sample_superblock().uuid;
    let checkpoint = CheckpointRecord { number: 6, uuid, position: 40_960, next_batch: 42, previous_crc: 0xdead_beef };
    let golden = hex("010000000600000000000000101112131415161718191a1b1c1d1e1f00a00000000000002a00000000000000efbeadde
        a11e8b37");
    assert_eq!(checkpoint.encode(), golden);
    assert_eq!(CheckpointRecord::parse(&golden).unwrap(), checkpoint);
    assert_sealed(&golden, |value| CheckpointRecord::parse(value).ok());
    assert!(is_newer(CheckpointRecord::parse(&reseal(b"c", &golden, |body| body[0] = 2))));
    assert!(is_corrupt(CheckpointRecord::parse(&reseal(b"c", &golden, |body| body[28] = 1))));

    let identity = IdentityRecord { uuid, node_id: 7 };
    let golden = hex("01000000101112131415161718191a1b1c1d1e1f07000000000000009fc65b38");
    assert_eq!(identity.encode(), golden);
    assert_eq!(IdentityRecord::parse(&golden).unwrap(), identity);
    assert_sealed(&golden, |value| IdentityRecord::parse(value).ok());
    assert!(is_newer(IdentityRecord::parse(&reseal(b"i", &golden, |body| body[0] = 2))));
}

fn sample_entry() -> Entry {
    let mut crcs = [0; 16];
    (crcs[0], crcs[15]) = (0x1111_1111, 0x2222_2222);
    Entry {
        version: Version { term: 9, sequence: 100 },
        stale: false,
        snapshot: 0,
        references: 1,
        content: Some(Content { slot: Slot(77), mapped: 0x8001, lost: 0x8000, crcs }),
    }
}

#[test]
fn entry_when_encoded_then_the_golden_bytes() {
    let (shard, chunk) = (sample_shard(), chunk(17));
    let hole = Entry { stale: true, references: 0, content: None, ..sample_entry() };
    let golden = hex("0101000000000000000000000000000009000000000000006400000000000000503c9630");
    assert_eq!(hole.encode(shard, chunk), golden);
    assert_eq!(Entry::parse(shard, chunk, &golden).unwrap(), hole);
    assert_sealed(&golden, |value| Entry::parse(shard, chunk, value).ok());

    let golden =
        hex("01020180008000000000000001000000090000000000000064000000000000004d0000001111111122222222acaa0bc2");
    assert_eq!(sample_entry().encode(shard, chunk), golden);
    assert_eq!(Entry::parse(shard, chunk, &golden).unwrap(), sample_entry());
    assert_sealed(&golden, |value| Entry::parse(shard, chunk, value).ok());
}

#[test]
fn entry_when_under_another_key_then_corrupt() {
    let value = sample_entry().encode(sample_shard(), chunk(17));
    assert!(is_corrupt(Entry::parse(sample_shard(), chunk(18), &value)));
}

#[test]
fn entry_when_it_lies_then_corrupt() {
    let (shard, at) = (sample_shard(), chunk(17));
    let key = keys::map(shard, at);
    let value = sample_entry().encode(shard, at);
    let parse = |change: fn(&mut Vec<u8>)| Entry::parse(shard, at, &reseal(&key, &value, change));
    assert!(is_newer(parse(|body| body[0] = 2)));
    assert!(is_corrupt(parse(|body| body[0] = 0)));
    assert!(is_corrupt(parse(|body| body[1] = 4 | 2)), "unknown flag");
    assert!(is_corrupt(parse(|body| body[1] = 0)), "no content, yet blocks");
    assert!(is_corrupt(parse(|body| body[2] = 3)), "more blocks than checksums");
    assert!(is_corrupt(parse(|body| body[12] = 0)), "no reference");
    assert!(is_corrupt(parse(|body| body[4] = 2)), "lost and not mapped");
    assert!(is_corrupt(parse(|body| body.push(0))));
}

#[test]
fn shard_record_when_encoded_then_the_golden_bytes() {
    let shard = sample_shard();
    let record = ShardRecord {
        epoch: 21,
        term: 22,
        last: Version { term: 9, sequence: 100 },
        committed: 99,
        suspect: true,
        dedupe: vec![DedupeRow {
            incarnation: Incarnation(11),
            lane: 14,
            acked_below: 13,
            done: vec![
                DoneOperation { sequence: 12, part: 15, outcome: 16 },
                DoneOperation { sequence: 14, part: 0, outcome: 17 },
            ],
        }],
    };
    let golden = hex("010100000100000015000000000000001600000000000000090000000000000064000000000000006300000000000000
        0b000000000000000d000000000000000e000000020000000c000000000000000f000000100000000e00000000000000
        00000000110000003efda8a9");
    assert_eq!(record.encode(shard), golden);
    assert_eq!(ShardRecord::parse(shard, &golden).unwrap(), record);
    assert_sealed(&golden, |value| ShardRecord::parse(shard, value).ok());
    let parse = |change: fn(&mut Vec<u8>)| ShardRecord::parse(shard, &reseal(&keys::shard(shard), &golden, change));
    assert!(is_newer(parse(|body| body[0] = 2)));
    assert!(is_corrupt(parse(|body| body[1] = 2)));
    for (from, to) in [(4, 8), (68, 72)] {
        // Lengths of lists; the largest would be 64 GiB of memory.
        for lie in [0_u32, 3, 1 << 20, u32::MAX] {
            let value = reseal(&keys::shard(shard), &golden, |body| body[from..to].copy_from_slice(&lie.to_le_bytes()));
            assert!(is_corrupt(ShardRecord::parse(shard, &value)), "{lie} at {from}");
        }
    }
}

#[test]
fn bitmaps_when_encoded_then_the_golden_bytes() {
    let shard = sample_shard();
    let mut bitmaps = ShardBitmaps::default();
    let empty = hex("01000000010000400100004059f4ecf9");
    assert_eq!(bitmaps.encode(shard), empty);
    assert_eq!(ShardBitmaps::parse(shard, &empty).unwrap(), bitmaps);
    bitmaps.slots[0] = 1 << 17;
    bitmaps.touched.fill(u64::MAX);
    let golden = hex("01000000030011000100ee3f0200000000406e53f6eb");
    assert_eq!(bitmaps.encode(shard), golden);
    assert_eq!(ShardBitmaps::parse(shard, &golden).unwrap(), bitmaps);
    assert_sealed(&golden, |value| ShardBitmaps::parse(shard, value).ok());
}

#[test]
fn bitmaps_when_of_many_runs_then_the_bits_themselves() {
    let shard = sample_shard();
    let mut bitmaps = ShardBitmaps::default();
    bitmaps.slots.fill(0x5555_5555_5555_5555);
    // 1023 runs: the most that are written as runs.
    for run in 0..511 {
        bitmaps.touched[run / 2] |= 1 << (run % 2 * 32 + 1);
    }
    let value = bitmaps.encode(shard);
    assert_eq!(value.len(), 4 + 2 + 2048 + 2 + 1023 * 2 + 4);
    assert_eq!(ShardBitmaps::parse(shard, &value).unwrap(), bitmaps);
}

#[test]
fn bitmaps_when_they_lie_then_corrupt() {
    let shard = sample_shard();
    let key = keys::bitmaps(shard);
    let parse = |bitmap: &[u16]| {
        let value = [vec![1, 0, 0, 0], bitmap.iter().flat_map(|word| word.to_le_bytes()).collect(), vec![0; 4]];
        ShardBitmaps::parse(shard, &reseal(&key, &value.concat(), |_| ()))
    };
    assert!(parse(&[1, 16_384, 2, 0, 16_384]).is_ok());
    assert!(is_corrupt(parse(&[1, 16_383, 1, 16_384])), "too short");
    assert!(is_corrupt(parse(&[1, 16_385, 1, 16_384])), "too long");
    assert!(is_corrupt(parse(&[2, 16_384, 65_535, 1, 16_384])), "too long");
    assert!(is_corrupt(parse(&[3, 1, 0, 16_383, 1, 16_384])), "an empty run");
    assert!(is_corrupt(parse(&[1024, 16_384, 1, 16_384])), "more runs than bytes");
    assert!(is_corrupt(parse(&[0; 1025 + 1025])), "bits where runs are shorter");
}

#[test]
fn allocation_page_when_encoded_then_the_golden_bytes() {
    let mut page = AllocationPage::empty(2);
    page.words[0] = 2;
    page.words[63] = 1 << 63;
    let mut golden = vec![1, 0, 0, 0, 2];
    golden.resize(4 + 511, 0);
    golden.extend_from_slice(&hex("80 74c65118"));
    assert_eq!(page.encode(), golden);
    assert_eq!(AllocationPage::parse(2, &golden).unwrap(), page);
    assert_sealed(&golden, |value| AllocationPage::parse(2, value).ok());
    assert!(is_corrupt(AllocationPage::parse(3, &golden)));
    assert!(is_newer(AllocationPage::parse(2, &reseal(&keys::allocation(2), &golden, |body| body[0] = 2))));
    assert_eq!(AllocationPage::place(Slot(4096 * 2 + 5)), (2, 5));
}

#[test]
fn keys_when_made_then_the_golden_bytes_and_back() {
    let (shard, at) = (sample_shard(), chunk(0x1234));
    assert_eq!(keys::map(shard, at), b"m\0\0\0\0\0\0\0\x03\0\0\0\x05\x12\x34");
    assert_eq!(keys::shard(shard), b"s\0\0\0\0\0\0\0\x03\0\0\0\x05");
    assert_eq!(keys::bitmaps(shard), b"b\0\0\0\0\0\0\0\x03\0\0\0\x05");
    assert_eq!(keys::allocation(0x0102_0304), b"a\x01\x02\x03\x04");
    assert_eq!(keys::volume(VolumeId(3)), b"v\0\0\0\0\0\0\0\x03");
    assert_eq!((keys::checkpoint(), keys::identity()), (b"c".to_vec(), b"i".to_vec()));
    assert_eq!(keys::parse_map(b"m\0\0\0\0\0\0\0\x03\0\0\0\x05\x40\0"), None, "a chunk beyond the shard");
    assert_eq!(keys::parse_allocation(&keys::allocation(9)), Some(9));
    assert_eq!(keys::parse_volume(&keys::volume(VolumeId(9))), Some(VolumeId(9)));
    assert_eq!(keys::parse_bitmaps(&keys::bitmaps(shard)), Some(shard));
    assert_eq!(keys::parse_shard(&keys::bitmaps(shard)), None, "another table");
}

proptest! {
    #[test]
    fn keys_when_in_order_then_so_are_their_numbers(
        a in (any_shard(), any_chunk()), b in (any_shard(), any_chunk())
    ) {
        let key = |(shard, chunk): (ShardId, ChunkIndex)| keys::map(shard, chunk);
        prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
        prop_assert_eq!(keys::parse_map(&key(a)), Some(a));
        prop_assert_eq!(keys::map_range(a.0).contains(&key(b)), a.0 == b.0);
        prop_assert!(keys::map_range(a.0).contains(&key(a)));
        prop_assert!(keys::Table::Map.range().contains(&key(a)));
    }

    #[test]
    fn entry_when_of_any_value_then_round_trips(
        shard in any_shard(), chunk in any_chunk(), version in any::<(u64, u64)>(), stale: bool, snapshot: u32,
        content in proptest::option::of((any::<u32>(), any::<u16>(), any::<u16>(), any::<[u32; 16]>(), 1..=u32::MAX)),
    ) {
        let entry = Entry {
            version: Version { term: version.0, sequence: version.1 }, stale, snapshot,
            references: content.map_or(0, |content| content.4),
            content: content.map(|(slot, mapped, lost, mut crcs, _)| {
                for (block, crc) in crcs.iter_mut().enumerate() {
                    *crc *= u32::from(mapped >> block & 1);
                }
                Content { slot: Slot(slot), mapped, lost: lost & mapped, crcs }
            }),
        };
        prop_assert_eq!(Entry::parse(shard, chunk, &entry.encode(shard, chunk)).unwrap(), entry);
    }

    #[test]
    fn bitmaps_when_of_any_runs_then_round_trip(
        shard in any_shard(), toggles in proptest::collection::vec(0u16..16_384, 0..1500), words: [u64; 32]
    ) {
        let mut bitmaps = ShardBitmaps::default();
        bitmaps.slots[64..96].copy_from_slice(&words);
        for from in toggles {
            bitmaps.touched[usize::from(from / 64)] ^= u64::MAX << (from % 64);
            bitmaps.touched[usize::from(from / 64) + 1..].iter_mut().for_each(|word| *word = !*word);
        }
        prop_assert_eq!(ShardBitmaps::parse(shard, &bitmaps.encode(shard)).unwrap(), bitmaps);
    }

    #[test]
    fn values_when_of_random_bytes_behind_a_good_seal_then_no_panic(
        shard in any_shard(), bytes in proptest::collection::vec(any::<u8>(), 4..600)
    ) {
        let value = |key: &[u8]| reseal(key, &bytes, |body| if let Some(version) = body.first_mut() { *version = 1 });
        let _ = Entry::parse(shard, chunk(1), &value(&keys::map(shard, chunk(1))));
        let _ = ShardRecord::parse(shard, &value(&keys::shard(shard)));
        let _ = ShardBitmaps::parse(shard, &value(&keys::bitmaps(shard)));
        let _ = AllocationPage::parse(1, &value(&keys::allocation(1)));
        let _ = CheckpointRecord::parse(&value(&keys::checkpoint()));
        let _ = IdentityRecord::parse(&value(&keys::identity()));
    }
}
