//! Journals of every kind of end, written, damaged and read back.

use std::io;

use bytes::Bytes;
use holdfast_proto::units::BLOCK_LEN;
use proptest::prelude::*;
use smallvec::smallvec;

use crate::device::sim::Random;
use crate::device::{Device, DeviceStatistics, DeviceTraits, DeviceWrite, SimDisk};
use crate::format::batch::seal;
use crate::format::samples::{chunk, hex, sample_shard, sample_superblock};
use crate::format::{BatchBuilder, ChainKey, Crcs, MutationRecord, Part, Record, StateRecord, Superblock};
use crate::ids::Version;
use crate::journal::{Ring, ScanEnd, ScanError, Scanned, Start, Tail, Verdict, scan};

const SECTOR: usize = 512;

/// A data file in memory.
#[derive(Clone)]
struct Image(Vec<u8>);

impl Device for Image {
    fn traits(&self) -> DeviceTraits {
        DeviceTraits { instant: true, direct: false, memory_align: 1 }
    }
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let offset = usize::try_from(offset).unwrap();
        self.0.get(offset..offset + len).map(Bytes::copy_from_slice).ok_or(io::ErrorKind::UnexpectedEof.into())
    }
    fn write(&self, _: &[DeviceWrite]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn write_durably(&self, _: &[DeviceWrite]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn grow(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn statistics(&self) -> DeviceStatistics {
        DeviceStatistics::default()
    }
}

/// A ring of `blocks` blocks behind the superblock.
fn superblock(blocks: u64) -> Superblock {
    Superblock { journal_len: blocks * 4096, ..sample_superblock() }
}

/// A batch as bytes, and what comes behind it.
struct Made {
    at: Start,
    next: Start,
    bytes: Vec<u8>,
}

/// One batch with `payload` blocks of these fill bytes and `states` small records.
fn make(superblock: &Superblock, at: Start, states: u64, payload: &[u8]) -> Made {
    let mut builder = BatchBuilder::new(ChainKey::of(superblock));
    let shard = sample_shard();
    for epoch in 0..states {
        builder.push(&Record::State(StateRecord { shard, epoch, term: 1, committed: 2, suspect: false }));
    }
    let mut data = Vec::new();
    for blocks in payload.chunks(16) {
        let version = Version { term: 9, sequence: at.next_batch };
        let mut crcs = Crcs::new();
        for fill in blocks {
            let block = [*fill; BLOCK_LEN];
            crcs.push(crc32c::crc32c(&block));
            data.extend_from_slice(&block);
        }
        builder.push(&Record::Mutation(MutationRecord {
            shard,
            at: version,
            chunk_version: version,
            committed: 0,
            operation: None,
            parts: smallvec![Part::Blocks { chunk: chunk(17), first: 0, fresh: None, crcs }],
        }));
    }
    let total_len = builder.total_len();
    let (mut bytes, crc) = builder.finish(at.next_batch, at.position, at.previous_crc);
    bytes.extend_from_slice(&data);
    assert_eq!(bytes.len() as u64, total_len);
    let next = Start { position: at.position + total_len, next_batch: at.next_batch + 1, previous_crc: crc };
    Made { at, next, bytes }
}

/// Bytes of the image from a position of the journal on.
fn places(superblock: &Superblock, position: u64, len: usize) -> Vec<usize> {
    let ring = Ring::of(superblock);
    (0..len as u64)
        .map(|at| usize::try_from(superblock.journal_offset + (position + at) % ring.len_bytes()).unwrap())
        .collect()
}

struct Journal {
    superblock: Superblock,
    image: Image,
    batches: Vec<Made>,
    next: Start,
}

impl Journal {
    fn new(blocks: u64) -> Self {
        let superblock = superblock(blocks);
        let len = superblock.journal_offset + superblock.journal_len;
        Self { superblock, image: Image(vec![0; usize::try_from(len).unwrap()]), batches: vec![], next: Start::FIRST }
    }

    fn append(&mut self, states: u64, payload: &[u8]) {
        let made = make(&self.superblock, self.next, states, payload);
        self.write(made.at.position, &made.bytes);
        self.next = made.next;
        self.batches.push(made);
    }

    fn write(&mut self, position: u64, bytes: &[u8]) {
        for (place, byte) in places(&self.superblock, position, bytes.len()).into_iter().zip(bytes) {
            self.image.0[place] = *byte;
        }
    }

    fn flip(&mut self, position: u64) {
        let place = places(&self.superblock, position, 1)[0];
        self.image.0[place] ^= 1;
    }

    /// Random batches over `laps` laps; then the first batch that is still whole with a quarter of the ring free.
    fn random(seed: u64, blocks: u64, laps: u64) -> (Self, usize) {
        let mut random = Random::new(seed);
        let mut journal = Self::new(blocks);
        while journal.next.position < laps * blocks * 4096 {
            let states = if random.one_in(8) { 90 } else { random.below(3) };
            let fills: Vec<u8> =
                (0..random.below(blocks / 4 - 3)).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
            journal.append(states, &fills);
        }
        let oldest = journal.next.position - blocks * 4096 * 3 / 4;
        let first = journal.batches.iter().position(|made| made.at.position >= oldest).unwrap();
        (journal, first)
    }

    fn scan_from(&self, start: Start) -> Result<(ScanEnd, Vec<Scanned>), ScanError> {
        self.scan_with(start, |_| Verdict::Accept)
    }

    fn scan_with(
        &self,
        start: Start,
        mut verdict: impl FnMut(&Scanned) -> Verdict,
    ) -> Result<(ScanEnd, Vec<Scanned>), ScanError> {
        let mut seen = Vec::new();
        let end = scan(&self.image, &self.superblock, start, |batch| {
            let verdict = verdict(&batch);
            if verdict == Verdict::Accept {
                seen.push(batch);
            }
            Ok::<_, ScanError>(verdict)
        })?;
        assert_eq!(end.batches, seen.len() as u64);
        Ok((end, seen))
    }

    /// What was read is what was written, from batch `first` up to `to`.
    fn assert_batches(&self, seen: &[Scanned], first: usize, to: usize) {
        assert_eq!(seen.len(), to - first);
        for (scanned, made) in seen.iter().zip(&self.batches[first..to]) {
            assert_eq!(scanned.start(), made.at);
            assert_eq!(Start::after(&scanned.header), made.next);
            let head = usize::try_from(scanned.header.head_len()).unwrap();
            assert_eq!(scanned.payload, made.bytes[head..]);
            assert_eq!(scanned.records.len(), scanned.header.record_count as usize);
        }
    }
}

#[track_caller]
fn assert_corrupt<T>(result: Result<T, ScanError>, at: Start) {
    match result {
        Err(ScanError::Corrupt { position, batch, .. }) => {
            assert_eq!((position, batch), (at.position, at.next_batch));
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("batch {} was taken for good", at.next_batch),
    }
}

#[track_caller]
fn assert_end(end: ScanEnd, next: Start, tail: Tail) {
    assert_eq!((end.next, end.tail), (next, tail));
}

fn torn(at: Start) -> Tail {
    Tail::Torn { position: at.position }
}

/// Made by the program that made the golden bytes of `format/tests.rs`: a ring of 8 blocks; batch 7 in its block 6,
/// batch 8 with two blocks of payload around its end, and a seal.
#[test]
fn scan_when_of_the_golden_ring_then_its_batches() {
    let mut journal = Journal::new(8);
    let start = Start { position: 6 * 4096, next_batch: 7, previous_crc: 0x0102_0304 };
    journal.write(
        start.position,
        &hex("
        48464241544348000100000001000000101112131415161718191a1b1c1d1e1f07000000000000000060000000000000
        30000000000000001a8d72930403020100000000000000000000000000000000000000000000000000000000655bc141
        020101002800000003000000000000000500000000000000150000000000000016000000000000001700000000000000"),
    );
    journal.write(
        7 * 4096,
        &hex("
        48464241544348000100000001000000101112131415161718191a1b1c1d1e1f08000000000000000070000000000000
        540000000200000030babd6d655bc14100000000000000000000000000000000000000000000000000000000ea183220
        010100004c00000003000000000000000500000001000000090000000000000064000000000000000900000000000000
        64000000000000006300000000000000010302001100000000000000656bd64e4ef41b07"),
    );
    journal.write(8 * 4096, &[0xaa; 4096]);
    journal.write(9 * 4096, &[0xbb; 4096]);
    journal.write(
        10 * 4096,
        &hex("
        48464241544348000100000000000000101112131415161718191a1b1c1d1e1f090000000000000000a0000000000000
        0000000000000000740691eaea18322000000000000000000000000000000000000000000000000000000000693e1dca"),
    );
    let (end, seen) = journal.scan_from(start).unwrap();
    let next = Start { position: 11 * 4096, next_batch: 10, previous_crc: 0xca1d_3e69 };
    assert_end(end, next, Tail::Clean);
    let numbers: Vec<_> = seen.iter().map(|batch| (batch.header.number, batch.proven)).collect();
    assert_eq!(numbers, [(7, true), (8, true), (9, false)]);
    let state = StateRecord { shard: sample_shard(), epoch: 21, term: 22, committed: 23, suspect: true };
    assert_eq!(seen[0].records, [Record::State(state)]);
    assert_eq!(seen[1].payload, [[0xaa; 4096], [0xbb; 4096]].concat());
    assert!(seen[2].records.is_empty() && seen[2].payload.is_empty());
}

#[test]
fn scan_when_never_written_then_empty() {
    let journal = Journal::new(16);
    let (end, seen) = journal.scan_from(Start::FIRST).unwrap();
    assert_end(end, Start::FIRST, Tail::Clean);
    assert!(seen.is_empty());
}

#[test]
fn scan_when_the_ring_wrapped_then_every_batch_from_any_start() {
    for seed in 0..20 {
        let (journal, first) = Journal::random(seed, 64, 4);
        for from in first..journal.batches.len() {
            let (end, seen) = journal.scan_from(journal.batches[from].at).unwrap();
            assert_end(end, journal.next, Tail::Clean);
            journal.assert_batches(&seen, from, journal.batches.len());
            let proven: Vec<bool> = seen.iter().map(|batch| batch.proven).collect();
            assert!(proven.iter().rev().skip(1).all(|proven| *proven) && !proven[proven.len() - 1]);
        }
        // Nothing since the checkpoint.
        let (end, seen) = journal.scan_from(journal.next).unwrap();
        assert_end(end, journal.next, Tail::Clean);
        assert!(seen.is_empty(), "seed {seed}: a former lap came back");
    }
}

#[test]
fn scan_when_the_lap_is_full_to_the_last_block_then_all_of_it() {
    let mut journal = Journal::new(16);
    for _ in 0..3 {
        journal.append(1, &[7; 3]);
    }
    let start = journal.next;
    for fill in 0..4 {
        journal.append(1, &[fill; 3]);
    }
    let (end, seen) = journal.scan_from(start).unwrap();
    assert_end(end, journal.next, Tail::Clean);
    journal.assert_batches(&seen, 3, 7);
}

#[test]
fn scan_when_larger_than_a_read_then_all_of_it() {
    // 40 MiB, batches of up to 2.5 MiB across the borders of reads and of the ring.
    let mut journal = Journal::new(10_240);
    let fills: Vec<u8> = (0..640).map(|n| u8::try_from(n % 251).unwrap()).collect();
    for n in 0..22 {
        journal.append(1, &fills[n * 3..]);
    }
    let (end, seen) = journal.scan_from(journal.batches[6].at).unwrap();
    assert_end(end, journal.next, Tail::Clean);
    journal.assert_batches(&seen, 6, 22);
}

/// The last batch with any subset of its sectors: it is there or torn, and those before it always are.
#[test]
fn scan_when_the_last_batch_is_torn_by_sectors_then_dropped_whole() {
    for seed in 0..60 {
        let (mut journal, first) = Journal::random(seed, 64, 3);
        let start = journal.batches[first].at;
        let mut random = Random::new(seed ^ 0x7011);
        let made = make(&journal.superblock, journal.next, random.below(120), &[1, 2, 3, 4]);
        let sectors = made.bytes.len() / SECTOR;
        let count = journal.batches.len();
        for attempt in 0..30 {
            let mut image = journal.image.clone();
            let keep: Vec<bool> = (0..sectors)
                .map(|sector| match attempt {
                    0 => true,
                    1 => sector != 0,           // all but the header
                    2 => sector == 0,           // nothing but the header
                    3 => sector + 1 != sectors, // all but the last
                    _ => random.one_in(2),
                })
                .collect();
            for (index, place) in places(&journal.superblock, made.at.position, made.bytes.len()).iter().enumerate() {
                if keep[index / SECTOR] {
                    image.0[*place] = made.bytes[index];
                }
            }
            let whole = image.clone();
            std::mem::swap(&mut journal.image, &mut image);
            let (end, seen) = journal.scan_from(start).unwrap();
            // Some sectors are zeros before and after, so a batch may be whole without all of them.
            let is_whole = places(&journal.superblock, made.at.position, made.bytes.len())
                .iter()
                .zip(&made.bytes)
                .all(|(place, byte)| whole.0[*place] == *byte);
            if is_whole {
                assert_end(end, made.next, Tail::Clean);
                journal.assert_batches(&seen[..seen.len() - 1], first, count);
            } else {
                let tail = if keep[0] { torn(made.at) } else { Tail::Clean };
                assert_end(end, made.at, tail);
                journal.assert_batches(&seen, first, count);
                assert_eq!(seen[seen.len() - 1].proven, keep[0], "its header alone proves the one before");
            }
            journal.image = image;
        }
    }
}

/// A journal of 5 batches, its start at the second, with the ring's end inside of the last.
fn short_journal() -> (Journal, Start) {
    let mut journal = Journal::new(13);
    for (states, fills) in [(1, &[1, 2][..]), (1, &[3, 4]), (2, &[5, 6]), (95, &[7]), (1, &[9])] {
        journal.append(states, fills);
    }
    let start = journal.batches[1].at;
    (journal, start)
}

#[test]
fn scan_when_any_byte_before_the_last_batch_changes_then_corrupt() {
    let (mut journal, start) = short_journal();
    assert!(journal.scan_from(start).is_ok());
    for batch in 1..4 {
        let at = journal.batches[batch].at;
        for byte in 0..journal.batches[batch].bytes.len() as u64 {
            // Every byte of header, records and zeros; of the payload every 16th.
            if byte % 16 != 0 && byte >= 4096 {
                continue;
            }
            journal.flip(at.position + byte);
            assert_corrupt(journal.scan_from(start), at);
            journal.flip(at.position + byte);
        }
    }
}

#[test]
fn scan_when_any_byte_of_the_last_batch_changes_then_a_torn_tail() {
    let (mut journal, start) = short_journal();
    let last = &journal.batches[4];
    let (at, len) = (last.at, last.bytes.len() as u64);
    for byte in (0..len).filter(|byte| byte % 16 == 0 || *byte < 4096) {
        journal.flip(at.position + byte);
        let (end, seen) = journal.scan_from(start).unwrap();
        assert_end(end, at, if byte < 96 { Tail::Clean } else { torn(at) });
        journal.assert_batches(&seen, 1, 4);
        journal.flip(at.position + byte);
    }
}

#[test]
fn scan_when_any_header_is_erased_but_the_last_then_corrupt() {
    for seed in 0..20 {
        let (mut journal, first) = Journal::random(seed, 64, 3);
        let start = journal.batches[first].at;
        for batch in first..journal.batches.len() - 1 {
            let intact = journal.image.clone();
            let at = journal.batches[batch].at;
            journal.write(at.position, &[0; 4096]);
            assert_corrupt(journal.scan_from(start), at);
            journal.image = intact;
        }
    }
}

#[test]
fn scan_when_the_caller_refuses_the_last_batch_then_it_is_the_torn_tail() {
    let (journal, start) = short_journal();
    let refuse_unproven = |batch: &Scanned| if batch.proven { Verdict::Accept } else { Verdict::Torn };
    let (end, seen) = journal.scan_with(start, refuse_unproven).unwrap();
    let last = journal.batches[4].at;
    assert_end(end, last, torn(last));
    journal.assert_batches(&seen, 1, 4);
    // Alone behind the checkpoint it is the same.
    let (end, _) = journal.scan_with(last, refuse_unproven).unwrap();
    assert_end(end, last, torn(last));
}

#[test]
fn scan_when_the_caller_refuses_a_proven_batch_then_corrupt() {
    let (journal, start) = short_journal();
    let refuse = |batch: &Scanned| if batch.header.number == 3 { Verdict::Torn } else { Verdict::Accept };
    assert_corrupt(journal.scan_with(start, refuse), journal.batches[2].at);
}

#[test]
fn scan_when_a_dropped_tail_was_sealed_then_it_never_comes_back() {
    let (mut journal, start) = short_journal();
    let tail = journal.batches[4].at;
    let (bytes, crc) = seal(ChainKey::of(&journal.superblock), tail.next_batch, tail.position, tail.previous_crc);
    let payload_survives = places(&journal.superblock, tail.position + 4096, 4096);
    journal.write(tail.position, &bytes);
    assert!(payload_survives.iter().all(|place| journal.image.0[*place] == 9));
    let (end, seen) = journal.scan_from(start).unwrap();
    let next = Start { position: tail.position + 4096, next_batch: tail.next_batch + 1, previous_crc: crc };
    assert_end(end, next, Tail::Clean);
    assert!(seen[3].records.is_empty() && seen.len() == 4);
}

#[test]
fn scan_when_the_catalogue_is_older_than_the_journal_then_corrupt() {
    let (journal, _) = Journal::random(5, 64, 3);
    for made in &journal.batches[..10] {
        assert_corrupt(journal.scan_from(made.at), made.at);
    }
    assert_corrupt(journal.scan_from(Start::FIRST), Start::FIRST);
}

#[test]
fn scan_when_the_journal_is_older_than_the_catalogue_then_corrupt() {
    let (mut journal, _) = short_journal();
    let older = journal.image.clone();
    journal.append(1, &[1]);
    journal.append(1, &[1]);
    let next = journal.next;
    assert!(journal.scan_from(next).is_ok());
    journal.image = older;
    assert_corrupt(journal.scan_from(next), next);
}

#[test]
fn scan_when_the_batch_before_was_another_then_corrupt() {
    let (journal, start) = short_journal();
    let other = Start { previous_crc: start.previous_crc ^ 1, ..start };
    assert_corrupt(journal.scan_from(other), other);
    // In the middle: batch 3 was written anew, as by a disk that lost the write of the real one.
    let (mut journal, start) = short_journal();
    let at = journal.batches[2].at;
    let other = make(&journal.superblock, at, 2, &[1, 1]);
    journal.write(at.position, &other.bytes);
    assert_corrupt(journal.scan_from(start), journal.batches[3].at);
}

#[test]
fn scan_when_a_good_header_lies_then_corrupt() {
    let (mut journal, start) = short_journal();
    let at = journal.next;
    // Longer than what the lap has left.
    let long = make(&journal.superblock, at, 1, &[1; 12]);
    journal.write(at.position, &long.bytes[..4096]);
    assert_corrupt(journal.scan_from(start), at);
    // Payload that the records do not name: the header of one batch, made to fit the records of another.
    let named = make(&journal.superblock, at, 1, &[1]);
    let mut lying = named.bytes[..4096].to_vec();
    lying[52] = 2;
    let key = ChainKey::of(&journal.superblock);
    assert!(crate::format::BatchHeader::parse(&key, &lying).is_err());
    let crc = crc32c::crc32c(&[&journal.superblock.journal_key, &lying[..92]].concat());
    lying[92..96].copy_from_slice(&crc.to_le_bytes());
    journal.write(at.position, &lying);
    assert_corrupt(journal.scan_from(start), at);
}

#[test]
fn scan_when_a_newer_release_wrote_then_said_so() {
    let (mut journal, start) = short_journal();
    let at = journal.next;
    let mut newer = make(&journal.superblock, at, 1, &[]).bytes;
    newer[8] = 2;
    let crc = crc32c::crc32c(&[&journal.superblock.journal_key, &newer[..92]].concat());
    newer[92..96].copy_from_slice(&crc.to_le_bytes());
    journal.write(at.position, &newer);
    match journal.scan_from(start) {
        Err(ScanError::Newer { position, .. }) => assert_eq!(position, at.position),
        other => panic!("{other:?}"),
    }
}

#[test]
fn scan_when_payload_imitates_headers_then_it_never_counts() {
    let (mut journal, start) = short_journal();
    let at = journal.next;
    // A guest's forgery of a later batch, right in all but the key, where it would count.
    let forger = Superblock { journal_key: [0; 16], ..journal.superblock.clone() };
    let later = Start { position: at.position + 4096, next_batch: at.next_batch + 1, previous_crc: 0 };
    let forged = make(&forger, later, 0, &[]);
    journal.write(later.position, &forged.bytes);
    assert_end(journal.scan_from(start).unwrap().0, at, Tail::Clean);
    // A copy of this journal's own header, in its own place of a later lap: its number is lower.
    let copy = journal.batches[0].bytes[..4096].to_vec();
    journal.write(later.position, &copy);
    assert_end(journal.scan_from(start).unwrap().0, at, Tail::Clean);
    // The real key, but of another place.
    let moved = make(&journal.superblock, Start { position: later.position + 4096, ..later }, 0, &[]);
    journal.write(later.position, &moved.bytes);
    assert_end(journal.scan_from(start).unwrap().0, at, Tail::Clean);
    // The same in its place is what counts.
    let real = make(&journal.superblock, later, 0, &[]);
    journal.write(later.position, &real.bytes);
    assert_corrupt(journal.scan_from(start), at);
}

#[test]
fn scan_when_the_data_file_is_cut_then_corrupt() {
    let (mut journal, start) = short_journal();
    let len = journal.image.0.len();
    journal.image.0.truncate(len - 4096);
    assert_corrupt(journal.scan_from(start), start);
}

#[test]
fn scan_when_the_disk_cannot_be_read_then_its_error() {
    let superblock = superblock(16);
    let disk = SimDisk::new(superblock.journal_offset + superblock.journal_len, 1);
    disk.make_unreadable(superblock.journal_offset + 3 * 4096);
    let result = scan(&disk, &superblock, Start::FIRST, |_| Ok::<_, ScanError>(Verdict::Accept));
    assert!(matches!(result, Err(ScanError::Io { .. })));
}

/// As the engine does it: batch by batch on a disk whose power fails in the middle of the last; then what was synced is
/// there, and the journal goes on from its end over several such cuts.
#[test]
fn scan_when_the_power_fails_then_every_synced_batch_is_there() {
    for seed in 0..100 {
        let superblock = superblock(64);
        let ring = Ring::of(&superblock);
        let mut random = Random::new(seed);
        let mut disk = SimDisk::new(superblock.journal_offset + superblock.journal_len, seed);
        let (mut head, mut next) = (Start::FIRST, Start::FIRST);
        let mut borders = vec![Start::FIRST];
        for life in 0..4 {
            for _ in 0..random.below(30) {
                let fills: Vec<u8> = (0..random.below(12)).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
                let made = make(&superblock, next, random.below(60), &fills);
                // A checkpoint at some border when there is no room.
                while ring.free(head.position, next.position) < made.bytes.len() as u64 {
                    head = borders.remove(0);
                }
                disk.write_durably(&writes(&ring, &made)).unwrap();
                next = made.next;
                borders.push(next);
            }
            let made = make(&superblock, next, random.below(60), &[1, 2, 3]);
            while ring.free(head.position, next.position) < made.bytes.len() as u64 {
                head = borders.remove(0);
            }
            disk.write(&writes(&ring, &made)).unwrap();
            disk = disk.after_power_cut(seed * 7 + life);
            let end = scan(&disk, &superblock, head, |_| Ok::<_, ScanError>(Verdict::Accept)).unwrap();
            assert!(end.next == next || end.next == made.next, "seed {seed}, life {life}: {end:?}");
            let (bytes, crc) =
                seal(ChainKey::of(&superblock), end.next.next_batch, end.next.position, end.next.previous_crc);
            let position = end.next.position;
            let after = Start { position: position + 4096, next_batch: end.next.next_batch + 1, previous_crc: crc };
            if ring.free(head.position, position) < 4096 {
                head = end.next;
                borders.clear();
            }
            disk.write_durably(&writes(&ring, &Made { at: end.next, next: after, bytes })).unwrap();
            next = after;
            borders.push(next);
        }
    }
}

fn writes(ring: &Ring, made: &Made) -> Vec<DeviceWrite> {
    let mut bytes = Bytes::from(made.bytes.clone());
    let pieces = ring.pieces(made.at.position, made.bytes.len() as u64);
    let pieces = pieces.iter().filter(|piece| piece.len > 0);
    pieces.map(|piece| DeviceWrite::new(piece.offset, bytes.split_to(usize::try_from(piece.len).unwrap()))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A ring of anything: headers that are right in all but one thing, pieces of batches, random bytes.
    #[test]
    fn scan_when_the_ring_holds_anything_then_it_ends(
        seed: u64,
        pieces in proptest::collection::vec((0u64..64, 0u64..70, 1u64..40, 0u64..3, 0usize..5, any::<u32>()), 0..40),
        start in (0u64..64, 1u64..20, any::<bool>()),
    ) {
        let mut journal = Journal::new(32);
        let mut random = Random::new(seed);
        let mut previous_crc = 0;
        for (place, block, number, states, payload, noise) in pieces {
            let at = Start { position: block * 4096, next_batch: number, previous_crc };
            let mut made = make(&journal.superblock, at, states, &vec![1; payload]);
            previous_crc = if noise % 2 == 0 { made.next.previous_crc } else { noise };
            match noise % 5 {
                0 => journal.write(place * 4096, &made.bytes),
                1 => made.bytes.iter_mut().for_each(|byte| *byte = u8::try_from(random.below(256)).unwrap()),
                2 => made.bytes[random.index(4096)] ^= 1,
                _ => (),
            }
            journal.write(at.position, &made.bytes);
        }
        let at = Start {
            position: start.0 * 4096,
            next_batch: start.1,
            previous_crc: if start.2 { previous_crc } else { 0 },
        };
        let mut batches = 0;
        let result = scan(&journal.image, &journal.superblock, at, |batch| {
            batches += 1;
            assert_eq!(batch.header.number, at.next_batch + batches - 1);
            Ok::<_, ScanError>(if batch.proven { Verdict::Accept } else { Verdict::Torn })
        });
        prop_assert!(batches <= 32);
        if let Ok(end) = result {
            prop_assert!(end.next.position >= at.position && end.next.position <= at.position + 32 * 4096);
        }
    }

    #[test]
    fn scan_when_the_ring_is_random_bytes_then_empty(seed: u64, position in 0u64..1 << 51, next_batch in 2u64..) {
        let mut journal = Journal::new(16);
        let mut random = Random::new(seed);
        let from = 65_536;
        journal.image.0[from..].chunks_exact_mut(8).for_each(|word| {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        });
        let at = Start { position: position * 4096, next_batch, previous_crc: 7 };
        assert_corrupt(journal.scan_from(at), at);
        let first = Start { next_batch: 1, ..at };
        assert_end(journal.scan_from(first).unwrap().0, first, Tail::Clean);
    }
}
