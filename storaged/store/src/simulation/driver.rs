//! One life of a node: the shell around the state machine that the engine has threads for, on one thread, with the seed deciding what
//! happens next.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use holdfast_proto::units::BLOCK_LEN;

use super::compare::{Found, numbers};
use super::model::Model;
use super::probe::{Probe, look};
use super::workload::{Workload, chunks, shards};
use super::{Node, Summary};
use crate::catalogue::Catalogue;
use crate::catalogue::model::KeyFault;
use crate::checkpoint::{Progress, Run, Shared, read_entries};
use crate::device::sim::{FaultPlan, Random};
use crate::device::{Device, DeviceWrite};
use crate::error::StoreError;
use crate::format::CheckpointRecord;
use crate::format::entry::{Content, Entry};
use crate::format::keys;
use crate::ids::{BLOCKS_PER_SHARD, CHUNK_BLOCKS, CHUNK_BYTES, ChunkIndex, ShardId};
use crate::journal::ring::Ring;
use crate::machine::{ChunkId, Cold, Epoch, Lower, Machine, Piece, ReadPlan, Work};
use crate::mutants::{Mutant, broken};
use crate::read::carry_out;
use crate::recovery::recover;

/// Operations of a life.
const OPERATIONS: usize = 60;

/// Most reads at the same time.
const READS: usize = 4;

/// Steps after which a life that cannot come to its end is stuck.
const STEPS: usize = 20_000;

/// Slots by which the file grows.
const GROWTH: u32 = 12;

/// The state machine, and what the cache of map entries knows.
struct Mind {
    machine: RefCell<Machine<usize>>,
    cold: RefCell<BTreeMap<ChunkId, Option<Content>>>,
}

impl Shared<usize> for Mind {
    fn with<R>(&self, use_it: impl FnOnce(&mut Machine<usize>) -> R) -> R {
        use_it(&mut self.machine.borrow_mut())
    }

    fn retire(&self, entries: Vec<(ChunkId, Option<Entry>)>) {
        let contents = entries.into_iter().map(|(id, entry)| (id, entry.and_then(|entry| entry.content)));
        self.cold.borrow_mut().extend(contents);
    }
}

/// A batch on its way.
struct Flying {
    writes: Vec<DeviceWrite>,
    payload: Bytes,
    operations: usize,
}

/// A read on its way.
struct Reading {
    shard: ShardId,
    first: u32,
    /// The numbers that it has to find.
    expected: Vec<u64>,
    pieces: Vec<Piece>,
    planned: Epoch,
}

/// A read that waits for the catalogue.
struct Loading {
    shard: ShardId,
    first: u32,
    count: u32,
    chunks: Vec<ChunkIndex>,
    checkpoint: u64,
    loaded: Option<BTreeMap<ChunkIndex, Option<Content>>>,
}

/// A life.
pub(super) struct Life {
    probe: Probe,
    mind: Mind,
    random: Random,
    workload: Workload,
    left: usize,
    /// Submitted, and in no batch yet; with the tag.
    queue: VecDeque<(usize, Work)>,
    tag: usize,
    flying: Option<Flying>,
    run: Option<Run>,
    reads: Vec<Reading>,
    loads: Vec<Loading>,
    no_more_slots: bool,
    catalogue_is_full: bool,
    failed: bool,
    trace: u64,
    acknowledged: u64,
    compared: u64,
    checkpoints: u64,
}

/// What a life has left.
pub(super) struct Ended {
    pub(super) node: Node,
    pub(super) model: Model,
    pending: Model,
    journal_used_bytes: u64,
}

