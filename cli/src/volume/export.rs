//! A volume into a raw image file, with holes where the volume is zero.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use holdfast_proto::block::Kind;
use holdfast_proto::ids::VolumeId;
use holdfast_proto::volumes::Volume;
use sha2::{Digest, Sha256};
use tonic::transport::Channel;

use super::import::{Moved, hex};
use super::pipeline::{MAX_REQUEST_BYTES, Pipeline};
use super::progress;

/// Granularity at which zeros become holes.
const HOLE_BYTES: usize = 4096;

/// The file to be, under another name until it is whole.
pub(super) struct Sink {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    whole: bool,
}

impl Sink {
    pub(super) fn create(path: &Path, overwrite: bool) -> Result<Self> {
        let path = destination(path, overwrite)?;
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let failed = || format!("cannot make {}", partial.display());
        // One that a killed export has left. Anything else with that name is not ours.
        match fs::symlink_metadata(&partial) {
            Ok(left) if left.is_file() => fs::remove_file(&partial).with_context(failed)?,
            Ok(other) => bail!("{} is {}; move it away", partial.display(), kind_of(other.file_type())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(failed),
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&partial).with_context(failed)?;
        Ok(Self { path, partial, file, whole: false })
    }

    /// Gives the file its name. It is on disk then.
    fn finish(mut self, len_bytes: u64) -> Result<()> {
        let failed = || format!("cannot finish {}", self.path.display());
        self.file.set_len(len_bytes).with_context(failed)?;
        self.file.sync_all().with_context(failed)?;
        fs::rename(&self.partial, &self.path).with_context(failed)?;
        self.whole = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(failed)?;
        Ok(())
    }
}

/// Where the file shall be. What is there already may only be a regular file, and only with `overwrite`; a symbolic link
/// stays, and the file that it leads to is replaced.
fn destination(path: &Path, overwrite: bool) -> Result<PathBuf> {
    let shown = path.display();
    if path.as_os_str() == "-" {
        bail!("export makes a file with holes, not a stream; name a file, or write ./- for one with this name");
    }
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Ok(target) = fs::read_link(path) {
                bail!("{shown} is a symbolic link to {}, which does not exist; name that file", target.display());
            }
            return Ok(path.to_owned());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
    };
    if !found.is_file() {
        bail!("{shown} is {}; export makes a regular file: choose another name", kind_of(found.file_type()));
    }
    if !overwrite {
        bail!("{shown} exists; choose another name, or add --overwrite");
    }
    fs::canonicalize(path).with_context(|| format!("cannot follow {shown}"))
}

/// What a file that is not a regular one is called.
pub(super) fn kind_of(file: FileType) -> &'static str {
    if file.is_dir() {
        "a directory"
    } else if file.is_symlink() {
        "a symbolic link"
    } else if file.is_block_device() || file.is_char_device() {
        "a device"
    } else if file.is_fifo() {
        "a pipe"
    } else if file.is_socket() {
        "a socket"
    } else {
        "not a regular file"
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if !self.whole
            && let Err(error) = fs::remove_file(&self.partial)
        {
            eprintln!("holdfast: cannot remove {}: {error}", self.partial.display());
        }
    }
}

/// Reads the whole volume.
pub(super) async fn run(channel: Channel, volume: &Volume, sink: Sink) -> Result<Moved> {
    let mut pipeline = Pipeline::open(channel, VolumeId(volume.id)).await?;
    let bar = progress::bar(volume.size_bytes);
    let mut hash = Sha256::new();
    let (mut asked, mut written, mut data_bytes) = (0, 0, 0);
    while written < volume.size_bytes {
        while asked < volume.size_bytes && pipeline.has_room() {
            let len = Pipeline::step(asked, volume.size_bytes - asked, MAX_REQUEST_BYTES);
            pipeline.ask(Kind::Read, asked, len, Vec::new())?;
            asked += len;
        }
        let answer = pipeline.answer().await?;
        let mut at = written;
        for segment in &answer.data {
            hash.update(segment);
            for piece in segment.chunks(HOLE_BYTES) {
                if piece.iter().any(|byte| *byte != 0) {
                    sink.file
                        .write_all_at(piece, at)
                        .with_context(|| format!("cannot write {}", sink.partial.display()))?;
                    data_bytes += piece.len() as u64;
                }
                at += piece.len() as u64;
            }
        }
        written += answer.len;
        bar.inc(answer.len);
    }
    bar.finish_and_clear();
    sink.finish(volume.size_bytes)?;
    Ok(Moved { sha256: hex(&hash.finalize()), total_bytes: volume.size_bytes, data_bytes })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A folder of the test's own, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("holdfast-export-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path.canonicalize().unwrap())
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn sink_when_what_exists_is_no_regular_file_then_refused_and_untouched() {
        let folder = Folder::new("kinds");
        let socket = folder.file("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        let link = folder.file("link-to-device");
        symlink("/dev/null", &link).unwrap();
        let dangling = folder.file("dangling");
        symlink("nowhere", &dangling).unwrap();
        for (path, reason) in [
            (Path::new("/dev/null"), "is a device"),
            (&folder.0, "is a directory"),
            (&socket, "is a socket"),
            (&link, "is a device"),
            (&dangling, "which does not exist"),
            (Path::new("-"), "name a file"),
        ] {
            let error = Sink::create(path, true).err().unwrap().to_string();
            assert!(error.contains(reason), "{}: {error}", path.display());
        }
        assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());
    }

    #[test]
    fn sink_when_the_name_is_a_link_then_its_target_is_replaced_and_the_link_stays() {
        let folder = Folder::new("link");
        let (target, link) = (folder.file("target"), folder.file("link"));
        fs::write(&target, "old").unwrap();
        symlink(&target, &link).unwrap();
        assert!(Sink::create(&link, false).err().unwrap().to_string().contains("--overwrite"));
        Sink::create(&link, true).unwrap().finish(4096).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().len(), 4096);
        assert_eq!(fs::read_link(&link).unwrap(), target);
        assert!(!folder.file("target.partial").exists());
    }

    #[test]
    fn sink_when_a_partial_file_is_left_over_then_replaced_but_nothing_else_is() {
        let folder = Folder::new("partial");
        fs::write(folder.file("a.partial"), "old").unwrap();
        drop(Sink::create(&folder.file("a"), false).unwrap());
        assert!(!folder.file("a.partial").exists());
        symlink(folder.file("precious"), folder.file("a.partial")).unwrap();
        let error = Sink::create(&folder.file("a"), false).err().unwrap().to_string();
        assert!(error.contains("is a symbolic link"), "{error}");
    }
}
