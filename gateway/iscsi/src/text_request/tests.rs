use proptest::prelude::*;

use super::*;
use crate::environment::testing::{TARGET, World};

const NORMAL: bool = true;
const DISCOVERY: bool = false;

fn identity(normal: bool) -> SessionIdentity {
    SessionIdentity {
        initiator: "iqn.2001-04.com.example:host".parse().unwrap(),
        initiator_alias: None,
        isid: [0x80, 0, 0, 0, 0, 9],
        target: normal.then(|| TARGET.parse().unwrap()),
    }
}

fn header(flags: u8, target_transfer_tag: u32) -> TextRequestHeader {
    TextRequestHeader {
        opcode: 0x04,
        flags,
        reserved: [0; 2],
        total_ahs_length: 0,
        data_segment_length: [0; 3],
        lun: [0; 8],
        initiator_task_tag: 0x77.into(),
        target_transfer_tag: target_transfer_tag.into(),
        cmd_sn: 1.into(),
        exp_stat_sn: 1.into(),
        reserved_end: [0; 16],
    }
}

/// One connection's exchanges with the world.
struct Connection {
    exchange: TextExchange,
    parameters: Parameters,
    identity: SessionIdentity,
    world: World,
}

impl Connection {
    fn new(normal: bool) -> Self {
        Self {
            exchange: TextExchange::new(),
            parameters: Parameters::default(),
            identity: identity(normal),
            world: World::default(),
        }
    }

    fn send(&mut self, flags: u8, tag: u32, text: &str) -> TextOutcome {
        let data = Bytes::copy_from_slice(text.as_bytes());
        let Self { exchange, parameters, identity, world } = self;
        exchange.receive(&header(flags, tag), &data, parameters, identity, world)
    }

    /// Sends a whole text of a fresh exchange and expects a whole answer.
    fn ask(&mut self, text: &str) -> String {
        match self.send(FINAL, RESERVED_TAG, text) {
            TextOutcome::Respond { final_bit: true, continue_bit: false, target_transfer_tag: RESERVED_TAG, data } => {
                String::from_utf8(data.to_vec()).unwrap()
            }
            other => panic!("{other:?}"),
        }
    }
}

fn record(name: &str, addresses: &[(&str, u16)]) -> TargetRecord {
    TargetRecord {
        name: name.parse().unwrap(),
        addresses: addresses.iter().map(|&(address, tag)| (address.to_owned(), tag)).collect(),
    }
}

fn two_targets() -> Vec<TargetRecord> {
    vec![
        record(TARGET, &[("192.0.2.1:3260", 1), ("[2001:db8::1]:3260", 1), ("gw2.example.com:3260", 2)]),
        record("iqn.2026-11.io.holdfast:disk1", &[("192.0.2.1:3260", 1)]),
    ]
}

const FIRST: &str = "TargetName=iqn.2026-11.io.holdfast:disk0\0TargetAddress=192.0.2.1:3260,1\0\
                     TargetAddress=[2001:db8::1]:3260,1\0TargetAddress=gw2.example.com:3260,2\0";
const SECOND: &str = "TargetName=iqn.2026-11.io.holdfast:disk1\0TargetAddress=192.0.2.1:3260,1\0";

#[test]
fn send_targets_on_discovery_then_all_or_the_named_one() {
    let mut connection = Connection::new(DISCOVERY);
    connection.world.targets = two_targets();
    assert_eq!(connection.ask("SendTargets=All\0"), format!("{FIRST}{SECOND}"));
    assert_eq!(connection.ask("SendTargets=iqn.2026-11.io.holdfast:disk1\0"), SECOND);
    assert_eq!(connection.ask("SendTargets=IQN.2026-11.IO.HOLDFAST:disk1\0"), SECOND);
    assert_eq!(connection.ask("SendTargets=iqn.2026-11.io.holdfast:disk2\0"), "");
    for bad in ["", "all", "disk0"] {
        assert_eq!(connection.ask(&format!("SendTargets={bad}\0")), "SendTargets=Reject\0", "{bad}");
    }
    connection.world.targets.clear();
    assert_eq!(connection.ask("SendTargets=All\0"), "");
}

