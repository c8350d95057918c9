//! What all structures share: taking fixed parts off a slice, and the seal of a catalogue value.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::format::error::FormatError;

/// Bytes of a crc32c.
pub(super) const CRC_LEN: usize = size_of::<U32>();

/// The part of a structure that is not parsed yet.
#[derive(Debug)]
pub(super) struct Input<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// `what` names the structure in errors.
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    /// The next fixed part.
    pub(super) fn take<T: FromBytes>(&mut self) -> Result<T, FormatError> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| self.corrupt("it ends too early"))?;
        self.rest = rest;
        Ok(value)
    }

    /// The next `len` bytes.
    pub(super) fn take_bytes(&mut self, len: usize) -> Result<&'a [u8], FormatError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.corrupt("it ends too early"))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// `count` as the length of a list whose items take at least `item_len` bytes each, if as many bytes are left: so
    /// a number that lies never makes us allocate more than the structure is long.
    pub(super) fn count(&self, count: u32, item_len: usize) -> Result<usize, FormatError> {
        usize::try_from(count)
            .ok()
            .filter(|count| count.checked_mul(item_len).is_some_and(|len| len <= self.rest.len()))
            .ok_or_else(|| self.corrupt("a list is longer than the structure that holds it"))
    }

    /// Whether everything was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Everything must have been taken.
    pub(super) fn end(self) -> Result<(), FormatError> {
        if self.is_empty() { Ok(()) } else { Err(self.corrupt("bytes are left over")) }
    }

    /// `true` or an error that says what does not hold.
    pub(super) fn demand(&self, holds: bool, detail: &'static str) -> Result<(), FormatError> {
        if holds { Ok(()) } else { Err(self.corrupt(detail)) }
    }

    pub(super) fn corrupt(&self, detail: &'static str) -> FormatError {
        FormatError::Corrupt { what: self.what, detail }
    }
}

/// Appends a fixed part.
pub(super) fn put<T: IntoBytes + Immutable>(out: &mut Vec<u8>, value: &T) {
    out.extend_from_slice(value.as_bytes());
}

/// Ends a catalogue value with the crc32c of its key and of all its bytes: a value that comes back under another key is
/// found out as well as a changed one.
pub(super) fn seal(key: &[u8], value: &mut Vec<u8>) {
    let crc = crc32c::crc32c_append(crc32c::crc32c(key), value);
    value.extend_from_slice(&crc.to_le_bytes());
}

/// The bytes of a sealed value without its version and its crc. The version is its first byte and the crc its last four
/// in every version, so that "newer" is told from "corrupt".
pub(super) fn unseal<'a>(what: &'static str, known: u8, key: &[u8], value: &'a [u8]) -> Result<Input<'a>, FormatError> {
    let input = Input::new(what, value);
    let (body, crc) = value.split_last_chunk::<CRC_LEN>().ok_or_else(|| input.corrupt("it ends too early"))?;
    let expected = crc32c::crc32c_append(crc32c::crc32c(key), body);
    input.demand(expected == u32::from_le_bytes(*crc), "its checksum does not match")?;
    let (version, rest) = body.split_first().ok_or_else(|| input.corrupt("it ends too early"))?;
    check_version(what, u32::from(*version), u32::from(known))?;
    Ok(Input::new(what, rest))
}

/// Versions count from 1. So far each structure has one.
pub(super) fn check_version(what: &'static str, version: u32, known: u32) -> Result<(), FormatError> {
    match version {
        0 => Err(FormatError::Corrupt { what, detail: "it has version 0, which never was" }),
        version if version > known => Err(FormatError::Newer { what, version, known }),
        _ => Ok(()),
    }
}
