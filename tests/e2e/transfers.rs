//! Data in and out under every combination of what can be negotiated, and residual counts.

use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::session::Residual;
use holdfast_tests::initiator::{Command, Login};
use holdfast_tests::random::run_seed;
use holdfast_tests::verify::{Outcome, Writer};
use holdfast_tests::{report, tools};

use crate::support::{SECTOR, log_in, read, settle, write};

#[test]
fn writes_when_parameters_vary_then_every_block_is_right() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB", "disk4k=64MiB,block-size=4096"])?;
    let lengths = [("512", "512", "512"), ("8192", "4096", "16384"), ("262144", "65536", "1048576")];
    for (volume, block_bytes) in [("disk0", 512), ("disk4k", 4096)] {
        for initial_r2t in ["Yes", "No"] {
            for immediate_data in ["Yes", "No"] {
                for (receive, first_burst, max_burst) in lengths {
                    let case = format!("{volume} {initial_r2t} {immediate_data} {receive} {first_burst} {max_burst}");
                    let login = Login::to(&cluster.target(volume)?)
                        .with("InitialR2T", initial_r2t)
                        .with("ImmediateData", immediate_data)
                        .with("MaxRecvDataSegmentLength", receive)
                        .with("FirstBurstLength", first_burst)
                        .with("MaxBurstLength", max_burst)
                        .with("MaxOutstandingR2T", "2");
                    one_case(&cluster, &login, block_bytes).context(case)?;
                }
            }
        }
    }
    Ok(())
}

fn one_case(cluster: &Cluster, login: &Login, block_bytes: u64) -> Result<()> {
    let seed = run_seed();
    let mut session = login.connect(cluster.portal()?)?;
    settle(&mut session)?;
    // Each case has what it writes checked; the region starts as the last case has left it, so it is emptied first.
    let region_blocks = 512;
    let blocks = u32::try_from(region_blocks * 4096 / block_bytes)?;
    ensure!(session.execute(Command::unmap(0, blocks))?.is_good(), "UNMAP");
    let mut writer = Writer::new(seed, region_blocks, block_bytes, 16);
    let writes = u64::try_from(report::count(60, 600))?;
    let outcome = writer.run(&mut session, writes, &AtomicU64::new(0)).with_context(|| format!("seed {seed}"))?;
    ensure!(outcome == Outcome::Done, "disconnected");
    writer.check(&mut session).with_context(|| format!("seed {seed}"))
}

#[test]
fn read_when_expected_length_differs_then_residual_says_by_how_much() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    write(&mut session, 0, vec![5; 4 * SECTOR])?;
    let mut command = Command::read_16(0, 2, SECTOR);
    command.data_in_len_bytes = 4 * SECTOR;
    let short = session.execute(command.clone())?;
    ensure!(short.is_good() && short.data_in.len() == 2 * SECTOR, "{short:02x?}");
    ensure!(short.residual == Residual::Underflow(1024), "{:?}", short.residual);
    command.data_in_len_bytes = SECTOR;
    let long = session.execute(command)?;
    ensure!(long.data_in == vec![5; SECTOR], "{} bytes", long.data_in.len());
    ensure!(long.residual == Residual::Overflow(512), "{:?}", long.residual);
    Ok(())
}

#[test]
fn write_when_expected_length_is_longer_then_underflow_and_no_more_is_written() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    let mut command = Command::write_16(0, vec![6; 2 * SECTOR], SECTOR);
    command.data_out = vec![6; 4 * SECTOR].into();
    let written = session.execute(command)?;
    ensure!(written.residual == Residual::Underflow(1024), "{written:02x?}");
    let expected = [vec![6; 2 * SECTOR], vec![0; 2 * SECTOR]].concat();
    ensure!(read(&mut session, 0, 4)? == expected, "more was written than the CDB says");
    Ok(())
}

#[test]
fn unmap_when_done_then_zeros() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    write(&mut session, 0, vec![1; 128 * 1024])?;
    ensure!(session.execute(Command::unmap(16, 64))?.is_good());
    let data = read(&mut session, 0, 256)?;
    let zeros = data.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at / SECTOR);
    ensure!(zeros.clone().min() == Some(16) && zeros.clone().max() == Some(79), "{:?}", zeros.max());
    Ok(())
}

#[test]
fn capacity_when_block_size_is_4096_then_libiscsi_sees_it() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk4k=64MiB,block-size=4096", "disk0=64MiB"])?;
    for (volume, last, length) in [("disk4k", "16383", "4096"), ("disk0", "131071", "512")] {
        let shown = tools::iscsi_readcapacity16(&cluster.url(volume)?)?.succeeded()?.output();
        ensure!(shown.contains(last) && shown.contains(length), "{shown}");
    }
    Ok(())
}

#[test]
fn volume_when_read_only_then_writes_get_data_protect() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB,read-only"])?;
    let mut session = log_in(&cluster, "disk0")?;
    let refused = session.execute(Command::write_16(0, vec![1; SECTOR], SECTOR))?;
    let sense = refused.sense().context("no sense")?;
    ensure!(sense.key == 7 && sense.code == (0x27, 0), "{sense:02x?}");
    ensure!(read(&mut session, 0, 1)? == vec![0; SECTOR]);
    Ok(())
}
