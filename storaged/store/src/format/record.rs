//! Records: what one batch of the journal changes, in order.
//!
//! ```text
//! record    kind u8, version u8 (1), flags u16, body_len u32, body
//!
//! mutation  (kind 1; flag bit 0: an operation follows)
//!           volume u64, shard u32, parts u32, at (term u64, sequence u64), chunk_version (term u64, sequence u64),
//!           committed u64                                                                          (56 bytes)
//!           operation: incarnation u64, sequence u64, acked_below u64, lane u32, part u32, outcome u8,
//!           reserved 7 bytes                                                                       (40 bytes)
//!           parts, each: kind u8, first u8, count u8, reserved u8, where u32, what u32             (12 bytes)
//!             1 blocks          where = chunk, what = 0, then a crc u32 for each of `count` blocks from `first`
//!             2 blocks, fresh   as 1, what = the slot that becomes the chunk's
//!             3 chunk           where = chunk, what = slot, first = 0, count = 16, then 16 crcs
//!             4 hole            where = first block of the shard, what = number of blocks, first = count = 0
//! state     (kind 2; flag bit 0: suspect)  volume u64, shard u32, reserved u32, epoch u64, term u64, committed u64
//! stale     (kind 3; flag bit 0: stale)    volume u64, shard u32, first u16, count u16
//! drop      (kind 4)                       volume u64, shard u32, reserved u32
//! ```
//!
//! A length in front of each body: the end of a record of an unknown kind or version could be found, but a journal
//! that holds one is refused as newer, since a change that is not understood cannot be skipped. The payload of a
//! mutation is not here but behind the batch's records, in the order of its parts, so that it starts at a block
//! border and never shares a sector with its checksums. A 4 KiB write takes 120 bytes of records, so that 33 of them
//! fit into one block of head.

use holdfast_proto::ids::{Incarnation, OpId, ShardIndex, VolumeId};
use smallvec::SmallVec;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::codec::{Input, check_version, put};
use crate::format::error::FormatError;
use crate::ids::{BLOCKS_PER_CHUNK, BLOCKS_PER_SHARD, CHUNKS_PER_SHARD, ChunkIndex, ShardId, Slot, Version};

const WHAT: &str = "a journal record";
const VERSION: u8 = 1;

const MUTATION: u8 = 1;
const STATE: u8 = 2;
const STALE: u8 = 3;
const DROP: u8 = 4;

/// The only flag; its meaning is the kind's.
const FLAG: u16 = 1;

const BLOCKS: u8 = 1;
const FRESH: u8 = 2;
const CHUNK: u8 = 3;
const HOLE: u8 = 4;

const FULL: u8 = 16;
const _: () = assert!(FULL as usize == BLOCKS_PER_CHUNK);

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every record is a mutation; a box would be an allocation per write"
)]
pub enum Record {
    /// Data of a shard change.
    Mutation(MutationRecord),
    /// A replica's numbers change.
    State(StateRecord),
    /// Chunks become stale, or are no more.
    Stale {
        /// Whose.
        shard: ShardId,
        /// The first of them.
        first: ChunkIndex,
        /// How many, at least 1, not beyond the shard.
        count: u16,
        /// What they become.
        stale: bool,
    },
    /// Everything of a shard is forgotten, versions too.
    Drop {
        /// Which.
        shard: ShardId,
    },
}

/// Parts of a mutation. Two are held without an allocation: an unaligned write of up to a chunk touches two chunks.
pub type Parts = SmallVec<[Part; 2]>;

/// Checksums of up to a chunk's blocks, without an allocation.
pub type Crcs = SmallVec<[u32; BLOCKS_PER_CHUNK]>;

/// One ordered change of a shard's data: all of it or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutationRecord {
    /// Whose data.
    pub shard: ShardId,
    /// Place in the shard's order.
    pub at: Version,
    /// What the chunks get; differs from `at` for copies, which keep their source's.
    pub chunk_version: Version,
    /// Sequence up to which everything of the shard is known to be committed.
    pub committed: u64,
    /// The operation that it carries out, for the dedupe table.
    pub operation: Option<OperationRecord>,
    /// What changes, in order.
    pub parts: Parts,
}

