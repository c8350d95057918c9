//! Task management (RFC 7143, 11.5) as one and as several initiators see it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::scsi::status;
use holdfast_tests::initiator::session::ReadyToTransfer;
use holdfast_tests::initiator::{Command, Event, Login, Session};

use crate::support::{SECTOR, log_in, read, settle, write};

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;
const TASK_REASSIGN: u8 = 8;

const COMPLETE: u8 = 0;
const TASK_DOES_NOT_EXIST: u8 = 1;
const REASSIGN_NOT_SUPPORTED: u8 = 4;
const FUNCTION_NOT_SUPPORTED: u8 = 5;

/// A session with one R2T at a time, which it leaves unanswered.
fn log_in_holding_r2t(cluster: &Cluster) -> Result<Session> {
    let login = Login::to(&cluster.target("disk0")?).with("MaxOutstandingR2T", "1");
    let mut session = login.connect(cluster.portal()?)?;
    settle(&mut session)?;
    session.hold_r2t(true);
    Ok(session)
}

/// A write of 1 MiB whose data stops at the first R2T.
fn begin_unfinished_write(session: &mut Session, lba: u64) -> Result<ReadyToTransfer> {
    let tag = session.submit(Command::write_16(lba, vec![0xee; 1 << 20], SECTOR))?;
    let r2t = session.wait_for(|event| match event {
        Event::ReadyToTransfer(r2t) if r2t.task_tag == tag => Some(*r2t),
        _ => None,
    })?;
    Ok(r2t)
}

/// Fails if a completion of the task comes.
fn ensure_no_status(session: &mut Session, tag: u32) -> Result<()> {
    while let Some(event) = session.next_event_within(Duration::from_millis(200))? {
        let is_its = matches!(&event, Event::Completion(completion) if completion.task_tag == tag);
        ensure!(!is_its, "a status for an aborted task: {event:02x?}");
    }
    Ok(())
}

#[test]
fn abort_task_when_it_waits_for_data_then_no_status_and_nothing_written() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in_holding_r2t(&cluster)?;
    let tag = begin_unfinished_write(&mut session, 0)?.task_tag;
    ensure!(session.manage_tasks(ABORT_TASK, 0, Some(tag))? == COMPLETE);
    ensure_no_status(&mut session, tag)?;
    session.forget(tag);
    ensure!(read(&mut session, 0, 1)? == vec![0; SECTOR]);
    Ok(())
}

#[test]
fn abort_task_when_it_is_unknown_then_does_not_exist() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    // RefCmdSN is that of a command which was received and is over.
    ensure!(session.manage_tasks(ABORT_TASK, 0, Some(0x7777))? == TASK_DOES_NOT_EXIST);
    ensure!(session.manage_tasks(TASK_REASSIGN, 0, Some(0x7777))? == REASSIGN_NOT_SUPPORTED);
    ensure!(session.manage_tasks(0x44, 0, None)? == FUNCTION_NOT_SUPPORTED);
    settle(&mut session)
}

#[test]
fn abort_task_set_when_several_wait_then_none_gets_a_status() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in_holding_r2t(&cluster)?;
    let tags = (0..4)
        .map(|number| Ok(begin_unfinished_write(&mut session, number * 2048)?.task_tag))
        .collect::<Result<Vec<_>>>()?;
    ensure!(session.manage_tasks(ABORT_TASK_SET, 0, None)? == COMPLETE);
    for tag in tags {
        ensure_no_status(&mut session, tag)?;
        session.forget(tag);
    }
    session.hold_r2t(false);
    write(&mut session, 0, vec![1; 1 << 20])
}

