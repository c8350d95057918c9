//! Mode pages (SPC-4, 7.5; SBC-3, 6.4). Nothing in them can be changed, so default and current values are the same
//! and the mask of changeable ones is zero.

use crate::unit::LogicalUnit;

/// Which values MODE SENSE asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    /// Current or default.
    Current,
    /// The mask of what MODE SELECT may change.
    Changeable,
}

/// A mode page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    ReadWriteErrorRecovery,
    Caching,
    Control,
    InformationalExceptionsControl,
}

impl Page {
    /// All pages in ascending order of their codes, which is the order of MODE SENSE.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Self::ReadWriteErrorRecovery, Self::Caching, Self::Control, Self::InformationalExceptionsControl].into_iter()
    }

    pub(super) const fn code(self) -> u8 {
        match self {
            Self::ReadWriteErrorRecovery => 0x01,
            Self::Caching => 0x08,
            Self::Control => 0x0a,
            Self::InformationalExceptionsControl => 0x1c,
        }
    }

    /// Appends the page: code, length of what follows, parameters.
    pub(super) fn put(self, data: &mut Vec<u8>, unit: &LogicalUnit, values: Values) {
        let start = data.len();
        data.extend_from_slice(&[self.code(), 0]);
        match self {
            Self::ReadWriteErrorRecovery => data.extend_from_slice(&READ_WRITE_ERROR_RECOVERY),
            Self::Caching => data.extend_from_slice(&CACHING),
            Self::Control => data.extend_from_slice(&control(unit)),
            Self::InformationalExceptionsControl => data.extend_from_slice(&INFORMATIONAL_EXCEPTIONS),
        }
        let parameters = data.get_mut(start + 2..).unwrap_or_default();
        if values == Values::Changeable {
            parameters.fill(0);
        }
        let length = u8::try_from(parameters.len()).unwrap_or(u8::MAX);
        if let Some(field) = data.get_mut(start + 1) {
            *field = length;
        }
    }
}

/// AWRE and ARRE: storage repairs a block from another copy by itself (SBC-3, read-write error recovery mode page).
const READ_WRITE_ERROR_RECOVERY: [u8; 10] = [0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// WCE=0: a write is durable before its status. RCD=0: reads may come from a cache (SBC-3, caching mode page).
const CACHING: [u8; 18] = [0; 18];

/// DEXCPT: no informational exceptions are reported (SPC-4, informational exceptions control mode page).
const INFORMATIONAL_EXCEPTIONS: [u8; 10] = [0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// ```text
/// byte 2  TST (7..5) = 001b: task sets per nexus; D_SENSE (2); GLTSD (1): no log parameters are saved
///      3  QUEUE ALGORITHM MODIFIER (7..4) = 1: simple tasks may be reordered; QERR (2..1) = 00b
///      4  UA_INTLCK_CTRL = 00b, SWP (3) = 0
///      5  TAS (6) = 1: aborted tasks of other nexuses end with TASK ABORTED
///      8  BUSY TIMEOUT PERIOD (2 bytes): not limited
///     10  EXTENDED SELF-TEST COMPLETION TIME (2 bytes)
/// ```
fn control(unit: &LogicalUnit) -> [u8; 10] {
    let d_sense = u8::from(unit.descriptor_sense) << 2;
    [0x20 | d_sense | 0x02, 0x10, 0, 0x40, 0, 0, 0xff, 0xff, 0, 0]
}
