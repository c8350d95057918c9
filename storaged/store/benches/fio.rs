//! The engine beside fio in one folder, and what it writes for what it was told to: the targets of the disk engine.
//!
//! ```text
//! cargo bench -p holdfast-store --bench fio -- DIR [rounds] [seconds of one round] [GiB of data at the restart]
//! ```
//!
//! fio and the engine take turns, so that other load on the machine hits both; the median of the rounds' ratios counts. The engine's
//! checkpoints run within its rounds. Ends with 1 when a target is missed; in memory, where fio's syncs are nothing, the
//! comparison with it is only shown.

#![allow(clippy::print_stdout, reason = "what it prints is its result")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use holdfast_store::device::{Device, FileDevice};
use holdfast_store::{EngineStatistics, Options, Store};
use support::{GIB, KIB, Load, MIB, Outcome, Pattern, Scratch};

/// Names the folder in which this process, started by itself, fills a journal and waits to be killed.
const FILL_IN: &str = "HOLDFAST_BENCH_FILL_IN";
/// And how much data is there, bytes.
const FILL_BYTES: &str = "HOLDFAST_BENCH_FILL_BYTES";

/// What it prints when the journal is full.
const FULL: &str = "the journal is full";

/// Of the volume that is written to.
const SPAN: u64 = GIB;

