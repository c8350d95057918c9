//! REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4, 6.36).

use crate::prepare::{Plan, UnitCall};
use crate::sense::Sense;

/// ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET and TARGET RESET. The query functions and I_T NEXUS
/// RESET need RFC 7144, which is above the protocol level that this target negotiates; there is no ACA to clear.
const FUNCTIONS: u8 = 0x80 | 0x40 | 0x10 | 0x08 | 0x02;

pub(crate) fn report_supported_task_management_functions(call: &UnitCall<'_>) -> Result<Plan, Sense> {
    let extended = call.cdb.bit(2, 7);
    let mut data = vec![FUNCTIONS, 0, 0, 0];
    if extended {
        // Additional data length, then timeouts of zero: not specified.
        data[3] = 0x0c;
        data.resize(16, 0);
    }
    Ok(Plan::data_in(data, call.cdb.u32(6)))
}
