//! The file `format`: what a data directory is, and whose.
//!
//! 48 bytes, little-endian. Magic and version come first and stay there for ever, so that every release can tell a
//! newer format from damage; the checksum comes last, over everything before it.
//!
//! ```text
//!  0  magic "HFSTORE\0"
//!  8  u32 version of this file, 2
//! 12  u32 version of the layout of data and catalogue, 1
//! 16  disk uuid
//! 32  u64 node id
//! 40  u32 reserved, 0
//! 44  u32 crc32c
//! ```

use std::path::Path;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::{OpenError, corrupt};
use crate::ids::DiskUuid;

/// Version of the file.
pub(super) const FORMAT_VERSION: u32 = 2;

/// Version of the layout of everything else in the directory.
pub(super) const LAYOUT_VERSION: u32 = 1;

/// As much of a file as is looked at, bytes: more than any version has.
pub(super) const MAX_BYTES: u64 = 4096;

const MAGIC: [u8; 8] = *b"HFSTORE\0";

/// Version 1: 40 bytes, checksum at the end.
const PRE_RELEASE_VERSION: u32 = 1;
const PRE_RELEASE_LEN: usize = 40;

/// What tells one store from every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Made at random with the store.
    pub(crate) uuid: DiskUuid,
    /// The node that the store belongs to.
    pub(crate) node_id: u64,
}

/// Why bytes are no [`Identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdentityError {
    Corrupt(&'static str),
    Newer { version: u32, known: u32 },
    PreRelease,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    version: U32,
    layout: U32,
    uuid: [u8; 16],
    node_id: U64,
    reserved: U32,
    crc: U32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Prefix {
    magic: [u8; 8],
    version: U32,
}

impl Identity {
    /// The file.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut layout = Layout {
            magic: MAGIC,
            version: FORMAT_VERSION.into(),
            layout: LAYOUT_VERSION.into(),
            uuid: self.uuid.0,
            node_id: self.node_id.into(),
            reserved: 0.into(),
            crc: 0.into(),
        };
        layout.crc = crc_of(layout.as_bytes()).into();
        layout.as_bytes().to_vec()
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, IdentityError> {
        let (prefix, _) = Prefix::read_from_prefix(bytes).map_err(|_| IdentityError::Corrupt("it is too short"))?;
        if prefix.magic != MAGIC {
            return Err(IdentityError::Corrupt("it does not begin with HFSTORE"));
        }
        match prefix.version.get() {
            FORMAT_VERSION => Self::parse_current(bytes),
            PRE_RELEASE_VERSION if is_pre_release(bytes) => Err(IdentityError::PreRelease),
            // A later release may have another layout behind the version, and another place for its checksum.
            version if version > FORMAT_VERSION => Err(IdentityError::Newer { version, known: FORMAT_VERSION }),
            _ => Err(IdentityError::Corrupt("its version never existed")),
        }
    }

    fn parse_current(bytes: &[u8]) -> Result<Self, IdentityError> {
        let layout = Layout::read_from_bytes(bytes).map_err(|_| IdentityError::Corrupt("its length is wrong"))?;
        if crc_of(bytes) != layout.crc.get() {
            return Err(IdentityError::Corrupt("its checksum is wrong"));
        }
        match layout.layout.get() {
            LAYOUT_VERSION => Ok(Self { uuid: DiskUuid(layout.uuid), node_id: layout.node_id.get() }),
            version if version > LAYOUT_VERSION => Err(IdentityError::Newer { version, known: LAYOUT_VERSION }),
            _ => Err(IdentityError::Corrupt("its layout never existed")),
        }
    }

    /// Whether a power cut can have left these bytes of one that was being written: a beginning of it, perhaps none,
    /// and zeros.
    pub(super) fn is_cut(bytes: &[u8]) -> bool {
        let start = bytes.get(..MAGIC.len()).unwrap_or(bytes);
        bytes.iter().all(|byte| *byte == 0) || (bytes.len() < size_of::<Layout>() && MAGIC.starts_with(start))
    }
}

impl IdentityError {
    pub(super) fn at(self, dir: &Path, path: &Path) -> OpenError {
        match self {
            Self::Corrupt(detail) => corrupt(path, detail),
            Self::Newer { version, known } => OpenError::NewerFormat { path: path.to_owned(), version, known },
            Self::PreRelease => OpenError::PreRelease(dir.to_owned()),
        }
    }
}

fn is_pre_release(bytes: &[u8]) -> bool {
    let stored = bytes.last_chunk().map(|crc| u32::from_le_bytes(*crc));
    bytes.len() == PRE_RELEASE_LEN && stored == Some(crc_of(bytes))
}

/// The crc of a structure whose last four bytes hold it.
fn crc_of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes.get(..bytes.len().saturating_sub(4)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity { uuid: DiskUuid(*b"0123456789abcdef"), node_id: 0x0102_0304_0506_0708 };

    #[test]
    fn to_bytes_when_written_then_exact_bytes() {
        let bytes = IDENTITY.to_bytes();
        assert_eq!(&bytes[..16], b"HFSTORE\0\x02\0\0\0\x01\0\0\0");
        assert_eq!(&bytes[16..44], b"0123456789abcdef\x08\x07\x06\x05\x04\x03\x02\x01\0\0\0\0");
        assert_eq!(bytes[44..], GOLDEN_CRC.to_le_bytes());
        assert_eq!(Identity::parse(&bytes), Ok(IDENTITY));
    }

    /// From an independent implementation of CRC32C.
    const GOLDEN_CRC: u32 = 0x90da_8aa3;

    #[test]
    fn parse_when_any_bit_is_flipped_or_any_byte_missing_then_refused() {
        let good = IDENTITY.to_bytes();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = Identity::parse(&bad).unwrap_err();
            assert_eq!(matches!(error, IdentityError::Newer { .. }), (64..96).contains(&bit) && bit != 65, "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(matches!(Identity::parse(&good[..len]), Err(IdentityError::Corrupt(_))), "{len} bytes");
        }
        let longer = [&good[..], &[0]].concat();
        assert!(matches!(Identity::parse(&longer), Err(IdentityError::Corrupt(_))));
    }

    #[test]
    fn parse_when_made_by_the_first_store_then_that_is_said() {
        let mut bytes = b"HFSTORE\0\x01\0\0\0\0\0\0\x000123456789abcdef\0\0\0\0".to_vec();
        bytes.extend_from_slice(&0x3b5e_8e35_u32.to_le_bytes());
        assert_eq!(Identity::parse(&bytes), Err(IdentityError::PreRelease));
        bytes[20] ^= 1;
        assert!(matches!(Identity::parse(&bytes), Err(IdentityError::Corrupt(_))));
    }

    #[test]
    fn parse_when_only_the_layout_is_newer_then_refused_as_newer() {
        let mut bytes = IDENTITY.to_bytes();
        bytes[12] = 9;
        let crc = crc_of(&bytes);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Identity::parse(&bytes), Err(IdentityError::Newer { version: 9, known: LAYOUT_VERSION }));
    }

    #[test]
    fn is_cut_when_a_beginning_or_zeros_then_true() {
        let good = IDENTITY.to_bytes();
        assert!((0..good.len()).all(|len| Identity::is_cut(&good[..len])));
        assert!(Identity::is_cut(&[0; 48]));
        assert!(!Identity::is_cut(&good) && !Identity::is_cut(b"notes") && !Identity::is_cut(&[1; 48]));
    }
}
