//! A scripted initiator against a [`Session`], one file per concern. What comes out is checked as it is taken:
//! StatSN without gaps, ExpCmdSN and MaxCmdSN never falling.

mod commands;
mod control;
mod data_in;
mod data_out;
mod management;
mod numbering;

use std::time::Duration;

use bytes::Bytes;
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes};

use super::{Session, SessionLimits};
use crate::environment::{Access, Environment, Refusal, TargetRecord};
use crate::login::{Authentication, Established, SessionIdentity};
use crate::name::IscsiName;
use crate::output::{Action, CloseReason, DataPieces, Output, ScsiCommand, TaskId, TaskResult};
use crate::params::Parameters;
use crate::pdu::*;
use crate::testing::{NumberCheck, pieces};

const FIRST_STAT_SN: u32 = u32::MAX - 1;
const FIRST_CMD_SN: u32 = u32::MAX - 2;
const LUN: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];
const FINAL: u8 = 0x80;
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const SIMPLE: u8 = 0x01;
const GOOD: u8 = 0;

struct NoEnvironment;

impl Environment for NoEnvironment {
    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn target_access(&self, _: &IscsiName, _: &IscsiName) -> Result<Access, Refusal> {
        Err(Refusal::NotFound)
    }

    fn discovery_access(&self, _: &IscsiName) -> Result<Access, Refusal> {
        Err(Refusal::NotFound)
    }

    fn targets(&self, _: &IscsiName) -> Vec<TargetRecord> {
        Vec::new()
    }

    fn assign_tsih(&self, _: &SessionIdentity, _: u16, _: u16) -> Result<u16, Refusal> {
        Err(Refusal::OutOfResources)
    }
}

/// A session with an initiator that numbers its commands.
struct Rig {
    session: Session,
    out: Output,
    now: Duration,
    cmd_sn: u32,
    check: NumberCheck,
}

impl Rig {
    fn new() -> Self {
        Self::with(|_, _| {})
    }

    /// Unsolicited data allowed, 8 KiB PDUs, bursts of 16 KiB, unless `change` says otherwise.
    fn with(change: impl FnOnce(&mut Parameters, &mut SessionLimits)) -> Self {
        let mut parameters = Parameters {
            initial_r2t: false,
            max_recv_data_segment_length: 8192,
            max_send_data_segment_length: 8192,
            max_burst_length: 16384,
            first_burst_length: 16384,
            max_outstanding_r2t: 2,
            ..Parameters::default()
        };
        let mut limits = SessionLimits { command_window: 8, ..SessionLimits::default() };
        change(&mut parameters, &mut limits);
        Self::start(parameters, limits, true)
    }

    fn discovery() -> Self {
        Self::start(Parameters::default(), SessionLimits::default(), false)
    }

    fn start(parameters: Parameters, limits: SessionLimits, normal: bool) -> Self {
        let name = |name: &str| IscsiName::parse(name).unwrap();
        let max_cmd_sn = FIRST_CMD_SN.wrapping_add(u32::from(limits.command_window)).wrapping_sub(1);
        let established = Established {
            identity: SessionIdentity {
                initiator: name("iqn.2026-11.io.holdfast:host"),
                initiator_alias: None,
                isid: [0x80, 0, 0, 0, 0, 1],
                target: normal.then(|| name("iqn.2026-11.io.holdfast:disk")),
            },
            tsih: 1,
            cid: 7,
            parameters,
            next_stat_sn: FIRST_STAT_SN,
            exp_cmd_sn: FIRST_CMD_SN,
            max_cmd_sn,
            authentication: Authentication::None,
            portal_group_tag: 1,
        };
        let now = Duration::from_secs(100);
        Self {
            session: Session::new(&established, limits, now),
            out: Output::default(),
            now,
            cmd_sn: FIRST_CMD_SN,
            check: NumberCheck::new(FIRST_STAT_SN, FIRST_CMD_SN, max_cmd_sn),
        }
    }

    fn receive(&mut self, pdu: Pdu) {
        self.session.receive(pdu, self.now, &NoEnvironment, &mut self.out);
    }

    fn tick_at(&mut self, now: Duration) {
        self.now = now;
        self.session.tick(now, &mut self.out);
    }

    /// Takes the CmdSN for a non-immediate request.
    fn take_cmd_sn(&mut self) -> u32 {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        cmd_sn
    }

    fn command(&mut self, tag: u32, flags: u8, expected_bytes: u32, data: &[u8]) {
        let cmd_sn = self.take_cmd_sn();
        self.receive(command(tag, cmd_sn, flags, expected_bytes, data));
    }

