//! Deliberate bugs: each takes one rule away that keeps data safe. The simulation switches them on, one at a time, and has to notice.
//!
//! One rule has none: that a start overwrites the remains of a batch that it dropped. To break it takes another batch whose bytes make
//! them whole by accident, which no seed has found.
//!
//! They exist only where the simulation does, in tests and with the feature `simulation`; elsewhere asking costs nothing.

#[cfg(any(test, feature = "simulation"))]
use std::cell::Cell;

/// A rule that is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// C3: operations complete before their batch is durable.
    AckBeforeSync,
    /// C0: the slots of a batch are written, and not made durable with it.
    SlotsNotSynced,
    /// C8: a freed slot is used again before the checkpoint that forgets it.
    ReuseSlotEarly,
    /// C1: small writes go straight over the live block, without the journal's copy being durable.
    OverwriteInPlace,
    /// The checkpoint's map is committed before the applied blocks are synced.
    CommitBeforeSync,
    /// The journal is trimmed before the checkpoint is committed.
    TrimBeforeCommit,
    /// C4: what follows a bad batch is not looked for: corruption passes as a torn tail.
    SkipSuccessorCheck,
    /// The slots that the last batch names are not verified at start.
    SkipSlotCheck,
    /// A start drops the last batch because of a block that a checkpoint was just writing.
    VerifyJournalledBlocks,
    /// C5: a block's checksum is not compared when it is read.
    SkipReadCrc,
    /// A batch gets the number of the one before it: it proves nothing.
    ReuseBatchNumber,
    /// Blocks are applied to their slots while reads planned before may be looking at them.
    NoGrace,
    /// A checkpoint names the position of its end, and has what was true at its beginning.
    BlurredCheckpoint,
    /// A hole in a chunk forgets the other blocks that are only journalled.
    HoleDropsOverlay,
    /// A freed slot is not freed in the catalogue.
    ForgetFreedSlot,
    /// A checkpoint takes the slot of an emptied chunk away although a batch on its way to the disk counts on it.
    FreeSlotOfBatchInFlight,
    /// C2: a failed sync is tried again and then believed.
    RetrySync,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::AckBeforeSync,
        Self::SlotsNotSynced,
        Self::ReuseSlotEarly,
        Self::OverwriteInPlace,
        Self::CommitBeforeSync,
        Self::TrimBeforeCommit,
        Self::SkipSuccessorCheck,
        Self::SkipSlotCheck,
        Self::VerifyJournalledBlocks,
        Self::SkipReadCrc,
        Self::ReuseBatchNumber,
        Self::NoGrace,
        Self::BlurredCheckpoint,
        Self::HoleDropsOverlay,
        Self::ForgetFreedSlot,
        Self::FreeSlotOfBatchInFlight,
        Self::RetrySync,
    ];
}

#[cfg(any(test, feature = "simulation"))]
thread_local! {
    static BROKEN: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// Runs something on this thread with a rule broken.
#[cfg(any(test, feature = "simulation"))]
pub(crate) fn with<R>(mutant: Option<Mutant>, run: impl FnOnce() -> R) -> R {
    struct Restore(Option<Mutant>);
    impl Drop for Restore {
        fn drop(&mut self) {
            BROKEN.set(self.0);
        }
    }
    let _restore = Restore(BROKEN.replace(mutant));
    run()
}

/// Whether this rule is to be broken.
#[cfg(any(test, feature = "simulation"))]
pub(crate) fn broken(mutant: Mutant) -> bool {
    BROKEN.get() == Some(mutant)
}

/// Whether this rule is to be broken.
#[cfg(not(any(test, feature = "simulation")))]
pub(crate) const fn broken(_mutant: Mutant) -> bool {
    false
}
