//! The versions of a shard's chunks, by which replicas compare themselves.

use std::collections::BTreeMap;

use super::Machine;
use crate::format::entry::Entry;
use crate::ids::{ChunkIndex, ShardId, Version};
use crate::shard::Shard;

/// When a chunk was last changed, and whether its content counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkVersion {
    /// Of its last change; a hole has one too.
    pub version: Version,
    /// What is here is not what it should be.
    pub stale: bool,
    /// It is not a hole.
    pub has_data: bool,
}

impl<T> Machine<T> {
    /// All chunks of a shard that were ever written, ascending. `entries` are the catalogue's as of the last checkpoint.
    pub(crate) fn versions(
        &self,
        id: ShardId,
        entries: &BTreeMap<ChunkIndex, Entry>,
    ) -> Vec<(ChunkIndex, ChunkVersion)> {
        let nothing = Shard::default();
        let shard = self.shards.get(&id);
        // The catalogue may still have a shard that is dropped.
        let entries = if shard.is_some() { Some(entries) } else { None };
        let shard = shard.unwrap_or(&nothing);
        let mut chunks: Vec<ChunkIndex> = entries.into_iter().flat_map(BTreeMap::keys).copied().collect();
        chunks.extend(shard.recent.keys().chain(shard.frozen.keys()).chain(shard.active.keys()));
        chunks.sort_unstable();
        chunks.dedup();
        let version = |chunk: ChunkIndex| {
            let cold = || entries.and_then(|entries| entries.get(&chunk)).cloned();
            let mut entry = shard.recent.get(&chunk).cloned().unwrap_or_else(cold);
            for delta in [shard.frozen.get(&chunk), shard.active.get(&chunk)].into_iter().flatten() {
                entry = delta.merge(entry.as_ref(), true).entry;
            }
            let entry = entry?;
            let has_data = shard.is_touched(chunk);
            Some((chunk, ChunkVersion { version: entry.version, stale: entry.stale, has_data }))
        };
        chunks.into_iter().filter_map(version).collect()
    }
}
