//! The engine alone, through [`DiskStore`] as the storage daemon uses it: what a change to it costs or saves.
//!
//! ```text
//! HOLDFAST_BENCH_DIR=DIR cargo bench -p holdfast-store --bench engine [-- FILTER]
//! ```
//!
//! Without the variable the data lies in memory (/dev/shm), where what is measured is processor time; with a folder of a real file system it
//! is mostly the disk. The comparison with fio is `benches/fio.rs`.

#![allow(clippy::expect_used, reason = "a measurement that cannot be made ends the program")]

mod support;

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use holdfast_proto::ids::ShardIndex;
use holdfast_store::ids::ShardId;
use holdfast_store::{DiskStore, Options};
use support::{GIB, KIB, Load, MIB, Outcome, Pattern, Scratch};

/// Names the folder in which this process, started by itself, fills a journal and dies.
const CRASH_IN: &str = "HOLDFAST_BENCH_CRASH_IN";

/// What a volume that is written to holds.
const SPAN: u64 = 256 * MIB;

fn main() -> Outcome<()> {
    if let Some(dir) = std::env::var_os(CRASH_IN) {
        return fill_the_journal_and_die(Path::new(&dir));
    }
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    writes(&mut criterion)?;
    reads(&mut criterion)?;
    opening_after_a_crash(&mut criterion)?;
    versions_of_a_full_shard(&mut criterion)?;
    thin_volume(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn parent() -> PathBuf {
    let in_memory = PathBuf::from("/dev/shm");
    std::env::var_os("HOLDFAST_BENCH_DIR")
        .map_or_else(|| if in_memory.is_dir() { in_memory } else { std::env::temp_dir() }, PathBuf::from)
}

fn writes(criterion: &mut Criterion) -> Outcome<()> {
    let mut group = criterion.benchmark_group("write");
    let scratch = Scratch::new(&parent(), "write")?;
    let load = Load::open(scratch.path(), &Options::default(), SPAN)?;
    let small = Pattern::random_writes(4 * KIB, SPAN);
    let chunk = Pattern::random_writes(64 * KIB, SPAN);
    let sequential = Pattern::sequential_writes(MIB, SPAN);
    let cases = [
        ("4k random, depth 1", 4 * KIB, small.clone(), 1),
        ("4k random, depth 32", 4 * KIB, small, 32),
        ("64k whole chunks, depth 8", 64 * KIB, chunk, 8),
        ("1m sequential, depth 1", MIB, sequential.clone(), 1),
        ("1m sequential, depth 8", MIB, sequential, 8),
    ];
    for (name, len, mut pattern, depth) in cases {
        group.throughput(Throughput::Bytes(len));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|operations| timed(&load, &mut pattern, depth, operations));
        });
    }
    group.finish();
    Ok(())
}

/// Warm: the map's entries are in memory. Cold: they have to be fetched from the catalogue, each read another one.
fn reads(criterion: &mut Criterion) -> Outcome<()> {
    const READS: u64 = 1024;
    let mut group = criterion.benchmark_group("read");
    let scratch = Scratch::new(&parent(), "read")?;
    let open = || Load::open(scratch.path(), &Options::default(), SPAN);
    open()?.fill(SPAN)?;
    let load = open()?;
    let mut pattern = Pattern::random_reads(4 * KIB, SPAN);
    load.drive(&mut pattern, 32, |number| number < SPAN / (4 * KIB))?;
    for depth in [1, 32] {
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("4k random warm, depth {depth}"), |bencher| {
            bencher.iter_custom(|operations| timed(&load, &mut pattern, depth, operations));
        });
    }
    drop(load);
    group.throughput(Throughput::Elements(READS));
    group.bench_function(format!("{READS} of 4k cold, depth 1"), |bencher| {
        bencher.iter_custom(|rounds| {
            let one = |_| {
                let mut pattern = Pattern::random_reads(4 * KIB, SPAN).one_in(64 * KIB);
                open().map(|load| timed(&load, &mut pattern, 1, READS)).expect("the store opens")
            };
            (0..rounds).map(one).sum()
        });
    });
    group.finish();
    Ok(())
}

