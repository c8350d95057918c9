//! Volumes over a stand-in of the engine that completes things late and in any order: what each operation answers, what
//! clients see when many are in flight, and what is kept.

mod concurrency;
mod fake;
mod history;
mod registry;

use std::sync::mpsc;

use bytes::Bytes;
use holdfast_proto::checksum;
use holdfast_proto::ids::ShardIndex;
use holdfast_proto::units::{BlockSize, SHARD_BYTES};

use self::fake::{Counters, Fake, Faults, Random};
use super::*;
use crate::ids::ShardId;
use crate::store::{MAX_OPERATION_BYTES, Output};

/// Two shards; the last block is only half there.
const SIZE: u64 = SHARD_BYTES + 40 * 4096 + 2048;

type Outcome = Result<Output, StoreError>;

fn disk(name: &str, size_bytes: u64) -> NewVolume {
    let name = name.parse().unwrap();
    NewVolume { name, size_bytes, block_size: BlockSize::B512, kind: Kind::Disk, read_only: false }
}

fn volumes(fake: Fake) -> (Arc<Fake>, Volumes, VolumeId) {
    let fake = Arc::new(fake);
    let volumes = Volumes::open(fake.clone(), Path::new("catalogue")).unwrap();
    let id = volumes.create_volume(disk("disk0", SIZE)).unwrap().id;
    (fake, volumes, id)
}

fn start(volumes: &Volumes, id: VolumeId, operation: Operation) -> mpsc::Receiver<Outcome> {
    let (sender, receiver) = mpsc::channel();
    volumes.submit(id, operation, Box::new(move |result| sender.send(result).unwrap()));
    receiver
}

fn run(fake: &Fake, volumes: &Volumes, id: VolumeId, operation: Operation) -> Outcome {
    let receiver = start(volumes, id, operation);
    fake.settle();
    receiver.try_recv().unwrap()
}

fn write_of(offset: u64, data: impl Into<Bytes>) -> Operation {
    let data = vec![data.into()];
    Operation::Write { offset, checksums: checksum::of_pieces(offset, &data), data }
}

fn shard(id: VolumeId, index: u32) -> ShardId {
    ShardId { volume: id, index: ShardIndex(index) }
}

struct Bench {
    fake: Arc<Fake>,
    volumes: Volumes,
    id: VolumeId,
}

impl Bench {
    fn new(fake: Fake) -> Self {
        let (fake, volumes, id) = volumes(fake);
        Self { fake, volumes, id }
    }

    fn run(&self, operation: Operation) -> Outcome {
        run(&self.fake, &self.volumes, self.id, operation)
    }

    fn start(&self, operation: Operation) -> mpsc::Receiver<Outcome> {
        start(&self.volumes, self.id, operation)
    }

    fn write(&self, offset: u64, data: impl Into<Bytes>) -> Result<(), StoreError> {
        self.run(write_of(offset, data)).map(|output| assert_eq!(output, Output::default()))
    }

    fn unmap(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.run(Operation::Unmap { offset, len }).map(|output| assert_eq!(output, Output::default()))
    }

    /// Reads, and checks the checksums of the answer.
    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, StoreError> {
        let output = self.run(Operation::Read { offset, len })?;
        assert_eq!(checksum::verify(offset, &output.data, &output.checksums), Ok(()));
        assert_eq!(checksum::len_bytes(&output.data), len);
        Ok(output.data.concat())
    }

    fn allocated_blocks(&self) -> u64 {
        self.volumes.usage(self.id).unwrap().allocated_bytes / 4096
    }
}

#[test]
fn write_when_any_alignment_then_read_back() {
    let bench = Bench::new(Fake::new(1));
    bench.write(300, vec![1; 10_000]).unwrap();
    assert_eq!(bench.read(300, 10_000).unwrap(), vec![1; 10_000]);
    assert_eq!(bench.read(0, 300).unwrap(), vec![0; 300]);
    assert_eq!(bench.read(10_300, 4096).unwrap(), vec![0; 4096]);
    bench.write(SHARD_BYTES - 5000, vec![2; 12_000]).unwrap();
    assert_eq!(bench.read(SHARD_BYTES - 5000, 12_000).unwrap(), vec![2; 12_000]);
    bench.write(SIZE - 3000, vec![3; 3000]).unwrap();
    assert_eq!(bench.read(SIZE - 3001, 3001).unwrap()[..2], [0, 3]);
    assert_eq!(bench.allocated_blocks(), 3 + 4 + 2);
}