#[test]
fn reset_when_another_initiator_asks_then_task_aborted_and_unit_attention() -> Result<()> {
    for function in [LOGICAL_UNIT_RESET, TARGET_WARM_RESET] {
        let cluster = Cluster::with_volumes(&["disk0=64MiB", "disk1=64MiB"])?;
        let mut victim = log_in_holding_r2t(&cluster)?;
        let mut stranger = log_in(&cluster, "disk1")?;
        let mut resetter = log_in(&cluster, "disk0")?;
        let r2t = begin_unfinished_write(&mut victim, 0)?;
        ensure!(resetter.manage_tasks(function, 0, None)? == COMPLETE);
        // The status waits for the data that was asked for, and none is asked for any more (RFC 7143, 4.2.3.3).
        victim.answer(r2t)?;
        let ended = victim.wait_for(|event| match event {
            Event::Completion(completion) if completion.task_tag == r2t.task_tag => Some(completion.clone()),
            _ => None,
        })?;
        ensure!(ended.status == status::TASK_ABORTED, "TAS=1: {ended:02x?}");
        for session in [&mut victim, &mut resetter] {
            let attention = session.execute(Command::test_unit_ready())?;
            let sense = attention.sense().with_context(|| format!("{attention:02x?}"))?;
            ensure!(sense.key == 6 && sense.code.0 == 0x29, "{sense:02x?}");
            settle(session)?;
        }
        let other = stranger.execute(Command::test_unit_ready())?;
        ensure!(other.is_good(), "another volume's session has noticed: {other:02x?}");
        ensure!(read(&mut victim, 0, 1)? == vec![0; SECTOR]);
    }
    Ok(())
}

/// Many large WRITE SAMEs of 0xaa from the beginning, none waited for: they keep storage busy for a while.
fn keep_storage_busy(session: &mut Session) -> Result<()> {
    let blocks = u32::try_from((8 << 20) / SECTOR)?;
    let mut cdb = vec![0x93, 0];
    cdb.extend_from_slice(&0_u64.to_be_bytes());
    cdb.extend_from_slice(&blocks.to_be_bytes());
    cdb.extend_from_slice(&[0, 0]);
    for _ in 0..80 {
        session.submit(Command::data_out(cdb.clone(), vec![0xaa; SECTOR]))?;
    }
    Ok(())
}

/// The blocks that `session` has just written must keep what it wrote, whatever was under way before.
fn ensure_stays(session: &mut Session, byte: u8) -> Result<()> {
    write(session, 0, vec![byte; 8 * SECTOR])?;
    for round in 0..300 {
        ensure!(read(session, 0, 8)? == vec![byte; 8 * SECTOR], "an old write came through, read {round}");
    }
    Ok(())
}

#[test]
fn a6_write_after_repeated_relogins_is_never_overwritten_by_the_old_sessions() -> Result<()> {
    // Idle connections move the last session to another thread of the gateway, whose stream overtakes that of the first.
    for (relogins, idle) in [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)] {
        let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
        let login = Login::to(&cluster.target("disk0")?);
        let mut first = login.connect(cluster.portal()?)?;
        settle(&mut first)?;
        keep_storage_busy(&mut first)?;
        let mut later = Vec::new();
        for _ in 1..relogins {
            later.push(login.connect(cluster.portal()?)?);
        }
        for _ in 0..idle {
            later.push(Login::to(&cluster.target("disk0")?).connect(cluster.portal()?)?);
        }
        let mut last = login.connect(cluster.portal()?)?;
        settle(&mut last)?;
        ensure_stays(&mut last, 0x55).with_context(|| format!("{relogins} relogins, {idle} idle"))?;
    }
    Ok(())
}

#[test]
fn a13_reset_after_a_relogin_is_answered_when_the_old_sessions_writes_are_settled() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let stranger = Login::to(&cluster.target("disk0")?).as_initiator("iqn.2001-04.com.example:other");
    let mut other = stranger.connect(cluster.portal()?)?;
    settle(&mut other)?;
    let login = Login::to(&cluster.target("disk0")?);
    let mut first = login.connect(cluster.portal()?)?;
    settle(&mut first)?;
    keep_storage_busy(&mut first)?;
    let _second = login.connect(cluster.portal()?)?;
    ensure!(other.manage_tasks(LOGICAL_UNIT_RESET, 0, None)? == COMPLETE);
    settle(&mut other)?;
    ensure_stays(&mut other, 0x66)
}
