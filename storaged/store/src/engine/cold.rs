//! Map entries that are only in the catalogue, kept in memory while there is room.
//!
//! An entry goes in as the catalogue has it at some checkpoint. What a later checkpoint changes is shadowed by the state machine's recent
//! layer until it is put in here anew, so what lies here is never older than what is asked for. [`ColdMap::fill`] has to be called with
//! the state machine locked and its checkpoint unchanged since the catalogue was read.

use moka::sync::Cache;

use crate::format::entry::{Content, Entry};
use crate::ids::{ChunkIndex, ShardId};
use crate::machine::{ChunkId, Cold};

/// Bytes that an entry takes, with what the cache needs for it.
const ENTRY_BYTES: u64 = 240;

pub(super) struct ColdMap {
    entries: Cache<ChunkId, Option<Content>>,
}

impl ColdMap {
    pub(super) fn new(bytes: u64) -> Self {
        Self { entries: Cache::new((bytes / ENTRY_BYTES).max(1)) }
    }

    pub(super) fn get(&self, shard: ShardId, chunk: ChunkIndex) -> Cold {
        self.entries.get(&(shard, chunk)).map_or(Cold::Unknown, Cold::Known)
    }

    /// Entries that were read from the catalogue.
    pub(super) fn fill(&self, entries: &[(ChunkId, Option<Content>)]) {
        for (chunk, content) in entries {
            self.entries.insert(*chunk, *content);
        }
    }

    /// Entries that a checkpoint has changed.
    pub(super) fn put(&self, entries: Vec<(ChunkId, Option<Entry>)>) {
        for (chunk, entry) in entries {
            self.entries.insert(chunk, entry.and_then(|entry| entry.content));
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.entries.entry_count()
    }
}