#[test]
fn write_when_aligned_then_one_mutation_no_read_and_the_buffer_not_copied() {
    let bench = Bench::new(Fake::new(2));
    let data = Bytes::from(vec![1; 8192]);
    bench.write(4096, data.clone()).unwrap();
    let counters = bench.fake.counters();
    assert_eq!((counters.mutations, counters.reads), (1, 0));
    assert_eq!(bench.fake.block(shard(bench.id, 0), 1).unwrap().as_ptr(), data.as_ptr());
    // Up to the end of the volume, where half of the last block is none of it: nothing old is needed either.
    bench.write(SIZE - 2048, vec![1; 2048]).unwrap();
    assert_eq!(bench.fake.counters().reads, 0);
    assert_eq!(bench.fake.block(shard(bench.id, 1), 40).unwrap()[..], [vec![1; 2048], vec![0; 2048]].concat());
}

#[test]
fn g8_write_when_in_one_chunk_then_one_mutation_and_over_a_border_one_for_each_shard() {
    let bench = Bench::new(Fake::new(3));
    bench.write(512, vec![1; (64 << 10) - 1024]).unwrap();
    let counters = bench.fake.counters();
    assert_eq!((counters.mutations, counters.reads), (1, 2));
    bench.unmap(512, (64 << 10) - 1024).unwrap();
    assert_eq!(bench.fake.counters().mutations, 2);
    bench.write(SHARD_BYTES - 512, vec![1; 1024]).unwrap();
    assert_eq!(bench.fake.counters().mutations, 4);
}

#[test]
fn unmap_when_edges_are_partial_then_zeroed_and_holes_stay_holes() {
    let bench = Bench::new(Fake::new(4));
    bench.write(0, vec![1; 5 * 4096]).unwrap();
    bench.unmap(1000, 4 * 4096).unwrap();
    assert_eq!(bench.allocated_blocks(), 2);
    let expected = [vec![1; 1000], vec![0; 4 * 4096], vec![1; 3096]].concat();
    assert_eq!(bench.read(0, 5 * 4096).unwrap(), expected);
    // What is left of an edge goes too: it becomes a hole.
    bench.unmap(0, 1000).unwrap();
    assert_eq!(bench.allocated_blocks(), 1);
    // Of a hole, a part: nothing to do at all.
    let before = bench.fake.counters().mutations;
    bench.unmap(100, 50).unwrap();
    bench.unmap(5000, 1).unwrap();
    assert_eq!(bench.fake.counters().mutations, before);
    bench.unmap(4 * 4096 + 1000, 3096).unwrap();
    assert_eq!(bench.allocated_blocks(), 0);
    bench.write(SIZE - 2048, vec![1; 2048]).unwrap();
    bench.unmap(SIZE - 2048, 2048).unwrap();
    assert_eq!(bench.allocated_blocks(), 0);
}

#[test]
fn unmap_when_longer_than_memory_then_only_changed_shards_and_a_few_at_a_time() {
    let bench = Bench::new(Fake::new(5).late());
    let big = bench.volumes.create_volume(disk("big", MAX_VOLUME_BYTES)).unwrap().id;
    let run = |operation| run(&bench.fake, &bench.volumes, big, operation).unwrap();
    run(Operation::Unmap { offset: 0, len: MAX_VOLUME_BYTES });
    assert_eq!(bench.fake.counters().mutations, 0);
    for index in 0..100 {
        run(write_of(index * 3 * SHARD_BYTES + 4096, vec![1; 4096]));
    }
    run(write_of(MAX_VOLUME_BYTES - 4096, vec![1; 4096]));
    let before = bench.fake.counters();
    run(Operation::Unmap { offset: 100, len: MAX_VOLUME_BYTES - 200 });
    let counters = bench.fake.counters();
    assert_eq!(counters.mutations - before.mutations, 101);
    assert_eq!(counters.most_in_flight, 32);
    assert_eq!(bench.volumes.usage(big), Some(Usage { allocated_bytes: 4096 }));
}

