//! `holdfast session`: who is logged in.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use crate::cluster_file::ClusterFile;
use crate::daemon;
use crate::endpoint::HostPort;
use crate::http_client::get_json;
use crate::output;

/// Most columns of the table.
const TABLE_COLUMNS: usize = 120;

/// Columns that a name has in any case, also when an IPv6 peer takes more than its part.
const NAME_COLUMNS: usize = 16;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the sessions of a gateway
    List(ListOptions),
}

#[derive(Args)]
pub(crate) struct ListOptions {
    /// Gateway's HTTP address; without it, that of the `holdfast dev` in DATA_DIR
    #[arg(long, value_name = "HOST:PORT")]
    gateway: Option<HostPort>,
    /// Data directory of the `holdfast dev` to ask
    #[arg(long, default_value = "./holdfast-data", value_name = "DIR")]
    data_dir: PathBuf,
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
        Some(gateway) => gateway.to_string(),
        None => {
            let cluster = ClusterFile::read(&options.data_dir)?;
            let entry = cluster.and_then(|cluster| cluster.gateways.into_iter().next());
            entry.context("no `holdfast dev` runs here; name a gateway with --gateway HOST:PORT")?.http
        }
    };
    let document = get_json(&gateway, "/sessions").await?;
    if options.output == Output::Json {
        return output::line(serde_json::to_string_pretty(&document)?);
    }
    let none = Vec::new();
    let sessions = document["sessions"].as_array().unwrap_or(&none);
    table(sessions).into_iter().try_for_each(output::line)
}

/// The sessions in columns, a line each below the heads.
fn table(sessions: &[Value]) -> Vec<String> {
    let heads = ["ID", "INITIATOR", "TARGET", "PEER", "AUTH", "DIGESTS"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(heads).chain(sessions.iter().map(cells)).collect();
    let width =
        |column: fn(&[String; 6]) -> &String| rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0);
    let (id, peer, auth, digests) =
        (width(|row| &row[0]), width(|row| &row[3]), width(|row| &row[4]), width(|row| &row[5]));
    let spaces = 5;
    let names = TABLE_COLUMNS.saturating_sub(id + peer + auth + digests + spaces);
    // The two names share what the others leave; a short one leaves its part to the other.
    let (initiator, target) = (width(|row| &row[1]), width(|row| &row[2]));
    let target = target.min((names / 2).max(names.saturating_sub(initiator))).max(NAME_COLUMNS);
    let initiator = initiator.min(names.saturating_sub(target)).max(NAME_COLUMNS);
    rows.iter()
        .map(|row| {
            format!(
                "{:>id$} {:<initiator$} {:<target$} {:<peer$} {:<auth$} {}",
                row[0],
                shortened(&row[1], initiator),
                shortened(&row[2], target),
                row[3],
                row[4],
                row[5],
            )
        })
        .collect()
}

fn cells(session: &Value) -> [String; 6] {
    let digests = match (session["header_digest"] == "CRC32C", session["data_digest"] == "CRC32C") {
        (true, true) => "header+data",
        (true, false) => "header",
        (false, true) => "data",
        (false, false) => "none",
    };
    [
        session["id"].to_string(),
        text(&session["initiator"]).to_owned(),
        session["target"].as_str().unwrap_or("(discovery)").to_owned(),
        text(&session["peer"]).to_owned(),
        text(&session["auth"]).to_owned(),
        digests.to_owned(),
    ]
}

/// At most `most` characters of a name: its end, where names differ.
fn shortened(name: &str, most: usize) -> String {
    let len = name.chars().count();
    if len <= most {
        return name.to_owned();
    }
    let kept = name.chars().skip(len.saturating_sub(most.saturating_sub(1)));
    std::iter::once('…').chain(kept).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn session(id: u64, initiator: &str, target: &Value) -> Value {
        json!({
            "id": id, "initiator": initiator, "target": target, "peer": "192.168.100.200:50000", "auth": "CHAP-SHA256",
            "header_digest": "CRC32C", "data_digest": "None",
        })
    }

    #[test]
    fn table_when_ids_differ_in_length_then_columns_line_up() {
        let lines = table(&[session(7, "iqn.a:one", &json!("iqn.t:disk0")), session(12345, "iqn.a:two", &Value::Null)]);
        let at = |line: &String, word: &str| line.find(word).unwrap_or_else(|| panic!("{word} in {line}"));
        assert_eq!(at(&lines[0], "INITIATOR"), at(&lines[1], "iqn.a"));
        assert_eq!(at(&lines[0], "INITIATOR"), at(&lines[2], "iqn.a"));
        assert_eq!(at(&lines[0], "TARGET"), at(&lines[2], "(discovery)"));
        assert_eq!(at(&lines[0], "DIGESTS"), at(&lines[1], "header"));
    }

    #[test]
    fn table_when_names_are_long_then_120_columns_with_the_names_ends() {
        let long = format!("iqn.{}:end", "x".repeat(200));
        for target in [json!(long), json!("iqn.t:disk0")] {
            for line in table(&[session(1, &long, &target)]) {
                assert!(line.chars().count() <= TABLE_COLUMNS, "{line}");
            }
        }
        assert!(table(&[session(1, &long, &json!(long))])[1].contains("x:end"));
    }
}
