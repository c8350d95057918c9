//! Which storage node an administrator's command talks to.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use holdfast_proto::block::tuned_endpoint;
use hyper::http::uri::Authority;
use tonic::transport::{Channel, Endpoint as Address};

use crate::cluster_file::ClusterFile;

/// Where a storage node listens unless told otherwise.
pub(crate) const DEFAULT_ENDPOINT: &str = "127.0.0.1:7401";

/// A host, by name or address, and a port that is not 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort(Authority);

impl HostPort {
    /// The address for gRPC.
    pub(crate) fn endpoint(&self) -> Result<Address> {
        Address::from_shared(format!("http://{self}")).with_context(|| format!("cannot use the address {self}"))
    }
}

impl FromStr for HostPort {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        text.parse::<Authority>()
            .ok()
            .filter(|address| !address.host().is_empty() && !text.contains('@'))
            .filter(|address| address.port_u16().is_some_and(|port| port != 0))
            .map(Self)
            .ok_or_else(|| anyhow!("write HOST:PORT"))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Options of commands that talk to a storage node.
#[derive(Args, Clone, Debug)]
pub(crate) struct Endpoint {
    /// Storage node's gRPC address. Without it: the one in DATA_DIR/cluster.json if `holdfast dev` runs there, else
    /// 127.0.0.1:7401
    #[arg(long, env = "HOLDFAST_ENDPOINT", value_name = "HOST:PORT")]
    endpoint: Option<HostPort>,
    /// Data directory of the `holdfast dev` to talk to
    #[arg(long, default_value = "./holdfast-data", value_name = "DIR")]
    data_dir: PathBuf,
}

impl Endpoint {
    /// The `dev` system that the command is about, if it is not told another endpoint.
    pub(crate) fn dev_cluster(&self) -> Result<Option<ClusterFile>> {
        match self.endpoint {
            Some(_) => Ok(None),
            None => ClusterFile::read(&self.data_dir),
        }
    }

    /// A channel to the node.
    pub(crate) async fn connect(&self) -> Result<Channel> {
        let (address, hint) = match (&self.endpoint, self.dev_cluster()?) {
            (Some(address), _) => (address.clone(), String::new()),
            (None, Some(cluster)) => {
                let node = cluster.nodes.first().context("cluster.json names no storage node")?;
                (node.grpc.parse()?, stale_hint(&self.data_dir))
            }
            (None, None) => (DEFAULT_ENDPOINT.parse()?, nothing_runs_hint(&self.data_dir)),
        };
        tuned_endpoint(address.endpoint()?)
            .connect()
            .await
            .with_context(|| format!("cannot reach the storage node at {address}{hint}"))
    }
}

fn stale_hint(data_dir: &Path) -> String {
    format!(" (from {}/cluster.json; is `holdfast dev` still running?)", data_dir.display())
}

fn nothing_runs_hint(data_dir: &Path) -> String {
    format!(
        " (no {}/cluster.json, so no `holdfast dev` runs there; start it, or name the node with --endpoint)",
        data_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_port_when_whole_then_kept() {
        for text in ["127.0.0.1:7401", "[::1]:7401", "storage.example:65535"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn host_port_when_a_part_is_missing_then_what_to_write() {
        for text in
            ["", "foo", "foo:", ":7401", "foo:0", "foo:70000", "http://foo:7401", "foo:7401/x", "u@foo:7401", "::1"]
        {
            let error = text.parse::<HostPort>().unwrap_err().to_string();
            assert!(error.contains("write HOST:PORT"), "{text}: {error}");
        }
    }
}
