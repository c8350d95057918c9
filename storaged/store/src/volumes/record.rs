//! What the catalogue holds of volumes: a record for each, and the counter that gives them their ids.
//!
//! ```text
//! key v, volume id u64 big-endian   a volume                                                        (112 bytes)
//!     version u8 (1), kind u8 (0 disk, 1 null), read_only u8 (0 or 1), length of the name u8,
//!     block_size u32, id u64, naa u64, size_bytes u64, name 63 bytes padded with zeros, reserved 13 bytes, crc u32
//! key v                             the counter                                                       (16 bytes)
//!     version u8 (1), reserved 3 bytes, next id u64, crc u32
//! ```
//!
//! Little-endian; the crc32c is that of the key and of everything before it, as in all values of the catalogue. The
//! counter's key is the first of the table. Both change in one commit, so that an id is never given twice.

use std::str;

use holdfast_proto::ids::{VolumeId, VolumeName};
use holdfast_proto::units::BlockSize;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::FormatError;
use crate::format::keys;
use crate::format::keys::Table;
use crate::store::{Kind, VolumeRecord};

/// Largest volume: 1 PiB, that is 2^20 shards.
pub const MAX_VOLUME_BYTES: u64 = 1 << 50;

/// Top four bits of a locally assigned NAA identifier (SPC-4, section 7.8.6.6.4).
pub(crate) const NAA_LOCAL: u64 = 3 << 60;

