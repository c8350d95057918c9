//! Turns a change of any byte range into one of whole blocks: merges the edges with what is there, and sums them anew.
//! Whole blocks in between keep the buffers and checksums that they came with. The other way round, cuts a byte range
//! out of whole blocks.

use bytes::Bytes;
use holdfast_proto::checksum;
use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};

use crate::operation::BlocksRead;
use crate::store::Output;

/// Content of one block.
pub(super) type Block = Box<[u8; BLOCK_LEN]>;

/// A block of zeros.
pub(super) fn zero_block() -> Block {
    Box::new([0; BLOCK_LEN])
}

/// The single block of a read of one, if it is what its checksum says: a sum is made anew only over what was verified.
pub(super) fn verified_block(read: &BlocksRead) -> Option<Block> {
    let mut block = zero_block();
    let mut source = Source::new(read.data.iter().cloned());
    source.copy_to(&mut *block);
    (checksum::len_bytes(&read.data) == BLOCK_BYTES && read.crcs == [crc32c::crc32c(&*block)]).then_some(block)
}

/// A write of `data` at `offset`, not empty, as whole blocks from block `offset / 4096` on, with their checksums. Those of
/// the pieces have been verified. `head` and `tail` are the old content of the first and the last block, if they keep
/// something of it; what else is beyond the data becomes zeros.
pub(super) fn write(
    offset: u64,
    data: Vec<Bytes>,
    mut checksums: Vec<u32>,
    head: Option<Block>,
    tail: Option<Block>,
) -> (Vec<Bytes>, Vec<u32>) {
    let total = checksum::len_bytes(&data);
    let into_block = offset % BLOCK_BYTES;
    let head_len = if into_block > 0 || head.is_some() { checksum::piece_len(offset, total) } else { 0 };
    let tail_len = (total - head_len) % BLOCK_BYTES;
    if head_len == 0 && tail_len == 0 {
        return (data, checksums);
    }
    let mut blocks = Vec::with_capacity(data.len() + 2);
    let mut source = Source::new(data.into_iter());
    let edge = |source: &mut Source<_>, old: Option<Block>, from, len, checksum: Option<&mut u32>| {
        let mut block = old.unwrap_or_else(zero_block);
        source.copy_to(range_mut(&mut block, from, len));
        checksum.into_iter().for_each(|checksum| *checksum = crc32c::crc32c(&*block));
        bytes_of(block)
    };
    if head_len > 0 {
        blocks.push(edge(&mut source, head, into_block, head_len, checksums.first_mut()));
    }
    source.move_to(&mut blocks, total - head_len - tail_len);
    if tail_len > 0 {
        blocks.push(edge(&mut source, tail, 0, tail_len, checksums.last_mut()));
    }
    (blocks, checksums)
}

/// What zeroing a part of a block makes of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Zeroed {
    /// Nothing changes.
    Same,
    /// Nothing is left: it can be a hole.
    Empty,
    /// New content, and its checksum.
    Changed(Bytes, u32),
}

/// `block` with zeros from byte `from` up to byte `to`.
pub(super) fn zero_part(mut block: Block, from: u64, to: u64) -> Zeroed {
    let part = range_mut(&mut block, from, to.saturating_sub(from));
    if part.iter().all(|byte| *byte == 0) {
        return Zeroed::Same;
    }
    part.fill(0);
    if block.iter().all(|byte| *byte == 0) {
        return Zeroed::Empty;
    }
    let crc = crc32c::crc32c(&*block);
    Zeroed::Changed(bytes_of(block), crc)
}

