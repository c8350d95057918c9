//! A node's directory that it must not serve: another's, a later release's, damaged, or closed to it. It is refused in one line that
//! names the file and says what is wrong, and left as it is, so that nothing is lost when somebody puts it right.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::{Cluster, Options};
use holdfast_tests::initiator::crc32c::crc32c;
use holdfast_tests::mount::Mount;
use holdfast_tests::process::{Finished, run};
use holdfast_tests::{binary, report};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{SECTOR, ensure_refused, log_in, read, write};

const DEADLINE: Duration = Duration::from_secs(60);
/// What every store of this test holds at its beginning: a whole chunk, and a part of one.
const CONTENT: (u8, usize) = (0x5a, 192 * SECTOR);
/// User and group that own nothing.
const NOBODY: u32 = 65_534;

/// `holdfast storaged`, which ends by itself when it refuses.
fn storaged(dir: &Path) -> Result<Command> {
    let mut command = Command::new(binary::holdfast()?);
    command.arg("storaged").arg("--data-dir").arg(dir).args(["--listen", "127.0.0.1:0"]);
    command.args(["--http-listen", "127.0.0.1:0"]);
    Ok(command)
}

fn start(dir: &Path) -> Result<Finished> {
    run(storaged(dir)?, DEADLINE)
}

/// A node that was stopped, whose directory is `node1` in the cluster's.
fn stopped() -> Result<Cluster> {
    stopped_with(Options::volumes(&["disk0=64MiB"]))
}

fn stopped_with(options: Options) -> Result<Cluster> {
    let mut cluster = options.start()?;
    let (byte, len) = CONTENT;
    write(&mut log_in(&cluster, "disk0")?, 0, vec![byte; len])?;
    ensure!(cluster.stop()?.success());
    Ok(cluster)
}

fn ensure_serves(cluster: &mut Cluster) -> Result<()> {
    cluster.start()?;
    let (byte, len) = CONTENT;
    ensure!(read(&mut log_in(cluster, "disk0")?, 0, u32::try_from(len / SECTOR)?)? == vec![byte; len]);
    let status = cluster.stop()?;
    ensure!(status.success(), "it ended with {status}: {}", cluster.log());
    Ok(())
}

/// Everything in a folder: names, and lengths and times of change of files.
fn contents(dir: &Path) -> Result<BTreeMap<PathBuf, Option<(u64, SystemTime)>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let metadata = fs::metadata(&path)?;
        found.insert(path.clone(), metadata.is_file().then_some((metadata.len(), metadata.modified()?)));
        if metadata.is_dir() {
            found.extend(contents(&path)?);
        }
    }
    Ok(found)
}

/// Refused by the node in one line that has all `words`, and not good for `store check`; then as it was.
fn ensure_refused_and_kept(dir: &Path, words: &[&str], check: Check) -> Result<()> {
    let before = contents(dir)?;
    ensure_refused(start(dir)?, words)?;
    ensure!(contents(dir)? == before, "something was changed");
    let mut command = Command::new(binary::holdfast()?);
    command.args(["store", "check"]).arg(dir);
    let finished = run(command, DEADLINE)?;
    let (code, told) = match check {
        Check::Clean => (0, finished.stdout.contains(": clean: ")),
        Check::Damage => (1, finished.stdout.starts_with("damage: ")),
        Check::Refuses => (2, finished.stderr.lines().count() == 1),
    };
    ensure!(told && finished.status.code() == Some(code), "store check: {}: {}", finished.status, finished.output());
    ensure!(contents(dir)? == before, "store check has changed something");
    Ok(())
}

/// What `store check` makes of a directory that the node refuses.
enum Check {
    Clean,
    Damage,
    Refuses,
}

