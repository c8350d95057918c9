//! Child processes that never outlive their test.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::wait;

/// A running server. Killed, by its own pid, when it is dropped; a panicking test drops it too.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
}

/// Signals that the tests send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Orderly stop.
    Terminate,
    /// Freeze.
    Stop,
    /// Go on after [`Signal::Stop`].
    Continue,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Terminate => "TERM",
            Self::Stop => "STOP",
            Self::Continue => "CONT",
        }
    }
}

impl Server {
    /// Starts `command`; what it prints is appended to the file `log`.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        Ok(Self { child, log: log.to_path_buf() })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Everything it has printed so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let status = Command::new("kill").arg("-s").arg(signal.name()).arg(self.pid().to_string()).status()?;
        ensure!(status.success(), "kill -s {} {}: {status}", signal.name(), self.pid());
        Ok(())
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.signal(Signal::Terminate)?;
        wait::until("the end after SIGTERM", deadline, || self.exited())
    }

    /// The largest resident size the process has had, in bytes (VmHWM).
    pub fn peak_memory_bytes(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- the last lines of {}", self.log.display());
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}

/// What a finished command has left.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Finished {
    /// Both outputs, for messages and searches.
    pub fn output(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Fails unless the command has succeeded.
    pub fn succeeded(self) -> Result<Self> {
        ensure!(self.status.success(), "{}: {}", self.status, self.output());
        Ok(self)
    }

    /// Fails unless the command has failed by itself: an exit code, not a signal.
    pub fn failed(self) -> Result<Self> {
        ensure!(self.status.code().is_some_and(|code| code != 0), "{}: {}", self.status, self.output());
        Ok(self)
    }
}

/// Runs a command to its end. It is killed, and this fails, when `deadline` passes.
pub fn run(mut command: Command, deadline: Duration) -> Result<Finished> {
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let ended = wait::until(&format!("the end of {command:?}"), deadline, || Ok(child.try_wait()?));
    if ended.is_err() {
        child.kill()?;
        child.wait()?;
    }
    let mut finished = Finished {
        status: ended.with_context(|| read_back(&mut stderr).unwrap_or_default())?,
        stdout: String::new(),
        stderr: String::new(),
    };
    finished.stdout = read_back(&mut stdout)?;
    finished.stderr = read_back(&mut stderr)?;
    Ok(finished)
}

fn read_back(file: &mut File) -> Result<String> {
    use std::io::Seek;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn run_when_command_ends_then_status_and_both_outputs() {
        let finished = run(shell("echo out; echo err >&2; exit 3"), Duration::from_secs(10)).unwrap();
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(finished.failed().unwrap().status.code(), Some(3));
    }

    #[test]
    fn run_when_deadline_passes_then_killed() {
        assert!(run(shell("exec sleep 60"), Duration::from_millis(50)).is_err());
    }

    #[test]
    fn server_when_dropped_then_process_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(shell("exec sleep 60"), &folder.path().join("log")).unwrap();
        let proc = PathBuf::from(format!("/proc/{}", server.pid()));
        assert!(proc.exists());
        drop(server);
        assert!(!proc.exists());
    }
}
