//! What goes wrong on a simulated disk, and when.

use std::ops::Range;

use super::random::Random;
use crate::device::DEVICE_ALIGN;

/// One fault. Reads, writes and syncs are counted from 0, each for itself, since the disk was made; a call with several
/// writes counts each; [`write_durably`](crate::device::Device::write_durably) counts one sync after its writes.
/// `operation` counts all of them and grows, on this disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The read fails with EIO; the next one may succeed.
    ReadError {
        /// Which read.
        read: u64,
    },
    /// The write fails with EIO: any part of it, and of the other writes of the same call, may be there.
    WriteError {
        /// Which write.
        write: u64,
    },
    /// The sync fails with EIO. As in Linux, an arbitrary part of what was not synced is dropped for good while reads
    /// may still see it, and later syncs say that all is well.
    SyncError {
        /// Which sync.
        sync: u64,
    },
    /// The syncs say that all is well and make nothing durable.
    LyingSync {
        /// Which syncs.
        syncs: Range<u64>,
    },
    /// The write is acknowledged and was never there.
    LostWrite {
        /// Which write.
        write: u64,
    },
    /// The write is acknowledged and went to another place. What would reach beyond the end is lost.
    MisdirectedWrite {
        /// Which write.
        write: u64,
        /// Byte offset where it went, a multiple of [`DEVICE_ALIGN`] (rounded down).
        to: u64,
    },
    /// A bit turns over, durably, before the operation.
    BitRot {
        /// Before which operation.
        operation: u64,
        /// Byte offset.
        offset: u64,
        /// Which bit of the byte, 0 to 7.
        bit: u8,
    },
    /// Reads of the page at the offset fail with EIO from the operation on, until it is written again.
    Unreadable {
        /// From which operation.
        operation: u64,
        /// Byte offset in the page.
        offset: u64,
    },
    /// The operation takes so much longer; see [`SimDisk::take_delay_us`](super::SimDisk::take_delay_us).
    Slow {
        /// Which operation.
        operation: u64,
        /// How much longer, microseconds of simulated time.
        delay_us: u64,
    },
    /// The operation returns only after [`SimDisk::release`](super::SimDisk::release): for tests with threads.
    Hang {
        /// Which operation.
        operation: u64,
    },
}

/// Kinds of [`Fault`] that a seed can choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// [`Fault::ReadError`].
    ReadError,
    /// [`Fault::WriteError`].
    WriteError,
    /// [`Fault::SyncError`].
    SyncError,
    /// [`Fault::LyingSync`], from one sync on for ever.
    LyingSync,
    /// [`Fault::LostWrite`].
    LostWrite,
    /// [`Fault::MisdirectedWrite`].
    MisdirectedWrite,
    /// [`Fault::BitRot`].
    BitRot,
    /// [`Fault::Unreadable`].
    Unreadable,
    /// [`Fault::Slow`], up to a second.
    Slow,
}

/// What a seeded plan is made for.
#[derive(Clone, Copy, Debug)]
pub struct Horizon {
    /// How many reads, writes and syncs (of each) the run has, about.
    pub operations: u64,
    /// How long the disk is, bytes.
    pub len_bytes: u64,
}

/// All faults of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// In any order.
    pub faults: Vec<Fault>,
    /// A [`grow`](crate::device::Device::grow) beyond so many bytes fails with ENOSPC.
    pub space_limit: Option<u64>,
}

/// What a plan does to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteFault {
    Error,
    Lost,
    Misdirected { to: u64 },
}

/// What a plan does to one sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncFault {
    Error,
    Lie,
}

impl FaultPlan {
    /// Nothing ever goes wrong.
    pub fn none() -> Self {
        Self::default()
    }

    /// These faults, and space without end.
    pub fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { faults: faults.into_iter().collect(), space_limit: None }
    }

    /// One fault of one of the kinds, at a moment and place that the seed chooses. No kinds, no fault.
    pub fn from_seed(seed: u64, kinds: &[FaultKind], horizon: Horizon) -> Self {
        let mut random = Random::new(seed);
        let Some(kind) = kinds.get(random.index(kinds.len())) else { return Self::none() };
        let moment = random.below(horizon.operations);
        let offset = random.below(horizon.len_bytes);
        let fault = match kind {
            FaultKind::ReadError => Fault::ReadError { read: moment },
            FaultKind::WriteError => Fault::WriteError { write: moment },
            FaultKind::SyncError => Fault::SyncError { sync: moment },
            FaultKind::LyingSync => Fault::LyingSync { syncs: moment..u64::MAX },
            FaultKind::LostWrite => Fault::LostWrite { write: moment },
            FaultKind::MisdirectedWrite => Fault::MisdirectedWrite { write: moment, to: align_down(offset) },
            FaultKind::BitRot => {
                let bit = u8::try_from(random.below(8)).unwrap_or_default();
                Fault::BitRot { operation: moment, offset, bit }
            }
            FaultKind::Unreadable => Fault::Unreadable { operation: moment, offset: align_down(offset) },
            FaultKind::Slow => Fault::Slow { operation: moment, delay_us: 1 + random.below(1_000_000) },
        };
        Self::new([fault])
    }

    pub(super) fn of_operation(&self, number: u64) -> impl Iterator<Item = &Fault> {
        self.faults.iter().filter(move |fault| match fault {
            Fault::BitRot { operation, .. }
            | Fault::Unreadable { operation, .. }
            | Fault::Slow { operation, .. }
            | Fault::Hang { operation } => *operation == number,
            _ => false,
        })
    }

    pub(super) fn fails_read(&self, number: u64) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::ReadError { read } if *read == number))
    }

    pub(super) fn of_write(&self, number: u64) -> Option<WriteFault> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::WriteError { write } if *write == number => Some(WriteFault::Error),
            Fault::LostWrite { write } if *write == number => Some(WriteFault::Lost),
            Fault::MisdirectedWrite { write, to } if *write == number => {
                Some(WriteFault::Misdirected { to: align_down(*to) })
            }
            _ => None,
        })
    }

    pub(super) fn of_sync(&self, number: u64) -> Option<SyncFault> {
        self.faults.iter().find_map(|fault| match fault {
            Fault::SyncError { sync } if *sync == number => Some(SyncFault::Error),
            Fault::LyingSync { syncs } if syncs.contains(&number) => Some(SyncFault::Lie),
            _ => None,
        })
    }
}

fn align_down(offset: u64) -> u64 {
    offset - offset % DEVICE_ALIGN
}
