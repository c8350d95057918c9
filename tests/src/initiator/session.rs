//! The full feature phase of one session with one connection (RFC 7143, sections 4 and 11).
//!
//! [`Session::submit`] sends commands as the window allows, [`Session::next_event`] takes what comes and answers R2Ts
//! and pings on the way. What the target numbers is checked against what the RFC makes of it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::login::Negotiated;
use super::pdu::{Bhs, FINAL, IMMEDIATE, NO_TAG, Pdu, lun_bytes, request, response};
use super::scsi::{Command, Sense, status};
use super::text;
use super::wire::{DEFAULT_TIMEOUT, Wire, WireError};

/// Why a session cannot go on.
#[derive(Debug)]
pub enum SessionError {
    /// The connection is gone.
    Wire(WireError),
    /// The target has broken the protocol.
    Protocol(String),
}

impl std::fmt::Display for SessionError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wire(error) => write!(formatter, "{error}"),
            Self::Protocol(what) => write!(formatter, "protocol error of the target: {what}"),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<WireError> for SessionError {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

fn protocol<T>(what: impl Into<String>) -> Result<T, SessionError> {
    Err(SessionError::Protocol(what.into()))
}

/// What the target has said about the length of a transfer (RFC 7143, 11.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// Exactly what was expected.
    None,
    /// So many bytes were expected and not transferred.
    Underflow(u32),
    /// So many bytes were not transferred because they were not expected.
    Overflow(u32),
}

impl Residual {
    fn read(bhs: &Bhs) -> Self {
        match bhs.flags() & 0x06 {
            0x02 => Self::Underflow(bhs.u32_at(44)),
            0x04 => Self::Overflow(bhs.u32_at(44)),
            _ => Self::None,
        }
    }
}

/// How a command has ended.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The tag that [`Session::submit`] gave.
    pub task_tag: u32,
    /// The SCSI status.
    pub status: u8,
    /// Sense data, without its length.
    pub sense: Vec<u8>,
    /// What was read.
    pub data_in: Vec<u8>,
    /// Residual count.
    pub residual: Residual,
    /// How many R2Ts the target has sent.
    pub r2ts: u32,
    /// How many Data-In PDUs.
    pub data_ins: u32,
}

impl Completion {
    /// Whether the status is GOOD.
    pub fn is_good(&self) -> bool {
        self.status == status::GOOD
    }

    /// The sense of a CHECK CONDITION.
    pub fn sense(&self) -> Option<Sense> {
        Sense::parse(&self.sense)
    }
}

/// A request for data (RFC 7143, 11.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToTransfer {
    /// The command's tag.
    pub task_tag: u32,
    /// The target's tag, repeated by the Data-Out.
    pub transfer_tag: u32,
    /// Where the wanted data begins, in bytes.
    pub offset: usize,
    /// How much is wanted, in bytes.
    pub len_bytes: usize,
}

/// Something that the target has sent.
#[derive(Clone, Debug)]
pub enum Event {
    /// A command has ended.
    Completion(Completion),
    /// A request for data, when R2Ts are held.
    ReadyToTransfer(ReadyToTransfer),
    /// The answer to a ping of ours.
    Pong {
        /// The ping's tag.
        task_tag: u32,
        /// The ping's data.
        data: Vec<u8>,
    },
    /// The target has pinged and was answered.
    Pinged,
    /// The answer to a task management function (RFC 7143, 11.6.1).
    TaskManagement {
        /// The request's tag.
        task_tag: u32,
        /// The response code.
        response: u8,
    },
    /// Text.
    Text(Pdu),
    /// The answer to a logout (RFC 7143, 11.15.1).
    Logout {
        /// The response code.
        response: u8,
    },
    /// An asynchronous message (RFC 7143, 11.9).
    Async {
        /// The event code.
        event: u8,
        /// Its three parameters.
        parameters: [u16; 3],
    },
    /// A PDU was rejected (RFC 7143, 11.17).
    Reject {
        /// The reason code.
        reason: u8,
        /// The header of the rejected PDU.
        header: Vec<u8>,
    },
}

struct Task {
    command: Command,
    data_in: Vec<u8>,
    data_ins: u32,
    burst_len_bytes: usize,
    r2ts: u32,
}

