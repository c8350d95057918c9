//! `holdfast dev`: one gateway and one storage node in one process, for trying out and for development.
//!
//! The two exchange the same gRPC messages as over a network, only without HTTP/2, so that what is tried here is what runs in production.

mod announce;
mod volume_spec;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use holdfast_gateway::{AccessRules, Config as GatewayConfig, Gateway, Limits, TARGET_PREFIX};
use holdfast_storaged::{Config as StoragedConfig, Storaged};
use holdfast_store::{Kind, NewVolume, Store, VolumeRecord};

use self::volume_spec::VolumeSpec;
use crate::cluster_file::{ClusterFile, GatewayEntry, NodeEntry, VolumeEntry};
use crate::daemon::{self, StopSignal};
use crate::output::{self, parse_argument};

/// The volume that a fresh data directory gets when no other is named.
const DEFAULT_VOLUME: &str = "disk0=1GiB";

/// Time that gateway and storage node have to find each other in one process.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct Options {
    /// Folder for all data; made if it does not exist, kept over restarts
    #[arg(long, default_value = "./holdfast-data", value_name = "DIR")]
    data_dir: PathBuf,
    /// Volume to have, made if it does not exist: `NAME=SIZE[,block-size=512|4096][,kind=disk|null][,read-only]`.
    /// Repeatable. A fresh data directory gets disk0=1GiB without it
    #[arg(long = "volume", value_name = "SPEC", value_parser = parse_argument::<VolumeSpec>)]
    volumes: Vec<VolumeSpec>,
    /// Port for iSCSI on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 3260, value_name = "PORT")]
    iscsi_port: u16,
    /// Port of the gateway's metrics, health and sessions on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    http_port: u16,
    /// Storage nodes; more than one comes with replication and is refused until then
    #[arg(long, default_value_t = 1, value_name = "N")]
    nodes: u32,
    /// Gateways; more than one comes with multipath and is refused until then
    #[arg(long, default_value_t = 1, value_name = "N")]
    gateways: u32,
    /// Threads that serve sessions; 0 takes one for each core
    #[arg(long, default_value_t = 0, value_name = "N")]
    workers: usize,
    /// File that says who may log in and with which CHAP secrets; without it, everybody
    #[arg(long, value_name = "FILE")]
    access: Option<PathBuf>,
}

pub(crate) fn run(options: Options) -> Result<()> {
    if options.nodes != 1 {
        bail!("--nodes {}: this version runs one storage node; use --nodes 1", options.nodes);
    }
    if options.gateways != 1 {
        bail!("--gateways {}: this version runs one gateway; use --gateways 1", options.gateways);
    }
    let access = match &options.access {
        Some(path) => AccessRules::read(path)?,
        None => AccessRules::default(),
    };
    refuse_names_twice(&options.volumes)?;
    daemon::runtime()?.block_on(serve(options, access))
}

fn refuse_names_twice(volumes: &[VolumeSpec]) -> Result<()> {
    for (index, spec) in volumes.iter().enumerate() {
        if volumes.iter().take(index).any(|other| other.name == spec.name) {
            bail!("--volume {}: this name is given twice; each volume needs its own", spec.name);
        }
    }
    Ok(())
}

async fn serve(options: Options, access: AccessRules) -> Result<()> {
    let stop = StopSignal::listen()?;
    // Everything that can be refused is, before the disk is touched.
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let portal = daemon::listen(local(options.iscsi_port), "iSCSI", "--iscsi-port")?;
    let gateway_http = daemon::listen(local(options.http_port), "HTTP", "--http-port")?;
    let grpc = daemon::listen(local(0), "gRPC", "--iscsi-port")?;
    let node_http = daemon::listen(local(0), "HTTP", "--iscsi-port")?;

    let storaged =
        Storaged::open(StoragedConfig { data_dir: options.data_dir.join("node1"), ..StoragedConfig::default() })?;
    ClusterFile::remove(&options.data_dir)?;
    let volumes = ensure_volumes(&*storaged.store(), &options.volumes)?;
    let node = storaged.serve(grpc, node_http)?;

    let services = storaged.clone();
    let gateway = Gateway::start(GatewayConfig {
        id: 1,
        portal,
        advertised: None,
        http: gateway_http,
        workers: options.workers,
        access,
        storage: Arc::new(move || {
            let channel = services.local_channel();
            Box::pin(async move { Ok(channel) })
        }),
        limits: Limits::default(),
    })
    .await?;

    tokio::time::timeout(READY_TIMEOUT, gateway.ready())
        .await
        .context("the gateway does not reach the storage node")?;

    let pid = std::process::id();
    let cluster = ClusterFile {
        gateways: vec![GatewayEntry {
            id: 1,
            portal: gateway.portal().to_string(),
            http: gateway.http().to_string(),
            pid,
        }],
        nodes: vec![NodeEntry { id: 1, grpc: node.grpc().to_string(), http: node.http().to_string(), pid }],
        volumes: volumes
            .iter()
            .map(|volume| VolumeEntry {
                name: volume.name.to_string(),
                target: format!("{TARGET_PREFIX}{}", volume.name),
                lun: 0,
                size_bytes: volume.size_bytes,
            })
            .collect(),
    };
    cluster.write(&options.data_dir)?;
    output::line(announce::ready(&cluster, &options.data_dir))?;

    stop.received().await;
    ClusterFile::remove(&options.data_dir)?;
    gateway.stop().await;
    node.stop().await;
    storaged.close().context("the data directory could not be closed in order")?;
    Ok(())
}

/// Makes the volumes that are wanted and do not exist; those that do have to be what is wanted. All volumes, in the end.
fn ensure_volumes(store: &dyn Store, wanted: &[VolumeSpec]) -> Result<Vec<VolumeRecord>> {
    let existing = store.volumes();
    let mut missing = Vec::new();
    for spec in wanted {
        match existing.iter().find(|volume| volume.name == spec.name) {
            Some(volume) => compare(volume, spec)?,
            None => missing.push(spec.clone()),
        }
    }
    if existing.is_empty() && wanted.is_empty() {
        missing.push(DEFAULT_VOLUME.parse()?);
    }
    for spec in missing {
        let name = spec.name.clone();
        store
            .create_volume(NewVolume {
                name: spec.name,
                size_bytes: spec.size.get(),
                block_size: spec.block_size,
                kind: spec.kind,
                read_only: spec.read_only,
            })
            .with_context(|| format!("cannot make volume {name}"))?;
    }
    Ok(store.volumes())
}

fn compare(volume: &VolumeRecord, spec: &VolumeSpec) -> Result<()> {
    let name = &spec.name;
    let differs = |what: &str, has: &dyn std::fmt::Display, wanted: &dyn std::fmt::Display| {
        bail!("volume {name} exists with {what} {has}, not {wanted}; leave --volume {name} out, or choose another name")
    };
    if volume.size_bytes != spec.size.get() {
        return differs("a size of", &volume.size_bytes, &spec.size.get());
    }
    if volume.block_size != spec.block_size {
        return differs("a block size of", &volume.block_size.bytes(), &spec.block_size.bytes());
    }
    if volume.kind != spec.kind {
        return differs("kind", &kind_name(volume.kind), &kind_name(spec.kind));
    }
    if volume.read_only != spec.read_only {
        return differs("read-only", &volume.read_only, &spec.read_only);
    }
    Ok(())
}

/// What the command line calls a kind.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Disk => "disk",
        Kind::Null => "null",
    }
}
