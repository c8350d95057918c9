//! The crash simulation: the engine's state machine on a simulated disk, driven by a seed, with a model that knows what
//! has to be there.
//!
//! One run ([`crashes`]) is a random workload over several *lives* of a node. Submitting, forming a batch, writing it, the steps of
//! checkpoints and reads are interleaved by the seed, on one thread, without a clock. At every operation that the disk or the
//! catalogue is asked for, the power is cut on a copy of both: any subset of what was not synced is kept, torn at sectors;
//! the copy is recovered, now and then with a second cut in the recovery, and compared with the model. One of these
//! copies becomes the node's next life.
//!
//! What the model demands of a recovered store:
//!
//! - everything that was acknowledged is there, and a batch that was not is there as a whole or not at all;
//! - so are versions, stale flags, holes, the shard's numbers and the dedupe table;
//! - every block reads, with a checksum that fits; no slot is lost or used twice (the offline check of `check/` says so).
//!
//! Other kinds of run let the disk fail instead ([`faults`]: errors, rotten bits, lost and misdirected writes) or turn one bit of a
//! stopped node over ([`rot`]). There every read has to give the right bytes or an error, and after a failed write or sync nothing is
//! acknowledged any more. A disk whose syncs lie is beyond help, and not among them.
//!
//! | file | has |
//! |---|---|
//! | `workload.rs` | what is asked of the engine |
//! | `model.rs` | what has to be there |
//! | `driver.rs` | one life: the shell around the state machine |
//! | `probe.rs` | the disk that loses its power at every operation |
//! | `compare.rs` | a recovered store against the model |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    reason = "it is a test, which a command can run too"
)]

mod compare;
mod driver;
mod model;
mod probe;
#[cfg(test)]
mod tests;
mod workload;

use std::fmt;

use self::driver::{Ended, Life};
use self::model::Model;
use crate::catalogue::Catalogue;
use crate::catalogue::model::ModelCatalogue;
use crate::device::sim::{Fault, FaultKind, FaultPlan, Horizon, Random};
use crate::device::{Power, SimDisk};
use crate::format::Superblock;
use crate::ids::DiskUuid;
use crate::machine::Bounds;
use crate::mutants::{self, Mutant};
use crate::recovery;

/// Bytes of the journal: so few that it is full often.
const JOURNAL_BYTES: u64 = 512 << 10;

/// Slots of a new disk.
const FIRST_SLOTS: u32 = 24;

/// Lives of a node in one run.
const LIVES: u64 = 4;

/// What a run has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Power cuts that were recovered from and compared.
    pub cuts: u64,
    /// Operations that were acknowledged.
    pub acknowledged: u64,
    /// Reads that were compared.
    pub reads: u64,
    /// Checkpoints that were finished.
    pub checkpoints: u64,
    /// A number that any difference between two runs changes.
    pub trace: u64,
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The run's seed.
    pub seed: u64,
    /// What, and when.
    pub detail: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.detail)
    }
}

/// A disk and a catalogue, as they are between two lives.
pub(crate) struct Node {
    disk: SimDisk,
    catalogue: ModelCatalogue,
    superblock: Superblock,
    bounds: Bounds,
}

/// Small in some way, so that each is exceeded often, also by itself.
fn bounds(random: &mut Random) -> Bounds {
    let mut one_of = |small, large| if random.one_in(2) { small } else { large };
    Bounds {
        overlay_bytes: one_of(160 << 10, 1 << 20),
        changed_chunks: one_of(8, 64) as usize,
        freed_slots: one_of(10, 64) as usize,
        batch_bytes: one_of(16 << 10, 128 << 10),
    }
}

