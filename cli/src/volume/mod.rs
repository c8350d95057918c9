//! `holdfast volume`: volumes of a storage node, and their content without an initiator.

mod export;
mod import;
mod pipeline;
mod progress;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use holdfast_gateway::TARGET_PREFIX;
use holdfast_proto::ids::VolumeName;
use holdfast_proto::units::{BlockSize, SizeBytes};
use holdfast_proto::volumes::volumes_client::VolumesClient;
use holdfast_proto::volumes::{CreateRequest, GetRequest, ListRequest, Usage, Volume, VolumeKind};
use serde_json::json;
use tonic::transport::Channel;

use crate::daemon;
use crate::endpoint::Endpoint;
use crate::output;
use crate::session::{Output, initiators_of};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the volumes
    List(ListOptions),
    /// Make a volume
    Create(CreateOptions),
    /// Copy a raw image file into a volume; what the file does not cover reads as zeros afterwards
    Import(ImportOptions),
    /// Copy a volume into a raw image file, sparse
    Export(ExportOptions),
}

#[derive(Args)]
pub(crate) struct ListOptions {
    #[command(flatten)]
    endpoint: Endpoint,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Args)]
pub(crate) struct CreateOptions {
    /// Name: 1 to 63 of a-z, 0-9 and -, beginning with a letter or digit
    name: VolumeName,
    /// Size, such as 10GiB
    size: SizeBytes,
    /// Logical block size in bytes: 512 (512e) or 4096 (4Kn)
    #[arg(long, default_value = "512", value_name = "BYTES")]
    block_size: BlockSize,
    /// disk keeps what is written; null drops it and reads zeros, to measure the network path
    #[arg(long, value_enum, default_value_t = KindOption::Disk)]
    kind: KindOption,
    /// Refuse writes: the volume stays empty
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    endpoint: Endpoint,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindOption {
    Disk,
    Null,
}

impl From<KindOption> for VolumeKind {
    fn from(option: KindOption) -> Self {
        match option {
            KindOption::Disk => Self::Disk,
            KindOption::Null => Self::Null,
        }
    }
}

#[derive(Args)]
pub(crate) struct ImportOptions {
    /// Volume to write
    name: VolumeName,
    /// Raw image file
    file: PathBuf,
    /// Do not ask before writing over a volume that holds data
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    endpoint: Endpoint,
}

#[derive(Args)]
pub(crate) struct ExportOptions {
    /// Volume to read
    name: VolumeName,
    /// File to make
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    endpoint: Endpoint,
}

pub(crate) fn run(command: Command) -> Result<()> {
    daemon::runtime()?.block_on(async {
        match command {
            Command::List(options) => list(options).await,
            Command::Create(options) => create(options).await,
            Command::Import(options) => import(options).await,
            Command::Export(options) => export(options).await,
        }
    })
}

async fn list(options: ListOptions) -> Result<()> {
    let channel = options.endpoint.connect().await?;
    let mut client = VolumesClient::new(channel);
    let volumes = client.list(ListRequest {}).await.map_err(said)?.into_inner().volumes;
    let mut rows = Vec::with_capacity(volumes.len());
    for volume in volumes {
        let request = GetRequest { name: volume.name.clone() };
        let usage = client.get(request).await.map_err(said)?.into_inner().usage.unwrap_or_default();
        rows.push((volume, usage));
    }
    match options.output {
        Output::Json => {
            let list: Vec<_> = rows.iter().map(|(volume, usage)| as_json(volume, usage)).collect();
            output::line(serde_json::to_string_pretty(&json!({ "volumes": list }))?)?;
        }
        Output::Table => {
            output::line(format!(
                "{:<32} {:>12} {:>12} {:>6} {:<5} {:<4} TARGET",
                "NAME", "SIZE", "USED", "BLOCK", "KIND", "MODE"
            ))?;
            for (volume, usage) in rows {
                output::line(format!(
                    "{:<32} {:>12} {:>12} {:>6} {:<5} {:<4} {TARGET_PREFIX}{}",
                    volume.name,
                    size(volume.size_bytes),
                    size(usage.allocated_bytes),
                    volume.block_size,
                    kind(&volume),
                    if volume.read_only { "ro" } else { "rw" },
                    volume.name,
                ))?;
            }
        }
    }
    Ok(())
}

fn as_json(volume: &Volume, usage: &Usage) -> serde_json::Value {
    json!({
        "name": volume.name,
        "id": volume.id,
        "naa": format!("{:016x}", volume.naa),
        "size_bytes": volume.size_bytes,
        "allocated_bytes": usage.allocated_bytes,
        "block_size": volume.block_size,
        "kind": kind(volume),
        "read_only": volume.read_only,
        "target": format!("{TARGET_PREFIX}{}", volume.name),
    })
}

fn kind(volume: &Volume) -> &'static str {
    match volume.kind() {
        VolumeKind::Disk => "disk",
        VolumeKind::Null => "null",
        VolumeKind::Unspecified => "?",
    }
}

