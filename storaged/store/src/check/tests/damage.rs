//! Each structure, damaged in turn.

use super::*;
use crate::catalogue::model::KeyFault;
use crate::device::DeviceWrite;
use crate::format::checkpoint::CheckpointRecord;
use crate::format::shard::{ShardBitmaps, ShardRecord};
use crate::ids::Slot;
use crate::shard;

fn chunk(index: u16) -> ChunkIndex {
    ChunkIndex::new(index).unwrap()
}

#[test]
fn check_when_a_slot_has_rotted_then_that_block_of_the_volume() {
    let bench = Bench::with_data();
    bench.device.rot(bench.place(0, 7) + 99, 2);
    bench.device.rot(bench.place(0, 8), 0);
    bench.device.rot(bench.place(2, 15) + 4095, 7);
    let expected = [(Problem::Checksum, bytes(7, 2)), (Problem::Checksum, bytes(47, 1))];
    assert_eq!(bench.found(), expected);
    let (seen, summary) = bench.check();
    assert!(seen.findings[0].to_string().starts_with("volume disk0, bytes 1073770496 to 1073778688: "), "{seen:?}");
    assert_eq!((summary.damage, summary.chunks), (2, 6));
}

#[test]
fn check_when_the_disk_does_not_give_a_block_then_that_one() {
    let bench = Bench::with_data();
    bench.device.make_unreadable(bench.place(1, 4));
    assert_eq!(bench.found(), [(Problem::Unreadable, bytes(20, 1))]);
}

#[test]
fn check_when_the_slot_is_not_what_counts_then_it_is_not_judged() {
    let bench = Bench::with_data();
    // Block 1 and the whole of chunk 3 are in the journal; block 64 was never written; slot 60 is free.
    bench.device.rot(bench.place(0, 1), 2);
    bench.device.rot(bench.place(3, 5), 2);
    bench.device.rot(bench.place(4, 0), 2);
    bench.device.rot(bench.superblock.slots_offset + 60 * CHUNK_LEN as u64, 2);
    assert_eq!(bench.found(), []);
}

#[test]
fn check_when_a_slot_named_in_the_journal_has_rotted_then_that_block() {
    let bench = Bench::with_data();
    // The new slot of chunk 3 is the one with its content.
    let first = bench.superblock.slots_offset;
    let is_it = |slot: &u64| bench.device.read(first + slot * CHUNK_LEN as u64, BLOCK_LEN).unwrap()[0] == 84;
    let slot = (0..64).find(is_it).unwrap();
    bench.device.rot(first + slot * CHUNK_LEN as u64 + 2 * BLOCK_LEN as u64, 2);
    assert_eq!(bench.found(), [(Problem::Checksum, bytes(50, 1))]);
}

#[test]
fn check_when_a_superblock_copy_is_damaged_then_that_one_and_the_other_serves() {
    for (copy, offset) in [(1, 0), (2, 4096)] {
        let bench = Bench::with_data();
        bench.device.rot(offset + 2000, 3);
        let (seen, summary) = bench.check();
        assert_eq!(summary.damage, 1);
        assert_eq!(seen.findings[0].problem, Problem::Superblock);
        assert!(seen.findings[0].place.contains(&format!("copy {copy}")), "{seen:?}");
        assert_eq!(summary.chunks, 6);
    }
    let bench = Bench::with_data();
    bench.device.rot(0, 3);
    bench.device.rot(4096, 3);
    let (seen, summary) = bench.check();
    assert_eq!(seen.findings.iter().map(|finding| finding.problem).collect::<Vec<_>>(), [Problem::Superblock; 2]);
    assert_eq!((summary.volumes, summary.shards), (1, 1));
    let other = Superblock { node_id: 4, ..bench.superblock };
    let bench = Bench::with_data();
    bench.device.write(&[DeviceWrite::new(4096, other.encode().into())]).unwrap();
    assert_eq!(bench.found(), [(Problem::Superblock, None)]);
}

