//! NOP and logins are never behind I/O: they are answered while storage is stuck (field report 7).

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::{Command, Event, Login};
use holdfast_tests::process::Signal;
use holdfast_tests::split::Split;

use crate::support::{SECTOR, log_in, read, settle, write};

/// An answer that waited for storage would take as long as the storage is frozen: for ever.
const AT_ONCE: Duration = Duration::from_secs(3);

#[test]
fn ping_when_storage_is_frozen_then_answered_at_once() -> Result<()> {
    let mut split = Split::start()?;
    let login = Login::to(&split.target());
    let mut session = login.connect(split.portal())?;
    settle(&mut session)?;
    write(&mut session, 0, vec![1; SECTOR])?;

    split.storage().signal(Signal::Stop)?;
    let writes: Vec<u64> = (0..8).collect();
    for number in &writes {
        session.submit(Command::write_16(number * 8, vec![2; 8 * SECTOR], SECTOR))?;
    }
    let started = Instant::now();
    for number in 0..10_u8 {
        ensure!(session.ping(&[number; 100])? == [number; 100]);
    }
    let pinged = started.elapsed();
    let mut newcomer = Login::to(&split.target()).connect(split.portal())?;
    ensure!(newcomer.ping(b"hello")? == b"hello");
    let logged_in = started.elapsed();
    ensure!(session.outstanding() == writes.len(), "{} outstanding", session.outstanding());
    ensure!(pinged < AT_ONCE && logged_in < 2 * AT_ONCE, "{pinged:?} {logged_in:?}");

    split.storage().signal(Signal::Continue)?;
    for _ in &writes {
        session
            .wait_for(|event| matches!(event, Event::Completion(completion) if completion.is_good()).then_some(()))?;
    }
    ensure!(read(&mut session, 0, 64)? == vec![2; 64 * SECTOR]);
    Ok(())
}

#[test]
fn a4_abort_when_storage_is_frozen_then_answered_only_when_settled() -> Result<()> {
    let mut split = Split::start()?;
    let mut session = Login::to(&split.target()).connect(split.portal())?;
    settle(&mut session)?;
    split.storage().signal(Signal::Stop)?;
    let tag = session.submit(Command::write_16(0, vec![1; 8 * SECTOR], SECTOR))?;
    // The ping behind it shows that the gateway has taken the write.
    session.ping(b"")?;
    let abort = holdfast_tests::initiator::Bhs::new(0x42, 0x81).with_task_tag(0x9999).with_u32(20, tag);
    let abort = abort.with_u32(32, session.cmd_sn().wrapping_sub(1));
    session.send_numbered(abort, &[])?;
    let early = session.next_event_within(Duration::from_millis(500))?;
    ensure!(early.is_none(), "answered while the write could still land: {early:02x?}");
    split.storage().signal(Signal::Continue)?;
    session.wait_for(|event| matches!(event, Event::TaskManagement { task_tag: 0x9999, .. }).then_some(()))?;
    session.forget(tag);
    // Whatever became of it, it is over: a later write is not undone by it.
    write(&mut session, 0, vec![2; 8 * SECTOR])?;
    for _ in 0..20 {
        ensure!(read(&mut session, 0, 8)? == vec![2; 8 * SECTOR]);
    }
    Ok(())
}

#[test]
fn io_when_the_storage_node_is_restarted_in_between_then_nothing_is_lost() -> Result<()> {
    let mut split = Split::start()?;
    let mut session = Login::to(&split.target()).connect(split.portal())?;
    settle(&mut session)?;
    write(&mut session, 0, vec![1; 8 * SECTOR])?;
    split.restart_storage()?;
    ensure!(read(&mut session, 0, 8)? == vec![1; 8 * SECTOR]);
    write(&mut session, 0, vec![2; 8 * SECTOR])?;
    ensure!(read(&mut session, 0, 8)? == vec![2; 8 * SECTOR]);
    Ok(())
}

#[test]
fn ping_when_the_window_is_full_of_writes_without_data_then_answered() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    session.hold_r2t(true);
    while session.window() > 0 {
        session.submit(Command::write_16(0, vec![1; 1 << 20], SECTOR))?;
        while session.next_event_within(Duration::ZERO)?.is_some() {}
    }
    let started = Instant::now();
    ensure!(session.ping(b"still there?")? == b"still there?");
    ensure!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    // Others are not held up by it.
    let mut other = log_in(&cluster, "disk0")?;
    write(&mut other, 0, vec![3; SECTOR])
}