#[test]
fn send_targets_on_a_normal_session_then_its_own_target_only() {
    let mut connection = Connection::new(NORMAL);
    connection.world.targets = two_targets();
    assert_eq!(connection.ask("SendTargets=\0"), FIRST);
    assert_eq!(connection.ask(&format!("SendTargets={TARGET}\0")), FIRST);
    for bad in ["All", "iqn.2026-11.io.holdfast:disk1"] {
        assert_eq!(connection.ask(&format!("SendTargets={bad}\0")), "SendTargets=Reject\0", "{bad}");
    }
}

#[test]
fn keys_of_the_full_feature_phase_then_taken_and_others_rejected() {
    let mut connection = Connection::new(NORMAL);
    assert_eq!(connection.ask("MaxRecvDataSegmentLength=65536\0InitiatorAlias=host\0"), "");
    assert_eq!(connection.parameters.max_send_data_segment_length, 65_536);
    assert_eq!(
        connection.ask("MaxBurstLength=512\0AuthMethod=None\0X-a=1\0TargetName=a\0HeaderDigest=CRC32C\0"),
        "MaxBurstLength=Reject\0AuthMethod=Reject\0X-a=NotUnderstood\0TargetName=Reject\0HeaderDigest=Reject\0"
    );
    assert_eq!(connection.ask(""), "");
    let expected = Parameters { max_send_data_segment_length: 65_536, ..Parameters::default() };
    assert_eq!(connection.parameters, expected);
}

#[test]
fn malformed_or_repeated_keys_then_reject() {
    for text in
        ["novalue\0", "=1\0", "X-a=1\0X-a=1\0", "MaxRecvDataSegmentLength=1\0", "SendTargets=All\0SendTargets=All\0"]
    {
        let mut connection = Connection::new(DISCOVERY);
        let outcome = connection.send(FINAL, RESERVED_TAG, text);
        assert_eq!(outcome, TextOutcome::Reject(RejectReason::ProtocolError), "{text:?}");
        assert_eq!(connection.parameters, Parameters::default());
    }
}

#[test]
fn final_and_continue_together_then_reject() {
    let outcome = Connection::new(DISCOVERY).send(FINAL | CONTINUE, RESERVED_TAG, "SendTargets=All\0");
    assert_eq!(outcome, TextOutcome::Reject(RejectReason::ProtocolError));
}

#[test]
fn request_in_pieces_then_answered_at_the_end_under_one_tag() {
    let mut connection = Connection::new(DISCOVERY);
    let more =
        TextOutcome::Respond { final_bit: false, continue_bit: false, target_transfer_tag: 1, data: Bytes::new() };
    assert_eq!(connection.send(CONTINUE, RESERVED_TAG, "SendT"), more);
    assert_eq!(connection.send(CONTINUE, 1, "argets="), more);
    let TextOutcome::Respond { final_bit, target_transfer_tag, data, .. } = connection.send(FINAL, 1, "All\0") else {
        panic!("rejected");
    };
    assert_eq!((final_bit, target_transfer_tag), (true, RESERVED_TAG));
    assert!(data.starts_with(b"TargetName="));
}

#[test]
fn request_without_f_then_the_exchange_stays_open() {
    let mut connection = Connection::new(DISCOVERY);
    let outcome = connection.send(0, RESERVED_TAG, "X-a=1\0");
    let data = Bytes::from_static(b"X-a=NotUnderstood\0");
    let expected = TextOutcome::Respond { final_bit: false, continue_bit: false, target_transfer_tag: 1, data };
    assert_eq!(outcome, expected);
    let outcome = connection.send(FINAL, 1, "");
    let data = Bytes::new();
    let expected =
        TextOutcome::Respond { final_bit: true, continue_bit: false, target_transfer_tag: RESERVED_TAG, data };
    assert_eq!(outcome, expected);
    assert_eq!(connection.send(FINAL, 1, ""), TextOutcome::Reject(RejectReason::InvalidPduField));
}

