//! READ and WRITE (6), (10), (12) and (16) of SBC-3.
//!
//! DPO and FUA change nothing: every write is durable before its status. RDPROTECT and WRPROTECT are refused by the
//! usage data, for the unit has no protection information.

use std::sync::Arc;

use crate::cdb::Cdb;
use crate::io::{BlockRange, Io, Operation};
use crate::prepare::{Plan, UnitCall};
use crate::sense::Sense;

/// The extent that a CDB names, and where its TRANSFER LENGTH field is.
struct Extent {
    lba: u64,
    blocks: u32,
    length_at: u16,
}

impl Extent {
    fn in_cdb_6(cdb: Cdb<'_>) -> Self {
        // A length of zero means 256 blocks here, and here only (SBC-3, READ (6)).
        let blocks = match cdb.u8(4) {
            0 => 256,
            length => u32::from(length),
        };
        Self { lba: u64::from(cdb.u24(1) & 0x1f_ffff), blocks, length_at: 4 }
    }

    fn in_cdb_10(cdb: Cdb<'_>) -> Self {
        Self { lba: u64::from(cdb.u32(2)), blocks: u32::from(cdb.u16(7)), length_at: 7 }
    }

    fn in_cdb_12(cdb: Cdb<'_>) -> Self {
        Self { lba: u64::from(cdb.u32(2)), blocks: cdb.u32(6), length_at: 6 }
    }

    fn in_cdb_16(cdb: Cdb<'_>) -> Self {
        Self { lba: cdb.u64(2), blocks: cdb.u32(10), length_at: 10 }
    }
}

pub(crate) fn read_6(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    read(call, &Extent::in_cdb_6(call.cdb))
}

pub(crate) fn read_10(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    read(call, &Extent::in_cdb_10(call.cdb))
}

pub(crate) fn read_12(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    read(call, &Extent::in_cdb_12(call.cdb))
}

pub(crate) fn read_16(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    read(call, &Extent::in_cdb_16(call.cdb))
}

pub(crate) fn write_6(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    write(call, &Extent::in_cdb_6(call.cdb))
}

pub(crate) fn write_10(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    write(call, &Extent::in_cdb_10(call.cdb))
}

pub(crate) fn write_12(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    write(call, &Extent::in_cdb_12(call.cdb))
}

pub(crate) fn write_16(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    write(call, &Extent::in_cdb_16(call.cdb))
}

fn read(call: &UnitCall<'_>, extent: &Extent) -> Result<Plan, Sense> {
    Ok(match check(call, extent)? {
        None => Plan::good(),
        Some(range) => Plan::Io(Io {
            unit: Arc::clone(call.unit),
            lun: call.lun,
            operation: Operation::Read(range),
            data_out_bytes: 0,
        }),
    })
}

fn write(call: &UnitCall<'_>, extent: &Extent) -> Result<Plan, Sense> {
    Ok(match check(call, extent)? {
        None => Plan::good(),
        Some(range) => Plan::Io(Io {
            unit: Arc::clone(call.unit),
            lun: call.lun,
            operation: Operation::Write(range),
            data_out_bytes: range.len_bytes(call.unit),
        }),
    })
}

/// The range, or `None` for a transfer of nothing, which is no error (SBC-3, READ (10)).
fn check(call: &UnitCall<'_>, extent: &Extent) -> Result<Option<BlockRange>, Sense> {
    let range = call.unit.range(extent.lba, u64::from(extent.blocks))?;
    if extent.blocks > call.unit.max_transfer_blocks() {
        return Err(Sense::invalid_field_in_cdb(extent.length_at));
    }
    Ok((range.blocks > 0).then_some(range))
}
