//! Vital product data pages (SPC-4, 7.8, and SBC-3). One file for each group of pages; the table of them is here.

mod block;
mod extended;
mod identification;

use crate::inquiry::peripheral;
use crate::prepare::Addressed;
use crate::unit::{LogicalUnit, Target};

/// Supported VPD pages, the list of all others.
const SUPPORTED_PAGES: u8 = 0x00;

/// Where a page exists, and what makes its bytes behind the four of the header.
enum Body {
    /// At a mapped unit.
    OfUnit(fn(&LogicalUnit) -> Vec<u8>),
    /// At a mapped unit and at the well known one.
    OfPort(fn(Option<&LogicalUnit>, &Target) -> Vec<u8>),
}

/// The pages in ascending order, without the list itself.
static PAGES: &[(u8, Body)] = &[
    (0x80, Body::OfUnit(identification::unit_serial_number)),
    (0x83, Body::OfPort(identification::device_identification)),
    (0x86, Body::OfUnit(extended::extended_inquiry_data)),
    (0xb0, Body::OfUnit(block::block_limits)),
    (0xb1, Body::OfUnit(block::block_device_characteristics)),
    (0xb2, Body::OfUnit(block::logical_block_provisioning)),
];

impl Body {
    fn make(&self, addressed: &Addressed<'_>, target: &Target) -> Option<Vec<u8>> {
        match (self, addressed) {
            (Self::OfUnit(make), Addressed::Unit(_, unit)) => Some(make(unit)),
            (Self::OfPort(make), Addressed::Unit(_, unit)) => Some(make(Some(unit), target)),
            (Self::OfPort(make), Addressed::ReportLunsWellKnown) => Some(make(None, target)),
            (_, Addressed::ReportLunsWellKnown | Addressed::EmptyLunZero | Addressed::Nothing) => None,
        }
    }

    fn exists(&self, addressed: &Addressed<'_>) -> bool {
        match self {
            Self::OfUnit(_) => matches!(addressed, Addressed::Unit(..)),
            Self::OfPort(_) => matches!(addressed, Addressed::Unit(..) | Addressed::ReportLunsWellKnown),
        }
    }
}

/// A whole page; `None` when it does not exist there.
pub(crate) fn page(code: u8, addressed: &Addressed<'_>, target: &Target) -> Option<Vec<u8>> {
    let body = if code == SUPPORTED_PAGES {
        let others = PAGES.iter().filter(|(_, body)| body.exists(addressed)).map(|(code, _)| *code);
        std::iter::once(SUPPORTED_PAGES).chain(others).collect()
    } else {
        let (_, body) = PAGES.iter().find(|(page, _)| *page == code)?;
        body.make(addressed, target)?
    };
    let [length_high, length_low] = u16::try_from(body.len()).ok()?.to_be_bytes();
    let mut data = vec![peripheral(addressed), code, length_high, length_low];
    data.extend_from_slice(&body);
    Some(data)
}
