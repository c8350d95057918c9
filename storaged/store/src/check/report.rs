//! What a check tells while it goes on, and what it has told in all.

use std::collections::BTreeMap;
use std::fmt;

use holdfast_proto::ids::VolumeId;
use holdfast_proto::units::{BLOCK_BYTES, SHARD_BYTES};

use super::finding::{Finding, Problem, Severity, VolumeRange};
use crate::format::FormatError;
use crate::ids::ShardId;
use crate::store::VolumeRecord;

/// Is told what a check finds, at once, so that a check of a large disk takes little memory however bad the disk is.
pub trait Observer {
    /// Something is not as it should be.
    fn found(&mut self, finding: &Finding);

    /// Something that is worth knowing, and is no fault.
    fn note(&mut self, text: &str);

    /// So many of all chunks with data were read.
    fn progress(&mut self, chunks: u64, total_chunks: u64);
}

/// What a check came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Findings of [`Severity::Damage`].
    pub damage: u64,
    /// Findings of [`Severity::Waste`].
    pub waste: u64,
    /// Volumes with a good record.
    pub volumes: u64,
    /// Shards of 1 GiB that were ever written.
    pub shards: u64,
    /// Chunks of 64 KiB whose data was read.
    pub chunks: u64,
    /// Batches of the journal since the last checkpoint.
    pub batches: u64,
}

impl Summary {
    /// Nothing was found.
    pub fn is_clean(&self) -> bool {
        self.damage == 0 && self.waste == 0
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { damage, waste, volumes, shards, chunks, batches } = self;
        if self.is_clean() {
            write!(f, "clean")?;
        } else {
            write!(f, "{} findings ({damage} of damage, {waste} of wasted space)", damage + waste)?;
        }
        write!(f, ": {volumes} volumes, {shards} shards, {chunks} chunks and {batches} journal batches checked")
    }
}

/// Collects what is found.
pub(super) struct Report<'a> {
    observer: &'a mut dyn Observer,
    pub(super) summary: Summary,
    /// By which findings name volumes.
    pub(super) volumes: BTreeMap<VolumeId, VolumeRecord>,
    total_chunks: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(observer: &'a mut dyn Observer) -> Self {
        Self { observer, summary: Summary::default(), volumes: BTreeMap::new(), total_chunks: 0 }
    }

    pub(super) fn found(&mut self, finding: Finding) {
        match finding.problem.severity() {
            Severity::Damage => self.summary.damage += 1,
            Severity::Waste => self.summary.waste += 1,
        }
        self.observer.found(&finding);
    }

    /// A structure that cannot be parsed.
    pub(super) fn unparsed(&mut self, problem: Problem, place: impl Into<String>, error: &FormatError) {
        self.found(Finding::new(problem_of(problem, error), place, error.to_string()));
    }

    pub(super) fn note(&mut self, text: impl AsRef<str>) {
        self.observer.note(text.as_ref());
    }

    pub(super) fn expect_chunks(&mut self, chunks: u64) {
        self.total_chunks = chunks;
        self.observer.progress(0, chunks);
    }

    pub(super) fn chunks_done(&mut self, chunks: u64) {
        self.summary.chunks += chunks;
        self.observer.progress(self.summary.chunks, self.total_chunks.max(self.summary.chunks));
    }

    /// Blocks of a shard in the user's words.
    pub(super) fn range(&self, shard: ShardId, first_block: u32, blocks: u32) -> VolumeRange {
        let start = u64::from(shard.index.0) * SHARD_BYTES + u64::from(first_block) * BLOCK_BYTES;
        let name = self.volumes.get(&shard.volume).map(|record| record.name.clone());
        VolumeRange { volume: shard.volume, name, bytes: start..start + u64::from(blocks) * BLOCK_BYTES }
    }
}

/// A structure of a later release is not damaged.
pub(super) fn problem_of(problem: Problem, error: &FormatError) -> Problem {
    match error {
        FormatError::Newer { .. } => Problem::Newer,
        FormatError::Corrupt { .. } => problem,
    }
}
