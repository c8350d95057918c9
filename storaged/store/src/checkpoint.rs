//! Carries a checkpoint out, step by step: what `machine/checkpoint.rs` decides meets the disk and the catalogue here.
//!
//! One step is short, and between two of them anything else may happen, so a thread can pace it and the simulation can cut the
//! power at each.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;

use crate::catalogue::{Catalogue, CatalogueError};
use crate::device::{Device, DeviceWrite};
use crate::format::entry::Entry;
use crate::format::keys;
use crate::ids::{DiskUuid, ShardId};
use crate::machine::{Checkpoint, ChunkId, Lower, Machine};
use crate::mutants::{Mutant, broken as rule_is_broken};

/// Chunks that are merged at once, while nothing else can use the state machine.
const MERGE_CHUNKS: usize = 256;

/// Bytes that are written to slots in one step.
const APPLY_BYTES: usize = 1 << 20;

/// Places that are written in one step. Small writes lie anywhere, and a disk takes many at once more than twice as fast as one after the
/// other: for random writes that alone is the pace of the whole engine.
const APPLY_PLACES: usize = 32;

/// How to get at the state machine, for a moment.
pub(crate) trait Shared<T> {
    /// Calls `use_it` with nobody else looking.
    fn with<R>(&self, use_it: impl FnOnce(&mut Machine<T>) -> R) -> R;

    /// Entries that were in memory since the last checkpoint, and are only in the catalogue soon.
    fn retire(&self, entries: Vec<(ChunkId, Option<Entry>)>);
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Go on.
    More,
    /// Reads have to end first.
    WaitForReads,
    /// The catalogue has no space: try again later.
    NoSpace,
    /// The checkpoint is there.
    Done,
}

/// Why a checkpoint cannot go on: the disk has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) Arc<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Merge,
    Grace,
    Apply,
    Sync,
    Commit,
    Retire { after: Option<ChunkId> },
    Over,
}

/// A checkpoint being carried out.
#[derive(Debug)]
pub(crate) struct Run {
    checkpoint: Option<Checkpoint>,
    stage: Stage,
    writes: VecDeque<DeviceWrite>,
    uuid: DiskUuid,
}

impl Run {
    /// Begins, unless another is under way or the disk has failed.
    pub(crate) fn begin<T>(shared: &impl Shared<T>, uuid: DiskUuid) -> Option<Self> {
        let checkpoint = shared.with(Machine::begin_checkpoint)?;
        Some(Self { checkpoint: Some(checkpoint), stage: Stage::Merge, writes: VecDeque::new(), uuid })
    }

    /// Does the next piece of work.
    pub(crate) fn step<T>(
        &mut self,
        shared: &impl Shared<T>,
        device: &dyn Device,
        catalogue: &dyn Catalogue,
    ) -> Result<Progress, Broken> {
        let Some(checkpoint) = &mut self.checkpoint else {
            return Ok(Progress::Done);
        };
        match self.stage {
            Stage::Merge => {
                if !merge(checkpoint, shared, catalogue)? {
                    forget_dropped(checkpoint, catalogue)?;
                    self.writes = grouped(checkpoint.take_writes());
                    self.stage = Stage::Grace;
                }
            }
            Stage::Grace => {
                if !shared.with(|machine| machine.may_apply(checkpoint)) {
                    return Ok(Progress::WaitForReads);
                }
                self.stage = if rule_is_broken(Mutant::CommitBeforeSync) { Stage::Commit } else { Stage::Apply };
            }
            Stage::Apply => {
                let (writes, len) = self.next_writes();
                if writes.is_empty() {
                    self.stage = Stage::Sync;
                } else {
                    device.write(&writes).map_err(|error| broken("write to", &error))?;
                    shared.with(|machine| machine.progressed(len));
                }
            }
            Stage::Sync => {
                device.sync().map_err(|error| broken("sync", &error))?;
                self.stage = if rule_is_broken(Mutant::CommitBeforeSync) {
                    Stage::Retire { after: None }
                } else {
                    Stage::Commit
                };
            }
            Stage::Commit => {
                let tables = shared.with(|machine| machine.tables(checkpoint));
                match catalogue.commit(&checkpoint.changes(self.uuid, &tables)) {
                    Ok(()) => {}
                    Err(CatalogueError::NoSpace { detail }) => {
                        tracing::warn!(detail, "no space for a checkpoint");
                        shared.with(Machine::catalogue_is_full);
                        return Ok(Progress::NoSpace);
                    }
                    Err(error) => return Err(Broken(format!("cannot commit a checkpoint: {error}").into())),
                }
                self.stage =
                    if rule_is_broken(Mutant::CommitBeforeSync) { Stage::Apply } else { Stage::Retire { after: None } };
            }
            Stage::Retire { after } => {
                let entries = shared.with(|machine| machine.retiring(after, MERGE_CHUNKS));
                match entries.last() {
                    Some((last, _)) => {
                        self.stage = Stage::Retire { after: Some(*last) };
                        shared.retire(entries);
                    }
                    None => {
                        self.stage = Stage::Over;
                        if let Some(checkpoint) = self.checkpoint.take() {
                            shared.with(|machine| machine.finish_checkpoint(checkpoint));
                        }
                        return Ok(Progress::Done);
                    }
                }
            }
            Stage::Over => return Ok(Progress::Done),
        }
        Ok(Progress::More)
    }