/// An operation that took effect, as the dedupe table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationRecord {
    /// Its name.
    pub id: OpId,
    /// Operations of its lane with a lower sequence are refused from now on.
    pub acked_below: u64,
    /// What was answered; the meaning is the replica's.
    pub outcome: u8,
}

/// One piece of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The next `crcs.len()` blocks of the batch's payload are blocks of a chunk.
    Blocks {
        /// The chunk.
        chunk: ChunkIndex,
        /// First block in it, below 16.
        first: u8,
        /// The chunk had no slot and gets this one, whose content counts for nothing.
        fresh: Option<Slot>,
        /// crc32c of each, 1 to 16, not beyond the chunk.
        crcs: Crcs,
    },
    /// The whole chunk is in this slot already.
    Chunk {
        /// The chunk.
        chunk: ChunkIndex,
        /// Its new slot.
        slot: Slot,
        /// crc32c of each block.
        crcs: [u32; BLOCKS_PER_CHUNK],
    },
    /// Blocks of the shard read as zeros.
    Hole {
        /// First block in the shard.
        first_block: u32,
        /// How many, at least 1, not beyond the shard.
        blocks: u32,
    },
}

/// A replica's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRecord {
    /// Whose.
    pub shard: ShardId,
    /// Newest configuration known.
    pub epoch: u64,
    /// Newest reign known.
    pub term: u64,
    /// Sequence up to which everything is known to be committed.
    pub committed: u64,
    /// Something of it was found corrupt: it must be copied anew.
    pub suspect: bool,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct HeadLayout {
    kind: u8,
    version: u8,
    flags: U16,
    body_len: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MutationLayout {
    volume: U64,
    index: U32,
    parts: U32,
    at_term: U64,
    at_sequence: U64,
    chunk_term: U64,
    chunk_sequence: U64,
    committed: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct OperationLayout {
    incarnation: U64,
    sequence: U64,
    acked_below: U64,
    lane: U32,
    part: U32,
    outcome: u8,
    reserved: [u8; 7],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PartLayout {
    kind: u8,
    first: u8,
    count: u8,
    reserved: u8,
    place: U32,
    what: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StateLayout {
    volume: U64,
    index: U32,
    reserved: U32,
    epoch: U64,
    term: U64,
    committed: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StaleLayout {
    volume: U64,
    index: U32,
    first: U16,
    count: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct DropLayout {
    volume: U64,
    index: U32,
    reserved: U32,
}

/// Bytes of what stands before a record's body.
pub(super) const RECORD_HEAD_LEN: usize = size_of::<HeadLayout>();

const _: () = {
    assert!(RECORD_HEAD_LEN == 8);
    assert!(size_of::<MutationLayout>() == 56);
    assert!(size_of::<OperationLayout>() == 40);
    assert!(size_of::<PartLayout>() == 12);
    assert!(size_of::<StateLayout>() == 40);
    assert!(size_of::<StaleLayout>() == 16);
    assert!(size_of::<DropLayout>() == 16);
};

impl Record {
    /// Bytes that it takes among the records of a batch.
    pub fn encoded_len(&self) -> usize {
        RECORD_HEAD_LEN
            + match self {
                Self::Mutation(mutation) => mutation.body_len(),
                Self::State(_) => size_of::<StateLayout>(),
                Self::Stale { .. } => size_of::<StaleLayout>(),
                Self::Drop { .. } => size_of::<DropLayout>(),
            }
    }

    /// Blocks of the batch's payload that belong to it.
    pub fn payload_blocks(&self) -> u32 {
        match self {
            Self::Mutation(mutation) => mutation.parts.iter().map(Part::payload_blocks).sum(),
            Self::State(_) | Self::Stale { .. } | Self::Drop { .. } => 0,
        }
    }

    /// The crc of each of its blocks in the batch's payload, in order.
    pub fn payload_crcs(&self) -> impl Iterator<Item = u32> + '_ {
        let parts: &[Part] = match self {
            Self::Mutation(mutation) => &mutation.parts,
            Self::State(_) | Self::Stale { .. } | Self::Drop { .. } => &[],
        };
        parts.iter().flat_map(|part| part.payload_crcs().iter().copied())
    }

    /// Appends it to the records of a batch. A record whose ranges are not as its fields' docs say cannot be read back,
    /// so it is never written: that is a bug of the caller, and stops the process before anything is acknowledged.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let (kind, flag) = match self {
            Self::Mutation(mutation) => (MUTATION, mutation.operation.is_some()),
            Self::State(state) => (STATE, state.suspect),
            Self::Stale { stale, .. } => (STALE, *stale),
            Self::Drop { .. } => (DROP, false),
        };
        let flags = if flag { FLAG } else { 0 };
        let body_len = narrow(self.encoded_len() - RECORD_HEAD_LEN);
        put(out, &HeadLayout { kind, version: VERSION, flags: flags.into(), body_len });
        match self {
            Self::Mutation(mutation) => mutation.encode(out),
            Self::State(state) => state.encode(out),
            Self::Stale { shard, first, count, .. } => {
                assert!(chunks_in_shard(*first, *count), "stale chunks beyond the shard");
                let (volume, index) = (shard.volume.0.into(), shard.index.0.into());
                put(out, &StaleLayout { volume, index, first: first.get().into(), count: (*count).into() });
            }
            Self::Drop { shard } => {
                let (volume, index) = (shard.volume.0.into(), shard.index.0.into());
                put(out, &DropLayout { volume, index, reserved: 0.into() });
            }
        }
        debug_assert_eq!(out.len() - start, self.encoded_len());
    }

    /// The records of a batch: exactly `count` of them in exactly these bytes.
    pub fn parse_all(bytes: &[u8], count: u32) -> Result<Vec<Self>, FormatError> {
        let mut input = Input::new(WHAT, bytes);
        let count = input.count(count, RECORD_HEAD_LEN)?;
        // Not all at once: a record in memory is much larger than the least that it takes on disk.
        let mut records = Vec::with_capacity(count.min(1024));
        for _ in 0..count {
            records.push(Self::parse(&mut input)?);
        }
        input.end()?;
        Ok(records)
    }

    fn parse(input: &mut Input<'_>) -> Result<Self, FormatError> {
        let head: HeadLayout = input.take()?;
        let body_len = input.count(head.body_len.get(), 1)?;
        let mut body = Input::new(WHAT, input.take_bytes(body_len)?);
        check_version(WHAT, u32::from(head.version), u32::from(VERSION))?;
        let flags = head.flags.get();
        let flag = flags & FLAG != 0;
        body.demand(flags & !FLAG == 0 && !(flag && head.kind == DROP), "a flag is not known")?;
        let record = match head.kind {
            MUTATION => Self::Mutation(MutationRecord::parse(&mut body, flag)?),
            STATE => Self::State(StateRecord::parse(&mut body, flag)?),
            STALE => {
                let layout: StaleLayout = body.take()?;
                let count = layout.count.get();
                let first = ChunkIndex::new(layout.first.get()).filter(|first| chunks_in_shard(*first, count));
                let first = first.ok_or_else(|| body.corrupt("stale chunks beyond the shard"))?;
                Self::Stale { shard: shard_of(layout.volume, layout.index), first, count, stale: flag }
            }
            DROP => {
                let layout: DropLayout = body.take()?;
                Self::Drop { shard: shard_of(layout.volume, layout.index) }
            }
            _ => return Err(body.corrupt("its kind is not known")),
        };
        body.end()?;
        Ok(record)
    }
}

impl MutationRecord {
    fn body_len(&self) -> usize {
        let operation = if self.operation.is_some() { size_of::<OperationLayout>() } else { 0 };
        size_of::<MutationLayout>() + operation + self.parts.iter().map(Part::encoded_len).sum::<usize>()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let layout = MutationLayout {
            volume: self.shard.volume.0.into(),
            index: self.shard.index.0.into(),
            parts: narrow(self.parts.len()),
            at_term: self.at.term.into(),
            at_sequence: self.at.sequence.into(),
            chunk_term: self.chunk_version.term.into(),
            chunk_sequence: self.chunk_version.sequence.into(),
            committed: self.committed.into(),
        };
        put(out, &layout);
        if let Some(operation) = &self.operation {
            operation.encode(out);
        }
        for part in &self.parts {
            part.encode(out);
        }
    }

    fn parse(body: &mut Input<'_>, with_operation: bool) -> Result<Self, FormatError> {
        let layout: MutationLayout = body.take()?;
        let operation = if with_operation { Some(OperationRecord::parse(body)?) } else { None };
        let count = body.count(layout.parts.get(), size_of::<PartLayout>())?;
        let mut parts = Parts::with_capacity(count);
        for _ in 0..count {
            parts.push(Part::parse(body)?);
        }
        Ok(Self {
            shard: shard_of(layout.volume, layout.index),
            at: Version { term: layout.at_term.get(), sequence: layout.at_sequence.get() },
            chunk_version: Version { term: layout.chunk_term.get(), sequence: layout.chunk_sequence.get() },
            committed: layout.committed.get(),
            operation,
            parts,
        })
    }
}

impl OperationRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        let layout = OperationLayout {
            incarnation: self.id.incarnation.0.into(),
            sequence: self.id.sequence.into(),
            acked_below: self.acked_below.into(),
            lane: self.id.lane.into(),
            part: self.id.part.into(),
            outcome: self.outcome,
            reserved: [0; 7],
        };
        put(out, &layout);
    }

    fn parse(body: &mut Input<'_>) -> Result<Self, FormatError> {
        let layout: OperationLayout = body.take()?;
        let id = OpId {
            incarnation: Incarnation(layout.incarnation.get()),
            lane: layout.lane.get(),
            sequence: layout.sequence.get(),
            part: layout.part.get(),
        };
        Ok(Self { id, acked_below: layout.acked_below.get(), outcome: layout.outcome })
    }
}

impl Part {
    /// Bytes that it takes in its record.
    fn encoded_len(&self) -> usize {
        size_of::<PartLayout>()
            + match self {
                Self::Blocks { crcs, .. } => crcs.len() * 4,
                Self::Chunk { .. } => BLOCKS_PER_CHUNK * 4,
                Self::Hole { .. } => 0,
            }
    }

    /// Blocks of the batch's payload that belong to it.
    pub fn payload_blocks(&self) -> u32 {
        narrow(self.payload_crcs().len()).get()
    }

    /// The crc of each of them.
    fn payload_crcs(&self) -> &[u32] {
        match self {
            Self::Blocks { crcs, .. } => crcs,
            Self::Chunk { .. } | Self::Hole { .. } => &[],
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let head = |kind, first, count, place: u32, what: u32| PartLayout {
            kind,
            first,
            count,
            reserved: 0,
            place: place.into(),
            what: what.into(),
        };
        match self {
            Self::Blocks { chunk, first, fresh, crcs } => {
                let count = u8::try_from(crcs.len()).unwrap_or(u8::MAX);
                assert!(blocks_in_chunk(*first, count), "blocks beyond the chunk");
                let kind = if fresh.is_some() { FRESH } else { BLOCKS };
                let slot = fresh.map_or(0, |slot| slot.0);
                put(out, &head(kind, *first, count, u32::from(chunk.get()), slot));
                crcs.iter().for_each(|crc| out.extend_from_slice(&crc.to_le_bytes()));
            }
            Self::Chunk { chunk, slot, crcs } => {
                put(out, &head(CHUNK, 0, FULL, u32::from(chunk.get()), slot.0));
                crcs.iter().for_each(|crc| out.extend_from_slice(&crc.to_le_bytes()));
            }
            Self::Hole { first_block, blocks } => {
                assert!(blocks_in_shard(*first_block, *blocks), "a hole beyond the shard");
                put(out, &head(HOLE, 0, 0, *first_block, *blocks));
            }
        }
    }

    fn parse(body: &mut Input<'_>) -> Result<Self, FormatError> {
        let layout: PartLayout = body.take()?;
        let (first, count) = (layout.first, layout.count);
        let (place, what) = (layout.place.get(), layout.what.get());
        let chunk = u16::try_from(place).ok().and_then(ChunkIndex::new);
        let chunk = chunk.ok_or_else(|| body.corrupt("a chunk beyond the shard"));
        match layout.kind {
            BLOCKS | FRESH => {
                body.demand(blocks_in_chunk(first, count), "blocks beyond the chunk")?;
                body.demand(layout.kind == FRESH || what == 0, "a slot where none belongs")?;
                let fresh = (layout.kind == FRESH).then_some(Slot(what));
                let mut crcs = Crcs::new();
                for _ in 0..count {
                    crcs.push(body.take::<U32>()?.get());
                }
                Ok(Self::Blocks { chunk: chunk?, first, fresh, crcs })
            }
            CHUNK => {
                body.demand(first == 0 && count == FULL, "a chunk that is not whole")?;
                let crcs: [U32; BLOCKS_PER_CHUNK] = body.take()?;
                Ok(Self::Chunk { chunk: chunk?, slot: Slot(what), crcs: crcs.map(U32::get) })
            }
            HOLE => {
                body.demand(first == 0 && count == 0, "a hole with a place in a chunk")?;
                body.demand(blocks_in_shard(place, what), "a hole beyond the shard")?;
                Ok(Self::Hole { first_block: place, blocks: what })
            }
            _ => Err(body.corrupt("the kind of a part is not known")),
        }
    }
}

impl StateRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        let layout = StateLayout {
            volume: self.shard.volume.0.into(),
            index: self.shard.index.0.into(),
            reserved: 0.into(),
            epoch: self.epoch.into(),
            term: self.term.into(),
            committed: self.committed.into(),
        };
        put(out, &layout);
    }

    fn parse(body: &mut Input<'_>, suspect: bool) -> Result<Self, FormatError> {
        let layout: StateLayout = body.take()?;
        Ok(Self {
            shard: shard_of(layout.volume, layout.index),
            epoch: layout.epoch.get(),
            term: layout.term.get(),
            committed: layout.committed.get(),
            suspect,
        })
    }
}

