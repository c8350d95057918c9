//! Carries a planned read out: fetches, and checks every block that comes from the disk.

use bytes::Bytes;
use holdfast_proto::checksum::ZERO_BLOCK;
use holdfast_proto::units::BLOCK_LEN;

use crate::device::Device;
use crate::machine::Piece;
use crate::mutants::{Mutant, broken};
use crate::operation::BlocksRead;

/// Zeros that holes are read from.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Longest single read of the device, bytes.
const MAX_READ_BYTES: usize = 4 << 20;

/// Why a read failed, and at which block of the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadFault {
    pub(crate) block: u64,
    pub(crate) kind: FaultKind,
}

/// What is wrong with a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// It is not what was written.
    Checksum,
    /// Nobody knows what was written.
    Lost,
    /// The disk does not give it.
    Io(String),
}

/// Reads the pieces in order.
pub(crate) fn carry_out(device: &dyn Device, pieces: &[Piece]) -> Result<BlocksRead, ReadFault> {
    let blocks: usize = pieces.iter().map(Piece::blocks).sum();
    let mut read = BlocksRead { data: Vec::with_capacity(pieces.len()), crcs: Vec::with_capacity(blocks) };
    let mut rest = pieces;
    while let Some((first, others)) = rest.split_first() {
        let run = run_len(rest);
        match first {
            Piece::Zeros { blocks } => zeros(&mut read, *blocks),
            Piece::Memory { bytes, crc } => {
                read.data.push(bytes.clone());
                read.crcs.push(*crc);
            }
            Piece::Lost => return Err(ReadFault { block: read.crcs.len() as u64, kind: FaultKind::Lost }),
            Piece::Disk { offset, .. } => {
                let (now, later) = rest.split_at(run);
                from_disk(device, *offset, now, &mut read)?;
                rest = later;
                continue;
            }
        }
        rest = others;
    }
    Ok(read)
}

/// How many pieces from the first on lie one behind the other on the disk.
fn run_len(pieces: &[Piece]) -> usize {
    let (mut run, mut end, mut len) = (0, None, 0);
    for piece in pieces {
        let Piece::Disk { offset, crcs } = piece else { break };
        let bytes = crcs.len() * BLOCK_LEN;
        if end.is_some_and(|end| end != *offset) || (run > 0 && len + bytes > MAX_READ_BYTES) {
            break;
        }
        end = Some(offset + bytes as u64);
        len += bytes;
        run += 1;
    }
    run
}

fn from_disk(device: &dyn Device, offset: u64, pieces: &[Piece], read: &mut BlocksRead) -> Result<(), ReadFault> {
    let crcs = || {
        pieces.iter().flat_map(|piece| match piece {
            Piece::Disk { crcs, .. } => crcs.as_slice(),
            _ => &[],
        })
    };
    let len = crcs().count() * BLOCK_LEN;
    let first = read.crcs.len() as u64;
    let bytes = match device.read(offset, len) {
        Ok(bytes) => bytes,
        Err(error) => return Err(ReadFault { block: first, kind: FaultKind::Io(error.to_string()) }),
    };
    for ((block, crc), index) in bytes.chunks_exact(BLOCK_LEN).zip(crcs()).zip(first..) {
        if crc32c::crc32c(block) != *crc && !broken(Mutant::SkipReadCrc) {
            return Err(ReadFault { block: index, kind: FaultKind::Checksum });
        }
    }
    read.crcs.extend(crcs());
    read.data.push(bytes);
    Ok(())
}

fn zeros(read: &mut BlocksRead, blocks: u32) {
    let mut rest = usize::try_from(blocks).unwrap_or(usize::MAX);
    read.crcs.extend(std::iter::repeat_n(ZERO_BLOCK, rest));
    while rest > 0 {
        let now = rest.min(ZEROS.len() / BLOCK_LEN);
        read.data.push(Bytes::from_static(ZEROS.get(..now * BLOCK_LEN).unwrap_or(&ZEROS)));
        rest -= now;
    }
}

#[cfg(test)]
mod tests {
    use smallvec::SmallVec;

    use super::*;
    use crate::device::{DeviceWrite, SimDisk};
    use crate::mutants;

    fn disk() -> SimDisk {
        let disk = SimDisk::new(1 << 20, 1);
        for block in 0..8u8 {
            disk.write(&[DeviceWrite::new(u64::from(block) * 4096, Bytes::from(vec![block; BLOCK_LEN]))]).unwrap();
        }
        disk
    }

    fn crc(byte: u8) -> u32 {
        crc32c::crc32c(&[byte; BLOCK_LEN])
    }

    fn piece(first: u8, count: u8) -> Piece {
        Piece::Disk { offset: u64::from(first) * 4096, crcs: (first..first + count).map(crc).collect::<SmallVec<_>>() }
    }

    #[test]
    fn carry_out_when_pieces_of_all_kinds_then_their_blocks_in_order() {
        let memory = Piece::Memory { bytes: Bytes::from(vec![99; BLOCK_LEN]), crc: crc(99) };
        let pieces = [piece(4, 2), Piece::Zeros { blocks: 17 }, memory, piece(1, 2), piece(3, 1), piece(7, 1)];
        let read = carry_out(&disk(), &pieces).unwrap();
        let expected: Vec<u8> = [4, 5].into_iter().chain([0; 17]).chain([99, 1, 2, 3, 7]).collect();
        assert_eq!(read.crcs, expected.iter().map(|byte| crc(*byte)).collect::<Vec<_>>());
        let bytes = read.data.concat();
        assert_eq!(bytes.len(), expected.len() * BLOCK_LEN);
        assert!(bytes.chunks(BLOCK_LEN).zip(&expected).all(|(block, byte)| block.iter().all(|found| found == byte)));
        assert_eq!(disk().statistics().reads, 0);
    }

    #[test]
    fn carry_out_when_slots_adjoin_then_one_read() {
        let disk = disk();
        carry_out(&disk, &[piece(1, 2), piece(3, 2), piece(6, 1)]).unwrap();
        assert_eq!(disk.statistics().reads, 2);
    }

    #[test]
    fn carry_out_when_a_block_is_wrong_then_its_place_is_told() {
        let mut bad = piece(2, 3);
        if let Piece::Disk { crcs, .. } = &mut bad {
            crcs[1] ^= 1;
        }
        let pieces = [Piece::Zeros { blocks: 5 }, bad.clone()];
        assert_eq!(carry_out(&disk(), &pieces), Err(ReadFault { block: 6, kind: FaultKind::Checksum }));
        assert!(mutants::with(Some(Mutant::SkipReadCrc), || carry_out(&disk(), &pieces)).is_ok());
        assert_eq!(carry_out(&disk(), &[Piece::Lost]), Err(ReadFault { block: 0, kind: FaultKind::Lost }));
        let beyond = Piece::Disk { offset: 1 << 20, crcs: SmallVec::from_elem(0, 1) };
        assert!(matches!(carry_out(&disk(), &[beyond]), Err(ReadFault { kind: FaultKind::Io(_), .. })));
    }
}
