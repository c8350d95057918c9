//! The engine with its threads, on a simulated disk.

use std::mem::ManuallyDrop;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::ids::{ShardIndex, VolumeId};
use holdfast_proto::units::BLOCK_LEN;

use super::*;
use crate::catalogue::Changes;
use crate::catalogue::model::{KeyFault, ModelCatalogue};
use crate::checkpoint::{Progress, Run};
use crate::device::{DeviceTraits, Power, SimDisk};
use crate::format::{Superblock, keys};
use crate::ids::{CHUNK_BYTES, Version};
use crate::machine::{Bounds, Cold, ReadPlan};
use crate::operation::{BlocksRead, Change};
use crate::recovery;

const SHARD: ShardId = ShardId { volume: VolumeId(1), index: ShardIndex(0) };

struct Plenty;

impl FreeSpace for Plenty {
    fn free_bytes(&self) -> u64 {
        u64::MAX
    }
}

/// A disk that survives its engine.
struct Bench {
    device: Arc<SimDisk>,
    catalogue: Arc<ModelCatalogue>,
    superblock: Superblock,
}

impl Bench {
    fn new(instant: bool) -> Self {
        Self::with_slots(instant, 64)
    }

    fn with_slots(instant: bool, slots: u32) -> Self {
        let traits = DeviceTraits { instant, direct: false, memory_align: 1 };
        let device = Arc::new(SimDisk::new(0, 1).with_traits(traits));
        let catalogue = Arc::new(ModelCatalogue::new(Power::new(), 1));
        let superblock = Superblock::new(DiskUuid([7; 16]), 3, [9; 16], 4 << 20).unwrap();
        recovery::create(&*device, &*catalogue, &superblock, slots).unwrap();
        Self { device, catalogue, superblock }
    }

    fn open(&self) -> Engine {
        self.open_with(Box::new(Plenty))
    }

    fn open_with(&self, free_space: Box<dyn FreeSpace>) -> Engine {
        let bounds = Bounds { overlay_bytes: 1 << 20, ..Bounds::default() };
        let recovered = recovery::recover(&*self.device, &*self.catalogue, &self.superblock, bounds).unwrap();
        let settings = EngineSettings {
            reader_threads: 2,
            cold_map_bytes: 1 << 20,
            space_reserve_bytes: 0,
            soft_threshold_percent: 80,
            scrub_bytes_per_second: 0,
        };
        Engine::start(
            self.device.clone(),
            self.catalogue.clone(),
            recovered,
            self.superblock.uuid,
            free_space,
            settings,
        )
        .unwrap()
    }
}

fn write(sequence: u64, first_block: u32, blocks: &[u8]) -> Mutation {
    let data: Vec<Bytes> = blocks.iter().map(|byte| Bytes::from(vec![*byte; BLOCK_LEN])).collect();
    let crcs = data.iter().map(|block| crc32c::crc32c(block)).collect();
    mutation(sequence, Change::Write { first_block, data, crcs })
}

fn mutation(sequence: u64, change: Change) -> Mutation {
    let at = Version { term: 1, sequence };
    Mutation { shard: SHARD, at, chunk_version: None, committed: 0, operation: None, changes: vec![change] }
}

fn apply(engine: &Engine, mutation: Mutation) -> Result<(), StoreError> {
    let (send, receive) = mpsc::channel();
    engine.apply(mutation, Box::new(move |result| send.send(result).unwrap()));
    receive.recv().unwrap()
}

fn read(engine: &Engine, first_block: u32, blocks: u32) -> Result<Vec<u8>, StoreError> {
    let (send, receive) = mpsc::channel();
    engine.read(SHARD, first_block, blocks, Box::new(move |result| send.send(result).unwrap()));
    receive.recv().unwrap().map(|read: BlocksRead| {
        let bytes = read.data.concat();
        let expected: Vec<u32> = bytes.chunks(BLOCK_LEN).map(crc32c::crc32c).collect();
        assert_eq!(read.crcs, expected);
        bytes.chunks(BLOCK_LEN).map(|block| block[0]).collect()
    })
}

