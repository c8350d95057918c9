//! The store from outside: what each operation answers, against a model, over restarts, and when calls fail.

use std::fs;
use std::sync::mpsc;

use bytes::Bytes;
use holdfast_proto::units::{BlockSize, SHARD_BYTES};
use proptest::prelude::*;
use rustix::io::Errno;

use super::*;
use crate::store::Kind;
use crate::tape::{Call, Random, Tape, copy_dir, fast_dir};

/// Not a multiple of the block: the last block is only half there.
const SIZE: u64 = 40 * 4096 + 2048;

pub(crate) fn small() -> Options {
    Options { journal_bytes: 200 << 10, reader_threads: 2 }
}

pub(crate) fn disk(name: &str, size_bytes: u64) -> NewVolume {
    let name = name.parse().unwrap();
    NewVolume { name, size_bytes, block_size: BlockSize::B512, kind: Kind::Disk, read_only: false }
}

pub(crate) fn run(store: &FileStore, volume: VolumeId, operation: Operation) -> Result<Output, StoreError> {
    let (sender, receiver) = mpsc::channel();
    store.submit(volume, operation, Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv().unwrap()
}

pub(crate) fn write_of(offset: u64, data: impl Into<Bytes>) -> Operation {
    let data = vec![data.into()];
    Operation::Write { offset, checksums: checksum::of_pieces(offset, &data), data }
}

pub(crate) fn write(
    store: &FileStore,
    volume: VolumeId,
    offset: u64,
    data: impl Into<Bytes>,
) -> Result<(), StoreError> {
    run(store, volume, write_of(offset, data)).map(|_| ())
}

/// Reads, and checks the checksums of the answer.
pub(crate) fn read(store: &FileStore, volume: VolumeId, offset: u64, len: u64) -> Result<Vec<u8>, StoreError> {
    let output = run(store, volume, Operation::Read { offset, len })?;
    assert_eq!(checksum::verify(offset, &output.data, &output.checksums), Ok(()));
    assert_eq!(checksum::len_bytes(&output.data), len);
    Ok(output.data.concat())
}

/// Bytes that look like nothing else.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

fn new_store() -> (tempfile::TempDir, FileStore, VolumeId) {
    let dir = fast_dir();
    let store = FileStore::open(dir.path(), &small()).unwrap();
    let id = store.create_volume(disk("disk0", SIZE)).unwrap().id;
    (dir, store, id)
}

#[test]
fn write_when_read_back_after_a_restart_then_the_same() {
    let (dir, store, id) = new_store();
    assert_eq!(read(&store, id, 0, SIZE).unwrap(), vec![0; usize::try_from(SIZE).unwrap()]);
    let data = noise(1, 10_000);
    write(&store, id, 300, data.clone()).unwrap();
    assert_eq!(read(&store, id, 300, 10_000).unwrap(), data);
    drop(store);
    let store = FileStore::open(dir.path(), &small()).unwrap();
    assert_eq!(read(&store, id, 300, 10_000).unwrap(), data);
    assert_eq!(read(&store, id, 0, 300).unwrap(), vec![0; 300]);
    assert_eq!(read(&store, id, 10_300, 4096).unwrap(), vec![0; 4096]);
}

#[test]
fn volumes_when_created_then_found_again_with_the_same_identity() {
    let (dir, store, id) = new_store();
    assert!(matches!(store.create_volume(disk("disk0", 4096)), Err(VolumeError::NameTaken(_))));
    let null = NewVolume { kind: Kind::Null, ..disk("null", 1 << 40) };
    let null = store.create_volume(null).unwrap();
    let big = store.create_volume(disk("big", 16 << 40)).unwrap();
    let fixed = store.create_volume(NewVolume { read_only: true, ..disk("fixed", 4096) }).unwrap();
    assert_eq!((id, null.id, big.id, fixed.id), (VolumeId(1), VolumeId(2), VolumeId(3), VolumeId(4)));
    assert_eq!(store.usage(big.id).unwrap().allocated_bytes, 0);
    let before = store.volumes();
    assert!(before.iter().all(|volume| volume.naa >> 60 == 3));
    assert_eq!(before.iter().map(|volume| volume.naa).collect::<std::collections::BTreeSet<_>>().len(), 4);
    store.close();
    assert!(matches!(store.create_volume(disk("late", 4096)), Err(VolumeError::Unavailable(StoreError::Closed))));
    let store = FileStore::open(dir.path(), &small()).unwrap();
    assert_eq!(store.volumes(), before);
    assert_eq!(store.usage(VolumeId(9)), None);

    // Over the border of the two data files of the big one, and at its very end.
    for offset in [(8 << 40) - 6000, (16 << 40) - 12_000] {
        write(&store, big.id, offset, noise(2, 12_000)).unwrap();
        assert_eq!(read(&store, big.id, offset, 12_000).unwrap(), noise(2, 12_000));
        run(&store, big.id, Operation::Unmap { offset, len: 12_000 }).unwrap();
        assert_eq!(read(&store, big.id, offset, 12_000).unwrap(), vec![0; 12_000]);
    }
    write(&store, big.id, 5 << 40, noise(3, 4096)).unwrap();
    run(&store, big.id, Operation::Unmap { offset: 1, len: (16 << 40) - 1 }).unwrap();
    assert_eq!(read(&store, big.id, 5 << 40, 4096).unwrap(), vec![0; 4096]);

    write(&store, null.id, 0, vec![1; 4096]).unwrap();
    assert_eq!(read(&store, null.id, 100, 8000).unwrap(), vec![0; 8000]);
    assert_eq!(write(&store, fixed.id, 0, vec![1; 512]), Err(StoreError::ReadOnly));
    assert_eq!(run(&store, fixed.id, Operation::Unmap { offset: 0, len: 1 }), Err(StoreError::ReadOnly));
    assert_eq!(run(&store, fixed.id, Operation::Flush), Ok(Output::default()));
}

#[test]
fn create_when_the_size_is_bad_then_refused() {
    let (_dir, store, _) = new_store();
    for size_bytes in [0, 100, MAX_VOLUME + 512] {
        assert!(matches!(store.create_volume(disk("x", size_bytes)), Err(VolumeError::BadSize { .. })), "{size_bytes}");
    }
    let big_blocks = NewVolume { block_size: BlockSize::B4096, ..disk("x", 512) };
    assert!(matches!(store.create_volume(big_blocks), Err(VolumeError::BadSize { .. })));
}

const MAX_VOLUME: u64 = crate::MAX_VOLUME_BYTES;

#[test]
fn operation_when_out_of_bounds_then_refused() {
    let (_dir, store, id) = new_store();
    for (offset, len) in [(SIZE, 1), (0, SIZE + 1), (u64::MAX, 2), (1, u64::MAX)] {
        assert_eq!(run(&store, id, Operation::Read { offset, len }), Err(StoreError::OutOfRange));
        assert_eq!(run(&store, id, Operation::Unmap { offset, len }), Err(StoreError::OutOfRange));
    }
    assert_eq!(write(&store, id, SIZE - 1, vec![0; 2]), Err(StoreError::OutOfRange));
    assert_eq!(run(&store, VolumeId(7), Operation::Flush), Err(StoreError::NoSuchVolume));
    let big = store.create_volume(disk("big", SHARD_BYTES)).unwrap().id;
    let len = MAX_OPERATION_BYTES + 1;
    assert_eq!(run(&store, big, Operation::Read { offset: 0, len }), Err(StoreError::TooLong));
    assert_eq!(write(&store, big, 0, vec![0; usize::try_from(len).unwrap()]), Err(StoreError::TooLong));
    // The longest one, which is larger than the whole journal.
    let data = noise(4, usize::try_from(MAX_OPERATION_BYTES).unwrap());
    write(&store, big, 4096, data.clone()).unwrap();
    assert!(read(&store, big, 4096, MAX_OPERATION_BYTES).unwrap() == data);
    assert_eq!(read(&store, id, SIZE, 0), Ok(Vec::new()));
    assert_eq!(write(&store, id, SIZE, Vec::new()), Ok(()));
    assert_eq!(run(&store, id, Operation::Unmap { offset: SIZE, len: 0 }), Ok(Output::default()));
}

#[test]
fn payload_when_it_does_not_match_its_checksums_then_refused_and_nothing_changed() {
    let (_dir, store, id) = new_store();
    let old = noise(5, 12_288);
    write(&store, id, 0, old.clone()).unwrap();
    for piece in 0..3 {
        let Operation::Write { offset, data, mut checksums } = write_of(512, noise(6, 10_000)) else { unreachable!() };
        checksums[piece] ^= 0x8000;
        let at = [512, 4096, 8192][piece];
        let result = run(&store, id, Operation::Write { offset, data, checksums });
        assert_eq!(result, Err(StoreError::PayloadCorrupt { offset: at }));
    }
    let none = Operation::Write { offset: 0, data: vec![Bytes::from(vec![1; 4096])], checksums: Vec::new() };
    assert_eq!(run(&store, id, none), Err(StoreError::PayloadCorrupt { offset: 0 }));
    assert_eq!(read(&store, id, 0, 12_288).unwrap(), old);
}

#[test]
fn unmap_when_whole_blocks_then_their_space_is_freed() {
    let (_dir, store, id) = new_store();
    write(&store, id, 0, noise(7, 160 << 10)).unwrap();
    assert_eq!(store.usage(id).unwrap().allocated_bytes, 160 << 10);
    run(&store, id, Operation::Unmap { offset: 4000, len: 100_000 }).unwrap();
    // Blocks 1 to 24 (104000 / 4096 = 25.4) are whole ones.
    assert_eq!(store.usage(id).unwrap().allocated_bytes, (160 << 10) - 24 * 4096);
}

#[test]
fn bit_when_flipped_on_the_disk_then_found_and_never_served() {
    let (dir, store, id) = new_store();
    write(&store, id, 0, noise(8, 3 * 4096)).unwrap();
    drop(store);
    let clean = fast_dir();
    copy_dir(dir.path(), clean.path());
    let mut random = Random::new(9);
    for (file, bytes) in [("data.0", 4096u64), ("checksums", 4)] {
        for _ in 0..40 {
            let broken = fast_dir();
            copy_dir(clean.path(), broken.path());
            let path = broken.path().join("volumes/1").join(file);
            let mut content = fs::read(&path).unwrap();
            let bit = usize::try_from(bytes * 8 + random.below(bytes * 8)).unwrap();
            content[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, content).unwrap();
            let store = FileStore::open(broken.path(), &small()).unwrap();
            let bad = StoreError::Checksum { offset: 4096 };
            assert_eq!(read(&store, id, 0, 3 * 4096), Err(bad.clone()), "{file} bit {bit}");
            assert_eq!(read(&store, id, 0, 4096).unwrap(), noise(8, 3 * 4096)[..4096]);
            // A part cannot be merged into it, all of it can be replaced.
            assert_eq!(write(&store, id, 5000, vec![1; 512]), Err(bad.clone()));
            assert_eq!(run(&store, id, Operation::Unmap { offset: 5000, len: 512 }), Err(bad));
            write(&store, id, 4096, vec![1; 4096]).unwrap();
            assert_eq!(read(&store, id, 4096, 4096).unwrap(), vec![1; 4096]);
        }
    }
}

#[test]
fn close_when_operations_are_queued_then_they_complete_and_later_ones_are_refused() {
    let (dir, store, id) = new_store();
    let (sender, receiver) = mpsc::channel();
    for block in 0..40 {
        let sender = sender.clone();
        let done = Box::new(move |result| sender.send(result).unwrap());
        store.submit(id, write_of(block * 4096, noise(block, 4096)), done);
    }
    store.close();
    store.close();
    assert_eq!(receiver.try_iter().filter(Result::is_ok).count(), 40);
    assert_eq!(write(&store, id, 0, vec![0; 512]), Err(StoreError::Closed));
    let store = FileStore::open(dir.path(), &small()).unwrap();
    for block in 0..40 {
        assert_eq!(read(&store, id, block * 4096, 4096).unwrap(), noise(block, 4096));
    }
}

#[test]
fn open_when_the_directory_is_in_use_or_cannot_be_made_then_refused() {
    let (dir, store, _) = new_store();
    assert!(matches!(FileStore::open(dir.path(), &small()), Err(OpenError::InUse(_))));
    drop(store);
    let file = dir.path().join("format").join("under-a-file");
    let error = FileStore::open(&file, &small()).err().unwrap();
    assert!(matches!(error, OpenError::Io(_)), "{error}");
}

#[test]
fn open_when_a_creation_was_interrupted_then_it_is_gone() {
    let (dir, store, _) = new_store();
    drop(store);
    let half = dir.path().join("volumes/2.new");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("data.0"), "x").unwrap();
    let store = FileStore::open(dir.path(), &small()).unwrap();
    assert!(!half.exists());
    assert_eq!(store.volumes().len(), 1);
    assert_eq!(store.create_volume(disk("disk1", 4096)).unwrap().id, VolumeId(2));
    drop(store);
    // The same one step earlier: a store that was not complete.
    let dir = fast_dir();
    fs::create_dir(dir.path().join("volumes")).unwrap();
    fs::write(dir.path().join("journal.new"), "x").unwrap();
    fs::write(dir.path().join("format.new"), "x").unwrap();
    assert!(FileStore::open(dir.path(), &small()).unwrap().volumes().is_empty());
}

