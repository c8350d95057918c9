//! Verifies what lies on the disk without wanting it: every block that a read would take from a slot is read and compared with its
//! checksum.
//!
//! Blocks that are only journalled are not judged by what their slot holds: a read does not look there. What a read would find
//! where is asked of the state machine ([`Machine::plan_read`]), so that this never has another opinion than a read.
//!
//! [`verify`] is the one unit, for the offline check; [`verify_chunk`] does the same for one chunk of an engine that runs.

use std::collections::BTreeMap;

use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};

use crate::catalogue::{Catalogue, CatalogueError};
use crate::checkpoint::{Shared, read_entries};
use crate::device::Device;
use crate::format::entry::Content;
use crate::ids::{BLOCKS_PER_CHUNK, ChunkIndex, ShardId};
use crate::machine::{Cold, Lower, Piece, ReadPlan};
use crate::read::{FaultKind, ReadFault};

/// Longest single read of the device, bytes.
const MAX_READ_BYTES: u64 = 4 << 20;

/// What is not wanted is read along, up to so many bytes, rather than reading twice.
const MAX_GAP_BYTES: u64 = 64 << 10;

/// Blocks of a chunk, as it goes into plans.
const CHUNK_BLOCKS: u32 = 16;
const _: () = assert!(CHUNK_BLOCKS as usize == BLOCKS_PER_CHUNK);

/// Blocks on the disk that belong to one piece.
struct Wanted<'a> {
    /// Number of the first block in the plan.
    block: u64,
    offset: u64,
    crcs: &'a [u32],
}

impl Wanted<'_> {
    fn end(&self) -> u64 {
        self.offset + self.crcs.len() as u64 * BLOCK_BYTES
    }
}

/// Reads all blocks of a plan that lie on the disk, and tells those that are not what was written, by number in the plan, ascending.
/// Pieces that follow one another on the disk, in their order, are read at once.
pub(crate) fn verify(device: &dyn Device, pieces: &[Piece]) -> Vec<ReadFault> {
    let mut faults = Vec::new();
    let mut wanted: Vec<Wanted<'_>> = Vec::new();
    let mut block = 0;
    for piece in pieces {
        match piece {
            Piece::Disk { offset, crcs } => wanted.push(Wanted { block, offset: *offset, crcs }),
            Piece::Lost => faults.push(ReadFault { block, kind: FaultKind::Lost }),
            Piece::Zeros { .. } | Piece::Memory { .. } => {}
        }
        block += piece.blocks() as u64;
    }
    let mut rest = wanted.as_slice();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(run_len(rest));
        verify_run(device, now, &mut faults);
        rest = later;
    }
    faults.sort_unstable_by_key(|fault| fault.block);
    faults
}

/// How many of them are read at once, at least one.
fn run_len(wanted: &[Wanted<'_>]) -> usize {
    let Some(first) = wanted.first() else { return 0 };
    let mut end = first.end();
    let goes_on = |next: &&Wanted<'_>| {
        let fits =
            next.offset >= end && next.offset - end <= MAX_GAP_BYTES && next.end() - first.offset <= MAX_READ_BYTES;
        end = next.end();
        fits
    };
    1 + wanted.iter().skip(1).take_while(goes_on).count()
}

fn verify_run(device: &dyn Device, run: &[Wanted<'_>], faults: &mut Vec<ReadFault>) {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
    let len = usize::try_from(last.end() - first.offset).unwrap_or(usize::MAX);
    match device.read(first.offset, len) {
        Ok(bytes) => {
            for wanted in run {
                let from = usize::try_from(wanted.offset - first.offset).unwrap_or(usize::MAX);
                compare(wanted, bytes.get(from..).unwrap_or_default(), faults);
            }
        }
        // Which block is it? The others are as good as before.
        Err(_) => run.iter().for_each(|wanted| verify_singly(device, wanted, faults)),
    }
}

fn compare(wanted: &Wanted<'_>, bytes: &[u8], faults: &mut Vec<ReadFault>) {
    for ((block, crc), number) in bytes.chunks_exact(BLOCK_LEN).zip(wanted.crcs).zip(wanted.block..) {
        if crc32c::crc32c(block) != *crc {
            faults.push(ReadFault { block: number, kind: FaultKind::Checksum });
        }
    }
}

fn verify_singly(device: &dyn Device, wanted: &Wanted<'_>, faults: &mut Vec<ReadFault>) {
    for (index, crc) in (0..).zip(wanted.crcs) {
        let block = wanted.block + index;
        match device.read(wanted.offset + index * BLOCK_BYTES, BLOCK_LEN) {
            Ok(bytes) if crc32c::crc32c(&bytes) == *crc => {}
            Ok(_) => faults.push(ReadFault { block, kind: FaultKind::Checksum }),
            Err(error) => faults.push(ReadFault { block, kind: FaultKind::Io(error.to_string()) }),
        }
    }
}

/// What is wrong with a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChunkVerdict {
    /// These blocks, by number in the chunk; none if it is good.
    Blocks(Vec<ReadFault>),
    /// Its map entry is damaged, or missing.
    NoEntry,
}

