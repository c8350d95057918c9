//! `holdfast session`: who is logged in.

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use crate::daemon;
use crate::endpoint::Endpoint;
use crate::http_client::get_json;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the sessions of a gateway
    List(ListOptions),
}

#[derive(Args)]
pub(crate) struct ListOptions {
    /// Gateway's HTTP address; without it, that of the `holdfast dev` in DATA_DIR
    #[arg(long, value_name = "HOST:PORT")]
    gateway: Option<String>,
    #[command(flatten)]
    endpoint: Endpoint,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

pub(crate) fn run(command: Command) -> Result<()> {
    let Command::List(options) = command;
    daemon::runtime()?.block_on(list(options))
}

async fn list(options: ListOptions) -> Result<()> {
    let gateway = match options.gateway {
        Some(gateway) => gateway,
        None => {
            let cluster = options.endpoint.dev_cluster()?;
            let entry = cluster.and_then(|cluster| cluster.gateways.into_iter().next());
            entry.context("no `holdfast dev` runs here; name a gateway with --gateway HOST:PORT")?.http
        }
    };
    let document = get_json(&gateway, "/sessions").await?;
    if options.output == Output::Json {
        println!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(());
    }
    let none = Vec::new();
    let sessions = document["sessions"].as_array().unwrap_or(&none);
    println!("{:>5}  {:<40} {:<40} {:<22} AUTH", "ID", "INITIATOR", "TARGET", "PEER");
    for session in sessions {
        println!(
            "{:>5}  {:<40} {:<40} {:<22} {}",
            session["id"],
            text(&session["initiator"]),
            session["target"].as_str().unwrap_or("(discovery)"),
            text(&session["peer"]),
            text(&session["auth"]),
        );
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// Names of initiators that are logged in to `target` at this gateway.
pub(crate) async fn initiators_of(gateway_http: &str, target: &str) -> Result<Vec<String>> {
    let document = get_json(gateway_http, "/sessions").await?;
    let none = Vec::new();
    let sessions = document["sessions"].as_array().unwrap_or(&none);
    Ok(sessions
        .iter()
        .filter(|session| session["target"] == *target)
        .map(|session| text(&session["initiator"]).to_owned())
        .collect())
}
