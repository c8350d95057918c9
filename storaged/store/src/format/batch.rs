//! Batches: what the journal is made of. One batch is what one sync makes durable.
//!
//! ```text
//! [header 96 B | records | zeros to a multiple of 4096][payload blocks, 4 KiB each]
//!
//!  0  magic           "HFBATCH\0"
//!  8  version         u32, 1
//! 12  record_count    u32
//! 16  uuid            16 bytes
//! 32  number          u64, from 1, one more than the batch before
//! 40  position        u64, absolute, bytes
//! 48  records_len     u32, bytes
//! 52  payload_blocks  u32
//! 56  records_crc     u32, crc32c of everything between header and payload, zeros included
//! 60  previous_crc    u32, the `crc` of the batch before; 0 in the first
//! 64  reserved        28 bytes, zero
//! 92  crc             u32, crc32c of the journal's key and the 92 bytes before
//! ```
//!
//! The header is within the first sector, so that a torn write leaves it whole or not at all. It covers the records by
//! their crc, they cover the payload by the crc of each block, which was made in the gateway: nothing is summed twice.
//! The `crc` in turn covers all that, so that `previous_crc` chains whole batches. It begins with the key of the
//! superblock, which no guest can know: blocks that a guest made up never pass for a header. Headers that it *copied*
//! (a backup of this very disk on a volume of this disk) have lower numbers than the batch that holds them, and the
//! reader never looks for lower ones.
//!
//! `position` tells the laps of the ring apart and is checked against the place where the header was found.
//!
//! Magic, version, uuid, number, position and crc stay where they are in every later version.

use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::codec::{CRC_LEN, check_version};
use crate::format::error::FormatError;
use crate::format::record::{RECORD_HEAD_LEN, Record};
use crate::format::superblock::Superblock;
use crate::ids::DiskUuid;

/// Bytes of a header; the records follow at once.
pub const BATCH_HEADER_LEN: usize = 96;

/// Most bytes of a batch, head and payload: far above what the engine makes, and a bound for the memory of a scan.
pub const MAX_BATCH_BYTES: u64 = 64 << 20;

/// Most records of a batch: a record in memory takes up to 400 bytes, and is 8 at least on disk.
pub const MAX_BATCH_RECORDS: u32 = 1 << 18;

const WHAT: &str = "a journal batch";
const MAGIC: [u8; 8] = *b"HFBATCH\0";
const VERSION: u32 = 1;
const CRC_AT: usize = BATCH_HEADER_LEN - CRC_LEN;

/// What marks the headers of one disk's journal: computed once, used for each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainKey {
    uuid: DiskUuid,
    /// crc32c of the key, to go on from.
    key_crc: u32,
}

impl ChainKey {
    /// The one of a disk.
    pub fn of(superblock: &Superblock) -> Self {
        Self { uuid: superblock.uuid, key_crc: crc32c::crc32c(&superblock.journal_key) }
    }

    fn crc(&self, header: &[u8]) -> u32 {
        crc32c::crc32c_append(self.key_crc, header)
    }
}

/// The head of a batch, whole and of this journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The disk.
    pub uuid: DiskUuid,
    /// Number of the batch, from 1.
    pub number: u64,
    /// Absolute position of the header in the journal, bytes, a multiple of 4096.
    pub position: u64,
    /// `crc` of the batch before; 0 in the first.
    pub previous_crc: u32,
    /// Bytes of the records, without the zeros behind them.
    pub records_len: u32,
    /// How many records.
    pub record_count: u32,
    /// How many blocks of payload.
    pub payload_blocks: u32,
    /// crc32c of everything between header and payload.
    pub records_crc: u32,
    /// crc32c of the journal's key and this header; what the next batch carries as `previous_crc`.
    pub crc: u32,
}

/// Why there is no header in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The block is something else: payload, another disk's, torn, or never written.
    Absent,
    /// The checksum with the secret key is right, so that this journal's writer made it; but it is of a newer version,
    /// or says what cannot be.
    Format(FormatError),
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Layout {
    magic: [u8; 8],
    version: U32,
    record_count: U32,
    uuid: [u8; 16],
    number: U64,
    position: U64,
    records_len: U32,
    payload_blocks: U32,
    records_crc: U32,
    previous_crc: U32,
    reserved: [u8; 28],
    crc: U32,
}