    /// What one step writes, and its bytes.
    fn next_writes(&mut self) -> (Vec<DeviceWrite>, u64) {
        let (mut places, mut bytes) = (0, 0);
        for write in self.writes.iter().take(APPLY_PLACES) {
            let sum = bytes + write.len_bytes();
            if places > 0 && sum > APPLY_BYTES as u64 {
                break;
            }
            (places, bytes) = (places + 1, sum);
        }
        (self.writes.drain(..places).collect(), bytes)
    }
}

/// Merges the next chunks; false when there are none left.
fn merge<T>(checkpoint: &mut Checkpoint, shared: &impl Shared<T>, catalogue: &dyn Catalogue) -> Result<bool, Broken> {
    let chunks = checkpoint.slice(MERGE_CHUNKS);
    if chunks.is_empty() {
        return Ok(false);
    }
    let recent: Vec<Option<Option<Entry>>> =
        shared.with(|machine| chunks.iter().map(|chunk| machine.recent_entry(*chunk)).collect());
    let mut slice = Vec::with_capacity(chunks.len());
    let mut cold = Vec::new();
    for (chunk, recent) in chunks.into_iter().zip(recent) {
        match recent {
            Some(entry) => slice.push((chunk, Lower::Entry(entry))),
            None => cold.push(chunk),
        }
    }
    slice
        .extend(read_entries(catalogue, cold).map_err(|error| Broken(format!("cannot read the map: {error}").into()))?);
    shared.with(|machine| machine.merge(checkpoint, slice)).map_err(|why| Broken(why.into()))?;
    Ok(true)
}

/// The entries of chunks as the catalogue has them. One that is damaged spoils no other.
pub(crate) fn read_entries(
    catalogue: &dyn Catalogue,
    chunks: Vec<ChunkId>,
) -> Result<Vec<(ChunkId, Lower)>, CatalogueError> {
    let keys: Vec<Vec<u8>> = chunks.iter().map(|(shard, chunk)| keys::map(*shard, *chunk)).collect();
    let parse = |(shard, chunk): ChunkId, value: Option<Vec<u8>>| match value
        .map(|value| Entry::parse(shard, chunk, &value))
        .transpose()
    {
        Ok(entry) => Lower::Entry(entry),
        Err(error) => {
            tracing::error!(%shard, chunk = chunk.get(), %error, "a map entry is damaged");
            Lower::Damaged
        }
    };
    match catalogue.get_many(&keys) {
        Ok(values) => Ok(chunks.into_iter().zip(values).map(|(chunk, value)| (chunk, parse(chunk, value))).collect()),
        Err(CatalogueError::Corrupt { .. }) => {
            chunks.into_iter().zip(keys).map(|(chunk, key)| read_entry(catalogue, chunk, &key, parse)).collect()
        }
        Err(error) => Err(error),
    }
}

fn read_entry(
    catalogue: &dyn Catalogue,
    chunk: ChunkId,
    key: &[u8],
    parse: impl Fn(ChunkId, Option<Vec<u8>>) -> Lower,
) -> Result<(ChunkId, Lower), CatalogueError> {
    match catalogue.get(key) {
        Ok(value) => Ok((chunk, parse(chunk, value))),
        Err(CatalogueError::Corrupt { detail }) => {
            tracing::error!(shard = %chunk.0, chunk = chunk.1.get(), detail, "a map entry cannot be read");
            Ok((chunk, Lower::Damaged))
        }
        Err(error) => Err(error),
    }
}

/// Finds the slots of the shards that are dropped.
fn forget_dropped(checkpoint: &mut Checkpoint, catalogue: &dyn Catalogue) -> Result<(), Broken> {
    let dropped: Vec<ShardId> = checkpoint.dropped().to_vec();
    for shard in dropped {
        let range = keys::map_range(shard);
        let visited = catalogue.range(&range.start, &range.end, &mut |key, value| {
            match keys::parse_map(key).map(|(shard, chunk)| Entry::parse(shard, chunk, value)) {
                Some(Ok(entry)) => checkpoint.forget(&entry),
                // Its slot stays taken until the store is checked.
                Some(Err(error)) => tracing::error!(%shard, %error, "a map entry of a dropped shard is damaged"),
                None => {}
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| Broken(format!("cannot read the map of shard {shard}: {error}").into()))?;
    }
    Ok(())
}

/// Neighbours become one write.
fn grouped(writes: Vec<(u64, Bytes)>) -> VecDeque<DeviceWrite> {
    let mut groups: VecDeque<DeviceWrite> = VecDeque::new();
    let mut len = 0;
    for (offset, bytes) in writes {
        match groups.back_mut() {
            Some(last) if last.offset + len as u64 == offset && len + bytes.len() <= APPLY_BYTES => {
                len += bytes.len();
                last.pieces.push(bytes);
            }
            _ => {
                len = bytes.len();
                groups.push_back(DeviceWrite::new(offset, bytes));
            }
        }
    }
    groups
}

fn broken(action: &str, error: &std::io::Error) -> Broken {
    Broken(format!("cannot {action} the data file: {error}").into())
}
