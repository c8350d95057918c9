//! What guests start from.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::run;
use crate::{binary, tools};

/// debootstrap installs some hundred packages the first time.
const MAKE_DEADLINE: Duration = Duration::from_secs(30 * 60);
/// Room on a payload disk beside its files.
const PAYLOAD_SLACK_MIB: u64 = 32;

/// Kernel, initrd and root disk that all guests of this machine share. Guests cannot change them.
#[derive(Clone, Debug)]
pub struct Image {
    folder: PathBuf,
}

impl Image {
    /// The image; made first when this machine has none of the present recipe.
    pub fn get() -> Result<Self> {
        let made = run(Command::new(scripts().join("image.sh")), MAKE_DEADLINE)?.succeeded()?;
        let folder = PathBuf::from(made.stdout.trim());
        ensure!(folder.is_absolute() && folder.is_dir(), "image.sh printed {:?}", made.stdout);
        Ok(Self { folder })
    }

    /// The kernel.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("kernel")
    }

    /// The initial RAM file system.
    pub fn initrd(&self) -> PathBuf {
        self.folder.join("initrd")
    }

    /// The root disk.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }
}

/// The folder `tests/vm`.
fn scripts() -> PathBuf {
    binary::checkout().join("tests/vm")
}

/// Makes the disk that a guest finds at `/payload`: the binary as `holdfast`, the script of `tests/vm/guest` as `init`.
pub fn make_payload(folder: &Path, holdfast: &Path, script: &str) -> Result<PathBuf> {
    let files = folder.join("payload.files");
    std::fs::create_dir(&files)?;
    let copied = std::fs::copy(holdfast, files.join("holdfast")).with_context(|| holdfast.display().to_string())?;
    let script = scripts().join("guest").join(script);
    std::fs::copy(&script, files.join("init")).with_context(|| script.display().to_string())?;
    let disk = folder.join("payload.disk");
    let size_mib = (copied >> 20) + PAYLOAD_SLACK_MIB;
    tools::make_ext4(&disk, &format!("{size_mib}M"), &files)?.succeeded().context("the payload disk")?;
    std::fs::remove_dir_all(&files)?;
    Ok(disk)
}
