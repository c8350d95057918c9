//! A `holdfast dev` of the test's own: its folder, its process, and the addresses it has written into `cluster.json`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::http::{self, Metrics};
use crate::process::{Finished, Server, Signal, run};
use crate::{binary, wait};

/// How long a start may take. Generous: the machine may be busy with other tests.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// How long an orderly stop may take.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// What a cluster is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    volumes: Vec<String>,
    access: Option<String>,
    more: Vec<OsString>,
    parent: Option<PathBuf>,
}

impl Options {
    /// With these volumes, as `--volume` takes them.
    pub fn volumes(volumes: &[&str]) -> Self {
        Self { volumes: volumes.iter().map(|volume| (*volume).to_owned()).collect(), ..Self::default() }
    }

    /// With this access file. Secret files that it names are put beside it by [`Cluster::put_secret`].
    #[must_use]
    pub fn access(mut self, toml: &str) -> Self {
        self.access = Some(toml.to_owned());
        self
    }

    /// With one more argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.more.push(argument.into());
        self
    }

    /// With its folder inside this one: tmpfs, for instance.
    #[must_use]
    pub fn inside(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_path_buf());
        self
    }

    /// Starts the cluster and waits until it is ready.
    pub fn start(self) -> Result<Cluster> {
        let mut cluster = self.prepare()?;
        cluster.start()?;
        Ok(cluster)
    }

    /// Makes the folder only, so that files can be put there before [`Cluster::start`].
    pub fn prepare(self) -> Result<Cluster> {
        let folder = match &self.parent {
            Some(parent) => tempfile::tempdir_in(parent)?,
            None => tempfile::tempdir()?,
        };
        if let Some(access) = &self.access {
            std::fs::write(folder.path().join("access.toml"), access)?;
        }
        Ok(Cluster { folder, options: self, running: None })
    }
}

#[derive(Debug)]
struct Running {
    server: Server,
    description: Value,
}

/// A cluster on this machine. Its process is killed and its folder removed when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: first the process, then its folder.
    running: Option<Running>,
    folder: TempDir,
    options: Options,
}

impl Cluster {
    /// Starts a cluster with these volumes.
    pub fn with_volumes(volumes: &[&str]) -> Result<Self> {
        Options::volumes(volumes).start()
    }

    /// The folder that holds the data folder, the log and the access file.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// Puts a file with a secret beside the access file.
    pub fn put_secret(&self, name: &str, secret: &[u8]) -> Result<()> {
        Ok(std::fs::write(self.folder().join(name), secret)?)
    }

    /// The command line of `holdfast dev` for this cluster.
    pub fn command(&self) -> Result<Command> {
        let mut command = Command::new(binary::holdfast()?);
        command.arg("dev").arg("--data-dir").arg(self.data_dir()).args(["--iscsi-port", "0"]);
        for volume in &self.options.volumes {
            command.arg("--volume").arg(volume);
        }
        if self.options.access.is_some() {
            command.arg("--access").arg(self.folder().join("access.toml"));
        }
        command.args(&self.options.more).env("RUST_BACKTRACE", "1");
        Ok(command)
    }