/// A session in the full feature phase.
pub struct Session {
    wire: Wire,
    negotiated: Negotiated,
    tsih: u16,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    next_tag: u32,
    tasks: HashMap<u32, Task>,
    stash: VecDeque<Event>,
    holds_r2t: bool,
}

impl Session {
    pub(super) fn new(
        wire: Wire,
        negotiated: Negotiated,
        tsih: u16,
        exp_stat_sn: u32,
        cmd_sn: u32,
        max_cmd_sn: u32,
    ) -> Self {
        Self {
            wire,
            negotiated,
            tsih,
            cmd_sn,
            max_cmd_sn,
            exp_stat_sn,
            next_tag: 1,
            tasks: HashMap::new(),
            stash: VecDeque::new(),
            holds_r2t: false,
        }
    }

    /// What was agreed on.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// The target's session handle.
    pub fn tsih(&self) -> u16 {
        self.tsih
    }

    /// The connection, to send what this type would not.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// The CmdSN of the next command.
    pub fn cmd_sn(&self) -> u32 {
        self.cmd_sn
    }

    /// Counts a command that was sent by hand.
    pub fn advance_cmd_sn(&mut self) {
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
    }

    /// ExpStatSN, as the next PDU has to carry it.
    pub fn exp_stat_sn(&self) -> u32 {
        self.exp_stat_sn
    }

    /// How many commands the target would still take.
    pub fn window(&self) -> u32 {
        let open = self.max_cmd_sn.wrapping_sub(self.cmd_sn).wrapping_add(1);
        if open > u32::MAX / 2 { 0 } else { open }
    }

    /// Commands that have no status yet.
    pub fn outstanding(&self) -> usize {
        self.tasks.len()
    }

    /// From now on R2Ts come as events and wait for [`Session::answer`].
    pub fn hold_r2t(&mut self, hold: bool) {
        self.holds_r2t = hold;
    }

    /// A tag that was not used before.
    pub fn new_tag(&mut self) -> u32 {
        let tag = self.next_tag;
        self.next_tag = if tag >= NO_TAG - 1 { 1 } else { tag + 1 };
        tag
    }

    /// Sends a command and what of its data may go with it, once the window is open; returns its tag.
    pub fn submit(&mut self, command: Command) -> Result<u32, SessionError> {
        while !command.immediate && self.window() == 0 {
            let event = self.receive_event()?;
            self.stash.push_back(event);
        }
        let tag = self.new_tag();
        let unsolicited_limit = self.negotiated.first_burst_len_bytes.min(command.data_out.len());
        let immediate_len =
            if self.negotiated.immediate_data { unsolicited_limit.min(self.negotiated.max_send_len_bytes) } else { 0 };
        let sends_more = !self.negotiated.initial_r2t && unsolicited_limit > immediate_len;
        let (bhs, ahs) = self.command_header(&command, tag, !sends_more);
        let data = command.data_out.clone();
        self.wire.send(bhs, &ahs, &data[..immediate_len])?;
        if !command.immediate {
            self.advance_cmd_sn();
        }
        let lun = command.lun;
        let task = Task { command, data_in: Vec::new(), data_ins: 0, burst_len_bytes: 0, r2ts: 0 };
        self.tasks.insert(tag, task);
        if sends_more {
            self.send_data_out(lun, tag, NO_TAG, &data[..unsolicited_limit], immediate_len)?;
        }
        Ok(tag)
    }

    fn command_header(&self, command: &Command, tag: u32, is_final: bool) -> (Bhs, Vec<u8>) {
        let mut flags = command.attribute & 7;
        flags |= if is_final { FINAL } else { 0 };
        flags |= if command.data_in_len_bytes > 0 { 0x40 } else { 0 };
        flags |= if command.data_out.is_empty() { 0 } else { 0x20 };
        let len_bytes = command.data_out.len().max(command.data_in_len_bytes);
        let expected = command.expected_len_bytes.or(u32::try_from(len_bytes).ok()).unwrap_or(u32::MAX);
        let mut cdb = command.cdb.clone();
        cdb.resize(cdb.len().max(16), 0);
        let mut ahs = Vec::new();
        if cdb.len() > 16 {
            // Extended CDB (RFC 7143, 11.2.2.3): its length counts one reserved byte.
            let len_bytes = u16::try_from(cdb.len() - 15).unwrap_or(u16::MAX);
            ahs.extend(len_bytes.to_be_bytes());
            ahs.extend([1, 0]);
            ahs.extend_from_slice(&cdb[16..]);
        }
        let opcode = request::SCSI_COMMAND | if command.immediate { IMMEDIATE } else { 0 };
        let bhs = Bhs::new(opcode, flags)
            .with_lun(command.lun)
            .with_task_tag(tag)
            .with_u32(20, expected)
            .with_u32(24, self.cmd_sn)
            .with_u32(28, self.exp_stat_sn)
            .with_bytes(32, &cdb[..16]);
        (bhs, ahs)
    }

