//! Logins that succeed in unusual ways, reinstatement, and what a login may be refused for.

use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::text;
use holdfast_tests::initiator::{Command, Event, Login};
use holdfast_tests::{report, wait};

use crate::support::{SECTOR, log_in, read, refusal, settle, write};

#[test]
fn login_when_text_comes_in_pieces_then_as_if_at_once() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    for piece_len_bytes in [20, 64, 200] {
        let mut login = Login::to(&cluster.target("disk0")?);
        login.piece_len_bytes = Some(piece_len_bytes);
        let mut session = login.connect(cluster.portal()?)?;
        settle(&mut session)?;
        ensure!(session.negotiated().first_burst_len_bytes == 65_536);
    }
    Ok(())
}

#[test]
fn login_when_keys_are_unknown_or_obsolete_then_the_rfcs_answers() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let login = Login::to(&cluster.target("disk0")?)
        .with("X-com.example.Colour", "blue")
        .with("IFMarker", "No")
        .with("OFMarker", "No")
        .with("RDMAExtensions", "No")
        .with("iSCSIProtocolLevel", "1");
    let session = login.connect(cluster.portal()?)?;
    let answers = &session.negotiated().answers;
    ensure!(text::find(answers, "X-com.example.Colour") == Some("NotUnderstood"), "{answers:?}");
    // Obsolete in RFC 7143 (13.25): No or Reject or NotUnderstood, but an answer.
    ensure!(text::find(answers, "IFMarker").is_some_and(|answer| answer != "Yes"), "{answers:?}");
    ensure!(text::find(answers, "iSCSIProtocolLevel") == Some("1"), "{answers:?}");
    Ok(())
}

#[test]
fn login_when_values_are_illegal_then_reject_and_defaults() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    for (key, value) in [
        ("MaxBurstLength", "511"),
        ("MaxBurstLength", "16777216"),
        ("ErrorRecoveryLevel", "3"),
        ("ImmediateData", "Maybe"),
        ("HeaderDigest", "MD5"),
        ("MaxOutstandingR2T", "0"),
        ("DefaultTime2Wait", "3601"),
    ] {
        let login = Login::to(&cluster.target("disk0")?).with(key, value);
        // Either the key is rejected and the login goes on, or the login ends as an initiator error.
        match login.connect(cluster.portal()?) {
            Ok(session) => {
                let answer = text::find(&session.negotiated().answers, key).map(str::to_owned);
                ensure!(answer.as_deref() == Some("Reject"), "{key}={value}: {answer:?}");
            }
            Err(holdfast_tests::initiator::LoginError::Refused { class: 2, .. }) => {}
            Err(error) => anyhow::bail!("{key}={value}: {error}"),
        }
    }
    Ok(())
}

#[test]
fn login_when_refused_then_status_says_why() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let target = cluster.target("disk0")?;
    ensure!(refusal(&cluster, &Login::to("iqn.2026-11.io.holdfast:nothing"))? == (2, 3), "not found");
    let mut login = Login::to(&target);
    login.tsih = 0x4242;
    ensure!(refusal(&cluster, &login)? == (2, 0x0a), "session does not exist");
    let nameless = Login::to(&target).as_initiator("");
    ensure!(refusal(&cluster, &nameless)?.0 == 2, "no initiator name");
    let misnamed = Login::to(&target).as_initiator("initiator without a scheme");
    ensure!(refusal(&cluster, &misnamed)?.0 == 2, "a name that is none");
    Ok(())
}

#[test]
fn login_when_same_initiator_port_then_old_session_ends() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let login = Login::to(&cluster.target("disk0")?);
    let mut old = login.connect(cluster.portal()?)?;
    settle(&mut old)?;
    // A write whose data never comes must not hold the new session up, nor land later.
    old.hold_r2t(true);
    old.submit(Command::write_16(0, vec![9; 1 << 20], SECTOR))?;
    let mut new = login.connect(cluster.portal()?)?;
    settle(&mut new)?;
    old.wire().receive_until_closed(Duration::from_secs(10))?;
    ensure!(read(&mut new, 0, 1)? == vec![0; SECTOR]);
    let sessions = cluster.sessions()?;
    ensure!(sessions.len() == 1 && sessions[0]["tsih"] == new.tsih(), "{sessions:?}");
    Ok(())
}

#[test]
fn login_when_repeated_with_writes_in_flight_then_the_last_acknowledged_is_there() -> Result<()> {
    // A6 of the hazards: reinstatement with old tasks.
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let login = Login::to(&cluster.target("disk0")?);
    let rounds = u8::try_from(report::count(20, 200))?;
    for round in 1..=rounds {
        let mut session = login.connect(cluster.portal()?)?;
        settle(&mut session)?;
        write(&mut session, 8, vec![round; 8 * SECTOR])?;
        ensure!(read(&mut session, 8, 8)? == vec![round; 8 * SECTOR], "round {round}");
        // Left behind: more writes to the same blocks, none of them waited for.
        for _ in 0..8 {
            session.submit(Command::write_16(8, vec![0xee; 8 * SECTOR], SECTOR))?;
        }
        let mut next = login.connect(cluster.portal()?)?;
        settle(&mut next)?;
        write(&mut next, 8, vec![round; 8 * SECTOR])?;
        ensure!(read(&mut next, 8, 8)? == vec![round; 8 * SECTOR], "round {round}: an old write has landed");
        drop(session);
        ensure!(read(&mut next, 8, 8)? == vec![round; 8 * SECTOR], "round {round}: an old write has landed late");
    }
    Ok(())
}

#[test]
fn log_out_when_commands_are_outstanding_then_answered_and_closed() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    for _ in 0..16 {
        session.submit(Command::write_16(0, vec![3; 8 * SECTOR], SECTOR))?;
    }
    ensure!(session.log_out()? == 0);
    wait::until("an empty session list", Duration::from_secs(10), || Ok(cluster.sessions()?.is_empty().then_some(())))
}

#[test]
fn window_when_commands_exceed_it_then_it_closes_and_opens_again() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut login = Login::to(&cluster.target("disk0")?);
    // Around the wrap of CmdSN.
    login.first_cmd_sn = u32::MAX - 40;
    let mut session = login.connect(cluster.portal()?)?;
    settle(&mut session)?;
    ensure!((1..=1024).contains(&session.window()), "a window of {}", session.window());
    let mut ended = 0;
    for number in 0..400_u64 {
        session.submit(Command::write_16(number % 64, vec![1; SECTOR], SECTOR))?;
        while let Some(event) = session.next_event_within(Duration::ZERO)? {
            ended += usize::from(matches!(event, Event::Completion(completion) if completion.is_good()));
        }
    }
    while ended < 400 {
        ended += usize::from(matches!(session.next_event()?, Event::Completion(done) if done.is_good()));
    }
    ensure!(session.cmd_sn() < 1000, "CmdSN has wrapped");
    Ok(())
}