#[test]
fn create_when_an_earlier_one_failed_after_its_rename_then_its_id_is_free_again() {
    let (dir, store, _) = new_store();
    let left = dir.path().join("volumes/2");
    // Half of a volume, whose files cannot be opened.
    fs::create_dir(&left).unwrap();
    fs::write(left.join("record"), "x").unwrap();
    assert_eq!(store.create_volume(disk("disk1", 4096)).unwrap().id, VolumeId(2));
    write(&store, VolumeId(2), 0, vec![1; 4096]).unwrap();
    drop(store);
    let store = FileStore::open(dir.path(), &small()).unwrap();
    assert_eq!(store.volumes().len(), 2);
    assert_eq!(read(&store, VolumeId(2), 0, 4096).unwrap(), vec![1; 4096]);
}

fn with_tape() -> (tempfile::TempDir, std::sync::Arc<Tape>, FileStore, VolumeId) {
    let (dir, store, id) = new_store();
    write(&store, id, 0, noise(10, 8192)).unwrap();
    drop(store);
    let tape = Tape::attach(dir.path());
    let store = FileStore::open(dir.path(), &small()).unwrap();
    (dir, tape, store, id)
}

#[test]
fn space_when_there_is_none_then_only_new_blocks_are_refused_and_nothing_is_changed() {
    for file in ["data", "checksums"] {
        let (dir, tape, store, id) = with_tape();
        tape.fail(Some((Call::Reserve, file, Errno::NOSPC)));
        assert_eq!(write(&store, id, 4096, vec![1; 8192]), Err(StoreError::NoSpace));
        assert_eq!(write(&store, id, 20_000, vec![1; 100]), Err(StoreError::NoSpace));
        assert_eq!(read(&store, id, 0, 8192).unwrap(), noise(10, 8192));
        assert_eq!(read(&store, id, 8192, 20_000).unwrap(), vec![0; 20_000]);
        write(&store, id, 100, vec![2; 5000]).unwrap();
        run(&store, id, Operation::Unmap { offset: 6000, len: 10 }).unwrap();
        tape.fail(None);
        write(&store, id, 8192, vec![3; 100]).unwrap();
        drop(store);
        let store = FileStore::open(dir.path(), &small()).unwrap();
        assert_eq!(read(&store, id, 100, 5000).unwrap(), vec![2; 5000]);
        assert_eq!(read(&store, id, 8192, 101).unwrap()[99..], [3, 0]);
    }
}

