//! Everything that is not a task: text, logout, asynchronous messages and Reject (RFC 7143, 11.9 to 11.11, 11.14,
//! 11.15, 11.17).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use zerocopy::byteorder::big_endian::{U16, U32};

use super::Session;
use super::tasks::Fate;
use crate::environment::Environment;
use crate::output::{CloseReason, Output};
use crate::pdu::{
    AsyncMessageHeader, LogoutRequestHeader, LogoutResponseHeader, Opcode, OutPdu, Pdu, RESERVED_TAG, RejectHeader,
    RejectReason, TextRequestHeader, TextResponseHeader,
};
use crate::text_request::TextOutcome;

/// Asynchronous event 1: the target asks for a logout (RFC 7143, 11.9.1).
const EVENT_LOGOUT_REQUESTED: u8 = 1;

/// Whether and how the session is being logged out.
#[derive(Debug, Default)]
pub(super) struct Logout {
    /// The initiator's logout, which waits for the tasks to settle: its tag.
    under_way: Option<u32>,
    request: Option<Request>,
}

/// The target's wish that the initiator log out.
#[derive(Debug)]
enum Request {
    /// The time starts to run at the next look at the clock.
    Sent {
        patience: Duration,
    },
    Running {
        deadline: Duration,
    },
}

impl Logout {
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether the initiator has had its time; starts the clock if it does not run.
    pub(super) fn is_overdue(&mut self, now: Duration) -> bool {
        if self.is_under_way() {
            return false;
        }
        if let Some(Request::Sent { patience }) = self.request {
            self.request = Some(Request::Running { deadline: now.saturating_add(patience) });
        }
        matches!(self.request, Some(Request::Running { deadline }) if deadline <= now)
    }

    pub(super) fn deadline(&self) -> Duration {
        match self.request {
            _ if self.is_under_way() => Duration::MAX,
            None => Duration::MAX,
            Some(Request::Sent { .. }) => Duration::ZERO,
            Some(Request::Running { deadline }) => deadline,
        }
    }
}

/// Response of a logout (RFC 7143, 11.15.1).
#[derive(Clone, Copy)]
#[repr(u8)]
enum LogoutResponse {
    Closed = 0,
    CidNotFound = 1,
    RecoveryNotSupported = 2,
}

impl Session {
    /// Asks the initiator to log out within `seconds`; closes the connection if it does not.
    pub fn request_logout(&mut self, seconds: u16, out: &mut Output) {
        if self.closed || self.logout.is_under_way() {
            return;
        }
        self.logout.request = Some(Request::Sent { patience: Duration::from_secs(u64::from(seconds)) });
        let stamp = self.numbers.stamp_status();
        out.pdus.push_back(OutPdu::new(
            &AsyncMessageHeader {
                opcode: Opcode::AsyncMessage as u8,
                flags: 0x80,
                reserved: [0; 2],
                total_ahs_length: 0,
                data_segment_length: [0; 3],
                lun: [0; 8],
                initiator_task_tag: U32::new(RESERVED_TAG),
                reserved_20: U32::ZERO,
                stat_sn: stamp.stat_sn,
                exp_cmd_sn: stamp.exp_cmd_sn,
                max_cmd_sn: stamp.max_cmd_sn,
                async_event: EVENT_LOGOUT_REQUESTED,
                async_vcode: 0,
                parameter_1: U16::ZERO,
                parameter_2: U16::ZERO,
                parameter_3: U16::new(seconds),
                reserved_end: U32::ZERO,
            },
            Bytes::new(),
        ));
    }

    pub(super) fn execute_text(&mut self, pdu: &Pdu, environment: &dyn Environment, out: &mut Output) {
        let header = pdu.bhs.view::<TextRequestHeader>();
        let outcome = self.text.receive(header, &pdu.data, &mut self.parameters, &self.identity, environment);
        let (final_bit, continue_bit, target_transfer_tag, data) = match outcome {
            TextOutcome::Reject(reason) => return self.reject(reason, pdu, out),
            TextOutcome::Respond { final_bit, continue_bit, target_transfer_tag, data } => {
                (final_bit, continue_bit, target_transfer_tag, data)
            }
        };
        self.accept(pdu);
        let stamp = self.numbers.stamp_status();
        out.pdus.push_back(OutPdu::new(
            &TextResponseHeader {
                opcode: Opcode::TextResponse as u8,
                flags: if final_bit { 0x80 } else { 0 } | if continue_bit { 0x40 } else { 0 },
                reserved: [0; 2],
                total_ahs_length: 0,
                data_segment_length: [0; 3],
                lun: header.lun,
                initiator_task_tag: header.initiator_task_tag,
                target_transfer_tag: U32::new(target_transfer_tag),
                stat_sn: stamp.stat_sn,
                exp_cmd_sn: stamp.exp_cmd_sn,
                max_cmd_sn: stamp.max_cmd_sn,
                reserved_end: [0; 12],
            },
            data,
        ));
    }

