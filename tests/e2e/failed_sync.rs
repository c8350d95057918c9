//! A sync that fails: what the disk has after it nobody knows, so the device is over, whatever later syncs say.
//!
//! strace lets one sync fail and is then detached, so that later ones succeed. A binary that tries again, or that goes on
//! with the next write, gives itself away by a GOOD. Each kind of sync fails alone: where several fail at once, one that is taken
//! seriously hides one that is not.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::Session;
use holdfast_tests::initiator::session::Completion;
use holdfast_tests::injection::Injection;
use holdfast_tests::random::run_seed;
use holdfast_tests::verify::{Mix, Unreadable, Writer};
use holdfast_tests::{http, report, wait};

use crate::support::log_in;

const REGION_BLOCKS: u64 = 1024;
const BLOCK_BYTES: u64 = 512;
const DEPTH: usize = 16;
/// Writes before the failure.
const WRITES: u64 = 300;
/// Writes during which a sync must come along.
const WRITES_TO_A_SYNC: usize = 1000;
/// Writes after the failure, one after the other.
const WRITES_AFTERWARDS: usize = 30;
/// Errors in the log: the device's failure, and perhaps of the first requests that it hits, but not one for each request.
const MAX_ERRORS: usize = 3;
/// How long a sync may take to come along; a checkpoint comes when nothing was written for some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Everything that makes data durable. A binary that uses another call is found by not failing.
const SYNCS: &str = "fdatasync,fsync,sync_file_range,pwritev2";

/// Which syncs fail.
#[derive(Clone, Copy, Debug)]
enum Failing {
    /// The first one of each thread.
    All,
    /// That of a batch of writes, before they are acknowledged.
    Batch,
    /// That of a file that has grown.
    Growth,
    /// The same because the disk is full: still, what else the sync was for is not known to be there.
    GrowthOnFullDisk,
    /// That of the slots that a checkpoint has written.
    Checkpoint,
    /// That of the catalogue, with which a checkpoint ends.
    Catalogue,
}

impl Failing {
    const EACH: [Self; 6] =
        [Self::All, Self::Batch, Self::Growth, Self::GrowthOnFullDisk, Self::Checkpoint, Self::Catalogue];

    /// The thread, the call, and the number of the call. The file grows with fsync and everything else uses fdatasync.
    fn place(self) -> (Option<&'static str>, &'static str, u32) {
        match self {
            Self::All => (None, SYNCS, 1),
            Self::Batch => (Some("store-commit"), SYNCS, 1),
            Self::Growth | Self::GrowthOnFullDisk => (Some("store-upkeep"), "fsync", 1),
            Self::Checkpoint => (Some("store-upkeep"), "fdatasync", 1),
            Self::Catalogue => (Some("store-upkeep"), "fdatasync", 2),
        }
    }

    /// The error, and how it reads.
    fn error(self) -> (&'static str, &'static str) {
        match self {
            Self::GrowthOnFullDisk => ("ENOSPC", "No space left on device"),
            _ => ("EIO", "Input/output error"),
        }
    }
}

#[test]
fn c2_writes_when_one_sync_has_failed_then_no_good_any_more_and_nothing_is_lost() -> Result<()> {
    let seed = run_seed();
    let folder = tempfile::tempdir()?;
    if let Err(reason) = Injection::is_possible(folder.path()) {
        report::skipped("a sync that fails", &reason);
        return Ok(());
    }
    let rounds = report::count(1, 10);
    for round in 0..rounds {
        for failing in Failing::EACH {
            one_failure(failing, seed.wrapping_add(round as u64))
                .with_context(|| format!("{failing:?}, round {round}, HOLDFAST_SEED={seed}"))?;
        }
    }
    let failures = rounds * Failing::EACH.len();
    report::figure("a sync that fails", format!("{failures} failures, no GOOD after any, nothing lost"));
    Ok(())
}

