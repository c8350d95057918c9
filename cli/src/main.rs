//! The `holdfast` command: the daemons, a whole system for one machine, and what administrators need.
//!
//! Each command has a file or folder of its own; this one only reads arguments and reports errors. It is the one crate with
//! an allocator and with `anyhow`: errors end here, as a line for a person.

mod cluster_file;
mod daemon;
mod dev;
mod endpoint;
mod gateway;
mod http_client;
mod output;
mod session;
mod storaged;
mod store;
mod telemetry;
mod volume;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Clustered iSCSI target: volumes on storage nodes, served to unmodified initiators.
#[derive(Parser)]
#[command(name = "holdfast", version, max_term_width = 100, propagate_version = true)]
struct Arguments {
    #[command(flatten)]
    telemetry: telemetry::Options,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a whole system on this machine: one gateway and one storage node, data in a folder
    Dev(dev::Options),
    /// Run a gateway: serve a storage node's volumes over iSCSI
    Gateway(gateway::Options),
    /// Run a storage daemon: keep volumes in a folder, serve them to gateways over gRPC
    Storaged(storaged::Options),
    /// List, create, import and export volumes
    #[command(subcommand)]
    Volume(volume::Command),
    /// Look at the sessions of a gateway
    #[command(subcommand)]
    Session(session::Command),
    /// Look into the data directory of a storage node that is stopped
    #[command(subcommand)]
    Store(store::Command),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    telemetry::start(&arguments.telemetry);
    let result = match arguments.command {
        Command::Dev(options) => dev::run(options),
        Command::Gateway(options) => gateway::run(options),
        Command::Storaged(options) => storaged::run(options),
        Command::Volume(command) => volume::run(command),
        Command::Session(command) => session::run(command),
        Command::Store(command) => return store::run(command),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast: {}", output::error_text(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Wrong arguments in one line; help and version as clap prints them.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_about_arguments = error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !is_about_arguments {
        // Nobody is left to tell when standard output is closed.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    let text = error.to_string();
    let first_paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first_paragraph.split_whitespace().collect();
    let line = words.join(" ");
    eprintln!("holdfast: {}; --help lists what there is", line.trim_start_matches("error: "));
    ExitCode::from(2)
}