    /// Sends a command and gives what the shell sees of it.
    fn begin(&mut self, tag: u32, flags: u8, expected_bytes: u32, data: &[u8]) -> TaskId {
        self.command(tag, flags, expected_bytes, data);
        let command = self.next_command();
        assert_eq!(command.initiator_task_tag, tag);
        command.task
    }

    fn transfer_out(&mut self, task: TaskId, len_bytes: u64) {
        self.session.transfer_out(task, len_bytes, &mut self.out);
    }

    fn complete(&mut self, task: TaskId, result: TaskResult) {
        self.session.complete(task, result, &mut self.out);
    }

    fn complete_good(&mut self, task: TaskId) {
        self.complete(task, TaskResult::default());
    }

    /// All PDUs so far.
    fn pdus(&mut self) -> Vec<OutPdu> {
        let pdus: Vec<_> = self.out.pdus.drain(..).collect();
        for pdu in &pdus {
            self.check.pdu(pdu);
        }
        pdus
    }

    /// The only PDU so far.
    fn pdu(&mut self) -> OutPdu {
        let mut pdus = self.pdus();
        assert_eq!(pdus.len(), 1, "{pdus:?}");
        pdus.remove(0)
    }

    /// The only PDU so far, which has to be a Reject, as reason and rejected header.
    fn rejected(&mut self) -> (u8, Bytes) {
        let pdu = self.pdu();
        assert_eq!(pdu.bhs.opcode(), Some(Opcode::Reject), "{pdu:?}");
        assert_eq!(pdu.bhs.initiator_task_tag(), RESERVED_TAG);
        (pdu.bhs.view::<RejectHeader>().reason, pdu.data)
    }

    /// The only PDU so far, which has to be a SCSI Response.
    fn response(&mut self) -> ScsiResponseHeader {
        let pdu = self.pdu();
        response_of(&pdu)
    }

    fn actions(&mut self) -> Vec<Action> {
        self.out.actions.drain(..).collect()
    }

    /// The only action so far.
    fn action(&mut self) -> Action {
        let mut actions = self.actions();
        assert_eq!(actions.len(), 1, "{actions:?}");
        actions.remove(0)
    }

    fn next_command(&mut self) -> ScsiCommand {
        match self.action() {
            Action::Command(command) => command,
            other => panic!("{other:?}"),
        }
    }

    fn data_out_action(&mut self) -> (TaskId, Vec<u8>) {
        match self.action() {
            Action::DataOut { task, data } => (task, joined(&data)),
            other => panic!("{other:?}"),
        }
    }

    fn abandoned(&mut self) -> Vec<TaskId> {
        match self.action() {
            Action::Abandon(mut tasks) => {
                tasks.sort();
                tasks
            }
            other => panic!("{other:?}"),
        }
    }