#[test]
fn check_when_parts_are_of_different_disks_then_said() {
    let bench = Bench::with_data();
    let mut seen = Seen::default();
    let mut report = Report::new(&mut seen);
    let other = Identity { node_id: 99, ..bench.identity() };
    check_parts(&mut report, Some(other), Some(&bench.device), Some(&bench.catalogue));
    assert_eq!(seen.findings.iter().map(|finding| finding.problem).collect::<Vec<_>>(), [Problem::OtherDisk; 2]);
}

#[test]
fn check_when_the_journal_is_damaged_then_found_and_the_rest_still_checked() {
    let bench = Bench::with_data();
    let checkpoint = bench.catalogue.get(&keys::checkpoint()).unwrap().unwrap();
    let checkpoint = CheckpointRecord::parse(&checkpoint).unwrap();
    let first = bench.superblock.journal_offset + checkpoint.position;
    // Header, records and payload of the first batch, which writes block 1.
    for offset in [first + 20, first + 130, first + 4096 + 77] {
        let bench = Bench::with_data();
        bench.device.rot(offset, 4);
        // Data of the checkpoint is still checked, and what the lost batch had changed is not blamed.
        bench.device.rot(bench.place(2, 3), 1);
        assert_eq!(bench.found(), [(Problem::Journal, None), (Problem::Checksum, bytes(35, 1))], "byte {offset}");
    }
}

#[test]
fn check_when_the_journal_ends_in_a_torn_batch_then_a_note_and_no_finding() {
    let mut bench = Bench::with_data();
    bench.write(200, &[1]);
    bench.write(201, &[2]);
    let checkpoint = bench.catalogue.get(&keys::checkpoint()).unwrap().unwrap();
    let first = bench.superblock.journal_offset + CheckpointRecord::parse(&checkpoint).unwrap().position;
    // Four batches of 2, 1, 2 and 1 blocks, then two of 2.
    bench.device.rot(first + 9 * 4096 + 5, 1);
    let (seen, summary) = bench.check();
    assert_eq!(seen.findings, []);
    assert!(seen.notes[0].contains("never acknowledged"), "{:?}", seen.notes);
    assert_eq!(summary.batches, 5);
}

#[test]
fn check_when_a_row_is_damaged_then_that_one() {
    let volume = keys::volume(VolumeId(1));
    for (key, place) in [
        (volume, "the record of volume number 1"),
        (record::counter_key(), "the counter of volumes"),
        (keys::identity(), "the catalogue's identity"),
        (keys::checkpoint(), "the checkpoint record"),
        (keys::shard(SHARD), "the record of shard 1 of volume disk0"),
        (keys::bitmaps(SHARD), "the bitmaps of shard 1 of volume disk0"),
        (keys::allocation(0), "allocation page 0"),
    ] {
        let bench = Bench::with_data();
        let mut value = bench.catalogue.get(&key).unwrap().unwrap();
        value[5] ^= 1;
        bench.catalogue.plant(key, value);
        let (seen, summary) = bench.check();
        assert_eq!(seen.findings.len(), 1, "{place}: {:?}", seen.findings);
        assert_eq!((seen.findings[0].problem, seen.findings[0].place.as_str()), (Problem::Row, place));
        assert_eq!(summary.chunks, if place.starts_with("the checkpoint") { 5 } else { 6 }, "{place}");
    }
}

#[test]
fn check_when_a_row_cannot_be_read_then_what_it_hides_and_nothing_else() {
    let bench = Bench::with_data();
    bench.catalogue.fail(keys::map(SHARD, chunk(2)), KeyFault::Corrupt);
    let found = bench.found();
    assert_eq!(found, [(Problem::Catalogue, None), (Problem::Entry, bytes(32, 16))]);
    for key in [keys::shard(SHARD), keys::bitmaps(SHARD), keys::allocation(0), keys::volume(VolumeId(1))] {
        let bench = Bench::with_data();
        bench.catalogue.fail(key.clone(), KeyFault::Corrupt);
        let (seen, _) = bench.check();
        let is_of_it = |finding: &Finding| matches!(finding.problem, Problem::Catalogue | Problem::Row);
        assert!(!seen.findings.is_empty() && seen.findings.iter().all(is_of_it), "{key:?}: {:?}", seen.findings);
    }
}

