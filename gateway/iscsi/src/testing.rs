//! What the tests of several modules share.

use bytes::Bytes;

use crate::output::DataPieces;
use crate::pdu::{DataInHeader, NopInHeader, Opcode, OutPdu, RESERVED_TAG};
use crate::serial::SerialNumber;

/// Watches the numbers in everything a target sends: StatSN without gaps, ExpCmdSN and MaxCmdSN never falling.
#[derive(Debug)]
pub(crate) struct NumberCheck {
    stat_sn: SerialNumber,
    exp_cmd_sn: SerialNumber,
    max_cmd_sn: SerialNumber,
}

impl NumberCheck {
    pub(crate) fn new(stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) -> Self {
        Self {
            stat_sn: SerialNumber(stat_sn),
            exp_cmd_sn: SerialNumber(exp_cmd_sn),
            max_cmd_sn: SerialNumber(max_cmd_sn),
        }
    }

    /// Looks at the next PDU.
    pub(crate) fn pdu(&mut self, pdu: &OutPdu) {
        // The three numbers stand at the same place in all PDUs of a target.
        let header = pdu.bhs.view::<NopInHeader>();
        let takes_stat_sn = match pdu.bhs.opcode() {
            Some(Opcode::ReadyToTransfer) => false,
            Some(Opcode::NopIn) => pdu.bhs.initiator_task_tag() != RESERVED_TAG,
            Some(Opcode::DataIn) => pdu.bhs.0[1] & DataInHeader::STATUS != 0,
            Some(_) => true,
            None => panic!("{pdu:?}"),
        };
        if takes_stat_sn || pdu.bhs.opcode() != Some(Opcode::DataIn) {
            assert_eq!(header.stat_sn.get(), self.stat_sn.0, "StatSN of {pdu:?}");
        }
        if takes_stat_sn {
            self.stat_sn = self.stat_sn.next();
        }
        let exp_cmd_sn = SerialNumber(header.exp_cmd_sn.get());
        let max_cmd_sn = SerialNumber(header.max_cmd_sn.get());
        assert!(!exp_cmd_sn.is_before(self.exp_cmd_sn), "ExpCmdSN falls: {pdu:?} after {self:?}");
        assert!(!max_cmd_sn.is_before(self.max_cmd_sn), "MaxCmdSN falls: {pdu:?} after {self:?}");
        assert!(!max_cmd_sn.is_before(exp_cmd_sn.minus(1)), "MaxCmdSN below ExpCmdSN - 1: {pdu:?}");
        (self.exp_cmd_sn, self.max_cmd_sn) = (exp_cmd_sn, max_cmd_sn);
    }

    /// The CmdSN that the target expects next, as far as it has said so.
    pub(crate) fn exp_cmd_sn(&self) -> u32 {
        self.exp_cmd_sn.0
    }

    /// How many commands the initiator may still send.
    pub(crate) fn open_window(&self) -> u32 {
        self.max_cmd_sn.next().since(self.exp_cmd_sn)
    }
}

/// Data in these pieces.
pub(crate) fn pieces<T: Into<Bytes>>(pieces: impl IntoIterator<Item = T>) -> DataPieces {
    pieces.into_iter().map(Into::into).collect()
}
