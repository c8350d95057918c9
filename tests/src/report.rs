//! What a test run tells beside passed and failed: figures, skipped tests, and how big the run is to be.

use std::fs::OpenOptions;
use std::io::Write;

/// Whether this is a soak: the full counts that the requirements name, instead of the shorter run of `make test`.
pub fn is_soak() -> bool {
    std::env::var("HOLDFAST_SOAK").is_ok_and(|value| value == "1")
}

/// A count that depends on the size of the run.
pub fn count(test: usize, soak: usize) -> usize {
    if is_soak() { soak } else { test }
}

/// Notes a figure for the soak report.
pub fn figure(name: &str, value: impl std::fmt::Display) {
    append("HOLDFAST_FIGURES", &format!("{name}\t{value}"));
}

/// Notes that a test did not run, and why. The gate lists it and does not count it as passed.
pub fn skipped(test: &str, reason: &str) {
    append("HOLDFAST_SKIPPED", &format!("{test}: {reason}"));
}

/// Appends a line to the file that the variable names, and to standard error.
fn append(variable: &str, line: &str) {
    eprintln!("{line}");
    let Some(path) = std::env::var_os(variable) else {
        return;
    };
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    assert!(written.is_ok(), "cannot write to {}: {written:?}", path.display());
}
