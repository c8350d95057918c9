//! GET LBA STATUS (SBC-3, 5.4): which blocks take space.
//!
//! The answer is one descriptor, "mapped or unknown", from the block that was asked for to the end of the unit: this crate does
//! not know what storage holds. qemu asks before a large read of a thin disk, remembers that answer for all
//! of its range and does not ask again; a refusal it reports and repeats.

use crate::cdb::Cdb;
use crate::prepare::{Plan, UnitCall};
use crate::sense::Sense;

/// PROVISIONING STATUS: the blocks are mapped, or their state is unknown.
const MAPPED_OR_UNKNOWN: u8 = 0;

pub(crate) fn get_lba_status(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    let cdb: Cdb<'_> = call.cdb;
    let lba = cdb.u64(2);
    let range = call.unit.range_to_end(lba)?;
    let blocks = u32::try_from(range.blocks).unwrap_or(u32::MAX);
    let mut data = Vec::with_capacity(24);
    // PARAMETER DATA LENGTH counts what follows it: four reserved bytes and one descriptor.
    data.extend_from_slice(&20_u32.to_be_bytes());
    data.extend_from_slice(&[0; 4]);
    data.extend_from_slice(&lba.to_be_bytes());
    data.extend_from_slice(&blocks.to_be_bytes());
    data.extend_from_slice(&[MAPPED_OR_UNKNOWN, 0, 0, 0]);
    Ok(Plan::data_in(data, cdb.u32(10)))
}
