//! Bytes in, bytes out: decoder, login, session and write queue together, against a hostile initiator and a shell
//! that answers in any order.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;
use proptest::prelude::*;
use zerocopy::byteorder::big_endian::{U16, U32};

use super::*;
use crate::environment::{Access, Refusal, TargetRecord};
use crate::frame::{Decoder, WriteQueue};
use crate::login::SessionIdentity;
use crate::name::IscsiName;
use crate::output::{TaskId, TaskManagementOutcome, TaskResult};
use crate::pdu::*;
use crate::testing::{NumberCheck, pieces};

const CMD_SN: u32 = 0xffff_fff0;
const STAT_SN: u32 = 0x7fff_fff8;
const WINDOW: u16 = 16;
const IMMEDIATE_COMMANDS: u16 = 4;

/// Everybody may log in to everything, without CHAP.
struct Open;

impl Environment for Open {
    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }

    fn target_access(&self, _: &IscsiName, _: &IscsiName) -> Result<Access, Refusal> {
        Ok(Access { portal_group_tag: 1, ..Access::default() })
    }

    fn discovery_access(&self, _: &IscsiName) -> Result<Access, Refusal> {
        Ok(Access::default())
    }

    fn targets(&self, _: &IscsiName) -> Vec<TargetRecord> {
        let name = IscsiName::parse("iqn.2026-11.io.holdfast:disk").unwrap();
        vec![TargetRecord { name, addresses: vec![("192.0.2.1:3260".to_owned(), 1)] }]
    }

    fn assign_tsih(&self, _: &SessionIdentity, _: u16, _: u16) -> Result<u16, Refusal> {
        Ok(1)
    }
}

fn config() -> ConnectionConfig {
    let limits = SessionLimits {
        command_window: WINDOW,
        max_immediate_commands: IMMEDIATE_COMMANDS,
        ..SessionLimits::default()
    };
    ConnectionConfig { limits, ..ConnectionConfig::default() }
}

fn login_request(text: &[u8]) -> OutPdu {
    let header = LoginRequestHeader {
        opcode: Opcode::LoginRequest as u8 | 0x40,
        // T, from the operational stage to the full feature phase.
        flags: 0x87,
        version_max: 0,
        version_min: 0,
        total_ahs_length: 0,
        data_segment_length: [0; 3],
        isid: [0x80, 0, 0, 1, 0, 0],
        tsih: U16::ZERO,
        initiator_task_tag: U32::ZERO,
        cid: U16::new(1),
        reserved: U16::ZERO,
        cmd_sn: U32::new(CMD_SN),
        exp_stat_sn: U32::new(STAT_SN),
        reserved_end: [0; 16],
    };
    OutPdu::new(&header, Bytes::copy_from_slice(text))
}

fn login_text(target: bool, digests: &str) -> Vec<u8> {
    let mut text = format!(
        "InitiatorName=iqn.2026-11.io.holdfast:host\0HeaderDigest={digests}\0DataDigest={digests}\0\
         InitialR2T=No\0ImmediateData=Yes\0MaxOutstandingR2T=3\0FirstBurstLength=4096\0MaxBurstLength=8192\0"
    );
    text += if target {
        "SessionType=Normal\0TargetName=iqn.2026-11.io.holdfast:disk\0"
    } else {
        "SessionType=Discovery\0"
    };
    text.into_bytes()
}

/// A connection with the byte streams of both directions; what the target sends is read back and checked.
struct Wire {
    connection: Connection,
    decoder: Decoder,
    queue: WriteQueue,
    reader: Decoder,
    sender: WriteQueue,
    out: Output,
    actions: VecDeque<Action>,
    check: NumberCheck,
    now: Duration,
    closed: bool,
}

