//! What is kept per shard: the replica's numbers with its table of done operations, and two bitmaps over its chunks.
//!
//! ```text
//! record   0  version     u8, 1
//!          1  flags       u8: bit 0 suspect
//!          2  reserved    u16
//!          4  rows        u32
//!          8  epoch       u64
//!         16  term        u64
//!         24  last        term u64, sequence u64
//!         40  committed   u64
//!         48  rows, each  incarnation u64, acked_below u64, lane u32, done u32, and for each operation done:
//!                         sequence u64, part u32, outcome u8, reserved 3 bytes
//!          .  crc         u32 of key and value
//!
//! bitmaps  0  version     u8, 1
//!          1  reserved    3 bytes
//!          4  slots, touched, each
//!                         runs u16, and as many u16: lengths of runs of equal bits, beginning with zeros;
//!                         or 0 and the 2048 bytes themselves
//!          .  crc         u32 of key and value
//! ```
//!
//! Most shards are nearly empty or nearly full, so runs take a few bytes; a bitmap of more than 1023 runs is stored as
//! it is. There is one way to write each bitmap and the parser insists on it. A list's length is checked against the
//! bytes that are left before anything is allocated for it: a value can never ask for more memory than a small
//! multiple of its own length.

use holdfast_proto::ids::Incarnation;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::codec::{Input, put, seal, unseal};
use crate::format::error::FormatError;
use crate::format::keys;
use crate::ids::{CHUNKS_PER_SHARD, ShardId, Version};

const RECORD: &str = "a shard's record";
const BITMAPS: &str = "a shard's bitmaps";
const VERSION: u8 = 1;
const SUSPECT: u8 = 1;

/// Words of a bitmap with one bit per chunk of a shard.
pub const BITMAP_WORDS: usize = CHUNKS_PER_SHARD as usize / 64;

/// More runs than this take no less room than the bits themselves.
const MAX_RUNS: usize = BITMAP_WORDS * 8 / 2 - 1;

/// The state of a replica of one shard, without its data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardRecord {
    /// Newest configuration known.
    pub epoch: u64,
    /// Newest reign known.
    pub term: u64,
    /// Of the last change applied.
    pub last: Version,
    /// Sequence up to which everything is known to be committed.
    pub committed: u64,
    /// Something of it was found corrupt: it must be copied anew.
    pub suspect: bool,
    /// Operations done, so that a retry is answered and not run.
    pub dedupe: Vec<DedupeRow>,
}

/// The operations of one thread of one gateway's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupeRow {
    /// The gateway's life.
    pub incarnation: Incarnation,
    /// The thread.
    pub lane: u32,
    /// Operations with a lower sequence are refused.
    pub acked_below: u64,
    /// What was done, in any order.
    pub done: Vec<DoneOperation>,
}

