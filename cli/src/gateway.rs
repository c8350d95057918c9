//! `holdfast gateway`: a gateway for a storage node elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use holdfast_gateway::{AccessRules, Config, Gateway, Limits};
use holdfast_proto::block::tuned_endpoint;

use crate::daemon::{self, StopSignal};
use crate::endpoint::{DEFAULT_ENDPOINT, HostPort};
use crate::output::error_text;

#[derive(Args)]
pub(crate) struct Options {
    /// Storage node's gRPC address
    #[arg(long, default_value = DEFAULT_ENDPOINT, value_name = "HOST:PORT")]
    storage: HostPort,
    /// Number of this gateway in its cluster: its target portal group tag
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    id: u16,
    /// Address to listen on for iSCSI
    #[arg(long, default_value = "127.0.0.1:3260", value_name = "ADDRESS:PORT")]
    iscsi_listen: SocketAddr,
    /// Portal told to initiators, a name or an address; without it, the address that each has connected to
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Address to listen on for metrics, health and sessions
    #[arg(long, default_value = "127.0.0.1:7410", value_name = "ADDRESS:PORT")]
    http_listen: SocketAddr,
    /// Allow --http-listen on an address that other machines reach, without encryption or authentication: it lists who is
    /// logged in
    #[arg(long)]
    insecure: bool,
    /// Threads that serve sessions; 0 takes one for each core
    #[arg(long, default_value_t = 0, value_name = "N")]
    workers: usize,
    /// File that says who may log in and with which CHAP secrets; without it, everybody
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
}

pub(crate) fn run(options: Options) -> Result<()> {
    daemon::loopback_unless_insecure(options.http_listen, options.insecure, "--http-listen")?;
    let access = match &options.access {
        Some(path) => AccessRules::read(path)?,
        None => AccessRules::default(),
    };
    let endpoint = tuned_endpoint(options.storage.endpoint()?);
    let portal = daemon::listen(options.iscsi_listen, "iSCSI", "--iscsi-listen")?;
    let http = daemon::listen(options.http_listen, "HTTP", "--http-listen")?;
    daemon::runtime()?.block_on(async {
        let stop = StopSignal::listen()?;
        let gateway = Gateway::start(Config {
            id: options.id,
            portal,
            advertised: options.advertise,
            http,
            workers: options.workers,
            access,
            // tonic's own text is only "transport error"; the causes tell more.
            storage: Arc::new(move || {
                let endpoint = endpoint.clone();
                Box::pin(async move { endpoint.connect().await.map(Into::into).map_err(|error| error_text(&error)) })
            }),
            limits: Limits::default(),
        })
        .await?;
        stop.received().await;
        gateway.stop().await;
        Ok(())
    })
}
