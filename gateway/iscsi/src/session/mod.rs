//! The full feature phase of a session with its one connection, at ErrorRecoveryLevel 0 (RFC 7143, sections 4, 7
//! and 11).
//!
//! [`Session`] takes PDUs, the shell's results and the time, and gives PDUs and [`Action`]s. It owns command
//! numbering, the tasks and their data until the shell has it, task management as far as the own tasks are
//! concerned, and the signs of life. It knows nothing of SCSI beyond statuses and the sense data of the transport
//! itself. Begin reading at [`Session::receive`] and [`Session::complete`].
//!
//! | file | concern |
//! |---|---|
//! | `command_window` | CmdSN, ExpCmdSN, MaxCmdSN; commands ahead of their turn |
//! | `tasks` | the table of tasks |
//! | `command` | SCSI Command PDUs |
//! | `data_out` | immediate, unsolicited and solicited data, R2T |
//! | `response` | Data-In, status and residuals |
//! | `management` | task management, aborts from other nexuses |
//! | `nop` | NOP both ways, timers |
//! | `control` | text, logout, asynchronous messages, Reject |
//!
//! What an initiator can make a session hold: as many tasks as the command window and the limit of immediate
//! commands allow, each with at most FirstBurstLength of unsolicited data, plus what the shell asked for by
//! [`Session::transfer_out`]; 1 MiB of PDUs ahead of their turn; one text exchange.

mod command;
mod command_window;
mod control;
mod data_out;
mod limits;
mod lun;
mod management;
mod nop;
mod numbers;
mod response;
mod sense;
mod tags;
mod tasks;

use std::time::Duration;

pub use limits::{Counters, SessionLimits};

use self::command_window::{CommandWindow, Held, HeldTooMuch, Position};
use self::control::Logout;
use self::management::Waiters;
use self::nop::SignsOfLife;
use self::numbers::Numbers;
use self::tasks::{Fate, TaskTable};
use crate::environment::Environment;
use crate::login::{Established, SessionIdentity};
use crate::output::{Action, CloseReason, Output, TaskId, TaskResult};
use crate::params::Parameters;
use crate::pdu::{Opcode, Pdu, RESERVED_TAG, RejectReason, ScsiCommandHeader};
use crate::serial::SerialNumber;
use crate::text_request::TextExchange;

/// A session in its full feature phase. See the [module](self).
#[derive(Debug)]
pub struct Session {
    identity: SessionIdentity,
    cid: u16,
    parameters: Parameters,
    limits: SessionLimits,
    numbers: Numbers,
    tasks: TaskTable,
    immediate_commands: u16,
    waiters: Waiters,
    text: TextExchange,
    signs_of_life: SignsOfLife,
    logout: Logout,
    /// Nothing is received or sent any more.
    closed: bool,
    counters: Counters,
}

impl Session {
    /// The session that a login has established at the time `now`.
    pub fn new(established: &Established, limits: SessionLimits, now: Duration) -> Self {
        let window = CommandWindow::new(
            SerialNumber(established.exp_cmd_sn),
            SerialNumber(established.max_cmd_sn),
            limits.command_window,
        );
        Self {
            identity: established.identity.clone(),
            cid: established.cid,
            parameters: established.parameters.clone(),
            signs_of_life: SignsOfLife::new(now),
            limits,
            numbers: Numbers::new(SerialNumber(established.next_stat_sn), window),
            tasks: TaskTable::default(),
            immediate_commands: 0,
            waiters: Waiters::default(),
            text: TextExchange::default(),
            logout: Logout::default(),
            closed: false,
            counters: Counters::default(),
        }
    }

    /// Takes the next PDU of the connection. Nothing happens after [`Action::Close`].
    pub fn receive(&mut self, pdu: Pdu, now: Duration, environment: &dyn Environment, out: &mut Output) {
        if self.closed || self.logout.is_under_way() {
            return;
        }
        self.signs_of_life.received(now);
        match pdu.bhs.opcode() {
            Some(Opcode::DataOut) if !self.is_discovery() => self.receive_data_out(pdu, out),
            Some(
                Opcode::ScsiCommand
                | Opcode::TaskManagementRequest
                | Opcode::TextRequest
                | Opcode::LogoutRequest
                | Opcode::NopOut,
            ) => self.receive_request(pdu, environment, out),
            Some(Opcode::LoginRequest) => {
                self.reject(RejectReason::ProtocolError, &pdu, out);
                self.close(CloseReason::ProtocolError("login request in the full feature phase"), out);
            }
            Some(Opcode::SnackRequest) if !self.is_discovery() => self.reject(RejectReason::SnackReject, &pdu, out),
            _ => self.reject(RejectReason::CommandNotSupported, &pdu, out),
        }
    }

    /// Ends a task: Data-In, with the status in its last PDU where that is GOOD, or a SCSI Response, with residuals.
    ///
    /// Waits with the response for the initiator to end data that it is still sending; sends none for a task that
    /// the initiator aborted. To be called once for each [`Action::Command`].
    pub fn complete(&mut self, task: TaskId, result: TaskResult, out: &mut Output) {
        let Some(entry) = self.tasks.get_mut(task) else {
            return;
        };
        if entry.result.is_some() {
            return;
        }
        if entry.fate != Fate::Aborted && entry.data_out.is_open() {
            entry.drop_data();
            entry.result = Some(Box::new(result));
        } else if let Some(entry) = self.tasks.remove(task) {
            self.end_task(&entry, result, out);
        }
        if !self.waiters.is_empty() {
            self.task_settled(task, out);
        }
        self.finish_logout(out);
        self.tell_window(out);
    }