impl Ended {
    /// A bit turns over where it matters, and the node starts.
    pub(super) fn rot(self, random: &mut Random) -> Result<(), String> {
        let Self { node, model, journal_used_bytes, .. } = self;
        let bit = random.below(8) as u8;
        let place = match random.below(3) {
            0 => {
                let row = node.catalogue.get(&keys::checkpoint()).unwrap().unwrap();
                let head = CheckpointRecord::parse(&row).unwrap().position;
                let at = Ring::of(&node.superblock).place(head + random.below(journal_used_bytes));
                node.disk.rot(at, bit);
                format!("byte {at} of the journal")
            }
            1 => {
                let slots = node.superblock.slots_offset;
                let at = slots + random.below(node.disk.len_bytes() - slots);
                node.disk.rot(at, bit);
                format!("byte {at} of the slots")
            }
            _ => {
                let rows = node.catalogue.rows();
                let (key, mut value) = rows.into_iter().nth(random.index(node.catalogue.rows().len())).unwrap();
                let at = random.index(value.len());
                value[at] ^= 1 << bit;
                node.catalogue.plant(key.clone(), value);
                format!("byte {at} of row {key:02x?}")
            }
        };
        let recovered = recover(&node.disk, &node.catalogue, &node.superblock, node.bounds);
        // To refuse to start says that something is wrong.
        let Ok(mut recovered) = recovered else { return Ok(()) };
        let mut found = Found { machine: &mut recovered.machine, device: &node.disk, catalogue: &node.catalogue };
        found.is_right_or_says_so(&model).map_err(|error| format!("bit {bit} of {place}: {error}"))
    }

    /// A start on what is left, with a disk that works again. `damaged`: it has taken away what was durable.
    pub(super) fn start_again(self, seed: u64, damaged: bool) -> Result<(), String> {
        let Self { mut node, model, pending, .. } = self;
        node.disk = node.disk.after_power_cut(seed);
        if !damaged {
            let bounds = node.bounds;
            return look(&mut node, bounds, &[&model, &pending], true).map(drop);
        }
        // It may say that it is damaged. What it serves has to be true.
        let Ok(recovered) = recover(&node.disk, &node.catalogue, &node.superblock, node.bounds) else { return Ok(()) };
        let mut machine = recovered.machine;
        let mut found = Found { machine: &mut machine, device: &node.disk, catalogue: &node.catalogue };
        found.makes_nothing_up(&pending)
    }
}

impl Life {
    /// Starts a node of which that much is known. Without a plan of faults its power is cut at every operation, and for good at one
    /// of them.
    pub(super) fn begin(
        mut node: Node,
        model: Model,
        number: u64,
        seed: u64,
        faults: Option<FaultPlan>,
    ) -> Result<Self, String> {
        let mut random = Random::new(seed);
        let bounds = node.bounds;
        let (machine, _) = look(&mut node, bounds, &[&model], true)?;
        let last_cut = faults.is_none().then(|| 1 + random.below(260));
        node.disk.set_faults(faults.unwrap_or_default());
        node.catalogue.heal(&keys::checkpoint());
        Ok(Self {
            probe: Probe::new(node, model, bounds, random.next_u64(), last_cut),
            mind: Mind { machine: RefCell::new(machine), cold: RefCell::default() },
            workload: Workload::new(number),
            random,
            left: OPERATIONS,
            queue: VecDeque::new(),
            tag: 0,
            flying: None,
            run: None,
            reads: Vec::new(),
            loads: Vec::new(),
            no_more_slots: false,
            catalogue_is_full: false,
            failed: false,
            trace: seed,
            acknowledged: 0,
            compared: 0,
            checkpoints: 0,
        })
    }

    /// The disk grows no further.
    pub(super) fn set_space_limit(&mut self, limit: Option<u64>) {
        self.probe.node.disk.set_space_limit(limit);
    }

