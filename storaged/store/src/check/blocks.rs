//! Reads the data of one shard in the order in which it lies on the disk, and compares it with its checksums.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, mpsc};
use std::thread;

use crate::device::Device;
use crate::ids::{BLOCKS_PER_CHUNK, ChunkIndex};
use crate::machine::Piece;
use crate::read::ReadFault;
use crate::scrub;

/// Chunks that are verified by one thread at a time: 4 MiB.
const BATCH_CHUNKS: usize = 64;

/// While one thread makes checksums the other waits for the disk.
const THREADS: usize = 2;

/// A chunk to verify: where a read would find its 16 blocks.
pub(super) struct ChunkPlan {
    pub(super) chunk: ChunkIndex,
    pub(super) pieces: Vec<Piece>,
}

impl ChunkPlan {
    fn offset(&self) -> u64 {
        let offset = |piece: &Piece| if let Piece::Disk { offset, .. } = piece { Some(*offset) } else { None };
        self.pieces.iter().find_map(offset).unwrap_or_default()
    }
}

/// What is wrong with the chunks: blocks by number in their chunk, ascending. `progress` is told of chunks that are done.
pub(super) fn verify(
    device: &dyn Device,
    mut plans: Vec<ChunkPlan>,
    progress: &mut dyn FnMut(u64),
) -> Vec<(ChunkIndex, ReadFault)> {
    plans.sort_by_key(ChunkPlan::offset);
    let batches: Vec<&[ChunkPlan]> = plans.chunks(BATCH_CHUNKS).collect();
    let mut faults = if batches.len() > 1 {
        in_parallel(device, &batches, progress)
    } else {
        let faults = batches.iter().flat_map(|batch| verify_batch(device, batch)).collect();
        progress(plans.len() as u64);
        faults
    };
    faults.sort_by_key(|(chunk, fault)| (*chunk, fault.block));
    faults
}

fn in_parallel(
    device: &dyn Device,
    batches: &[&[ChunkPlan]],
    progress: &mut dyn FnMut(u64),
) -> Vec<(ChunkIndex, ReadFault)> {
    let next = AtomicUsize::new(0);
    let faults = Mutex::new(Vec::new());
    let (done, dones) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let (done, next, faults) = (done.clone(), &next, &faults);
            scope.spawn(move || {
                while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = verify_batch(device, batch);
                    faults.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
                    // Nobody listens only when the check has panicked.
                    let _ = done.send(batch.len() as u64);
                }
            });
        }
        drop(done);
        dones.iter().for_each(progress);
    });
    faults.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn verify_batch(device: &dyn Device, batch: &[ChunkPlan]) -> Vec<(ChunkIndex, ReadFault)> {
    let pieces: Vec<Piece> = batch.iter().flat_map(|plan| plan.pieces.iter().cloned()).collect();
    let faults = scrub::verify(device, &pieces).into_iter().filter_map(|fault| {
        // Each plan has the blocks of one chunk.
        let plan = batch.get(usize::try_from(fault.block).ok()? / BLOCKS_PER_CHUNK)?;
        let block = fault.block % BLOCKS_PER_CHUNK as u64;
        Some((plan.chunk, ReadFault { block, ..fault }))
    });
    faults.collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use smallvec::SmallVec;

    use super::*;
    use crate::device::{DeviceWrite, SimDisk};
    use crate::format::samples::chunk;
    use crate::ids::{CHUNK_BYTES, CHUNK_LEN};
    use crate::read::FaultKind;

    #[test]
    fn verify_when_many_chunks_lie_in_any_order_then_each_bad_block_of_the_right_chunk() {
        const CHUNKS: u16 = 200;
        let disk = SimDisk::new(u64::from(CHUNKS) * CHUNK_BYTES, 1);
        let slot_of = |index: u16| u64::from(index * 77 % CHUNKS);
        let mut plans = Vec::new();
        for index in 0..CHUNKS {
            let data = vec![u8::try_from(index).unwrap(); CHUNK_LEN];
            let crc = crc32c::crc32c(&data[..4096]);
            let offset = slot_of(index) * CHUNK_BYTES;
            disk.write(&[DeviceWrite::new(offset, Bytes::from(data))]).unwrap();
            let pieces = vec![Piece::Disk { offset, crcs: SmallVec::from_elem(crc, 16) }];
            plans.push(ChunkPlan { chunk: chunk(index), pieces });
        }
        disk.rot(slot_of(150) * CHUNK_BYTES + 3 * 4096, 1);
        disk.rot(slot_of(3) * CHUNK_BYTES + 15 * 4096 + 4095, 7);
        let mut done = 0;
        let faults = verify(&disk, plans, &mut |chunks| done += chunks);
        let fault = |index, block| (chunk(index), ReadFault { block, kind: FaultKind::Checksum });
        assert_eq!(faults, [fault(3, 15), fault(150, 3)]);
        assert_eq!(done, u64::from(CHUNKS));
        // 200 chunks that adjoin on the disk, 4 MiB at a time.
        assert!(disk.statistics().reads <= 5, "{:?}", disk.statistics());
    }
}
