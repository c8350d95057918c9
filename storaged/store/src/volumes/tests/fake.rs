//! The engine's stand-in: blocks in memory, whose operations take effect and complete in an order that a seed decides.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use holdfast_proto::checksum::{self, ZERO_BLOCK};
use holdfast_proto::ids::VolumeId;
use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN, SHARD_BYTES};

use crate::catalogue::Catalogue;
use crate::catalogue::model::ModelCatalogue;
use crate::error::StoreError;
use crate::ids::{BLOCKS_PER_SHARD, ShardId, Version};
use crate::operation::{Applied, BlocksRead, Change, Mutation, ReadDone};
use crate::volumes::blocks::Blocks;

/// The numbers of xorshift64*.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit
    }
}

/// Blocks in memory.
pub(super) struct Fake {
    state: Mutex<State>,
    catalogue: Arc<dyn Catalogue>,
}

struct State {
    random: Random,
    /// Of four calls, how many are carried out and completed before they return, if nothing is before them.
    inline_of_four: u64,
    shards: BTreeMap<ShardId, Shard>,
    reads: Vec<Reading>,
    /// Carried out, and not completed yet.
    finished: Vec<Box<dyn FnOnce() + Send>>,
    faults: Faults,
    counters: Counters,
}

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// Blocks that do not match their checksums.
    pub(super) bad: BTreeSet<(ShardId, u32)>,
    /// What mutations of these shards are answered.
    pub(super) apply: BTreeMap<ShardId, StoreError>,
    pub(super) health: Option<StoreError>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) mutations: u64,
    pub(super) reads: u64,
    pub(super) most_in_flight: usize,
    pub(super) closes: u64,
}

#[derive(Default)]
struct Shard {
    /// Of the last call.
    ordered: Version,
    /// Of the last that took effect.
    last: Version,
    blocks: BTreeMap<u32, (Bytes, u32)>,
    queue: VecDeque<(Mutation, Applied)>,
}

struct Reading {
    shard: ShardId,
    next: u32,
    end: u32,
    read: BlocksRead,
    done: ReadDone,
}

impl Fake {
    pub(super) fn new(seed: u64) -> Self {
        Self::over(Arc::new(ModelCatalogue::default()), seed)
    }

    pub(super) fn over(catalogue: Arc<dyn Catalogue>, seed: u64) -> Self {
        let state = State {
            random: Random::new(seed),
            inline_of_four: 1,
            shards: BTreeMap::new(),
            reads: Vec::new(),
            finished: Vec::new(),
            faults: Faults::default(),
            counters: Counters::default(),
        };
        Self { state: Mutex::new(state), catalogue }
    }

    /// Everything is done before a call returns, as a device in memory does it.
    pub(super) fn inline(self) -> Self {
        self.lock().inline_of_four = 4;
        self
    }

    /// Nothing is done before [`Fake::step`].
    pub(super) fn late(self) -> Self {
        self.lock().inline_of_four = 0;
        self
    }

    /// Does one of the things that can happen next; false if there is none.
    pub(super) fn step(&self) -> bool {
        let mut state = self.lock();
        let waiting: Vec<ShardId> =
            state.shards.iter().filter(|(_, shard)| !shard.queue.is_empty()).map(|(id, _)| *id).collect();
        let choices = waiting.len() + state.reads.len() + state.finished.len();
        if choices == 0 {
            return false;
        }
        let mut choice = usize::try_from(state.random.below(choices as u64)).unwrap();
        if let Some(id) = waiting.get(choice) {
            let (mutation, done) = state.shards.get_mut(id).unwrap().queue.pop_front().unwrap();
            let result = state.carry_out(mutation);
            state.finished.push(Box::new(move || done(result)));
            return true;
        }
        choice -= waiting.len();
        if choice < state.reads.len() {
            let mut reading = state.reads.swap_remove(choice);
            match state.read_one(&mut reading) {
                None => state.reads.push(reading),
                Some(result) => state.finished.push(Box::new(move || (reading.done)(result))),
            }
            return true;
        }
        let index = choice - state.reads.len();
        let done = state.finished.swap_remove(index);
        drop(state);
        done();
        true
    }