#[test]
fn engine_when_written_and_opened_again_then_the_same_blocks() {
    for instant in [false, true] {
        let bench = Bench::new(instant);
        let engine = bench.open();
        apply(&engine, write(1, 3, &[1, 2, 3])).unwrap();
        apply(&engine, write(2, 16, &[4; 16])).unwrap();
        apply(&engine, write(3, 20, &[5; 20])).unwrap();
        apply(&engine, mutation(4, Change::Hole { first_block: 4, blocks: 14 })).unwrap();
        let expected = [vec![0, 0, 0, 1], vec![0; 14], vec![4, 4], vec![5; 20], vec![0; 8]].concat();
        assert_eq!(read(&engine, 0, 48).unwrap(), expected);
        assert_eq!(engine.allocated_bytes(VolumeId(1)), 3 * CHUNK_BYTES);
        engine.close();
        assert_eq!(apply(&engine, write(5, 0, &[1])), Err(StoreError::Closed));
        let engine = bench.open();
        assert_eq!(read(&engine, 0, 48).unwrap(), expected);
        assert_eq!(engine.shard_state(SHARD).last, Version { term: 1, sequence: 4 });
        assert_eq!(engine.allocated_bytes(VolumeId(1)), 3 * CHUNK_BYTES);
    }
}

#[test]
fn engine_when_far_more_is_written_than_journal_and_memory_hold_then_all_of_it_is_read() {
    for instant in [false, true] {
        let bench = Bench::new(instant);
        let engine = bench.open();
        let (send, receive) = mpsc::channel();
        let mut content = vec![0u8; 4096];
        for sequence in 0..6000u64 {
            let first = u32::try_from(sequence * 7919 % 4090).unwrap();
            let byte = u8::try_from(sequence % 250 + 1).unwrap();
            let len = usize::try_from(sequence % 5 + 1).unwrap();
            let (mutation, range) = match sequence % 9 {
                0 => (
                    write(sequence, first / 16 * 16, &[byte; 16]),
                    first as usize / 16 * 16..first as usize / 16 * 16 + 16,
                ),
                _ => (write(sequence, first, &vec![byte; len]), first as usize..first as usize + len),
            };
            content[range].fill(byte);
            let send = send.clone();
            engine.apply(mutation, Box::new(move |result| send.send(result).unwrap()));
            if sequence % 32 == 31 {
                (0..32).for_each(|_| receive.recv().unwrap().unwrap());
            }
        }
        (0..6000 % 32).for_each(|_| receive.recv().unwrap().unwrap());
        for from in (0..4096).step_by(512) {
            assert_eq!(read(&engine, from, 512).unwrap(), content[from as usize..from as usize + 512]);
        }
        let statistics = engine.statistics();
        assert!(statistics.checkpoints > 3, "{statistics:?}");
        drop(engine);
        let engine = bench.open();
        assert_eq!(read(&engine, 0, 4096).unwrap(), content);
    }
}

#[test]
fn scrub_when_a_block_has_rotten_then_counted_and_the_rest_is_read() {
    let bench = Bench::new(false);
    let engine = bench.open();
    for sequence in 1..=20u64 {
        let first = u32::try_from(sequence).unwrap() * 16;
        apply(&engine, write(sequence, first, &[7; 16])).unwrap();
    }
    let mut asked = Vec::new();
    assert!(scrub::pass(&engine.inner, 3, |bytes| {
        asked.push(bytes);
        true
    }));
    let statistics = engine.statistics();
    assert_eq!((statistics.scrubbed_chunks, statistics.scrub_findings, statistics.scrub_passes), (20, 0, 1));
    assert_eq!(asked, [1 << 20]);
    // Slots are given out from the first on.
    bench.device.rot(bench.superblock.slots_offset + 5 * CHUNK_BYTES + 9, 1);
    assert!(scrub::pass(&engine.inner, 0, |_| true));
    let statistics = engine.statistics();
    assert_eq!((statistics.scrubbed_chunks, statistics.scrub_findings, statistics.scrub_passes), (40, 1, 2));
    assert!(!scrub::pass(&engine.inner, 0, |_| false));
    assert_eq!(engine.statistics().scrub_passes, 2);
}

struct Nothing;

impl FreeSpace for Nothing {
    fn free_bytes(&self) -> u64 {
        0
    }
}

/// Longer than anything takes here that comes to its end.
const DEADLINE: Duration = Duration::from_secs(20);

/// Fails when it does not come to its end.
fn close_in_time(engine: Engine) {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        engine.close();
        send.send(()).unwrap();
    });
    receive.recv_timeout(DEADLINE).expect("the engine does not close");
}

#[test]
fn close_when_the_catalogue_has_no_space_then_it_ends_and_the_journal_has_everything() {
    let bench = Bench::new(false);
    let engine = bench.open();
    apply(&engine, write(1, 3, &[1, 2, 3])).unwrap();
    bench.catalogue.fail(keys::checkpoint(), KeyFault::NoSpace);
    close_in_time(engine);
    bench.catalogue.heal(&keys::checkpoint());
    assert_eq!(read(&bench.open(), 3, 3).unwrap(), [1, 2, 3]);
}

