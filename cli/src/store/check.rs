//! `holdfast store check`: one line per finding on standard output, progress on standard error.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use holdfast_store::check::{Finding, Observer, Severity, Summary, check};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::{CLEAN, FOUND, Output, explained};
use crate::output;

#[derive(Args)]
pub(crate) struct Options {
    /// Data directory of the node; that of `holdfast dev` is DATA/node1
    dir: PathBuf,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints findings as they come, or keeps them for the document.
struct Printer {
    output: Output,
    bar: ProgressBar,
    findings: Vec<Value>,
    notes: Vec<String>,
    /// Standard output cannot be written: nobody would know what was found.
    failed: Option<anyhow::Error>,
}

impl Printer {
    fn line(&mut self, text: &str) {
        let printed = self.bar.suspend(|| output::line(text));
        if let Err(error) = printed {
            self.failed.get_or_insert(error);
        }
    }
}

impl Observer for Printer {
    fn found(&mut self, finding: &Finding) {
        match self.output {
            Output::Text => self.line(&format!("{}: {finding}", severity(finding))),
            Output::Json => self.findings.push(as_json(finding)),
        }
    }

    fn note(&mut self, text: &str) {
        match self.output {
            Output::Text => self.line(&format!("note: {text}")),
            Output::Json => self.notes.push(text.to_owned()),
        }
    }

    fn progress(&mut self, chunks: u64, total_chunks: u64) {
        self.bar.set_length(total_chunks);
        self.bar.set_position(chunks);
    }
}

pub(super) fn run(options: &Options) -> Result<u8> {
    let (findings, notes) = (Vec::new(), Vec::new());
    let mut printer = Printer { output: options.output, bar: bar(), findings, notes, failed: None };
    let checked = check(&options.dir, &mut printer);
    printer.bar.finish_and_clear();
    let summary = checked.map_err(|error| explained(&options.dir, error))?;
    if let Some(error) = printer.failed {
        return Err(error);
    }
    let text = match options.output {
        Output::Text => format!("{}: {summary}", options.dir.display()),
        Output::Json => serde_json::to_string_pretty(&document(summary, printer.findings, printer.notes))?,
    };
    output::line(text)?;
    Ok(if summary.is_clean() { CLEAN } else { FOUND })
}

/// Counts slots, of 64 KiB each.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} slots  {per_sec}  {eta}");
    let bar = ProgressBar::new(0);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn severity(finding: &Finding) -> &'static str {
    match finding.problem.severity() {
        Severity::Damage => "damage",
        Severity::Waste => "waste",
    }
}

fn as_json(finding: &Finding) -> Value {
    let range = finding.range.as_ref().map(|range| {
        json!({
            "volume": range.volume.0,
            "name": range.name.as_ref().map(ToString::to_string),
            "start_bytes": range.bytes.start,
            "end_bytes": range.bytes.end,
        })
    });
    json!({
        "problem": finding.problem.name(),
        "severity": severity(finding),
        "place": finding.place,
        "range": range,
        "detail": finding.detail,
        "meaning": finding.problem.meaning(),
        "remedy": finding.problem.remedy(),
    })
}

fn document(summary: Summary, findings: Vec<Value>, notes: Vec<String>) -> Value {
    let Summary { damage, waste, volumes, shards, chunks, batches } = summary;
    json!({
        "clean": summary.is_clean(),
        "damage": damage,
        "waste": waste,
        "checked": { "volumes": volumes, "shards": shards, "chunks": chunks, "journal_batches": batches },
        "findings": findings,
        "notes": notes,
    })
}