    /// To its end: the cut that ends it, the disk's failure, or the last operation and checkpoint.
    pub(super) fn run(mut self, summary: &mut Summary) -> Result<Ended, String> {
        let mut ended = None;
        for step in 0.. {
            if step == STEPS {
                return Err(format!(
                    "it is stuck: {} to submit, {} queued, in flight {}, reads {} and {}, checkpoint {:?}, {:?}",
                    self.left,
                    self.queue.len(),
                    self.flying.is_some(),
                    self.reads.len(),
                    self.loads.len(),
                    self.run,
                    self.mind.machine.borrow().gauges()
                ));
            }
            self.step().map_err(|detail| format!("step {step}: {detail}"))?;
            if let Some(next) = self.probe.outcome().map_err(|detail| format!("step {step}: {detail}"))? {
                ended = Some(next);
                break;
            }
            if self.failed || (self.is_idle() && self.run.is_none() && self.reads.is_empty() && self.loads.is_empty()) {
                break;
            }
        }
        // As an idle node does.
        if ended.is_none() && !self.failed {
            self.seal();
            self.fly();
        }
        let journal_used_bytes = self.mind.machine.borrow().gauges().journal_used_bytes;
        summary.cuts += self.probe.cuts();
        summary.acknowledged += self.acknowledged;
        summary.reads += self.compared;
        summary.checkpoints += self.checkpoints;
        summary.trace = summary.trace.rotate_left(7) ^ self.trace;
        let Probe { node, durable, pending, .. } = self.probe;
        Ok(match ended {
            Some((node, model)) => Ended { node, pending: model.clone(), model, journal_used_bytes },
            None => Ended {
                node,
                model: durable.into_inner().unwrap(),
                pending: pending.into_inner().unwrap(),
                journal_used_bytes,
            },
        })
    }

    fn step(&mut self) -> Result<(), String> {
        let choice = self.random.below(100);
        self.trace = self.trace.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ choice;
        // What is under way comes to its end.
        if self.is_idle() && matches!(choice, 50..=55 | 76..=82) {
            return Ok(());
        }
        self.fill_or_empty_the_catalogue();
        match choice {
            0..=19 => self.submit(),
            20..=34 => self.form()?,
            35..=49 => self.fly(),
            50..=51 => self.seal(),
            52..=55 => self.begin_checkpoint(false),
            56..=75 => self.checkpoint()?,
            76..=82 => self.begin_read()?,
            83..=88 => self.load()?,
            89..=94 => self.finish_read()?,
            _ => self.grow(),
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.left == 0 && self.queue.is_empty() && self.flying.is_none()
    }

    fn submit(&mut self) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        self.tag += 1;
        let work = self.workload.next(&mut self.random);
        if self.mind.machine.borrow_mut().submit(work.clone(), self.tag).is_ok() {
            self.queue.push_back((self.tag, work));
        }
    }

    fn form(&mut self) -> Result<(), String> {
        if self.flying.is_some() {
            return Ok(());
        }
        let mut refused = Vec::new();
        let formed = self.mind.machine.borrow_mut().form(&mut refused);
        for (tag, result) in refused {
            if result != Err(StoreError::NoSpace) {
                return Err(format!("operation {tag} was refused: {result:?}"));
            }
            self.queue.retain(|(queued, _)| *queued != tag);
        }
        match formed {
            Ok(Some(batch)) => {
                let (writes, payload) = batch.writes(1);
                let operations = self.queue.len() - self.mind.machine.borrow().gauges().queued as usize;
                let mut pending = self.probe.pending.write().unwrap();
                self.queue.drain(..operations).for_each(|(_, work)| pending.apply(&work));
                if broken(Mutant::AckBeforeSync) {
                    *self.probe.durable.write().unwrap() = pending.clone();
                }
                drop(pending);
                self.flying = Some(Flying { writes, payload, operations });
            }
            Ok(None) => {}
            Err(_) => {
                let machine = self.mind.machine.borrow();
                let waits = self.run.is_some() || machine.checkpoint_is_due() || machine.wants_slots().is_some();
                if !waits {
                    return Err(format!("work waits, and for nothing: {:?}", machine.gauges()));
                }
            }
        }
        Ok(())
    }

