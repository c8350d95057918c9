//! Extended INQUIRY data (86h) (SPC-4, 7.8.7).

use crate::unit::LogicalUnit;

/// PAGE LENGTH that the standard gives.
const PAGE_BYTES: usize = 0x3c;

/// ```text
/// byte 4  activate microcode, SPT, GRD_CHK, APP_CHK, REF_CHK
///      5  UASK_SUP, GROUP_SUP, PRIOR_SUP, HEADSUP (2), ORDSUP (1), SIMPSUP (0)
///      6  WU_SUP, CRD_SUP, NV_SUP, V_SUP
///      7  P_I_I_SUP, LUICLR (0)
/// ```
pub(super) fn extended_inquiry_data(_unit: &LogicalUnit) -> Vec<u8> {
    // SIMPSUP alone: commands of a nexus are not held back for each other's task attributes.
    // LUICLR: what a nexus has pending goes away with the nexus.
    let mut body = vec![0, 0x01, 0, 0x01];
    body.resize(PAGE_BYTES, 0);
    body
}