    /// Until nothing is in flight.
    pub(super) fn settle(&self) {
        while self.step() {}
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    pub(super) fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// The buffers that a block is kept in.
    pub(super) fn block(&self, shard: ShardId, block: u32) -> Option<Bytes> {
        self.lock().shards.get(&shard)?.blocks.get(&block).map(|(data, _)| data.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn goes_inline(&mut self) -> bool {
        self.random.below(4) < self.inline_of_four
    }

    fn carry_out(&mut self, mutation: Mutation) -> Result<(), StoreError> {
        let Mutation { shard: id, at, changes, .. } = mutation;
        let failed = self.faults.apply.get(&id).cloned().or_else(|| self.faults.health.clone());
        failed.map_or(Ok(()), Err)?;
        let shard = self.shards.entry(id).or_default();
        shard.last = at;
        for change in changes {
            match change {
                Change::Hole { first_block, blocks } => {
                    shard.blocks.retain(|block, _| !(first_block..first_block + blocks).contains(block));
                }
                Change::Write { first_block, data, crcs } => {
                    // A block that came in one buffer stays in it, so that a test sees what was copied.
                    let mut rest: VecDeque<Bytes> = data.into();
                    for (block, crc) in (first_block..).zip(crcs) {
                        while rest.front().is_some_and(Bytes::is_empty) {
                            rest.pop_front();
                        }
                        let content = if rest[0].len() >= BLOCK_LEN {
                            rest[0].split_to(BLOCK_LEN)
                        } else {
                            let mut content = Vec::new();
                            while content.len() < BLOCK_LEN {
                                let len = rest[0].len().min(BLOCK_LEN - content.len());
                                content.extend_from_slice(&rest[0].split_to(len));
                                if rest[0].is_empty() {
                                    rest.pop_front();
                                }
                            }
                            content.into()
                        };
                        assert_eq!(crc32c::crc32c(&content), crc, "checksum of block {block} of {id}");
                        self.faults.bad.remove(&(id, block));
                        shard.blocks.insert(block, (content, crc));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the next block; the outcome when it was the last.
    fn read_one(&mut self, reading: &mut Reading) -> Option<Result<BlocksRead, StoreError>> {
        if let Some(error) = &self.faults.health {
            return Some(Err(error.clone()));
        }
        if self.faults.bad.contains(&(reading.shard, reading.next)) {
            let offset = u64::from(reading.shard.index.0) * SHARD_BYTES + u64::from(reading.next) * BLOCK_BYTES;
            return Some(Err(StoreError::Checksum { offset }));
        }
        let block = self.shards.get(&reading.shard).and_then(|shard| shard.blocks.get(&reading.next)).cloned();
        let (data, crc) = block.unwrap_or_else(|| (Bytes::from_static(&[0; BLOCK_LEN]), ZERO_BLOCK));
        reading.read.data.push(data);
        reading.read.crcs.push(crc);
        reading.next += 1;
        (reading.next == reading.end).then(|| Ok(std::mem::take(&mut reading.read)))
    }
}

impl Blocks for Fake {
    fn apply(&self, mutation: Mutation, done: Applied) {
        let mut state = self.lock();
        let goes_inline = state.goes_inline();
        let shard = state.shards.entry(mutation.shard).or_default();
        assert!(mutation.at > shard.ordered && mutation.at.term == 1, "{} after {}", mutation.at, shard.ordered);
        assert!(!mutation.changes.is_empty());
        let mut blocks = BTreeSet::new();
        for change in &mutation.changes {
            let count = u32::try_from(change.blocks()).unwrap();
            let (first, end) = (change.first_block(), change.first_block() + count);
            assert!(count > 0 && end <= BLOCKS_PER_SHARD, "beyond the shard");
            if let Change::Write { data, .. } = change {
                assert_eq!(checksum::len_bytes(data), u64::from(count) * BLOCK_BYTES);
                (first..end).for_each(|block| assert!(blocks.insert(block), "two changes of a block"));
            }
        }
        shard.ordered = mutation.at;
        let inline = goes_inline && shard.queue.is_empty();
        state.counters.mutations += 1;
        if inline {
            let result = state.carry_out(mutation);
            drop(state);
            return done(result);
        }
        state.shards.entry(mutation.shard).or_default().queue.push_back((mutation, done));
        let in_flight = state.shards.values().map(|shard| shard.queue.len()).sum::<usize>() + state.finished.len();
        state.counters.most_in_flight = state.counters.most_in_flight.max(in_flight);
    }

    fn read(&self, shard: ShardId, first_block: u32, blocks: u32, done: ReadDone) {
        assert!(blocks > 0 && first_block + blocks <= BLOCKS_PER_SHARD);
        let mut state = self.lock();
        state.counters.reads += 1;
        let end = first_block + blocks;
        let mut reading = Reading { shard, next: first_block, end, read: BlocksRead::default(), done };
        if state.goes_inline() {
            let result = loop {
                if let Some(result) = state.read_one(&mut reading) {
                    break result;
                }
            };
            drop(state);
            return (reading.done)(result);
        }
        state.reads.push(reading);
    }

    fn last_version(&self, shard: ShardId) -> Version {
        self.lock().shards.get(&shard).map_or_else(Version::default, |shard| shard.last)
    }

    fn allocated_bytes(&self, volume: VolumeId) -> u64 {
        let state = self.lock();
        let shards = state.shards.iter().filter(|(id, _)| id.volume == volume);
        shards.map(|(_, shard)| shard.blocks.len() as u64 * BLOCK_BYTES).sum()
    }

    fn health(&self) -> Result<(), StoreError> {
        self.lock().faults.health.clone().map_or(Ok(()), Err)
    }

    fn catalogue(&self) -> &Arc<dyn Catalogue> {
        &self.catalogue
    }

    fn close(&self) {
        let mut state = self.lock();
        state.counters.closes += 1;
        let queued = state.shards.values().any(|shard| !shard.queue.is_empty());
        assert!(!queued && state.reads.is_empty() && state.finished.is_empty(), "closed with something in flight");
    }
}