#[test]
fn space_when_given_back_in_the_same_batch_then_taken_anew() {
    let (_dir, tape, store, id) = with_tape();
    tape.fail(Some((Call::Reserve, "data", Errno::NOSPC)));
    let held = hold(&store, id);
    let (sender, receiver) = mpsc::channel();
    for operation in [Operation::Unmap { offset: 0, len: 4096 }, write_of(0, vec![1; 4096])] {
        let sender = sender.clone();
        store.submit(id, operation, Box::new(move |result| sender.send(result.map(|_| ())).unwrap()));
    }
    drop(held);
    assert_eq!([receiver.recv().unwrap(), receiver.recv().unwrap()], [Ok(()), Err(StoreError::NoSpace)]);
    assert_eq!(read(&store, id, 0, 4096).unwrap(), vec![0; 4096]);
}

/// Submits the operations as one batch; gives their outcomes in this order.
fn run_together(store: &FileStore, volume: VolumeId, operations: Vec<Operation>) -> Vec<Result<(), StoreError>> {
    let held = hold(store, volume);
    let receivers: Vec<_> = operations
        .into_iter()
        .map(|operation| {
            let (sender, receiver) = mpsc::channel();
            store.submit(volume, operation, Box::new(move |result| sender.send(result.map(|_| ())).unwrap()));
            receiver
        })
        .collect();
    drop(held);
    receivers.into_iter().map(|receiver| receiver.recv().unwrap()).collect()
}

