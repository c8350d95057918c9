//! The initiator against a target that is written out by hand, right and wrong: strictness is what it is for.

use super::*;
use crate::initiator::wire::pair;

const FIRST_STAT_SN: u32 = 10;
const CMD_SN: u32 = 5;

fn negotiated() -> Negotiated {
    Negotiated {
        header_digest: false,
        data_digest: false,
        max_recv_len_bytes: 1024,
        max_send_len_bytes: 1024,
        max_burst_len_bytes: 2048,
        first_burst_len_bytes: 1024,
        initial_r2t: true,
        immediate_data: false,
        max_outstanding_r2t: 1,
        answers: Vec::new(),
    }
}

/// A session and the far end of its connection.
fn session() -> (Session, Wire) {
    let (near, far) = pair();
    (Session::new(near, negotiated(), 1, FIRST_STAT_SN, CMD_SN, CMD_SN + 7), far)
}

/// A header of the target with sequence numbers that are right for one command sent.
fn from_target(opcode: u8, flags: u8, tag: u32) -> Bhs {
    Bhs::new(opcode, flags)
        .with_task_tag(tag)
        .with_u32(24, FIRST_STAT_SN)
        .with_u32(28, CMD_SN + 1)
        .with_u32(32, CMD_SN + 8)
}

fn is_protocol_error<T>(result: Result<T, SessionError>) -> bool {
    matches!(result, Err(SessionError::Protocol(_)))
}

#[test]
fn submit_when_reading_then_header_as_the_rfc_draws_it() {
    let (mut session, mut far) = session();
    let tag = session.submit(Command::read_16(7, 2, 512)).unwrap();
    let sent = far.receive().unwrap();
    assert_eq!(sent.bhs.0[..2], [0x01, 0xc1]);
    assert_eq!((sent.bhs.task_tag(), sent.bhs.u32_at(20), sent.bhs.u32_at(24)), (tag, 1024, CMD_SN));
    assert_eq!(sent.bhs.u32_at(28), FIRST_STAT_SN);
    assert_eq!(sent.bhs.0[32..34], [0x88, 0]);
    assert_eq!(session.cmd_sn(), CMD_SN + 1);
}

#[test]
fn submit_when_cdb_is_long_then_extended_cdb_header() {
    let (mut session, mut far) = session();
    let cdb: Vec<u8> = (0..32).collect();
    session.submit(Command::bare(cdb.clone())).unwrap();
    let sent = far.receive().unwrap();
    assert_eq!(sent.ahs[..4], [0, 17, 1, 0]);
    assert_eq!([&sent.bhs.0[32..], &sent.ahs[4..]].concat(), cdb);
}

#[test]
fn r2t_when_it_comes_then_data_out_in_order() {
    let (mut session, mut far) = session();
    let data: Vec<u8> = (0..=255).cycle().take(2048).collect();
    let tag = session.submit(Command::write_16(0, data.clone(), 512)).unwrap();
    far.receive().unwrap();
    far.send(from_target(response::R2T, FINAL, tag).with_u32(20, 77).with_u32(44, 2048), &[], &[]).unwrap();
    far.send(from_target(response::SCSI, FINAL, tag).with_u32(36, 1), &[], &[]).unwrap();
    let Event::Completion(completion) = session.next_event().unwrap() else { panic!("no completion") };
    assert!(completion.is_good() && completion.r2ts == 1);
    let (first, second) = (far.receive().unwrap(), far.receive().unwrap());
    assert_eq!([first.data, second.data].concat(), data);
    assert_eq!((first.bhs.flags(), second.bhs.flags()), (0, FINAL));
    assert_eq!((first.bhs.u32_at(36), second.bhs.u32_at(36), second.bhs.u32_at(40)), (0, 1, 1024));
    assert_eq!((first.bhs.transfer_tag(), second.bhs.transfer_tag()), (77, 77));
}