fn one_failure(failing: Failing, seed: u64) -> Result<()> {
    let mut cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut writer = Writer::new(seed, REGION_BLOCKS, BLOCK_BYTES, DEPTH).with_mix(Mix::ChunksAndUnmaps);
    let mut session = log_in(&cluster, "disk0")?;
    writer.run(&mut session, WRITES, &AtomicU64::new(0))?;

    let trace = cluster.folder().join("trace");
    let (thread, calls, number) = failing.place();
    let expressions = [format!("trace={SYNCS}"), format!("inject={calls}:error={}:when={number}", failing.error().0)];
    let injection = Injection::attach(cluster.server()?, thread, &expressions.each_ref().map(String::as_str), &trace)?;
    let ends = writer.run_to_refusal(&mut session, WRITES_TO_A_SYNC)?;
    wait::until("a sync that fails", PATIENCE, || Ok((injection.injected()? > 0).then_some(())))?;
    let failed = injection.trace()?;
    injection.detach()?;
    judge(failing, &mut cluster, &mut writer, &mut session, ends).with_context(|| format!("what was synced:\n{failed}"))
}

/// A sync has failed, and the disk is well again.
fn judge(
    failing: Failing,
    cluster: &mut Cluster,
    writer: &mut Writer,
    session: &mut Session,
    mut ends: Vec<Completion>,
) -> Result<()> {
    if matches!(failing, Failing::Growth | Failing::Checkpoint | Failing::Catalogue)
        && ends.iter().all(Completion::is_good)
    {
        // It has failed behind the back of the writes; the thread has to get as far as to say so.
        wait::until("the end of the device", PATIENCE, || {
            Ok((http::get(cluster.node_http()?, "/readyz")?.status == 503).then_some(()))
        })?;
        ends = writer.run_to_refusal(session, 1)?;
    }
    let refused = ends.iter().find(|end| !end.is_good()).context("a sync has failed and every write got GOOD")?;
    // HARDWARE ERROR: nothing that the host repeats would help (SPC-4, 4.5.6).
    ensure!(refused.sense().is_some_and(|sense| sense.key == 0x4), "a write ended with {refused:02x?}");

    for number in 0..WRITES_AFTERWARDS {
        let ends = writer.run_to_refusal(session, 1)?;
        ensure!(ends.iter().all(|end| !end.is_good()), "write {number} after the failure got GOOD");
    }
    reads_are_right_or_fail(writer, session)?;
    failure_is_told(cluster, failing.error().1)?;

    cluster.kill()?;
    cluster.start().context("the start after the failure")?;
    let mut session = log_in(cluster, "disk0")?;
    writer.check(&mut session).context("after the restart")?;
    writer.run(&mut session, WRITES, &AtomicU64::new(0)).context("writes after the restart")?;
    writer.check(&mut session)
}

/// What is read settles a block, so that a write without GOOD that was read before the restart must be there after it.
fn reads_are_right_or_fail(writer: &mut Writer, session: &mut Session) -> Result<()> {
    match writer.check(session) {
        Err(error) if error.is::<Unreadable>() => Ok(()),
        judged => judged.context("reads after the failure"),
    }
}

fn failure_is_told(cluster: &Cluster, cause: &str) -> Result<()> {
    let metrics = http::get(cluster.node_http()?, "/metrics")?.body;
    let told =
        metrics.lines().any(|line| line.contains("device_failed") && !line.starts_with('#') && !line.ends_with(" 0"));
    ensure!(told, "/metrics does not tell:\n{metrics}");
    let ready = http::get(cluster.node_http()?, "/readyz")?;
    ensure!(ready.status == 503, "/readyz says {}: {}", ready.status, ready.body);
    let log = cluster.log();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("ERROR")).collect();
    ensure!(errors.iter().any(|line| line.contains(cause)), "no error in the log that names the cause: {errors:#?}");
    ensure!(errors.len() <= MAX_ERRORS, "one failure, {} errors in the log: {errors:#?}", errors.len());
    Ok(())
}