#[test]
fn long_answer_then_in_pieces_of_what_the_initiator_takes() {
    let mut connection = Connection::new(DISCOVERY);
    connection.parameters.max_send_data_segment_length = 512;
    connection.world.targets =
        (0..100).map(|n| record(&format!("iqn.2026-11.io.holdfast:disk{n}"), &[("192.0.2.1:3260", 1)])).collect();
    let mut whole = Vec::new();
    let mut outcome = connection.send(FINAL, RESERVED_TAG, "SendTargets=All\0");
    let mut count = 0;
    loop {
        let TextOutcome::Respond { final_bit, continue_bit, target_transfer_tag, data } = outcome else {
            panic!("rejected");
        };
        whole.extend_from_slice(&data);
        count += 1;
        assert_eq!(final_bit, !continue_bit);
        if final_bit {
            assert_eq!(target_transfer_tag, RESERVED_TAG);
            break;
        }
        assert_eq!((data.len(), target_transfer_tag), (512, 1));
        outcome = connection.send(FINAL, 1, "");
    }
    assert_eq!(whole.iter().filter(|&&byte| byte == 0).count(), 200);
    assert_eq!(count, whole.len().div_ceil(512));
}

#[test]
fn text_while_a_long_answer_is_not_over_then_reject_and_forgotten() {
    let mut connection = Connection::new(DISCOVERY);
    connection.parameters.max_send_data_segment_length = 512;
    connection.world.targets = (0..100).flat_map(|_| two_targets()).collect();
    connection.send(FINAL, RESERVED_TAG, "SendTargets=All\0");
    assert_eq!(connection.send(FINAL, 1, "X-a=1\0"), TextOutcome::Reject(RejectReason::ProtocolError));
    assert_eq!(connection.send(FINAL, 1, ""), TextOutcome::Reject(RejectReason::InvalidPduField));
}

#[test]
fn wrong_tags_then_reject_and_a_new_exchange_forgets_the_old() {
    let mut connection = Connection::new(DISCOVERY);
    assert_eq!(connection.send(FINAL, 1, ""), TextOutcome::Reject(RejectReason::InvalidPduField));
    connection.send(CONTINUE, RESERVED_TAG, "SendTargets=");
    let other_task = TextRequestHeader { initiator_task_tag: 0x78.into(), ..header(FINAL, 1) };
    let Connection { exchange, parameters, identity, world } = &mut connection;
    let outcome = exchange.receive(&other_task, &Bytes::new(), parameters, identity, world);
    assert_eq!(outcome, TextOutcome::Reject(RejectReason::InvalidPduField));

    connection.send(CONTINUE, RESERVED_TAG, "SendTargets=");
    assert_eq!(connection.ask("X-a=1\0"), "X-a=NotUnderstood\0");
    assert_eq!(connection.send(FINAL, 2, "All\0"), TextOutcome::Reject(RejectReason::InvalidPduField));
}

#[test]
fn text_without_end_then_rejected_at_the_limit() {
    let mut connection = Connection::new(DISCOVERY);
    let piece = "x".repeat(8192);
    let mut tag = RESERVED_TAG;
    let rejected_after = (0..20).find(|_| match connection.send(CONTINUE, tag, &piece) {
        TextOutcome::Respond { target_transfer_tag, .. } => {
            tag = target_transfer_tag;
            false
        }
        TextOutcome::Reject(_) => true,
    });
    assert_eq!(rejected_after, Some(8));
}

#[test]
fn tags_at_the_end_of_their_range_then_never_the_reserved_one() {
    let mut connection = Connection::new(DISCOVERY);
    connection.exchange.next_tag = RESERVED_TAG - 1;
    for expected in [RESERVED_TAG - 1, 1, 2] {
        let TextOutcome::Respond { target_transfer_tag, .. } = connection.send(0, RESERVED_TAG, "") else {
            panic!("rejected");
        };
        assert_eq!(target_transfer_tag, expected);
    }
}

proptest! {
    #[test]
    fn random_requests_then_no_panic_and_bounded_answers(
        requests in proptest::collection::vec(
            (any::<u8>(), prop_oneof![Just(RESERVED_TAG), 0_u32..4, any::<u32>()],
             prop_oneof![Just("SendTargets=All\0".to_owned()), Just(String::new()), "\\PC{0,40}", "[A-Z][a-z]{0,4}=[0-9]{0,4}"]),
            0..20,
        ),
        normal: bool,
    ) {
        let mut connection = Connection::new(normal);
        for (flags, tag, text) in requests {
            if let TextOutcome::Respond { final_bit, continue_bit, target_transfer_tag, data } =
                connection.send(flags, tag, &text)
            {
                prop_assert!(data.len() <= 8192 && !(final_bit && continue_bit));
                prop_assert_eq!(final_bit, target_transfer_tag == RESERVED_TAG);
                prop_assert!(!final_bit || flags & FINAL != 0);
            }
        }
    }
}
