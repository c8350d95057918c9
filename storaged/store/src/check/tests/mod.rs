//! A small store is built, one structure of it is damaged, and the check has to find just that.

mod damage;
mod flips;

use std::sync::Mutex;

use bytes::Bytes;
use holdfast_proto::ids::{ShardIndex, VolumeId};
use holdfast_proto::units::{BLOCK_LEN, BlockSize};

use super::*;
use crate::catalogue::Changes;
use crate::catalogue::model::ModelCatalogue;
use crate::checkpoint::{Progress, Run, Shared};
use crate::device::{Power, SimDisk};
use crate::format::entry::Entry;
use crate::format::{AllocationPage, keys};
use crate::ids::{CHUNK_LEN, ChunkIndex, DiskUuid, ShardId, Version};
use crate::machine::{Bounds, ChunkId, Machine, Work};
use crate::operation::{Change, Mutation};
use crate::recovery;
use crate::store::{Kind, VolumeRecord};
use crate::volumes::record;

/// Keeps all that it is told.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) findings: Vec<Finding>,
    pub(super) notes: Vec<String>,
    pub(super) progress: (u64, u64),
}

impl Observer for Seen {
    fn found(&mut self, finding: &Finding) {
        self.findings.push(finding.clone());
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    fn progress(&mut self, chunks: u64, total_chunks: u64) {
        self.progress = (chunks, total_chunks);
    }
}

pub(super) const SHARD: ShardId = ShardId { volume: VolumeId(1), index: ShardIndex(1) };

/// Byte of the volume at which the shard begins.
pub(super) const SHARD_AT: u64 = 1 << 30;

/// A store without threads.
pub(super) struct Bench<D = SimDisk, C = ModelCatalogue> {
    pub(super) device: D,
    pub(super) catalogue: C,
    pub(super) superblock: Superblock,
    machine: Mutex<Machine<()>>,
    sequence: u64,
}

impl<D: Device, C: Catalogue> Shared<()> for Bench<D, C> {
    fn with<R>(&self, use_it: impl FnOnce(&mut Machine<()>) -> R) -> R {
        use_it(&mut self.machine.lock().unwrap())
    }

    fn retire(&self, _: Vec<(ChunkId, Option<Entry>)>) {}
}

impl Bench {
    /// An empty store with one volume, `disk0` of 4 GiB.
    pub(super) fn new() -> Self {
        let superblock = Superblock::new(DiskUuid([7; 16]), 3, [9; 16], 1 << 20).unwrap();
        Self::make(SimDisk::new(0, 1), ModelCatalogue::new(Power::new(), 1), superblock, 64)
    }

    /// As most tests need it: chunks 0 to 3 whole and checkpointed, block 65 (of chunk 4) as well; then block 1 and chunk 3 written anew,
    /// and block 80 (of chunk 5), in the journal only.
    pub(super) fn with_data() -> Self {
        let mut bench = Self::new();
        for chunk in 0..4u8 {
            bench.write(u32::from(chunk) * 16, &[chunk + 1; 16]);
        }
        bench.write(65, &[70]);
        bench.checkpoint();
        bench.write(1, &[81]);
        bench.write(48, &[84; 16]);
        bench.write(80, &[85]);
        bench.seal();
        bench
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { uuid: self.superblock.uuid, node_id: self.superblock.node_id }
    }

    pub(super) fn check(&self) -> (Seen, Summary) {
        let mut seen = Seen::default();
        let mut report = Report::new(&mut seen);
        check_parts(&mut report, Some(self.identity()), Some(&self.device), Some(&self.catalogue));
        let summary = report.summary;
        (seen, summary)
    }

    /// What is found, as problems and byte ranges of the volume.
    pub(super) fn found(&self) -> Vec<(Problem, Option<(u64, u64)>)> {
        let (seen, _) = self.check();
        let range = |finding: &Finding| finding.range.as_ref().map(|range| (range.bytes.start, range.bytes.end));
        seen.findings.iter().map(|finding| (finding.problem, range(finding))).collect()
    }

    /// The entry as the catalogue has it.
    pub(super) fn entry(&self, chunk: u16) -> Entry {
        let chunk = ChunkIndex::new(chunk).unwrap();
        Entry::parse(SHARD, chunk, &self.catalogue.get(&keys::map(SHARD, chunk)).unwrap().unwrap()).unwrap()
    }

    pub(super) fn put_entry(&self, chunk: u16, entry: &Entry) {
        let chunk = ChunkIndex::new(chunk).unwrap();
        self.catalogue.plant(keys::map(SHARD, chunk), entry.encode(SHARD, chunk));
    }

    pub(super) fn page(&self) -> AllocationPage {
        AllocationPage::parse(0, &self.catalogue.get(&keys::allocation(0)).unwrap().unwrap()).unwrap()
    }

