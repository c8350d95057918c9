//! INQUIRY (SPC-4, 6.6): standard data here, vital product data pages in `vpd`.

use crate::prepare::{Addressed, Plan, PortCall};
use crate::sense::Sense;
use crate::vpd;

/// T10 VENDOR IDENTIFICATION, eight characters.
pub(crate) const VENDOR: &[u8; 8] = b"HOLDFAST";
/// PRODUCT IDENTIFICATION, sixteen characters.
const PRODUCT: &[u8; 16] = b"VIRTUAL-DISK    ";
/// PRODUCT REVISION LEVEL, four characters.
const REVISION: &[u8; 4] = b"0001";

/// Length of the standard INQUIRY data in bytes, version descriptors and the reserved bytes behind them included.
const STANDARD_BYTES: u8 = 96;

/// SAM-5, SPC-4, SBC-3 and iSCSI, none of them with a claimed revision (SPC-4, version descriptor values).
const VERSION_DESCRIPTORS: [u16; 4] = [0x00a0, 0x0460, 0x04c0, 0x0960];

pub(crate) fn inquiry(call: &mut PortCall<'_>) -> Result<Plan, Sense> {
    let page = call.cdb.u8(2);
    let data = match (call.cdb.bit(1, 0), page) {
        (false, 0) => standard(&call.addressed),
        (false, _) => return Err(Sense::invalid_field_in_cdb(2)),
        (true, page) => vpd::page(page, &call.addressed, call.target).ok_or(Sense::invalid_field_in_cdb(2))?,
    };
    Ok(Plan::data_in(data, u32::from(call.cdb.u16(3))))
}

/// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE (SPC-4, 6.6.2).
pub(crate) const fn peripheral(addressed: &Addressed<'_>) -> u8 {
    match addressed {
        // 000b: connected; 00h: direct-access block device.
        Addressed::Unit(..) => 0x00,
        // 001b: a unit could be here and is not. With type 1Fh Linux makes no device of it and goes on to REPORT LUNS.
        Addressed::EmptyLunZero => 0x3f,
        // 1Eh: well known logical unit.
        Addressed::ReportLunsWellKnown => 0x1e,
        // 011b and 1Fh: no unit can be reached by this LUN.
        Addressed::Nothing => 0x7f,
    }
}

fn standard(addressed: &Addressed<'_>) -> Vec<u8> {
    let mut data = vec![
        peripheral(addressed),
        0,
        // VERSION: SPC-4.
        0x06,
        // HISUP; RESPONSE DATA FORMAT 2.
        0x12,
        STANDARD_BYTES - 5,
        0,
        0,
        // CMDQUE.
        0x02,
    ];
    data.extend_from_slice(VENDOR);
    data.extend_from_slice(PRODUCT);
    data.extend_from_slice(REVISION);
    data.resize(58, 0);
    for version in VERSION_DESCRIPTORS {
        data.extend_from_slice(&version.to_be_bytes());
    }
    data.resize(usize::from(STANDARD_BYTES), 0);
    data
}
