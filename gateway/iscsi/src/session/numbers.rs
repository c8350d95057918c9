//! What goes into every PDU of a target: StatSN, ExpCmdSN, MaxCmdSN; and target transfer tags.

use zerocopy::byteorder::big_endian::U32;

use super::command_window::CommandWindow;
use crate::pdu::RESERVED_TAG;
use crate::serial::SerialNumber;

/// The counters of the connection and the command window of the session.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) window: CommandWindow,
    next_status: SerialNumber,
    next_tag: u32,
}

/// The three fields, ready for a header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) stat_sn: U32,
    pub(super) exp_cmd_sn: U32,
    pub(super) max_cmd_sn: U32,
}

impl Numbers {
    pub(super) fn new(next_status: SerialNumber, window: CommandWindow) -> Self {
        Self { window, next_status, next_tag: 0 }
    }

    /// For a PDU that carries a status: takes the next StatSN.
    pub(super) fn stamp_status(&mut self) -> Stamp {
        let stamp = self.stamp();
        self.next_status = self.next_status.next();
        stamp
    }

    /// For a PDU without a status that shows the next StatSN (R2T, NOP-In of the target's own).
    pub(super) fn stamp(&mut self) -> Stamp {
        let (expected, max) = self.window.tell();
        Stamp { stat_sn: U32::new(self.next_status.0), exp_cmd_sn: U32::new(expected.0), max_cmd_sn: U32::new(max.0) }
    }

    /// A target transfer tag that has not been used for 2^32 - 1 tags.
    pub(super) fn transfer_tag(&mut self) -> u32 {
        let tag = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1);
        if self.next_tag == RESERVED_TAG {
            self.next_tag = 0;
        }
        tag
    }
}
