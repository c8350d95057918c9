//! A load of random writes over one session that notes what it has begun and what got GOOD.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};

use super::history::History;
use super::stamp::{BLOCK_BYTES, fill};
use crate::initiator::session::{Completion, SessionError};
use crate::initiator::{Command, Event, Session, WireError};
use crate::random::Random;

/// Most blocks of one write.
const MAX_WRITE_BLOCKS: u64 = 32;
/// Blocks of a chunk, the unit of allocation of the target.
const CHUNK_BLOCKS: u64 = 16;
/// How much the checker reads at a time, in blocks.
const CHECK_BLOCKS: u64 = 256;

/// Why a load has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All writes were done.
    Done,
    /// The connection has gone; writes may be open.
    Disconnected,
}

/// What a load consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Writes of any length up to 128 KiB, anywhere.
    AnyWrites,
    /// Small writes, writes of whole chunks of 64 KiB, writes of any length, and unmaps.
    ChunksAndUnmaps,
}

/// What was read must not be there: the target has broken its word.
#[derive(Clone, Debug)]
pub struct Violation(
    /// Which block, what it holds and what it may hold.
    pub String,
);

impl std::fmt::Display for Violation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl std::error::Error for Violation {}

/// A read has ended without GOOD.
#[derive(Clone, Debug)]
pub struct Unreadable(
    /// Which blocks, and how.
    pub String,
);

impl std::fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl std::error::Error for Unreadable {}

/// Writes to the first `region_blocks` blocks of 4 KiB of a LUN.
#[derive(Debug)]
pub struct Writer {
    /// What was written so far, over all sessions.
    pub history: History,
    random: Random,
    region_blocks: u64,
    logical_block_bytes: u64,
    depth: usize,
    mix: Mix,
}

struct OnItsWay {
    first: u64,
    count: u64,
    op: u64,
}

impl Writer {
    /// A writer whose writes follow from `seed`, at most `depth` of them at a time.
    pub fn new(seed: u64, region_blocks: u64, logical_block_bytes: u64, depth: usize) -> Self {
        let random = Random::from_seed(seed);
        let (history, mix) = (History::default(), Mix::AnyWrites);
        Self { history, random, region_blocks, logical_block_bytes, depth, mix }
    }

    /// With another load than [`Mix::AnyWrites`].
    #[must_use]
    pub fn with_mix(self, mix: Mix) -> Self {
        Self { mix, ..self }
    }

    /// Writes until `writes` of them got GOOD or the connection breaks. `acknowledged` counts the GOODs as they come.
    pub fn run(&mut self, session: &mut Session, writes: u64, acknowledged: &AtomicU64) -> Result<Outcome> {
        let mut on_their_way = HashMap::new();
        let (mut begun, mut done) = (0, 0);
        while done < writes {
            let step = if begun < writes && on_their_way.len() < self.depth {
                begun += 1;
                self.begin_write(session, &mut on_their_way)
            } else {
                self.finish_write(session, &mut on_their_way).map(|finished| {
                    done += finished;
                    acknowledged.fetch_add(finished, Ordering::Relaxed);
                })
            };
            match step.map_err(|error| error.downcast::<SessionError>()) {
                Ok(()) => {}
                Err(Ok(SessionError::Wire(WireError::Closed))) => return Ok(Outcome::Disconnected),
                Err(Ok(error)) => return Err(error.into()),
                Err(Err(error)) => return Err(error),
            }
        }
        Ok(Outcome::Done)
    }

    fn begin_write(&mut self, session: &mut Session, on_their_way: &mut HashMap<u32, OnItsWay>) -> Result<()> {
        let (first, count, unmaps) = loop {
            let (first, count, unmaps) = self.next_operation();
            let overlaps = |other: &OnItsWay| first < other.first + other.count && other.first < first + count;
            if !on_their_way.values().any(overlaps) {
                break (first, count, unmaps);
            }
        };
        let per_block = BLOCK_BYTES as u64 / self.logical_block_bytes;
        let (op, command) = if unmaps {
            let op = self.history.begin_hole(first, count);
            (op, Command::unmap(first * per_block, u32::try_from(count * per_block)?))
        } else {
            let op = self.history.begin(first, count);
            let mut data = vec![0; usize::try_from(count)? * BLOCK_BYTES];
            for (block, bytes) in (first..).zip(data.chunks_mut(BLOCK_BYTES)) {
                fill(bytes, block, op);
            }
            (op, Command::write_16(first * per_block, data, usize::try_from(self.logical_block_bytes)?))
        };
        let tag = session.submit(command)?;
        on_their_way.insert(tag, OnItsWay { first, count, op });
        Ok(())
    }