impl Node {
    fn new(seed: u64) -> Self {
        let superblock = Superblock::new(DiskUuid([7; 16]), 1, [9; 16], JOURNAL_BYTES).unwrap();
        let disk = SimDisk::new(0, seed);
        let catalogue = ModelCatalogue::new(Power::new(), seed);
        recovery::create(&disk, &catalogue, &superblock, FIRST_SLOTS).unwrap();
        catalogue.commit(&workload::volumes()).unwrap();
        Self { disk, catalogue, superblock, bounds: bounds(&mut Random::new(seed)) }
    }
}

/// Cuts the power at every operation of a workload.
pub fn crashes(seed: u64, mutant: Option<Mutant>) -> Result<Summary, Failure> {
    mutants::with(mutant, || {
        let mut random = Random::new(seed);
        let mut node = Node::new(random.next_u64());
        let space_limit = random.one_in(4).then(|| node.superblock.slots_offset + (40 << 16));
        let mut model = Model::default();
        let mut summary = Summary::default();
        for life in 0..LIVES {
            let failure = |detail| Failure { seed, detail: format!("life {life}: {detail}") };
            let mut begun = Life::begin(node, model, life, random.next_u64(), None).map_err(failure)?;
            begun.set_space_limit(space_limit);
            let Ended { node: next, model: found, .. } = begun.run(&mut summary).map_err(failure)?;
            (node, model) = (next, found);
        }
        Ok(summary)
    })
}

/// Kinds after which everything acknowledged still has to be there.
const HONEST: [FaultKind; 3] = [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError];

/// Kinds that take away what was durable: the engine has to say so.
const TREACHEROUS: [FaultKind; 4] =
    [FaultKind::BitRot, FaultKind::Unreadable, FaultKind::LostWrite, FaultKind::MisdirectedWrite];

/// Lets the disk fail under a workload, then looks at what the next start finds.
pub fn faults(seed: u64, mutant: Option<Mutant>) -> Result<Summary, Failure> {
    mutants::with(mutant, || {
        let mut random = Random::new(seed);
        let node = Node::new(random.next_u64());
        let treacherous = random.one_in(2);
        let kinds: &[FaultKind] = if treacherous { &TREACHEROUS } else { &HONEST };
        let horizon = Horizon { operations: 80, len_bytes: node.disk.operations().max(1) + (4 << 20) };
        let plan = FaultPlan::from_seed(random.next_u64(), kinds, horizon);
        let mut summary = Summary::default();
        let failure = |detail: String| Failure { seed, detail: format!("{detail}; faults: {:?}", plan.faults) };
        let life = Life::begin(node, Model::default(), 0, random.next_u64(), Some(plan.clone())).map_err(failure)?;
        let ended = life.run(&mut summary).map_err(failure)?;
        ended.start_again(random.next_u64(), treacherous && has_damage(&plan)).map_err(failure)?;
        Ok(summary)
    })
}

/// Turns a bit of a stopped node over, in its journal, its slots or its catalogue.
pub fn rot(seed: u64, mutant: Option<Mutant>) -> Result<Summary, Failure> {
    mutants::with(mutant, || {
        let mut random = Random::new(seed);
        let node = Node::new(random.next_u64());
        let mut summary = Summary::default();
        let failure = |detail| Failure { seed, detail };
        let life =
            Life::begin(node, Model::default(), 0, random.next_u64(), Some(FaultPlan::none())).map_err(failure)?;
        life.run(&mut summary).and_then(|ended| ended.rot(&mut random)).map_err(failure)?;
        Ok(summary)
    })
}

/// The kinds of runs.
pub const RUNS: [(&str, Run); 3] = [("crashes", crashes), ("faults", faults), ("rot", rot)];

/// One of them, by seed.
pub type Run = fn(u64, Option<Mutant>) -> Result<Summary, Failure>;

fn has_damage(plan: &FaultPlan) -> bool {
    plan.faults.iter().any(|fault| {
        !matches!(
            fault,
            Fault::ReadError { .. } | Fault::WriteError { .. } | Fault::SyncError { .. } | Fault::Slow { .. }
        )
    })
}
