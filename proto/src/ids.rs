//! Ids that gateways and storage daemons share, each a type of its own so that they cannot be mixed up.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::units::SHARD_BYTES;

/// Number of a volume; made once, never reused. 0 is no volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which shard of a volume: byte offset divided by [`SHARD_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub u32);

impl ShardIndex {
    /// The shard that holds byte `offset_bytes` of a volume; `None` beyond 4 EiB, where no volume reaches.
    pub fn of_offset(offset_bytes: u64) -> Option<Self> {
        u32::try_from(offset_bytes / SHARD_BYTES).ok().map(Self)
    }
}

impl fmt::Display for ShardIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One life of a process: a restart gets a higher one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Name of one operation, the same in every retry, so that it takes effect at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// The gateway's life that made it.
    pub incarnation: Incarnation,
    /// The thread of that gateway that counts `sequence`.
    pub lane: u32,
    /// Rises by one with every command of the lane.
    pub sequence: u64,
    /// Number of the part, for a command that was split at shard borders.
    pub part: u32,
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.incarnation, self.lane, self.sequence, self.part)
    }
}

/// What an administrator calls a volume: 1 to 63 of `a-z`, `0-9` and `-`, beginning with a letter or a digit.
///
/// That is a subset of what an iSCSI name may hold (RFC 7143, section 4.2.7.2) and of a DNS label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeName(String);

impl VolumeName {
    /// Longest name in bytes.
    pub const MAX_BYTES: usize = 63;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text is not a volume name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VolumeNameError {
    /// No character at all, or more than 63.
    #[error("a volume name has 1 to 63 characters, this one has {0}")]
    Length(usize),
    /// Begins with a dash.
    #[error("a volume name begins with a letter or a digit")]
    FirstCharacter,
    /// Some other character.
    #[error("{0:?} cannot be in a volume name; use a-z, 0-9 and -")]
    Character(char),
}

impl FromStr for VolumeName {
    type Err = VolumeNameError;

    fn from_str(text: &str) -> Result<Self, VolumeNameError> {
        if let Some(other) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
            return Err(VolumeNameError::Character(other));
        }
        if text.is_empty() || text.len() > Self::MAX_BYTES {
            return Err(VolumeNameError::Length(text.len()));
        }
        if text.starts_with('-') {
            return Err(VolumeNameError::FirstCharacter);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AsRef<str> for VolumeName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_name_when_well_formed_then_kept() {
        for name in ["disk0", "0", "a-b-", &"x".repeat(63)] {
            assert_eq!(name.parse::<VolumeName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn volume_name_when_malformed_then_the_reason_is_told() {
        let parse = |text: &str| text.parse::<VolumeName>().unwrap_err();
        assert_eq!(parse(""), VolumeNameError::Length(0));
        assert_eq!(parse(&"x".repeat(64)), VolumeNameError::Length(64));
        assert_eq!(parse("-a"), VolumeNameError::FirstCharacter);
        assert_eq!(parse("Disk"), VolumeNameError::Character('D'));
        assert_eq!(parse("a/b"), VolumeNameError::Character('/'));
        assert_eq!(parse("é"), VolumeNameError::Character('é'));
    }

    #[test]
    fn shard_index_when_at_a_border_then_the_next_shard() {
        assert_eq!(ShardIndex::of_offset(SHARD_BYTES - 1), Some(ShardIndex(0)));
        assert_eq!(ShardIndex::of_offset(SHARD_BYTES), Some(ShardIndex(1)));
        assert_eq!(ShardIndex::of_offset(u64::MAX), None);
    }

    #[test]
    fn op_id_when_printed_then_every_field_shows() {
        let op = OpId { incarnation: Incarnation(7), lane: 1, sequence: 42, part: 3 };
        assert_eq!(op.to_string(), "7.1.42.3");
    }
}
