//! Task management (RFC 7143, 4.2.3, 11.5, 11.6) and aborts that come from other nexuses.
//!
//! A function is answered when every task that it covers is *settled*, which is when the shell has completed it, and
//! when the shell has done what concerns others. What a task still owes in Data-Out is not waited for, though
//! RFC 7143, 4.2.3.3 asks for that: initiators that abort fast (Linux by default) never send it, and the wait only
//! protects tags from being used again too early, which here the transfer tags do by never coming again.
//!
//! Not supported, and answered so: CLEAR ACA (there is no ACA, NORMACA=0), TASK REASSIGN (ErrorRecoveryLevel 0), and
//! the functions of RFC 7144, which need a higher iSCSIProtocolLevel than this target offers.

use bytes::Bytes;
use zerocopy::byteorder::big_endian::U32;

use super::Session;
use super::lun::is_same_lun;
use super::tasks::{Fate, Task};
use crate::output::{Action, CloseReason, Output, TaskFunction, TaskId, TaskManagement, TaskManagementOutcome};
use crate::pdu::{
    Opcode, OutPdu, Pdu, RESERVED_TAG, RejectReason, TaskManagementRequestHeader, TaskManagementResponseHeader,
};
use crate::serial::SerialNumber;

/// Everything that waits for tasks to settle, in the order in which it came.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiters: Vec<Waiter>,
    last_token: u64,
}

#[derive(Debug)]
struct Waiter {
    purpose: Purpose,
    unsettled: Vec<TaskId>,
}

#[derive(Debug)]
enum Purpose {
    /// ABORT TASK, which nobody but this session has to do with.
    AbortTask { initiator_task_tag: u32 },
    /// Any other function; the shell's turn comes when the tasks are settled.
    Function { initiator_task_tag: u32, management: TaskManagement, with_shell: bool },
    /// The shell's own, for another nexus.
    OtherNexus { token: u64 },
}

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The connection is gone: nobody waits for an answer to a function any more.
    pub(super) fn forget_functions(&mut self) {
        self.waiters.retain(|waiter| matches!(waiter.purpose, Purpose::OtherNexus { .. }));
    }

    fn functions(&self) -> usize {
        self.waiters.iter().filter(|waiter| !matches!(waiter.purpose, Purpose::OtherNexus { .. })).count()
    }
}

/// What a function code asks for (RFC 7143, 11.5.1).
enum Requested {
    AbortTask,
    TaskSet(TaskFunction),
    Refused(TaskManagementOutcome),
}

impl Requested {
    fn from_code(code: u8) -> Self {
        match code {
            1 => Self::AbortTask,
            2 => Self::TaskSet(TaskFunction::AbortTaskSet),
            3 => Self::TaskSet(TaskFunction::ClearTaskSet),
            5 => Self::TaskSet(TaskFunction::LogicalUnitReset),
            6 => Self::TaskSet(TaskFunction::TargetWarmReset),
            7 => Self::TaskSet(TaskFunction::TargetColdReset),
            8 => Self::Refused(TaskManagementOutcome::ReassignmentNotSupported),
            _ => Self::Refused(TaskManagementOutcome::NotSupported),
        }
    }
}

impl TaskFunction {
    /// Whether the function covers one logical unit, not all of the target.
    pub fn is_for_one_lun(self) -> bool {
        match self {
            Self::AbortTaskSet | Self::ClearTaskSet | Self::LogicalUnitReset => true,
            Self::TargetWarmReset | Self::TargetColdReset => false,
        }
    }
}

impl Session {
    pub(super) fn execute_task_management(&mut self, pdu: &Pdu, out: &mut Output) {
        let header = pdu.bhs.view::<TaskManagementRequestHeader>();
        let tag = header.initiator_task_tag.get();
        if tag == RESERVED_TAG {
            return self.reject(RejectReason::InvalidPduField, pdu, out);
        }
        if self.tasks.has_tag(tag) {
            return self.reject(RejectReason::TaskInProgress, pdu, out);
        }
        let is_full = self.waiters.functions() >= usize::from(self.limits.max_task_management);
        if is_full && pdu.bhs.immediate() {
            return self.reject(RejectReason::ImmediateCommandReject, pdu, out);
        }
        self.accept(pdu);
        self.counters.task_management += 1;
        match Requested::from_code(header.function & 0x7f) {
            Requested::Refused(outcome) => self.respond_task_management(tag, outcome, out),
            _ if is_full => self.respond_task_management(tag, TaskManagementOutcome::Rejected, out),
            Requested::AbortTask => self.abort_task(header, out),
            Requested::TaskSet(function) => self.abort_task_set(function, header, out),
        }
    }