/// One unit of a scrub: verifies a chunk of an engine that runs, as a read of it would.
pub(crate) fn verify_chunk<T>(
    shared: &impl Shared<T>,
    device: &dyn Device,
    catalogue: &dyn Catalogue,
    shard: ShardId,
    chunk: ChunkIndex,
) -> Result<ChunkVerdict, CatalogueError> {
    let mut known: BTreeMap<ChunkIndex, Option<Content>> = BTreeMap::new();
    let mut known_at = None;
    loop {
        let plan = shared.with(|machine| {
            let is_current = known_at == Some(machine.checkpoint_number());
            machine.plan_read(shard, chunk.first_block(), CHUNK_BLOCKS, |chunk| {
                known.get(&chunk).filter(|_| is_current).map_or(Cold::Unknown, |content| Cold::Known(*content))
            })
        });
        match plan {
            ReadPlan::Ready { pieces, planned } => {
                let faults = verify(device, &pieces);
                shared.with(|machine| machine.read_is_over(planned));
                return Ok(ChunkVerdict::Blocks(faults));
            }
            ReadPlan::Missing(_) => return Ok(ChunkVerdict::NoEntry),
            ReadPlan::Load { chunks, checkpoint } => {
                known_at = Some(checkpoint);
                known.clear();
                let chunks = chunks.into_iter().map(|chunk| (shard, chunk)).collect();
                for ((_, chunk), lower) in read_entries(catalogue, chunks)? {
                    match lower {
                        Lower::Entry(entry) => known.insert(chunk, entry.and_then(|entry| entry.content)),
                        Lower::Damaged => return Ok(ChunkVerdict::NoEntry),
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use smallvec::SmallVec;

    use super::*;
    use crate::device::{DeviceWrite, SimDisk};

    const BLOCKS: u8 = 64;

    fn disk() -> SimDisk {
        let disk = SimDisk::new(u64::from(BLOCKS) * BLOCK_BYTES, 1);
        for block in 0..BLOCKS {
            let write = DeviceWrite::new(u64::from(block) * BLOCK_BYTES, Bytes::from(vec![block; BLOCK_LEN]));
            disk.write(&[write]).unwrap();
        }
        disk
    }

    fn piece(first: u8, count: u8) -> Piece {
        let crcs = (first..first + count).map(|byte| crc32c::crc32c(&[byte; BLOCK_LEN])).collect::<SmallVec<_>>();
        Piece::Disk { offset: u64::from(first) * BLOCK_BYTES, crcs }
    }

    fn fault(block: u64, kind: FaultKind) -> ReadFault {
        ReadFault { block, kind }
    }

    #[test]
    fn verify_when_all_is_good_then_nothing_and_neighbours_in_one_read() {
        let disk = disk();
        let memory = Piece::Memory { bytes: Bytes::from_static(&[0; BLOCK_LEN]), crc: 7 };
        let pieces = [piece(0, 3), Piece::Zeros { blocks: 2 }, piece(5, 4), memory, piece(40, 2), piece(20, 1)];
        assert_eq!(verify(&disk, &pieces), []);
        // 40 is too far from 9, and 20 lies before 40.
        assert_eq!(disk.statistics().reads, 3);
    }

    #[test]
    fn verify_when_blocks_are_bad_then_each_by_its_number_and_the_rest_is_still_read() {
        let disk = disk();
        disk.rot(6 * BLOCK_BYTES + 100, 3);
        disk.rot(30 * BLOCK_BYTES, 0);
        disk.make_unreadable(8 * BLOCK_BYTES);
        let pieces = [piece(5, 4), Piece::Lost, Piece::Zeros { blocks: 10 }, piece(28, 4)];
        let faults = verify(&disk, &pieces);
        let FaultKind::Io(detail) = &faults[1].kind else { panic!("{faults:?}") };
        let expected = [
            fault(1, FaultKind::Checksum),
            fault(3, FaultKind::Io(detail.clone())),
            fault(4, FaultKind::Lost),
            fault(17, FaultKind::Checksum),
        ];
        assert_eq!(faults, expected);
    }
}
