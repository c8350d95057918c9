//! A running guest.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::disk::{Served, Unflushed};
use super::image::Image;
use crate::process::{Server, run};
use crate::random::Random;
use crate::wait;

/// Emulated in software, on a machine that may be busy with other things.
const START_DEADLINE: Duration = Duration::from_secs(300);
const KILL_DEADLINE: Duration = Duration::from_secs(30);

/// What a guest is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory of the guest.
    pub memory_mib: u32,
    /// Its first program.
    pub init: String,
    /// More words on the kernel's command line.
    pub words: Vec<String>,
    /// TCP ports of the guest that get a port on 127.0.0.1.
    pub forwarded: Vec<u16>,
}

impl Default for Options {
    fn default() -> Self {
        Self { memory_mib: 1024, init: "/payload/init".to_owned(), words: Vec::new(), forwarded: Vec::new() }
    }
}

/// The guest says itself that something is wrong in it.
#[derive(Clone, Debug)]
pub struct GuestFailed(
    /// What it says.
    pub String,
);

impl std::fmt::Display for GuestFailed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the guest has failed: {}", self.0)
    }
}

impl std::error::Error for GuestFailed {}

/// A guest that was switched on. Killed when it is dropped.
#[derive(Debug)]
pub struct Guest {
    qemu: Server,
    data: Served,
    console: PathBuf,
    monitor: PathBuf,
}

impl Guest {
    /// Switches it on; files of its own go to `folder`, which is its alone. The disks are known in the guest by the serials
    /// `root`, `payload` and `data`.
    pub fn start(folder: &Path, image: &Image, payload: &Path, data: Served, options: &Options) -> Result<Self> {
        let (console, monitor) = (folder.join("console"), folder.join("monitor"));
        let mut append =
            vec!["console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off tsc=reliable no_timer_check".to_owned()];
        append.push(format!("vm.init={}", options.init));
        append.extend(options.words.iter().cloned());
        let forwards: String =
            options.forwarded.iter().map(|port| format!(",hostfwd=tcp:127.0.0.1:0-:{port}")).collect();

        // What is slow to emulate and proves nothing is off: page tables of five levels, mitigations, doubts about the clock.
        // setpriv becomes qemu, which then ends when the test is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        command.args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max,la57=off",
            "-smp",
            "2",
            "-m",
            &options.memory_mib.to_string(),
        ]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(image.initrd());
        command.args(["-append", &append.join(" ")]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-monitor").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        for (serial, file) in [("root", image.root().as_path()), ("payload", payload)] {
            let name = file.display();
            command.arg("-blockdev").arg(format!("driver=file,node-name={serial},filename={name},read-only=on"));
            command.arg("-device").arg(format!("virtio-blk-pci,drive={serial},serial={serial}"));
        }
        let socket = data.socket.display();
        command.arg("-blockdev").arg(format!("driver=nbd,node-name=data,server.type=unix,server.path={socket}"));
        command.args(["-device", "virtio-blk-pci,drive=data,serial=data,write-cache=on"]);
        command.arg("-netdev").arg(format!("user,id=net,restrict=on{forwards}"));
        command.args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        let qemu = Server::start(command, &folder.join("qemu.log"))?;
        Ok(Self { qemu, data, console, monitor })
    }

    /// What was printed on its console.
    pub fn console(&self) -> String {
        std::fs::read(&self.console).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// What follows `vm: LABEL:` on its console, once it is there. Fails with [`GuestFailed`] when the guest gives up.
    pub fn wait_for(&mut self, label: &str) -> Result<String> {
        let waited = wait::until(&format!("{label:?} on the console"), START_DEADLINE, || {
            let ended = self.qemu.exited()?;
            let console = self.console();
            if let Some(said) = said(&console, label) {
                return Ok(Some(said));
            }
            if let Some(reason) = said(&console, "failed") {
                bail!(GuestFailed(reason));
            }
            if console.contains("Kernel panic") {
                bail!(GuestFailed("kernel panic".to_owned()));
            }
            if let Some(status) = ended {
                bail!("qemu ended with {status}: {}", self.qemu.log());
            }
            Ok(None)
        });
        waited.with_context(|| format!("--- the console:\n{}---", self.console()))
    }

    /// What follows `vm: LABEL:` on its console, if it is there by now.
    pub fn said(&self, label: &str) -> Option<String> {
        said(&self.console(), label)
    }

    /// Where a forwarded port of the guest is on this machine.
    pub fn address(&self, port: u16) -> Result<SocketAddr> {
        let table = self.ask_monitor("info usernet")?;
        // TCP[HOST_FORWARD]  12       127.0.0.1 46487       10.0.2.15  3260     0     0
        let own = table.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let forwards = fields.first()?.starts_with("TCP[HOST_FORWARD") && fields.get(5)?.parse() == Ok(port);
            forwards.then(|| fields.get(3)?.parse().ok()).flatten()
        });
        let own: u16 = own.with_context(|| format!("port {port} is not forwarded: {table}"))?;
        Ok(SocketAddr::from(([127, 0, 0, 1], own)))
    }

    fn ask_monitor(&self, question: &str) -> Result<String> {
        const PROMPT: &str = "(qemu) ";
        let mut stream = UnixStream::connect(&self.monitor)?;
        stream.set_read_timeout(Some(KILL_DEADLINE))?;
        let mut answer = String::new();
        let mut prompts = 0;
        let mut buffer = [0; 4096];
        // It prints a prompt, the question letter by letter, the answer and a prompt.
        loop {
            let read = stream.read(&mut buffer).context("qemu's monitor")?;
            ensure!(read > 0, "qemu's monitor hung up");
            answer.push_str(&String::from_utf8_lossy(&buffer[..read]));
            if !answer.ends_with(PROMPT) {
                continue;
            }
            prompts += 1;
            if prompts == 2 {
                return Ok(answer);
            }
            answer.clear();
            stream.write_all(format!("{question}\n").as_bytes())?;
        }
    }

    /// Its data disk.
    pub fn data(&self) -> &Served {
        &self.data
    }

    /// Cuts the power of machine and disk. With a generator, some of what was not flushed reaches the disk nevertheless.
    pub fn cut_power(mut self, survivors: Option<&mut Random>) -> Result<Unflushed> {
        // The machine first: afterwards no answer gets out, while the disk still knows what was flushed before an answer.
        let mut kill = Command::new("kill");
        kill.args(["-s", "KILL", &self.qemu.pid().to_string(), &self.data.server.pid().to_string()]);
        run(kill, KILL_DEADLINE)?.succeeded()?;
        self.qemu.kill()?;
        self.data.pull(survivors)
    }
}

/// What a line `vm: LABEL: WHAT`, or just `vm: LABEL`, of the console says.
fn said(console: &str, label: &str) -> Option<String> {
    // Without its end, the last line may not be whole yet.
    let whole = &console[..=console.rfind('\n')?];
    let mut told = whole.lines().filter_map(|line| line.trim_end().strip_prefix("vm: ")?.strip_prefix(label));
    told.find(|rest| rest.is_empty() || rest.starts_with(": ")).map(|rest| rest.trim_start_matches(": ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn said_when_line_is_whole_then_what_follows_the_label() {
        let console = "noise\r\nvm: write cache: write back\r\nvm: ready\r\nvm: readiness: no\r\nvm: half";
        assert_eq!(said(console, "write cache").as_deref(), Some("write back"));
        assert_eq!(said(console, "ready").as_deref(), Some(""));
        assert_eq!(said(console, "half"), None);
        assert_eq!(said(console, "write"), None);
        assert_eq!(said("", "ready"), None);
    }
}