#[test]
fn check_when_an_entry_is_damaged_then_its_range_of_the_volume() {
    let bench = Bench::with_data();
    for index in [1, 3] {
        let mut value = bench.catalogue.get(&keys::map(SHARD, chunk(index))).unwrap().unwrap();
        value[20] ^= 1;
        bench.catalogue.plant(keys::map(SHARD, chunk(index)), value);
    }
    assert_eq!(bench.found(), [(Problem::Entry, bytes(16, 16)), (Problem::Entry, bytes(48, 16))]);
    let (seen, _) = bench.check();
    assert!(seen.findings[1].detail.contains("its data is in the journal as a whole"), "{:?}", seen.findings);
    assert!(seen.notes[0].contains("2 slots are marked"), "{:?}", seen.notes);
}

#[test]
fn check_when_rows_are_of_a_later_release_then_said_so() {
    let bench = Bench::with_data();
    let key = keys::map(SHARD, chunk(1));
    let value = bench.catalogue.get(&key).unwrap().unwrap();
    bench.catalogue.plant(key.clone(), crate::format::samples::reseal(&key, &value, |body| body[0] = 9));
    assert_eq!(bench.found(), [(Problem::Newer, bytes(16, 16))]);
}

#[test]
fn check_when_a_row_means_nothing_then_it_is_named() {
    let bench = Bench::with_data();
    for key in [&b"\x01"[..], b"cx", b"d", b"m", b"mxx", b"z9", b"v12", b"s", b"b1", b"a"] {
        bench.catalogue.plant(key, b"?");
    }
    let mut beyond = keys::map(SHARD, chunk(16_383));
    *beyond.last_mut().unwrap() = 0xff;
    beyond[13] = 0x80;
    bench.catalogue.plant(beyond, b"?");
    let found = bench.found();
    assert_eq!(found.len(), 11, "{found:?}");
    assert!(found.iter().all(|(problem, _)| *problem == Problem::UnknownRow));
}

#[test]
fn check_when_an_entry_is_missing_then_its_range() {
    let bench = Bench::with_data();
    bench.catalogue.commit(&Changes { deletes: vec![keys::map(SHARD, chunk(1))], ..Changes::default() }).unwrap();
    let expected = [(Problem::Bitmaps, bytes(16, 16)), (Problem::MissingEntry, bytes(16, 16)), (Problem::Leak, None)];
    assert_eq!(bench.found(), expected);
}

#[test]
fn check_when_bitmaps_and_map_differ_then_the_range() {
    let bench = Bench::with_data();
    let mut bitmaps =
        ShardBitmaps::parse(SHARD, &bench.catalogue.get(&keys::bitmaps(SHARD)).unwrap().unwrap()).unwrap();
    shard::clear_slot(&mut bitmaps, chunk(0));
    shard::clear_slot(&mut bitmaps, chunk(1));
    bench.catalogue.plant(keys::bitmaps(SHARD), bitmaps.encode(SHARD));
    assert_eq!(bench.found(), [(Problem::Bitmaps, bytes(0, 32))]);
    shard::mark(&mut bitmaps, chunk(0), true);
    shard::mark(&mut bitmaps, chunk(1), true);
    shard::mark(&mut bitmaps, chunk(900), true);
    bench.catalogue.plant(keys::bitmaps(SHARD), bitmaps.encode(SHARD));
    let expected = [(Problem::Bitmaps, bytes(900 * 16, 16)), (Problem::MissingEntry, bytes(900 * 16, 16))];
    assert_eq!(bench.found(), expected);
}

