//! A raw image file into a volume.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use holdfast_proto::block::Kind;
use holdfast_proto::ids::VolumeId;
use holdfast_proto::units::SHARD_BYTES;
use holdfast_proto::volumes::Volume;
use rustix::fs::SeekFrom as SparseSeek;
use sha2::{Digest, Sha256};
use tonic::transport::Channel;

use super::export::kind_of;
use super::pipeline::{MAX_REQUEST_BYTES, Pipeline};
use super::progress;

/// An image file that fits the volume.
pub(super) struct Source {
    path: PathBuf,
    file: File,
    len_bytes: u64,
}

/// What was moved.
pub(super) struct Moved {
    pub(super) sha256: String,
    pub(super) total_bytes: u64,
    pub(super) data_bytes: u64,
}

impl Source {
    /// Opens the file and refuses what cannot go into the volume.
    pub(super) fn open(path: &Path, volume: &Volume) -> Result<Self> {
        let shown = path.display();
        if path.as_os_str() == "-" {
            bail!("import reads a file, not a stream; name a file, or write ./- for one with this name");
        }
        // Opening a pipe would wait for a writer.
        let kind = fs::metadata(path).with_context(|| format!("cannot open {shown}"))?.file_type();
        if kind.is_dir() || kind.is_fifo() || kind.is_socket() {
            bail!("{shown} is {}; import reads a file or a block device", kind_of(kind));
        }
        let mut file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
        let len_bytes = file.seek(SeekFrom::End(0)).with_context(|| format!("cannot measure {shown}"))?;
        file.seek(SeekFrom::Start(0)).with_context(|| format!("cannot read {shown}"))?;
        if len_bytes == 0 {
            bail!("{shown} has no bytes; nothing to import");
        }
        if let Some(format) = foreign_format(&mut file).with_context(|| format!("cannot read {shown}"))? {
            bail!("{shown} is a {format} image; make it raw first: qemu-img convert -O raw {shown} {shown}.raw");
        }
        if len_bytes > volume.size_bytes {
            bail!(
                "{shown} has {len_bytes} bytes, volume {} only {}; make a larger volume",
                volume.name,
                volume.size_bytes
            );
        }
        if volume.read_only {
            bail!("volume {} is read-only", volume.name);
        }
        let block = u64::from(volume.block_size);
        if block == 0 || !len_bytes.is_multiple_of(block) {
            bail!("{shown} has {len_bytes} bytes, which is not a multiple of the volume's block size, {block}");
        }
        Ok(Self { path: path.to_owned(), file, len_bytes })
    }

    /// The next stretch from `at`: whether it is data, and where it ends.
    fn stretch(&self, at: u64) -> Result<(bool, u64)> {
        let end = self.len_bytes;
        match rustix::fs::seek(&self.file, SparseSeek::Data(at)) {
            Ok(data) if data > at => Ok((false, data.min(end))),
            Ok(_) => {
                let hole = rustix::fs::seek(&self.file, SparseSeek::Hole(at))
                    .with_context(|| format!("cannot read {}", self.path.display()))?;
                Ok((true, hole.clamp(at + 1, end)))
            }
            // No data behind this point.
            Err(rustix::io::Errno::NXIO) => Ok((false, end)),
            // Not a file with holes, a block device perhaps: all of it is data.
            Err(_) => Ok((true, end)),
        }
    }
}

/// The name of an image format that is not raw, by its first bytes.
fn foreign_format(file: &mut File) -> std::io::Result<Option<&'static str>> {
    let mut head = [0; 8];
    match file.read_exact(&mut head) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
        other => other?,
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(match &head {
        [b'Q', b'F', b'I', 0xfb, ..] => Some("qcow2"),
        [b'K', b'D', b'M', b'V', ..] => Some("vmdk"),
        b"vhdxfile" => Some("vhdx"),
        _ => None,
    })
}

/// Writes the file's data, and holes for all the rest of the volume.
pub(super) async fn run(channel: Channel, volume: &Volume, source: Source) -> Result<Moved> {
    let pipeline = Pipeline::open(channel, VolumeId(volume.id)).await?;
    fill(pipeline, volume, source)
        .await
        .with_context(|| format!("import failed, volume {} is now partly overwritten; import it again", volume.name))
}