fn timed(load: &Load, pattern: &mut Pattern, depth: u64, operations: u64) -> Duration {
    let start = Instant::now();
    load.drive(pattern, depth, |number| number < operations).expect("every operation succeeds");
    start.elapsed()
}

/// Memory that lets the journal become full before the overlay is.
fn large_memory() -> Options {
    Options { memory_bytes: 512 * MIB, ..Options::default() }
}

fn fill_the_journal_and_die(dir: &Path) -> Outcome<()> {
    let load = Load::open(dir, &large_memory(), SPAN)?;
    // Where checkpoints keep up so well that the journal never becomes quite full, less has to do.
    let mut full = 72;
    load.drive(&mut Pattern::random_writes(4 * KIB, SPAN), 32, |number| {
        let gauges = load.store.engine().statistics().gauges;
        full -= u64::from(number % 20_000 == 19_999 && full > 50);
        number % 32 != 0 || gauges.journal_used_bytes * 100 < full * gauges.journal_bytes
    })?;
    std::process::abort();
}

/// Each time a copy of what the crash has left is opened: opening and closing mends it.
fn opening_after_a_crash(criterion: &mut Criterion) -> Outcome<()> {
    let scratch = Scratch::new(&parent(), "crash")?;
    let (crashed, copy) = (scratch.path().join("crashed"), scratch.path().join("copy"));
    let mut is_made = false;
    criterion.bench_function("open after a crash with a full journal", |bencher| {
        if !std::mem::replace(&mut is_made, true) {
            let child = Command::new(std::env::current_exe().expect("this program")).env(CRASH_IN, &crashed).output();
            assert!(!child.expect("it starts").status.success(), "it dies");
        }
        bencher.iter_custom(|rounds| {
            let one = |_| {
                copy_folder(&crashed, &copy).expect("a copy");
                let start = Instant::now();
                let store = DiskStore::open(&copy, &large_memory()).expect("the journal is replayed");
                let took = start.elapsed();
                drop(store);
                took
            };
            (0..rounds).map(one).sum()
        });
    });
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn versions_of_a_full_shard(criterion: &mut Criterion) -> Outcome<()> {
    let scratch = Scratch::new(&parent(), "versions")?;
    let mut opened = None;
    criterion.bench_function("versions of a full shard", |bencher| {
        let load = opened.get_or_insert_with(|| {
            let open = || Load::open(scratch.path(), &Options::default(), GIB).expect("the store opens");
            // One block is enough for a chunk to have an entry. Opened anew, all are in the catalogue alone.
            let mut pattern = Pattern::sequential_writes(4 * KIB, GIB).one_in(64 * KIB);
            timed(&open(), &mut pattern, 32, GIB / (64 * KIB));
            open()
        });
        let shard = ShardId { volume: load.volume, index: ShardIndex(0) };
        let versions = || load.store.engine().versions(shard).expect("they can be read");
        assert_eq!(versions().len(), 16_384);
        bencher.iter(|| black_box(versions()));
    });
    Ok(())
}

/// A large volume costs nothing until it is written to.
fn thin_volume(criterion: &mut Criterion) -> Outcome<()> {
    const SIZE: u64 = 16 << 40;
    let open = |scratch: &Scratch| Load::open(scratch.path(), &Options::default(), SIZE).expect("the store opens");
    let mut group = criterion.benchmark_group("16 TiB thin volume");
    group.bench_function("make with its store, write in two places", |bencher| {
        bencher.iter_custom(|rounds| {
            let one = |_| {
                let scratch = Scratch::new(&parent(), "thin").expect("a folder");
                let (before, start) = (resident_bytes(), Instant::now());
                let load = open(&scratch);
                timed(&load, &mut Pattern::sequential_writes(4 * KIB, SIZE).one_in(SIZE / 2), 1, 2);
                let took = start.elapsed();
                assert!(resident_bytes() < before + 64 * MIB, "memory grows with the size of a volume");
                took
            };
            (0..rounds).map(one).sum()
        });
    });
    let scratch = Scratch::new(&parent(), "thin-open")?;
    group.bench_function("open and close", |bencher| bencher.iter(|| drop(open(&scratch))));
    group.finish();
    Ok(())
}

/// Memory of this process.
fn resident_bytes() -> u64 {
    // proc_pid_statm(5): the second field, in pages.
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4096
}
