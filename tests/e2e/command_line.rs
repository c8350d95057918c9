//! What cannot work is refused in one line, with an exit code that is not 0, and nothing is changed on disk.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use holdfast_tests::binary;
use holdfast_tests::cluster::Cluster;
use holdfast_tests::process::{Finished, run};
use tempfile::TempDir;

use crate::support::{SECTOR, ensure_refused, log_in, write};

const DEADLINE: Duration = Duration::from_secs(30);

fn dev(data_dir: &Path, arguments: &[&str]) -> Result<Finished> {
    let mut command = Command::new(binary::holdfast()?);
    command.arg("dev").arg("--data-dir").arg(data_dir).args(arguments);
    run(command, DEADLINE)
}

#[test]
fn dev_when_port_is_in_use_then_refused() -> Result<()> {
    let folder = TempDir::new()?;
    let occupant = TcpListener::bind("127.0.0.1:0")?;
    let port = occupant.local_addr()?.port().to_string();
    let data_dir = folder.path().join("data");
    ensure_refused(dev(&data_dir, &["--iscsi-port", &port])?, &[&port])?;
    ensure!(!data_dir.exists(), "the data directory was made");
    Ok(())
}

#[test]
fn dev_when_directory_cannot_be_written_then_refused() -> Result<()> {
    let folder = TempDir::new()?;
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way")?;
    ensure_refused(dev(&file.join("data"), &["--iscsi-port", "0"])?, &["data"])?;
    ensure_refused(dev(&file, &["--iscsi-port", "0"])?, &["file"])?;
    ensure!(std::fs::read_to_string(&file)? == "in the way");
    ensure_refused(dev(Path::new("/proc/data"), &["--iscsi-port", "0"])?, &["/proc/data"])
}

#[test]
fn dev_when_directory_is_in_use_then_refused_and_the_first_goes_on() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let file = cluster.data_dir().join("cluster.json");
    let before = std::fs::read_to_string(&file)?;
    let mut session = log_in(&cluster, "disk0")?;
    ensure_refused(dev(&cluster.data_dir(), &["--iscsi-port", "0"])?, &["data"])?;
    ensure!(std::fs::read_to_string(&file)? == before, "cluster.json was changed");
    write(&mut session, 0, vec![1; SECTOR])
}

#[test]
fn dev_when_arguments_are_wrong_then_refused() -> Result<()> {
    let folder = TempDir::new()?;
    let data_dir = folder.path().join("data");
    for (arguments, word) in [
        (&["--volume", "disk0=12parsecs"][..], "12parsecs"),
        (&["--volume", "disk0=0"], "disk0=0"),
        (&["--volume", "disk0=1000"], "1000"),
        (&["--volume", "disk0=-1GiB"], "-1GiB"),
        (&["--volume", "disk0=99999999999999999999"], "9999"),
        (&["--volume", "disk0=16777216TiB"], "TiB"),
        (&["--volume", "disk0"], "disk0"),
        (&["--volume", "=1GiB"], "=1GiB"),
        (&["--volume", "Disk 0=1GiB"], "Disk 0"),
        (&["--volume", "disk0=1GiB,block-size=1024"], "1024"),
        (&["--volume", "disk0=1GiB,kind=tape"], "tape"),
        (&["--volume", "disk0=1GiB,colour=blue"], "colour"),
        (&["--volume", "disk0=1GiB", "--volume", "disk0=2GiB"], "disk0"),
        (&["--iscsi-port", "65536"], "65536"),
        (&["--iscsi-port", "none"], "none"),
        (&["--nodes", "3"], "--nodes"),
        (&["--gateways", "2"], "--gateways"),
        (&["--gateways", "0"], "--gateways"),
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--access", "/does/not/exist.toml"], "/does/not/exist.toml"),
    ] {
        let context = || format!("{arguments:?}");
        let finished = dev(&data_dir, arguments)?;
        anyhow::Context::with_context(ensure_refused(finished, &[word]), context)?;
        ensure!(!data_dir.exists(), "{arguments:?}: the data directory was made");
    }
    Ok(())
}

#[test]
fn dev_when_volume_exists_otherwise_then_refused_and_kept() -> Result<()> {
    let mut cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let mut session = log_in(&cluster, "disk0")?;
    write(&mut session, 0, vec![1; SECTOR])?;
    cluster.stop()?;
    for other in ["disk0=128MiB", "disk0=64MiB,block-size=4096", "disk0=64MiB,kind=null", "disk0=64MiB,read-only"] {
        ensure_refused(dev(&cluster.data_dir(), &["--iscsi-port", "0", "--volume", other])?, &["disk0"])?;
    }
    cluster.start()?;
    let mut session = log_in(&cluster, "disk0")?;
    ensure!(crate::support::read(&mut session, 0, 1)? == vec![1; SECTOR]);
    Ok(())
}