    /// The batch is written.
    fn fly(&mut self) {
        let Some(Flying { writes, payload, operations }) = self.flying.take() else { return };
        let journal_end = self.probe.node.superblock.slots_offset;
        let result = if broken(Mutant::SlotsNotSynced) {
            let (slots, journal): (Vec<_>, Vec<_>) = writes.into_iter().partition(|write| write.offset >= journal_end);
            self.probe.write(&slots).and_then(|()| self.probe.write_durably(&journal))
        } else {
            self.probe.write_durably(&writes)
        };
        // C2: told to sync again, a disk may say that all is well.
        let result = if broken(Mutant::RetrySync) { result.or_else(|_| self.probe.sync()) } else { result };
        if let Err(error) = result {
            return self.fail(&error.to_string());
        }
        let outcomes = self.mind.machine.borrow_mut().applied(&payload);
        self.acknowledged += operations as u64;
        if outcomes.len() != operations || outcomes.iter().any(|(_, result)| result.is_err()) {
            return self.fail(&format!("{operations} operations came to {outcomes:?}"));
        }
        let pending = self.probe.pending.read().unwrap().clone();
        *self.probe.durable.write().unwrap() = pending;
    }

    /// The disk has failed: whatever else is asked of the state machine, nothing is acknowledged.
    fn fail(&mut self, why: &str) {
        self.mind.machine.borrow_mut().fail(&why.into());
        self.failed = true;
    }

    fn seal(&mut self) {
        let seal = self.mind.machine.borrow_mut().form_seal();
        if let Some(seal) = seal {
            let (writes, payload) = seal.writes(1);
            self.flying = Some(Flying { writes, payload, operations: 0 });
        }
    }

    fn begin_checkpoint(&mut self, wanted: bool) {
        let machine = self.mind.machine.borrow();
        let begins = wanted || machine.checkpoint_is_due() || (machine.has_changes() && self.random.one_in(3));
        drop(machine);
        if self.run.is_none() && begins {
            self.run = Run::begin(&self.mind, self.probe.node.superblock.uuid);
        }
    }

    fn checkpoint(&mut self) -> Result<(), String> {
        if self.run.is_none() && self.mind.machine.borrow().checkpoint_is_due() {
            self.begin_checkpoint(true);
        }
        let Some(run) = &mut self.run else { return Ok(()) };
        match run.step(&self.mind, &self.probe, &self.probe) {
            Ok(Progress::Done) => {
                self.run = None;
                self.checkpoints += 1;
            }
            Ok(Progress::More | Progress::WaitForReads) => {}
            Ok(Progress::NoSpace) if self.catalogue_is_full => {}
            Ok(Progress::NoSpace) => return Err("the catalogue says that it is full".into()),
            Err(broken) => self.fail(&broken.0),
        }
        Ok(())
    }

    /// The file system of the catalogue is full for a while, now and then.
    fn fill_or_empty_the_catalogue(&mut self) {
        let catalogue = &self.probe.node.catalogue;
        if !self.catalogue_is_full && !self.is_idle() && self.random.one_in(300) {
            catalogue.fail(keys::checkpoint(), KeyFault::NoSpace);
            self.catalogue_is_full = true;
        } else if self.catalogue_is_full && (self.is_idle() || self.random.one_in(60)) {
            catalogue.heal(&keys::checkpoint());
            self.catalogue_is_full = false;
        }
    }