const RECORD: &str = "a volume record";
const COUNTER: &str = "the counter of volumes";
const VERSION: u8 = 1;
const NAME_LEN: usize = VolumeName::MAX_BYTES;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RecordLayout {
    version: u8,
    kind: u8,
    read_only: u8,
    name_len: u8,
    block_size: U32,
    id: U64,
    naa: U64,
    size_bytes: U64,
    name: [u8; NAME_LEN],
    reserved: [u8; 13],
    crc: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct CounterLayout {
    version: u8,
    reserved: [u8; 3],
    next_id: U64,
    crc: U32,
}

const _: () = assert!(size_of::<RecordLayout>() == 112 && size_of::<CounterLayout>() == 16);

/// Key of the counter.
pub(crate) fn counter_key() -> Vec<u8> {
    Table::Volume.range().start
}

/// The value for [`counter_key`].
pub(crate) fn encode_counter(next_id: u64) -> Vec<u8> {
    let mut layout = CounterLayout { version: VERSION, reserved: [0; 3], next_id: next_id.into(), crc: 0.into() };
    layout.crc = crc_of(&counter_key(), layout.as_bytes()).into();
    layout.as_bytes().to_vec()
}

/// The id of the next volume, at least 1.
pub(crate) fn parse_counter(value: &[u8]) -> Result<u64, FormatError> {
    let corrupt = |detail| FormatError::Corrupt { what: COUNTER, detail };
    check(COUNTER, &counter_key(), value)?;
    let layout = CounterLayout::read_from_bytes(value).map_err(|_| corrupt("it has the wrong length"))?;
    match layout.next_id.get() {
        0 => Err(corrupt("it is zero")),
        next_id => Ok(next_id),
    }
}

/// The value for [`keys::volume`] of its id.
pub(crate) fn encode(record: &VolumeRecord) -> Vec<u8> {
    let mut name = [0; NAME_LEN];
    // A `VolumeName` is at most as long.
    name.iter_mut().zip(record.name.as_str().bytes()).for_each(|(to, from)| *to = from);
    let mut layout = RecordLayout {
        version: VERSION,
        kind: match record.kind {
            Kind::Disk => 0,
            Kind::Null => 1,
        },
        read_only: record.read_only.into(),
        name_len: u8::try_from(record.name.as_str().len()).unwrap_or(u8::MAX),
        block_size: record.block_size.bytes().into(),
        id: record.id.0.into(),
        naa: record.naa.into(),
        size_bytes: record.size_bytes.into(),
        name,
        reserved: [0; 13],
        crc: 0.into(),
    };
    layout.crc = crc_of(&keys::volume(record.id), layout.as_bytes()).into();
    layout.as_bytes().to_vec()
}

/// The volume of a key and its value.
pub(crate) fn parse(key: &[u8], value: &[u8]) -> Result<VolumeRecord, FormatError> {
    let corrupt = |detail| FormatError::Corrupt { what: RECORD, detail };
    check(RECORD, key, value)?;
    let layout = RecordLayout::read_from_bytes(value).map_err(|_| corrupt("it has the wrong length"))?;
    let id = VolumeId(layout.id.get());
    if keys::parse_volume(key) != Some(id) || id.0 == 0 {
        return Err(corrupt("it is under the key of another volume"));
    }
    let name = layout.name.get(..layout.name_len.into()).and_then(|name| str::from_utf8(name).ok());
    let name = name.and_then(|name| name.parse().ok()).ok_or_else(|| corrupt("its name is no volume name"))?;
    let block_size =
        BlockSize::try_from(layout.block_size.get()).map_err(|_| corrupt("its block size is neither 512 nor 4096"))?;
    let size_bytes = layout.size_bytes.get();
    if !is_size(size_bytes, block_size) {
        return Err(corrupt("its size is no size of a volume"));
    }
    if layout.naa.get() >> 60 != NAA_LOCAL >> 60 {
        return Err(corrupt("its identifier is not a locally assigned one"));
    }
    let kind = match layout.kind {
        0 => Kind::Disk,
        1 => Kind::Null,
        _ => return Err(corrupt("its kind is not known")),
    };
    let read_only = match layout.read_only {
        0 => false,
        1 => true,
        _ => return Err(corrupt("its access is not known")),
    };
    Ok(VolumeRecord { id, name, naa: layout.naa.get(), size_bytes, block_size, kind, read_only })
}

/// Whether a volume can have this size.
pub(super) fn is_size(size_bytes: u64, block_size: BlockSize) -> bool {
    (1..=MAX_VOLUME_BYTES).contains(&size_bytes) && size_bytes.is_multiple_of(block_size.bytes().into())
}

/// The version is the first byte and the crc the last four in every version, so that "newer" is told from "corrupt".
fn check(what: &'static str, key: &[u8], value: &[u8]) -> Result<(), FormatError> {
    let corrupt = |detail| FormatError::Corrupt { what, detail };
    let crc = value.last_chunk().ok_or_else(|| corrupt("it ends too early"))?;
    if u32::from_le_bytes(*crc) != crc_of(key, value) {
        return Err(corrupt("its checksum does not match"));
    }
    match value.first() {
        Some(&VERSION) => Ok(()),
        Some(&version) if version > VERSION => {
            Err(FormatError::Newer { what, version: version.into(), known: VERSION.into() })
        }
        _ => Err(corrupt("it has version 0, which never was")),
    }
}

/// Of the key, and of the value up to its crc.
fn crc_of(key: &[u8], value: &[u8]) -> u32 {
    let body = value.split_last_chunk::<{ size_of::<U32>() }>().map_or(&[][..], |(body, _)| body);
    crc32c::crc32c_append(crc32c::crc32c(key), body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> VolumeRecord {
        VolumeRecord {
            id: VolumeId(0x0102),
            name: "disk-0".parse().unwrap(),
            naa: 0x3123_4567_89ab_cdef,
            size_bytes: 0x10_0000_0000,
            block_size: BlockSize::B512,
            kind: Kind::Null,
            read_only: true,
        }
    }

    fn key() -> Vec<u8> {
        keys::volume(record().id)
    }

    /// A value with another byte at a place, and the crc that fits.
    fn patched(key: &[u8], value: &[u8], at: usize, byte: u8) -> Vec<u8> {
        let mut value = value.to_vec();
        value[at] = byte;
        let crc = crc_of(key, &value);
        *value.last_chunk_mut().unwrap() = crc.to_le_bytes();
        value
    }

    #[test]
    fn record_when_encoded_then_exact_bytes() {
        let value = encode(&record());
        let mut golden = b"\x01\x01\x01\x06\x00\x02\0\0\x02\x01\0\0\0\0\0\0\xef\xcd\xab\x89\x67\x45\x23\x31".to_vec();
        golden.extend_from_slice(b"\0\0\0\0\x10\0\0\0disk-0");
        golden.resize(108, 0);
        assert_eq!(value[..108], golden);
        assert_eq!(value[108..], GOLDEN_RECORD_CRC.to_le_bytes());
        assert_eq!(parse(&key(), &value), Ok(record()));
    }

    #[test]
    fn counter_when_encoded_then_exact_bytes() {
        let value = encode_counter(0x0102);
        assert_eq!(value[..12], *b"\x01\0\0\0\x02\x01\0\0\0\0\0\0");
        assert_eq!(value[12..], GOLDEN_COUNTER_CRC.to_le_bytes());
        assert_eq!(counter_key(), b"v");
        assert_eq!(parse_counter(&value), Ok(0x0102));
    }

    /// From an independent, bitwise implementation of CRC32C.
    const GOLDEN_RECORD_CRC: u32 = 0x7280_027c;
    const GOLDEN_COUNTER_CRC: u32 = 0xdcd8_64c5;

    #[test]
    fn value_when_any_bit_is_flipped_or_any_byte_missing_then_refused() {
        let (record, counter) = (encode(&record()), encode_counter(7));
        for (value, is_good) in [
            (record, (|value: &[u8]| parse(&key(), value).is_ok()) as fn(&[u8]) -> bool),
            (counter, |value| parse_counter(value).is_ok()),
        ] {
            assert!(is_good(&value));
            for bit in 0..value.len() * 8 {
                let mut bad = value.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_good(&bad), "bit {bit}");
            }
            for len in 0..value.len() {
                assert!(!is_good(&value[..len]), "{len} bytes");
            }
        }
    }

    #[test]
    fn value_when_whole_but_not_as_it_should_be_then_said_why() {
        let value = encode(&record());
        let newer = FormatError::Newer { what: RECORD, version: 2, known: 1 };
        assert_eq!(parse(&key(), &patched(&key(), &value, 0, 2)), Err(newer));
        // version 0, kind, access, name's length, block size, id, NAA, size, name
        for (at, byte) in [(0, 0), (1, 2), (2, 2), (3, 0), (3, 64), (5, 3), (8, 3), (23, 0x51), (24, 1), (32, b'D')] {
            let result = parse(&key(), &patched(&key(), &value, at, byte));
            assert!(matches!(result, Err(FormatError::Corrupt { .. })), "byte {at}: {result:?}");
        }
        let other = keys::volume(VolumeId(3));
        assert!(parse(&other, &value).is_err());
        assert!(parse(&other, &patched(&other, &value, 0, 1)).is_err());
        let counter = encode_counter(7);
        assert!(parse_counter(&patched(b"v", &counter, 4, 0)).is_err());
        assert!(matches!(parse_counter(&patched(b"v", &counter, 0, 9)), Err(FormatError::Newer { version: 9, .. })));
    }

    proptest! {
        #[test]
        fn value_when_any_bytes_then_no_panic(key in prop::collection::vec(any::<u8>(), 0..12), value in prop::collection::vec(any::<u8>(), 0..130)) {
            let _ = parse(&key, &value);
            let _ = parse_counter(&value);
        }
    }
}
