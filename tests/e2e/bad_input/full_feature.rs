//! Malformed input in the full feature phase.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_tests::initiator::pdu::{FINAL, IMMEDIATE, NO_TAG, request};
use holdfast_tests::initiator::scsi::status;
use holdfast_tests::initiator::{Bhs, Command, Event, Login, Session};
use holdfast_tests::random::{Random, run_seed};
use holdfast_tests::report;

use super::{Answer, Bystander, PATIENCE};
use crate::support::{SECTOR, read, settle, write};

/// A session that will misbehave.
fn offender(bystander: &Bystander) -> Result<Session> {
    let mut session = Login::to(&bystander.cluster.target("disk0")?).connect(bystander.cluster.portal()?)?;
    settle(&mut session)?;
    Ok(session)
}

/// Header of a command that is the session's next one.
fn command_header(session: &mut Session, flags: u8, expected_len_bytes: u32, cdb: &[u8]) -> Bhs {
    let header = Bhs::new(request::SCSI_COMMAND, flags)
        .with_task_tag(session.new_tag())
        .with_u32(20, expected_len_bytes)
        .with_u32(24, session.cmd_sn())
        .with_u32(28, session.exp_stat_sn())
        .with_bytes(32, cdb);
    session.advance_cmd_sn();
    header
}

/// What one case sends.
type Misdeed = fn(&mut Session) -> Result<()>;

/// What has to come of it.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// A Reject, and the session goes on.
    Reject,
    /// The connection is closed, with or without a last PDU.
    Closed,
    /// A Reject, a SCSI status or the end of the connection: anything but silence.
    Answer,
    /// Nothing; the session goes on.
    Ignored,
}

fn send(session: &mut Session, bhs: Bhs, ahs: &[u8], data: &[u8]) -> Result<()> {
    Ok(session.wire().send(bhs, ahs, data)?)
}

