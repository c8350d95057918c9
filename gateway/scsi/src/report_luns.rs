//! REPORT LUNS (SPC-4, 6.33).

use crate::lun::LunAddress;
use crate::prepare::{Addressed, Plan, PortCall};
use crate::sense::Sense;
use crate::unit_attention::UnitAttention;

/// Which logical units the host asks for.
struct SelectReport {
    units: bool,
    well_known: bool,
}

impl SelectReport {
    /// SELECT REPORT field (SPC-4, 6.33). No unit here is an administrative logical unit or subsidiary to one, so
    /// that lists of these alone (10h, 12h) are empty, which is an answer and not an error; all units belong to the
    /// "administrative and not conglomerate" ones (11h).
    fn parse(code: u8) -> Result<Self, Sense> {
        let (units, well_known) = match code {
            0x00 | 0x11 => (true, false),
            0x01 => (false, true),
            0x02 => (true, true),
            0x10 | 0x12 => (false, false),
            _ => return Err(Sense::invalid_field_in_cdb(2)),
        };
        Ok(Self { units, well_known })
    }
}

/// Answered at LUN 0, mapped or not, at every mapped unit, and at the well known unit.
pub(crate) fn report_luns(call: &mut PortCall<'_>) -> Result<Plan, Sense> {
    if matches!(call.addressed, Addressed::Nothing) {
        return Err(Sense::LOGICAL_UNIT_NOT_SUPPORTED);
    }
    let select = SelectReport::parse(call.cdb.u8(2))?;
    let units = call.target.luns.keys().copied().filter(|_| select.units).map(LunAddress::Unit);
    let well_known = select.well_known.then_some(LunAddress::ReportLunsWellKnown);
    let mut data = vec![0; 8];
    for lun in units.chain(well_known).filter_map(LunAddress::to_bytes) {
        data.extend_from_slice(&lun);
    }
    let list_length = u32::try_from(data.len() - 8).unwrap_or(u32::MAX);
    if let Some(field) = data.first_chunk_mut() {
        *field = list_length.to_be_bytes();
    }
    // The host has the new inventory now, whatever unit it asked (SPC-4, 6.33).
    call.nexus.clear_everywhere(UnitAttention::ReportedLunsDataHasChanged);
    Ok(Plan::data_in(data, call.cdb.u32(6)))
}
