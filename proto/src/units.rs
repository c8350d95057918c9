//! Units of storage: the block, the shard, and sizes as people write them.
//!
//! Every size inside the program is a plain number of bytes whose name says so; text such as `1GiB` is
//! parsed here, once, at the edge.

use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

use thiserror::Error;

/// The unit of checksum and of the store: 4 KiB, aligned in the volume.
pub const BLOCK_BYTES: u64 = 4096;

/// [`BLOCK_BYTES`] as the length of a slice.
pub const BLOCK_LEN: usize = 4096;

/// The unit of placement, ordering and failover: 1 GiB, aligned in the volume.
pub const SHARD_BYTES: u64 = 1 << 30;

/// A number of bytes, at least 1 and at most [`SizeBytes::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeBytes(u64);

impl SizeBytes {
    /// The largest size: file offsets are signed 64-bit numbers.
    pub const MAX: u64 = i64::MAX as u64;

    /// A size of `bytes`, if that is in 1..=[`SizeBytes::MAX`].
    pub fn new(bytes: u64) -> Result<Self, SizeError> {
        match bytes {
            0 => Err(SizeError::Zero),
            1..=Self::MAX => Ok(Self(bytes)),
            _ => Err(SizeError::TooLarge),
        }
    }

    /// The number of bytes.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// Why a text or number is not a size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// Zero bytes.
    #[error("a size of zero; give at least one byte")]
    Zero,
    /// More than [`SizeBytes::MAX`].
    #[error("the size is too large; the limit is 8 EiB")]
    TooLarge,
    /// No whole number in front.
    #[error("not a size; write a whole number with an optional K, M, G, T or KiB, MiB, GiB, TiB, as in 10GiB")]
    NotANumber,
    /// A unit that is not known, or one that means two things (MB).
    #[error("unknown unit {0:?}; use K, M, G, T or KiB, MiB, GiB, TiB (powers of 1024)")]
    UnknownUnit(String),
}

/// Suffixes and the power of two that each stands for. The first of each power is the one that is printed.
const UNITS: [(&str, u32); 14] = [
    ("PiB", 50),
    ("TiB", 40),
    ("GiB", 30),
    ("MiB", 20),
    ("KiB", 10),
    ("P", 50),
    ("T", 40),
    ("G", 30),
    ("M", 20),
    ("K", 10),
    ("k", 10),
    ("m", 20),
    ("g", 30),
    ("t", 40),
];

impl FromStr for SizeBytes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow => SizeError::TooLarge,
            _ => SizeError::NotANumber,
        })?;
        let unit = unit.trim_start();
        let shift = match unit {
            "" | "B" => 0,
            _ => UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .map(|(_, shift)| *shift)
                .ok_or_else(|| SizeError::UnknownUnit(unit.to_owned()))?,
        };
        Self::new(number.checked_mul(1 << shift).ok_or(SizeError::TooLarge)?)
    }
}

impl fmt::Display for SizeBytes {
    /// The largest unit that gives a whole number: `3GiB`, `1536MiB`; plain bytes if none does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, shift)| self.0.trailing_zeros() >= *shift) {
            Some((name, shift)) => write!(f, "{}{name}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Size of the logical blocks that an initiator sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockSize {
    /// 512 bytes on a physical block of 4096: "512e".
    #[default]
    B512,
    /// 4096 bytes: "4Kn".
    B4096,
}

impl BlockSize {
    /// 512 or 4096.
    pub fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

/// A block size that is neither 512 nor 4096.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("block size {0} is not supported; use 512 or 4096")]
pub struct BlockSizeError(pub String);

impl TryFrom<u32> for BlockSize {
    type Error = BlockSizeError;

    fn try_from(bytes: u32) -> Result<Self, BlockSizeError> {
        match bytes {
            512 => Ok(Self::B512),
            4096 => Ok(Self::B4096),
            _ => Err(BlockSizeError(bytes.to_string())),
        }
    }
}

impl FromStr for BlockSize {
    type Err = BlockSizeError;

    fn from_str(text: &str) -> Result<Self, BlockSizeError> {
        let bytes: u32 = text.parse().map_err(|_| BlockSizeError(text.to_owned()))?;
        Self::try_from(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<u64, SizeError> {
        text.parse::<SizeBytes>().map(SizeBytes::get)
    }

    #[test]
    fn size_when_written_with_a_unit_then_powers_of_1024() {
        assert_eq!(parse("1GiB"), Ok(1 << 30));
        assert_eq!(parse("512M"), Ok(512 << 20));
        assert_eq!(parse(" 3 k"), Ok(3 << 10));
        assert_eq!(parse("16T"), Ok(16 << 40));
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("7B"), Ok(7));
    }

    #[test]
    fn size_when_malformed_then_the_reason_is_told() {
        assert_eq!(parse("0"), Err(SizeError::Zero));
        assert_eq!(parse(""), Err(SizeError::NotANumber));
        assert_eq!(parse("-1G"), Err(SizeError::NotANumber));
        assert_eq!(parse("G"), Err(SizeError::NotANumber));
        assert_eq!(parse("1.5G"), Err(SizeError::UnknownUnit(".5G".into())));
        assert_eq!(parse("5MB"), Err(SizeError::UnknownUnit("MB".into())));
        assert_eq!(parse("99999999999999999999"), Err(SizeError::TooLarge));
        assert_eq!(parse("8192P"), Err(SizeError::TooLarge));
        assert_eq!(parse("9223372036854775808"), Err(SizeError::TooLarge));
        assert_eq!(parse("9223372036854775807"), Ok(SizeBytes::MAX));
    }

    #[test]
    fn block_size_when_neither_512_nor_4096_then_refused() {
        assert_eq!("512".parse(), Ok(BlockSize::B512));
        assert_eq!(BlockSize::try_from(4096), Ok(BlockSize::B4096));
        assert_eq!("1024".parse::<BlockSize>(), Err(BlockSizeError("1024".into())));
        assert_eq!("4k".parse::<BlockSize>(), Err(BlockSizeError("4k".into())));
    }

    proptest! {
        #[test]
        fn size_when_printed_then_parses_back(bytes in 1..=SizeBytes::MAX, zeros in 0u32..63) {
            let bytes = (bytes >> zeros << zeros).max(1);
            let size = SizeBytes::new(bytes).unwrap();
            prop_assert_eq!(size.to_string().parse::<SizeBytes>(), Ok(size));
        }

        #[test]
        fn size_when_any_text_then_no_panic(text in ".{0,20}") {
            let _ = text.parse::<SizeBytes>();
        }
    }
}
