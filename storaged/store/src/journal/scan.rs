//! Reads the chain of batches back, and tells a torn tail from corruption.
//!
//! What it rests on: batch N+1 is written only after the sync of batch N has returned, so a header of N+1, wherever
//! it is found, proves that N was durable. Then a batch that is not whole is
//!
//! - *corrupt* (hazard C4) if any header of a later batch is in the ring: it was durable and has changed since;
//! - the *torn tail* if there is none: it was being written when the power went, was never acknowledged, and is
//!   dropped.
//!
//! The ring is read exactly once: the chain from where replay begins, and after its end the rest of the lap for such a
//! header. A header counts if its crc with the journal's secret key is right, its position belongs to the place where
//! it was found, and its number is not below the one that is missing; what guests stored cannot pass that, see
//! `format/batch.rs`. Former laps have lower numbers.
//!
//! The last batch is whole only if the slots that it names are, and only the caller can read those. So a batch is
//! given to the caller after the place of its successor was looked at, with [`Scanned::proven`]. A proven batch was
//! durable, with its slots. One that is not may be refused with [`Verdict::Torn`] and is then the torn tail.
//!
//! What the caller does before it serves anything, in this order:
//!
//! 1. Syncs the device. After a mere kill the last batch may have been read from the page cache and not be on the disk
//!    yet; it must be before a read answers from it, and before a batch behind it is written, which would prove it.
//! 2. After a torn tail, appends a batch (a seal will do) at [`ScanEnd::next`], durably. The remains of a dropped batch
//!    may be nearly whole; a retry that writes the same data to the same places could make them whole, and a second
//!    crash would bring back an operation that a read has meanwhile shown not to have happened. The seal overwrites its
//!    header for good.

use std::io;

use bytes::Bytes;
use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};
use thiserror::Error;

use crate::device::Device;
use crate::format::batch::BATCH_HEADER_LEN;
use crate::format::{BatchHeader, ChainKey, CheckpointRecord, FormatError, HeaderError, Record, Superblock};
use crate::journal::reader::Reader;
use crate::journal::ring::Ring;
use crate::mutants::{Mutant, broken};

/// A border between two batches: where the next one goes and what it is chained to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Absolute position of the next batch, bytes, a multiple of 4096.
    pub position: u64,
    /// Its number.
    pub next_batch: u64,
    /// Crc of the header of the batch before; 0 if there was none.
    pub previous_crc: u32,
}

impl Start {
    /// Of a journal that was never written to.
    pub const FIRST: Self = Self { position: 0, next_batch: 1, previous_crc: 0 };

    /// Behind a batch.
    pub fn after(header: &BatchHeader) -> Self {
        Self {
            position: header.end(),
            // 2^64 batches take longer than any disk lives; saturating, it would be refused as corrupt.
            next_batch: header.number.saturating_add(1),
            previous_crc: header.crc,
        }
    }
}

impl From<&CheckpointRecord> for Start {
    fn from(checkpoint: &CheckpointRecord) -> Self {
        Self { position: checkpoint.position, next_batch: checkpoint.next_batch, previous_crc: checkpoint.previous_crc }
    }
}

/// A good batch: chained, and whole but for the slots it names.
#[derive(Clone, Debug)]
pub struct Scanned {
    /// Its header.
    pub header: BatchHeader,
    /// Its records, in order.
    pub records: Vec<Record>,
    /// Its payload blocks, each checked against its crc. They share memory with what was read around them (up to
    /// 4 MiB); a caller that keeps few of them for long had better copy.
    pub payload: Bytes,
    /// Its successor's header is there: it was durable, with all its slots.
    pub proven: bool,
}

impl Scanned {
    /// Where it begins.
    pub fn start(&self) -> Start {
        let BatchHeader { position, number, previous_crc, .. } = self.header;
        Start { position, next_batch: number, previous_crc }
    }
}

/// What the caller says about a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts.
    Accept,
    /// A slot that it names is not whole: it is the torn tail. Of a batch that is proven that is corruption.
    Torn,
}

/// How the journal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing behind the last batch.
    Clean,
    /// Remains of a batch that was never durable.
    Torn {
        /// Where it began; the same as the position of [`ScanEnd::next`].
        position: u64,
    },
}

/// What a scan has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanEnd {
    /// Where the next batch goes.
    pub next: Start,
    /// How the journal ended.
    pub tail: Tail,
    /// How many batches were accepted.
    pub batches: u64,
}

