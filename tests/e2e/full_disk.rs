//! A full disk: writes that need space are refused as such, everything else goes on, and what is freed can be used again.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::{Cluster, Options};
use holdfast_tests::http::{self, Metrics};
use holdfast_tests::initiator::session::Completion;
use holdfast_tests::initiator::{Command as ScsiCommand, Session};
use holdfast_tests::mount::Mount;
use holdfast_tests::process::run;
use holdfast_tests::{binary, report};
use tempfile::TempDir;

use crate::support::{SECTOR, log_in, read, write};

/// Enough for the journal, what is kept free for the catalogue, and some data.
const DISK_MIB: u64 = 384;
const MIB_SECTORS: u64 = (1 << 20) / SECTOR as u64;
/// An answer takes no longer, whatever it is.
const PATIENCE: Duration = Duration::from_secs(20);
const CHECK_DEADLINE: Duration = Duration::from_secs(120);

/// A cluster alone on a small file system.
struct Small {
    // Dropped in this order: the process, what it lies on, and the folder of that.
    cluster: Cluster,
    mount: Mount,
    _folder: TempDir,
}

impl Small {
    /// Nothing where none can be mounted.
    fn start(kind: &str) -> Result<Option<Self>> {
        let folder = TempDir::new()?;
        let mounted = match kind {
            "ext4" => Mount::ext4(folder.path(), DISK_MIB),
            _ => Mount::tmpfs(folder.path(), DISK_MIB),
        };
        let mount = match mounted {
            Ok(mount) => mount,
            Err(reason) => {
                report::skipped(&format!("a full disk, {kind}"), &format!("cannot mount one: {reason:#}"));
                return Ok(None);
            }
        };
        let mut cluster = Options::volumes(&["big=1GiB", "other=64MiB"]).prepare()?;
        // Only the node's own directory, not the log.
        let dir = mount.path().join("node1");
        fs::create_dir(&dir)?;
        fs::create_dir(cluster.data_dir())?;
        std::os::unix::fs::symlink(dir, cluster.data_dir().join("node1"))?;
        cluster.start()?;
        Ok(Some(Self { cluster, mount, _folder: folder }))
    }

    fn store_is_clean(&self) -> Result<()> {
        let mut check = Command::new(binary::holdfast()?);
        check.args(["store", "check"]).arg(self.cluster.data_dir().join("node1"));
        let finished = run(check, CHECK_DEADLINE)?;
        ensure!(finished.status.success() && finished.stdout.contains("clean: "), "{}", finished.output());
        Ok(())
    }

    /// Takes all that is left of the file system.
    fn fill_up(&self) -> Result<PathBuf> {
        let filler = self.mount.path().join("filler");
        let file = File::create(&filler)?;
        let mut buffer = vec![0xff; 1 << 20];
        while !buffer.is_empty() {
            use std::io::Write;
            if (&file).write_all(&buffer).is_err() {
                buffer.truncate(buffer.len() / 2);
            }
        }
        Ok(filler)
    }
}

/// The MiB `number`, as it is after `generation` writes.
fn content(number: u64, generation: u8) -> Vec<u8> {
    let seed = u8::try_from(number % 200).unwrap_or_default().wrapping_add(generation);
    (0..=u8::MAX).flat_map(|block| [seed.wrapping_add(block); 4096]).collect()
}

fn try_write(session: &mut Session, number: u64, generation: u8) -> Result<Completion> {
    let started = Instant::now();
    let command = ScsiCommand::write_16(number * MIB_SECTORS, content(number, generation), SECTOR);
    let end = session.execute_past_attentions(command)?;
    ensure!(started.elapsed() < PATIENCE, "the write took {:?}", started.elapsed());
    Ok(end)
}

fn ensure_content(session: &mut Session, number: u64, generation: u8) -> Result<()> {
    let found = read(session, number * MIB_SECTORS, u32::try_from(MIB_SECTORS)?)?;
    ensure!(found == content(number, generation), "MiB {number} is not what was written");
    Ok(())
}

/// SPACE ALLOCATION FAILED WRITE PROTECT (SBC-3, 4.7.3.6), and nothing else.
fn ensure_no_space(end: &Completion) -> Result<()> {
    let sense = end.sense().with_context(|| format!("{end:02x?}"))?;
    ensure!((sense.key, sense.code) == (0x7, (0x27, 0x07)), "{sense:02x?}");
    Ok(())
}

/// Writes one MiB after the other until there is no space; how many got GOOD.
fn write_until_full(session: &mut Session) -> Result<u64> {
    for number in 0..1024 {
        let end = try_write(session, number, 0)?;
        if !end.is_good() {
            ensure_no_space(&end)?;
            return Ok(number);
        }
    }
    anyhow::bail!("1 GiB fits into {DISK_MIB} MiB")
}

#[test]
fn a18_disk_when_full_then_only_writes_that_need_space_are_refused_and_freed_space_is_used_again() -> Result<()> {
    for kind in ["ext4", "tmpfs"] {
        if let Some(small) = Small::start(kind)? {
            full_and_freed(small).context(kind)?;
        }
    }
    Ok(())
}

