//! TEST UNIT READY (SPC-4, 6.47).

use crate::prepare::{Addressed, Plan, PortCall};
use crate::sense::Sense;

/// A mapped unit is always ready: what storage cannot do at present is said by the commands that need it.
pub(crate) fn test_unit_ready(call: &mut PortCall<'_>) -> Result<Plan, Sense> {
    match call.addressed {
        Addressed::Unit(..) | Addressed::ReportLunsWellKnown => Ok(Plan::good()),
        Addressed::EmptyLunZero | Addressed::Nothing => Err(Sense::LOGICAL_UNIT_NOT_SUPPORTED),
    }
}
