//! Signs of life: NOP-Out and NOP-In (RFC 7143, 11.18, 11.19), and all the timers of a session.

use std::time::Duration;

use bytes::Bytes;
use zerocopy::byteorder::big_endian::U32;

use super::Session;
use crate::output::{CloseReason, Output};
use crate::pdu::{NopInHeader, NopOutHeader, Opcode, OutPdu, Pdu, RESERVED_TAG, RejectReason};

/// When the initiator was last heard of, and what it owes.
#[derive(Debug)]
pub(super) struct SignsOfLife {
    last_received: Duration,
    ping: Option<Ping>,
}

/// A NOP-In that is to be answered.
#[derive(Debug)]
struct Ping {
    transfer_tag: u32,
    sent: Duration,
}

impl SignsOfLife {
    pub(super) fn new(now: Duration) -> Self {
        Self { last_received: now, ping: None }
    }

    pub(super) fn received(&mut self, now: Duration) {
        self.last_received = now;
    }
}

impl Session {
    /// Does what is due at `now`: a NOP-In to a silent initiator, the end of one that stays silent or does not log
    /// out when asked to. To be called when [`next_deadline`](Self::next_deadline) is reached.
    pub fn tick(&mut self, now: Duration, out: &mut Output) {
        if self.closed {
            return;
        }
        if self.logout.is_overdue(now) {
            return self.close(CloseReason::LogoutOverdue, out);
        }
        // While a logout waits for tasks to settle, it is this end that is silent.
        if self.logout.is_under_way() || now < self.life_deadline() {
            return;
        }
        if self.is_discovery() || self.signs_of_life.ping.is_some() {
            return self.close(CloseReason::InitiatorDead, out);
        }
        let transfer_tag = self.numbers.transfer_tag();
        self.signs_of_life.ping = Some(Ping { transfer_tag, sent: now });
        self.counters.pings += 1;
        self.send_nop_in(transfer_tag, out);
    }

    /// When [`tick`](Self::tick) is to be called next; `Duration::MAX` for never.
    pub fn next_deadline(&self) -> Duration {
        if self.closed {
            return Duration::MAX;
        }
        let life = if self.logout.is_under_way() { Duration::MAX } else { self.life_deadline() };
        life.min(self.logout.deadline())
    }

    fn life_deadline(&self) -> Duration {
        let SignsOfLife { last_received, ping } = &self.signs_of_life;
        let (since, patience) = match ping {
            _ if self.is_discovery() => (*last_received, self.limits.discovery_idle_timeout),
            // Whatever comes is a sign of life: the answer may be queued behind a lot of data.
            Some(ping) => (ping.sent.max(*last_received), self.limits.nop_timeout),
            None => (*last_received, self.limits.nop_interval),
        };
        since.saturating_add(patience)
    }

    /// A NOP-Out that has no task tag: the answer to a ping, or a mere acknowledgement of StatSN.
    pub(super) fn receive_nop_answer(&mut self, pdu: &Pdu, out: &mut Output) {
        if self.is_discovery() {
            return self.reject(RejectReason::CommandNotSupported, pdu, out);
        }
        if !pdu.bhs.immediate() {
            return self.reject(RejectReason::ProtocolError, pdu, out);
        }
        let tag = pdu.bhs.view::<NopOutHeader>().target_transfer_tag.get();
        self.signs_of_life.ping.take_if(|ping| ping.transfer_tag == tag);
    }

    /// A NOP-Out that asks for an answer: the ping data goes back.
    pub(super) fn execute_nop(&mut self, pdu: &Pdu, out: &mut Output) {
        let header = pdu.bhs.view::<NopOutHeader>();
        if header.target_transfer_tag.get() != RESERVED_TAG {
            return self.reject(RejectReason::InvalidPduField, pdu, out);
        }
        self.accept(pdu);
        let mut data = pdu.data.clone();
        data.truncate(self.parameters.max_send_data_segment_length as usize);
        let stamp = self.numbers.stamp_status();
        let nop_in = NopInHeader {
            opcode: Opcode::NopIn as u8,
            flags: 0x80,
            reserved: [0; 2],
            total_ahs_length: 0,
            data_segment_length: [0; 3],
            lun: [0; 8],
            initiator_task_tag: header.initiator_task_tag,
            target_transfer_tag: U32::new(RESERVED_TAG),
            stat_sn: stamp.stat_sn,
            exp_cmd_sn: stamp.exp_cmd_sn,
            max_cmd_sn: stamp.max_cmd_sn,
            reserved_end: [0; 12],
        };
        out.pdus.push_back(OutPdu::new(&nop_in, data));
    }

    /// Tells an initiator that believes its window to be closed that it is open.
    pub(super) fn tell_window(&mut self, out: &mut Output) {
        if !self.closed && !self.logout.is_under_way() && self.numbers.window.needs_telling() {
            self.send_nop_in(RESERVED_TAG, out);
        }
    }

    /// A NOP-In of the target's own; it wants an answer if it has a transfer tag. It shows StatSN without taking it.
    fn send_nop_in(&mut self, transfer_tag: u32, out: &mut Output) {
        let stamp = self.numbers.stamp();
        let nop_in = NopInHeader {
            opcode: Opcode::NopIn as u8,
            flags: 0x80,
            reserved: [0; 2],
            total_ahs_length: 0,
            data_segment_length: [0; 3],
            lun: [0; 8],
            initiator_task_tag: U32::new(RESERVED_TAG),
            target_transfer_tag: U32::new(transfer_tag),
            stat_sn: stamp.stat_sn,
            exp_cmd_sn: stamp.exp_cmd_sn,
            max_cmd_sn: stamp.max_cmd_sn,
            reserved_end: [0; 12],
        };
        out.pdus.push_back(OutPdu::new(&nop_in, Bytes::new()));
    }
}
