//! `cluster.json`: where the parts of a `dev` system are, for scripts and for the other commands.
//!
//! It is there exactly while the system is ready.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Everything in the file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClusterFile {
    pub(crate) gateways: Vec<GatewayEntry>,
    pub(crate) nodes: Vec<NodeEntry>,
    pub(crate) volumes: Vec<VolumeEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct GatewayEntry {
    pub(crate) id: u16,
    pub(crate) portal: String,
    pub(crate) http: String,
    pub(crate) pid: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NodeEntry {
    pub(crate) id: u64,
    pub(crate) grpc: String,
    pub(crate) http: String,
    pub(crate) pid: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct VolumeEntry {
    pub(crate) name: String,
    pub(crate) target: String,
    pub(crate) lun: u16,
    pub(crate) size_bytes: u64,
}

fn path_in(data_dir: &Path) -> PathBuf {
    data_dir.join("cluster.json")
}

impl ClusterFile {
    /// The file of the system with this data directory; `None` where none runs.
    pub(crate) fn read(data_dir: &Path) -> Result<Option<Self>> {
        let path = path_in(data_dir);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        serde_json::from_str(&text).map(Some).with_context(|| format!("{} is damaged", path.display()))
    }

    /// Writes the file, whole or not at all.
    pub(crate) fn write(&self, data_dir: &Path) -> Result<()> {
        let path = path_in(data_dir);
        let fresh = path.with_extension("json.new");
        let write = || -> Result<()> {
            let mut file = File::create(&fresh)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Removes the file, if it is there: also the one that a killed process has left.
    pub(crate) fn remove(data_dir: &Path) -> Result<()> {
        let path = path_in(data_dir);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }
}
