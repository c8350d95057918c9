//! Long runs of the crash simulation (see `simulation/`).
//!
//! ```text
//! cargo run --release -p holdfast-store --features simulation --bin crash -- [--seed N | --seeds FROM..TO] [--run KIND] [--mutant NAME]
//! ```
//!
//! Without arguments: all kinds of runs from seed 0 on, until one fails or it is interrupted. A failure prints the line that
//! repeats it. With a mutant the first failure is what is wanted.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use holdfast_store::mutants::Mutant;
use holdfast_store::simulation::{Failure, RUNS, Run, Summary};

const USAGE: &str =
    "usage: crash [--seed N | --seeds FROM..TO] [--run crashes|faults|rot] [--mutant NAME] [--threads N]";

/// Seeds between two lines about progress.
const REPORT: u64 = 500;

struct Arguments {
    from: u64,
    to: u64,
    runs: Vec<(&'static str, Run)>,
    mutant: Option<Mutant>,
    threads: usize,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(arguments) => run(&arguments),
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut parsed = Arguments { from: 0, to: u64::MAX, runs: RUNS.to_vec(), mutant: None, threads };
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        match name.as_str() {
            "--seed" => (parsed.from, parsed.to) = (number(&value)?, number(&value)?.saturating_add(1)),
            "--seeds" => {
                let (from, to) = value.split_once("..").ok_or("--seeds wants FROM..TO")?;
                (parsed.from, parsed.to) = (number(from)?, number(to)?);
            }
            "--run" => parsed.runs.retain(|(run, _)| *run == value),
            "--mutant" => {
                let mutant = Mutant::ALL.into_iter().find(|mutant| format!("{mutant:?}") == value);
                parsed.mutant = Some(mutant.ok_or_else(|| format!("mutants are {:?}", Mutant::ALL))?);
            }
            "--threads" => parsed.threads = usize::try_from(number(&value)?).unwrap_or(1).max(1),
            _ => return Err(format!("unknown option {name}")),
        }
    }
    if parsed.runs.is_empty() || parsed.from >= parsed.to {
        return Err("nothing to run".into());
    }
    Ok(parsed)
}

fn run(arguments: &Arguments) -> ExitCode {
    let (started, next, stop) = (Instant::now(), AtomicU64::new(arguments.from), AtomicBool::new(false));
    let total = Mutex::new((Summary::default(), 0u64));
    let failures: Mutex<Vec<(&str, Failure)>> = Mutex::default();
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= arguments.to {
                return;
            }
            for (name, run) in &arguments.runs {
                match run(seed, arguments.mutant) {
                    Ok(summary) => add(&total, &summary),
                    Err(failure) => {
                        stop.store(true, Ordering::Relaxed);
                        failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((name, failure));
                    }
                }
            }
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            total.1 += 1;
            if total.1.is_multiple_of(REPORT) {
                println!("{}", line(&total.0, total.1, started));
            }
        }
    };
    std::thread::scope(|scope| (0..arguments.threads).for_each(|_| drop(scope.spawn(work))));
    let (summary, seeds) = *total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    println!("{}", line(&summary, seeds, started));
    let failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (name, failure) in &failures {
        println!("FAILED {name}, {failure}");
        let mutant = arguments.mutant.map(|mutant| format!(" --mutant {mutant:?}")).unwrap_or_default();
        println!(
            "again: cargo run --release -p holdfast-store --features simulation --bin crash -- --run {name} --seed {}{mutant}",
            failure.seed
        );
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn add(total: &Mutex<(Summary, u64)>, summary: &Summary) {
    let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    total.0.cuts += summary.cuts;
    total.0.acknowledged += summary.acknowledged;
    total.0.reads += summary.reads;
    total.0.checkpoints += summary.checkpoints;
}

fn line(summary: &Summary, seeds: u64, started: Instant) -> String {
    let Summary { cuts, acknowledged, reads, checkpoints, .. } = summary;
    format!(
        "{seeds} seeds in {} s: {cuts} power cuts, {acknowledged} operations acknowledged, {reads} reads, {checkpoints} checkpoints",
        started.elapsed().as_secs()
    )
}