    /// The shell has done its part of a function.
    pub fn complete_task_management(&mut self, token: u64, outcome: TaskManagementOutcome, out: &mut Output) {
        let found = self.waiters.waiters.iter().position(|waiter| {
            matches!(&waiter.purpose, Purpose::Function { management, with_shell: true, .. } if management.token == token)
        });
        let Some(at) = found else { return };
        let waiter = self.waiters.waiters.remove(at);
        let Purpose::Function { initiator_task_tag, management, .. } = waiter.purpose else {
            return;
        };
        if self.closed || self.logout.is_under_way() {
            return;
        }
        self.respond_task_management(initiator_task_tag, outcome, out);
        if management.function == TaskFunction::TargetColdReset && outcome == TaskManagementOutcome::Complete {
            // A cold reset ends all sessions of the target (RFC 7143, 11.5.1); the shell closes the others.
            self.close(CloseReason::TargetReset, out);
        }
    }

    /// Another nexus has aborted the tasks of `lun`, or all if that is `None`: they end with TASK ABORTED.
    /// [`Action::AbortsSettled`] follows when all are settled, at once if there are none.
    pub fn abort_from_other_nexus(&mut self, lun: Option<[u8; 8]>, token: u64, out: &mut Output) {
        let unsettled =
            self.abort_tasks(Fate::AbortedElsewhere, |task| lun.is_none_or(|lun| is_same_lun(lun, task.lun)), out);
        self.wait_for(Waiter { purpose: Purpose::OtherNexus { token }, unsettled }, out);
    }

    fn abort_task(&mut self, header: &TaskManagementRequestHeader, out: &mut Output) {
        let tag = header.initiator_task_tag.get();
        let referenced_tag = header.referenced_task_tag.get();
        let lun = header.lun;
        if self.tasks.by_tag(referenced_tag).is_some_and(|task| is_same_lun(task.lun, lun)) {
            let unsettled = self.abort_tasks(Fate::Aborted, |task| task.initiator_task_tag == referenced_tag, out);
            return self.wait_for(Waiter { purpose: Purpose::AbortTask { initiator_task_tag: tag }, unsettled }, out);
        }
        // A command that has not come counts as received, and as aborted (RFC 7143, 11.5.1).
        let referenced = SerialNumber(header.ref_cmd_sn.get());
        let outcome = if !self.tasks.has_tag(referenced_tag)
            && self.numbers.window.is_inside(referenced)
            && referenced.is_before(SerialNumber(header.cmd_sn.get()))
        {
            self.numbers.window.abort(referenced);
            TaskManagementOutcome::Complete
        } else {
            TaskManagementOutcome::TaskDoesNotExist
        };
        self.respond_task_management(tag, outcome, out);
    }

    fn abort_task_set(&mut self, function: TaskFunction, header: &TaskManagementRequestHeader, out: &mut Output) {
        let lun = header.lun;
        let covers = |task_lun: [u8; 8]| !function.is_for_one_lun() || is_same_lun(task_lun, lun);
        // Commands before this one in CmdSN are covered, though their turn has not come (RFC 7143, 4.2.3.2).
        let number = SerialNumber(header.cmd_sn.get());
        self.numbers
            .window
            .abort_held(number, |pdu| pdu.bhs.opcode() == Some(Opcode::ScsiCommand) && covers(pdu.bhs.lun()));
        let unsettled = self.abort_tasks(
            Fate::Aborted,
            |task| covers(task.lun) && (task.immediate || task.command_number.is_before(number)),
            out,
        );
        self.waiters.last_token += 1;
        let management = TaskManagement { token: self.waiters.last_token, function, lun };
        let initiator_task_tag = header.initiator_task_tag.get();
        let purpose = Purpose::Function { initiator_task_tag, management, with_shell: false };
        self.wait_for(Waiter { purpose, unsettled }, out);
    }