/// Why a journal cannot be read back.
#[derive(Debug, Error)]
pub enum ScanError {
    /// What was durable is not what was written: the data must come from another copy.
    #[error("journal batch {batch} at position {position} is corrupt: {detail}")]
    Corrupt {
        /// Absolute position of the batch, bytes.
        position: u64,
        /// Its number.
        batch: u64,
        /// What is wrong, and what proves that it is no torn tail.
        detail: String,
    },
    /// A later release wrote it.
    #[error("the journal at position {position} cannot be read: {source}")]
    Newer {
        /// Absolute position of the batch, bytes.
        position: u64,
        /// What was found.
        source: FormatError,
    },
    /// The device could not be read.
    #[error("cannot read the journal at position {position}: {source}")]
    Io {
        /// Absolute position of the batch or block, bytes.
        position: u64,
        /// The system's error.
        source: io::Error,
    },
}

/// Reads the chain from `start` and gives every good batch to `each`, in order.
///
/// An error of `each` ends the scan. Memory: two batches and two reads of 4 MiB.
pub fn scan<E: From<ScanError>>(
    device: &dyn Device,
    superblock: &Superblock,
    start: Start,
    mut each: impl FnMut(Scanned) -> Result<Verdict, E>,
) -> Result<ScanEnd, E> {
    let mut chain = Chain::new(device, superblock, start)?;
    let mut next = start;
    let mut batches = 0;
    let mut held: Option<Scanned> = None;
    loop {
        let header = chain.header(next)?;
        if header.is_none() {
            chain.demand_no_later(next, next.position, "it is not there")?;
            if next == start {
                chain.demand_predecessor(start)?;
            }
        }
        if let Some(mut batch) = held.take() {
            batch.proven = header.is_some();
            let (proven, at) = (batch.proven, batch.start());
            match each(batch)? {
                Verdict::Accept => batches += 1,
                Verdict::Torn if proven => {
                    let detail = "a slot that it names is not whole, yet the batch behind it is there";
                    return Err(corrupt(at, detail).into());
                }
                Verdict::Torn => {
                    return Ok(ScanEnd { next: at, tail: Tail::Torn { position: at.position }, batches });
                }
            }
        }
        let Some(header) = header else {
            return Ok(ScanEnd { next, tail: Tail::Clean, batches });
        };
        match chain.body(&header)? {
            Body::Whole { records, payload } => held = Some(Scanned { header, records, payload, proven: false }),
            Body::Damaged(detail) => {
                chain.demand_no_later(next, next.position + BLOCK_BYTES, detail)?;
                return Ok(ScanEnd { next, tail: Tail::Torn { position: next.position }, batches });
            }
        }
        next = Start::after(&header);
    }
}

/// One lap of the ring, seen as a chain.
struct Chain<'a> {
    key: ChainKey,
    ring: Ring,
    reader: Reader<'a>,
}

/// What is behind a header.
enum Body {
    Whole {
        records: Vec<Record>,
        payload: Bytes,
    },
    /// Not what the checksums say: as a power cut leaves it, or changed later.
    Damaged(&'static str),
}

impl<'a> Chain<'a> {
    fn new(device: &'a dyn Device, superblock: &Superblock, start: Start) -> Result<Self, ScanError> {
        let ring = Ring::of(superblock);
        let end = superblock.journal_offset.checked_add(superblock.journal_len);
        if end.is_none_or(|end| end > device.len_bytes()) {
            return Err(corrupt(start, "the data file ends before the end of the journal"));
        }
        if !start.position.is_multiple_of(BLOCK_BYTES) || start.position.checked_add(ring.len_bytes()).is_none() {
            return Err(corrupt(start, "no batch can begin there"));
        }
        Ok(Self { key: ChainKey::of(superblock), ring, reader: Reader::new(device, ring, start.position) })
    }

    /// The header of the batch that goes to `at`, if it is there.
    fn header(&mut self, at: Start) -> Result<Option<BatchHeader>, ScanError> {
        // The lap is full; what lies here is where replay began.
        if at.position >= self.reader.lap_end() {
            return Ok(None);
        }
        let block = self.reader.some(at.position).map_err(|source| failed(at.position, source))?;
        let Some(header) = self.parse(at.position, at, &block)? else { return Ok(None) };
        if header.number < at.next_batch {
            return Ok(None);
        }
        if header.number > at.next_batch || header.position != at.position {
            return Err(corrupt(at, &is_later(&header)));
        }
        if header.previous_crc != at.previous_crc {
            return Err(corrupt(at, "it does not follow on the batch before it, which must have been another one"));
        }
        if header.end() > self.reader.lap_end() {
            return Err(corrupt(at, "it is longer than the room that the journal had for it"));
        }
        Ok(Some(header))
    }

