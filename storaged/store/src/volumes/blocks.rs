//! What volumes need of the engine: ordered changes and checked reads of whole blocks of a shard. The tests have a
//! second implementation, in memory, that completes things late and in an order of its own.

use std::sync::Arc;

use holdfast_proto::ids::VolumeId;

use crate::catalogue::Catalogue;
use crate::engine::Engine;
use crate::error::StoreError;
use crate::ids::{ShardId, Version};
use crate::operation::{Applied, Mutation, ReadDone};

/// Shards of blocks on one disk. Byte offsets in errors are those in the volume.
///
/// None of the calls waits for the disk, except [`Blocks::close`]. A completion may be called on any thread, also inside
/// the call that it was given to; it does not block, and may call any of these again, except [`Blocks::close`].
pub(crate) trait Blocks: Send + Sync + 'static {
    /// Makes a change; it is durable when it completes with success. Changes of a shard take effect in the order of the
    /// calls, which is that of their versions; a version that is left out was never used.
    fn apply(&self, mutation: Mutation, done: Applied);

    /// Reads blocks, at least one, that lie in one shard. What a block gives was durable, was checked, and is not older
    /// than what a change made it that completed before this call.
    fn read(&self, shard: ShardId, first_block: u32, blocks: u32, done: ReadDone);

    /// Version of the last change of the shard that was ever applied; zero for a shard that was never changed, which
    /// therefore reads as zeros. Asked before the shard's first change since the start.
    fn last_version(&self, shard: ShardId) -> Version;

    /// Bytes of the disk that the blocks of a volume take.
    fn allocated_bytes(&self, volume: VolumeId) -> u64;

    /// Whether the disk still works.
    fn health(&self) -> Result<(), StoreError>;

    /// Where volume records are kept.
    fn catalogue(&self) -> &Arc<dyn Catalogue>;

    /// Writes a last checkpoint and stops. Nothing is in flight any more.
    fn close(&self);
}

impl Blocks for Engine {
    fn apply(&self, mutation: Mutation, done: Applied) {
        Engine::apply(self, mutation, done);
    }

    fn read(&self, shard: ShardId, first_block: u32, blocks: u32, done: ReadDone) {
        Engine::read(self, shard, first_block, blocks, done);
    }

    fn last_version(&self, shard: ShardId) -> Version {
        self.shard_state(shard).last
    }

    fn allocated_bytes(&self, volume: VolumeId) -> u64 {
        Engine::allocated_bytes(self, volume)
    }

    fn health(&self) -> Result<(), StoreError> {
        self.failure().map_or(Ok(()), |reason| Err(StoreError::DeviceFailed(reason)))
    }

    fn catalogue(&self) -> &Arc<dyn Catalogue> {
        Engine::catalogue(self)
    }

    fn close(&self) {
        Engine::close(self);
    }
}
