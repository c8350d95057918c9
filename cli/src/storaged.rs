//! `holdfast storaged`: a storage node.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use holdfast_storaged::{Config, Storaged};
use tracing::info;

use crate::daemon::{self, StopSignal};
use crate::endpoint::DEFAULT_ENDPOINT;

#[derive(Args)]
pub(crate) struct Options {
    /// Folder for all data; made if it does not exist
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Address to listen on for gRPC
    #[arg(long, default_value = DEFAULT_ENDPOINT, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Address to listen on for metrics and health
    #[arg(long, default_value = "127.0.0.1:7402", value_name = "ADDRESS:PORT")]
    http_listen: SocketAddr,
    /// Allow --listen and --http-listen on an address that other machines reach, without encryption or authentication
    #[arg(long)]
    insecure: bool,
}

pub(crate) fn run(options: Options) -> Result<()> {
    daemon::loopback_unless_insecure(options.listen, options.insecure, "--listen")?;
    daemon::loopback_unless_insecure(options.http_listen, options.insecure, "--http-listen")?;
    let grpc = daemon::listen(options.listen, "gRPC", "--listen")?;
    let http = daemon::listen(options.http_listen, "HTTP", "--http-listen")?;
    daemon::runtime()?.block_on(async {
        let stop = StopSignal::listen()?;
        let storaged = Storaged::open(Config {
            data_dir: options.data_dir,
            http_beyond_loopback: options.insecure,
            ..Config::default()
        })?;
        let node = storaged.serve(grpc, http)?;
        info!(grpc = %node.grpc(), http = %node.http(), "storage node is ready");
        stop.received().await;
        node.stop().await;
        storaged.close().context("the data directory could not be closed in order")
    })
}
