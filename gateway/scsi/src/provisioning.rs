//! UNMAP (SBC-3, 5.28).

use std::sync::Arc;

use crate::io::{BlockRange, Io, Operation};
use crate::prepare::{ParameterCommand, Plan, UnitCall};
use crate::sense::Sense;
use crate::unit::LogicalUnit;

/// Length of the parameter list's header in bytes.
const HEADER_BYTES: u16 = 8;
/// Length of an UNMAP block descriptor in bytes.
const DESCRIPTOR_BYTES: usize = 16;

pub(crate) fn unmap(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    match call.cdb.u16(7) {
        0 => Ok(Plan::good()),
        1..HEADER_BYTES => Err(Sense::PARAMETER_LIST_LENGTH_ERROR),
        len => Ok(Plan::Parameters { len_bytes: u32::from(len), command: ParameterCommand::unmap(call) }),
    }
}

/// ```text
/// byte 0, 1   UNMAP DATA LENGTH: bytes that follow
///      2, 3   UNMAP BLOCK DESCRIPTOR DATA LENGTH
///      4..7   reserved
///      8..    descriptors: LBA (8 bytes), number of blocks (4), reserved (4)
/// ```
///
/// Everything is checked before anything is unmapped.
pub(crate) fn unmap_list(unit: &Arc<LogicalUnit>, lun: u16, list: &[u8]) -> Result<Plan, Sense> {
    let Some((&[d0, d1, b0, b1, _, _, _, _], rest)) = list.split_first_chunk() else {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    };
    let data_length = u16::from_be_bytes([d0, d1]);
    let descriptors_length = u16::from_be_bytes([b0, b1]);
    if u32::from(data_length) < u32::from(descriptors_length) + 6 {
        return Err(Sense::invalid_field_in_parameter_list(0));
    }
    let Some(descriptors) = rest.get(..usize::from(descriptors_length)) else {
        return Err(Sense::PARAMETER_LIST_LENGTH_ERROR);
    };
    // An incomplete last descriptor is ignored (SBC-3, 5.28.2).
    let (descriptors, _incomplete) = descriptors.as_chunks::<DESCRIPTOR_BYTES>();
    if descriptors.len() > usize::from(unit.limits.max_unmap_descriptors) {
        return Err(Sense::invalid_field_in_parameter_list(2));
    }
    let ranges = ranges(unit, descriptors)?;
    if ranges.is_empty() {
        return Ok(Plan::good());
    }
    Ok(Plan::Io(Io { unit: Arc::clone(unit), lun, operation: Operation::Unmap(ranges), data_out_bytes: 0 }))
}

fn ranges(unit: &LogicalUnit, descriptors: &[[u8; DESCRIPTOR_BYTES]]) -> Result<Vec<BlockRange>, Sense> {
    let mut ranges: Vec<BlockRange> = Vec::new();
    let mut total_blocks = 0_u64;
    for (index, descriptor) in (0_u16..).zip(descriptors) {
        let [l0, l1, l2, l3, l4, l5, l6, l7, n0, n1, n2, n3, ..] = *descriptor;
        let lba = u64::from_be_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
        let range = unit.range(lba, u64::from(u32::from_be_bytes([n0, n1, n2, n3])))?;
        total_blocks += range.blocks;
        if total_blocks > u64::from(unit.limits.max_unmap_blocks) {
            return Err(Sense::invalid_field_in_parameter_list(HEADER_BYTES + index * 16 + 8));
        }
        match ranges.last_mut() {
            _ if range.blocks == 0 => {}
            Some(last) if last.end() == range.lba => last.blocks += range.blocks,
            _ => ranges.push(range),
        }
    }
    Ok(ranges)
}
