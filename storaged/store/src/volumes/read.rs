//! Reads: the blocks of a range from the engine, in each shard that it lies in, and the range cut out of them.

use std::sync::{Arc, Mutex, PoisonError};

use holdfast_proto::checksum;
use holdfast_proto::units::BLOCK_BYTES;

use crate::error::StoreError;
use crate::ids::ShardId;
use crate::operation::BlocksRead;
use crate::store::Output;
use crate::volumes::merge;
use crate::volumes::split::{ShardBlocks, by_shard};
use crate::volumes::turn;
use crate::volumes::volume::{Running, Volume};

impl Running {
    /// Carries a read of a range that is not empty out.
    pub(super) fn read(self, offset: u64, len: u64) {
        let first = offset / BLOCK_BYTES;
        let parts = by_shard(first, first + checksum::piece_count(offset, len)).collect();
        let volume = Arc::clone(&self.volume);
        volume.read_parts(parts, move |result| self.finish(result.and_then(|parts| answer(offset, len, parts))));
    }
}

fn answer(offset: u64, len: u64, parts: Vec<BlocksRead>) -> Result<Output, StoreError> {
    let mut parts = parts.into_iter();
    let mut blocks = parts.next().unwrap_or_default();
    for part in parts {
        blocks.data.extend(part.data);
        blocks.crcs.extend(part.crcs);
    }
    let first = offset / BLOCK_BYTES;
    merge::cut(offset, len, blocks).map_err(|index| StoreError::Checksum { offset: (first + index) * BLOCK_BYTES })
}

impl Volume {
    /// Reads all the parts, at least one, at the same time; `done` is called in a turn, with the content of each or the
    /// error of the first that has one.
    pub(super) fn read_parts(
        &self,
        parts: Vec<ShardBlocks>,
        done: impl FnOnce(Result<Vec<BlocksRead>, StoreError>) + Send + 'static,
    ) {
        if let [part] = *parts {
            return self.read_part(part, move |result| done(result.map(|part| vec![part])));
        }
        let gather = Arc::new(Gather {
            state: Mutex::new(Gathered { parts: vec![None; parts.len()], done: Some(Box::new(done)) }),
        });
        for (index, part) in parts.into_iter().enumerate() {
            let gather = Arc::clone(&gather);
            self.read_part(part, move |result| gather.arrived(index, result));
        }
    }

    fn read_part(&self, part: ShardBlocks, done: impl FnOnce(Result<BlocksRead, StoreError>) + Send + 'static) {
        let shard = ShardId { volume: self.record.id, index: part.shard };
        let done = Box::new(move |result| turn::run(move || done(result)));
        self.blocks.read(shard, part.first, part.blocks, done);
    }
}

type GatherDone = Box<dyn FnOnce(Result<Vec<BlocksRead>, StoreError>) + Send>;

/// Waits for several parts.
struct Gather {
    state: Mutex<Gathered>,
}

struct Gathered {
    parts: Vec<Option<Result<BlocksRead, StoreError>>>,
    done: Option<GatherDone>,
}

impl Gather {
    fn arrived(&self, index: usize, result: Result<BlocksRead, StoreError>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(part) = state.parts.get_mut(index) {
            *part = Some(result);
        }
        if state.parts.iter().any(Option::is_none) {
            return;
        }
        let (parts, done) = (std::mem::take(&mut state.parts), state.done.take());
        drop(state);
        if let Some(done) = done {
            done(parts.into_iter().flatten().collect());
        }
    }
}
