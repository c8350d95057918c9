//! Writes and unmaps that hold their range: old edges are read, merged, and the result handed to the engine as one
//! mutation for each shard.
//!
//! An operation over a border of shards is as many mutations: should one of them fail, the others may have been made.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use holdfast_proto::ids::ShardIndex;
use holdfast_proto::units::BLOCK_BYTES;

use crate::error::StoreError;
use crate::ids::BLOCKS_PER_SHARD;
use crate::operation;
use crate::store::Output;
use crate::volumes::merge::{self, Block, Source, Zeroed};
use crate::volumes::split::{Footprint, by_shard};
use crate::volumes::turn;
use crate::volumes::volume::{Running, Volume};

/// Mutations of one operation that are in flight at the same time. An unmap can have a million.
const WINDOW: usize = 32;

/// A change of a byte range, not empty, inside the volume.
pub(super) enum Change {
    /// Its checksums have been verified.
    Write {
        offset: u64,
        data: Vec<Bytes>,
        checksums: Vec<u32>,
    },
    Unmap {
        offset: u64,
        len: u64,
    },
}

/// What one shard gets.
type Part = (ShardIndex, Vec<operation::Change>);

impl Running {
    /// Carries a change out; its range is held.
    pub(super) fn change(self, footprint: Footprint, change: Change) {
        if footprint.is_whole() {
            return self.merge(footprint, change, None, None);
        }
        let volume = Arc::clone(&self.volume);
        let edges = footprint.partial().flat_map(|block| by_shard(block, block + 1)).collect();
        volume.read_parts(edges, move |result| {
            let old = result.and_then(|edges| {
                let blocks = footprint.partial().zip(&edges).map(|(block, edge)| {
                    merge::verified_block(edge).ok_or(StoreError::Checksum { offset: block * BLOCK_BYTES })
                });
                blocks.collect::<Result<Vec<_>, _>>()
            });
            match old {
                Ok(old) => {
                    let mut old = old.into_iter();
                    let head = if footprint.head_partial { old.next() } else { None };
                    self.merge(footprint, change, head, old.next());
                }
                Err(error) => self.finish(Err(error)),
            }
        });
    }

    fn merge(self, footprint: Footprint, change: Change, head: Option<Block>, tail: Option<Block>) {
        match change {
            Change::Write { offset, data, checksums } => {
                let (data, crcs) = merge::write(offset, data, checksums, head, tail);
                self.apply_all(write_parts(footprint, data, crcs));
            }
            Change::Unmap { offset, len } => {
                let unmap = Unmap::new(footprint, offset, offset + len, head, tail);
                let volume = Arc::clone(&self.volume);
                self.apply_all(unmap.into_parts(volume));
            }
        }
    }

    /// Hands the parts to the engine, and answers when all are durable.
    fn apply_all(self, mut parts: impl Iterator<Item = Part> + Send + 'static) {
        let Some((shard, changes)) = parts.next() else {
            return self.finish(Ok(Output::default()));
        };
        let volume = Arc::clone(&self.volume);
        let Some(second) = parts.next() else {
            let done = move |result: Result<(), _>| {
                turn::run(move || self.finish(result.map(|()| Output::default())));
            };
            return volume.order.apply(shard, changes, Box::new(done));
        };
        let parts = Box::new([(shard, changes), second].into_iter().chain(parts).fuse());
        let progress = Progress { parts, in_flight: 0, error: None, running: Some(self) };
        Arc::new(Spread { volume, progress: Mutex::new(progress) }).go_on();
    }
}

/// A write of whole blocks, cut at the borders of shards.
fn write_parts(footprint: Footprint, data: Vec<Bytes>, crcs: Vec<u32>) -> impl Iterator<Item = Part> + Send + 'static {
    let mut whole = Some((data, crcs));
    let mut cut: Option<(Source<std::vec::IntoIter<Bytes>>, std::vec::IntoIter<u32>)> = None;
    by_shard(footprint.first, footprint.end).map(move |part| {
        let blocks = u64::from(part.blocks);
        let (data, crcs) = match whole.take() {
            Some(whole) if blocks == footprint.blocks() => whole,
            not_cut => {
                let begin = || {
                    let (data, crcs) = not_cut.unwrap_or_default();
                    (Source::new(data.into_iter()), crcs.into_iter())
                };
                let (data, crcs) = cut.get_or_insert_with(begin);
                let mut buffers = Vec::new();
                data.move_to(&mut buffers, blocks * BLOCK_BYTES);
                (buffers, crcs.take(usize::try_from(blocks).unwrap_or(usize::MAX)).collect())
            }
        };
        (part.shard, vec![operation::Change::Write { first_block: part.first, data, crcs }])
    })
}