/// An operation that took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DoneOperation {
    /// Its sequence in the lane.
    pub sequence: u64,
    /// Its part.
    pub part: u32,
    /// What was answered; the meaning is the replica's.
    pub outcome: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RecordLayout {
    flags: u8,
    reserved: U16,
    rows: U32,
    epoch: U64,
    term: U64,
    last_term: U64,
    last_sequence: U64,
    committed: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RowLayout {
    incarnation: U64,
    acked_below: U64,
    lane: U32,
    done: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct DoneLayout {
    sequence: U64,
    part: U32,
    outcome: u8,
    reserved: [u8; 3],
}

const _: () = {
    assert!(size_of::<RecordLayout>() == 47);
    assert!(size_of::<RowLayout>() == 24);
    assert!(size_of::<DoneLayout>() == 16);
};

impl ShardRecord {
    /// The value for [`keys::shard`].
    pub fn encode(&self, shard: ShardId) -> Vec<u8> {
        let layout = RecordLayout {
            flags: if self.suspect { SUSPECT } else { 0 },
            reserved: 0.into(),
            rows: length(&self.dedupe),
            epoch: self.epoch.into(),
            term: self.term.into(),
            last_term: self.last.term.into(),
            last_sequence: self.last.sequence.into(),
            committed: self.committed.into(),
        };
        let mut value = vec![VERSION];
        put(&mut value, &layout);
        for row in &self.dedupe {
            row.encode(&mut value);
        }
        seal(&keys::shard(shard), &mut value);
        value
    }

    /// The value of [`keys::shard`].
    pub fn parse(shard: ShardId, value: &[u8]) -> Result<Self, FormatError> {
        let mut input = unseal(RECORD, VERSION, &keys::shard(shard), value)?;
        let layout: RecordLayout = input.take()?;
        input.demand(layout.flags & !SUSPECT == 0, "a flag is not known")?;
        let rows = input.count(layout.rows.get(), size_of::<RowLayout>())?;
        let dedupe = (0..rows).map(|_| DedupeRow::parse(&mut input)).collect::<Result<Vec<_>, _>>()?;
        input.end()?;
        Ok(Self {
            epoch: layout.epoch.get(),
            term: layout.term.get(),
            last: Version { term: layout.last_term.get(), sequence: layout.last_sequence.get() },
            committed: layout.committed.get(),
            suspect: layout.flags & SUSPECT != 0,
            dedupe,
        })
    }
}

impl DedupeRow {
    fn encode(&self, out: &mut Vec<u8>) {
        let layout = RowLayout {
            incarnation: self.incarnation.0.into(),
            acked_below: self.acked_below.into(),
            lane: self.lane.into(),
            done: length(&self.done),
        };
        put(out, &layout);
        for done in &self.done {
            let layout = DoneLayout {
                sequence: done.sequence.into(),
                part: done.part.into(),
                outcome: done.outcome,
                reserved: [0; 3],
            };
            put(out, &layout);
        }
    }

    fn parse(input: &mut Input<'_>) -> Result<Self, FormatError> {
        let layout: RowLayout = input.take()?;
        let count = input.count(layout.done.get(), size_of::<DoneLayout>())?;
        let mut done = Vec::with_capacity(count);
        for _ in 0..count {
            let layout: DoneLayout = input.take()?;
            done.push(DoneOperation {
                sequence: layout.sequence.get(),
                part: layout.part.get(),
                outcome: layout.outcome,
            });
        }
        Ok(Self {
            incarnation: Incarnation(layout.incarnation.get()),
            lane: layout.lane.get(),
            acked_below: layout.acked_below.get(),
            done,
        })
    }
}

/// A list's length as it is stored.
fn length<T>(list: &[T]) -> U32 {
    // A list in memory of four billion rows would be a bug far away from here.
    assert!(list.len() <= u32::MAX as usize, "a list too long to be stored");
    #[allow(clippy::cast_possible_truncation, reason = "asserted above")]
    U32::new(list.len() as u32)
}

/// One bit per chunk of a shard, bit n % 64 of word n / 64.
pub type Bitmap = Box<[u64; BITMAP_WORDS]>;

/// Two bitmaps over a shard's chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardBitmaps {
    /// The chunk has a slot.
    pub slots: Bitmap,
    /// The chunk holds data since its last whole hole.
    pub touched: Bitmap,
}

impl Default for ShardBitmaps {
    fn default() -> Self {
        Self { slots: Box::new([0; BITMAP_WORDS]), touched: Box::new([0; BITMAP_WORDS]) }
    }
}

impl ShardBitmaps {
    /// The value for [`keys::bitmaps`].
    pub fn encode(&self, shard: ShardId) -> Vec<u8> {
        let mut value = vec![VERSION, 0, 0, 0];
        put_bitmap(&mut value, &self.slots);
        put_bitmap(&mut value, &self.touched);
        seal(&keys::bitmaps(shard), &mut value);
        value
    }

    /// The value of [`keys::bitmaps`].
    pub fn parse(shard: ShardId, value: &[u8]) -> Result<Self, FormatError> {
        let mut input = unseal(BITMAPS, VERSION, &keys::bitmaps(shard), value)?;
        let _reserved: [u8; 3] = input.take()?;
        let bitmaps = Self { slots: take_bitmap(&mut input)?, touched: take_bitmap(&mut input)? };
        input.end()?;
        Ok(bitmaps)
    }
}

fn put_bitmap(out: &mut Vec<u8>, bitmap: &Bitmap) {
    let runs = runs(bitmap);
    if runs.len() > MAX_RUNS {
        put(out, &U16::ZERO);
        bitmap.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    } else {
        #[allow(clippy::cast_possible_truncation, reason = "at most MAX_RUNS, which is below 1024")]
        put(out, &U16::new(runs.len() as u16));
        runs.iter().for_each(|run| out.extend_from_slice(&run.to_le_bytes()));
    }
}

/// Lengths of the runs of equal bits, beginning with zeros; only the first may be 0.
fn runs(bitmap: &Bitmap) -> Vec<u16> {
    let (mut runs, mut ones, mut from) = (Vec::new(), false, 0);
    while from < CHUNKS_PER_SHARD {
        let len = run_len(bitmap, from, ones);
        runs.push(len);
        ones = !ones;
        from += len;
    }
    runs
}

/// How many bits from `from` on are equal to `ones`. A word at a time, as a shard has 16,384 bits.
fn run_len(bitmap: &Bitmap, from: u16, ones: bool) -> u16 {
    let mut at = from;
    while at < CHUNKS_PER_SHARD {
        let word = bitmap[usize::from(at / 64)];
        let differing = (if ones { !word } else { word }) >> (at % 64);
        let in_word = 64 - at % 64;
        #[allow(clippy::cast_possible_truncation, reason = "at most 64")]
        let equal = (differing.trailing_zeros() as u16).min(in_word);
        at += equal;
        if equal < in_word {
            break;
        }
    }
    at - from
}

fn take_bitmap(input: &mut Input<'_>) -> Result<Bitmap, FormatError> {
    let count = usize::from(input.take::<U16>()?.get());
    let mut bitmap: Bitmap = Box::new([0; BITMAP_WORDS]);
    if count == 0 {
        for word in bitmap.iter_mut() {
            *word = u64::from_le_bytes(input.take()?);
        }
        input.demand(runs(&bitmap).len() > MAX_RUNS, "a bitmap is not written the short way")?;
        return Ok(bitmap);
    }
    input.demand(count <= MAX_RUNS, "a bitmap has too many runs")?;
    let (mut at, mut ones) = (0, false);
    for run in 0..count {
        let len = input.take::<U16>()?.get();
        input.demand(len > 0 || run == 0, "a run of a bitmap is empty")?;
        input.demand(len <= CHUNKS_PER_SHARD - at, "the runs of a bitmap are longer than a shard")?;
        if ones {
            set_bits(&mut bitmap, at, len);
        }
        at += len;
        ones = !ones;
    }
    input.demand(at == CHUNKS_PER_SHARD, "the runs of a bitmap are shorter than a shard")?;
    Ok(bitmap)
}

fn set_bits(bitmap: &mut Bitmap, from: u16, len: u16) {
    for bit in from..from + len {
        bitmap[usize::from(bit / 64)] |= 1 << (bit % 64);
    }
}