fn size(bytes: u64) -> String {
    SizeBytes::new(bytes).map_or_else(|_| bytes.to_string(), |size| size.to_string())
}

async fn create(options: CreateOptions) -> Result<()> {
    let channel = options.endpoint.connect().await?;
    let request = CreateRequest {
        name: options.name.to_string(),
        size_bytes: options.size.get(),
        block_size: options.block_size.bytes(),
        kind: VolumeKind::from(options.kind).into(),
        read_only: options.read_only,
    };
    VolumesClient::new(channel).create(request).await.map_err(said)?;
    let name = &options.name;
    output::line(format!(
        "volume {name} of {} created; a gateway of this node serves it within 2 s as {TARGET_PREFIX}{name}",
        options.size
    ))
}

async fn import(options: ImportOptions) -> Result<()> {
    let channel = options.endpoint.connect().await?;
    let (volume, usage) = find(&channel, &options.name).await?;
    let source = import::Source::open(&options.file, &volume)?;
    refuse_in_use(&options.endpoint, &volume).await?;
    if usage.allocated_bytes > 0 && !options.yes {
        let question = format!("volume {} holds {}. Write over it?", volume.name, size(usage.allocated_bytes));
        if !confirmed(&question)? {
            bail!("nothing was changed");
        }
    }
    let done = import::run(channel, &volume, source).await?;
    output::line(format!("{}  {}", done.sha256, options.file.display()))?;
    output::line(format!(
        "{} imported into volume {}, {} of it data",
        size(done.total_bytes),
        volume.name,
        size(done.data_bytes)
    ))
}

async fn export(options: ExportOptions) -> Result<()> {
    let channel = options.endpoint.connect().await?;
    let (volume, _) = find(&channel, &options.name).await?;
    let sink = export::Sink::create(&options.file, options.overwrite)?;
    let done = export::run(channel, &volume, sink).await?;
    output::line(format!("{}  {}", done.sha256, options.file.display()))?;
    output::line(format!(
        "{} exported from volume {}, {} of it data",
        size(done.total_bytes),
        volume.name,
        size(done.data_bytes)
    ))
}

/// The volume of that name, which has to be one with content.
async fn find(channel: &Channel, name: &VolumeName) -> Result<(Volume, Usage)> {
    let request = GetRequest { name: name.to_string() };
    let answer = VolumesClient::new(channel.clone()).get(request).await.map_err(said)?.into_inner();
    let volume = answer.volume.context("the storage node gave an answer without a volume")?;
    if volume.kind() != VolumeKind::Disk {
        bail!("volume {name} is of kind {} and keeps no data", kind(&volume));
    }
    Ok((volume, answer.usage.unwrap_or_default()))
}

/// A volume that a host has attached must not change under it.
async fn refuse_in_use(endpoint: &Endpoint, volume: &Volume) -> Result<()> {
    let Some(cluster) = endpoint.dev_cluster()? else {
        return Ok(());
    };
    let target = format!("{TARGET_PREFIX}{}", volume.name);
    for gateway in &cluster.gateways {
        let initiators = initiators_of(&gateway.http, &target).await?;
        if !initiators.is_empty() {
            bail!("volume {} is in use by {}; log the hosts out first", volume.name, initiators.join(", "));
        }
    }
    Ok(())
}

/// Asks at the terminal; without one the answer has to be given by `--yes`.
fn confirmed(question: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("{question} Add --yes to say so");
    }
    eprint!("{question} [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The storage node's own words.
fn said(status: tonic::Status) -> anyhow::Error {
    anyhow::anyhow!("{}", status.message())
}