    /// The connection is lost or is being replaced: nothing is sent from now on, all data that the shell does not
    /// have is dropped. To be called after [`Action::Close`] too. Tasks that are not settled are reported by [`Action::Abandon`]; the shell completes them.
    pub fn abandon_all(&mut self, out: &mut Output) {
        self.closed = true;
        self.numbers.window.clear_held();
        self.waiters.forget_functions();
        self.text = TextExchange::default();
        self.abort_tasks(Fate::Aborted, |_| true, out);
    }

    /// Tasks that the shell has not completed.
    pub fn unsettled_tasks(&self) -> usize {
        self.tasks.unsettled()
    }

    /// Bytes of write data that the session holds because they are not all there yet.
    pub fn buffered_bytes(&self) -> usize {
        self.tasks.buffered_bytes()
    }

    /// Sets how many non-immediate commands the initiator may have open. A smaller window takes effect as commands
    /// come in, since MaxCmdSN never moves back; a closed window that opens is told at once by a NOP-In.
    pub fn set_command_window(&mut self, window: u16, out: &mut Output) {
        self.numbers.window.set_size(window);
        self.tell_window(out);
    }

    /// What was negotiated, with later changes.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The two ends of the session.
    pub fn identity(&self) -> &SessionIdentity {
        &self.identity
    }

    /// What has been counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether nothing is received or sent any more.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn is_discovery(&self) -> bool {
        self.identity.target.is_none()
    }

    /// A PDU that carries a CmdSN: now, if it is immediate or its turn has come, later or never if not.
    fn receive_request(&mut self, pdu: Pdu, environment: &dyn Environment, out: &mut Output) {
        if pdu.bhs.opcode() == Some(Opcode::NopOut) && pdu.bhs.initiator_task_tag() == RESERVED_TAG {
            return self.receive_nop_answer(&pdu, out);
        }
        if pdu.bhs.immediate() {
            self.execute(pdu, environment, out);
        } else {
            let number = command_number(&pdu);
            match self.numbers.window.position(number) {
                Position::Next => self.execute(pdu, environment, out),
                Position::Ahead => {
                    if let Err(HeldTooMuch) = self.numbers.window.hold(number, pdu) {
                        self.close(CloseReason::ProtocolError("too much data in commands ahead of their turn"), out);
                    }
                    return;
                }
                Position::Ignored => {
                    self.counters.ignored_requests += 1;
                    return;
                }
            }
        }
        self.execute_held(environment, out);
    }

    fn execute_held(&mut self, environment: &dyn Environment, out: &mut Output) {
        while !self.closed && !self.logout.is_under_way() {
            let number = self.numbers.window.expected();
            match self.numbers.window.take_next() {
                Some(Held::Aborted) => self.numbers.window.advance(),
                Some(Held::Pdu(pdu)) => self.execute(*pdu, environment, out),
                None => return,
            }
            // A rejected command leaves its number open (RFC 7143, 7.3).
            if self.numbers.window.expected() == number {
                return;
            }
        }
    }

    /// Carries out a request whose turn it is. Whatever is not rejected has to pass [`Self::accept`].
    fn execute(&mut self, pdu: Pdu, environment: &dyn Environment, out: &mut Output) {
        let opcode = pdu.bhs.opcode();
        if !pdu.data_digest_ok {
            self.counters.data_digest_errors += 1;
            if opcode != Some(Opcode::ScsiCommand) {
                return self.reject(RejectReason::DataDigestError, &pdu, out);
            }
        }
        // On a discovery session all but text and logout is to be rejected (RFC 7143, 4.3).
        match opcode {
            Some(Opcode::TextRequest) => self.execute_text(&pdu, environment, out),
            Some(Opcode::LogoutRequest) => self.execute_logout(&pdu, out),
            _ if self.is_discovery() => self.reject(RejectReason::CommandNotSupported, &pdu, out),
            Some(Opcode::ScsiCommand) => self.execute_scsi(pdu, out),
            Some(Opcode::TaskManagementRequest) => self.execute_task_management(&pdu, out),
            Some(Opcode::NopOut) => self.execute_nop(&pdu, out),
            _ => self.reject(RejectReason::CommandNotSupported, &pdu, out),
        }
    }

    /// Counts the number of a request as received, unless the request is immediate and so has none of its own.
    fn accept(&mut self, pdu: &Pdu) {
        if !pdu.bhs.immediate() {
            self.numbers.window.advance();
        }
    }

    fn close(&mut self, reason: CloseReason, out: &mut Output) {
        if self.closed {
            return;
        }
        self.closed = true;
        self.numbers.window.clear_held();
        out.actions.push_back(Action::Close(reason));
    }
}

/// CmdSN stands at the same place in all requests that have one.
fn command_number(pdu: &Pdu) -> SerialNumber {
    SerialNumber(pdu.bhs.view::<ScsiCommandHeader>().cmd_sn.get())
}

#[cfg(test)]
mod tests;