const CASES: &[(&str, Expected, Misdeed)] = &[
    ("an opcode that does not exist", Expected::Reject, |session| {
        let tag = session.new_tag();
        Ok(session.send_numbered(Bhs::new(0x1b | IMMEDIATE, FINAL).with_task_tag(tag), &[])?)
    }),
    ("an opcode of the target", Expected::Reject, |session| {
        let tag = session.new_tag();
        Ok(session.send_numbered(Bhs::new(0x21 | IMMEDIATE, FINAL).with_task_tag(tag), &[])?)
    }),
    ("a SNACK at error recovery level 0", Expected::Reject, |session| {
        Ok(session.send_numbered(Bhs::new(request::SNACK, FINAL).with_task_tag(NO_TAG), &[])?)
    }),
    ("a second login", Expected::Answer, |session| {
        let tag = session.new_tag();
        Ok(session.send_numbered(Bhs::new(request::LOGIN | IMMEDIATE, 0x87).with_task_tag(tag), b"A=b\0")?)
    }),
    ("a ping that repeats a tag nobody sent", Expected::Answer, |session| {
        Ok(session
            .send_numbered(Bhs::new(request::NOP_OUT | IMMEDIATE, FINAL).with_task_tag(NO_TAG).with_u32(20, 77), &[])?)
    }),
    ("a ping longer than the target takes", Expected::Closed, |session| {
        let len_bytes = session.negotiated().max_send_len_bytes + 4;
        let tag = session.new_tag();
        let header = Bhs::new(request::NOP_OUT | IMMEDIATE, FINAL).with_task_tag(tag).with_u32(20, NO_TAG);
        // The target may close while the rest is being sent.
        let _ = session.send_numbered(header, &vec![0; len_bytes]);
        Ok(())
    }),
    ("a data segment of 16 MiB that is announced and does not come", Expected::Closed, |session| {
        let header = Bhs::new(request::NOP_OUT | IMMEDIATE, FINAL).with_task_tag(1).with_lengths(0, 0x00ff_ffff);
        Ok(session.wire().send_as_is(header, &[], &[])?)
    }),
    ("1020 bytes of additional headers", Expected::Answer, |session| {
        let header = command_header(session, FINAL | 1, 0, &[0; 16]);
        send(session, header, &[0xa5; 1020], &[])
    }),
    ("an additional header longer than all of them", Expected::Answer, |session| {
        let header = command_header(session, FINAL | 1, 0, &[0; 16]);
        send(session, header, &[0xff, 0xff, 1, 0], &[])
    }),
    ("an additional header of no length", Expected::Answer, |session| {
        let header = command_header(session, FINAL | 1, 0, &[0; 16]);
        send(session, header, &[0, 0, 1, 0], &[])
    }),
    ("an additional header of an unknown type", Expected::Answer, |session| {
        let header = command_header(session, FINAL | 1, 0, &[0; 16]);
        send(session, header, &[0, 1, 0x3f, 0], &[])
    }),
    ("immediate data beyond the expected length", Expected::Answer, |session| {
        let header = command_header(session, FINAL | 0x21, 512, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        send(session, header, &[], &[1; 4096])
    }),
    ("immediate data of a command that does not write", Expected::Answer, |session| {
        let header = command_header(session, FINAL | 0x41, 512, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        send(session, header, &[], &[1; 512])
    }),
    ("neither F nor W", Expected::Answer, |session| {
        let header = command_header(session, 1, 0, &[0; 6]);
        send(session, header, &[], &[])
    }),
    ("a task attribute that does not exist", Expected::Answer, |session| {
        let header = command_header(session, FINAL | 7, 0, &[0; 6]);
        send(session, header, &[], &[])
    }),
    ("data for a task that does not exist", Expected::Ignored, |session| {
        let header = Bhs::new(request::DATA_OUT, FINAL).with_task_tag(0x7777).with_u32(20, 0x1234);
        Ok(session.send_numbered(header, &[0; 512])?)
    }),
    ("a command far outside the window", Expected::Ignored, |session| {
        let tag = session.new_tag();
        let header = Bhs::new(request::SCSI_COMMAND, FINAL | 1).with_task_tag(tag);
        let far = session.cmd_sn().wrapping_add(1 << 20);
        send(session, header.with_u32(24, far), &[], &[])
    }),
    ("a command whose number was used", Expected::Ignored, |session| {
        let tag = session.new_tag();
        let header = Bhs::new(request::SCSI_COMMAND, FINAL | 1).with_task_tag(tag);
        let used = session.cmd_sn().wrapping_sub(1);
        send(session, header.with_u32(24, used), &[], &[])
    }),
    ("a logout for a reason that does not exist", Expected::Answer, |session| {
        let tag = session.new_tag();
        Ok(session.send_numbered(Bhs::new(request::LOGOUT | IMMEDIATE, FINAL | 0x55).with_task_tag(tag), &[])?)
    }),
    ("a logout of another connection", Expected::Answer, |session| {
        let tag = session.new_tag();
        let header = Bhs::new(request::LOGOUT | IMMEDIATE, FINAL | 1).with_task_tag(tag).with_u16(20, 99);
        Ok(session.send_numbered(header, &[])?)
    }),
    ("text without =", Expected::Answer, |session| {
        let tag = session.new_tag();
        let header = Bhs::new(request::TEXT | IMMEDIATE, FINAL).with_task_tag(tag).with_u32(20, NO_TAG);
        Ok(session.send_numbered(header, b"SendTargets\0")?)
    }),
    ("text that goes on with a tag nobody gave", Expected::Answer, |session| {
        let tag = session.new_tag();
        let header = Bhs::new(request::TEXT | IMMEDIATE, FINAL).with_task_tag(tag).with_u32(20, 0x1234);
        Ok(session.send_numbered(header, &[])?)
    }),
    ("F and C together", Expected::Answer, |session| {
        let tag = session.new_tag();
        let header = Bhs::new(request::TEXT | IMMEDIATE, FINAL | 0x40).with_task_tag(tag).with_u32(20, NO_TAG);
        Ok(session.send_numbered(header, b"SendTargets=All\0")?)
    }),
    ("keys that belong to the login", Expected::Answer, |session| {
        let tag = session.new_tag();
        let header = Bhs::new(request::TEXT | IMMEDIATE, FINAL).with_task_tag(tag).with_u32(20, NO_TAG);
        Ok(session.send_numbered(header, b"HeaderDigest=CRC32C\0MaxBurstLength=1\0")?)
    }),
];

#[test]
fn pdu_when_malformed_then_answered_and_only_that_session_affected() -> Result<()> {
    let mut bystander = Bystander::start()?;
    for (what, expected, misdeed) in CASES {
        let mut session = offender(&bystander)?;
        let before = bystander.counted()?;
        misdeed(&mut session).with_context(|| (*what).to_owned())?;
        ensure_answered(&mut session, *expected).with_context(|| (*what).to_owned())?;
        bystander.ensure_unaffected().with_context(|| (*what).to_owned())?;
        if matches!(expected, Expected::Reject | Expected::Closed) {
            bystander.ensure_counted(before).with_context(|| (*what).to_owned())?;
        }
    }
    let log = bystander.cluster.log();
    ensure!(log.lines().count() < 40 + 6 * CASES.len(), "{} lines of log", log.lines().count());
    Ok(())
}

fn ensure_answered(session: &mut Session, expected: Expected) -> Result<()> {
    let patience = if matches!(expected, Expected::Ignored) { Duration::from_millis(200) } else { PATIENCE };
    match (expected, Answer::of(session.wire().receive_within(patience))?) {
        (Expected::Reject, answer) => {
            ensure!(answer.reject_reason().is_some(), "{answer:02x?}");
            goes_on(session)
        }
        (Expected::Closed, Answer::Closed) => Ok(()),
        (Expected::Closed, Answer::Pdu(_)) => {
            session.wire().receive_until_closed(PATIENCE).context("stays open")?;
            Ok(())
        }
        (Expected::Answer, Answer::Closed | Answer::Pdu(_)) => Ok(()),
        (Expected::Ignored, Answer::Silence) => goes_on(session),
        (expected, answer) => anyhow::bail!("expected {expected:?}, got {answer:02x?}"),
    }
}

/// The session still answers. Numbers are not looked at: a Reject was taken from under it.
fn goes_on(session: &mut Session) -> Result<()> {
    let header = Bhs::new(request::NOP_OUT | IMMEDIATE, FINAL).with_task_tag(0x1111).with_u32(20, NO_TAG);
    session.send_numbered(header, b"still there?")?;
    let answer = session.wire().receive_within(PATIENCE)?.context("silence")?;
    ensure!(answer.bhs.opcode() == 0x20 && answer.data == b"still there?", "{answer:02x?}");
    Ok(())
}

#[test]
fn data_out_when_out_of_sequence_then_the_task_fails_and_the_session_goes_on() -> Result<()> {
    let mut bystander = Bystander::start()?;
    for (what, data_sn, offset_shift, len_bytes) in [
        ("a wrong DataSN", 7_u32, 0_u32, 65_536_usize),
        ("a wrong offset", 0, 512, 65_536),
        ("more than was asked for", 0, 0, 65_536 + 512),
    ] {
        let login = Login::to(&bystander.cluster.target("disk0")?)
            .with("InitialR2T", "Yes")
            .with("ImmediateData", "No")
            .with("MaxOutstandingR2T", "1")
            .with("MaxBurstLength", "65536");
        let mut session = login.connect(bystander.cluster.portal()?)?;
        settle(&mut session)?;
        write(&mut session, 2000, vec![1; 65_536])?;
        session.hold_r2t(true);
        let tag = session.submit(Command::write_16(2000, vec![2; 131_072], SECTOR))?;
        let r2t = session.wait_for(|event| match event {
            Event::ReadyToTransfer(r2t) => Some(*r2t),
            _ => None,
        })?;
        let header = Bhs::new(request::DATA_OUT, FINAL)
            .with_task_tag(tag)
            .with_u32(20, r2t.transfer_tag)
            .with_u32(28, session.exp_stat_sn())
            .with_u32(36, data_sn)
            .with_u32(40, u32::try_from(r2t.offset)? + offset_shift);
        send(&mut session, header, &[], &vec![2; len_bytes])?;
        // A CHECK CONDITION for the task after a Reject, or the end of the connection: never GOOD, never silence.
        let ended = session.wait_for(|event| match event {
            Event::Completion(completion) if completion.task_tag == tag => Some(completion.clone()),
            _ => None,
        });
        if let Ok(completion) = ended {
            ensure!(completion.status == status::CHECK_CONDITION, "{what}: {completion:02x?}");
            ensure!(read(&mut session, 2000, 1)? == vec![1; SECTOR], "{what}: was written");
        }
        bystander.ensure_unaffected().context(what)?;
    }
    Ok(())
}

#[test]
fn cdb_when_it_cannot_be_right_then_precise_sense() -> Result<()> {
    let bystander = Bystander::start()?;
    let mut session = offender(&bystander)?;
    let blocks = 64 * 2048;
    for (what, command, sense) in [
        ("an unknown opcode", Command::bare([0xff; 6]), (5, (0x20, 0x00))),
        ("an LBA past the end", Command::read_16(blocks, 1, SECTOR), (5, (0x21, 0x00))),
        ("a range past the end", Command::read_16(blocks - 1, 2, SECTOR), (5, (0x21, 0x00))),
        ("an LBA at the end of 64 bits", Command::read_16(u64::MAX, 1, SECTOR), (5, (0x21, 0x00))),
        ("a VPD page that does not exist", Command::inquiry(Some(0x55)), (5, (0x24, 0x00))),
        ("a LUN that does not exist", Command::read_16(0, 1, SECTOR).to_lun(7), (5, (0x25, 0x00))),
    ] {
        let refused = session.execute(command)?;
        let found = refused.sense().map(|sense| (sense.key, sense.code));
        ensure!(found == Some(sense), "{what}: {refused:02x?}");
    }
    settle(&mut session)
}

#[test]
fn session_when_it_sends_noise_then_only_it_ends() -> Result<()> {
    let mut bystander = Bystander::start()?;
    let seed = run_seed();
    let mut random = Random::from_seed(seed);
    for round in 0..report::count(60, 2000) {
        let mut session = offender(&bystander)?;
        let mut bytes = [0; 48];
        random.fill(&mut bytes);
        // Valid opcodes, but no task management: a reset is for all sessions. Noise in every other field; lengths are kept small so that the PDU is whole.
        let opcodes = [0x00, 0x01, 0x04, 0x05, 0x06, 0x10, 0x40, 0x41, 0x44, 0x46];
        bytes[0] = opcodes[usize::try_from(random.below(opcodes.len() as u64))?];
        bytes[4..8].copy_from_slice(&[0, 0, 0, 0]);
        let mut data = vec![0; usize::try_from(random.below(64))?];
        random.fill(&mut data);
        let header = Bhs(bytes).with_u32(24, session.cmd_sn()).with_u32(28, session.exp_stat_sn());
        // Written blocks are kept away from the bystander's: noise may be a valid WRITE.
        let is_command = bytes[0] & 0x3f == 0x01;
        let header = if is_command { header.with_bytes(32, &[0xff]) } else { header };
        let sent = session.wire().send(header, &[], &data).and_then(|()| session.wire().finish_sending());
        if sent.is_ok() {
            let closed = session.wire().receive_until_closed(PATIENCE);
            let stays_open = matches!(closed, Err(holdfast_tests::initiator::WireError::TimedOut));
            ensure!(!stays_open, "round {round}, seed {seed}: stays open after the end of the stream");
        }
    }
    bystander.ensure_unaffected().with_context(|| format!("HOLDFAST_SEED={seed}"))
}

#[test]
fn connection_when_it_ends_within_a_pdu_then_session_is_forgotten() -> Result<()> {
    let mut bystander = Bystander::start()?;
    let whole = {
        let mut bytes = Bhs::new(request::SCSI_COMMAND, FINAL | 0x21).with_lengths(0, 512).0.to_vec();
        bytes.extend([7; 512]);
        bytes
    };
    for cut in [1, 4, 47, 48, 49, 300, 559] {
        let mut session = offender(&bystander)?;
        session.wire().send_bytes(&whole[..cut])?;
        session.wire().finish_sending()?;
        session.wire().receive_until_closed(PATIENCE).with_context(|| format!("cut at {cut}"))?;
        bystander.ensure_unaffected()?;
    }
    holdfast_tests::wait::until(
        "one session",
        PATIENCE,
        || Ok((bystander.cluster.sessions()?.len() == 1).then_some(())),
    )
}
