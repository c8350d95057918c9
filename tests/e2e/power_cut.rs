//! Power cuts in the middle of writes: `kill -9` of a virtual machine together with its disk's volatile cache.
//!
//! In the guest run a storage node and a gateway; the writer is outside, so what it was told is not lost with the guest. Two
//! tests show that the first one can fail: a disk that lies about flushes, and a binary that does not sync.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use holdfast_tests::initiator::{Login, Session};
use holdfast_tests::process::run;
use holdfast_tests::random::{Random, run_seed};
use holdfast_tests::verify::{Mix, Outcome, Unreadable, Violation, Writer};
use holdfast_tests::vm::{self, Disk, Flushes, Guest, GuestFailed, Image, Options, Unflushed, image};
use holdfast_tests::{binary, report, wait};
use tempfile::TempDir;

use crate::support::settle;

const TARGET: &str = "iqn.2026-11.io.holdfast:disk0";
/// The port of the gateway in the guest.
const ISCSI_PORT: u16 = 3260;
const DISK_MIB: u64 = 2048;
/// Blocks of 4 KiB that are written over and over: few, so that overwrites are many.
const REGION_BLOCKS: u64 = 4096;
const BLOCK_BYTES: u64 = 512;
const DEPTH: usize = 32;
/// Power cuts unless `HOLDFAST_POWER_CUTS` says otherwise.
const CUTS: u64 = 20;
/// Power cuts after which a lie of the disk or the binary has to have shown.
const CUTS_TO_NOTICE: u64 = 5;
/// How long the writer may take to what it was told to reach.
const LOAD_DEADLINE: Duration = Duration::from_secs(180);
/// The gateway finds its volumes after it has begun to listen.
const LOGIN_DEADLINE: Duration = Duration::from_secs(60);

/// The machine has no room for two guests that are emulated at once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn writes_when_power_is_cut_then_every_good_one_is_there() -> Result<()> {
    if !vm::wanted("power cut: nothing that got GOOD is lost") {
        return Ok(());
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let started = Instant::now();
    let seed = run_seed();
    let cuts = match std::env::var("HOLDFAST_POWER_CUTS") {
        Ok(text) => text.parse().context("HOLDFAST_POWER_CUTS")?,
        Err(_) => CUTS,
    };
    let mut machine = Machine::new(&binary::holdfast()?, seed)?;
    for cut in 1..=cuts {
        let cut_and_seed = || format!("power cut {cut}, HOLDFAST_SEED={seed}");
        let guest = machine.boot(Flushes::Obeyed).with_context(cut_and_seed)?;
        machine.write_until_cut(guest).with_context(cut_and_seed)?;
    }
    machine.words.push("vm.check".to_owned());
    let guest = machine.boot(Flushes::Obeyed).with_context(|| format!("after the last cut, HOLDFAST_SEED={seed}"))?;
    let check = guest.said("store check").map_or("the binary has no store check", |_| "store check clean");
    guest.cut_power(None)?;
    report::figure(
        "power cuts of a virtual machine",
        format!(
            "{cuts} cuts, {} writes and unmaps with GOOD of {} begun, {} flushes, none lost; of {} unflushed blocks {} written \
             back in spite of the cut; {check}; {} s, of which {} s booting",
            machine.acknowledged.load(Ordering::Relaxed),
            machine.writer.history.begun(),
            machine.flushes,
            machine.unflushed.blocks,
            machine.unflushed.survived,
            started.elapsed().as_secs(),
            machine.booting.as_secs(),
        ),
    );
    Ok(())
}

