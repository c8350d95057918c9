//! libiscsi's conformance suite, judged by a script that counts what really passed.
//!
//! What fails or is skipped is held against `tests/conformance.expected`, both ways: a test that is not in that list must
//! pass, and a test that has come to pass must leave it. Where the list says `alone`, the test fails because of one that
//! runs before it in the same process; then it has to pass when its suite runs by itself. The judge is not part of this
//! repository; where it is not there, the test is reported as skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use holdfast_tests::binary::checkout;
use holdfast_tests::cluster::Cluster;
use holdfast_tests::process::run;
use holdfast_tests::report;

const DEADLINE: Duration = Duration::from_secs(1200);

#[test]
fn libiscsi_suite_when_run_then_only_what_is_expected_fails_or_is_skipped() -> Result<()> {
    let judge = checkout().join("../shared/accept/conformance.py");
    if !judge.is_file() {
        report::skipped("conformance", "../shared/accept/conformance.py is not there");
        return Ok(());
    }
    let list = std::fs::read_to_string(checkout().join("tests/conformance.expected"))?;
    let expected = parse_expected(&list)?;

    let cluster = Cluster::with_volumes(&["disk0=1GiB"])?;
    let (found, summary) = judge_family(&judge, &cluster, "ALL")?;
    report::figure("libiscsi conformance suite", &summary);
    let unexpected: Vec<_> = found.iter().filter(|(test, _)| !expected.contains_key(test.as_str())).collect();
    ensure!(unexpected.is_empty(), "not expected: {unexpected:#?}\n{summary}");
    let gone: Vec<_> = expected.keys().filter(|test| !found.contains_key(**test)).collect();
    ensure!(gone.is_empty(), "pass now; take them out of tests/conformance.expected: {gone:#?}\n{summary}");

    let alone = expected.iter().filter(|(_, reason)| reason.starts_with("alone"));
    let suites: BTreeSet<_> = alone.filter_map(|(test, _)| test.split('.').next()).collect();
    for suite in suites {
        let (found, summary) = judge_family(&judge, &cluster, &format!("ALL.{suite}"))?;
        report::figure(&format!("libiscsi conformance suite, {suite} alone"), &summary);
        let failed: Vec<_> = found.values().filter(|line| line.starts_with("FAIL")).collect();
        ensure!(failed.is_empty(), "{suite} alone: {failed:#?}\n{summary}");
    }
    Ok(())
}

/// Runs a family of tests; returns what failed or was skipped, and the last line.
fn judge_family(judge: &Path, cluster: &Cluster, family: &str) -> Result<(BTreeMap<String, String>, String)> {
    let mut command = Command::new("python3");
    command.arg(judge).arg(cluster.url("disk0")?).args(["--family", family]);
    command.arg("--log").arg(cluster.folder().join("suite.log"));
    let finished = run(command, DEADLINE)?;
    let summary = finished.stdout.lines().rfind(|line| line.starts_with("tests ")).context("no summary")?;
    Ok((parse_found(&finished.stdout), summary.to_owned()))
}

/// Lines `Suite.Test  reason`; `#` begins a comment.
fn parse_expected(list: &str) -> Result<BTreeMap<&str, &str>> {
    let lines = list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (test, reason) = line.split_once(char::is_whitespace).with_context(|| format!("no reason: {line}"))?;
            Ok((test, reason.trim()))
        })
        .collect()
}

/// The judge's lines `FAIL  Suite.Test: what` and `skip  Suite.Test: what`.
fn parse_found(output: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for line in output.lines() {
        let Some(rest) = line.strip_prefix("FAIL ").or_else(|| line.strip_prefix("skip ")) else {
            continue;
        };
        if let Some((test, _)) = rest.trim().split_once(": ") {
            found.insert(test.to_owned(), line.to_owned());
        }
    }
    found
}

#[test]
fn parse_found_when_lines_are_mixed_then_failures_and_skips() {
    let found = parse_found("FAIL  Read10.Simple: assertion failed\nskip  A.B: no: reason\nlog: x\nVOID  y");
    assert_eq!(found.keys().collect::<Vec<_>>(), ["A.B", "Read10.Simple"]);
}