#[test]
fn space_when_a_write_is_refused_half_way_then_it_keeps_none_and_earlier_ones_keep_theirs() {
    let (_dir, tape, store, _) = with_tape();
    let big = store.create_volume(disk("big", 16 << 40)).unwrap().id;
    let border = 8u64 << 40;
    tape.fail(Some((Call::Reserve, "data.1", Errno::NOSPC)));
    assert_eq!(write(&store, big, border - 8 * 4096, vec![1; 9 * 4096]), Err(StoreError::NoSpace));
    assert_eq!(store.usage(big).unwrap().allocated_bytes, 0);
    write(&store, big, border - 8 * 4096, vec![2; 4096]).unwrap();
    let operations = vec![write_of(border - 4 * 4096, vec![3; 4096]), write_of(border - 8 * 4096, noise(4, 9 * 4096))];
    assert_eq!(run_together(&store, big, operations), [Ok(()), Err(StoreError::NoSpace)]);
    assert_eq!(store.usage(big).unwrap().allocated_bytes, 2 * 4096);
    assert_eq!(read(&store, big, border - 8 * 4096, 4096).unwrap(), vec![2; 4096]);
    assert_eq!(read(&store, big, border - 4 * 4096, 4096).unwrap(), vec![3; 4096]);
    tape.fail(Some((Call::Reserve, "checksums", Errno::DQUOT)));
    assert_eq!(write(&store, big, 0, vec![1; 4096]), Err(StoreError::NoSpace));
    assert_eq!(store.usage(big).unwrap().allocated_bytes, 2 * 4096);
}