#[test]
fn check_when_two_chunks_have_one_slot_then_both_ranges() {
    let bench = Bench::with_data();
    let (one, mut other) = (bench.entry(1), bench.entry(2));
    let slot = other.content.unwrap().slot;
    other.content.as_mut().unwrap().slot = one.content.unwrap().slot;
    bench.put_entry(2, &other);
    let expected = [
        (Problem::Checksum, bytes(32, 16)),
        (Problem::SharedSlot, bytes(16, 16)),
        (Problem::SharedSlot, bytes(32, 16)),
        (Problem::Leak, None),
    ];
    assert_eq!(bench.found(), expected);
    let (seen, summary) = bench.check();
    assert!(seen.findings[3].place.starts_with(&format!("1 slots from {}", slot.0)), "{seen:?}");
    assert_eq!((summary.damage, summary.waste), (3, 1));
}

#[test]
fn check_when_allocation_and_map_differ_then_lost_safety_and_lost_space() {
    let bench = Bench::with_data();
    let slot = bench.entry(2).content.unwrap().slot;
    let mut page = bench.page();
    page.words[0] &= !(1 << slot.0);
    page.words[0] |= 1 << 40 | 1 << 41;
    bench.catalogue.plant(keys::allocation(0), page.encode());
    assert_eq!(bench.found(), [(Problem::UnmarkedSlot, bytes(32, 16)), (Problem::Leak, None)]);
    page.words[0] |= 1 << slot.0;
    page.words[0] &= !(1 << 40 | 1 << 41);
    page.words[9] = 1;
    bench.catalogue.plant(keys::allocation(0), page.encode());
    let found = bench.found();
    // The engine does not open such a store.
    assert_eq!(found, [(Problem::DataFile, None), (Problem::Row, None)]);
}

#[test]
fn check_when_a_slot_lies_beyond_the_end_then_its_range() {
    let bench = Bench::with_data();
    let mut entry = bench.entry(2);
    entry.content.as_mut().unwrap().slot = Slot(5000);
    bench.put_entry(2, &entry);
    let found = bench.found();
    assert!(found.contains(&(Problem::BeyondEnd, bytes(32, 16))), "{found:?}");
    assert!(found.contains(&(Problem::UnmarkedSlot, bytes(32, 16))), "{found:?}");
    assert_eq!(found.len(), 3, "and the slot that it had is lost: {found:?}");
}

#[test]
fn check_when_a_block_is_lost_then_its_range() {
    let bench = Bench::with_data();
    let mut entry = bench.entry(2);
    entry.content.as_mut().unwrap().lost = 0b110;
    bench.put_entry(2, &entry);
    assert_eq!(bench.found(), [(Problem::Lost, bytes(33, 2))]);
}

#[test]
fn check_when_a_shard_or_volume_has_no_record_then_its_data_is_unreachable() {
    let bench = Bench::with_data();
    let deletes = vec![keys::volume(VolumeId(1))];
    bench.catalogue.commit(&Changes { deletes, ..Changes::default() }).unwrap();
    assert_eq!(bench.found(), [(Problem::Unreachable, None)]);
    let bench = Bench::with_data();
    bench.checkpoint();
    bench.catalogue.commit(&Changes { deletes: vec![keys::shard(SHARD)], ..Changes::default() }).unwrap();
    assert_eq!(bench.found(), [(Problem::Unreachable, None)]);
    let bench = Bench::with_data();
    let value = bench.catalogue.get(&keys::volume(VolumeId(1))).unwrap().unwrap();
    let mut volume = record::parse(&keys::volume(VolumeId(1)), &value).unwrap();
    volume.size_bytes = SHARD_AT + 4 * CHUNK_LEN as u64;
    bench.catalogue.plant(keys::volume(VolumeId(1)), record::encode(&volume));
    assert_eq!(bench.found(), [(Problem::Unreachable, bytes(64, 16))]);
}

