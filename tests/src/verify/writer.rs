//! A load of random writes over one session that notes what it has begun and what got GOOD.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use super::history::History;
use super::stamp::{BLOCK_BYTES, fill};
use crate::initiator::session::SessionError;
use crate::initiator::{Command, Event, Session, WireError};
use crate::random::Random;

/// Most blocks of one write.
const MAX_WRITE_BLOCKS: u64 = 32;
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

/// Writes to the first `region_blocks` blocks of 4 KiB of a LUN.
#[derive(Debug)]
pub struct Writer {
    /// What was written so far, over all sessions.
    pub history: History,
    random: Random,
    region_blocks: u64,
    logical_block_bytes: u64,
    depth: usize,
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
        Self { history: History::default(), random, region_blocks, logical_block_bytes, depth }
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
        let (first, count) = loop {
            let count = 1 + self.random.below(MAX_WRITE_BLOCKS);
            let first = self.random.below(self.region_blocks - count);
            let overlaps = |other: &OnItsWay| first < other.first + other.count && other.first < first + count;
            if !on_their_way.values().any(overlaps) {
                break (first, count);
            }
        };
        let op = self.history.begin(first, count);
        let mut data = vec![0; usize::try_from(count)? * BLOCK_BYTES];
        for (block, bytes) in (first..).zip(data.chunks_mut(BLOCK_BYTES)) {
            fill(bytes, block, op);
        }
        let lba = first * (BLOCK_BYTES as u64 / self.logical_block_bytes);
        let command = Command::write_16(lba, data, usize::try_from(self.logical_block_bytes)?);
        let tag = session.submit(command)?;
        on_their_way.insert(tag, OnItsWay { first, count, op });
        Ok(())
    }

    /// Takes one event; returns how many writes it has finished.
    fn finish_write(&mut self, session: &mut Session, on_their_way: &mut HashMap<u32, OnItsWay>) -> Result<u64> {
        match session.next_event()? {
            Event::Completion(completion) => {
                let write = on_their_way.remove(&completion.task_tag).context("a completion of nothing")?;
                ensure!(completion.is_good(), "write {} ended with {completion:02x?}", write.op);
                self.history.acknowledge(write.first, write.count, write.op);
                Ok(1)
            }
            Event::Pinged | Event::Async { .. } => Ok(0),
            other => anyhow::bail!("unexpected: {other:?}"),
        }
    }

    /// Reads the whole region and judges every block.
    pub fn check(&mut self, session: &mut Session) -> Result<()> {
        let per_block = BLOCK_BYTES as u64 / self.logical_block_bytes;
        let mut first = 0;
        while first < self.region_blocks {
            let count = CHECK_BLOCKS.min(self.region_blocks - first);
            let blocks = u32::try_from(count * per_block)?;
            let command = Command::read_16(first * per_block, blocks, usize::try_from(self.logical_block_bytes)?);
            let read = session.execute_past_attentions(command)?;
            ensure!(read.is_good(), "reading {count} blocks from {first}: {:02x} {:02x?}", read.status, read.sense);
            ensure!(read.data_in.len() as u64 == count * BLOCK_BYTES as u64, "{} bytes read", read.data_in.len());
            self.history.check(first, &read.data_in).map_err(anyhow::Error::msg)?;
            first += count;
        }
        Ok(())
    }
}