#[test]
fn space_when_punching_needs_some_and_there_is_none_then_unmapped_all_the_same() {
    for (file, errno) in [("data", Errno::NOSPC), ("checksums", Errno::NOSPC), ("checksums", Errno::DQUOT)] {
        let (dir, tape, store, id) = with_tape();
        let big = store.create_volume(disk("big", 16 << 40)).unwrap().id;
        // On either side of the border of two pages of checksums, and far away.
        for offset in [(1 << 30) - 8192, 9 << 40] {
            write(&store, big, offset, noise(5, 16_384)).unwrap();
        }
        tape.fail(Some((Call::Punch, file, errno)));
        run(&store, id, Operation::Unmap { offset: 0, len: 4096 }).unwrap();
        assert_eq!(read(&store, id, 0, 4096).unwrap(), vec![0; 4096]);
        assert_eq!(read(&store, id, 4096, 4096).unwrap(), noise(10, 8192)[4096..]);
        let first = (1 << 30) - 4096;
        run(&store, big, Operation::Unmap { offset: first, len: (16 << 40) - first }).unwrap();
        let check = |store: &FileStore| {
            assert_eq!(read(store, big, first - 4096, 4096).unwrap(), noise(5, 16_384)[..4096]);
            assert_eq!(read(store, big, first, 16_384).unwrap(), vec![0; 16_384]);
            assert_eq!(read(store, big, 9 << 40, 16_384).unwrap(), vec![0; 16_384]);
        };
        check(&store);
        drop(store);
        tape.fail(None);
        check(&FileStore::open(dir.path(), &small()).unwrap());
    }
}