#[test]
fn check_when_volumes_contradict_each_other_then_said() {
    let bench = Bench::with_data();
    let value = bench.catalogue.get(&keys::volume(VolumeId(1))).unwrap().unwrap();
    let mut volume = record::parse(&keys::volume(VolumeId(1)), &value).unwrap();
    volume.id = VolumeId(2);
    bench.catalogue.plant(keys::volume(volume.id), record::encode(&volume));
    assert_eq!(bench.found(), [(Problem::Volumes, None); 3]);
}

#[test]
fn check_when_the_data_file_is_longer_then_a_note_and_when_shorter_then_found() {
    let bench = Bench::with_data();
    bench.device.grow(bench.device.len_bytes() + 8192).unwrap();
    let (seen, summary) = bench.check();
    assert!(summary.is_clean() && seen.notes[0].contains("8192 bytes of a slot"), "{seen:?}");
    let short = SimDisk::new(bench.superblock.slots_offset + 2 * CHUNK_LEN as u64, 1);
    let all = bench.device.read(0, usize::try_from(short.len_bytes()).unwrap()).unwrap();
    short.write(&[DeviceWrite::new(0, all)]).unwrap();
    let mut seen = Seen::default();
    check_parts(&mut Report::new(&mut seen), Some(bench.identity()), Some(&short), Some(&bench.catalogue));
    let beyond = seen.findings.iter().filter(|finding| finding.problem == Problem::BeyondEnd).count();
    assert!(beyond > 0, "{:?}", seen.findings);
    let tiny = SimDisk::new(8192, 1);
    tiny.write(&[DeviceWrite::new(0, bench.device.read(0, 8192).unwrap())]).unwrap();
    let mut seen = Seen::default();
    check_parts(&mut Report::new(&mut seen), Some(bench.identity()), Some(&tiny), Some(&bench.catalogue));
    assert_eq!(seen.findings[0].problem, Problem::DataFile);
}

#[test]
fn check_when_shard_records_say_less_than_the_journal_then_nothing() {
    // A record that is older than the journal is what a checkpoint leaves.
    let bench = Bench::with_data();
    let record = ShardRecord::parse(SHARD, &bench.catalogue.get(&keys::shard(SHARD)).unwrap().unwrap()).unwrap();
    assert_eq!(record.last.sequence, 5);
    assert_eq!(bench.found(), []);
}

#[test]
fn verify_chunk_when_the_engine_runs_then_what_a_read_would_find() {
    use crate::read::FaultKind;
    use crate::scrub::{ChunkVerdict, verify_chunk};
    let mut bench = Bench::with_data();
    for reopened in [false, true] {
        if reopened {
            bench.reopen();
        }
        let verify = |index| verify_chunk(&bench, &bench.device, &bench.catalogue, SHARD, chunk(index)).unwrap();
        assert_eq!((0..7).map(verify).collect::<Vec<_>>(), vec![ChunkVerdict::Blocks(Vec::new()); 7]);
        // Block 1 of chunk 0 is in the journal, block 2 is not.
        bench.device.rot(bench.place(0, 1), 0);
        bench.device.rot(bench.place(0, 2), 0);
        let ChunkVerdict::Blocks(faults) = verify(0) else { panic!("no entry") };
        assert_eq!(
            faults.iter().map(|fault| (fault.block, &fault.kind)).collect::<Vec<_>>(),
            [(2, &FaultKind::Checksum)]
        );
        bench.device.rot(bench.place(0, 1), 0);
        bench.device.rot(bench.place(0, 2), 0);
    }
    let mut value = bench.catalogue.get(&keys::map(SHARD, chunk(2))).unwrap().unwrap();
    value[20] ^= 1;
    bench.catalogue.plant(keys::map(SHARD, chunk(2)), value);
    let verdict = verify_chunk(&bench, &bench.device, &bench.catalogue, SHARD, chunk(2)).unwrap();
    assert_eq!(verdict, ChunkVerdict::NoEntry);
}