#[test]
fn operation_when_not_allowed_then_refused() {
    let bench = Bench::new(Fake::new(6));
    for (offset, len) in [(SIZE, 1), (0, SIZE + 1), (u64::MAX, 2), (1, u64::MAX)] {
        assert_eq!(bench.run(Operation::Read { offset, len }), Err(StoreError::OutOfRange));
        assert_eq!(bench.run(Operation::Unmap { offset, len }), Err(StoreError::OutOfRange));
    }
    assert_eq!(bench.write(SIZE - 1, vec![0; 2]), Err(StoreError::OutOfRange));
    let long = usize::try_from(MAX_OPERATION_BYTES).unwrap() + 1;
    assert_eq!(bench.run(Operation::Read { offset: 0, len: long as u64 }), Err(StoreError::TooLong));
    assert_eq!(bench.write(0, vec![0; long]), Err(StoreError::TooLong));
    let far = SHARD_BYTES - MAX_OPERATION_BYTES / 2 + 7;
    bench.volumes.create_volume(disk("big", 1 << 40)).unwrap();
    let big = Bench { id: VolumeId(2), ..bench };
    big.write(far, vec![7; long - 1]).unwrap();
    assert!(big.read(far, MAX_OPERATION_BYTES).unwrap() == vec![7; long - 1]);
    assert_eq!(big.read(1 << 40, 0), Ok(Vec::new()));
    assert_eq!(big.write(1 << 40, Vec::new()), Ok(()));
    assert_eq!(big.unmap(1 << 40, 0), Ok(()));
    let nobody = Bench { id: VolumeId(7), ..big };
    assert_eq!(nobody.run(Operation::Flush), Err(StoreError::NoSuchVolume));
    assert_eq!(nobody.volumes.usage(VolumeId(7)), None);
}

#[test]
fn volume_when_null_or_read_only_then_so_it_behaves() {
    let bench = Bench::new(Fake::new(7));
    let null = bench.volumes.create_volume(NewVolume { kind: Kind::Null, ..disk("null", 1 << 40) }).unwrap();
    let fixed = bench.volumes.create_volume(NewVolume { read_only: true, ..disk("fixed", 4096) }).unwrap();
    let fixed = Bench { id: fixed.id, ..bench };
    assert_eq!(fixed.write(0, vec![1; 512]), Err(StoreError::ReadOnly));
    assert_eq!(fixed.unmap(0, 1), Err(StoreError::ReadOnly));
    assert_eq!(fixed.run(Operation::Flush), Ok(Output::default()));
    assert_eq!(fixed.read(0, 4096).unwrap(), vec![0; 4096]);
    let before = fixed.fake.counters();
    let null = Bench { id: null.id, ..fixed };
    null.write(0, vec![1; 4096]).unwrap();
    null.unmap(5, 1 << 39).unwrap();
    assert_eq!(null.read(100, 200_000).unwrap(), vec![0; 200_000]);
    assert_eq!(null.run(Operation::Flush), Ok(Output::default()));
    assert_eq!(null.fake.counters(), before);
    assert_eq!(null.volumes.usage(null.id), Some(Usage::default()));
}