impl Wire {
    fn new() -> Self {
        let now = Duration::from_secs(1);
        Self {
            connection: Connection::new(config(), now),
            decoder: Decoder::new(LOGIN_DATA_SEGMENT_BYTES),
            queue: WriteQueue::new(),
            reader: Decoder::new(1 << 20),
            sender: WriteQueue::new(),
            out: Output::default(),
            actions: VecDeque::new(),
            check: NumberCheck::new(STAT_SN, CMD_SN, CMD_SN.wrapping_sub(1)),
            now,
            closed: false,
        }
    }

    fn logged_in(target: bool, digests: &str) -> Self {
        let mut wire = Self::new();
        wire.send(login_request(&login_text(target, digests)));
        let pdus = wire.answers();
        assert_eq!(pdus.len(), 1, "{pdus:?}");
        assert_eq!(pdus[0].bhs.opcode(), Some(Opcode::LoginResponse));
        assert_eq!(pdus[0].bhs.view::<LoginResponseHeader>().status_class, 0);
        assert!(!wire.closed);
        // The initiator changes its digests with the target.
        wire.reader.set_digests(digests == "CRC32C", digests == "CRC32C");
        wire.sender.set_digests(digests == "CRC32C", digests == "CRC32C");
        wire
    }

    fn session(&mut self) -> &mut Session {
        self.connection.session().unwrap()
    }

    fn send(&mut self, pdu: OutPdu) {
        self.sender.push(pdu);
        let bytes = all_bytes(&mut self.sender);
        self.send_bytes(&bytes);
    }

    fn send_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.closed {
            let buffer = self.decoder.buffer();
            let spare = buffer.capacity() - buffer.len();
            assert!(spare > 0);
            let (now, later) = bytes.split_at(spare.min(bytes.len()));
            buffer.extend_from_slice(now);
            bytes = later;
            loop {
                match self.decoder.decode() {
                    Ok(Some(pdu)) => {
                        self.connection.receive(pdu, self.now, &Open, &mut self.out);
                        self.carry_out();
                    }
                    Ok(None) => break,
                    Err(_) => {
                        self.closed = true;
                        break;
                    }
                }
            }
        }
    }

    /// What the shell does at once; the rest is kept for the test.
    fn carry_out(&mut self) {
        // One PDU makes a bounded number of answers. Those held behind a gap come together.
        assert!(self.out.pdus.len() <= 64, "{} answers to one PDU", self.out.pdus.len());
        for pdu in self.out.pdus.drain(..) {
            self.queue.push(pdu);
        }
        for action in self.out.actions.drain(..) {
            match action {
                Action::Established(established) => {
                    let parameters = &established.parameters;
                    self.decoder.set_digests(parameters.header_digest, parameters.data_digest);
                    self.decoder.set_max_data_segment(parameters.max_recv_data_segment_length);
                    self.queue.set_digests(parameters.header_digest, parameters.data_digest);
                }
                Action::Close(_) => {
                    assert!(!self.closed, "closed twice");
                    self.closed = true;
                }
                other => self.actions.push_back(other),
            }
        }
    }

    fn answers(&mut self) -> Vec<Pdu> {
        let bytes = all_bytes(&mut self.queue);
        let mut pdus = Vec::new();
        for chunk in bytes.chunks(8192) {
            self.reader.buffer().extend_from_slice(chunk);
            while let Some(pdu) = self.reader.decode().unwrap() {
                assert!(pdu.data_digest_ok);
                self.check.pdu(&OutPdu { bhs: pdu.bhs, data: pdu.data.clone(), more: Vec::new() });
                pdus.push(pdu);
            }
        }
        assert!(!self.reader.is_mid_pdu());
        pdus
    }
}

fn all_bytes(queue: &mut WriteQueue) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !queue.is_empty() {
        let mut slices = [IoSlice::new(&[]); 8];
        let filled = queue.io_slices(&mut slices);
        let count = slices[..filled].iter().map(|slice| slice.len()).sum();
        slices[..filled].iter().for_each(|slice| bytes.extend_from_slice(slice));
        queue.advance(count);
    }
    bytes
}

