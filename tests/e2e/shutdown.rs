//! Orderly stops and restarts, and what is reported while running.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use holdfast_tests::cluster::{Cluster, Options};
use holdfast_tests::http;
use holdfast_tests::initiator::Event;

use crate::support::{SECTOR, log_in, read, write};

/// Async event "target requests logout" (RFC 7143, 11.9.1).
const LOGOUT_REQUEST: u8 = 1;

#[test]
fn stop_when_no_session_then_quick_and_cluster_json_is_gone() -> Result<()> {
    let mut cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let file = cluster.data_dir().join("cluster.json");
    ensure!(file.exists());
    let started = Instant::now();
    let status = cluster.stop()?;
    ensure!(status.success(), "{status}");
    ensure!(!file.exists(), "cluster.json is still there");
    ensure!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    Ok(())
}

#[test]
fn stop_when_initiator_is_logged_in_then_asked_to_log_out() -> Result<()> {
    let mut cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    write(&mut session, 0, vec![4; SECTOR])?;
    cluster.signal(holdfast_tests::process::Signal::Terminate)?;
    session.wait_for(|event| match event {
        Event::Async { event: LOGOUT_REQUEST, .. } => Some(()),
        _ => None,
    })?;
    ensure!(session.log_out()? == 0);
    let status = cluster.wait_for_end()?;
    ensure!(status.success(), "{status}");
    cluster.start()?;
    let mut session = log_in(&cluster, "disk0")?;
    ensure!(read(&mut session, 0, 1)? == vec![4; SECTOR]);
    Ok(())
}

#[test]
fn stop_when_initiator_does_not_log_out_then_ends_all_the_same() -> Result<()> {
    let mut cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    write(&mut session, 0, vec![5; SECTOR])?;
    let status = cluster.stop()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn restart_when_volumes_exist_then_same_identity_and_content() -> Result<()> {
    let mut cluster = Options::volumes(&["disk0=64MiB", "null=1GiB,kind=null"]).start()?;
    let identity = |cluster: &Cluster| -> Result<Vec<Vec<u8>>> {
        let mut session = log_in(cluster, "disk0")?;
        let pages = [None, Some(0x80), Some(0x83)].map(holdfast_tests::initiator::Command::inquiry);
        pages.into_iter().map(|command| Ok(session.execute(command)?.data_in)).collect()
    };
    let before = identity(&cluster)?;
    ensure!(before.iter().all(|page| !page.is_empty()));
    cluster.stop()?;
    cluster.start()?;
    ensure!(identity(&cluster)? == before, "the identity has changed");
    cluster.kill()?;
    cluster.start()?;
    ensure!(identity(&cluster)? == before, "the identity has changed");
    Ok(())
}

#[test]
fn null_volume_when_written_then_reads_zeros() -> Result<()> {
    let cluster = Cluster::with_volumes(&["null=1GiB,kind=null"])?;
    let mut session = log_in(&cluster, "null")?;
    write(&mut session, 0, vec![5; 1 << 20])?;
    ensure!(read(&mut session, 0, 2048)? == vec![0; 1 << 20]);
    Ok(())
}

#[test]
fn admin_http_when_running_then_health_readiness_and_metrics() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    write(&mut session, 0, vec![5; 8 * SECTOR])?;
    for address in [cluster.gateway_http()?, cluster.node_http()?] {
        for path in ["/healthz", "/readyz", "/metrics"] {
            let answer = http::get(address, path)?;
            ensure!(answer.status == 200, "{path}: {answer:?}");
        }
    }
    let metrics = cluster.metrics()?;
    let histogram = metrics.names().find(|name| {
        name.starts_with("holdfast_gateway_command_duration_seconds_count")
            && ["disk0", "write", crate::support::initiator()].iter().all(|label| name.contains(label))
    });
    ensure!(histogram.is_some(), "{:?}", metrics.names().collect::<Vec<_>>());
    Ok(())
}
