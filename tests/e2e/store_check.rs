//! `holdfast store check` and `holdfast store dump`: on a node that is stopped, killed, damaged, or in use.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_tests::binary;
use holdfast_tests::cluster::Cluster;
use holdfast_tests::initiator::Command as ScsiCommand;
use holdfast_tests::process::{Finished, run};
use serde_json::Value;

use crate::support::{SECTOR, log_in, read, write};

const DEADLINE: Duration = Duration::from_secs(60);

/// Sectors of a block, and of a chunk.
const BLOCK: usize = 8;
const CHUNK: usize = 128;

fn store(arguments: &[&str], dir: &Path) -> Result<Finished> {
    let mut command = Command::new(binary::holdfast()?);
    command.arg("store").args(arguments).arg(dir);
    run(command, DEADLINE)
}

fn node_dir(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().join("node1")
}

fn ensure_code(finished: &Finished, code: i32) -> Result<()> {
    ensure!(finished.status.code() == Some(code), "{}: {}", finished.status, finished.output());
    Ok(())
}

fn json(arguments: &[&str], dir: &Path, code: i32) -> Result<Value> {
    let finished = store(&[arguments, &["--output", "json"]].concat(), dir)?;
    ensure_code(&finished, code)?;
    serde_json::from_str(&finished.stdout).with_context(|| finished.output())
}

/// A chunk, and a block of the next one.
fn fill(cluster: &Cluster) -> Result<()> {
    let mut session = log_in(cluster, "disk0")?;
    write(&mut session, 0, vec![0x11; CHUNK * SECTOR])?;
    write(&mut session, CHUNK as u64, vec![0x22; BLOCK * SECTOR])
}

#[test]
fn store_check_when_a_slot_is_changed_then_the_block_is_named_and_only_it_is_a_medium_error() -> Result<()> {
    let mut cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    fill(&cluster)?;
    ensure!(cluster.stop()?.success());
    let dir = node_dir(&cluster);
    let finished = store(&["check"], &dir)?;
    ensure_code(&finished, 0)?;
    ensure!(finished.stdout.contains("clean: 1 volumes, 1 shards, 2 chunks"), "{}", finished.stdout);

    let dump = json(&["dump", "--map", "disk0"], &dir, 0)?;
    let slot = dump["entry"][0]["slot"].as_u64().context("chunk 0 has no slot")?;
    let slots_offset = dump["superblock"][0]["slots_offset"].as_u64().context("no superblock")?;
    let data = fs::OpenOptions::new().write(true).open(dir.join("data"))?;
    // The third block of the chunk.
    data.write_all_at(b"rot", slots_offset + slot * 65_536 + 2 * 4096 + 5)?;
    data.sync_all()?;

    let finished = store(&["check"], &dir)?;
    ensure_code(&finished, 1)?;
    let expected = "damage: volume disk0, bytes 8192 to 12288: ";
    ensure!(finished.stdout.starts_with(expected), "{}", finished.stdout);
    let report = json(&["check"], &dir, 1)?;
    ensure!(report["findings"][0]["problem"] == "checksum", "{report}");
    ensure!(report["findings"][0]["range"]["start_bytes"] == 8192, "{report}");

    cluster.start()?;
    let mut session = log_in(&cluster, "disk0")?;
    let bad = session.execute(ScsiCommand::read_16(2 * BLOCK as u64, 1, SECTOR))?;
    // MEDIUM ERROR, in fixed or descriptor format.
    ensure!(!bad.is_good() && [bad.sense.get(1), bad.sense.get(2)].contains(&Some(&3)), "{bad:02x?}");
    ensure!(read(&mut session, 0, 16)? == vec![0x11; 16 * SECTOR]);
    ensure!(read(&mut session, 24, 104)? == vec![0x11; 104 * SECTOR]);
    // Written anew it is good.
    write(&mut session, 16, vec![0x33; BLOCK * SECTOR])?;
    drop(session);
    ensure!(cluster.stop()?.success());
    ensure_code(&store(&["check"], &dir)?, 0)
}

#[test]
fn store_check_when_the_node_was_killed_then_clean_and_nothing_is_changed() -> Result<()> {
    let mut cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    fill(&cluster)?;
    cluster.kill()?;
    let dir = node_dir(&cluster);
    let before = contents(&dir)?;
    ensure_code(&store(&["check"], &dir)?, 0)?;
    let dump = json(&["dump", "--journal"], &dir, 0)?;
    ensure!(dump["batch"].as_array().is_some_and(|batches| !batches.is_empty()), "{dump}");
    ensure!(dump["volume"][0]["name"] == "disk0", "{dump}");
    ensure!(contents(&dir)? == before, "a file was changed");
    Ok(())
}

#[test]
fn store_check_when_it_cannot_be_checked_then_one_line_and_code_2() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let node = node_dir(&cluster);
    let empty = tempfile::tempdir()?;
    let cases = [
        (node.as_path(), "in use by another process"),
        (&cluster.data_dir(), "give "),
        (empty.path(), "no store"),
        (Path::new("/nonexistent/store"), "/nonexistent/store"),
    ];
    for (dir, word) in cases {
        for command in ["check", "dump"] {
            let finished = store(&[command], dir)?;
            ensure_code(&finished, 2)?;
            let lines: Vec<&str> = finished.stderr.lines().collect();
            ensure!(lines.len() == 1 && lines[0].contains(word), "{word}: {:?}", finished.output());
            ensure!(finished.stdout.is_empty(), "{}", finished.stdout);
        }
    }
    ensure!(fs::read_dir(empty.path())?.next().is_none(), "something was made");
    Ok(())
}

/// All files of a node's directory, with their times of change.
fn contents(dir: &Path) -> Result<Vec<(PathBuf, u64, std::time::SystemTime)>> {
    let mut files = Vec::new();
    for folder in [dir.to_owned(), dir.join("catalogue")] {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            files.push((entry.path(), metadata.len(), metadata.modified()?));
        }
    }
    files.sort();
    Ok(files)
}