    /// One sequence of Data-Out: `data` from `from` to its end.
    fn send_data_out(
        &mut self,
        lun: u16,
        tag: u32,
        transfer_tag: u32,
        data: &[u8],
        from: usize,
    ) -> Result<(), SessionError> {
        let (mut offset, mut data_sn) = (from, 0);
        while offset < data.len() {
            let end = data.len().min(offset + self.negotiated.max_send_len_bytes);
            let flags = if end == data.len() { FINAL } else { 0 };
            let bhs = Bhs::new(request::DATA_OUT, flags)
                .with_bytes(8, &lun_bytes(lun))
                .with_task_tag(tag)
                .with_u32(20, transfer_tag)
                .with_u32(28, self.exp_stat_sn)
                .with_u32(36, data_sn)
                .with_u32(40, u32::try_from(offset).unwrap_or(u32::MAX));
            self.wire.send(bhs, &[], &data[offset..end])?;
            (offset, data_sn) = (end, data_sn + 1);
        }
        Ok(())
    }

    /// Sends the data that a held R2T has asked for.
    pub fn answer(&mut self, r2t: ReadyToTransfer) -> Result<(), SessionError> {
        let Some(task) = self.tasks.get(&r2t.task_tag) else {
            return protocol("R2T for a task that is over");
        };
        let (lun, data) = (task.command.lun, task.command.data_out.clone());
        let Some(wanted) = data.get(..r2t.offset + r2t.len_bytes) else {
            return protocol("R2T past the end of the data");
        };
        self.send_data_out(lun, r2t.task_tag, r2t.transfer_tag, wanted, r2t.offset)
    }

    /// The next thing that the target sends.
    pub fn next_event(&mut self) -> Result<Event, SessionError> {
        match self.stash.pop_front() {
            Some(event) => Ok(event),
            None => self.receive_event(),
        }
    }

    /// The next thing that the target sends within `patience`.
    pub fn next_event_within(&mut self, patience: Duration) -> Result<Option<Event>, SessionError> {
        if let Some(event) = self.stash.pop_front() {
            return Ok(Some(event));
        }
        match self.wire.receive_within(patience)? {
            Some(pdu) => self.take(pdu).map(Some),
            None => Ok(None),
        }
    }

    /// The first event that `wanted` makes something of; the others wait.
    pub fn wait_for<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> Result<T, SessionError> {
        for index in 0..self.stash.len() {
            if let Some(found) = self.stash.get(index).and_then(&mut wanted) {
                self.stash.remove(index);
                return Ok(found);
            }
        }
        let started = Instant::now();
        while started.elapsed() < DEFAULT_TIMEOUT {
            let event = self.receive_event()?;
            if let Some(found) = wanted(&event) {
                return Ok(found);
            }
            self.stash.push_back(event);
        }
        // The target is alive and pings; what is waited for does not come all the same.
        Err(WireError::TimedOut.into())
    }

    /// Sends a command and waits for its end.
    pub fn execute(&mut self, command: Command) -> Result<Completion, SessionError> {
        let tag = self.submit(command)?;
        self.wait_for(|event| match event {
            Event::Completion(completion) if completion.task_tag == tag => Some(completion.clone()),
            _ => None,
        })
    }

    /// Executes a command and repeats it while it is answered by a unit attention (SAM-5, 5.14). Those that a new nexus
    /// and a reset of the unit leave come one by one.
    pub fn execute_past_attentions(&mut self, command: Command) -> Result<Completion, SessionError> {
        for _ in 0..8 {
            let completion = self.execute(command.clone())?;
            if completion.sense().is_none_or(|sense| sense.key != 6) {
                return Ok(completion);
            }
        }
        protocol("unit attentions without end")
    }

