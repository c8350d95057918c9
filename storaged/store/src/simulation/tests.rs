//! Samples of the simulation, and the proof that it notices: every mutant is caught.

use std::io::Write;

use super::*;

/// Seeds of one kind of run; the soak looks at more.
fn seeds() -> u64 {
    if is_soak() { 5000 } else { 100 }
}

fn is_soak() -> bool {
    std::env::var_os("HOLDFAST_SOAK").is_some_and(|value| value == "1")
}

/// A figure for the soak's report, where it asks for one.
fn report(test: &str, figure: &str) {
    println!("{test}: {figure}");
    if let Some(path) = std::env::var_os("HOLDFAST_FIGURES") {
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        writeln!(file, "{test}\t{figure}").unwrap();
    }
}

fn all(name: &str, seeds: u64) -> Summary {
    let (_, run) = RUNS.iter().find(|(run, _)| *run == name).unwrap();
    let mut total = Summary::default();
    for seed in 0..seeds {
        let summary = run(seed, None).unwrap_or_else(|failure| panic!("{name}, {failure}"));
        total.cuts += summary.cuts;
        total.acknowledged += summary.acknowledged;
        total.reads += summary.reads;
        total.checkpoints += summary.checkpoints;
    }
    let Summary { cuts, acknowledged, reads, checkpoints, .. } = total;
    report(
        &format!("crash simulation, {name}"),
        &format!(
            "{seeds} seeds, {cuts} power cuts, {acknowledged} operations acknowledged, {reads} reads, {checkpoints} checkpoints"
        ),
    );
    total
}

#[test]
fn c0_c1_c3_c8_store_when_the_power_is_cut_at_every_operation_then_what_was_acknowledged_is_there() {
    let total = all("crashes", seeds());
    assert!(total.cuts > 100 * seeds() && total.acknowledged > 50 * seeds() && total.reads > seeds());
    assert!(total.checkpoints > 3 * seeds());
}

#[test]
fn c2_c4_c5_store_when_the_disk_fails_then_an_error_and_never_a_wrong_block() {
    let total = all("faults", 3 * seeds());
    assert!(total.acknowledged > seeds() && total.reads > seeds());
}

#[test]
fn c4_c5_store_when_a_bit_has_rotten_then_that_is_noticed_and_nothing_else_is_hurt() {
    let total = all("rot", 3 * seeds());
    assert!(total.acknowledged > 50 * seeds());
}

#[test]
fn run_when_repeated_then_the_same() {
    for seed in [3, 77] {
        assert_eq!(crashes(seed, None), crashes(seed, None));
        assert_eq!(faults(seed, None), faults(seed, None));
    }
    assert_ne!(crashes(3, None), crashes(4, None));
}

/// A mutant has to be noticed within so many seeds.
const MUTANT_SEEDS: u64 = 500;

#[test]
fn mutants_when_switched_on_then_each_is_caught() {
    let mut alive = Vec::new();
    for mutant in Mutant::ALL {
        let caught = (0..MUTANT_SEEDS).find_map(|seed| {
            RUNS.iter().find_map(|(name, run)| run(seed, Some(mutant)).err().map(|failure| (name, failure)))
        });
        match caught {
            Some((run, failure)) => {
                println!("{mutant:?}: {run}, {}", failure.to_string().chars().take(160).collect::<String>());
            }
            None => alive.push(mutant),
        }
    }
    assert!(alive.is_empty(), "not noticed: {alive:?}");
}