fn main() -> Outcome<ExitCode> {
    if let Some(dir) = std::env::var_os(FILL_IN) {
        let bytes = std::env::var(FILL_BYTES)?.parse()?;
        return fill_the_journal(Path::new(&dir), bytes);
    }
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let Some(dir) = arguments.next() else {
        // `cargo test --benches` and the like: nothing to compare without a place.
        return Ok(ExitCode::SUCCESS);
    };
    let mut number = |default: f64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (rounds, seconds, data_gib) = (number(5.0)?, number(3.0)?, number(2.0)?);
    let scratch = Scratch::new(Path::new(&dir), "fio")?;
    let mut table = Table::default();
    compare(scratch.path(), rounds, Duration::from_secs_f64(seconds), &mut table)?;
    amplification(scratch.path(), &mut table)?;
    restart(scratch.path(), data_gib, &mut table)?;
    Ok(if table.missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Lines of the result.
#[derive(Default)]
struct Table {
    missed: bool,
}

impl Table {
    fn line(&mut self, name: &str, figure: &str, target: &str, met: bool) {
        let verdict = if met { "ok" } else { "MISSED" };
        self.missed |= !met;
        println!("{name:44} {figure:52} {target:18} {verdict}");
    }
}

/// What fio does, and what the engine does for comparison.
struct Case {
    name: &'static str,
    fio: &'static [&'static str],
    pattern: Pattern,
    depth: u64,
    target: Option<f64>,
}

fn compare(dir: &Path, rounds: f64, round: Duration, table: &mut Table) -> Outcome<()> {
    const SMALL: &[&str] = &["--name=small", "--size=64m", "--bs=4k", "--numjobs=32"];
    const LARGE: &[&str] = &["--name=large", "--size=1g", "--bs=1m", "--numjobs=1"];
    let case = |name, fio, pattern, depth, target| Case { name, fio, pattern, depth, target };
    let sequential = || Pattern::sequential_writes(MIB, SPAN);
    let cases = [
        case("4 KiB random, depth 32", SMALL, Pattern::random_writes(4 * KIB, SPAN), 32, Some(0.7)),
        case("1 MiB sequential, depth 1", LARGE, sequential(), 1, Some(0.7)),
        case("1 MiB sequential, depth 8", LARGE, sequential(), 8, None),
    ];
    let load = Load::open(&dir.join("store"), &Options::default(), SPAN)?;
    load.fill(SPAN)?;
    let in_memory = FileDevice::open_read_only(&dir.join("store/data"))?.traits().instant;
    for Case { name, fio, mut pattern, depth, target } in cases {
        let (mut peers, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let mut left = rounds;
        while left > 0.0 {
            let peer = run_fio(dir, fio, round)?;
            let start = Instant::now();
            let operations = load.drive(&mut pattern, depth, |_| start.elapsed() < round)?;
            let our = operations as f64 / start.elapsed().as_secs_f64();
            peers.push(peer);
            ours.push(our);
            ratios.push(our / peer);
            left -= 1.0;
        }
        let ratio = median(&mut ratios);
        let figure = format!("{:.0}/s, fio {:.0}/s: x{ratio:.2}", median(&mut ours), median(&mut peers));
        match target.filter(|_| !in_memory) {
            Some(target) => table.line(name, &figure, &format!("at least x{target}"), ratio >= target),
            None => table.line(name, &figure, "", true),
        }
    }
    Ok(())
}

fn run_fio(dir: &Path, case: &[&str], time: Duration) -> Outcome<f64> {
    let ran = Command::new("fio")
        .arg(format!("--directory={}", dir.display()))
        .arg(format!("--runtime={}ms", time.as_millis()))
        .args([
            "--rw=write",
            "--iodepth=1",
            "--fdatasync=1",
            "--group_reporting",
            "--time_based",
            "--output-format=json",
        ])
        .args(case)
        .stderr(Stdio::inherit())
        .output()?;
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout)?;
    report.pointer("/jobs/0/write/iops").and_then(serde_json::Value::as_f64).ok_or("fio told no figure".into())
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Bytes that were written, of journal, slots and catalogue, for each byte of the user; with the checkpoint at the end.
fn amplification(dir: &Path, table: &mut Table) -> Outcome<()> {
    let small = Pattern::random_writes(4 * KIB, SPAN);
    let chunks = Pattern::random_writes(64 * KIB, SPAN);
    for (name, len, mut pattern, depth, total, target) in [
        ("bytes written for 4 KiB, depth 32", 4 * KIB, small.clone(), 32, 512 * MIB, Some(2.2)),
        ("bytes written for 4 KiB, depth 1", 4 * KIB, small, 1, 64 * MIB, None),
        ("bytes written for 64 KiB, depth 8", 64 * KIB, chunks.clone(), 8, 4 * GIB, Some(1.1)),
        ("bytes written for 64 KiB, depth 1", 64 * KIB, chunks, 1, GIB, Some(1.1)),
    ] {
        let load = Load::open(&dir.join("store"), &Options::default(), SPAN)?;
        let before = load.store.engine().statistics();
        load.drive(&mut pattern, depth, |number| number < total / len)?;
        load.store.close();
        let after = load.store.engine().statistics();
        let share = |of: fn(&EngineStatistics) -> u64| (of(&after) - of(&before)) as f64 / total as f64;
        let journal = share(|statistics| statistics.journal_bytes);
        let slots = share(|statistics| statistics.device.bytes_written) - journal;
        let catalogue = share(|EngineStatistics { catalogue, .. }| {
            catalogue.wal_bytes + catalogue.flushed_bytes + catalogue.compacted_bytes
        });
        let sum = journal + slots + catalogue;
        let figure = format!("x{sum:.3}: journal {journal:.3} slots {slots:.3} RocksDB {catalogue:.3}");
        match target {
            Some(target) => table.line(name, &figure, &format!("at most x{target}"), sum <= target),
            None => table.line(name, &figure, "", true),
        }
    }
    Ok(())
}

/// From the start to the first answer, after a kill with a full journal; with little and with much data.
fn restart(dir: &Path, data_gib: f64, table: &mut Table) -> Outcome<()> {
    for (data, bytes) in [("64 MiB", 64 * MIB), (&*format!("{data_gib} GiB"), rounded(data_gib * GIB as f64))] {
        let scratch = Scratch::new(dir, "restart")?;
        let mut child = Command::new(std::env::current_exe()?)
            .env(FILL_IN, scratch.path())
            .env(FILL_BYTES, bytes.to_string())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let full = BufReader::new(output).lines().map_while(Result::ok).find(|line| line.starts_with(FULL));
        child.kill()?;
        child.wait()?;
        let full = full.ok_or("the journal did not become full")?;
        let start = Instant::now();
        let load = Load::open(scratch.path(), &large_memory(), bytes)?;
        load.drive(&mut Pattern::random_reads(4 * KIB, bytes), 1, |number| number < 1)?;
        let took = start.elapsed().as_secs_f64();
        let name = format!("start after kill -9, {data} of data");
        table.line(&name, &format!("{took:.3} s ({full})"), "under 5 s", took < 5.0);
    }
    Ok(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size that was given in GiB")]
fn rounded(bytes: f64) -> u64 {
    (bytes as u64).max(64 * MIB) / (64 * MIB) * (64 * MIB)
}

/// Lets the journal become full before the memory for journalled blocks is.
fn large_memory() -> Options {
    Options { memory_bytes: 512 * MIB, ..Options::default() }
}

/// The process that is killed.
fn fill_the_journal(dir: &Path, bytes: u64) -> Outcome<ExitCode> {
    let load = Load::open(dir, &large_memory(), bytes)?;
    load.fill(bytes)?;
    let mut pattern = Pattern::random_writes(4 * KIB, bytes);
    // Beyond three quarters writers are slowed. Where checkpoints keep up so well that the journal never comes to that, less has to do.
    let mut full = 72;
    load.drive(&mut pattern, 32, |number| {
        let gauges = load.store.engine().statistics().gauges;
        let percent = gauges.journal_used_bytes * 100 / gauges.journal_bytes;
        full -= u64::from(number % 20_000 == 19_999 && full > 50);
        number % 32 != 0 || percent < full || {
            println!("{FULL}: {percent} % of {} MiB", gauges.journal_bytes / MIB);
            // At once, before a checkpoint ends.
            loop {
                std::thread::park();
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}