#[test]
fn write_when_slots_come_back_only_with_the_end_of_a_read_then_it_goes_on() {
    let bench = Bench::with_slots(false, 256);
    // Should it be stuck, so would be its end.
    let engine = ManuallyDrop::new(bench.open_with(Box::new(Nothing)));
    for chunk in 0..256u32 {
        apply(&engine, write(u64::from(chunk) + 1, chunk * 16, &[7; 16])).unwrap();
    }
    apply(&engine, mutation(300, Change::Hole { first_block: 0, blocks: 200 * 16 })).unwrap();
    // A read is planned while a checkpoint runs, and is not over when that ends.
    let inner = &engine.inner;
    let mut run = Run::begin(&**inner, inner.uuid).unwrap();
    let ReadPlan::Ready { planned, .. } = inner.lock().machine.plan_read(SHARD, 0, 1, |_| Cold::Unknown) else {
        panic!("a hole needs no entry")
    };
    while run.step(&**inner, &*bench.device, &*bench.catalogue).unwrap() != Progress::Done {}
    let (send, receive) = mpsc::channel();
    engine.apply(write(301, 8000, &[8; 16]), Box::new(move |result| send.send(result).unwrap()));
    let waits = || {
        let control = inner.lock();
        control.stalled && control.machine.wants_slots().is_none()
    };
    while !waits() {
        thread::yield_now();
    }
    inner.read_is_over(&mut inner.lock(), planned);
    receive.recv_timeout(DEADLINE).expect("it is stuck").unwrap();
    close_in_time(ManuallyDrop::into_inner(engine));
}

#[test]
fn write_when_the_map_has_lost_its_chunk_then_it_is_kept_and_the_rest_is_an_error() {
    let bench = Bench::new(false);
    let engine = bench.open();
    apply(&engine, write(1, 0, &[7; 16])).unwrap();
    drop(engine);
    let mut changes = Changes::default();
    changes.delete(keys::map(SHARD, ChunkIndex::new(0).unwrap()));
    bench.catalogue.commit(&changes).unwrap();
    let engine = bench.open();
    assert!(matches!(read(&engine, 1, 1), Err(StoreError::Unreadable { .. })));
    apply(&engine, write(2, 3, &[9])).unwrap();
    drop(engine);
    for _ in 0..2 {
        let engine = bench.open();
        assert_eq!(read(&engine, 3, 1), Ok(vec![9]));
        assert!(matches!(read(&engine, 1, 1), Err(StoreError::Unreadable { .. })));
    }
}

#[test]
fn space_when_more_is_in_use_than_the_threshold_then_low_until_it_is_unmapped() {
    let bench = Bench::new(false);
    let engine = bench.open_with(Box::new(Nothing));
    let look = |engine: &Engine| {
        let gauges = engine.statistics().gauges;
        space::look(&engine.inner, &gauges);
        engine.statistics()
    };
    assert_eq!(look(&engine).usable_bytes, 64 * CHUNK_BYTES);
    for chunk in 0..52u32 {
        assert!(!look(&engine).space_is_low, "{chunk}");
        apply(&engine, write(u64::from(chunk) + 1, chunk * 16, &[7; 16])).unwrap();
    }
    assert!(look(&engine).space_is_low);
    apply(&engine, mutation(60, Change::Hole { first_block: 0, blocks: 4096 })).unwrap();
    engine.close();
    // The slots come back with the last checkpoint.
    assert!(!look(&engine).space_is_low);
}

#[test]
fn engine_when_a_sync_fails_then_nothing_is_served_any_more() {
    use crate::device::sim::{Fault, FaultPlan};
    let bench = Bench::new(false);
    let engine = bench.open();
    apply(&engine, write(1, 0, &[1])).unwrap();
    bench.device.set_faults(FaultPlan::new([Fault::SyncError { sync: bench.device.statistics().syncs }]));
    assert!(matches!(apply(&engine, write(2, 0, &[2])), Err(StoreError::DeviceFailed(_))));
    assert!(matches!(apply(&engine, write(3, 0, &[3])), Err(StoreError::DeviceFailed(_))));
    assert!(matches!(read(&engine, 0, 1), Err(StoreError::DeviceFailed(_))));
    assert!(engine.failure().is_some());
}