#[test]
fn data_in_when_in_order_then_collected_with_its_status() {
    let (mut session, mut far) = session();
    let tag = session.submit(Command::read_16(0, 3, 512)).unwrap();
    far.send(from_target(response::DATA_IN, 0, tag), &[], &[1; 1024]).unwrap();
    let last = from_target(response::DATA_IN, FINAL | 1, tag).with_u32(36, 1).with_u32(40, 1024);
    far.send(last, &[], &[2; 512]).unwrap();
    let Event::Completion(completion) = session.next_event().unwrap() else { panic!("no completion") };
    assert_eq!(completion.data_in, [vec![1; 1024], vec![2; 512]].concat());
    assert_eq!(session.exp_stat_sn(), FIRST_STAT_SN + 1);
}

#[test]
fn target_when_it_breaks_the_protocol_then_error() {
    let tag = 1;
    let cases: Vec<(&str, Bhs, usize)> = vec![
        ("StatSN ahead", from_target(response::SCSI, FINAL, tag).with_u32(24, FIRST_STAT_SN + 1), 0),
        ("an unknown task", from_target(response::SCSI, FINAL, 99), 0),
        ("ExpCmdSN of a command not sent", from_target(response::SCSI, FINAL, tag).with_u32(28, CMD_SN + 2), 0),
        ("MaxCmdSN going back", from_target(response::SCSI, FINAL, tag).with_u32(32, CMD_SN + 6), 0),
        ("DataSN ahead", from_target(response::DATA_IN, 0, tag).with_u32(36, 1), 512),
        ("an offset ahead", from_target(response::DATA_IN, 0, tag).with_u32(40, 512), 512),
        ("a segment too long", from_target(response::DATA_IN, FINAL, tag), 1025),
        ("sense longer than the data", from_target(response::SCSI, FINAL, tag).with_bytes(3, &[2]), 1),
        ("R2T of no length", from_target(response::R2T, FINAL, tag).with_u32(20, 7), 0),
        ("R2T for a read", from_target(response::R2T, FINAL, tag).with_u32(20, 7).with_u32(44, 512), 0),
        ("an opcode that is none", from_target(0x3c, FINAL, tag), 0),
    ];
    for (what, header, len_bytes) in cases {
        let (mut session, mut far) = session();
        assert_eq!(session.submit(Command::read_16(0, 4, 512)).unwrap(), tag);
        far.send(header, &[], &vec![0; len_bytes]).unwrap();
        assert!(is_protocol_error(session.next_event()), "{what}");
    }
}

#[test]
fn data_in_when_burst_is_too_long_then_error() {
    let (mut session, mut far) = session();
    let tag = session.submit(Command::read_16(0, 8, 512)).unwrap();
    for number in 0..3_u32 {
        let header = from_target(response::DATA_IN, 0, tag).with_u32(36, number).with_u32(40, number * 1024);
        far.send(header, &[], &[0; 1024]).unwrap();
    }
    assert!(is_protocol_error(session.next_event()));
}

#[test]
fn ping_when_target_sends_one_then_answered_with_its_tag() {
    let (mut session, mut far) = session();
    let ping = Bhs::new(response::NOP_IN, FINAL).with_task_tag(NO_TAG).with_u32(20, 55);
    let ping = ping.with_u32(24, FIRST_STAT_SN).with_u32(28, CMD_SN).with_u32(32, CMD_SN + 7);
    far.send(ping, &[], &[]).unwrap();
    assert!(matches!(session.next_event().unwrap(), Event::Pinged));
    let answer = far.receive().unwrap().bhs;
    assert_eq!((answer.0[0], answer.task_tag(), answer.transfer_tag()), (0x40, NO_TAG, 55));
    assert_eq!(session.exp_stat_sn(), FIRST_STAT_SN, "a ping uses no StatSN");
}

#[test]
fn window_when_cmd_sn_wraps_then_counts_on() {
    let (near, _far) = pair();
    let session = Session::new(near, negotiated(), 1, 0, u32::MAX, 2);
    assert_eq!(session.window(), 4);
    let (near, _far) = pair();
    assert_eq!(Session::new(near, negotiated(), 1, 0, 3, 2).window(), 0);
}
