//! `holdfast store`: what lies in the data directory of a storage node that is stopped. Neither command changes anything.

mod check;
mod dump;
mod text;

use std::path::Path;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use holdfast_store::OpenError;

use crate::output;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check every structure and every checksum; ends with 0 if all is good, 1 if something was found, 2 if it cannot be checked
    Check(check::Options),
    /// Show what the store holds
    Dump(dump::Options),
}

/// Form of the output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Lines for a person
    Text,
    /// One document
    Json,
}

/// Ended with nothing wrong.
const CLEAN: u8 = 0;

/// Something was found.
const FOUND: u8 = 1;

/// Nothing could be told.
const FAILED: u8 = 2;

pub(crate) fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Check(options) => check::run(&options),
        Command::Dump(options) => dump::run(&options),
    };
    let code = result.unwrap_or_else(|error| {
        eprintln!("holdfast: {}", output::error_text(error.as_ref()));
        FAILED
    });
    ExitCode::from(code)
}

/// The directory of `holdfast dev` is one above that of its node.
fn explained(dir: &Path, error: OpenError) -> anyhow::Error {
    let node = dir.join("node1");
    if node.join("format").exists() && !dir.join("format").exists() {
        return anyhow::anyhow!("{} is not a node's data directory; give {}", dir.display(), node.display());
    }
    error.into()
}
