//! What a check has to say: which rule is broken, where, and what that means to whoever uses the data.

use std::fmt;
use std::ops::Range;

use holdfast_proto::ids::{VolumeId, VolumeName};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Space is taken by nothing: no data is in danger.
    Waste,
    /// Something that was stored is not there any more, or its safety net is gone.
    Damage,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// The file `format` is damaged.
    Identity,
    /// A copy of the superblock is damaged.
    Superblock,
    /// Parts of the store belong to different disks or nodes.
    OtherDisk,
    /// The data file is missing, or was cut.
    DataFile,
    /// The catalogue, or a part of it, cannot be read.
    Catalogue,
    /// A row of the catalogue is damaged.
    Row,
    /// A row of the catalogue is of no known kind.
    UnknownRow,
    /// A structure was written by a later release.
    Newer,
    /// Volume records contradict each other.
    Volumes,
    /// The map entry of a chunk is damaged.
    Entry,
    /// The map has no entry of a chunk that has data.
    MissingEntry,
    /// A shard's bitmaps say other things than its map.
    Bitmaps,
    /// The journal is damaged, or contradicts the catalogue.
    Journal,
    /// A block is not what was written.
    Checksum,
    /// The disk does not give a block.
    Unreadable,
    /// The content of a block was lost before, and the store knows.
    Lost,
    /// A chunk's place is beyond the end of the data file.
    BeyondEnd,
    /// Two chunks have the same place.
    SharedSlot,
    /// A place in use is marked as free.
    UnmarkedSlot,
    /// A place that nothing uses is marked as used.
    Leak,
    /// Data that belongs to no volume, or lies beyond the end of its volume.
    Unreachable,
}

/// What is to be known of a problem beside the place.
struct Explanation {
    name: &'static str,
    severity: Severity,
    meaning: &'static str,
    remedy: &'static str,
}

const REPLACE_STORE: &str =
    "rebuild the node's data from its other copies into an empty directory, or restore it from a backup";
const REPLACE_RANGE: &str =
    "rebuild the range from another copy, or restore it from a backup; writing it makes it good again";
const REPLACE_SOON: &str = "rebuild the node's data from its other copies into an empty directory when it suits";
const REPORT: &str = "please report this: no power cut or failed disk does it";

impl Problem {
    /// A short name that stays the same, for scripts.
    pub fn name(self) -> &'static str {
        self.explanation().name
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        self.explanation().severity
    }

    /// What it means for the data.
    pub fn meaning(self) -> &'static str {
        self.explanation().meaning
    }

    /// What to do.
    pub fn remedy(self) -> &'static str {
        self.explanation().remedy
    }

    fn explanation(self) -> Explanation {
        use Severity::{Damage, Waste};
        let (name, severity, meaning, remedy) = match self {
            Self::Identity => ("identity", Damage, "the store cannot be opened", REPLACE_STORE),
            Self::Superblock => (
                "superblock",
                Damage,
                "one good copy is enough to open the store, without any the data file cannot be read",
                REPLACE_SOON,
            ),
            Self::OtherDisk => (
                "other-disk",
                Damage,
                "files of different stores were mixed, and the store is not opened",
                "put the files back that belong together",
            ),
            Self::DataFile => {
                ("data-file", Damage, "the store cannot be opened, or lacks what was cut off", REPLACE_STORE)
            }
            Self::Catalogue => ("catalogue", Damage, "what lies there cannot be found any more", REPLACE_STORE),
            Self::Row => ("row", Damage, "the store cannot be opened without it", REPLACE_STORE),
            Self::UnknownRow => ("unknown-row", Damage, "no release known here writes such a row", REPORT),
            Self::Newer => ("newer", Damage, "it cannot be understood here", "use the newer release"),
            Self::Volumes => ("volumes", Damage, "the store cannot be opened", REPLACE_STORE),
            Self::Entry => ("map-entry", Damage, "reading the range fails", REPLACE_RANGE),
            Self::MissingEntry => ("missing-entry", Damage, "reading the range fails", REPLACE_RANGE),
            Self::Bitmaps => ("bitmaps", Damage, "the range may read as zeros, or fail", REPLACE_RANGE),
            Self::Journal => (
                "journal",
                Damage,
                "the store cannot be opened; what was written after that place is lost here",
                REPLACE_STORE,
            ),
            Self::Checksum => {
                ("checksum", Damage, "the range is not what was written; reading it fails", REPLACE_RANGE)
            }
            Self::Unreadable => {
                ("unreadable", Damage, "the disk does not give the range; reading it fails", REPLACE_RANGE)
            }
            Self::Lost => ("lost", Damage, "the content was lost before; reading the range fails", REPLACE_RANGE),
            Self::BeyondEnd => {
                ("beyond-end", Damage, "the range is not in the data file; reading it fails", REPLACE_RANGE)
            }
            Self::SharedSlot => (
                "shared-slot",
                Damage,
                "writing one of the ranges destroys the other; at most one of them is right",
                REPLACE_RANGE,
            ),
            Self::UnmarkedSlot => ("unmarked-slot", Damage, "other data may be written over the range", REPLACE_STORE),
            Self::Leak => ("leak", Waste, "space is taken by nothing; no data is in danger", REPLACE_SOON),
            Self::Unreachable => ("unreachable", Waste, "it takes space, and no volume shows it", REPORT),
        };
        Explanation { name, severity, meaning, remedy }
    }
}

/// A range of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRange {
    /// The volume.
    pub volume: VolumeId,
    /// Its name; `None` when the store has no good record of it.
    pub name: Option<VolumeName>,
    /// Bytes of the volume, the end excluded.
    pub bytes: Range<u64>,
}

impl fmt::Display for VolumeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "volume {name}")?,
            None => write!(f, "volume number {} (no name is known)", self.volume)?,
        }
        write!(f, ", bytes {} to {}", self.bytes.start, self.bytes.end)
    }
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub problem: Problem,
    /// Which structure it is, and where.
    pub place: String,
    /// Whose data is hit, where that can be told.
    pub range: Option<VolumeRange>,
    /// What was found.
    pub detail: String,
}

impl Finding {
    pub(super) fn new(problem: Problem, place: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { problem, place: place.into(), range: None, detail: detail.into() }
    }

    pub(super) fn of(
        problem: Problem,
        range: VolumeRange,
        place: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Self { problem, place: place.into(), range: Some(range), detail: detail.into() }
    }
}

impl fmt::Display for Finding {
    /// One line for a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(range) = &self.range {
            write!(f, "{range}: ")?;
        }
        let (problem, place, detail) = (self.problem, &self.place, &self.detail);
        write!(f, "{place}: {detail}; {}. What to do: {}.", problem.meaning(), problem.remedy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_when_printed_then_it_names_volume_range_and_remedy() {
        let range = VolumeRange { volume: VolumeId(3), name: "disk0".parse().ok(), bytes: 4096..8192 };
        let finding = Finding::of(Problem::Checksum, range.clone(), "slot 9", "the checksum of one block is wrong");
        let text = finding.to_string();
        assert!(text.starts_with("volume disk0, bytes 4096 to 8192: slot 9: the checksum"), "{text}");
        assert!(text.contains("What to do: rebuild the range from another copy"), "{text}");
        let unnamed = VolumeRange { name: None, ..range };
        assert_eq!(unnamed.to_string(), "volume number 3 (no name is known), bytes 4096 to 8192");
    }
}
