//! What the benchmarks of the engine share: a store with one volume, and load on it as the storage daemon makes it.

#![allow(dead_code, reason = "each benchmark uses its part")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use bytes::Bytes;
use holdfast_proto::checksum;
use holdfast_proto::ids::{VolumeId, VolumeName};
use holdfast_proto::units::BlockSize;
use holdfast_store::{DiskStore, Kind, NewVolume, Operation, Options, Store};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// A folder that is removed with all that is in it.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A new one in `parent`.
    pub(crate) fn new(parent: &Path, name: &str) -> Outcome<Self> {
        let path = parent.join(format!("holdfast-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind is told by the next run, whose folder has another name; there is nothing else to do here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One kind of operation, one after the other over a volume.
#[derive(Clone)]
pub(crate) struct Pattern {
    writes: bool,
    len: u64,
    /// From one place to the next, bytes; as long as an operation, or longer.
    step: u64,
    /// Bytes of the volume that it wanders over, from the start.
    span: u64,
    /// From one operation's place to that of the next, in places.
    stride: u64,
    /// Number of the next operation.
    next: u64,
    data: Bytes,
    checksums: Vec<u32>,
}

impl Pattern {
    fn new(writes: bool, len: u64, span: u64, stride: u64) -> Self {
        // Not compressible, nor the same in each block, and not aligned: what comes from a socket is not either.
        let bytes: Vec<u8> = (0..=len).scan(0x2545_f491_u32, |state, _| Some(random(state))).collect();
        let data = Bytes::from(bytes).slice(1..);
        let checksums = checksum::of_pieces(0, std::slice::from_ref(&data));
        Self { writes, len, step: len, span, stride, next: 0, data, checksums }
    }

    /// Writes that wander over `span`, a power of two, and come to each place once before they begin anew.
    pub(crate) fn random_writes(len: u64, span: u64) -> Self {
        Self::new(true, len, span, 2_654_435_761)
    }

    /// Writes one behind the other, from the start again after `span`.
    pub(crate) fn sequential_writes(len: u64, span: u64) -> Self {
        Self::new(true, len, span, 1)
    }

    /// Reads that wander over `span`.
    pub(crate) fn random_reads(len: u64, span: u64) -> Self {
        Self::new(false, len, span, 2_654_435_761)
    }

    /// The same with places so far apart.
    pub(crate) fn one_in(self, step: u64) -> Self {
        Self { step, ..self }
    }

    fn operation(&mut self) -> Operation {
        let offset = self.next.wrapping_mul(self.stride) % (self.span / self.step) * self.step;
        self.next += 1;
        if self.writes {
            Operation::Write { offset, data: vec![self.data.clone()], checksums: self.checksums.clone() }
        } else {
            Operation::Read { offset, len: self.len }
        }
    }
}

fn random(state: &mut u32) -> u8 {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    state.to_le_bytes()[0]
}

/// A store and one volume of it.
pub(crate) struct Load {
    pub(crate) store: DiskStore,
    pub(crate) volume: VolumeId,
}

impl Load {
    /// Opens the store in `dir` and its volume, or makes both.
    pub(crate) fn open(dir: &Path, options: &Options, size_bytes: u64) -> Outcome<Self> {
        let store = DiskStore::open(dir, options)?;
        let volume = match store.volumes().first() {
            Some(volume) => volume.id,
            None => {
                let name = "bench".parse::<VolumeName>()?;
                let kind = Kind::Disk;
                let block_size = BlockSize::B4096;
                store.create_volume(NewVolume { name, size_bytes, block_size, kind, read_only: false })?.id
            }
        };
        Ok(Self { store, volume })
    }

    /// Keeps `depth` operations in flight while `more` says so, which is asked before each with the number of those before.
    /// All are over when it returns; how many there were.
    pub(crate) fn drive(&self, pattern: &mut Pattern, depth: u64, mut more: impl FnMut(u64) -> bool) -> Outcome<u64> {
        let (done, results) = channel();
        let (mut started, mut ended, mut goes_on) = (0, 0, true);
        loop {
            while goes_on && started - ended < depth {
                goes_on = more(started);
                if goes_on {
                    let done = done.clone();
                    // The receiver is there until all have ended.
                    let completion = move |result: Result<_, _>| drop(done.send(result.map(drop)));
                    self.store.submit(self.volume, pattern.operation(), Box::new(completion));
                    started += 1;
                }
            }
            if started == ended {
                return Ok(ended);
            }
            results.recv()??;
            ended += 1;
        }
    }

    /// Writes every byte of the first `span`.
    pub(crate) fn fill(&self, span: u64) -> Outcome<()> {
        let len = span.min(MIB);
        self.drive(&mut Pattern::sequential_writes(len, span), 8, |number| number < span / len)?;
        Ok(())
    }
}