    /// Place of a chunk's block on the device, as of the checkpoint.
    pub(super) fn place(&self, chunk: u16, block: u64) -> u64 {
        let slot = self.entry(chunk).content.unwrap().slot;
        self.superblock.slots_offset + u64::from(slot.0) * CHUNK_LEN as u64 + block * BLOCK_LEN as u64
    }
}

impl<D: Device, C: Catalogue> Bench<D, C> {
    /// A store with one volume.
    pub(super) fn make(device: D, catalogue: C, superblock: Superblock, slots: u32) -> Self {
        recovery::create(&device, &catalogue, &superblock, slots).unwrap();
        let volume = VolumeRecord {
            id: VolumeId(1),
            name: "disk0".parse().unwrap(),
            naa: 0x3000_0000_0000_0001,
            size_bytes: 4 << 30,
            block_size: BlockSize::B512,
            kind: Kind::Disk,
            read_only: false,
        };
        let mut changes = Changes::default();
        changes.put(keys::volume(volume.id), record::encode(&volume));
        changes.put(record::counter_key(), record::encode_counter(2));
        catalogue.commit(&changes).unwrap();
        let machine = recovery::recover(&device, &catalogue, &superblock, Bounds::default()).unwrap().machine;
        Self { device, catalogue, superblock, machine: Mutex::new(machine), sequence: 0 }
    }

    /// The machine as it is after a start: the catalogue's entries are nowhere else.
    pub(super) fn reopen(&mut self) {
        let recovered = recovery::recover(&self.device, &self.catalogue, &self.superblock, Bounds::default());
        self.machine = Mutex::new(recovered.unwrap().machine);
    }

    pub(super) fn write(&mut self, first_block: u32, blocks: &[u8]) {
        let data: Vec<Bytes> = blocks.iter().map(|byte| Bytes::from(vec![*byte; BLOCK_LEN])).collect();
        let crcs = data.iter().map(|block| crc32c::crc32c(block)).collect();
        self.change(Change::Write { first_block, data, crcs });
    }

    pub(super) fn change(&mut self, change: Change) {
        self.sequence += 1;
        let at = Version { term: 1, sequence: self.sequence };
        let mutation =
            Mutation { shard: SHARD, at, chunk_version: None, committed: 0, operation: None, changes: vec![change] };
        let machine = self.machine.get_mut().unwrap();
        machine.submit(Work::Mutate(mutation), ()).unwrap();
        let batch = machine.form(&mut Vec::new()).unwrap().unwrap();
        let (writes, payload) = batch.writes(1);
        self.device.write_durably(&writes).unwrap();
        assert_eq!(machine.applied(&payload), [((), Ok(()))]);
    }

    pub(super) fn seal(&mut self) {
        let machine = self.machine.get_mut().unwrap();
        let (writes, payload) = machine.form_seal().unwrap().writes(1);
        self.device.write_durably(&writes).unwrap();
        machine.applied(&payload);
    }

    pub(super) fn checkpoint(&self) {
        let mut run = Run::begin(self, self.superblock.uuid).unwrap();
        while run.step(self, &self.device, &self.catalogue).unwrap() != Progress::Done {}
    }
}

/// Bytes of the volume that blocks of the shard are.
pub(super) fn bytes(first_block: u64, blocks: u64) -> Option<(u64, u64)> {
    let start = SHARD_AT + first_block * BLOCK_LEN as u64;
    Some((start, start + blocks * BLOCK_LEN as u64))
}

#[test]
fn check_when_all_is_good_then_clean_and_everything_counted() {
    let (seen, summary) = Bench::with_data().check();
    assert_eq!(seen.findings, []);
    assert!(seen.notes.is_empty(), "{:?}", seen.notes);
    assert_eq!(seen.progress, (6, 6));
    assert_eq!(summary, Summary { damage: 0, waste: 0, volumes: 1, shards: 1, chunks: 6, batches: 4 });
    let mut journal_only = Bench::new();
    journal_only.write(3, &[1]);
    let (_, summary) = journal_only.check();
    assert_eq!((summary.shards, summary.chunks, summary.is_clean()), (1, 1, true));
    let (seen, summary) = Bench::new().check();
    assert!(summary.is_clean() && seen.notes.is_empty(), "{seen:?}");
}

#[test]
fn check_when_stopped_at_any_step_of_a_checkpoint_then_clean() {
    let mut steps = 0;
    for stop in 0.. {
        let mut bench = Bench::with_data();
        bench.change(Change::Hole { first_block: 16, blocks: 16 });
        bench.change(Change::Hole { first_block: 65, blocks: 1 });
        bench.change(Change::Hole { first_block: 33, blocks: 2 });
        bench.write(90, &[1, 2, 3]);
        let mut run = Run::begin(&bench, bench.superblock.uuid).unwrap();
        let mut done = false;
        for _ in 0..stop {
            done |= run.step(&bench, &bench.device, &bench.catalogue).unwrap() == Progress::Done;
        }
        if !done {
            bench.write(100, &[7; 40]);
            bench.write(1, &[9]);
        }
        assert_eq!(bench.found(), [], "stopped after {stop} steps");
        steps = stop;
        if done {
            break;
        }
    }
    assert!(steps > 5);
}