/// An unmap of any length.
struct Unmap {
    footprint: Footprint,
    /// Blocks that become holes: those that are unmapped whole, and edges of which nothing is left.
    holes: std::ops::Range<u64>,
    /// Blocks that keep something, their new content and its checksum.
    edges: Vec<(u64, Bytes, u32)>,
}

impl Unmap {
    /// Bytes `from..to` with that footprint; `head` and `tail` are the old content of the edges that are not whole.
    fn new(footprint: Footprint, from: u64, to: u64, head: Option<Block>, tail: Option<Block>) -> Self {
        let Footprint { first, end, head_partial, tail_partial } = footprint;
        let mut unmap = Self {
            footprint,
            holes: first + u64::from(head_partial)..end - u64::from(tail_partial),
            edges: Vec::new(),
        };
        if let Some(block) = head {
            let start = first * BLOCK_BYTES;
            match merge::zero_part(block, from - start, (to - start).min(BLOCK_BYTES)) {
                Zeroed::Same => {}
                Zeroed::Empty => unmap.holes.start = first,
                Zeroed::Changed(data, crc) => unmap.edges.push((first, data, crc)),
            }
        }
        if let Some(block) = tail {
            let last = end - 1;
            match merge::zero_part(block, 0, to - last * BLOCK_BYTES) {
                Zeroed::Same => {}
                Zeroed::Empty => unmap.holes.end = end,
                Zeroed::Changed(data, crc) => unmap.edges.push((last, data, crc)),
            }
        }
        unmap
    }

    /// What each shard gets; nothing for one that was never changed: it reads as zeros and takes no space already.
    fn into_parts(self, volume: Arc<Volume>) -> impl Iterator<Item = Part> + Send + 'static {
        by_shard(self.footprint.first, self.footprint.end).filter_map(move |part| {
            let base = u64::from(part.shard.0) * u64::from(BLOCKS_PER_SHARD);
            let (first, blocks) = (base + u64::from(part.first), u64::from(part.blocks));
            let in_shard = |block: u64| u32::try_from(block - base).ok();
            let mut changes = Vec::new();
            for (block, data, crc) in self.edges.iter().filter(|(block, ..)| (first..first + blocks).contains(block)) {
                let (data, crcs) = (vec![data.clone()], vec![*crc]);
                changes.push(operation::Change::Write { first_block: in_shard(*block)?, data, crcs });
            }
            let (from, to) = (self.holes.start.max(first), self.holes.end.min(first + blocks));
            if from < to && (!changes.is_empty() || !volume.order.is_untouched(part.shard)) {
                let blocks = u32::try_from(to - from).ok()?;
                changes.push(operation::Change::Hole { first_block: in_shard(from)?, blocks });
            }
            (!changes.is_empty()).then_some((part.shard, changes))
        })
    }
}

/// One operation in several shards.
struct Spread {
    volume: Arc<Volume>,
    progress: Mutex<Progress>,
}

struct Progress {
    parts: Box<dyn Iterator<Item = Part> + Send>,
    in_flight: usize,
    /// The first that came; no part is begun after it.
    error: Option<StoreError>,
    /// Taken when the operation is answered.
    running: Option<Running>,
}

impl Spread {
    /// Starts as many parts as may be in flight; answers the operation when there is nothing more to wait for.
    fn go_on(self: Arc<Self>) {
        loop {
            let mut progress = self.lock();
            if progress.in_flight == WINDOW {
                return;
            }
            let next = if progress.error.is_none() { progress.parts.next() } else { None };
            let Some((shard, changes)) = next else {
                if progress.in_flight > 0 {
                    return;
                }
                let result = progress.error.take().map_or(Ok(Output::default()), Err);
                let running = progress.running.take();
                drop(progress);
                return running.into_iter().for_each(|running| running.finish(result.clone()));
            };
            progress.in_flight += 1;
            drop(progress);
            let spread = Arc::clone(&self);
            let done = move |result| turn::run(move || spread.part_done(result));
            self.volume.order.apply(shard, changes, Box::new(done));
        }
    }

    fn part_done(self: Arc<Self>, result: Result<(), StoreError>) {
        let mut progress = self.lock();
        progress.in_flight -= 1;
        if let Err(error) = result {
            progress.error.get_or_insert(error);
        }
        drop(progress);
        self.go_on();
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