    /// Ends the session when all of its tasks are settled; a wrong or unsupported logout is answered at once.
    pub(super) fn execute_logout(&mut self, pdu: &Pdu, out: &mut Output) {
        let header = pdu.bhs.view::<LogoutRequestHeader>();
        let tag = header.initiator_task_tag.get();
        let refused = match header.reason & 0x7f {
            0 => None,
            1 if header.cid.get() == self.cid => None,
            1 => Some(LogoutResponse::CidNotFound),
            2 => Some(LogoutResponse::RecoveryNotSupported),
            _ => return self.reject(RejectReason::InvalidPduField, pdu, out),
        };
        if tag == RESERVED_TAG {
            return self.reject(RejectReason::InvalidPduField, pdu, out);
        }
        self.accept(pdu);
        if let Some(response) = refused {
            return self.respond_logout(tag, response, out);
        }
        self.logout.under_way = Some(tag);
        self.numbers.window.clear_held();
        self.waiters.forget_functions();
        self.abort_tasks(Fate::Aborted, |_| true, out);
        self.finish_logout(out);
    }

    /// Answers the logout that has waited for the last task.
    pub(super) fn finish_logout(&mut self, out: &mut Output) {
        if self.closed || !self.tasks.is_empty() {
            return;
        }
        if let Some(tag) = self.logout.under_way {
            self.respond_logout(tag, LogoutResponse::Closed, out);
            self.close(CloseReason::LoggedOut, out);
        }
    }

    fn respond_logout(&mut self, tag: u32, response: LogoutResponse, out: &mut Output) {
        let stamp = self.numbers.stamp_status();
        out.pdus.push_back(OutPdu::new(
            &LogoutResponseHeader {
                opcode: Opcode::LogoutResponse as u8,
                flags: 0x80,
                response: response as u8,
                reserved: 0,
                total_ahs_length: 0,
                data_segment_length: [0; 3],
                reserved_8: [0; 8],
                initiator_task_tag: U32::new(tag),
                reserved_20: U32::ZERO,
                stat_sn: stamp.stat_sn,
                exp_cmd_sn: stamp.exp_cmd_sn,
                max_cmd_sn: stamp.max_cmd_sn,
                reserved_36: U32::ZERO,
                time2wait: U16::new(self.parameters.default_time2wait),
                time2retain: U16::new(self.parameters.default_time2retain),
                reserved_44: U32::ZERO,
            },
            Bytes::new(),
        ));
    }

    /// Rejects a PDU: its header goes back. The number of a rejected command is not counted as received (RFC 7143,
    /// 7.3).
    pub(super) fn reject(&mut self, reason: RejectReason, pdu: &Pdu, out: &mut Output) {
        self.counters.rejects += 1;
        let mut header = BytesMut::with_capacity(pdu.bhs.0.len() + pdu.ahs.len());
        header.extend_from_slice(&pdu.bhs.0);
        header.extend_from_slice(&pdu.ahs);
        header.truncate(self.parameters.max_send_data_segment_length as usize);
        let stamp = self.numbers.stamp_status();
        out.pdus.push_back(OutPdu::new(
            &RejectHeader {
                opcode: Opcode::Reject as u8,
                flags: 0x80,
                reason: reason as u8,
                reserved: 0,
                total_ahs_length: 0,
                data_segment_length: [0; 3],
                reserved_8: [0; 8],
                initiator_task_tag: U32::new(RESERVED_TAG),
                reserved_20: U32::ZERO,
                stat_sn: stamp.stat_sn,
                exp_cmd_sn: stamp.exp_cmd_sn,
                max_cmd_sn: stamp.max_cmd_sn,
                data_sn_or_r2t_sn: U32::ZERO,
                reserved_end: [0; 8],
            },
            header.freeze(),
        ));
    }
}
