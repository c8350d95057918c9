//! Small things that several modules use.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::login::INITIATOR;
use holdfast_tests::initiator::{Command, Login, LoginError, Session};
use holdfast_tests::process::Finished;

/// Logical block length of the volumes in these tests unless they say otherwise.
pub(crate) const SECTOR: usize = 512;

/// A session to `volume`, past its unit attentions.
pub(crate) fn log_in(cluster: &Cluster, volume: &str) -> Result<Session> {
    let mut session = Login::to(&cluster.target(volume)?).connect(cluster.portal()?)?;
    settle(&mut session)?;
    Ok(session)
}

/// Takes the unit attentions of a new session.
pub(crate) fn settle(session: &mut Session) -> Result<()> {
    let ready = session.execute_past_attentions(Command::test_unit_ready())?;
    ensure!(ready.is_good(), "TEST UNIT READY: {ready:02x?}");
    Ok(())
}

/// Writes `data` at a logical block; fails unless it gets GOOD.
pub(crate) fn write(session: &mut Session, lba: u64, data: Vec<u8>) -> Result<()> {
    let written = session.execute(Command::write_16(lba, data, SECTOR))?;
    ensure!(written.is_good(), "WRITE at {lba}: {written:02x?}");
    Ok(())
}

/// Reads `blocks` logical blocks; fails unless it gets GOOD.
pub(crate) fn read(session: &mut Session, lba: u64, blocks: u32) -> Result<Vec<u8>> {
    let read = session.execute(Command::read_16(lba, blocks, SECTOR))?;
    ensure!(read.is_good(), "READ at {lba}: {:02x} {:02x?}", read.status, read.sense);
    Ok(read.data_in)
}

/// Status class and detail with which the target refuses a login; fails when it does not.
pub(crate) fn refusal(cluster: &Cluster, login: &Login) -> Result<(u8, u8)> {
    match login.connect(cluster.portal()?) {
        Ok(_) => anyhow::bail!("the login succeeded: {login:?}"),
        Err(LoginError::Refused { class, detail }) => Ok((class, detail)),
        Err(error) => Err(error.into()),
    }
}

/// The name of the harness' initiator.
pub(crate) fn initiator() -> &'static str {
    INITIATOR
}

/// Fails unless the command has refused in one line that contains all `words`.
pub(crate) fn ensure_refused(finished: Finished, words: &[&str]) -> Result<()> {
    let finished = finished.failed()?;
    // What is logged on the way there is no part of the refusal.
    let is_log = |line: &str| [" INFO ", " WARN "].iter().any(|level| line.contains(level));
    let lines: Vec<&str> = finished.stderr.lines().filter(|line| !line.trim().is_empty() && !is_log(line)).collect();
    ensure!(lines.len() == 1, "not one line: {:?}", finished.output());
    for word in words {
        ensure!(lines[0].contains(word), "{:?} does not say {word:?}", lines[0]);
    }
    Ok(())
}
