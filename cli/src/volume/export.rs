//! A volume into a raw image file, with holes where the volume is zero.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
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
        if path.exists() && !overwrite {
            bail!("{} exists; choose another name, or add --overwrite", path.display());
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&partial)
            .with_context(|| format!("cannot make {}", partial.display()))?;
        Ok(Self { path: path.to_owned(), partial, file, whole: false })
    }

    /// Gives the file its name. It is on disk then.
    fn finish(mut self, len_bytes: u64) -> Result<()> {
        let failed = || format!("cannot finish {}", self.path.display());
        self.file.set_len(len_bytes).with_context(failed)?;
        self.file.sync_all().with_context(failed)?;
        fs::rename(&self.partial, &self.path).with_context(failed)?;
        self.whole = true;
        Ok(())
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