const _: () = assert!(size_of::<Layout>() == BATCH_HEADER_LEN);

impl BatchHeader {
    /// The header at the beginning of a block; what follows it is not looked at.
    pub fn parse(key: &ChainKey, block: &[u8]) -> Result<Self, HeaderError> {
        let (layout, _) = Layout::read_from_prefix(block).map_err(|_| HeaderError::Absent)?;
        // The magic alone sorts out nearly every block, before a crc is made.
        if layout.magic != MAGIC || layout.uuid != key.uuid.0 {
            return Err(HeaderError::Absent);
        }
        if key.crc(&block[..CRC_AT]) != layout.crc.get() {
            return Err(HeaderError::Absent);
        }
        check_version(WHAT, layout.version.get(), VERSION).map_err(HeaderError::Format)?;
        let header = Self {
            uuid: key.uuid,
            number: layout.number.get(),
            position: layout.position.get(),
            previous_crc: layout.previous_crc.get(),
            records_len: layout.records_len.get(),
            record_count: layout.record_count.get(),
            payload_blocks: layout.payload_blocks.get(),
            records_crc: layout.records_crc.get(),
            crc: layout.crc.get(),
        };
        header.check().map_err(HeaderError::Format)?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FormatError> {
        let corrupt = |detail| Err(FormatError::Corrupt { what: WHAT, detail });
        if self.number == 0 {
            return corrupt("batches are counted from 1");
        }
        if !self.position.is_multiple_of(BLOCK_BYTES) || self.position.checked_add(self.total_len()).is_none() {
            return corrupt("its position is not a multiple of 4096, or beyond all numbers");
        }
        if self.total_len() > MAX_BATCH_BYTES || self.record_count > MAX_BATCH_RECORDS {
            return corrupt("it is longer than a batch can be");
        }
        if u64::from(self.record_count) * RECORD_HEAD_LEN as u64 > u64::from(self.records_len) {
            return corrupt("it has more records than its length can hold");
        }
        Ok(())
    }

    /// Bytes of header, records and zeros.
    pub fn head_len(&self) -> u64 {
        head_len(u64::from(self.records_len))
    }

    /// Bytes of payload.
    pub fn payload_len(&self) -> u64 {
        u64::from(self.payload_blocks) * BLOCK_BYTES
    }

    /// Bytes of the whole batch.
    pub fn total_len(&self) -> u64 {
        self.head_len() + self.payload_len()
    }

    /// Absolute position of the next batch.
    pub fn end(&self) -> u64 {
        // A parsed header's sum was checked; saturating is for one made by hand.
        self.position.saturating_add(self.total_len())
    }

    fn encode(&mut self, key: &ChainKey, out: &mut [u8]) {
        let mut layout = Layout {
            magic: MAGIC,
            version: VERSION.into(),
            record_count: self.record_count.into(),
            uuid: self.uuid.0,
            number: self.number.into(),
            position: self.position.into(),
            records_len: self.records_len.into(),
            payload_blocks: self.payload_blocks.into(),
            records_crc: self.records_crc.into(),
            previous_crc: self.previous_crc.into(),
            reserved: [0; 28],
            crc: 0.into(),
        };
        self.crc = key.crc(&layout.as_bytes()[..CRC_AT]);
        layout.crc = self.crc.into();
        out.copy_from_slice(layout.as_bytes());
    }
}

/// Bytes of header, records and zeros.
fn head_len(records_len: u64) -> u64 {
    (BATCH_HEADER_LEN as u64 + records_len).next_multiple_of(BLOCK_BYTES)
}

/// Puts a batch together, record by record. It holds the head only; the caller keeps the payload's blocks, in the
/// order of the records, and writes them behind the head.
#[derive(Debug)]
pub struct BatchBuilder {
    key: ChainKey,
    head: Vec<u8>,
    record_count: u32,
    payload_blocks: u32,
}

impl BatchBuilder {
    /// An empty batch; finished like that, it is a seal.
    pub fn new(key: ChainKey) -> Self {
        let mut head = Vec::with_capacity(BLOCK_LEN);
        head.resize(BATCH_HEADER_LEN, 0);
        Self { key, head, record_count: 0, payload_blocks: 0 }
    }