/// Cuts the range of `len` bytes, not zero, from `offset` of the volume out of the whole blocks that it lies in. The error
/// is the index of an edge that is not what its checksum says; 0 if these are not the blocks of the range at all.
pub(super) fn cut(offset: u64, len: u64, blocks: BlocksRead) -> Result<Output, u64> {
    let BlocksRead { data, crcs: mut checksums } = blocks;
    let count = checksum::piece_count(offset, len);
    if checksums.len() as u64 != count || checksum::len_bytes(&data) != count * BLOCK_BYTES {
        return Err(0);
    }
    let (from, to) = (offset % BLOCK_BYTES, (offset + len) % BLOCK_BYTES);
    if from == 0 && to == 0 {
        return Ok(Output { data, checksums });
    }
    let last = count - 1;
    let end = if to == 0 { BLOCK_BYTES } else { to };
    if from > 0 || last == 0 {
        resum(&data, &mut checksums, 0, from, if last == 0 { end } else { BLOCK_BYTES })?;
    }
    if to > 0 && last > 0 {
        resum(&data, &mut checksums, last, 0, to)?;
    }
    let mut source = Source::new(data.into_iter());
    source.skip(from);
    let mut data = Vec::new();
    source.move_to(&mut data, len);
    Ok(Output { data, checksums })
}