fn nop_out(tag: u32, cmd_sn: u32, data: &[u8]) -> OutPdu {
    let mut bhs = Bhs([0; BHS_BYTES]);
    bhs.0[1] = 0x80;
    bhs.0[16..20].copy_from_slice(&tag.to_be_bytes());
    bhs.0[20..24].copy_from_slice(&RESERVED_TAG.to_be_bytes());
    bhs.0[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
    OutPdu { bhs, data: Bytes::copy_from_slice(data), more: Vec::new() }
}

#[test]
fn connection_when_digests_are_negotiated_then_both_ends_use_them_from_the_next_pdu_on() {
    let mut wire = Wire::logged_in(true, "CRC32C");
    assert!(wire.session().parameters().header_digest && wire.session().parameters().data_digest);
    wire.send(nop_out(9, CMD_SN, b"ping"));
    let pdus = wire.answers();
    assert_eq!(pdus.len(), 1);
    assert_eq!(pdus[0].data, "ping");
    assert_eq!(pdus[0].bhs.view::<NopInHeader>().stat_sn.get(), STAT_SN.wrapping_add(1));
}

#[test]
fn connection_when_a_header_digest_is_wrong_then_ends() {
    let mut wire = Wire::logged_in(true, "CRC32C");
    wire.sender.push(nop_out(9, CMD_SN, &[]));
    let mut bytes = all_bytes(&mut wire.sender);
    bytes[20] ^= 1;
    wire.send_bytes(&bytes);
    assert!(wire.closed);
    assert!(wire.answers().is_empty());
}

#[test]
fn connection_when_it_is_a_discovery_session_then_sends_targets() {
    let mut wire = Wire::logged_in(false, "None");
    let mut request = nop_out(9, CMD_SN, b"SendTargets=All\0");
    request.bhs.0[0] = Opcode::TextRequest as u8;
    wire.send(request);
    let pdus = wire.answers();
    assert_eq!(pdus[0].bhs.opcode(), Some(Opcode::TextResponse));
    let text = String::from_utf8(pdus[0].data.to_vec()).unwrap();
    assert!(text.contains("TargetName=iqn.2026-11.io.holdfast:disk"), "{text}");
}

#[test]
fn connection_when_the_login_fails_then_answers_and_closes() {
    let mut wire = Wire::new();
    wire.send(login_request(b"InitiatorName=nonsense\0"));
    assert!(wire.closed);
    let pdus = wire.answers();
    assert_eq!(pdus.len(), 1);
    assert_ne!(pdus[0].bhs.view::<LoginResponseHeader>().status_class, 0);
    assert!(wire.connection.session().is_none());
    assert_eq!(wire.connection.next_deadline(), Duration::MAX);
}

#[test]
fn connection_when_the_login_takes_too_long_then_closes() {
    let mut wire = Wire::new();
    let deadline = wire.connection.next_deadline();
    assert_eq!(deadline, wire.now + config().login_timeout);
    wire.connection.tick(deadline - Duration::from_millis(1), &mut wire.out);
    assert!(wire.out.is_empty());
    wire.connection.tick(deadline, &mut wire.out);
    assert!(matches!(wire.out.actions.pop_front(), Some(Action::Close(CloseReason::LoginTimeout))));
    wire.connection.tick(deadline, &mut wire.out);
    assert!(wire.out.is_empty());
}

/// A request that is nearly right: fields are drawn from few values, so that they meet.
#[derive(Clone, Debug)]
struct Request {
    opcode: u8,
    flags: u8,
    tag: u8,
    transfer_tag: u32,
    /// CmdSN as steps from the next one; of Data-Out, DataSN.
    number: u32,
    offset: u32,
    expected_bytes: u32,
    data_bytes: usize,
    damage: Option<(usize, u8)>,
}

#[derive(Clone, Debug)]
enum Step {
    Request(Request),
    /// The shell answers the nth task it has.
    TransferOut(usize, u32),
    Complete(usize, u8, usize),
    CompleteManagement,
    AbortFromOtherNexus,
    Window(u16),
    Tick(u16),
    RequestLogout,
}

fn any_request() -> impl Strategy<Value = Request> {
    let opcode = prop_oneof![
        30 => Just(0x01u8), 10 => Just(0x41u8), 30 => Just(0x05u8), 5 => Just(0x00u8), 5 => Just(0x40u8),
        6 => Just(0x42u8), 4 => Just(0x02u8), 2 => Just(0x04u8), 1 => Just(0x46u8), 1 => Just(0x10u8), 1 => any::<u8>()
    ];
    let flags =
        prop_oneof![Just(0xa0u8), Just(0x20u8), Just(0xc0u8), Just(0x80u8), Just(0x00u8), (0x80..0x90u8), any::<u8>()];
    let transfer_tag = prop_oneof![4 => Just(RESERVED_TAG), 4 => 0..24u32, 1 => any::<u32>()];
    let number = prop_oneof![8 => Just(0u32), 2 => 0..4u32, 1 => 0..20u32, 1 => any::<u32>()];
    let offset = prop_oneof![4 => Just(0u32), 4 => (0..12u32).prop_map(|n| n * 1024), 1 => any::<u32>()];
    let expected_bytes = prop_oneof![Just(0u32), Just(1024), Just(4096), Just(20_000), any::<u32>()];
    let data_bytes = prop_oneof![4 => Just(0usize), 2 => Just(1024), 1 => 0..5000usize, 1 => 20_000..20_002usize];
    let damage = proptest::option::weighted(0.03, (any::<usize>(), any::<u8>()));
    (opcode, flags, 0..12u8, transfer_tag, number, offset, expected_bytes, data_bytes, damage).prop_map(
        |(opcode, flags, tag, transfer_tag, number, offset, expected_bytes, data_bytes, damage)| Request {
            opcode,
            flags,
            tag,
            transfer_tag,
            number,
            offset,
            expected_bytes,
            data_bytes,
            damage,
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => any_request().prop_map(Step::Request),
        12 => (any::<usize>(), prop_oneof![Just(1024u32), Just(4096), Just(20_000)])
            .prop_map(|(nth, len)| Step::TransferOut(nth, len)),
        16 => (any::<usize>(), prop_oneof![Just(0u8), Just(2u8)], 0..20_000usize)
            .prop_map(|(nth, status, len)| Step::Complete(nth, status, len)),
        3 => Just(Step::CompleteManagement),
        1 => Just(Step::AbortFromOtherNexus),
        1 => (0..=WINDOW).prop_map(Step::Window),
        2 => (0..8000u16).prop_map(Step::Tick),
        1 => Just(Step::RequestLogout),
    ]
}

/// A shell that keeps account of what it owes.
#[derive(Default)]
struct Shell {
    tasks: Vec<TaskId>,
    asked: Vec<TaskId>,
    delivered: Vec<TaskId>,
    abandoned: Vec<TaskId>,
    management: Vec<u64>,
    aborts: Vec<u64>,
}

impl Shell {
    fn take(&mut self, wire: &mut Wire) {
        while let Some(action) = wire.actions.pop_front() {
            match action {
                Action::Command(command) => {
                    assert!(!self.tasks.contains(&command.task));
                    self.tasks.push(command.task);
                }
                Action::DataOut { task, data } => {
                    assert!(self.tasks.contains(&task) && self.asked.contains(&task));
                    assert!(!self.delivered.contains(&task), "data twice");
                    assert!(!self.abandoned.contains(&task), "data of an abandoned task");
                    assert!(data.iter().map(Bytes::len).sum::<usize>() <= 20_000);
                    self.delivered.push(task);
                }
                Action::Abandon(tasks) => {
                    for task in tasks {
                        assert!(self.tasks.contains(&task), "abandons what is not there");
                        assert!(!self.abandoned.contains(&task), "abandoned twice");
                        self.abandoned.push(task);
                    }
                }
                Action::TaskManagement(management) => self.management.push(management.token),
                Action::AbortsSettled(token) => self.aborts.retain(|abort| *abort != token),
                Action::Established(_) | Action::Close(_) => unreachable!(),
            }
        }
    }
}

fn request_bytes(request: &Request, next_cmd_sn: u32, digests: &mut WriteQueue) -> Vec<u8> {
    let mut bhs = Bhs([0; BHS_BYTES]);
    bhs.0[0] = request.opcode;
    bhs.0[1] = request.flags;
    bhs.0[9] = request.tag & 1;
    bhs.0[16..20].copy_from_slice(&u32::from(request.tag).to_be_bytes());
    bhs.0[20..24].copy_from_slice(&request.expected_bytes.to_be_bytes());
    bhs.0[24..28].copy_from_slice(&next_cmd_sn.wrapping_add(request.number).to_be_bytes());
    if request.opcode & 0x3f == Opcode::DataOut as u8 {
        bhs.0[20..24].copy_from_slice(&request.transfer_tag.to_be_bytes());
        bhs.0[36..40].copy_from_slice(&request.number.to_be_bytes());
        bhs.0[40..44].copy_from_slice(&request.offset.to_be_bytes());
    } else if request.opcode & 0x3f == Opcode::TaskManagementRequest as u8 {
        bhs.0[1] = 0x80 | request.flags & 0x0f;
        bhs.0[16..20].copy_from_slice(&(0x100 + u32::from(request.tag)).to_be_bytes());
        bhs.0[20..24].copy_from_slice(&u32::from(request.tag / 2).to_be_bytes());
        bhs.0[32..36].copy_from_slice(&next_cmd_sn.wrapping_sub(request.offset / 1024).to_be_bytes());
    } else if request.opcode & 0x3f != Opcode::ScsiCommand as u8 {
        bhs.0[20..24].copy_from_slice(&request.transfer_tag.to_be_bytes());
    }
    digests.push(OutPdu { bhs, data: Bytes::from(vec![0x55; request.data_bytes]), more: Vec::new() });
    let mut bytes = all_bytes(digests);
    if let Some((at, xor)) = request.damage {
        // Not the lengths: a stream out of step tells nothing more.
        let at = at % bytes.len();
        if !(4..8).contains(&at) {
            bytes[at] ^= xor;
        }
    }
    bytes
}

fn run(steps: &[Step], target: bool, digests: &str) {
    let mut wire = Wire::logged_in(target, digests);
    let mut shell = Shell::default();
    let mut token = 0;
    for step in steps {
        if wire.closed {
            break;
        }
        match step {
            Step::Request(request) => {
                let cmd_sn = wire.check.exp_cmd_sn();
                let bytes = request_bytes(request, cmd_sn, &mut wire.sender);
                wire.send_bytes(&bytes);
            }
            Step::TransferOut(nth, len) if !shell.tasks.is_empty() => {
                let task = shell.tasks[nth % shell.tasks.len()];
                shell.asked.push(task);
                let Wire { connection, out, .. } = &mut wire;
                let session = connection.session().unwrap();
                assert!(session.missing_bytes(task, u64::from(*len)) <= u64::from(*len));
                session.transfer_out(task, u64::from(*len), out);
            }
            Step::Complete(nth, status, len) if !shell.tasks.is_empty() => {
                let task = shell.tasks.remove(nth % shell.tasks.len());
                let result = TaskResult {
                    status: *status,
                    data_in: pieces([vec![1; *len]]),
                    data_out_wanted: 4096,
                    ..TaskResult::default()
                };
                let Wire { connection, out, .. } = &mut wire;
                connection.session().unwrap().complete(task, result, out);
            }
            Step::CompleteManagement => {
                if let Some(token) = shell.management.pop() {
                    let Wire { connection, out, .. } = &mut wire;
                    let outcome = TaskManagementOutcome::Complete;
                    connection.session().unwrap().complete_task_management(token, outcome, out);
                }
            }
            Step::AbortFromOtherNexus => {
                token += 1;
                shell.aborts.push(token);
                let Wire { connection, out, .. } = &mut wire;
                connection.session().unwrap().abort_from_other_nexus(Some([0; 8]), token, out);
            }
            Step::Window(window) => {
                let Wire { connection, out, .. } = &mut wire;
                connection.session().unwrap().set_command_window(*window, out);
            }
            Step::Tick(millis) => {
                wire.now += Duration::from_millis(u64::from(*millis));
                wire.connection.tick(wire.now, &mut wire.out);
            }
            Step::RequestLogout => {
                let Wire { connection, out, .. } = &mut wire;
                connection.session().unwrap().request_logout(10, out);
            }
            Step::TransferOut(..) | Step::Complete(..) => {}
        }
        wire.carry_out();
        shell.take(&mut wire);
        wire.answers();
        let session = wire.connection.session().unwrap();
        let most = usize::from(WINDOW) + usize::from(IMMEDIATE_COMMANDS);
        assert!(session.unsettled_tasks() <= most, "{} tasks", session.unsettled_tasks());
        assert_eq!(session.unsettled_tasks(), shell.tasks.len(), "what the shell owes");
        assert!(session.buffered_bytes() <= most * (4096 + 20_000));
    }

    // The end of the connection: everything is abandoned, settled, and nothing more is said.
    let Wire { connection, out, .. } = &mut wire;
    let session = connection.session().unwrap();
    session.abandon_all(out);
    assert!(out.pdus.is_empty());
    wire.closed = false;
    wire.carry_out();
    shell.take(&mut wire);
    assert_eq!(wire.session().buffered_bytes(), 0);
    for task in std::mem::take(&mut shell.tasks) {
        assert!(shell.abandoned.contains(&task), "not told of the end");
        let Wire { connection, out, .. } = &mut wire;
        connection.session().unwrap().complete(task, TaskResult::default(), out);
        assert!(out.pdus.is_empty());
        wire.carry_out();
        shell.take(&mut wire);
    }
    assert_eq!(wire.session().unsettled_tasks(), 0);
    assert!(shell.aborts.is_empty(), "aborts of other nexuses that never settled");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn connection_when_the_initiator_is_hostile_then_the_rules_hold(
        steps in prop::collection::vec(any_step(), 1..150),
        digests in prop_oneof![Just("None"), Just("CRC32C")],
        target in prop_oneof![9 => Just(true), 1 => Just(false)],
    ) {
        run(&steps, target, digests);
    }

    #[test]
    fn connection_when_given_random_bytes_then_does_not_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        logged_in: bool,
    ) {
        let mut wire = if logged_in { Wire::logged_in(true, "None") } else { Wire::new() };
        wire.send_bytes(&bytes);
        prop_assert!(wire.queue.len_bytes() <= 64 * 1024 + 2 * bytes.len());
    }

    /// Random headers with lengths that fit, so that what is behind the decoder sees them.
    #[test]
    fn connection_when_given_random_headers_then_does_not_panic(
        headers in prop::collection::vec((any::<[u8; 24]>(), any::<[u8; 24]>(), 0..200usize), 0..60),
        logged_in: bool,
    ) {
        let mut wire = if logged_in { Wire::logged_in(true, "None") } else { Wire::new() };
        for (front, back, data_bytes) in headers {
            let mut bhs = Bhs([0; BHS_BYTES]);
            bhs.0[..24].copy_from_slice(&front);
            bhs.0[24..].copy_from_slice(&back);
            wire.send(OutPdu { bhs, data: Bytes::from(vec![b'='; data_bytes]), more: Vec::new() });
        }
        prop_assert!(wire.queue.len_bytes() <= 1 << 20);
    }
}