#[test]
fn c6_payload_when_it_does_not_match_its_checksums_then_refused_and_nothing_changed() {
    let bench = Bench::new(Fake::new(8));
    bench.write(0, vec![5; 12_288]).unwrap();
    for (piece, at) in [512, 4096, 8192].into_iter().enumerate() {
        let Operation::Write { offset, data, mut checksums } = write_of(512, vec![6; 10_000]) else { unreachable!() };
        checksums[piece] ^= 0x8000;
        let result = bench.run(Operation::Write { offset, data, checksums });
        assert_eq!(result, Err(StoreError::PayloadCorrupt { offset: at }));
    }
    let none = Operation::Write { offset: 0, data: vec![Bytes::from(vec![1; 4096])], checksums: Vec::new() };
    assert_eq!(bench.run(none), Err(StoreError::PayloadCorrupt { offset: 0 }));
    let left_over = Operation::Write { offset: 0, data: Vec::new(), checksums: vec![0] };
    assert_eq!(bench.run(left_over), Err(StoreError::PayloadCorrupt { offset: 0 }));
    assert_eq!(bench.read(0, 12_288).unwrap(), vec![5; 12_288]);
}

#[test]
fn c5_block_when_bad_then_not_merged_but_can_be_replaced() {
    let bench = Bench::new(Fake::new(9));
    bench.write(SHARD_BYTES, vec![1; 3 * 4096]).unwrap();
    bench.fake.set_faults(Faults { bad: [(shard(bench.id, 1), 1)].into(), ..Faults::default() });
    let bad = StoreError::Checksum { offset: SHARD_BYTES + 4096 };
    assert_eq!(bench.read(SHARD_BYTES - 100, 3 * 4096), Err(bad.clone()));
    assert_eq!(bench.read(SHARD_BYTES, 4096).unwrap(), vec![1; 4096]);
    assert_eq!(bench.write(SHARD_BYTES + 5000, vec![2; 512]), Err(bad.clone()));
    assert_eq!(bench.write(SHARD_BYTES - 100, vec![2; 5000]), Err(bad.clone()));
    assert_eq!(bench.unmap(SHARD_BYTES + 5000, 512), Err(bad));
    assert_eq!(bench.read(SHARD_BYTES - 100, 100).unwrap(), vec![0; 100]);
    bench.write(SHARD_BYTES + 4096, vec![2; 4096]).unwrap();
    bench.write(SHARD_BYTES + 5000, vec![3; 512]).unwrap();
    assert_eq!(bench.read(SHARD_BYTES + 4999, 3).unwrap(), [2, 3, 3]);
}

#[test]
fn operation_when_the_engine_refuses_then_its_error_and_what_waits_goes_on() {
    let bench = Bench::new(Fake::new(10));
    bench.write(0, vec![1; 4096]).unwrap();
    let apply = [(shard(bench.id, 1), StoreError::NoSpace)].into();
    bench.fake.set_faults(Faults { apply, ..Faults::default() });
    assert_eq!(bench.write(SHARD_BYTES - 4096, vec![2; 8192]), Err(StoreError::NoSpace));
    let first = bench.start(write_of(SHARD_BYTES + 100, vec![2; 100]));
    let second = bench.start(write_of(SHARD_BYTES + 200, vec![2; 100]));
    bench.fake.settle();
    assert_eq!([first.recv().unwrap(), second.recv().unwrap()], [Err(StoreError::NoSpace), Err(StoreError::NoSpace)]);
    bench.fake.set_faults(Faults::default());
    bench.write(SHARD_BYTES + 100, vec![3; 100]).unwrap();
    let failed = StoreError::DeviceFailed("it burns".into());
    bench.fake.set_faults(Faults { health: Some(failed.clone()), ..Faults::default() });
    assert_eq!(bench.write(0, vec![2; 4096]), Err(failed.clone()));
    assert_eq!(bench.write(1, vec![2; 4096]), Err(failed.clone()));
    assert_eq!(bench.read(0, 4096), Err(failed.clone()));
    assert_eq!(bench.run(Operation::Flush), Err(failed.clone()));
    let refused = bench.volumes.create_volume(disk("x", 4096));
    assert!(matches!(refused, Err(VolumeError::Unavailable(error)) if error == failed));
}