    /// Sends a ping, for immediate delivery; returns its tag.
    pub fn send_ping(&mut self, data: &[u8]) -> Result<u32, SessionError> {
        let tag = self.new_tag();
        let bhs = Bhs::new(request::NOP_OUT | IMMEDIATE, FINAL).with_task_tag(tag).with_u32(20, NO_TAG);
        self.send_numbered(bhs, data)?;
        Ok(tag)
    }

    /// Pings and returns what comes back.
    pub fn ping(&mut self, data: &[u8]) -> Result<Vec<u8>, SessionError> {
        let tag = self.send_ping(data)?;
        self.wait_for(|event| match event {
            Event::Pong { task_tag, data } if *task_tag == tag => Some(data.clone()),
            _ => None,
        })
    }

    /// Sends a task management function (RFC 7143, 11.5.1) for immediate delivery and waits for its answer.
    pub fn manage_tasks(&mut self, function: u8, lun: u16, referenced: Option<u32>) -> Result<u8, SessionError> {
        let tag = self.new_tag();
        let bhs = Bhs::new(request::TASK_MANAGEMENT | IMMEDIATE, FINAL | function)
            .with_lun(lun)
            .with_task_tag(tag)
            .with_u32(20, referenced.unwrap_or(NO_TAG))
            .with_u32(32, self.cmd_sn);
        self.send_numbered(bhs, &[])?;
        self.wait_for(|event| match event {
            Event::TaskManagement { task_tag, response } if *task_tag == tag => Some(*response),
            _ => None,
        })
    }

    /// No status is expected of this task any more: it was aborted.
    pub fn forget(&mut self, tag: u32) {
        self.tasks.remove(&tag);
    }

    /// SendTargets with this value (RFC 7143, appendix C); follows continued answers.
    pub fn send_targets(&mut self, value: &str) -> Result<Vec<(String, String)>, SessionError> {
        let text = text::encode(&[("SendTargets", value)]);
        let tag = self.new_tag();
        let mut transfer_tag = NO_TAG;
        let mut request = text.as_slice();
        let mut answer = Vec::new();
        loop {
            let bhs = Bhs::new(request::TEXT, FINAL).with_task_tag(tag).with_u32(20, transfer_tag);
            self.send_numbered(bhs, request)?;
            self.advance_cmd_sn();
            let pdu = self.wait_for(|event| match event {
                Event::Text(pdu) if pdu.bhs.task_tag() == tag => Some(pdu.clone()),
                _ => None,
            })?;
            answer.extend_from_slice(&pdu.data);
            let (is_final, continues) = (pdu.bhs.flags() & FINAL != 0, pdu.bhs.flags() & 0x40 != 0);
            transfer_tag = pdu.bhs.transfer_tag();
            if is_final == (transfer_tag != NO_TAG) || is_final && continues {
                return protocol(format!("text response with flags {:02x}, tag {transfer_tag:x}", pdu.bhs.flags()));
            }
            if is_final {
                return text::decode(&answer).or_else(|error| protocol(error.to_string()));
            }
            request = &[];
        }
    }

    /// Logs out and waits for the target to close; returns the response code (0: closed successfully).
    pub fn log_out(mut self) -> Result<u8, SessionError> {
        let tag = self.new_tag();
        let bhs = Bhs::new(request::LOGOUT | IMMEDIATE, FINAL).with_task_tag(tag);
        self.send_numbered(bhs, &[])?;
        let response = self.wait_for(|event| match event {
            Event::Logout { response } => Some(*response),
            _ => None,
        })?;
        self.wire.receive_until_closed(Duration::from_secs(10))?;
        Ok(response)
    }

    /// Sends a PDU with CmdSN and ExpStatSN filled in.
    pub fn send_numbered(&mut self, bhs: Bhs, data: &[u8]) -> Result<(), SessionError> {
        let bhs = bhs.with_u32(24, self.cmd_sn).with_u32(28, self.exp_stat_sn);
        Ok(self.wire.send(bhs, &[], data)?)
    }

