//! Turns a change of any byte range into a change of whole blocks: merges the edges with what is there, and sums them
//! anew. Whole blocks in between keep the buffers and checksums that they came with.

use bytes::Bytes;
use holdfast_proto::checksum;
use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};

use crate::error::StoreError;
use crate::journal::{Change, entry_of};

/// Content of one block.
pub(crate) type Block = Box<[u8; BLOCK_LEN]>;

/// A block of zeros.
pub(crate) fn zero_block() -> Block {
    Box::new([0; BLOCK_LEN])
}

/// A write of `data` at `offset` as a change from block `offset / 4096` on. The checksums of the pieces have been
/// verified. `old` gives the present content of a block that is overwritten in part.
pub(crate) fn write(
    offset: u64,
    data: Vec<Bytes>,
    mut checksums: Vec<u32>,
    old: impl Fn(u64) -> Result<Block, StoreError>,
) -> Result<Change, StoreError> {
    let total = checksum::len_bytes(&data);
    let into_block = offset % BLOCK_BYTES;
    let head = if into_block == 0 { 0 } else { checksum::piece_len(offset, total) };
    let tail = (total - head) % BLOCK_BYTES;
    let payload = if head == 0 && tail == 0 {
        data
    } else {
        let mut payload = Vec::with_capacity(data.len() + 2);
        let mut source = Source { front: Bytes::new(), rest: data.into_iter() };
        if head > 0 {
            let mut block = old(offset / BLOCK_BYTES)?;
            source.copy_to(range_mut(&mut block, into_block, head));
            checksums.first_mut().into_iter().for_each(|checksum| *checksum = crc32c::crc32c(&*block));
            payload.push(bytes_of(block));
        }
        source.move_to(&mut payload, total - head - tail);
        if tail > 0 {
            let mut block = old((offset + total) / BLOCK_BYTES)?;
            source.copy_to(range_mut(&mut block, 0, tail));
            checksums.last_mut().into_iter().for_each(|checksum| *checksum = crc32c::crc32c(&*block));
            payload.push(bytes_of(block));
        }
        payload
    };
    checksums.iter_mut().for_each(|checksum| *checksum = entry_of(*checksum));
    Ok(Change::Write { entries: checksums, payload })
}

/// `block` with zeros over a part of it.
pub(crate) fn zero_part(mut block: Block, from: u64, len_bytes: u64) -> Change {
    range_mut(&mut block, from, len_bytes).fill(0);
    Change::Write { entries: vec![entry_of(crc32c::crc32c(&*block))], payload: vec![bytes_of(block)] }
}

/// Copies block number `index` out of a payload of whole blocks.
pub(crate) fn block_of(payload: &[Bytes], index: u64) -> Block {
    let mut source = Source { front: Bytes::new(), rest: payload.iter().cloned() };
    source.skip(index * BLOCK_BYTES);
    let mut block = zero_block();
    source.copy_to(&mut *block);
    block
}

/// `blocks` blocks of a payload of whole blocks, from block number `index` on; not copied.
pub(crate) fn blocks_of(payload: &[Bytes], index: u64, blocks: u64) -> Vec<Bytes> {
    let mut source = Source { front: Bytes::new(), rest: payload.iter().cloned() };
    source.skip(index * BLOCK_BYTES);
    let mut part = Vec::new();
    source.move_to(&mut part, blocks * BLOCK_BYTES);
    part
}

fn range_mut(block: &mut Block, from: u64, len_bytes: u64) -> &mut [u8] {
    block.get_mut(len(from)..len(from + len_bytes)).unwrap_or_default()
}

fn bytes_of(block: Block) -> Bytes {
    Bytes::from(block as Box<[u8]>)
}

/// Lengths within one operation fit: see [`MAX_OPERATION_BYTES`](crate::MAX_OPERATION_BYTES).
fn len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A payload that is taken from its front.
struct Source<I> {
    front: Bytes,
    rest: I,
}

impl<I: Iterator<Item = Bytes>> Source<I> {
    fn copy_to(&mut self, mut into: &mut [u8]) {
        while let Some(part) = self.part(into.len()) {
            let (now, later) = into.split_at_mut(part.len());
            now.copy_from_slice(&part);
            into = later;
        }
    }

    fn move_to(&mut self, payload: &mut Vec<Bytes>, len_bytes: u64) {
        let mut wanted = len(len_bytes);
        while let Some(part) = self.part(wanted) {
            wanted -= part.len();
            payload.push(part);
        }
    }

    fn skip(&mut self, len_bytes: u64) {
        let mut wanted = len(len_bytes);
        while let Some(part) = self.part(wanted) {
            wanted -= part.len();
        }
    }

    /// At least one byte and at most `most`; `None` when nothing is wanted or left.
    fn part(&mut self, most: usize) -> Option<Bytes> {
        if most == 0 {
            return None;
        }
        while self.front.is_empty() {
            self.front = self.rest.next()?;
        }
        let len = self.front.len().min(most);
        Some(self.front.split_to(len))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn write_when_any_range_then_whole_blocks_with_the_old_edges(
            offset in 0u64..9000, data in prop::collection::vec(any::<u8>(), 1..20_000), cut in 0usize..20_000
        ) {
            let old: Vec<u8> = (0..40_960u32).map(|i| (i % 239) as u8).collect();
            let mut expected = old.clone();
            let start = usize::try_from(offset).unwrap();
            expected[start..start + data.len()].copy_from_slice(&data);
            let whole = Bytes::from(data);
            let cut = cut.min(whole.len());
            let chunks = vec![whole.slice(..cut), whole.slice(cut..)];
            let checksums = checksum::of_pieces(offset, &chunks);
            let change = write(offset, chunks, checksums, |block| {
                let at = usize::try_from(block * BLOCK_BYTES).unwrap();
                Ok(Box::new(old[at..at + BLOCK_LEN].try_into().unwrap()))
            });
            let Ok(Change::Write { entries, payload }) = change else { panic!("not a write") };
            let first = start / BLOCK_LEN * BLOCK_LEN;
            let last = (start + whole.len()).next_multiple_of(BLOCK_LEN);
            prop_assert_eq!(&payload.concat()[..], &expected[first..last]);
            let sums: Vec<u32> = expected[first..last].chunks(BLOCK_LEN).map(|block| entry_of(crc32c::crc32c(block))).collect();
            prop_assert_eq!(entries, sums);
            for index in 0..(last - first) / BLOCK_LEN {
                prop_assert_eq!(&block_of(&payload, index as u64)[..], &expected[first + index * BLOCK_LEN..][..BLOCK_LEN]);
            }
        }
    }

    #[test]
    fn write_when_aligned_then_buffers_are_not_copied() {
        let data = vec![Bytes::from(vec![1; 4096]), Bytes::from(vec![2; 8192])];
        let pointers: Vec<_> = data.iter().map(|chunk| chunk.as_ptr()).collect();
        let checksums = checksum::of_pieces(4096, &data);
        let Ok(Change::Write { payload, .. }) = write(4096, data, checksums, |_| Err(StoreError::NoSpace)) else {
            panic!("not a write")
        };
        assert_eq!(payload.iter().map(|chunk| chunk.as_ptr()).collect::<Vec<_>>(), pointers);
    }

    #[test]
    fn write_when_the_crc_of_a_block_is_zero_then_kept_as_one() {
        let change = write(0, vec![Bytes::from(vec![0; 4096])], vec![0], |_| Err(StoreError::NoSpace));
        let Ok(Change::Write { entries, .. }) = change else { panic!("not a write") };
        assert_eq!(entries, [1]);
    }
}
