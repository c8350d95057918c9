//! SYNCHRONIZE CACHE (10) and (16) of SBC-3.

use std::sync::Arc;

use crate::io::{Io, Operation};
use crate::prepare::{Plan, UnitCall};
use crate::sense::Sense;

pub(crate) fn synchronize_cache_10(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    synchronize(call, u64::from(call.cdb.u32(2)), u64::from(call.cdb.u16(7)))
}

pub(crate) fn synchronize_cache_16(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    synchronize(call, call.cdb.u64(2), u64::from(call.cdb.u32(10)))
}

/// Zero blocks means up to the last one. No limit of length applies, and none is needed.
fn synchronize(call: &UnitCall<'_>, lba: u64, blocks: u64) -> Result<Plan, Sense> {
    let range = match blocks {
        0 => call.unit.range_to_end(lba)?,
        _ => call.unit.range(lba, blocks)?,
    };
    if call.cdb.bit(1, 1) {
        // IMMED: status as soon as the CDB is valid. Writes whose status was sent are durable already.
        return Ok(Plan::good());
    }
    Ok(Plan::Io(Io {
        unit: Arc::clone(call.unit),
        lun: call.lun,
        operation: Operation::Flush(range),
        data_out_bytes: 0,
    }))
}