    fn receive_event(&mut self) -> Result<Event, SessionError> {
        loop {
            let pdu = self.wire.receive()?;
            if let Some(event) = self.digest(pdu)? {
                return Ok(event);
            }
        }
    }

    /// Like [`Session::digest`], and reads on where the PDU alone was no event.
    fn take(&mut self, pdu: Pdu) -> Result<Event, SessionError> {
        match self.digest(pdu)? {
            Some(event) => Ok(event),
            None => self.receive_event(),
        }
    }

    fn digest(&mut self, pdu: Pdu) -> Result<Option<Event>, SessionError> {
        if pdu.data.len() > self.negotiated.max_recv_len_bytes {
            return protocol(format!("a data segment of {} bytes", pdu.data.len()));
        }
        self.check_numbers(&pdu)?;
        let bhs = pdu.bhs;
        Ok(Some(match bhs.opcode() {
            response::SCSI => Event::Completion(self.scsi_response(&pdu)?),
            response::DATA_IN => match self.data_in(pdu)? {
                Some(completion) => Event::Completion(completion),
                None => return Ok(None),
            },
            response::R2T => {
                let r2t = self.ready_to_transfer(&bhs)?;
                if !self.holds_r2t {
                    self.answer(r2t)?;
                    return Ok(None);
                }
                Event::ReadyToTransfer(r2t)
            }
            response::NOP_IN if bhs.task_tag() != NO_TAG => Event::Pong { task_tag: bhs.task_tag(), data: pdu.data },
            response::NOP_IN => {
                if bhs.transfer_tag() != NO_TAG {
                    let answer = Bhs::new(request::NOP_OUT | IMMEDIATE, FINAL)
                        .with_bytes(8, &bhs.0[8..16])
                        .with_task_tag(NO_TAG)
                        .with_u32(20, bhs.transfer_tag());
                    self.send_numbered(answer, &[])?;
                }
                Event::Pinged
            }
            response::TASK_MANAGEMENT => Event::TaskManagement { task_tag: bhs.task_tag(), response: bhs.0[2] },
            response::TEXT => Event::Text(pdu),
            response::LOGOUT => Event::Logout { response: bhs.0[2] },
            response::ASYNC => {
                Event::Async { event: bhs.0[36], parameters: [bhs.u16_at(38), bhs.u16_at(40), bhs.u16_at(42)] }
            }
            response::REJECT => Event::Reject { reason: bhs.0[2], header: pdu.data },
            other => return protocol(format!("opcode {other:02x}")),
        }))
    }

    /// StatSN, ExpCmdSN and MaxCmdSN (RFC 7143, 4.2.2).
    fn check_numbers(&mut self, pdu: &Pdu) -> Result<(), SessionError> {
        let bhs = &pdu.bhs;
        let is_without_stat_sn = bhs.opcode() == response::DATA_IN && bhs.flags() & 0x01 == 0;
        if !is_without_stat_sn {
            let stat_sn = bhs.u32_at(24);
            if stat_sn != self.exp_stat_sn {
                return protocol(format!("StatSN {stat_sn}, not {}: {bhs:02x?}", self.exp_stat_sn));
            }
            // An R2T and a ping of the target carry the next StatSN and do not use it up (11.8.3, 11.19.2).
            let uses_it =
                bhs.opcode() != response::R2T && !(bhs.opcode() == response::NOP_IN && bhs.task_tag() == NO_TAG);
            if uses_it {
                self.exp_stat_sn = stat_sn.wrapping_add(1);
            }
        }
        let (expected, max) = (bhs.u32_at(28), bhs.u32_at(32));
        let ahead = self.cmd_sn.wrapping_sub(expected);
        if ahead > u32::MAX / 2 {
            return protocol(format!("ExpCmdSN {expected} for a command that was not sent"));
        }
        if max.wrapping_sub(self.max_cmd_sn) <= u32::MAX / 2 {
            self.max_cmd_sn = max;
        } else {
            return protocol(format!("MaxCmdSN goes back from {} to {max}", self.max_cmd_sn));
        }
        Ok(())
    }