#[test]
fn journal_when_it_cannot_grow_then_only_the_longest_write_is_refused_and_keeps_no_space() {
    for errno in [Errno::NOSPC, Errno::DQUOT] {
        let (_dir, tape, store, id) = with_tape();
        let big = store.create_volume(disk("big", 1 << 30)).unwrap().id;
        write(&store, id, 0, vec![0; 160 << 10]).unwrap();
        tape.fail(Some((Call::Reserve, "journal", errno)));
        let overwrites = (0..10).map(|at| write_of(at * 16_384, vec![1; 16_384]));
        let operations = std::iter::once(write_of(0, vec![2; 4096])).chain(overwrites).collect();
        assert!(run_together(&store, id, operations).iter().all(Result::is_ok));
        let operations = [(0, 4096), (4096, 300 << 10), (1 << 20, 4096)];
        let operations = operations.map(|(offset, len)| write_of(offset, vec![3; len])).to_vec();
        assert_eq!(run_together(&store, big, operations), [Ok(()), Err(StoreError::NoSpace), Ok(())]);
        assert_eq!(store.usage(big).unwrap().allocated_bytes, 8192);
        assert_eq!(read(&store, big, 4096, 4096).unwrap(), vec![0; 4096]);
    }
}

#[test]
fn open_when_there_is_no_space_for_the_journal_then_it_makes_do_with_what_it_has() {
    let (dir, tape, store, id) = with_tape();
    drop(store);
    tape.fail(Some((Call::Reserve, "journal", Errno::NOSPC)));
    let store = FileStore::open(dir.path(), &Options { journal_bytes: 1 << 20, ..small() }).unwrap();
    (0..100).for_each(|round| write(&store, id, 0, noise(round, 8192)).unwrap());
    assert_eq!(read(&store, id, 0, 8192).unwrap(), noise(99, 8192));
}

#[test]
fn c2_device_when_a_call_fails_then_failed_for_good_and_nothing_acknowledged_is_lost() {
    let failures = [
        (Call::Sync, "journal", Errno::IO),
        (Call::Write, "journal", Errno::IO),
        (Call::Write, "journal", Errno::NOSPC),
        (Call::Write, "data", Errno::NOSPC),
        (Call::Write, "checksums", Errno::IO),
        (Call::Reserve, "data", Errno::IO),
    ];
    for failure in failures {
        let (dir, tape, store, id) = with_tape();
        write(&store, id, 0, noise(11, 4096)).unwrap();
        tape.fail(Some(failure));
        let failed = |result| matches!(result, Err(StoreError::DeviceFailed(_)));
        assert!(failed(write(&store, id, 8192, noise(12, 4096))), "{failure:?}");
        tape.fail(None);
        assert!(failed(write(&store, id, 8192, noise(12, 4096))));
        assert!(failed(read(&store, id, 0, 4096).map(|_| ())));
        assert!(failed(run(&store, id, Operation::Flush).map(|_| ())));
        assert!(matches!(store.create_volume(disk("x", 4096)), Err(VolumeError::Unavailable(_))));
        drop(store);
        let store = FileStore::open(dir.path(), &small()).unwrap();
        assert_eq!(read(&store, id, 0, 4096).unwrap(), noise(11, 4096));
        assert_eq!(read(&store, id, 4096, 4096).unwrap(), noise(10, 8192)[4096..]);
        let block = read(&store, id, 8192, 4096).unwrap();
        assert!(block == vec![0; 4096] || block == noise(12, 4096));
    }
}

#[test]
fn c2_checkpoint_when_its_sync_fails_then_the_journal_is_kept() {
    for file in ["data", "checksums"] {
        let (dir, tape, store, id) = with_tape();
        tape.fail(Some((Call::Sync, file, Errno::IO)));
        let mut acked = 0;
        let failed = (0..200u64).any(|round| match write(&store, id, 0, noise(round, 4096)) {
            Ok(()) => {
                acked = round;
                false
            }
            Err(error) => matches!(error, StoreError::DeviceFailed(_)),
        });
        assert!(failed, "the journal never came to its end");
        drop(store);
        tape.fail(None);
        let store = FileStore::open(dir.path(), &small()).unwrap();
        assert_eq!(read(&store, id, 0, 4096).unwrap(), noise(acked, 4096));
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write {
        offset: u64,
        len: u64,
        seed: u64,
    },
    Unmap {
        offset: u64,
        len: u64,
    },
    Read {
        offset: u64,
        len: u64,
    },
    /// Everything before it is answered before anything after it is submitted.
    Wait,
    Reopen,
}

/// A range of the volume: whole blocks as often as not.
fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..SIZE, prop_oneof![1u64..600, 1u64..30_000], any::<bool>()).prop_map(|(offset, len, aligned)| {
        let (offset, len) = if aligned { (offset / 4096 * 4096, len.next_multiple_of(4096)) } else { (offset, len) };
        (offset, len.min(SIZE - offset))
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (range(), any::<u64>()).prop_map(|((offset, len), seed)| Step::Write { offset, len, seed }),
        3 => range().prop_map(|(offset, len)| Step::Unmap { offset, len }),
        3 => range().prop_map(|(offset, len)| Step::Read { offset, len }),
        2 => Just(Step::Wait),
        1 => Just(Step::Reopen),
    ]
}

