//! A disk that forgets what was not flushed.
//!
//! nbdkit serves a file through its cache filter. In mode `writeback` the filter keeps what is written in a temporary file
//! that has no name any more, and hands it on to the disk's file at a flush, or at once for a write with FUA. So after
//! `kill -9` of nbdkit the disk's file holds what was flushed, and of a flush that was under way some part.
//!
//! A real disk writes back what was not flushed too, whenever and in whatever order it likes. [`Served::pull`] does that after
//! the power cut: of the blocks in the filter's file that differ from the disk's, it copies a random part, some of them torn.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::Server;
use crate::random::Random;
use crate::{tools, wait};

/// The granularity of the cache.
const BLOCK_BYTES: usize = 4096;
/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;
const SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;
const START_DEADLINE: Duration = Duration::from_secs(30);

/// What the disk does when the guest asks for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushes {
    /// It makes durable what was written.
    Obeyed,
    /// It lies: nothing that is written survives a power cut.
    Ignored,
}

/// A disk while no guest has it.
#[derive(Debug)]
pub struct Disk {
    file: PathBuf,
    starts: u32,
}

impl Disk {
    /// Makes a disk of `size_mib` in `folder` with an empty ext4 on it.
    pub fn with_ext4(folder: &Path, size_mib: u64) -> Result<Self> {
        let file = folder.join("data.disk");
        let empty = tempfile::tempdir_in(folder)?;
        tools::make_ext4(&file, &format!("{size_mib}M"), empty.path())?.succeeded().context("the data disk")?;
        Ok(Self { file, starts: 0 })
    }

    /// The file with what is on it for good.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Switches it on.
    pub fn serve(&mut self, flushes: Flushes) -> Result<Served> {
        self.starts += 1;
        let beside = |suffix: &str| self.file.with_extension(format!("{}.{suffix}", self.starts));
        let (socket, transactions, ready) = (beside("socket"), beside("transactions"), beside("pid"));
        let mode = match flushes {
            Flushes::Obeyed => "cache=writeback",
            Flushes::Ignored => "cache=unsafe",
        };
        let mut command = Command::new("nbdkit");
        // It is told to end with its parent in case the test itself is killed.
        command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
        command.arg("--pidfile").arg(&ready);
        command.args(["--filter=log", "--filter=cache", "file"]).arg(&self.file);
        // The cache's default granularity of 64 KiB would make every small write bigger than it is.
        command
            .arg(mode)
            .arg(format!("cache-min-block-size={BLOCK_BYTES}"))
            .arg(format!("logfile={}", transactions.display()));
        if let Some(folder) = self.file.parent() {
            command.env("TMPDIR", folder);
        }
        let mut server = Server::start(command, &beside("log"))?;
        wait::until("nbdkit", START_DEADLINE, || {
            if let Some(status) = server.exited()? {
                bail!("nbdkit ended with {status}: {}", server.log());
            }
            Ok(ready.exists().then_some(()))
        })?;
        let cache = open_cache(&server)?;
        Ok(Served { server, socket, transactions, file: self.file.clone(), cache })
    }
}

/// A disk that is on. Dropping it is a power cut after which nothing that was not flushed is there.
#[derive(Debug)]
pub struct Served {
    pub(super) server: Server,
    pub(super) socket: PathBuf,
    transactions: PathBuf,
    file: PathBuf,
    cache: File,
}

/// What was in the disk's cache when the power was cut, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unflushed {
    /// All that differed from what was on the disk.
    pub blocks: u64,
    /// Those that reached the disk nevertheless, torn or whole.
    pub survived: u64,
}

impl Served {
    /// The Unix socket at which it speaks NBD.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// How often the guest has asked for a flush.
    pub fn flushes(&self) -> Result<usize> {
        let log = std::fs::read_to_string(&self.transactions)?;
        Ok(log.lines().filter(|line| line.contains(" Flush id=")).count())
    }

    /// Cuts its power. With a generator, half of what was not flushed reaches the disk, and a quarter of that is torn.
    pub fn pull(mut self, survivors: Option<&mut Random>) -> Result<Unflushed> {
        self.server.kill()?;
        let mut unflushed = Unflushed::default();
        let Some(random) = survivors else {
            return Ok(unflushed);
        };
        let disk = File::options().read(true).write(true).open(&self.file)?;
        let (mut cached, mut stored) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
        for block in written_blocks(&std::fs::read_to_string(&self.transactions)?) {
            let offset = block * BLOCK_BYTES as u64;
            self.cache.read_exact_at(&mut cached, offset).context("the disk's cache")?;
            disk.read_exact_at(&mut stored, offset).context("the disk's file")?;
            if cached == stored {
                continue;
            }
            unflushed.blocks += 1;
            if random.below(2) == 0 {
                continue;
            }
            let sectors = if random.below(4) == 0 { 1 + random.below(SECTORS - 1) } else { SECTORS };
            let len_bytes = usize::try_from(sectors)? * SECTOR_BYTES;
            disk.write_all_at(&cached[..len_bytes], offset)?;
            unflushed.survived += 1;
        }
        Ok(unflushed)
    }
}

/// The file of nbdkit's cache filter; it has no name, only the process has it.
fn open_cache(nbdkit: &Server) -> Result<File> {
    for entry in std::fs::read_dir(format!("/proc/{}/fd", nbdkit.pid()))? {
        let path = entry?.path();
        let name = std::fs::read_link(&path).unwrap_or_default();
        if name.to_string_lossy().ends_with(" (deleted)") {
            return Ok(File::open(path)?);
        }
    }
    bail!("nbdkit has no cache")
}

/// The blocks that a log of nbdkit's log filter says to have been written, each once.
fn written_blocks(log: &str) -> BTreeSet<u64> {
    // 2026-11-30 02:07:23.080910 connection=1 Write id=1 offset=0x1000 count=0x200 fua=0 ...
    let number = |field: &str, name: &str| u64::from_str_radix(field.strip_prefix(name)?.strip_prefix("=0x")?, 16).ok();
    let mut blocks = BTreeSet::new();
    for line in log.lines() {
        let Some((_, request)) = line.split_once(" Write id=") else {
            continue;
        };
        let offset = request.split(' ').find_map(|field| number(field, "offset"));
        let count = request.split(' ').find_map(|field| number(field, "count"));
        let (Some(offset), Some(count)) = (offset, count) else {
            continue;
        };
        let block_bytes = BLOCK_BYTES as u64;
        blocks.extend(offset / block_bytes..(offset + count).div_ceil(block_bytes));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_blocks_when_log_has_writes_then_every_touched_block_once() {
        let log = "2026-11-30 02:07:23.1 connection=1 Write id=1 offset=0x1000 count=0x2000 fua=0 ...\n\
                   2026-11-30 02:07:23.2 connection=1 ...Write id=1 return=0\n\
                   2026-11-30 02:07:23.3 connection=1 Read id=2 offset=0x9000 count=0x200 ...\n\
                   2026-11-30 02:07:23.4 connection=1 Write id=3 offset=0x2e00 count=0x400 fua=1 ...\n\
                   2026-11-30 02:07:23.5 connection=1 Write id=4 offset=0x9";
        assert_eq!(written_blocks(log).into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