fn full_and_freed(mut small: Small) -> Result<()> {
    let cluster = &small.cluster;
    let mut other = log_in(cluster, "other")?;
    write(&mut other, 0, vec![7; 64 * 1024])?;
    let mut big = log_in(cluster, "big")?;
    let fit = write_until_full(&mut big)?;
    ensure!(fit >= 64, "only {fit} MiB fit into {DISK_MIB}");

    // It stays so, and it is no failure of the disk.
    for number in [fit, fit + 100, 1023] {
        ensure_no_space(&try_write(&mut big, number, 0)?)?;
    }
    ensure!(http::get(cluster.node_http()?, "/readyz")?.status == 200, "the node is not ready");
    let metrics = Metrics::read(cluster.node_http()?)?;
    ensure!(metrics.sum("holdfast_store_growths_refused_total") > 0.0, "no metric tells");
    ensure!(small.mount.free_bytes()? > 32 << 20, "nothing is left for the catalogue");

    // What is there can be read and written over, whichever volume's it is; and twice, for slots come back.
    for number in 0..fit {
        ensure_content(&mut big, number, 0)?;
    }
    for generation in [1, 2] {
        for number in 0..fit {
            let end = try_write(&mut big, number, generation)?;
            ensure!(end.is_good(), "MiB {number} written over, {generation}: {end:02x?}");
        }
    }
    write(&mut other, 8, vec![9; 4096])?;
    ensure!(read(&mut other, 0, 24)? == [vec![7; 4096], vec![9; 4096], vec![7; 4096]].concat());

    // What is freed is there for others at once.
    let freed = 16;
    let blocks = u32::try_from(freed * MIB_SECTORS)?;
    ensure!(big.execute(ScsiCommand::unmap(0, blocks))?.is_good());
    for number in fit..fit + freed {
        let end = try_write(&mut big, number, 3)?;
        ensure!(end.is_good(), "MiB {number} after {freed} were freed: {end:02x?}");
    }
    ensure!(read(&mut big, 0, 8)? == vec![0; 8 * SECTOR]);
    drop((big, other));

    ensure!(small.cluster.stop()?.success());
    small.store_is_clean()?;
    small.cluster.start()?;
    let mut big = log_in(&small.cluster, "big")?;
    for number in freed..fit + freed {
        ensure_content(&mut big, number, if number < fit { 2 } else { 3 })?;
    }
    report::figure(
        "a full disk",
        format!("{fit} of {DISK_MIB} MiB written, refused, written over, {freed} freed and used again"),
    );
    Ok(())
}

#[test]
fn disk_when_others_fill_it_up_then_nothing_hangs_or_fails_and_it_goes_on_when_they_make_room() -> Result<()> {
    for kind in ["ext4", "tmpfs"] {
        if let Some(small) = Small::start(kind)? {
            filled_by_others(small).context(kind)?;
        }
    }
    Ok(())
}

fn filled_by_others(mut small: Small) -> Result<()> {
    const HELD: u64 = 48;
    let mut session = log_in(&small.cluster, "big")?;
    for number in 0..HELD {
        ensure!(try_write(&mut session, number, 0)?.is_good());
    }
    // Not even the catalogue has room any more: no checkpoint can be written, and the journal runs full.
    let filler = small.fill_up()?;
    let mut last_good = vec![0; usize::try_from(HELD)?];
    let mut refused = 0;
    for generation in 1..9 {
        for number in 0..HELD {
            let end = try_write(&mut session, number, generation)?;
            if end.is_good() {
                last_good[usize::try_from(number)?] = generation;
            } else {
                ensure_no_space(&end)?;
                refused += 1;
            }
        }
    }
    let hold = |session: &mut Session, last_good: &[u8]| -> Result<()> {
        (0..HELD).zip(last_good).try_for_each(|(number, generation)| ensure_content(session, number, *generation))
    };
    hold(&mut session, &last_good)?;
    ensure!(http::get(small.cluster.node_http()?, "/readyz")?.status == 200, "the node is not ready");

    // A start without any room serves, or says what it lacks and leaves everything as it is.
    small.cluster.kill()?;
    let started = small.cluster.start();
    let log = small.cluster.log();
    match &started {
        Ok(()) => {
            hold(&mut log_in(&small.cluster, "big")?, &last_good)?;
            small.cluster.kill()?;
        }
        Err(_) => ensure!(log.lines().last().is_some_and(|line| line.to_lowercase().contains("space")), "{log}"),
    }
    fs::remove_file(filler)?;
    small.store_is_clean()?;
    small.cluster.start()?;
    let mut session = log_in(&small.cluster, "big")?;
    hold(&mut session, &last_good)?;
    for number in 0..HELD {
        ensure!(try_write(&mut session, number, 20)?.is_good());
    }
    (0..HELD).try_for_each(|number| ensure_content(&mut session, number, 20))?;
    report::figure(
        "a disk that others have filled up",
        format!(
            "{refused} of {} writes refused, none lost; a start then {}",
            8 * HELD,
            if started.is_ok() { "serves" } else { "says so" }
        ),
    );
    Ok(())
}