    /// Starts the process and waits until it is ready.
    pub fn start(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "it runs already");
        let mut server = Server::start(self.command()?, &self.folder().join("log"))?;
        let file = self.data_dir().join("cluster.json");
        let description = wait::until("cluster.json", START_DEADLINE, || {
            if let Some(status) = server.exited()? {
                bail!("holdfast dev ended with {status}: {}", server.log());
            }
            let Ok(text) = std::fs::read_to_string(&file) else {
                return Ok(None);
            };
            // It is replaced as a whole, so it can always be read; after a kill -9 the old one is still there.
            let description: Value = serde_json::from_str(&text).context("cluster.json")?;
            let pid = description["gateways"][0]["pid"].as_u64();
            Ok((pid == Some(u64::from(server.pid()))).then_some(description))
        })?;
        self.running = Some(Running { server, description });
        Ok(())
    }

    fn running(&self) -> Result<&Running> {
        self.running.as_ref().context("it does not run")
    }

    /// The process.
    pub fn server(&mut self) -> Result<&mut Server> {
        Ok(&mut self.running.as_mut().context("it does not run")?.server)
    }

    /// What is in `cluster.json`.
    pub fn description(&self) -> Result<&Value> {
        Ok(&self.running()?.description)
    }

    /// Everything that was logged, over all starts.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.server()?.kill()?;
        self.running = None;
        Ok(())
    }

    /// SIGTERM; returns how the process has ended.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let status = self.server()?.stop(STOP_DEADLINE)?;
        self.running = None;
        Ok(status)
    }

    /// Waits for the process to end by itself; returns how.
    pub fn wait_for_end(&mut self) -> Result<ExitStatus> {
        let server = self.server()?;
        let status = wait::until("the end of the process", STOP_DEADLINE, || server.exited())?;
        self.running = None;
        Ok(status)
    }

    /// Sends the process a signal.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.server()?.signal(signal)
    }

    /// Where the gateway listens for initiators.
    pub fn portal(&self) -> Result<SocketAddr> {
        self.address("gateways", "portal")
    }

    /// The gateway's admin HTTP.
    pub fn gateway_http(&self) -> Result<SocketAddr> {
        self.address("gateways", "http")
    }

    /// The storage node's admin HTTP.
    pub fn node_http(&self) -> Result<SocketAddr> {
        self.address("nodes", "http")
    }

    fn address(&self, group: &str, key: &str) -> Result<SocketAddr> {
        let value = &self.description()?[group][0][key];
        let text = value.as_str().with_context(|| format!("{group}[0].{key} in cluster.json"))?;
        text.parse().with_context(|| format!("{group}[0].{key}: {text:?}"))
    }

    /// The target name of a volume.
    pub fn target(&self, volume: &str) -> Result<String> {
        let volumes = self.description()?["volumes"].as_array().context("volumes in cluster.json")?;
        let found = volumes.iter().find(|entry| entry["name"] == volume);
        let target = found.and_then(|entry| entry["target"].as_str());
        Ok(target.with_context(|| format!("no volume {volume:?} in cluster.json"))?.to_owned())
    }

    /// The URL of a volume, as libiscsi and qemu take it.
    pub fn url(&self, volume: &str) -> Result<String> {
        self.url_at(self.portal()?, volume)
    }

    /// The URL of a volume at another address than the portal's: that of a relay, or with `user%secret@` before it.
    pub fn url_at(&self, portal: impl std::fmt::Display, volume: &str) -> Result<String> {
        Ok(format!("iscsi://{portal}/{}/0", self.target(volume)?))
    }

    /// The gateway's metrics.
    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::read(self.gateway_http()?)
    }

    /// The gateway's list of sessions.
    pub fn sessions(&self) -> Result<Vec<Value>> {
        let answer = http::get(self.gateway_http()?, "/sessions")?;
        ensure!(answer.status == 200, "/sessions answered {}: {}", answer.status, answer.body);
        let body: Value = serde_json::from_str(&answer.body).context("/sessions")?;
        Ok(body["sessions"].as_array().context("sessions")?.clone())
    }

    /// The session with this handle, from the gateway's list.
    pub fn session(&self, tsih: u16) -> Result<Value> {
        let found = self.sessions()?.into_iter().find(|session| session["tsih"] == tsih);
        found.with_context(|| format!("no session with TSIH {tsih}"))
    }

    /// Runs an admin command of the binary against this cluster's data directory.
    pub fn admin(&self, arguments: &[&str], deadline: Duration) -> Result<Finished> {
        let mut command = Command::new(binary::holdfast()?);
        command.args(arguments).arg("--data-dir").arg(self.data_dir());
        run(command, deadline)
    }
}
