//! Where checkpoints go: a small ordered store of keys and values that changes by synced, atomic commits only.
//!
//! The engine keeps here what it must find again without reading its data: map entries, shard records, allocation
//! pages, the checkpoint record, volume records (`format/keys.rs` has the keys). It is written once per checkpoint and
//! never on the path of a write's acknowledgement.
//!
//! [`Catalogue`] is a seam with two implementations: [`rocks`] on RocksDB, and [`model`] in memory, with which a
//! simulation cuts the power inside a commit. `suite.rs` is the one set of tests that both pass. Start reading here,
//! then `model.rs` (what the words mean), then `rocks.rs` (how they are kept).

pub mod model;
pub mod rocks;
#[cfg(test)]
mod suite;

use std::ops::ControlFlow;

/// Is given the keys and values of a range, and says whether it wants more.
pub type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// An ordered map from byte strings to byte strings that survives power loss.
pub trait Catalogue: Send + Sync + 'static {
    /// The value of a key; `None` when it has none.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogueError>;

    /// The values of many keys, in the order of the keys.
    fn get_many(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, CatalogueError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// Visits the keys in `from..to`, `to` excluded, ascending, with their values, until the visitor breaks. What it
    /// sees is the state between two commits. After an error the visitor has seen some of the range, in order, and
    /// only what is right. The visitor must not call the catalogue.
    fn range(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), CatalogueError>;

    /// Makes the changes, all of them or none, and durable when it returns. Ranges are deleted first, then keys are
    /// deleted, then values are put: a key that is both deleted and put has the value, and of two puts the later holds.
    ///
    /// After [`CatalogueError::NoSpace`] nothing has changed. After any other error they may or may not be made.
    fn commit(&self, changes: &Changes) -> Result<(), CatalogueError>;

    /// What it has written since it was opened, and what it takes.
    fn statistics(&self) -> CatalogueStatistics;
}

/// What one commit changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys from the first to the second, the second excluded, lose their values. One that is empty or the wrong way
    /// round does nothing.
    pub delete_ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys and their new values.
    pub puts: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys that lose their values.
    pub deletes: Vec<Vec<u8>>,
}

impl Changes {
    /// Nothing to change.
    pub fn is_empty(&self) -> bool {
        self.delete_ranges.is_empty() && self.puts.is_empty() && self.deletes.is_empty()
    }

    /// Bytes of keys and values.
    pub fn len_bytes(&self) -> u64 {
        let pairs = self.delete_ranges.iter().chain(&self.puts).map(|(one, two)| one.len() + two.len());
        pairs.chain(self.deletes.iter().map(Vec::len)).map(|len| len as u64).sum()
    }

    /// Gives `key` a value.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.puts.push((key.into(), value.into()));
    }

    /// Takes the value of `key`.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) {
        self.deletes.push(key.into());
    }

    /// Takes the values of the keys in `from..to`.
    pub fn delete_range(&mut self, from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) {
        self.delete_ranges.push((from.into(), to.into()));
    }
}

/// Why the catalogue did not do it, by what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// This key or range cannot be trusted; the others are as good as before.
    #[error("the catalogue is damaged: {detail}")]
    Corrupt {
        /// What was found, and where.
        detail: String,
    },
    /// The disk is full. Nothing was changed; the same again may work when there is space.
    #[error("no space for the catalogue: {detail}")]
    NoSpace {
        /// What the disk said.
        detail: String,
    },
    /// The disk is done for: nothing works until it was opened again, if then.
    #[error("the catalogue has failed: {detail}")]
    Failed {
        /// What happened.
        detail: String,
    },
}

/// Counters since the catalogue was opened; bytes are those given to the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogueStatistics {
    /// Commits that are durable.
    pub commits: u64,
    /// Bytes of the write-ahead log.
    pub wal_bytes: u64,
    /// Bytes of tables written from memory.
    pub flushed_bytes: u64,
    /// Bytes of tables written by merging tables.
    pub compacted_bytes: u64,
    /// Syncs of the write-ahead log.
    pub syncs: u64,
    /// Bytes that its files take now.
    pub disk_bytes: u64,
}

/// A directory for a test that syncs often and does not ask what syncing is worth: in memory where the machine has that.
#[cfg(test)]
pub(crate) fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
