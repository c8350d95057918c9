//! Between a logical unit's blocks and a volume's bytes.

use bytes::Bytes;
use holdfast_scsi::{BlockRange, Io, IoError, Operation};

use crate::metrics::Operation as Meter;
use crate::volume::{BlockOperation, ByteRange, PartError};

/// The operation on the volume that a command asks for, `data` being what the initiator sent. Where that is less than the
/// command wants (RFC 7143, 11.4.5.1: residual overflow), the blocks that are whole are written.
pub(super) fn block_operation(io: &Io, data: Vec<Bytes>) -> BlockOperation {
    let bytes = |range: &BlockRange| ByteRange { offset: range.offset_bytes(&io.unit), len: range.len_bytes(&io.unit) };
    match &io.operation {
        Operation::Read(range) => BlockOperation::Read(bytes(range)),
        Operation::Write(range) => {
            let block_bytes = u64::from(io.unit.block_size.bytes());
            let sent: u64 = data.iter().map(|segment| segment.len() as u64).sum();
            let mut range = bytes(range);
            range.len = range.len.min(sent - sent % block_bytes);
            BlockOperation::Write(range, data)
        }
        // The host asks for a hole by the UNMAP bit, whatever the block says; hosts send zeros or leave the block undefined.
        Operation::WriteSame { range, unmap: true, .. } => BlockOperation::Unmap(vec![bytes(range)]),
        Operation::WriteSame { range, .. } => {
            // No data means zeros (NDOB). Zeros become a hole, which reads the same and takes no space: with LBPRZ SBC leaves
            // that to the device.
            let block = super::tasks::contiguous(data);
            if block.iter().all(|byte| *byte == 0) {
                BlockOperation::Unmap(vec![bytes(range)])
            } else {
                BlockOperation::WriteSame(bytes(range), block)
            }
        }
        Operation::Unmap(ranges) => BlockOperation::Unmap(ranges.iter().map(bytes).collect()),
        Operation::Flush(_) => BlockOperation::Flush,
    }
}

/// What SCSI calls a failure of storage.
pub(super) fn io_error(error: &PartError, io: &Io) -> IoError {
    match error {
        PartError::Medium { offset } => IoError::Medium { lba: damaged_block(*offset, io) },
        PartError::NoSpace => IoError::NoSpace,
        PartError::WriteProtected => IoError::WriteProtected,
        PartError::DataDamaged => IoError::DataOutDamaged,
        PartError::ConnectionLost | PartError::Cancelled => IoError::TransportLost,
        PartError::Failed(_) => IoError::Internal,
    }
}

/// The first damaged logical block of the command. Storage names the beginning of its own, larger block, which may lie before it.
fn damaged_block(offset: u64, io: &Io) -> u64 {
    let block = offset / u64::from(io.unit.block_size.bytes());
    match &io.operation {
        Operation::Read(range) | Operation::Write(range) => block.max(range.lba),
        _ => block,
    }
}

/// Under which name the command is measured.
pub(super) fn kind_of(io: &Io) -> Meter {
    match io.operation {
        Operation::Read(_) => Meter::read,
        Operation::Write(_) => Meter::write,
        Operation::WriteSame { .. } => Meter::write_same,
        Operation::Unmap(_) => Meter::unmap,
        Operation::Flush(_) => Meter::flush,
    }
}