fn shard_of(volume: U64, index: U32) -> ShardId {
    ShardId { volume: VolumeId(volume.get()), index: ShardIndex(index.get()) }
}

fn blocks_in_chunk(first: u8, count: u8) -> bool {
    first < FULL && count >= 1 && count <= FULL - first
}

fn blocks_in_shard(first: u32, blocks: u32) -> bool {
    first < BLOCKS_PER_SHARD && blocks >= 1 && blocks <= BLOCKS_PER_SHARD - first
}

fn chunks_in_shard(first: ChunkIndex, count: u16) -> bool {
    count >= 1 && count <= CHUNKS_PER_SHARD - first.get()
}

/// A length in memory as it is stored.
fn narrow(len: usize) -> U32 {
    assert!(len <= u32::MAX as usize, "a record of more than 4 GiB");
    #[allow(clippy::cast_possible_truncation, reason = "asserted above")]
    U32::new(len as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::samples::{any_record, hex, sample_records};

    /// Made as the golden bytes in `format/tests.rs` were.
    const GOLDEN: [&str; 6] = [
        "01010100dc00000003000000000000000500000004000000090000000000000064000000000000000800000000000000
         460000000000000063000000000000000b000000000000000c000000000000000d000000000000000e0000000f000000
         1000000000000000010e02001100000000000000111111112222222202000100ff3f00004d0000003333333303001000
         120000004e0000000100000002000000030000000400000005000000060000000700000008000000090000000a000000
         0b0000000c0000000d0000000e0000000f0000001000000004000000ffff030001000000",
        "010100003800000003000000000000000500000000000000090000000000000065000000000000000900000000000000
         65000000000000006300000000000000",
        "020101002800000003000000000000000500000000000000150000000000000016000000000000001700000000000000",
        "0301010010000000030000000000000005000000803e8001",
        "030100001000000003000000000000000500000000000100",
        "040100001000000003000000000000000500000000000000",
    ];

    fn is_corrupt(bytes: &[u8]) -> bool {
        matches!(Record::parse_all(bytes, 1), Err(FormatError::Corrupt { .. }))
    }

    #[test]
    fn record_when_encoded_then_the_golden_bytes() {
        for (record, golden) in sample_records().iter().zip(GOLDEN) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(bytes, hex(golden));
            assert_eq!(bytes.len(), record.encoded_len());
            assert_eq!(Record::parse_all(&bytes, 1).unwrap(), std::slice::from_ref(record));
        }
        assert_eq!(sample_records()[0].payload_blocks(), 3);
        let crcs: Vec<u32> = sample_records()[0].payload_crcs().collect();
        assert_eq!(crcs, [0x1111_1111, 0x2222_2222, 0x3333_3333]);
    }

    #[test]
    fn record_when_cut_or_longer_then_corrupt() {
        for golden in GOLDEN.map(hex) {
            for len in 0..golden.len() {
                assert!(is_corrupt(&golden[..len]), "cut to {len}");
            }
            assert!(is_corrupt(&[golden.as_slice(), &[0]].concat()));
            let len = u32::try_from(golden.len()).unwrap();
            for lie in [0, len - 9, len - 7, u32::MAX] {
                let mut bytes = golden.clone();
                bytes[4..8].copy_from_slice(&lie.to_le_bytes());
                assert!(is_corrupt(&bytes), "body of {lie}");
            }
        }
        assert!(Record::parse_all(&[], 1).is_err());
        assert!(Record::parse_all(&hex(GOLDEN[5]), 0).is_err());
        assert!(Record::parse_all(&hex(GOLDEN[5]), u32::MAX).is_err());
    }

    #[test]
    fn record_when_newer_then_said_so() {
        for mut golden in GOLDEN.map(hex) {
            golden[1] = 2;
            let newer = FormatError::Newer { what: "a journal record", version: 2, known: 1 };
            assert_eq!(Record::parse_all(&golden, 1), Err(newer));
            golden[1] = 0;
            assert!(is_corrupt(&golden));
        }
    }

    #[test]
    fn record_when_a_field_is_out_of_range_then_corrupt() {
        // (record, byte, value): a kind, a flag, then the parts of the first one.
        for (record, at, value) in [
            (0, 0, 9),     // unknown kind
            (0, 2, 2),     // unknown flag
            (5, 2, 1),     // a flag of a kind that has none
            (0, 20, 5),    // more parts than there are
            (0, 20, 3),    // fewer
            (0, 23, 0xff), // many more
            (0, 104, 9),   // unknown kind of part
            (0, 105, 15),  // 15 + 2 blocks
            (0, 105, 16),
            (0, 106, 0),    // no blocks
            (0, 109, 0x40), // chunk 16,401
            (0, 112, 1),    // a slot without `fresh`
            (0, 141, 1),    // a chunk not whole
            (0, 142, 15),
            (0, 217, 1),   // a hole with a place in a chunk
            (0, 223, 1),   // a hole beyond the shard
            (0, 224, 2),   // 2 blocks from the last
            (0, 224, 0),   // none
            (3, 22, 0x81), // 385 chunks from 16,000
            (3, 21, 0x40), // chunk 16,512
            (4, 22, 0),    // none
        ] {
            let mut bytes = hex(GOLDEN[record]);
            bytes[at] = value;
            assert!(is_corrupt(&bytes), "record {record}, byte {at} = {value}");
        }
    }

    proptest! {
        #[test]
        fn records_when_of_any_value_then_round_trip(records in proptest::collection::vec(any_record(), 0..8)) {
            let mut bytes = Vec::new();
            for record in &records {
                record.encode(&mut bytes);
            }
            prop_assert_eq!(bytes.len(), records.iter().map(Record::encoded_len).sum::<usize>());
            prop_assert_eq!(Record::parse_all(&bytes, u32::try_from(records.len()).unwrap()).unwrap(), records);
        }

        #[test]
        fn records_when_bytes_change_then_no_panic(
            record in any_record(), at: proptest::sample::Index, value: u8, count in 0u32..3
        ) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _ = Record::parse_all(&bytes, count);
        }

        #[test]
        fn records_when_random_bytes_then_no_panic(bytes: Vec<u8>, kind in 0u8..6, count: u32) {
            let _ = Record::parse_all(&bytes, count);
            let mut bytes = bytes;
            if let [first, version, ..] = bytes.as_mut_slice() {
                (*first, *version) = (kind, 1);
            }
            let _ = Record::parse_all(&bytes, 1);
        }
    }
}
