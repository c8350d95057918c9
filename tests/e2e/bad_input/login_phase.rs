//! Malformed input before and during the login.

use anyhow::{Context, Result, ensure};
use holdfast_tests::initiator::pdu::{FINAL, IMMEDIATE, request};
use holdfast_tests::initiator::{Bhs, Login, Wire, text};
use holdfast_tests::random::{Random, run_seed};
use holdfast_tests::report;

use super::{Answer, Bystander, PATIENCE};

/// T, current stage operational, next stage full feature.
const OPERATIONAL_TO_FULL: u8 = 0x87;

/// What a first login request carries in a case: flags, and the text.
type Case = (&'static str, u8, Vec<u8>);

fn good_text(target: &str) -> Vec<u8> {
    text::encode(&[
        ("InitiatorName", "iqn.2026-11.io.holdfast.tests:bad"),
        ("SessionType", "Normal"),
        ("TargetName", target),
    ])
}

fn with_good(target: &str, more: &[u8]) -> Vec<u8> {
    [&good_text(target), more].concat()
}

#[test]
fn login_request_when_malformed_then_refused_or_closed() -> Result<()> {
    let mut bystander = Bystander::start()?;
    let target = bystander.cluster.target("disk0")?;
    let long_key = vec![b'K'; 300];
    let cases: Vec<Case> = vec![
        ("no text at all", OPERATIONAL_TO_FULL, Vec::new()),
        ("no initiator name", OPERATIONAL_TO_FULL, text::encode(&[("SessionType", "Normal"), ("TargetName", &target)])),
        (
            "no target name",
            OPERATIONAL_TO_FULL,
            text::encode(&[("InitiatorName", "iqn.2026-11.io.holdfast.tests:bad")]),
        ),
        (
            "an unknown session type",
            OPERATIONAL_TO_FULL,
            text::encode(&[
                ("InitiatorName", "iqn.2026-11.io.holdfast.tests:bad"),
                ("SessionType", "Odd"),
                ("TargetName", &target),
            ]),
        ),
        ("a pair without =", OPERATIONAL_TO_FULL, with_good(&target, b"HeaderDigest\0")),
        ("a key of 300 bytes", OPERATIONAL_TO_FULL, with_good(&target, &[&long_key, &b"=1\0"[..]].concat())),
        (
            "a value of 8000 bytes",
            OPERATIONAL_TO_FULL,
            with_good(&target, &[b"InitiatorAlias=", &vec![b'v'; 8000][..], b"\0"].concat()),
        ),
        ("no zero at the end", OPERATIONAL_TO_FULL, with_good(&target, b"HeaderDigest=None")),
        ("bytes that are no text", OPERATIONAL_TO_FULL, with_good(&target, b"\xff\xfe=\x80\0")),
        ("the same key twice", OPERATIONAL_TO_FULL, with_good(&target, b"MaxBurstLength=1024\0MaxBurstLength=2048\0")),
        ("a stage that does not exist", 0x88 | 3, good_text(&target)),
        ("a transit backwards", 0x84, good_text(&target)),
        ("a transit to itself", 0x85, good_text(&target)),
        ("T and C together", 0xc7, good_text(&target)),
        ("the full feature stage at once", 0x0c, good_text(&target)),
        ("CHAP answers that nobody asked for", 0x81, with_good(&target, b"CHAP_R=0x00\0CHAP_N=x\0")),
    ];
    for (what, flags, text) in cases {
        let before = bystander.counted()?;
        let mut wire = Wire::connect(bystander.cluster.portal()?)?;
        wire.send(Login::to(&target).request_header(flags), &[], &text)?;
        let answer = Answer::of(wire.receive_within(PATIENCE))?;
        match &answer {
            Answer::Closed => {}
            Answer::Pdu(pdu) if pdu.bhs.opcode() == 0x23 && pdu.bhs.0[36] != 0 => {
                wire.receive_until_closed(PATIENCE).with_context(|| format!("{what}: stays open"))?;
            }
            // Some of these are harmless: the answer has to be a login response all the same, or a Reject.
            Answer::Pdu(pdu) => ensure!([0x23, 0x3f].contains(&pdu.bhs.opcode()), "{what}: {pdu:02x?}"),
            Answer::Silence => anyhow::bail!("{what}: no answer"),
        }
        drop(wire);
        bystander.ensure_unaffected().context(what)?;
        if answer.is_closed() || matches!(&answer, Answer::Pdu(pdu) if pdu.bhs.0[36] != 0) {
            bystander.ensure_counted(before).context(what)?;
        }
    }
    Ok(())
}

#[test]
fn login_when_required_keys_are_missing_then_status_0207() -> Result<()> {
    let bystander = Bystander::start()?;
    let target = bystander.cluster.target("disk0")?;
    for pairs in [
        vec![("SessionType", "Normal"), ("TargetName", target.as_str())],
        vec![("InitiatorName", "iqn.2026-11.io.holdfast.tests:bad"), ("SessionType", "Normal")],
    ] {
        let mut wire = Wire::connect(bystander.cluster.portal()?)?;
        wire.send(Login::to(&target).request_header(OPERATIONAL_TO_FULL), &[], &text::encode(&pairs))?;
        let answer = wire.receive()?;
        ensure!(answer.bhs.0[36..38] == [2, 7], "{pairs:?}: {:02x?}", &answer.bhs.0[36..38]);
    }
    Ok(())
}

#[test]
fn login_when_version_is_unknown_then_status_0205() -> Result<()> {
    let bystander = Bystander::start()?;
    let target = bystander.cluster.target("disk0")?;
    let mut wire = Wire::connect(bystander.cluster.portal()?)?;
    let header = Login::to(&target).request_header(OPERATIONAL_TO_FULL).with_bytes(2, &[9, 9]);
    wire.send(header, &[], &good_text(&target))?;
    let answer = wire.receive()?;
    ensure!(answer.bhs.0[36..38] == [2, 5], "{:02x?}", &answer.bhs.0[36..38]);
    Ok(())
}

#[test]
fn first_pdu_when_it_is_no_login_then_closed() -> Result<()> {
    let mut bystander = Bystander::start()?;
    for opcode in [
        request::NOP_OUT,
        request::SCSI_COMMAND,
        request::TASK_MANAGEMENT,
        request::TEXT,
        request::DATA_OUT,
        request::LOGOUT,
        0x10,
        0x1d,
        0x23,
        0x3f,
    ] {
        let mut wire = Wire::connect(bystander.cluster.portal()?)?;
        wire.send(Bhs::new(opcode | IMMEDIATE, FINAL), &[], &[])?;
        wire.receive_until_closed(PATIENCE).with_context(|| format!("opcode {opcode:02x}"))?;
        bystander.ensure_unaffected().with_context(|| format!("opcode {opcode:02x}"))?;
    }
    Ok(())
}

#[test]
fn login_when_text_never_ends_then_refused_or_closed() -> Result<()> {
    let mut bystander = Bystander::start()?;
    let target = bystander.cluster.target("disk0")?;
    let mut wire = Wire::connect(bystander.cluster.portal()?)?;
    // C=1 for ever: 8 MiB if nobody stops it.
    let piece = [b"X-com.example=", &[b'x'; 8000][..]].concat();
    let mut ended = false;
    for _ in 0..1000 {
        let header = Login::to(&target).request_header(0x44);
        if wire.send(header, &[], &piece).is_err() {
            ended = true;
            break;
        }
        match Answer::of(wire.receive_within(PATIENCE))? {
            Answer::Pdu(pdu) if pdu.bhs.opcode() == 0x23 && pdu.bhs.0[36] == 0 => {}
            Answer::Silence => anyhow::bail!("no answer"),
            _ => {
                ended = true;
                break;
            }
        }
    }
    ensure!(ended, "the target takes text without end");
    bystander.ensure_unaffected()
}

#[test]
fn connection_when_it_sends_no_iscsi_then_closed() -> Result<()> {
    let mut bystander = Bystander::start()?;
    let seed = run_seed();
    let mut random = Random::from_seed(seed);
    for round in 0..report::count(60, 2000) {
        let mut bytes = match round % 4 {
            0 => b"GET / HTTP/1.1\r\nHost: storage\r\nUser-Agent: somebody who is lost\r\n\r\n".to_vec(),
            1 => vec![0xff; 400],
            _ => vec![0; 1 + usize::try_from(random.below(3000))?],
        };
        if round % 4 >= 2 {
            random.fill(&mut bytes);
        }
        // A login header in front of half of the noise, so that it gets further.
        if round % 4 == 3 {
            bytes[0] = 0x43;
        }
        let mut wire = Wire::connect(bystander.cluster.portal()?)?;
        // The target may close while this is still being sent.
        if wire.send_bytes(&bytes).and_then(|()| wire.finish_sending()).is_ok() {
            let closed = wire.receive_until_closed(PATIENCE);
            ensure!(
                !matches!(closed, Err(holdfast_tests::initiator::WireError::TimedOut)),
                "round {round}, seed {seed}: stays open"
            );
        }
    }
    bystander.ensure_unaffected().with_context(|| format!("HOLDFAST_SEED={seed}"))
}