    /// Sets the fate of tasks, tells the shell, and gives those that it has not settled.
    pub(super) fn abort_tasks(&mut self, fate: Fate, covers: impl Fn(&Task) -> bool, out: &mut Output) -> Vec<TaskId> {
        let (mut news, mut unsettled, mut over) = (Vec::new(), Vec::new(), Vec::new());
        for task in self.tasks.iter_mut().filter(|task| covers(task)) {
            let is_settled = task.result.is_some();
            // A task that only waits for the end of its data has its status already; another nexus is too late.
            if fate == Fate::AbortedElsewhere && is_settled {
                continue;
            }
            if task.fate == Fate::Live {
                self.counters.aborted_tasks += 1;
            }
            if task.fate != Fate::Aborted {
                task.fate = fate;
            }
            task.drop_data();
            if is_settled {
                over.push(task.id);
                continue;
            }
            unsettled.push(task.id);
            if !task.abandon_told {
                task.abandon_told = true;
                news.push(task.id);
            }
        }
        if !news.is_empty() {
            out.actions.push_back(Action::Abandon(news));
        }
        for id in over {
            if let Some(mut task) = self.tasks.remove(id) {
                let result = task.result.take().unwrap_or_default();
                self.end_task(&task, *result, out);
            }
        }
        unsettled
    }

    /// The shell has completed a task.
    pub(super) fn task_settled(&mut self, id: TaskId, out: &mut Output) {
        let mut settled = Vec::new();
        self.waiters.waiters.retain_mut(|waiter| {
            let before = waiter.unsettled.len();
            waiter.unsettled.retain(|unsettled| *unsettled != id);
            let is_settled = before > 0 && waiter.unsettled.is_empty();
            if is_settled {
                let purpose = std::mem::replace(&mut waiter.purpose, Purpose::OtherNexus { token: 0 });
                settled.push(purpose);
            }
            !is_settled
        });
        for purpose in settled {
            self.settled(purpose, out);
        }
    }

    fn wait_for(&mut self, waiter: Waiter, out: &mut Output) {
        if waiter.unsettled.is_empty() {
            self.settled(waiter.purpose, out);
        } else {
            self.waiters.waiters.push(waiter);
        }
    }

    fn settled(&mut self, purpose: Purpose, out: &mut Output) {
        match purpose {
            Purpose::AbortTask { initiator_task_tag } => {
                if !self.closed && !self.logout.is_under_way() {
                    self.respond_task_management(initiator_task_tag, TaskManagementOutcome::Complete, out);
                }
            }
            Purpose::Function { initiator_task_tag, management, .. } => {
                let purpose = Purpose::Function { initiator_task_tag, management, with_shell: true };
                self.waiters.waiters.push(Waiter { purpose, unsettled: Vec::new() });
                out.actions.push_back(Action::TaskManagement(management));
            }
            Purpose::OtherNexus { token } => out.actions.push_back(Action::AbortsSettled(token)),
        }
    }

    fn respond_task_management(&mut self, tag: u32, outcome: TaskManagementOutcome, out: &mut Output) {
        let stamp = self.numbers.stamp_status();
        out.pdus.push_back(OutPdu::new(
            &TaskManagementResponseHeader {
                opcode: Opcode::TaskManagementResponse as u8,
                flags: 0x80,
                response: outcome as u8,
                reserved: 0,
                total_ahs_length: 0,
                data_segment_length: [0; 3],
                reserved_8: [0; 8],
                initiator_task_tag: U32::new(tag),
                reserved_20: U32::ZERO,
                stat_sn: stamp.stat_sn,
                exp_cmd_sn: stamp.exp_cmd_sn,
                max_cmd_sn: stamp.max_cmd_sn,
                reserved_end: [0; 12],
            },
            Bytes::new(),
        ));
    }
}
