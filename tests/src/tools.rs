//! Initiators and tools of others, from Debian: libiscsi-bin, qemu-utils, e2fsprogs.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::process::{Finished, run};

/// How long one run of a tool may take.
const DEADLINE: Duration = Duration::from_secs(300);

fn tool<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Result<Finished> {
    let mut command = Command::new(program);
    command.args(arguments);
    // Some of these tools live in sbin, which is not on everybody's path.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    run(command, DEADLINE)
}

/// `iscsi-inq URL` as the initiator `initiator`.
pub fn iscsi_inq(url: &str, initiator: &str) -> Result<Finished> {
    tool("iscsi-inq", ["-i", initiator, url])
}

/// `iscsi-inq URL` with the credentials that the target has to prove (mutual CHAP).
pub fn iscsi_inq_mutual(url: &str, target_user: &str, target_secret: &str) -> Result<Finished> {
    let mut command = Command::new("iscsi-inq");
    command.arg(url);
    command.env("LIBISCSI_CHAP_TARGET_USERNAME", target_user);
    command.env("LIBISCSI_CHAP_TARGET_PASSWORD", target_secret);
    run(command, DEADLINE)
}

/// `iscsi-ls`, with the LUNs of each target when `show_luns`.
pub fn iscsi_ls(url: &str, show_luns: bool) -> Result<Finished> {
    let arguments: &[&str] = if show_luns { &["-s", url] } else { &[url] };
    tool("iscsi-ls", arguments)
}

/// `iscsi-readcapacity16 URL`.
pub fn iscsi_readcapacity16(url: &str) -> Result<Finished> {
    tool("iscsi-readcapacity16", [url])
}

/// `qemu-img convert -n`: copies a raw image onto an existing disk.
pub fn qemu_img_onto(image: &Path, url: &str) -> Result<Finished> {
    let options = ["convert", "-n", "-f", "raw", "-O", "raw"].map(OsStr::new);
    tool("qemu-img", options.into_iter().chain([image.as_os_str(), OsStr::new(url)]))
}

/// `qemu-img convert`: copies a disk into a raw image.
pub fn qemu_img_into(url: &str, image: &Path) -> Result<Finished> {
    let options = ["convert", "-f", "raw", "-O", "raw"].map(OsStr::new);
    tool("qemu-img", options.into_iter().chain([OsStr::new(url), image.as_os_str()]))
}

/// `qemu-io` on a disk that is described by options (`driver=iscsi,...`); fails when a command does.
pub fn qemu_io(image: &str, commands: &[&str]) -> Result<Finished> {
    let commands = commands.iter().flat_map(|command| ["-c", command]);
    tool("qemu-io", ["--image-opts", image].into_iter().chain(commands))
}

/// Makes an ext4 image of `size` (as mke2fs takes it) with the files of `folder` in it.
pub fn make_ext4(image: &Path, size: &str, folder: &Path) -> Result<Finished> {
    let options = ["-q", "-t", "ext4", "-d"].map(OsStr::new);
    let operands = [folder.as_os_str(), image.as_os_str(), OsStr::new(size)];
    tool("mke2fs", options.into_iter().chain(operands))
}

/// `e2fsck -fn`: checks a file system and changes nothing.
pub fn check_ext4(image: &Path) -> Result<Finished> {
    tool("e2fsck", [OsStr::new("-fn"), image.as_os_str()])
}

/// The sha256 of a file, in hex.
pub fn sha256(path: &Path) -> Result<String> {
    use sha2::Digest;
    use std::io::Read;
    let mut file = std::fs::File::open(path)?;
    let mut hash = sha2::Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_when_file_holds_abc_then_vector_of_fips_180() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(file.path()).unwrap(), expected);
    }
}
