//! READ CAPACITY (10) and (16) (SBC-3, 5.15 and 5.16).

use crate::prepare::{Plan, UnitCall};
use crate::sense::Sense;

/// Length of the READ CAPACITY (16) parameter data in bytes.
const LONG_DATA_BYTES: usize = 32;

pub(crate) fn read_capacity_10(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    let unit = call.unit;
    check_pmi(call, u64::from(call.cdb.u32(2)), call.cdb.bit(8, 0))?;
    // All ones send the host to READ CAPACITY (16).
    let last = u32::try_from(last_block(call)).unwrap_or(u32::MAX);
    let mut data = Vec::with_capacity(8);
    data.extend_from_slice(&last.to_be_bytes());
    data.extend_from_slice(&unit.block_size.bytes().to_be_bytes());
    // There is no allocation length in this CDB.
    Ok(Plan::data_in(data, u32::MAX))
}

pub(crate) fn read_capacity_16(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    let unit = call.unit;
    check_pmi(call, call.cdb.u64(2), call.cdb.bit(14, 0))?;
    let mut data = Vec::with_capacity(LONG_DATA_BYTES);
    data.extend_from_slice(&last_block(call).to_be_bytes());
    data.extend_from_slice(&unit.block_size.bytes().to_be_bytes());
    // P_TYPE and PROT_EN: no protection information.
    data.push(0);
    data.push(unit.block_size.physical_exponent());
    // LBPME, LBPRZ, LOWEST ALIGNED LOGICAL BLOCK ADDRESS.
    data.push(if unit.thin { 0xc0 } else { 0 });
    data.resize(LONG_DATA_BYTES, 0);
    Ok(Plan::data_in(data, call.cdb.u32(10)))
}

fn last_block(call: &UnitCall<'_>) -> u64 {
    call.unit.blocks.saturating_sub(1)
}

/// PMI=1 asks for the last block before a substantial delay; there is none before the end. With PMI=0 the address
/// has to be zero (SBC-3, READ CAPACITY (10)).
fn check_pmi(call: &UnitCall<'_>, lba: u64, pmi: bool) -> Result<(), Sense> {
    match (pmi, lba) {
        (false, 0) => Ok(()),
        (false, _) => Err(Sense::invalid_field_in_cdb(2)),
        (true, lba) if lba <= last_block(call) => Ok(()),
        (true, _) => Err(Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE),
    }
}