    /// Records and payload of a batch whose header is good.
    fn body(&mut self, header: &BatchHeader) -> Result<Body, ScanError> {
        let at = Start { position: header.position, next_batch: header.number, previous_crc: header.previous_crc };
        let mut head =
            self.reader.exact(header.position, header.total_len()).map_err(|source| failed(header.position, source))?;
        let head_len = usize::try_from(header.head_len()).map_err(|_| corrupt(at, "it does not fit in memory"))?;
        let payload = head.split_off(head_len);
        if crc32c::crc32c(&head[BATCH_HEADER_LEN..]) != header.records_crc {
            return Ok(Body::Damaged("its records do not match their checksum"));
        }
        // From here on the records are what was written, so what they cannot say is no torn write.
        let records = head.slice(BATCH_HEADER_LEN..BATCH_HEADER_LEN + header.records_len as usize);
        let records = Record::parse_all(&records, header.record_count).map_err(|error| refuse(at, error))?;
        let blocks: u64 = records.iter().map(|record| u64::from(record.payload_blocks())).sum();
        if blocks != u64::from(header.payload_blocks) {
            return Err(corrupt(at, "its records name another number of blocks than its header"));
        }
        let crcs = records.iter().flat_map(Record::payload_crcs);
        let whole = payload.chunks_exact(BLOCK_LEN).zip(crcs).all(|(block, crc)| crc32c::crc32c(block) == crc);
        if !whole {
            return Ok(Body::Damaged("a block of its payload does not match its checksum"));
        }
        Ok(Body::Whole { records, payload })
    }

    /// The batch at `missing` is not there or not whole: then nothing later may be in the ring, of which the part
    /// before `from` was read already.
    fn demand_no_later(&mut self, missing: Start, from: u64, detail: &str) -> Result<(), ScanError> {
        if broken(Mutant::SkipSuccessorCheck) {
            return Ok(());
        }
        let later = self.find(missing, from, |header| header.number >= missing.next_batch)?;
        later.map_or(Ok(()), |later| Err(corrupt(missing, &format!("{detail}, yet {}", is_later(&later)))))
    }

    /// Nothing was appended since the checkpoint, it seems. Then the last batch before it must still be there: else the
    /// data file is older than the catalogue, or lost writes that it had acknowledged.
    fn demand_predecessor(&mut self, start: Start) -> Result<(), ScanError> {
        if start.next_batch <= 1 {
            return Ok(());
        }
        let is_predecessor = |header: &BatchHeader| {
            header.number == start.next_batch - 1 && header.crc == start.previous_crc && header.end() == start.position
        };
        match self.find(start, start.position, is_predecessor)? {
            Some(_) => Ok(()),
            None => Err(corrupt(
                start,
                "neither it nor the batch before the checkpoint is in the journal: the data file is older than the \
                 catalogue, or has lost writes",
            )),
        }
    }

    /// The first header from `from` to the end of the lap that is wanted.
    fn find(
        &mut self,
        missing: Start,
        from: u64,
        wanted: impl Fn(&BatchHeader) -> bool,
    ) -> Result<Option<BatchHeader>, ScanError> {
        let mut position = from;
        while position < self.reader.lap_end() {
            let blocks = self.reader.some(position).map_err(|source| failed(position, source))?;
            for block in blocks.chunks_exact(BLOCK_LEN) {
                if let Some(header) = self.parse(position, missing, block)?.filter(&wanted) {
                    return Ok(Some(header));
                }
                position += BLOCK_BYTES;
            }
        }
        Ok(None)
    }

    /// The header in a block, if it is one that was written to this place. `missing` is the batch to blame if it is
    /// one that cannot be.
    fn parse(&self, position: u64, missing: Start, block: &[u8]) -> Result<Option<BatchHeader>, ScanError> {
        match BatchHeader::parse(&self.key, block) {
            Ok(header) => {
                Ok(Some(header).filter(|header| self.ring.place(header.position) == self.ring.place(position)))
            }
            Err(HeaderError::Absent) => Ok(None),
            Err(HeaderError::Format(error)) => Err(refuse(Start { position, ..missing }, error)),
        }
    }
}

/// How a header shows that the one looked for was durable.
fn is_later(header: &BatchHeader) -> String {
    format!(
        "batch {} is there, of position {}: it was durable, or the catalogue is older than the journal",
        header.number, header.position
    )
}

fn corrupt(at: Start, detail: &str) -> ScanError {
    ScanError::Corrupt { position: at.position, batch: at.next_batch, detail: detail.to_owned() }
}

fn failed(position: u64, source: io::Error) -> ScanError {
    ScanError::Io { position, source }
}

/// What has the right checksum and still cannot be understood.
fn refuse(at: Start, error: FormatError) -> ScanError {
    match error {
        FormatError::Newer { .. } => ScanError::Newer { position: at.position, source: error },
        FormatError::Corrupt { detail, .. } => corrupt(at, detail),
    }
}
