//! Failing system calls: strace, attached to a running process, answers some of its calls in place of the kernel.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{Server, Signal};
use crate::wait;

const DEADLINE: Duration = Duration::from_secs(30);

/// strace while it is attached.
#[derive(Debug)]
pub struct Injection {
    strace: Server,
    trace: PathBuf,
}

impl Injection {
    /// Whether strace is there and may attach itself to a process; else why not.
    pub fn is_possible(folder: &Path) -> Result<(), String> {
        let mut sleeper = Command::new("sleep");
        sleeper.arg("60");
        let process = Server::start(sleeper, &folder.join("sleeper.log")).map_err(|error| format!("{error:#}"))?;
        let injection = Self::attach(&process, None, &["trace=none"], &folder.join("probe"));
        injection.and_then(Self::detach).map_err(|error| format!("strace cannot attach itself: {error:#}"))
    }

    /// Attaches strace to the thread of `process` with this name, or to all of them, with expressions of its option `-e`; what
    /// it sees goes to `trace`.
    pub fn attach(process: &Server, thread: Option<&str>, expressions: &[&str], trace: &Path) -> Result<Self> {
        let mut command = Command::new("strace");
        match thread {
            Some(name) => command.args(["-p", &thread_id(process, name)?]),
            None => command.args(["-f", "-p", &process.pid().to_string()]),
        };
        for expression in expressions {
            command.args(["-e", expression]);
        }
        command.args(["-y", "-o"]).arg(trace);
        let mut strace = Server::start(command, &trace.with_extension("strace"))?;
        wait::until("strace to be attached", DEADLINE, || {
            let ended = strace.exited()?;
            let log = strace.log();
            ensure!(ended.is_none(), "strace: {}", log.trim());
            Ok(log.contains(" attached").then_some(()))
        })?;
        Ok(Self { strace, trace: trace.to_path_buf() })
    }

    /// How many calls it has made fail.
    pub fn injected(&self) -> Result<usize> {
        Ok(self.trace()?.lines().filter(|line| line.contains("(INJECTED)")).count())
    }

    /// What strace has seen so far, with the files.
    pub fn trace(&self) -> Result<String> {
        std::fs::read_to_string(&self.trace).context("what strace saw")
    }

    /// Lets the process go; from now on its calls reach the kernel.
    pub fn detach(mut self) -> Result<()> {
        self.strace.signal(Signal::Terminate)?;
        wait::until("strace to let go", DEADLINE, || self.strace.exited())?;
        Ok(())
    }
}

fn thread_id(process: &Server, name: &str) -> Result<String> {
    for task in std::fs::read_dir(format!("/proc/{}/task", process.pid()))? {
        let task = task?;
        if std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name) {
            return Ok(task.file_name().to_string_lossy().into_owned());
        }
    }
    bail!("process {} has no thread {name}", process.pid())
}
