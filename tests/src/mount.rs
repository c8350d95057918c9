//! File systems of a test's own, to be filled up and made read-only. That takes root, and a kernel that lets it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::process::{Finished, run};

const DEADLINE: Duration = Duration::from_secs(60);

/// A mounted file system; unmounted when it is dropped. Whoever uses it has to be gone by then.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
}

impl Mount {
    /// A new ext4 in a file, both in `folder`. An error says why there can be none.
    pub fn ext4(folder: &Path, size_mib: u64) -> Result<Self> {
        let image = folder.join("ext4.img");
        std::fs::File::create(&image)?.set_len(size_mib << 20)?;
        let options = ["-q", "-t", "ext4", "-m", "0"].map(OsStr::new);
        command("mke2fs", options.into_iter().chain([image.as_os_str()]))?;
        Self::in_folder(folder, &["-o", "loop"], image.as_os_str())
    }

    /// A new file system in memory, mounted in `folder`. An error says why there can be none.
    pub fn tmpfs(folder: &Path, size_mib: u64) -> Result<Self> {
        Self::in_folder(folder, &["-t", "tmpfs", "-o", &format!("size={size_mib}M")], OsStr::new("tmpfs"))
    }

    fn in_folder(folder: &Path, options: &[&str], source: &OsStr) -> Result<Self> {
        let path = folder.join("mount");
        std::fs::create_dir(&path)?;
        command("mount", options.iter().map(OsStr::new).chain([source, path.as_os_str()]))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it read-only, or writable again.
    pub fn set_read_only(&self, read_only: bool) -> Result<()> {
        let options = if read_only { "remount,ro" } else { "remount,rw" };
        command("mount", ["-o", options].map(OsStr::new).into_iter().chain([self.path.as_os_str()]))?;
        Ok(())
    }

    /// Bytes that may still be written.
    pub fn free_bytes(&self) -> Result<u64> {
        let options = ["--output=avail", "-B1"].map(OsStr::new);
        let told = command("df", options.into_iter().chain([self.path.as_os_str()]))?;
        Ok(told.stdout.lines().last().unwrap_or_default().trim().parse()?)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = command("umount", [self.path.as_os_str()]) {
            eprintln!("{} stays mounted: {error:#}", self.path.display());
        }
    }
}

fn command<'a>(program: &str, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<Finished> {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(arguments).env("PATH", format!("{path}:/usr/sbin:/sbin"));
    run(command, DEADLINE)?.succeeded()
}
