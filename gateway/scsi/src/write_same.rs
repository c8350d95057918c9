//! WRITE SAME (10) and (16) of SBC-3.
//!
//! ANCHOR is refused by the usage data (ANC_SUP=0), as are the obsolete PBDATA and LBDATA.

use std::sync::Arc;

use crate::io::{Io, Operation};
use crate::prepare::{Plan, UnitCall};
use crate::sense::Sense;

/// UNMAP bit of byte 1.
const UNMAP_BIT: u8 = 3;
/// NDOB (no data-out buffer) bit of byte 1, of the 16-byte CDB.
const NDOB_BIT: u8 = 0;

pub(crate) fn write_same_10(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    write_same(call, u64::from(call.cdb.u32(2)), u64::from(call.cdb.u16(7)), 7)
}

pub(crate) fn write_same_16(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    write_same(call, call.cdb.u64(2), u64::from(call.cdb.u32(10)), 10)
}

fn write_same(call: &UnitCall<'_>, lba: u64, blocks: u64, length_at: u16) -> Result<Plan, Sense> {
    let unmap = call.cdb.bit(1, UNMAP_BIT);
    if unmap && !call.unit.thin {
        return Err(Sense::invalid_bit_in_cdb(1, UNMAP_BIT));
    }
    // WSNZ=0: zero blocks means up to the last one, and the limit holds for that length too.
    let range = match blocks {
        0 => call.unit.range_to_end(lba)?,
        _ => call.unit.range(lba, blocks)?,
    };
    if range.blocks > call.unit.max_write_same_blocks() {
        return Err(Sense::invalid_field_in_cdb(length_at));
    }
    let data_out = !call.cdb.bit(1, NDOB_BIT);
    let block_bytes = u64::from(call.unit.block_size.bytes());
    // A buffer of any other length than one block would be a misunderstanding about the block's length, which is
    // better refused than repeated over the range.
    if data_out && call.expected_data_out_bytes != block_bytes {
        return Err(Sense::invalid_cdb());
    }
    Ok(Plan::Io(Io {
        unit: Arc::clone(call.unit),
        lun: call.lun,
        operation: Operation::WriteSame { range, unmap, data_out },
        data_out_bytes: if data_out { block_bytes } else { 0 },
    }))
}