#[test]
fn flush_when_submitted_then_after_what_was_before_it() {
    let bench = Bench::new(Fake::new(11).late());
    assert_eq!(bench.start(Operation::Flush).try_recv(), Ok(Ok(Output::default())));
    let write = bench.start(write_of(0, vec![1; 512]));
    let waiting = bench.start(write_of(512, vec![1; 512]));
    let read = bench.start(Operation::Read { offset: 0, len: 4096 });
    let flush = bench.start(Operation::Flush);
    while flush.try_recv().is_err() {
        assert!(bench.fake.step());
    }
    assert!(write.try_recv().is_ok() && waiting.try_recv().is_ok() && read.try_recv().is_ok());
}

#[test]
fn close_when_operations_are_in_flight_then_they_are_answered_and_later_ones_refused() {
    let bench = Bench::new(Fake::new(12).late());
    let started: Vec<_> = (0..40).map(|at| bench.start(write_of(at * 1000, vec![1; 1000]))).collect();
    let flush = bench.start(Operation::Flush);
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| bench.volumes.close());
        let mut probes = Vec::new();
        loop {
            let probe = bench.start(Operation::Flush);
            if probe.try_recv() == Ok(Err(StoreError::Closed)) {
                break;
            }
            probes.push(probe);
            std::thread::yield_now();
        }
        assert!(!closing.is_finished());
        bench.fake.settle();
        assert!(probes.iter().all(|receiver| receiver.try_recv() == Ok(Ok(Output::default()))));
    });
    assert!(started.iter().all(|receiver| receiver.try_recv() == Ok(Ok(Output::default()))));
    assert_eq!(flush.try_recv(), Ok(Ok(Output::default())));
    let zero = Operation::Read { offset: 0, len: 0 };
    for operation in [write_of(0, vec![0; 4096]), Operation::Read { offset: 0, len: 1 }, zero] {
        assert_eq!(bench.run(operation), Err(StoreError::Closed));
    }
    assert_eq!(bench.unmap(0, 1), Err(StoreError::Closed));
    let late = bench.volumes.create_volume(disk("late", 4096));
    assert!(matches!(late, Err(VolumeError::Unavailable(StoreError::Closed))));
    assert_eq!(bench.fake.counters().closes, 1);
}

#[test]
fn completion_when_it_submits_or_closes_then_neither_deadlock_nor_deep_stack() {
    let (fake, volumes, id) = volumes(Fake::new(13).inline());
    let volumes = Arc::new(volumes);
    // Each completion starts the next write of the same block.
    fn next(volumes: &Arc<Volumes>, id: VolumeId, left: u64, sender: mpsc::Sender<()>) {
        let again = Arc::clone(volumes);
        let done = move |result: Outcome| {
            assert_eq!(result, Ok(Output::default()));
            if left > 0 {
                return next(&again, id, left - 1, sender);
            }
            again.close();
            sender.send(()).unwrap();
        };
        volumes.submit(id, write_of(left % 3 * 512, vec![1; 512]), Box::new(done));
    }
    let (sender, receiver) = mpsc::channel();
    next(&volumes, id, 20_000, sender);
    receiver.try_recv().unwrap();
    assert_eq!(fake.counters().mutations, 20_001);
    assert_eq!(fake.counters().closes, 0);
    volumes.close();
    assert_eq!(fake.counters().closes, 1);
}

#[test]
fn writes_when_thousands_wait_for_one_block_then_in_order_and_no_deep_stack() {
    let bench = Bench::new(Fake::new(14).late());
    let first = bench.start(write_of(0, vec![1; 4096]));
    let byte = |at: u64| u8::try_from(at % 256).unwrap();
    let waiting: Vec<_> = (0..5000u64).map(|at| bench.start(write_of(at % 4096, vec![byte(at)]))).collect();
    // From here on the engine answers at once.
    bench.fake.settle();
    assert!(
        first.try_recv().is_ok() && waiting.iter().all(|receiver| receiver.try_recv() == Ok(Ok(Output::default())))
    );
    let expected: Vec<u8> = (0..4096u64).map(|at| byte(if at < 904 { at + 4096 } else { at })).collect();
    assert_eq!(bench.read(0, 4096).unwrap(), expected);
    assert_eq!(bench.fake.counters(), Counters { mutations: 5001, reads: 5001, ..bench.fake.counters() });
}
