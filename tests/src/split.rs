//! A gateway and a storage node in processes of their own, so that one can be frozen while the other goes on.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{Server, run};
use crate::{binary, wait};

const START_DEADLINE: Duration = Duration::from_secs(60);
const VOLUME: &str = "disk0";
const STORAGE_LOG: &str = "storage.log";

/// Both processes and one volume of 64 MiB, `disk0`.
#[derive(Debug)]
pub struct Split {
    // Dropped in this order: first the processes, then the folder.
    gateway: Server,
    storage: Server,
    portal: SocketAddr,
    grpc: SocketAddr,
    folder: TempDir,
}

impl Split {
    /// Starts the storage node, makes the volume, starts the gateway.
    pub fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (storage, grpc) = start_storage(folder.path(), any)?;

        let mut command = Command::new(binary::holdfast()?);
        command.args(["volume", "create", VOLUME, "64MiB", "--endpoint", &grpc.to_string()]);
        run(command, START_DEADLINE)?.succeeded().context("volume create")?;

        let mut command = Command::new(binary::holdfast()?);
        command.args(["gateway", "--iscsi-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
        command.args(["--storage", &grpc.to_string()]);
        let mut gateway = Server::start(command, &folder.path().join("gateway.log"))?;
        let portal = logged_address(&mut gateway, "portal=")?;
        Ok(Self { gateway, storage, portal, grpc, folder })
    }

    /// Kills the storage node and starts it again at the same address.
    pub fn restart_storage(&mut self) -> Result<()> {
        self.storage.kill()?;
        std::fs::remove_file(self.folder.path().join(STORAGE_LOG))?;
        (self.storage, self.grpc) = start_storage(self.folder.path(), self.grpc)?;
        Ok(())
    }

    /// Where the gateway listens for initiators.
    pub fn portal(&self) -> SocketAddr {
        self.portal
    }

    /// The target of the volume.
    pub fn target(&self) -> String {
        format!("iqn.2026-11.io.holdfast:{VOLUME}")
    }

    /// The gateway's process.
    pub fn gateway(&mut self) -> &mut Server {
        &mut self.gateway
    }

    /// The storage node's process.
    pub fn storage(&mut self) -> &mut Server {
        &mut self.storage
    }
}

fn start_storage(folder: &Path, listen: SocketAddr) -> Result<(Server, SocketAddr)> {
    let mut command = Command::new(binary::holdfast()?);
    command.args(["storaged", "--http-listen", "127.0.0.1:0", "--listen", &listen.to_string(), "--data-dir"]);
    command.arg(folder.join("data"));
    let mut storage = Server::start(command, &folder.join(STORAGE_LOG))?;
    let grpc = logged_address(&mut storage, "grpc=")?;
    Ok((storage, grpc))
}

/// The address that the process logs after `label`, once it has.
fn logged_address(server: &mut Server, label: &str) -> Result<SocketAddr> {
    wait::until(&format!("{label} in the log"), START_DEADLINE, || {
        if let Some(status) = server.exited()? {
            bail!("ended with {status}: {}", server.log());
        }
        let log = without_colours(&server.log());
        let Some((_, rest)) = log.split_once(label) else {
            return Ok(None);
        };
        let text: String = rest.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
        Ok(rest[text.len()..].starts_with(char::is_whitespace).then(|| text.parse()).transpose()?)
    })
}

/// Removes the escape sequences that colour a log.
fn without_colours(text: &str) -> String {
    let mut plain = String::new();
    let mut pieces = text.split('\u{1b}');
    plain.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        plain.push_str(piece.split_once('m').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colours_when_text_is_coloured_then_only_the_text() {
        assert_eq!(without_colours("a\u{1b}[2mb\u{1b}[0m=c"), "ab=c");
    }
}
