//! REQUEST SENSE (SPC-4, 6.39).

use crate::prepare::{Addressed, Plan, PortCall};
use crate::sense::{Sense, SenseFormat};
use crate::unit_attention::UnitAttention;

/// Sense data always goes with the status, so what is left for this command is a pending unit attention, which it
/// ends by returning it, or the news that there is no such unit, which is data too and not an error.
pub(crate) fn request_sense(call: &mut PortCall<'_>) -> Result<Plan, Sense> {
    let format = if call.cdb.bit(1, 0) { SenseFormat::Descriptor } else { SenseFormat::Fixed };
    let sense = match call.addressed {
        Addressed::Unit(lun, _) => call.nexus.take(lun).map_or(Sense::NONE, UnitAttention::sense),
        Addressed::ReportLunsWellKnown => Sense::NONE,
        Addressed::EmptyLunZero | Addressed::Nothing => Sense::LOGICAL_UNIT_NOT_SUPPORTED,
    };
    Ok(Plan::data_in(sense.to_bytes(format).to_vec(), u32::from(call.cdb.u8(4))))
}
