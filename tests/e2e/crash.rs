//! `kill -9` in the middle of writes: whatever got GOOD is there afterwards, and every block is whole.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_tests::binary;
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::Login;
use holdfast_tests::process::run;
use holdfast_tests::random::{Random, run_seed};
use holdfast_tests::verify::{Mix, Outcome, Writer};
use holdfast_tests::{report, wait};

use crate::support::settle;

/// Blocks of 4 KiB that are written over and over: few, so that overwrites are many.
const REGION_BLOCKS: u64 = 4096;
const ROUNDS: usize = 10;

#[test]
fn writes_when_killed_then_every_good_one_is_there() -> Result<()> {
    let seed = run_seed();
    for (volume, block_bytes) in [("disk0=64MiB", 512), ("disk0=64MiB,block-size=4096", 4096)] {
        kill_rounds(volume, block_bytes, seed).with_context(|| format!("{volume}, HOLDFAST_SEED={seed}"))?;
    }
    Ok(())
}

fn kill_rounds(volume: &str, block_bytes: u64, seed: u64) -> Result<()> {
    let mut cluster = Cluster::with_volumes(&[volume])?;
    let mut random = Random::from_seed(seed);
    let mut writer = Writer::new(seed, REGION_BLOCKS, block_bytes, 32).with_mix(Mix::ChunksAndUnmaps);
    let rounds = report::count(ROUNDS, 200);
    let acknowledged = AtomicU64::new(0);
    for round in 0..rounds {
        let login = Login::to(&cluster.target("disk0")?);
        let mut session = login.connect(cluster.portal()?)?;
        settle(&mut session)?;
        // Often soon, sometimes so late that the store has checkpointed meanwhile.
        let more = if random.below(4) == 0 { 2000 + random.below(2000) } else { 1 + random.below(400) };
        let until = acknowledged.load(Ordering::Relaxed) + more;
        let outcome = std::thread::scope(|scope| {
            let load = scope.spawn(|| writer.run(&mut session, u64::MAX, &acknowledged));
            wait::until("some writes", Duration::from_secs(60), || {
                let enough = acknowledged.load(Ordering::Relaxed) >= until || load.is_finished();
                Ok(enough.then_some(()))
            })?;
            cluster.kill()?;
            load.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the load has panicked")))
        })?;
        ensure!(outcome == Outcome::Disconnected);
        store_is_clean(&cluster).with_context(|| format!("after kill {round}"))?;
        cluster.start().with_context(|| format!("start {round}"))?;
        let mut session = login_again(&cluster)?;
        writer.check(&mut session).with_context(|| format!("after kill {round}"))?;
    }
    report::figure(
        &format!("kill -9 during writes, blocks of {block_bytes}"),
        format!(
            "{rounds} kills, each time `store check` clean, {} writes and unmaps with GOOD, none lost",
            acknowledged.load(Ordering::Relaxed)
        ),
    );
    Ok(())
}

/// What the kill has left, as it is, before any start repairs it.
fn store_is_clean(cluster: &Cluster) -> Result<()> {
    let mut check = Command::new(binary::holdfast()?);
    check.args(["store", "check"]).arg(cluster.data_dir().join("node1"));
    let finished = run(check, Duration::from_secs(60))?;
    ensure!(finished.status.success() && finished.stdout.contains("clean: "), "{}", finished.output());
    Ok(())
}

fn login_again(cluster: &Cluster) -> Result<holdfast_tests::initiator::Session> {
    let mut session = Login::to(&cluster.target("disk0")?).connect(cluster.portal()?)?;
    settle(&mut session)?;
    Ok(session)
}

#[test]
fn start_when_killed_while_starting_then_starts_again() -> Result<()> {
    let mut cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let seed = run_seed();
    let mut writer = Writer::new(seed, 1024, 512, 16);
    let mut session = login_again(&cluster)?;
    writer.run(&mut session, 200, &AtomicU64::new(0))?;
    cluster.kill()?;
    let mut random = Random::from_seed(seed);
    for round in 0..report::count(10, 100) {
        let mut server = holdfast_tests::process::Server::start(cluster.command()?, &cluster.folder().join("log"))?;
        // Anywhere between the first instruction and readiness.
        let patience = Duration::from_millis(random.below(60));
        let _ = wait::until("its own end", patience, || server.exited());
        server.kill().with_context(|| format!("round {round}"))?;
    }
    cluster.start()?;
    writer.check(&mut login_again(&cluster)?).with_context(|| format!("HOLDFAST_SEED={seed}"))
}
