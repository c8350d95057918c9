//! Which storage node an administrator's command talks to.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use holdfast_proto::block::tuned_endpoint;
use tonic::transport::{Channel, Endpoint as Address};

use crate::cluster_file::ClusterFile;

/// Where a storage node listens unless told otherwise.
pub(crate) const DEFAULT_ENDPOINT: &str = "127.0.0.1:7401";

/// Options of commands that talk to a storage node.
#[derive(Args, Clone, Debug)]
pub(crate) struct Endpoint {
    /// Storage node's gRPC address. Without it: the one in DATA_DIR/cluster.json if `holdfast dev` runs there, else
    /// 127.0.0.1:7401
    #[arg(long, env = "HOLDFAST_ENDPOINT", value_name = "HOST:PORT")]
    endpoint: Option<String>,
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
                (node.grpc.clone(), stale_hint(&self.data_dir))
            }
            (None, None) => (DEFAULT_ENDPOINT.to_owned(), nothing_runs_hint(&self.data_dir)),
        };
        let endpoint = Address::from_shared(format!("http://{address}"))
            .with_context(|| format!("{address:?} is not an address; write HOST:PORT"))?;
        tuned_endpoint(endpoint)
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