#[test]
fn writes_when_power_is_cut_and_disk_ignored_flushes_then_loss_is_noticed() -> Result<()> {
    if !vm::wanted("power cut: a disk that ignores flushes is noticed") {
        return Ok(());
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = run_seed();
    let mut machine = Machine::new(&binary::holdfast()?, seed)?;
    let guest = machine.boot(Flushes::Obeyed)?;
    machine.write_until_cut(guest)?;
    machine.honest = false;
    let guest = machine.boot(Flushes::Ignored)?;
    machine.write_until_cut(guest)?;
    let loss = match machine.boot(Flushes::Obeyed) {
        Ok(_) => bail!("a disk that ignores flushes went unnoticed, HOLDFAST_SEED={seed}"),
        Err(error) => loss(error)?,
    };
    report::figure("power cut with a disk that ignores flushes", format!("noticed: {loss}"));
    Ok(())
}

#[test]
fn writes_when_power_is_cut_and_binary_skips_syncs_then_loss_is_noticed() -> Result<()> {
    const TEST: &str = "power cut: a binary that skips syncs is noticed";
    if !vm::wanted(TEST) {
        return Ok(());
    }
    let Some(mutant) = std::env::var_os("HOLDFAST_MUTANT_SKIP_SYNC").map(PathBuf::from) else {
        report::skipped(TEST, "HOLDFAST_MUTANT_SKIP_SYNC names no binary");
        return Ok(());
    };
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = run_seed();
    let mut machine = Machine::new(&mutant, seed)?;
    machine.honest = false;
    for cut in 1..=CUTS_TO_NOTICE {
        match machine.boot(Flushes::Obeyed) {
            Ok(guest) => machine.write_until_cut(guest)?,
            Err(error) => {
                ensure!(cut > 1, error.context("before the first power cut"));
                let loss = loss(error)?;
                report::figure(
                    "power cuts with a binary that skips syncs",
                    format!("noticed after {}: {loss}", cut - 1),
                );
                return Ok(());
            }
        }
    }
    bail!("a binary that skips syncs went unnoticed over {CUTS_TO_NOTICE} power cuts, HOLDFAST_SEED={seed}")
}

#[test]
fn disk_when_pulled_then_what_was_flushed_stays_and_of_the_rest_as_much_as_was_asked_for() -> Result<()> {
    if !vm::wanted("power cut: the disk forgets what was not flushed") {
        return Ok(());
    }
    const BLOCKS: u64 = 64;
    const SECTORS: usize = 512;
    let folder = tempfile::tempdir()?;
    let mut disk = Disk::with_ext4(folder.path(), 8)?;
    let write = |served: &vm::Served, flush: bool, command: &str| -> Result<()> {
        let mut writer = Command::new("qemu-io");
        // It flushes at its end, unless that is a crash.
        writer.args(["-t", "writeback", "-c", command, "-c", if flush { "flush" } else { "abort" }, "--image-opts"]);
        writer.arg(format!("driver=nbd,server.type=unix,server.path={}", served.socket().display()));
        let ended = run(writer, LOGIN_DEADLINE)?;
        ensure!(ended.status.success() == flush, "{ended:?}");
        Ok(())
    };
    let on_disk = |disk: &Disk, byte: u8| -> Result<usize> {
        let bytes = std::fs::read(disk.file())?;
        Ok(bytes[4 << 20..][..SECTORS * 512].iter().filter(|found| **found == byte).count() / 512)
    };

    let served = disk.serve(Flushes::Obeyed)?;
    write(&served, true, "write -P 0x11 4M 256k")?;
    write(&served, false, "write -P 0x22 4M 256k")?;
    let unflushed = served.pull(None)?;
    ensure!(unflushed == Unflushed::default(), "{unflushed:?}");
    ensure!(on_disk(&disk, 0x11)? == SECTORS, "what was flushed is not there");

    let served = disk.serve(Flushes::Obeyed)?;
    write(&served, false, "write -P 0x33 4M 256k")?;
    let unflushed = served.pull(Some(&mut Random::from_seed(1)))?;
    ensure!(unflushed.blocks == BLOCKS && (1..BLOCKS).contains(&unflushed.survived), "{unflushed:?}");
    let survived = on_disk(&disk, 0x33)?;
    let whole = usize::try_from(unflushed.survived)? * 8;
    ensure!(
        (1..whole).contains(&survived),
        "{survived} sectors have survived in {} blocks: none torn",
        unflushed.survived
    );
    ensure!(on_disk(&disk, 0x11)? == SECTORS - survived, "a sector holds neither the old nor the new");
    Ok(())
}

/// What was lost, if the error says that something was; else the error itself.
fn loss(error: anyhow::Error) -> Result<String> {
    let violation = error.downcast_ref::<Violation>().map(ToString::to_string);
    let unreadable = || error.downcast_ref::<Unreadable>().map(ToString::to_string);
    let failed = || error.downcast_ref::<GuestFailed>().map(ToString::to_string);
    violation.or_else(unreadable).or_else(failed).ok_or(error)
}

/// A machine over all its power cuts, and the writer that remembers what it was promised.
struct Machine {
    image: Image,
    payload: PathBuf,
    disk: Disk,
    writer: Writer,
    random: Random,
    acknowledged: AtomicU64,
    words: Vec<String>,
    boots: u32,
    booting: Duration,
    flushes: usize,
    unflushed: Unflushed,
    /// Whether binary and disk are to keep their word: writes bring flushes, and a disk may write back more than it has to.
    honest: bool,
    folder: TempDir,
}

impl Machine {
    fn new(holdfast: &Path, seed: u64) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self {
            image: Image::get()?,
            payload: image::make_payload(folder.path(), holdfast, "power-cut.sh")?,
            disk: Disk::with_ext4(folder.path(), DISK_MIB)?,
            writer: Writer::new(seed, REGION_BLOCKS, BLOCK_BYTES, DEPTH).with_mix(Mix::ChunksAndUnmaps),
            random: Random::from_seed(!seed),
            acknowledged: AtomicU64::new(0),
            words: vec!["vm.first".to_owned()],
            boots: 0,
            booting: Duration::ZERO,
            flushes: 0,
            unflushed: Unflushed::default(),
            honest: true,
            folder,
        })
    }

    /// Switches the machine on, waits until it serves, and judges every block.
    fn boot(&mut self, flushes: Flushes) -> Result<Guest> {
        let started = Instant::now();
        self.boots += 1;
        let folder = self.folder.path().join(format!("boot.{}", self.boots));
        std::fs::create_dir(&folder)?;
        let options = Options { words: self.words.clone(), forwarded: vec![ISCSI_PORT], ..Options::default() };
        let disk = self.disk.serve(flushes)?;
        let mut guest = Guest::start(&folder, &self.image, &self.payload, disk, &options)?;
        guest.wait_for("ready")?;
        self.words.retain(|word| word != "vm.first");
        self.booting += started.elapsed();
        // Without it the guest would send no flushes, and the test would prove nothing.
        let cache = guest.said("write cache");
        ensure!(cache.as_deref() == Some("write back"), "the guest takes its disk's cache for {cache:?}");
        self.writer.check(&mut log_in(&guest)?).with_context(|| format!("--- the console:\n{}---", guest.console()))?;
        Ok(guest)
    }

    /// Writes, and cuts the power somewhere in the middle.
    fn write_until_cut(&mut self, guest: Guest) -> Result<()> {
        let mut session = log_in(&guest)?;
        let random = &mut self.random;
        // Often soon, sometimes so late that the store has checkpointed meanwhile.
        let more = if random.below(4) == 0 { 1000 + random.below(1000) } else { 1 + random.below(400) };
        let acknowledged = &self.acknowledged;
        let until = acknowledged.load(Ordering::Relaxed) + more;
        // A disk may have written back nothing of what was not flushed, or any part of it.
        let mut survivors = (self.honest && random.below(2) == 0).then(|| Random::from_seed(random.next_u64()));
        let flushed_before = guest.data().flushes()?;
        let writer = &mut self.writer;
        let (outcome, flushes, unflushed) = std::thread::scope(|scope| {
            let load = scope.spawn(|| writer.run(&mut session, u64::MAX, acknowledged));
            let reached = wait::until("some writes", LOAD_DEADLINE, || {
                let enough = acknowledged.load(Ordering::Relaxed) >= until || load.is_finished();
                Ok(enough.then_some(()))
            });
            let flushes = guest.data().flushes();
            let console = guest.console();
            // Always, because the load ends only then.
            let unflushed = guest.cut_power(survivors.as_mut())?;
            let outcome = load.join().unwrap_or_else(|_| Err(anyhow!("the load has panicked")));
            let told = || format!("--- the console:\n{console}---");
            reached.with_context(told)?;
            anyhow::Ok((outcome.with_context(told)?, flushes?, unflushed))
        })?;
        ensure!(outcome == Outcome::Disconnected);
        ensure!(!self.honest || flushes > flushed_before, "no flush has reached the disk during {more} writes");
        self.flushes += flushes;
        self.unflushed.blocks += unflushed.blocks;
        self.unflushed.survived += unflushed.survived;
        Ok(())
    }
}

/// A session to the volume in the guest, past its unit attentions.
fn log_in(guest: &Guest) -> Result<Session> {
    let portal = guest.address(ISCSI_PORT)?;
    let mut last = None;
    let session = wait::until("a login", LOGIN_DEADLINE, || {
        let tried = Login::to(TARGET).connect(portal).map_err(anyhow::Error::from);
        match tried.and_then(|mut session| settle(&mut session).map(|()| session)) {
            Ok(session) => Ok(Some(session)),
            Err(error) => {
                last = Some(error);
                Ok(None)
            }
        }
    });
    session.with_context(|| format!("{last:?}; --- the console:\n{}---", guest.console()))
}