    /// First block, number of blocks, and whether they are unmapped instead of written.
    fn next_operation(&mut self) -> (u64, u64, bool) {
        let kind = match self.mix {
            Mix::AnyWrites => u64::MAX,
            Mix::ChunksAndUnmaps => self.random.below(10),
        };
        if (4..7).contains(&kind) {
            let chunks = 1 + self.random.below(MAX_WRITE_BLOCKS / CHUNK_BLOCKS);
            let first = self.random.below(self.region_blocks / CHUNK_BLOCKS - chunks);
            return (first * CHUNK_BLOCKS, chunks * CHUNK_BLOCKS, false);
        }
        let count = 1 + self.random.below(if kind < 4 { 4 } else { MAX_WRITE_BLOCKS });
        (self.random.below(self.region_blocks - count), count, kind == 7)
    }

    /// Takes one event; returns how many writes it has finished.
    fn finish_write(&mut self, session: &mut Session, on_their_way: &mut HashMap<u32, OnItsWay>) -> Result<u64> {
        match self.next_completion(session, on_their_way)? {
            Some(completion) => {
                ensure!(completion.is_good(), "a write ended with {completion:02x?}");
                Ok(1)
            }
            None => Ok(0),
        }
    }

    /// Takes one event; returns the end of a write, noted if it is GOOD.
    fn next_completion(
        &mut self,
        session: &mut Session,
        on_their_way: &mut HashMap<u32, OnItsWay>,
    ) -> Result<Option<Completion>> {
        match session.next_event()? {
            Event::Completion(completion) => {
                let write = on_their_way.remove(&completion.task_tag).context("a completion of nothing")?;
                if completion.is_good() {
                    self.history.acknowledge(write.first, write.count, write.op);
                }
                Ok(Some(completion))
            }
            Event::Pinged | Event::Async { .. } => Ok(None),
            other => bail!("unexpected: {other:?}"),
        }
    }

    /// Begins `writes` of them and waits for their ends, but begins none any more once one has ended without GOOD. Returns how
    /// all have ended, in the order of the answers.
    pub fn run_to_refusal(&mut self, session: &mut Session, writes: usize) -> Result<Vec<Completion>> {
        let mut on_their_way = HashMap::new();
        let mut ends: Vec<Completion> = Vec::new();
        let mut begun = 0;
        loop {
            let refused = ends.iter().any(|end| !end.is_good());
            if !refused && begun < writes && on_their_way.len() < self.depth {
                self.begin_write(session, &mut on_their_way)?;
                begun += 1;
            } else if on_their_way.is_empty() {
                return Ok(ends);
            } else {
                ends.extend(self.next_completion(session, &mut on_their_way)?);
            }
        }
    }

    /// Reads the whole region and judges every block. Fails with [`Violation`] or [`Unreadable`].
    pub fn check(&mut self, session: &mut Session) -> Result<()> {
        let per_block = BLOCK_BYTES as u64 / self.logical_block_bytes;
        let mut first = 0;
        while first < self.region_blocks {
            let count = CHECK_BLOCKS.min(self.region_blocks - first);
            let blocks = u32::try_from(count * per_block)?;
            let command = Command::read_16(first * per_block, blocks, usize::try_from(self.logical_block_bytes)?);
            let read = session.execute_past_attentions(command)?;
            if !read.is_good() {
                let (status, sense) = (read.status, read.sense);
                bail!(Unreadable(format!("reading {count} blocks from {first}: {status:02x} {sense:02x?}")));
            }
            ensure!(read.data_in.len() as u64 == count * BLOCK_BYTES as u64, "{} bytes read", read.data_in.len());
            self.history.check(first, &read.data_in).map_err(Violation)?;
            first += count;
        }
        Ok(())
    }
}