/// Replaces the checksum of a block by that of its bytes `from..to`, if it was right.
fn resum(data: &[Bytes], checksums: &mut [u32], index: u64, from: u64, to: u64) -> Result<(), u64> {
    let mut source = Source::new(data.iter().cloned());
    source.skip(index * BLOCK_BYTES);
    let mut block = zero_block();
    source.copy_to(&mut *block);
    let checksum = usize::try_from(index).ok().and_then(|index| checksums.get_mut(index)).ok_or(index)?;
    if *checksum != crc32c::crc32c(&*block) {
        return Err(index);
    }
    *checksum = crc32c::crc32c(range_mut(&mut block, from, to - from));
    Ok(())
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

/// Buffers that are taken from their front.
pub(super) struct Source<I> {
    front: Bytes,
    rest: I,
}

impl<I: Iterator<Item = Bytes>> Source<I> {
    pub(super) fn new(rest: I) -> Self {
        Self { front: Bytes::new(), rest }
    }

    fn copy_to(&mut self, mut into: &mut [u8]) {
        while let Some(part) = self.part(into.len()) {
            let (now, later) = into.split_at_mut(part.len());
            now.copy_from_slice(&part);
            into = later;
        }
    }

    /// Appends the next bytes to `data`, not copied.
    pub(super) fn move_to(&mut self, data: &mut Vec<Bytes>, len_bytes: u64) {
        let mut wanted = len(len_bytes);
        while let Some(part) = self.part(wanted) {
            wanted -= part.len();
            data.push(part);
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
    use crate::volumes::split::Footprint;

    const SIZE: usize = 40_960 + 512;

    fn old_content() -> Vec<u8> {
        let mut old: Vec<u8> = (0..SIZE).map(|i| u8::try_from(i % 239).unwrap()).collect();
        old.resize(SIZE.next_multiple_of(BLOCK_LEN), 0);
        old
    }

    fn block_of(content: &[u8], block: u64) -> Block {
        let at = usize::try_from(block).unwrap() * BLOCK_LEN;
        Box::new(content[at..at + BLOCK_LEN].try_into().unwrap())
    }

    fn cut_anyhow(data: Vec<u8>, cut: usize) -> Vec<Bytes> {
        let whole = Bytes::from(data);
        let cut = cut.min(whole.len());
        vec![whole.slice(..cut), whole.slice(cut..)]
    }

    proptest! {
        #[test]
        fn write_when_any_range_then_whole_blocks_with_the_old_edges(
            offset in 0usize..SIZE, data in prop::collection::vec(any::<u8>(), 1..20_000), to_end in any::<bool>(), cut in 0usize..20_000
        ) {
            let mut data = data;
            data.truncate(SIZE - offset);
            if to_end {
                data.resize(SIZE - offset, 7);
            }
            let old = old_content();
            let mut expected = old.clone();
            expected[offset..offset + data.len()].copy_from_slice(&data);
            let (len, chunks) = (data.len(), cut_anyhow(data, cut));
            let checksums = checksum::of_pieces(offset as u64, &chunks);
            let footprint = Footprint::of(offset as u64, len as u64, SIZE as u64).unwrap();
            let head = footprint.head_partial.then(|| block_of(&old, footprint.first));
            let tail = footprint.tail_partial.then(|| block_of(&old, footprint.end - 1));
            let (blocks, checksums) = write(offset as u64, chunks, checksums, head, tail);
            let expected = &expected[offset / BLOCK_LEN * BLOCK_LEN..(offset + len).next_multiple_of(BLOCK_LEN)];
            prop_assert_eq!(&blocks.concat()[..], expected);
            let sums: Vec<u32> = expected.chunks(BLOCK_LEN).map(crc32c::crc32c).collect();
            prop_assert_eq!(checksums, sums);
        }

        #[test]
        fn cut_when_any_range_then_its_bytes_and_checksums(
            offset in 0usize..SIZE, len in 1usize..20_000, at in 0usize..20_000
        ) {
            let content = old_content();
            let len = len.min(content.len() - offset);
            let (first, end) = (offset / BLOCK_LEN * BLOCK_LEN, (offset + len).next_multiple_of(BLOCK_LEN));
            let crcs: Vec<u32> = content[first..end].chunks(BLOCK_LEN).map(crc32c::crc32c).collect();
            let blocks = BlocksRead { data: cut_anyhow(content[first..end].to_vec(), at), crcs };
            let output = cut(offset as u64, len as u64, blocks.clone()).unwrap();
            prop_assert_eq!(&output.data.concat()[..], &content[offset..offset + len]);
            prop_assert_eq!(checksum::verify(offset as u64, &output.data, &output.checksums), Ok(()));
            // An edge that is not whole is not summed anew over what is wrong.
            if offset % BLOCK_LEN != 0 {
                let mut bad = blocks.clone();
                bad.crcs[0] ^= 1;
                prop_assert_eq!(cut(offset as u64, len as u64, bad), Err(0));
            }
            let mut short = blocks;
            short.crcs.pop();
            prop_assert_eq!(cut(offset as u64, len as u64, short), Err(0));
        }
    }

    #[test]
    fn write_when_aligned_then_buffers_are_not_copied() {
        let data = vec![Bytes::from(vec![1; 4096]), Bytes::from(vec![2; 8192])];
        let pointers: Vec<_> = data.iter().map(|chunk| chunk.as_ptr()).collect();
        let checksums = checksum::of_pieces(4096, &data);
        let (blocks, same) = write(4096, data, checksums.clone(), None, None);
        assert_eq!(blocks.iter().map(|chunk| chunk.as_ptr()).collect::<Vec<_>>(), pointers);
        assert_eq!(same, checksums);
    }

    #[test]
    fn zero_part_when_nothing_changes_or_nothing_is_left_then_told() {
        let mut block = zero_block();
        assert_eq!(zero_part(block.clone(), 0, 4000), Zeroed::Same);
        block[100] = 1;
        assert_eq!(zero_part(block.clone(), 101, 4096), Zeroed::Same);
        assert_eq!(zero_part(block.clone(), 100, 101), Zeroed::Empty);
        block[99] = 2;
        let mut expected = zero_block();
        expected[99] = 2;
        let crc = crc32c::crc32c(&*expected);
        assert_eq!(zero_part(block, 100, 4096), Zeroed::Changed(bytes_of(expected), crc));
    }

    #[test]
    fn verified_block_when_not_one_good_block_then_none() {
        let good = BlocksRead { data: vec![Bytes::from(vec![7; 4096])], crcs: vec![crc32c::crc32c(&[7; 4096])] };
        assert_eq!(verified_block(&good), Some(Box::new([7; 4096])));
        assert_eq!(verified_block(&BlocksRead { crcs: vec![1], ..good.clone() }), None);
        assert_eq!(verified_block(&BlocksRead { data: vec![Bytes::from(vec![7; 4095])], ..good }), None);
        assert_eq!(verified_block(&BlocksRead::default()), None);
    }
}
