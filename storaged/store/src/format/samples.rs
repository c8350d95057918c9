//! For tests: a second way to make a crc32c, golden bytes, and samples and strategies of structures.

use holdfast_proto::ids::{Incarnation, OpId, ShardIndex, VolumeId};
use proptest::prelude::*;
use smallvec::smallvec;

use crate::format::{MutationRecord, OperationRecord, Part, Record, StateRecord, Superblock};
use crate::ids::{BLOCKS_PER_SHARD, CHUNKS_PER_SHARD, ChunkIndex, DiskUuid, ShardId, Slot, Version};

/// crc32c (Castagnoli, reflected polynomial 82f63b78) bit by bit, by the definition and not by the crate in use.
pub(crate) fn crc32c_bitwise(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 })
    });
    !crc
}

/// Bytes from hexadecimal digits; blanks and line ends are left out.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}

pub(crate) fn sample_superblock() -> Superblock {
    let uuid = DiskUuid(std::array::from_fn(|n| u8::try_from(n + 16).unwrap()));
    let key = std::array::from_fn(|n| u8::try_from(n + 32).unwrap());
    Superblock::new(uuid, 7, key, 1 << 20).unwrap()
}

pub(crate) fn sample_shard() -> ShardId {
    ShardId { volume: VolumeId(3), index: ShardIndex(5) }
}

pub(crate) fn chunk(index: u16) -> ChunkIndex {
    ChunkIndex::new(index).unwrap()
}

/// One record of each kind, and the largest numbers.
pub(crate) fn sample_records() -> Vec<Record> {
    let shard = sample_shard();
    let id = OpId { incarnation: Incarnation(11), lane: 14, sequence: 12, part: 15 };
    let parts = smallvec![
        Part::Blocks { chunk: chunk(17), first: 14, fresh: None, crcs: smallvec![0x1111_1111, 0x2222_2222] },
        Part::Blocks { chunk: chunk(16_383), first: 0, fresh: Some(Slot(77)), crcs: smallvec![0x3333_3333] },
        Part::Chunk { chunk: chunk(18), slot: Slot(78), crcs: std::array::from_fn(|n| u32::try_from(n).unwrap() + 1) },
        Part::Hole { first_block: BLOCKS_PER_SHARD - 1, blocks: 1 },
    ];
    vec![
        Record::Mutation(MutationRecord {
            shard,
            at: Version { term: 9, sequence: 100 },
            chunk_version: Version { term: 8, sequence: 70 },
            committed: 99,
            operation: Some(OperationRecord { id, acked_below: 13, outcome: 16 }),
            parts,
        }),
        Record::Mutation(MutationRecord {
            shard,
            at: Version { term: 9, sequence: 101 },
            chunk_version: Version { term: 9, sequence: 101 },
            committed: 99,
            operation: None,
            parts: smallvec![],
        }),
        Record::State(StateRecord { shard, epoch: 21, term: 22, committed: 23, suspect: true }),
        Record::Stale { shard, first: chunk(16_000), count: 384, stale: true },
        Record::Stale { shard, first: chunk(0), count: 1, stale: false },
        Record::Drop { shard },
    ]
}

pub(crate) fn any_shard() -> impl Strategy<Value = ShardId> {
    (any::<u64>(), any::<u32>())
        .prop_map(|(volume, index)| ShardId { volume: VolumeId(volume), index: ShardIndex(index) })
}

pub(crate) fn any_chunk() -> impl Strategy<Value = ChunkIndex> {
    (0..CHUNKS_PER_SHARD).prop_map(chunk)
}

fn any_version() -> impl Strategy<Value = Version> {
    any::<(u64, u64)>().prop_map(|(term, sequence)| Version { term, sequence })
}

fn any_operation() -> impl Strategy<Value = OperationRecord> {
    any::<(u64, u32, u64, u32, u64, u8)>().prop_map(|(incarnation, lane, sequence, part, acked_below, outcome)| {
        let id = OpId { incarnation: Incarnation(incarnation), lane, sequence, part };
        OperationRecord { id, acked_below, outcome }
    })
}

fn any_part() -> impl Strategy<Value = Part> {
    let blocks = (any_chunk(), 0u8..16, any::<Option<u32>>(), proptest::collection::vec(any::<u32>(), 1..=16));
    prop_oneof![
        blocks.prop_map(|(chunk, first, fresh, mut crcs)| {
            crcs.truncate(usize::from(16 - first));
            Part::Blocks { chunk, first, fresh: fresh.map(Slot), crcs: crcs.into() }
        }),
        (any_chunk(), any::<u32>(), any::<[u32; 16]>()).prop_map(|(chunk, slot, crcs)| Part::Chunk {
            chunk,
            slot: Slot(slot),
            crcs
        }),
        (0..BLOCKS_PER_SHARD, any::<u32>())
            .prop_map(|(first_block, n)| Part::Hole { first_block, blocks: 1 + n % (BLOCKS_PER_SHARD - first_block) }),
    ]
}

pub(crate) fn any_record() -> impl Strategy<Value = Record> {
    let mutation = (
        any_shard(),
        any_version(),
        any_version(),
        any::<u64>(),
        proptest::option::of(any_operation()),
        proptest::collection::vec(any_part(), 0..5),
    );
    prop_oneof![
        mutation.prop_map(|(shard, at, chunk_version, committed, operation, parts)| {
            Record::Mutation(MutationRecord { shard, at, chunk_version, committed, operation, parts: parts.into() })
        }),
        (any_shard(), any::<(u64, u64, u64, bool)>()).prop_map(|(shard, (epoch, term, committed, suspect))| {
            Record::State(StateRecord { shard, epoch, term, committed, suspect })
        }),
        (any_shard(), any_chunk(), any::<u16>(), any::<bool>()).prop_map(|(shard, first, n, stale)| Record::Stale {
            shard,
            first,
            count: 1 + n % (CHUNKS_PER_SHARD - first.get()),
            stale
        }),
        any_shard().prop_map(|shard| Record::Drop { shard }),
    ]
}

/// Whatever is changed in a sealed value, it is refused: cut anywhere, a byte more, or any bit turned.
pub(crate) fn assert_sealed<T: std::fmt::Debug>(value: &[u8], parse: impl Fn(&[u8]) -> Option<T>) {
    assert!(parse(value).is_some());
    for len in 0..value.len() {
        assert!(parse(&value[..len]).is_none(), "cut to {len}");
    }
    assert!(parse(&[value, &[0]].concat()).is_none());
    for bit in 0..value.len() * 8 {
        let mut changed = value.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(&changed).is_none(), "bit {bit}");
    }
}

/// A sealed value with other contents and a checksum that fits, as a bug would write it.
pub(crate) fn reseal(key: &[u8], value: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = value[..value.len() - 4].to_vec();
    change(&mut body);
    let crc = crc32c_bitwise(&[key, &body].concat());
    body.extend_from_slice(&crc.to_le_bytes());
    body
}

#[test]
fn crc32c_when_of_the_check_string_then_the_published_value() {
    // RFC 3720, appendix B.4, and the catalogue of parametrised CRC algorithms.
    assert_eq!(crc32c_bitwise(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c_bitwise(&[0; 32]), 0x8a91_36aa);
}