    fn closed(&mut self) -> CloseReason {
        match self.action() {
            Action::Close(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn is_quiet(&self) -> bool {
        self.out.is_empty()
    }
}

fn joined(data: &DataPieces) -> Vec<u8> {
    data.iter().flatten().copied().collect()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 3).to_le_bytes()[0]).collect()
}

fn pdu<T: IntoBytes + Immutable>(header: &T, data: &[u8]) -> Pdu {
    let OutPdu { mut bhs, .. } = OutPdu::new(header, Bytes::new());
    bhs.0[5..8].copy_from_slice(&data.len().to_be_bytes()[5..]);
    Pdu { bhs, ahs: Bytes::new(), data: Bytes::copy_from_slice(data), data_digest_ok: true }
}

fn immediate(mut pdu: Pdu) -> Pdu {
    pdu.bhs.0[0] |= 0x40;
    pdu
}

fn corrupt(mut pdu: Pdu) -> Pdu {
    pdu.data_digest_ok = false;
    pdu
}

fn command(tag: u32, cmd_sn: u32, flags: u8, expected_bytes: u32, data: &[u8]) -> Pdu {
    let header = ScsiCommandHeader {
        opcode: Opcode::ScsiCommand as u8,
        flags,
        reserved: [0; 2],
        total_ahs_length: 0,
        data_segment_length: [0; 3],
        lun: LUN,
        initiator_task_tag: U32::new(tag),
        expected_data_transfer_length: U32::new(expected_bytes),
        cmd_sn: U32::new(cmd_sn),
        exp_stat_sn: U32::ZERO,
        cdb: [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    };
    pdu(&header, data)
}

fn data_out(tag: u32, transfer_tag: u32, data_sn: u32, offset: u32, is_final: bool, data: &[u8]) -> Pdu {
    let header = DataOutHeader {
        opcode: Opcode::DataOut as u8,
        flags: if is_final { FINAL } else { 0 },
        reserved: [0; 2],
        total_ahs_length: 0,
        data_segment_length: [0; 3],
        lun: [0; 8],
        initiator_task_tag: U32::new(tag),
        target_transfer_tag: U32::new(transfer_tag),
        reserved_24: U32::ZERO,
        exp_stat_sn: U32::ZERO,
        reserved_32: U32::ZERO,
        data_sn: U32::new(data_sn),
        buffer_offset: U32::new(offset),
        reserved_44: U32::ZERO,
    };
    pdu(&header, data)
}

fn task_management(tag: u32, cmd_sn: u32, function: u8, referenced_tag: u32, ref_cmd_sn: u32) -> Pdu {
    let header = TaskManagementRequestHeader {
        opcode: Opcode::TaskManagementRequest as u8,
        function: FINAL | function,
        reserved: [0; 2],
        total_ahs_length: 0,
        data_segment_length: [0; 3],
        lun: LUN,
        initiator_task_tag: U32::new(tag),
        referenced_task_tag: U32::new(referenced_tag),
        cmd_sn: U32::new(cmd_sn),
        exp_stat_sn: U32::ZERO,
        ref_cmd_sn: U32::new(ref_cmd_sn),
        exp_data_sn: U32::ZERO,
        reserved_end: [0; 8],
    };
    pdu(&header, &[])
}

fn nop_out(tag: u32, transfer_tag: u32, cmd_sn: u32, data: &[u8]) -> Pdu {
    let header = NopOutHeader {
        opcode: Opcode::NopOut as u8,
        flags: FINAL,
        reserved: [0; 2],
        total_ahs_length: 0,
        data_segment_length: [0; 3],
        lun: [0; 8],
        initiator_task_tag: U32::new(tag),
        target_transfer_tag: U32::new(transfer_tag),
        cmd_sn: U32::new(cmd_sn),
        exp_stat_sn: U32::ZERO,
        reserved_end: [0; 16],
    };
    pdu(&header, data)
}

fn logout(tag: u32, cmd_sn: u32, reason: u8, cid: u16) -> Pdu {
    let header = LogoutRequestHeader {
        opcode: Opcode::LogoutRequest as u8,
        reason: FINAL | reason,
        reserved: [0; 2],
        total_ahs_length: 0,
        data_segment_length: [0; 3],
        reserved_8: [0; 8],
        initiator_task_tag: U32::new(tag),
        cid: U16::new(cid),
        reserved_22: U16::ZERO,
        cmd_sn: U32::new(cmd_sn),
        exp_stat_sn: U32::ZERO,
        reserved_end: [0; 16],
    };
    pdu(&header, &[])
}

fn text(tag: u32, cmd_sn: u32, data: &[u8]) -> Pdu {
    let header = TextRequestHeader {
        opcode: Opcode::TextRequest as u8,
        flags: FINAL,
        reserved: [0; 2],
        total_ahs_length: 0,
        data_segment_length: [0; 3],
        lun: [0; 8],
        initiator_task_tag: U32::new(tag),
        target_transfer_tag: U32::new(RESERVED_TAG),
        cmd_sn: U32::new(cmd_sn),
        exp_stat_sn: U32::ZERO,
        reserved_end: [0; 16],
    };
    pdu(&header, data)
}

fn r2t_of(pdu: &OutPdu) -> ReadyToTransferHeader {
    assert_eq!(pdu.bhs.opcode(), Some(Opcode::ReadyToTransfer), "{pdu:?}");
    *pdu.bhs.view()
}

fn response_of(pdu: &OutPdu) -> ScsiResponseHeader {
    assert_eq!(pdu.bhs.opcode(), Some(Opcode::ScsiResponse), "{pdu:?}");
    *pdu.bhs.view()
}

/// Sense key, ASC and ASCQ of a response with fixed format sense data.
fn sense_of(pdu: &OutPdu) -> (u8, u8, u8) {
    assert_eq!(response_of(pdu).status, 0x02);
    assert_eq!(pdu.data[..2], [0, 18], "length of the sense data");
    assert_eq!(pdu.data.len(), 20);
    assert_eq!(pdu.data[2], 0x70);
    (pdu.data[4], pdu.data[14], pdu.data[15])
}
