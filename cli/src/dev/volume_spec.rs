//! `--volume NAME=SIZE[,block-size=512|4096][,kind=disk|null][,read-only]`.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail, ensure};
use holdfast_proto::ids::VolumeName;
use holdfast_proto::units::{BlockSize, SizeBytes};
use holdfast_store::Kind;

/// A volume that the user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeSpec {
    pub(crate) name: VolumeName,
    pub(crate) size: SizeBytes,
    pub(crate) block_size: BlockSize,
    pub(crate) kind: Kind,
    pub(crate) read_only: bool,
}

impl FromStr for VolumeSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(',');
        let (name, size) = parts
            .next()
            .and_then(|first| first.split_once('='))
            .ok_or_else(|| anyhow!("write NAME=SIZE, for example disk0=10GiB"))?;
        let name = name.parse::<VolumeName>()?;
        let size = size.parse::<SizeBytes>().with_context(|| format!("size {size:?}"))?;
        let mut spec = Self { name, size, block_size: BlockSize::default(), kind: Kind::Disk, read_only: false };
        for part in parts {
            match part.split_once('=') {
                Some(("block-size", value)) => spec.block_size = value.parse()?,
                Some(("kind", "disk")) => spec.kind = Kind::Disk,
                Some(("kind", "null")) => spec.kind = Kind::Null,
                Some(("kind", other)) => bail!("kind {other:?} is not known; use disk or null"),
                None if part == "read-only" => spec.read_only = true,
                _ => bail!("{part:?} is not known; use block-size=512|4096, kind=disk|null or read-only"),
            }
        }
        let block_bytes = u64::from(spec.block_size.bytes());
        ensure!(
            spec.size.get() > 0 && spec.size.get().is_multiple_of(block_bytes),
            "a size is a multiple of the block size, {block_bytes} bytes, and not 0"
        );
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::parse_argument;

    #[test]
    fn spec_with_everything_is_read() {
        let spec: VolumeSpec = "db-1=10GiB,block-size=4096,kind=null,read-only".parse().unwrap();
        assert_eq!(spec.name.as_str(), "db-1");
        assert_eq!(spec.size.get(), 10 << 30);
        assert_eq!(spec.block_size, BlockSize::B4096);
        assert_eq!(spec.kind, Kind::Null);
        assert!(spec.read_only);
    }

    #[test]
    fn wrong_specs_are_refused_with_what_to_write_instead() {
        for (text, reason) in [
            ("disk0", "write NAME=SIZE"),
            ("Disk=1GiB", "cannot be in a volume name"),
            ("=1GiB", "1 to 63 characters"),
            ("disk0=huge", "size \"huge\": not a size"),
            ("disk0=1GB", "size \"1GB\": unknown unit \"GB\""),
            ("disk0=0", "a size of zero"),
            ("disk0=1000", "multiple of the block size"),
            ("disk0=4608,block-size=4096", "multiple of the block size"),
            ("disk0=1GiB,block-size=1024", "use 512 or 4096"),
            ("disk0=1GiB,kind=tape", "use disk or null"),
            ("disk0=1GiB,readonly", "\"readonly\" is not known"),
        ] {
            let error = parse_argument::<VolumeSpec>(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