async fn fill(mut pipeline: Pipeline, volume: &Volume, mut source: Source) -> Result<Moved> {
    let bar = progress::bar(volume.size_bytes);
    let mut hash = Sha256::new();
    let (mut at, mut data_bytes) = (0, 0);
    while at < source.len_bytes {
        let (is_data, end) = source.stretch(at)?;
        // A stretch that ends inside a request's block is data to the end of the block.
        let end = if is_data { end.next_multiple_of(4096).min(source.len_bytes) } else { end - end % 4096 };
        if end <= at {
            let end = (at + 4096).min(source.len_bytes);
            at = copy(&mut pipeline, &mut source, &mut hash, at, end, &bar).await?;
            data_bytes += 4096;
        } else if is_data {
            data_bytes += end - at;
            at = copy(&mut pipeline, &mut source, &mut hash, at, end, &bar).await?;
        } else {
            hash_zeros(&mut hash, end - at);
            at = punch(&mut pipeline, at, end, &bar).await?;
        }
    }
    punch(&mut pipeline, at, volume.size_bytes, &bar).await?;
    while !pipeline.is_empty() {
        bar.inc(pipeline.answer().await?.len);
    }
    bar.finish_and_clear();
    Ok(Moved { sha256: hex(&hash.finalize()), total_bytes: source.len_bytes, data_bytes })
}

async fn copy(
    pipeline: &mut Pipeline,
    source: &mut Source,
    hash: &mut Sha256,
    mut at: u64,
    end: u64,
    bar: &indicatif::ProgressBar,
) -> Result<u64> {
    while at < end {
        let len = Pipeline::step(at, end - at, MAX_REQUEST_BYTES);
        let data = source.read(at, len)?;
        hash.update(&data);
        if data.iter().all(|byte| *byte == 0) {
            ask(pipeline, Kind::Unmap, at, len, Vec::new(), bar).await?;
        } else {
            ask(pipeline, Kind::Write, at, len, vec![data], bar).await?;
        }
        at += len;
    }
    Ok(end)
}

async fn punch(pipeline: &mut Pipeline, mut at: u64, end: u64, bar: &indicatif::ProgressBar) -> Result<u64> {
    while at < end {
        let len = Pipeline::step(at, end - at, SHARD_BYTES);
        ask(pipeline, Kind::Unmap, at, len, Vec::new(), bar).await?;
        at += len;
    }
    Ok(end)
}

async fn ask(
    pipeline: &mut Pipeline,
    kind: Kind,
    at: u64,
    len: u64,
    data: Vec<Bytes>,
    bar: &indicatif::ProgressBar,
) -> Result<()> {
    while !pipeline.has_room() {
        bar.inc(pipeline.answer().await?.len);
    }
    pipeline.ask(kind, at, len, data)
}

impl Source {
    fn read(&mut self, at: u64, len: u64) -> Result<Bytes> {
        let failed = || format!("cannot read {} at byte {at}", self.path.display());
        let mut data = BytesMut::zeroed(usize::try_from(len)?);
        self.file.seek(SeekFrom::Start(at)).with_context(failed)?;
        self.file.read_exact(&mut data).with_context(failed)?;
        Ok(data.freeze())
    }
}

/// Feeds `len` zeros to the hash.
pub(super) fn hash_zeros(hash: &mut Sha256, mut len: u64) {
    let zeros = [0; 64 << 10];
    while len > 0 {
        let step = len.min(zeros.len() as u64);
        hash.update(&zeros[..usize::try_from(step).unwrap_or(zeros.len())]);
        len -= step;
    }
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_when_there_is_nothing_to_read_then_refused() {
        let volume = Volume { size_bytes: 1 << 20, block_size: 512, ..Volume::default() };
        for (path, reason) in
            [("/dev/null", "has no bytes; nothing to import"), ("/dev", "is a directory"), ("-", "name a file")]
        {
            let error = Source::open(Path::new(path), &volume).err().unwrap().to_string();
            assert!(error.contains(reason), "{path}: {error}");
        }
    }
}