    /// Appends a record.
    pub fn push(&mut self, record: &Record) {
        record.encode(&mut self.head);
        self.record_count += 1;
        self.payload_blocks += record.payload_blocks();
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// How many records.
    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Bytes of the records.
    pub fn records_len(&self) -> usize {
        self.head.len() - BATCH_HEADER_LEN
    }

    /// Blocks of payload that the records name.
    pub fn payload_blocks(&self) -> u32 {
        self.payload_blocks
    }

    /// Bytes that the batch takes in the journal as it is, head and payload.
    pub fn total_len(&self) -> u64 {
        head_len(self.records_len() as u64) + u64::from(self.payload_blocks) * BLOCK_BYTES
    }

    /// Bytes that it would take in the journal with one more record.
    pub fn len_after(&self, record: &Record) -> u64 {
        let blocks = u64::from(self.payload_blocks) + u64::from(record.payload_blocks());
        head_len((self.records_len() + record.encoded_len()) as u64) + blocks * BLOCK_BYTES
    }

    /// The head, padded to a multiple of 4096, and the crc for the next batch to carry.
    ///
    /// A batch longer than [`MAX_BATCH_BYTES`] or of more than [`MAX_BATCH_RECORDS`] could not be read back and is a
    /// bug of the caller.
    pub fn finish(mut self, number: u64, position: u64, previous_crc: u32) -> (Vec<u8>, u32) {
        let total_len = self.total_len();
        assert!(total_len <= MAX_BATCH_BYTES && self.record_count <= MAX_BATCH_RECORDS, "a batch that is too long");
        #[allow(clippy::cast_possible_truncation, reason = "at most MAX_BATCH_BYTES")]
        let records_len = self.records_len() as u32;
        self.head.resize(self.head.len().next_multiple_of(BLOCK_LEN), 0);
        let (header_bytes, records) = self.head.split_at_mut(BATCH_HEADER_LEN);
        let mut header = BatchHeader {
            uuid: self.key.uuid,
            number,
            position,
            previous_crc,
            records_len,
            record_count: self.record_count,
            payload_blocks: self.payload_blocks,
            records_crc: crc32c::crc32c(records),
            crc: 0,
        };
        assert_eq!(header.check(), Ok(()), "a header that could not be read back");
        header.encode(&self.key, header_bytes);
        (self.head, header.crc)
    }
}

/// An empty batch. It changes nothing; its presence proves that the batch before it was whole.
pub fn seal(key: ChainKey, number: u64, position: u64, previous_crc: u32) -> (Vec<u8>, u32) {
    BatchBuilder::new(key).finish(number, position, previous_crc)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::samples::{any_record, crc32c_bitwise, hex, sample_records, sample_superblock};

    /// Made as the golden bytes in `format/tests.rs` were.
    const HEADER: &str = "
        48464241544348000100000006000000101112131415161718191a1b1c1d1e1f2a0000000000000000a0000000000000
        9c010000030000004c4ff3ddefbeadde000000000000000000000000000000000000000000000000000000004b72e34a";
    const SEAL: &str = "
        48464241544348000100000000000000101112131415161718191a1b1c1d1e1f01000000000000000000000000000000
        0000000000000000740691ea000000000000000000000000000000000000000000000000000000000000000013e4977f";

    fn key() -> ChainKey {
        ChainKey::of(&sample_superblock())
    }

    fn resealed(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = hex(HEADER);
        change(&mut bytes);
        let crc = crc32c_bitwise(&[&sample_superblock().journal_key, &bytes[..92]].concat());
        bytes[92..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn batch_when_finished_then_the_golden_bytes() {
        let mut builder = BatchBuilder::new(key());
        let mut records_len = 0;
        for record in sample_records() {
            let len_after = builder.len_after(&record);
            builder.push(&record);
            records_len += record.encoded_len();
            assert_eq!((builder.total_len(), builder.records_len()), (len_after, records_len));
        }
        let (head, crc) = builder.finish(42, 40_960, 0xdead_beef);
        assert_eq!(head[..BATCH_HEADER_LEN], hex(HEADER));
        assert_eq!((head.len(), crc), (4096, 0x4ae3_724b));
        let records = &head[BATCH_HEADER_LEN..BATCH_HEADER_LEN + records_len];
        assert_eq!(Record::parse_all(records, 6).unwrap(), sample_records());
        assert!(head[BATCH_HEADER_LEN + records_len..].iter().all(|byte| *byte == 0));

        let header = BatchHeader::parse(&key(), &head).unwrap();
        assert_eq!((header.number, header.position, header.previous_crc), (42, 40_960, 0xdead_beef));
        assert_eq!((header.record_count, header.records_len, header.payload_blocks), (6, 412, 3));
        assert_eq!((header.total_len(), header.end(), header.crc), (4 * 4096, 40_960 + 4 * 4096, crc));
    }

    #[test]
    fn seal_when_made_then_the_golden_bytes() {
        let (head, crc) = seal(key(), 1, 0, 0);
        let mut golden = hex(SEAL);
        golden.resize(4096, 0);
        assert_eq!((head, crc), (golden, 0x7f97_e413));
    }

    #[test]
    fn header_when_cut_or_changed_then_absent() {
        let golden = hex(HEADER);
        for len in 0..golden.len() {
            assert_eq!(BatchHeader::parse(&key(), &golden[..len]), Err(HeaderError::Absent));
        }
        for bit in 0..golden.len() * 8 {
            let mut changed = golden.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::parse(&key(), &changed), Err(HeaderError::Absent), "bit {bit}");
        }
    }

    #[test]
    fn header_when_of_another_disk_or_key_then_absent() {
        let other_key = Superblock { journal_key: [0; 16], ..sample_superblock() };
        let other_disk = Superblock { uuid: DiskUuid([0; 16]), ..sample_superblock() };
        for superblock in [other_key, other_disk] {
            let parsed = BatchHeader::parse(&ChainKey::of(&superblock), &hex(HEADER));
            assert_eq!(parsed, Err(HeaderError::Absent));
        }
    }

    #[test]
    fn header_when_newer_or_lying_then_an_error_of_its_own() {
        let parse = |at: usize, bytes: &[u8]| {
            let changed = resealed(|header| header[at..at + bytes.len()].copy_from_slice(bytes));
            BatchHeader::parse(&key(), &changed)
        };
        let newer = FormatError::Newer { what: WHAT, version: 2, known: 1 };
        assert_eq!(parse(8, &[2]), Err(HeaderError::Format(newer)));
        for (at, bytes) in [
            (8, &[0; 4][..]),                                  // version 0
            (12, &[0xff; 4]),                                  // more records than can be
            (12, &[60]),                                       // more records than their length holds
            (32, &[0; 8]),                                     // number 0
            (40, &[1]),                                        // not aligned
            (40, &[0xff; 8]),                                  // beyond all numbers
            (41, &[0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), // its end is
            (48, &[0xff; 4]),                                  // 4 GiB of records
            (52, &[0xff; 4]),                                  // 16 TiB of payload
        ] {
            let parsed = parse(at, bytes);
            assert!(matches!(parsed, Err(HeaderError::Format(FormatError::Corrupt { .. }))), "{bytes:?} at {at}");
        }
    }

    proptest! {
        #[test]
        fn batch_when_of_any_records_then_round_trips(
            records in proptest::collection::vec(any_record(), 0..40),
            number in 1u64.., block in 0u64..1 << 50, previous_crc: u32,
        ) {
            let mut builder = BatchBuilder::new(key());
            records.iter().for_each(|record| builder.push(record));
            let total_len = builder.total_len();
            let (head, crc) = builder.finish(number, block * 4096, previous_crc);
            let header = BatchHeader::parse(&key(), &head).unwrap();
            prop_assert_eq!((header.number, header.position), (number, block * 4096));
            prop_assert_eq!((header.previous_crc, header.crc), (previous_crc, crc));
            prop_assert_eq!((header.head_len(), header.total_len()), (head.len() as u64, total_len));
            prop_assert_eq!(header.records_crc, crc32c_bitwise(&head[BATCH_HEADER_LEN..]));
            let end = BATCH_HEADER_LEN + header.records_len as usize;
            prop_assert_eq!(Record::parse_all(&head[BATCH_HEADER_LEN..end], header.record_count).unwrap(), records);
        }

        #[test]
        fn header_when_random_fields_behind_a_good_crc_then_no_panic(fields: [u8; 80]) {
            let bytes = resealed(|bytes| {
                bytes[12..16].copy_from_slice(&fields[..4]);
                bytes[32..92].copy_from_slice(&fields[4..64]);
            });
            if let Ok(header) = BatchHeader::parse(&key(), &bytes) {
                prop_assert!(header.total_len() <= MAX_BATCH_BYTES && header.end() > header.position);
            }
        }
    }
}