/// The file `format` with some bytes replaced and its checksum made right again, from its description alone.
fn forge(format: &Path, offset: usize, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut forged = fs::read(format)?;
    ensure!(forged.len() == 48, "{} bytes", forged.len());
    forged[offset..offset + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c(&forged[..44]);
    forged[44..].copy_from_slice(&crc.to_le_bytes());
    Ok(forged)
}

#[test]
fn c10_node_when_the_directory_is_anothers_or_a_later_releases_then_refused_and_kept() -> Result<()> {
    let mut cluster = stopped()?;
    let dir = cluster.data_dir().join("node1");
    let format = dir.join("format");
    let good = fs::read(&format)?;
    let cases: [(&str, Vec<u8>, &[&str], Check); 5] = [
        ("another node", forge(&format, 32, &7_u64.to_le_bytes())?, &["belongs to node 7", "node 1"], Check::Damage),
        (
            "a later format",
            forge(&format, 8, &3_u32.to_le_bytes())?,
            &["format", "version 3", "newer release"],
            Check::Refuses,
        ),
        (
            "a later layout",
            forge(&format, 12, &2_u32.to_le_bytes())?,
            &["format", "version 2", "newer release"],
            Check::Refuses,
        ),
        ("another disk", forge(&format, 16, &[0xd1; 16])?, &["of disk", "d1d1d1d1"], Check::Damage),
        ("damage", [&good[..20], b"?", &good[21..]].concat(), &["format", "corrupt"], Check::Damage),
    ];
    for (name, bytes, words, check) in cases {
        fs::write(&format, bytes)?;
        ensure_refused_and_kept(&dir, words, check).context(name)?;
    }
    fs::write(&format, good)?;
    ensure_serves(&mut cluster)
}

#[test]
fn c10_node_when_two_processes_want_a_directory_then_the_second_is_refused() -> Result<()> {
    let cluster = Cluster::with_volumes(&["disk0=64MiB"])?;
    let dir = cluster.data_dir().join("node1");
    let mut session = log_in(&cluster, "disk0")?;
    write(&mut session, 0, vec![1; SECTOR])?;
    ensure_refused(start(&dir)?, &["node1", "in use by another process"])?;
    // Whoever removes the file lets nobody in beside the first.
    fs::remove_file(dir.join("lock"))?;
    ensure_refused(start(&dir)?, &["node1"])?;
    write(&mut session, 1, vec![2; SECTOR])?;
    ensure!(read(&mut session, 0, 2)? == [vec![1; SECTOR], vec![2; SECTOR]].concat());
    Ok(())
}

#[test]
fn node_when_the_data_file_is_missing_or_cut_then_refused_and_kept() -> Result<()> {
    let mut cluster = stopped()?;
    let dir = cluster.data_dir().join("node1");
    let mut dump = Command::new(binary::holdfast()?);
    dump.args(["store", "dump", "--output", "json"]).arg(&dir);
    let dump: Value = serde_json::from_str(&run(dump, DEADLINE)?.succeeded()?.stdout)?;
    let slots_offset = dump["superblock"][0]["slots_offset"].as_u64().context("no superblock")?;
    let (data, aside) = (dir.join("data"), cluster.folder().join("aside"));
    fs::rename(&data, &aside)?;
    ensure_refused_and_kept(&dir, &["data", "missing"], Check::Damage).context("missing")?;
    let whole = fs::metadata(&aside)?.len();
    // Nothing, a part of the superblock, one superblock, a part of the journal; and a length that no device has.
    for len in [0, 100, 4096, 1 << 20, whole - 1] {
        beginning_of(&aside, &data, len)?;
        ensure_refused_and_kept(&dir, &["data"], Check::Damage)
            .with_context(|| format!("{len} of {whole} bytes are left"))?;
    }
    // All of the journal, and no slot that holds something. That shows only when the catalogue is open.
    beginning_of(&aside, &data, slots_offset)?;
    ensure_refused(start(&dir)?, &["corrupt"]).context("no slots are left")?;
    fs::remove_file(&data)?;
    fs::rename(&aside, &data)?;
    ensure_serves(&mut cluster)
}

/// Makes `copy` the first `len` bytes of a file.
fn beginning_of(whole: &Path, copy: &Path, len: u64) -> Result<()> {
    io::copy(&mut File::open(whole)?.take(len), &mut File::create(copy)?)?;
    Ok(())
}

#[test]
fn node_when_its_data_file_is_anothers_then_refused_and_kept() -> Result<()> {
    let (cluster, other) = (stopped()?, stopped()?);
    let dir = cluster.data_dir().join("node1");
    for part in ["data", "catalogue"] {
        let (own, theirs) = (dir.join(part), other.data_dir().join("node1").join(part));
        let aside = cluster.folder().join("aside");
        fs::rename(&own, &aside)?;
        fs::rename(&theirs, &own)?;
        ensure_refused(start(&dir)?, &[part, "of disk"]).context(part)?;
        fs::rename(&own, &theirs)?;
        fs::rename(&aside, &own)?;
    }
    for mut node in [cluster, other] {
        ensure_serves(&mut node)?;
    }
    Ok(())
}

#[test]
fn node_when_the_catalogue_is_missing_then_refused_and_none_is_made() -> Result<()> {
    let mut cluster = stopped()?;
    let dir = cluster.data_dir().join("node1");
    let (catalogue, aside) = (dir.join("catalogue"), cluster.folder().join("aside"));
    fs::rename(&catalogue, &aside)?;
    ensure_refused_and_kept(&dir, &["catalogue", "missing"], Check::Damage).context("the folder is missing")?;
    fs::create_dir(&catalogue)?;
    ensure_refused(start(&dir)?, &["catalogue"]).context("the folder is empty")?;
    ensure!(!catalogue.join("CURRENT").exists(), "a catalogue was made");
    fs::remove_dir_all(&catalogue)?;
    fs::rename(&aside, &catalogue)?;
    // RocksDB's own entry point, without which it would take the folder for an empty one.
    fs::rename(catalogue.join("CURRENT"), &aside)?;
    ensure_refused(start(&dir)?, &["catalogue"]).context("CURRENT is missing")?;
    ensure!(!catalogue.join("CURRENT").exists(), "a catalogue was made");
    fs::rename(&aside, catalogue.join("CURRENT"))?;
    ensure_serves(&mut cluster)
}

#[test]
fn node_when_one_superblock_is_damaged_then_it_serves_and_when_both_then_refused_and_kept() -> Result<()> {
    let mut cluster = stopped()?;
    let dir = cluster.data_dir().join("node1");
    let mut both = [0; 8192];
    let data = OpenOptions::new().read(true).write(true).open(dir.join("data"))?;
    data.read_exact_at(&mut both, 0)?;
    for damaged in [0, 4096] {
        data.write_all_at(&[0xee; 4096], damaged)?;
        ensure_serves(&mut cluster).with_context(|| format!("damage at {damaged}"))?;
        data.write_all_at(&both, 0)?;
    }
    data.write_all_at(&[0xee; 8192], 0)?;
    ensure_refused_and_kept(&dir, &["data", "corrupt"], Check::Damage)?;
    data.write_all_at(&both, 0)?;
    ensure_serves(&mut cluster)
}

#[test]
fn node_when_the_file_system_is_read_only_then_refused_and_can_be_checked() -> Result<()> {
    let folder = TempDir::new()?;
    let mount = match Mount::ext4(folder.path(), 512) {
        Ok(mount) => mount,
        Err(reason) => {
            report::skipped("a directory on a read-only file system", &format!("cannot mount one: {reason:#}"));
            return Ok(());
        }
    };
    let mut cluster = stopped_with(Options::volumes(&["disk0=64MiB"]).inside(mount.path()))?;
    let dir = cluster.data_dir().join("node1");
    mount.set_read_only(true)?;
    let refused = ensure_refused_and_kept(&dir, &["node1", "Read-only file system"], Check::Clean);
    mount.set_read_only(false)?;
    refused?;
    ensure_serves(&mut cluster)
}

#[test]
fn node_when_permission_is_refused_then_one_line_and_kept() -> Result<()> {
    let folder = TempDir::new()?;
    if fs::metadata(folder.path())?.uid() != 0 {
        report::skipped("a directory that permission is refused for", "only root can become another user");
        return Ok(());
    }
    let mut cluster = stopped()?;
    let dir = cluster.data_dir().join("node1");
    // Root may do everything, so nobody tries; with a binary that nobody can reach.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let holdfast = folder.path().join("holdfast");
    let own = binary::holdfast()?;
    fs::hard_link(&own, &holdfast).or_else(|_| fs::copy(&own, &holdfast).map(|_| ()))?;
    for open in [cluster.folder(), &cluster.data_dir()] {
        fs::set_permissions(open, Permissions::from_mode(0o755))?;
    }
    let try_it = |words: &[&str]| {
        let with_binary = storaged(&dir)?;
        let mut command = Command::new(&holdfast);
        command.args(with_binary.get_args()).uid(NOBODY).gid(NOBODY);
        let before = contents(&dir)?;
        ensure_refused(run(command, DEADLINE)?, words)?;
        ensure!(contents(&dir)? == before, "something was changed");
        Ok(())
    };
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    set(&dir, 0o700)?;
    try_it(&["node1", "Permission denied"]).context("a directory that cannot be entered")?;
    set(&dir, 0o755)?;
    set(&dir.join("lock"), 0o644)?;
    try_it(&["lock", "Permission denied"]).context("a lock that cannot be written")?;
    set(&dir.join("lock"), 0o666)?;
    set(&dir.join("data"), 0o600)?;
    try_it(&["data", "Permission denied"]).context("a data file that cannot be read")?;
    ensure_serves(&mut cluster)
}