    fn scsi_response(&mut self, pdu: &Pdu) -> Result<Completion, SessionError> {
        let bhs = &pdu.bhs;
        let Some(task) = self.tasks.remove(&bhs.task_tag()) else {
            return protocol(format!("status for the unknown task {:x}", bhs.task_tag()));
        };
        if bhs.0[2] != 0 {
            return protocol(format!("SCSI response {:02x}", bhs.0[2]));
        }
        let exp_data_sn = bhs.u32_at(36);
        if exp_data_sn != 0 && exp_data_sn != task.data_ins + task.r2ts {
            return protocol(format!("ExpDataSN {exp_data_sn}, sent {} and {}", task.data_ins, task.r2ts));
        }
        if task.burst_len_bytes != 0 {
            return protocol("the last Data-In has no F bit");
        }
        let sense = match pdu.data.as_slice() {
            [] => Vec::new(),
            [high, low, rest @ ..] => {
                let len_bytes = usize::from(u16::from_be_bytes([*high, *low]));
                let Some(sense) = rest.get(..len_bytes) else {
                    return protocol("SenseLength beyond the data segment");
                };
                sense.to_vec()
            }
            [_] => return protocol("a data segment of one byte"),
        };
        Ok(Completion {
            task_tag: bhs.task_tag(),
            status: bhs.0[3],
            sense,
            residual: Residual::read(bhs),
            r2ts: task.r2ts,
            data_ins: task.data_ins,
            data_in: task.data_in,
        })
    }

    fn data_in(&mut self, pdu: Pdu) -> Result<Option<Completion>, SessionError> {
        let (bhs, tag) = (pdu.bhs, pdu.bhs.task_tag());
        let Some(task) = self.tasks.get_mut(&tag) else {
            return protocol(format!("Data-In for the unknown task {tag:x}"));
        };
        let (data_sn, offset) = (bhs.u32_at(36), bhs.u32_at(40) as usize);
        if data_sn != task.data_ins + task.r2ts || offset != task.data_in.len() {
            return protocol(format!(
                "Data-In {data_sn} at {offset}, expected {} at {}",
                task.data_ins,
                task.data_in.len()
            ));
        }
        task.data_ins += 1;
        task.data_in.extend_from_slice(&pdu.data);
        if task.data_in.len() > task.command.data_in_len_bytes {
            return protocol("more data than expected");
        }
        task.burst_len_bytes += pdu.data.len();
        if task.burst_len_bytes > self.negotiated.max_burst_len_bytes {
            return protocol(format!("a burst of {} bytes", task.burst_len_bytes));
        }
        let (is_final, has_status) = (bhs.flags() & FINAL != 0, bhs.flags() & 0x01 != 0);
        if is_final {
            task.burst_len_bytes = 0;
        }
        if !has_status {
            return Ok(None);
        }
        if !is_final || bhs.0[3] == status::CHECK_CONDITION {
            return protocol("status in a Data-In that must not have it");
        }
        let task = self.tasks.remove(&tag);
        Ok(task.map(|task| Completion {
            task_tag: tag,
            status: bhs.0[3],
            sense: Vec::new(),
            residual: Residual::read(&bhs),
            r2ts: task.r2ts,
            data_ins: task.data_ins,
            data_in: task.data_in,
        }))
    }

    fn ready_to_transfer(&mut self, bhs: &Bhs) -> Result<ReadyToTransfer, SessionError> {
        let tag = bhs.task_tag();
        let Some(task) = self.tasks.get_mut(&tag) else {
            return protocol(format!("R2T for the unknown task {tag:x}"));
        };
        let r2t = ReadyToTransfer {
            task_tag: tag,
            transfer_tag: bhs.transfer_tag(),
            offset: bhs.u32_at(40) as usize,
            len_bytes: bhs.u32_at(44) as usize,
        };
        let is_inside = r2t.offset + r2t.len_bytes <= task.command.data_out.len();
        if bhs.u32_at(36) != task.r2ts || r2t.transfer_tag == NO_TAG || r2t.len_bytes == 0 || !is_inside {
            return protocol(format!("R2T {r2t:?} with R2TSN {}", bhs.u32_at(36)));
        }
        if r2t.len_bytes > self.negotiated.max_burst_len_bytes {
            return protocol(format!("R2T for {} bytes", r2t.len_bytes));
        }
        task.r2ts += 1;
        Ok(r2t)
    }
}

#[cfg(test)]
mod tests;
