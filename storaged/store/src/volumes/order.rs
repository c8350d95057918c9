//! The order of a volume's changes: gives each change of a shard the next version, and hands them to the engine in
//! that order.
//!
//! The engine may work inside the call that hands a change to it, and no thread waits for another one's work: who finds
//! the shard's line busy leaves its change there, and the thread that keeps it busy hands that one over too.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_proto::ids::{ShardIndex, VolumeId};

use crate::ids::{ShardId, Version};
use crate::operation::{Applied, Change, Mutation};
use crate::volumes::blocks::Blocks;

/// Lines of a volume; shards are dealt to them in turn.
const LINES: usize = 16;

/// Term of a shard that nothing reigns over: there is one copy of it, and no primary.
const FIRST_TERM: u64 = 1;

/// Who comes next in each shard of a volume.
pub(super) struct Order {
    volume: VolumeId,
    blocks: Arc<dyn Blocks>,
    lines: [Mutex<Line>; LINES],
}

/// Changes on their way to the engine.
#[derive(Default)]
struct Line {
    /// Last version that was given away, in each shard that was changed since the start.
    versions: HashMap<ShardIndex, Version>,
    /// Some thread is handing changes over.
    busy: bool,
    /// What it does next.
    queue: VecDeque<(Mutation, Applied)>,
}

impl Order {
    pub(super) fn new(volume: VolumeId, blocks: Arc<dyn Blocks>) -> Self {
        Self { volume, blocks, lines: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Starts a change of a shard.
    pub(super) fn apply(&self, index: ShardIndex, changes: Vec<Change>, done: Applied) {
        let shard = ShardId { volume: self.volume, index };
        let mut line = self.line(index);
        let last = line.versions.entry(index).or_insert_with(|| self.blocks.last_version(shard));
        *last = Version { term: last.term.max(FIRST_TERM), sequence: last.sequence + 1 };
        // With one copy of the shard, what is durable is committed.
        let (at, committed) = (*last, last.sequence);
        let mut next = Mutation { shard, at, chunk_version: None, committed, operation: None, changes };
        let mut done = done;
        if line.busy {
            return line.queue.push_back((next, done));
        }
        line.busy = true;
        loop {
            drop(line);
            self.blocks.apply(next, done);
            line = self.line(index);
            match line.queue.pop_front() {
                Some(waiting) => (next, done) = waiting,
                None => break,
            }
        }
        line.busy = false;
    }

    /// Whether the shard was never changed, so that there is nothing to unmap in it.
    pub(super) fn is_untouched(&self, index: ShardIndex) -> bool {
        let shard = ShardId { volume: self.volume, index };
        !self.line(index).versions.contains_key(&index) && self.blocks.last_version(shard) == Version::default()
    }

    fn line(&self, index: ShardIndex) -> MutexGuard<'_, Line> {
        let line = usize::try_from(index.0).unwrap_or(0) % LINES;
        self.lines[line].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