/// Carries out a step on the model; gives the operation for the store.
pub(crate) fn model(state: &mut [u8], step: &Step) -> Option<Operation> {
    let range = |offset: u64, len: u64| usize::try_from(offset).unwrap()..usize::try_from(offset + len).unwrap();
    match *step {
        Step::Write { offset, len, seed } => {
            let data = noise(seed, usize::try_from(len).unwrap());
            state[range(offset, len)].copy_from_slice(&data);
            Some(write_of(offset, data))
        }
        Step::Unmap { offset, len } => {
            state[range(offset, len)].fill(0);
            Some(Operation::Unmap { offset, len })
        }
        Step::Read { .. } | Step::Wait | Step::Reopen => None,
    }
}

/// Keeps the commit thread from taking anything, so that what is submitted meanwhile is one batch.
pub(crate) fn hold(store: &FileStore, volume: VolumeId) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (entered, entry) = mpsc::channel();
    store.submit(
        volume,
        Operation::Flush,
        Box::new(move |result| {
            entered.send(()).unwrap();
            if result.is_ok() {
                let _ = held.recv();
            }
        }),
    );
    entry.recv().unwrap();
    release
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn store_when_any_operations_then_as_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let (dir, mut store, id) = new_store();
        let mut state = vec![0; usize::try_from(SIZE).unwrap()];
        let mut held = Some(hold(&store, id));
        let (sender, receiver) = mpsc::channel();
        let mut waiting = 0;
        for step in steps.iter().chain([&Step::Reopen]) {
            if let Some(operation) = model(&mut state, step) {
                let sender = sender.clone();
                store.submit(id, operation, Box::new(move |result| sender.send(result).unwrap()));
                waiting += 1;
                continue;
            }
            held.take();
            for _ in 0..std::mem::take(&mut waiting) {
                prop_assert_eq!(receiver.recv().unwrap(), Ok(Output::default()));
            }
            if let Step::Read { offset, len } = *step {
                let expected = &state[usize::try_from(offset).unwrap()..usize::try_from(offset + len).unwrap()];
                prop_assert!(read(&store, id, offset, len).unwrap() == expected, "{:?}", step);
            }
            if let Step::Reopen = step {
                drop(store);
                store = FileStore::open(dir.path(), &small()).unwrap();
                prop_assert!(read(&store, id, 0, SIZE).unwrap() == state);
            }
            held = Some(hold(&store, id));
        }
        drop(held);
    }
}

#[test]
fn read_when_it_races_with_writes_then_each_block_is_one_of_them_and_never_goes_back() {
    let (_dir, store, id) = new_store();
    let store = std::sync::Arc::new(store);
    let rounds = 3000u64;
    let block = |round: u64| round.to_le_bytes().repeat(512);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let store = std::sync::Arc::clone(&store);
            scope.spawn(move || {
                let mut newest = [0; 4];
                while newest[3] < rounds {
                    let bytes = read(&store, id, 0, 4 * 4096).unwrap();
                    for (index, bytes) in bytes.chunks(4096).enumerate() {
                        let round = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                        assert_eq!(bytes, block(round));
                        assert!(round >= newest[index], "block {index} went back from {} to {round}", newest[index]);
                        newest[index] = round;
                    }
                }
            });
        }
        for round in 1..=rounds {
            if round % 7 == 0 {
                let data = block(round).repeat(4);
                write(&store, id, 0, data).unwrap();
            } else {
                for index in 0..4 {
                    write(&store, id, index * 4096, block(round)).unwrap();
                }
            }
        }
    });
}