    fn grow(&mut self) {
        let machine = self.mind.machine.borrow();
        let (total, wanted) = (machine.total_slots(), machine.wants_slots());
        drop(machine);
        if self.no_more_slots && self.random.one_in(2) {
            self.mind.machine.borrow_mut().retry_growth();
            self.no_more_slots = false;
        }
        let Some(wanted) = wanted else { return };
        let slots = total + GROWTH.max(wanted);
        let len = self.probe.node.superblock.slots_offset + u64::from(slots) * CHUNK_BYTES;
        match self.probe.grow(len) {
            Ok(()) => self.mind.machine.borrow_mut().grown(slots),
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                self.mind.machine.borrow_mut().growth_failed();
                self.no_more_slots = true;
            }
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn begin_read(&mut self) -> Result<(), String> {
        if self.reads.len() + self.loads.len() == READS {
            return Ok(());
        }
        let shard = shards()[self.random.index(3)];
        let chunks: Vec<ChunkIndex> = chunks().collect();
        let chunk = chunks[self.random.index(chunks.len())];
        let first = chunk.first_block() + self.random.below(u64::from(CHUNK_BLOCKS)) as u32;
        let count = (1 + self.random.below(40) as u32).min(BLOCKS_PER_SHARD - first);
        self.plan(shard, first, count, None)
    }

    /// The catalogue answers a read that waits for it, or was answered.
    fn load(&mut self) -> Result<(), String> {
        if self.loads.is_empty() {
            return Ok(());
        }
        let mut load = self.loads.swap_remove(self.random.index(self.loads.len()));
        if let Some(loaded) = load.loaded.take() {
            return self.plan(load.shard, load.first, load.count, Some((load.checkpoint, loaded)));
        }
        let wanted = load.chunks.iter().map(|chunk| (load.shard, *chunk)).collect();
        let Ok(entries) = read_entries(&self.probe, wanted) else { return Ok(()) };
        let current = self.mind.machine.borrow().checkpoint_number() == load.checkpoint;
        let mut loaded = BTreeMap::new();
        for (id, lower) in entries {
            let Lower::Entry(entry) = lower else { return Err("a map entry is damaged".into()) };
            let content = entry.and_then(|entry| entry.content);
            loaded.insert(id.1, content);
            if current {
                self.mind.cold.borrow_mut().insert(id, content);
            }
        }
        load.loaded = Some(loaded);
        self.loads.push(load);
        Ok(())
    }

    fn plan(
        &mut self,
        shard: ShardId,
        first: u32,
        count: u32,
        loaded: Option<(u64, BTreeMap<ChunkIndex, Option<Content>>)>,
    ) -> Result<(), String> {
        let mut machine = self.mind.machine.borrow_mut();
        let current = machine.checkpoint_number();
        let loaded =
            loaded.filter(|(checkpoint, _)| *checkpoint == current).map(|(_, loaded)| loaded).unwrap_or_default();
        let cold = self.mind.cold.borrow();
        let known = |chunk| {
            let content = loaded.get(&chunk).or_else(|| cold.get(&(shard, chunk)));
            content.map_or(Cold::Unknown, |content| Cold::Known(*content))
        };
        match machine.plan_read(shard, first, count, known) {
            ReadPlan::Ready { pieces, planned } => {
                let durable = self.probe.durable.read().unwrap();
                let blocks = durable.shards.get(&shard).map(|shard| &shard.blocks);
                let number = |block| blocks.and_then(|blocks| blocks.get(&block)).copied().unwrap_or_default();
                let expected = (first..first + count).map(number).collect();
                self.reads.push(Reading { shard, first, expected, pieces, planned });
            }
            ReadPlan::Load { chunks, checkpoint } => {
                self.loads.push(Loading { shard, first, count, chunks, checkpoint, loaded: None });
            }
            ReadPlan::Missing(chunk) => return Err(format!("no entry of chunk {} of shard {shard}", chunk.get())),
        }
        Ok(())
    }

    fn finish_read(&mut self) -> Result<(), String> {
        if self.reads.is_empty() {
            return Ok(());
        }
        let Reading { shard, first, expected, pieces, planned } =
            self.reads.swap_remove(self.random.index(self.reads.len()));
        let read = carry_out(&self.probe, &pieces);
        self.mind.machine.borrow_mut().read_is_over(planned);
        self.compared += 1;
        match read {
            Ok(read) => {
                let bytes = read.data.concat();
                let found = numbers(&bytes, &read.crcs);
                let right = found.iter().map(|block| block.as_ref().ok()).eq(expected.iter().map(Some));
                if bytes.len() != expected.len() * BLOCK_LEN || !right {
                    return Err(format!(
                        "a read of shard {shard} from block {first} found {found:?} instead of {expected:?}"
                    ));
                }
            }
            // Without faults the disk has no reason.
            Err(fault) if !self.probe.has_faults() => {
                return Err(format!("a read of shard {shard} from block {first} failed: {fault:?}"));
            }
            Err(_) => {}
        }
        Ok(())
    }
}
