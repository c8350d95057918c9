//! Tells a torn tail of RocksDB's write-ahead log from damage in it, before RocksDB opens it.
//!
//! RocksDB drops what follows the first record of the log that is bad, which is right after a power cut: what was written
//! last and not synced may be there in part. But each commit here is synced before the next one begins, so a
//! bad record with the *beginning of another commit* behind it was synced, and was damaged since: dropping it would lose
//! what was promised.
//!
//! ```text
//! NNNNNN.log   blocks of 32 KiB, each a row of fragments; fewer than 7 bytes at the end of a block are zeros
//! fragment     masked crc32c of type and payload u32 | length of payload u16 | type u8 | payload      (little-endian)
//! type         1 a whole record   2 its first fragment   3 one in the middle   4 its last   others: nothing of a commit
//! record       sequence number u64 | number of operations u32 | operations
//! ```
//!
//! Where a file ends in a bad record, the next file has to go on with the sequence number that the bad one would have had:
//! it was never a commit then (the disk was full), or the database was opened again after a power cut.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::io_error;
use crate::catalogue::CatalogueError;

const BLOCK_LEN: usize = 32 << 10;
const HEADER_LEN: usize = 7;

/// Sequence number and number of operations.
const RECORD_HEAD_LEN: usize = 12;

const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// Checks all files of the log in `dir`.
pub(super) fn check(dir: &Path) -> Result<(), CatalogueError> {
    let mut chain = Chain::default();
    for path in files(dir).map_err(|error| io_error("list", dir, &error))? {
        let damage = check_file(&path, &mut chain).map_err(|error| io_error("read", &path, &error))?;
        if let Some(damage) = damage {
            return Err(CatalogueError::Corrupt { detail: format!("{} {damage}", path.display()) });
        }
    }
    Ok(())
}

/// The files of the log, in the order of their numbers.
pub(super) fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        if let (Some(number), Some("log")) = (number, path.extension().and_then(|extension| extension.to_str())) {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// What the records so far say about the next one.
#[derive(Default)]
struct Chain {
    /// Sequence number of the next commit; `None` before the first.
    next: Option<u64>,
    /// A file has ended in something bad, and no good record has come since.
    broken: bool,
    /// The head of the record whose fragments are being read.
    head: Vec<u8>,
}

impl Chain {
    /// A good fragment. False when a commit is missing before it.
    fn fragment(&mut self, kind: u8, payload: &[u8]) -> bool {
        match kind {
            WHOLE | FIRST => self.head.clear(),
            MIDDLE | LAST => {}
            _ => return true,
        }
        let missing = RECORD_HEAD_LEN - self.head.len();
        self.head.extend(payload.iter().take(missing));
        if matches!(kind, WHOLE | LAST) { self.record() } else { true }
    }

    fn record(&mut self) -> bool {
        let head = std::mem::take(&mut self.head);
        let (Some((sequence, rest)), broken) = (head.split_first_chunk::<8>(), self.broken) else { return true };
        let Some(count) = rest.first_chunk::<4>() else { return true };
        let sequence = u64::from_le_bytes(*sequence);
        let complete = !broken || self.next.is_none_or(|next| sequence <= next);
        self.broken = false;
        self.next = Some(sequence.saturating_add(u64::from(u32::from_le_bytes(*count))));
        complete
    }
}

/// What is wrong with a file, if anything.
fn check_file(path: &Path, chain: &mut Chain) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let mut block = Vec::with_capacity(BLOCK_LEN);
    let mut bad_at = None;
    let mut block_at = 0;
    loop {
        block.clear();
        (&mut file).take(BLOCK_LEN as u64).read_to_end(&mut block)?;
        let mut at = 0;
        while let Some(rest) = block.get(at..).filter(|rest| rest.len() >= HEADER_LEN) {
            match (fragment(rest), bad_at) {
                (Some((WHOLE | FIRST, _)), Some(bad_at)) => {
                    let behind = block_at + at as u64;
                    return Ok(Some(format!("is bad at byte {bad_at}, and has a later commit at byte {behind}")));
                }
                // Behind something bad lengths mean nothing: a commit may begin anywhere.
                (_, Some(_)) => at += 1,
                (Some((kind, payload)), None) => {
                    if !chain.fragment(kind, payload) {
                        return Ok(Some(format!(
                            "begins with a commit that is not the next one after a bad record, at byte {at}"
                        )));
                    }
                    at += HEADER_LEN + payload.len();
                }
                (None, None) => bad_at = Some(block_at + at as u64),
            }
        }
        if block.len() < BLOCK_LEN {
            chain.broken |= bad_at.is_some() || block.len() > at;
            chain.head.clear();
            return Ok(None);
        }
        block_at += BLOCK_LEN as u64;
    }
}

/// Type and payload of the fragment at the beginning of `bytes`, if there is a good one.
fn fragment(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
    let [c0, c1, c2, c3, l0, l1, kind] = *header;
    if kind == 0 {
        return None;
    }
    let payload = rest.get(..usize::from(u16::from_le_bytes([l0, l1])))?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload);
    (mask(crc) == u32::from_le_bytes([c0, c1, c2, c3])).then_some((kind, payload))
}

/// A crc of what contains crcs is a weak one; LevelDB's way around that.
fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// On files made here; `tests/damage.rs` has RocksDB's own.
#[cfg(test)]
mod tests {
    use super::*;

    fn push(file: &mut Vec<u8>, kind: u8, payload: &[u8]) {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&[kind]), payload);
        file.extend(mask(crc).to_le_bytes());
        file.extend(u16::try_from(payload.len()).unwrap().to_le_bytes());
        file.push(kind);
        file.extend(payload);
    }

    /// A commit of one operation with `len` bytes behind its head, cut into fragments like RocksDB does.
    fn push_commit(file: &mut Vec<u8>, sequence: u64, len: usize) {
        let mut record = sequence.to_le_bytes().to_vec();
        record.extend(1_u32.to_le_bytes());
        record.resize(RECORD_HEAD_LEN + len, 0xAB);
        let mut rest = record.as_slice();
        let mut first = true;
        loop {
            let mut room = BLOCK_LEN - file.len() % BLOCK_LEN;
            if room < HEADER_LEN {
                file.resize(file.len() + room, 0);
                room = BLOCK_LEN;
            }
            let (piece, after) = rest.split_at(rest.len().min(room - HEADER_LEN));
            rest = after;
            let kind = match (first, rest.is_empty()) {
                (true, true) => WHOLE,
                (true, false) => FIRST,
                (false, false) => MIDDLE,
                (false, true) => LAST,
            };
            push(file, kind, piece);
            first = false;
            if rest.is_empty() {
                return;
            }
        }
    }

    fn checked(files: &[&[u8]]) -> Result<(), CatalogueError> {
        let dir = tempfile::tempdir().unwrap();
        for (number, file) in files.iter().enumerate() {
            fs::write(dir.path().join(format!("{:06}.log", number + 9)), file).unwrap();
        }
        check(dir.path())
    }

    fn is_corrupt(result: &Result<(), CatalogueError>) -> bool {
        matches!(result, Err(CatalogueError::Corrupt { .. }))
    }

    fn three_commits() -> (Vec<u8>, Vec<usize>) {
        let mut file = Vec::new();
        let ends = [(1, 100), (2, 100_000), (3, 80_000)].map(|(sequence, len)| {
            push_commit(&mut file, sequence, len);
            file.len()
        });
        (file, ends.to_vec())
    }

    #[test]
    fn check_when_the_file_is_cut_anywhere_then_that_is_a_torn_tail() {
        let (file, _) = three_commits();
        for len in (0..file.len()).step_by(997).chain(file.len() - 20..=file.len()) {
            checked(&[&file[..len]]).unwrap();
            let mut zeros = file[..len].to_vec();
            zeros.resize(file.len() + 5000, 0);
            checked(&[&zeros]).unwrap();
        }
    }

    #[test]
    fn check_when_the_last_commit_has_holes_then_that_is_a_torn_tail() {
        let (file, ends) = three_commits();
        for at in (ends[1]..ends[2]).step_by(1201) {
            let mut torn = file.clone();
            let end = torn.len().min(at + 4096);
            torn[at..end].fill(0);
            checked(&[&torn]).unwrap();
        }
    }

    #[test]
    fn check_when_an_earlier_commit_is_bad_then_it_is_damage() {
        let (file, ends) = three_commits();
        for at in (0..ends[1]).step_by(499) {
            let mut flipped = file.clone();
            flipped[at] ^= 0x10;
            assert!(is_corrupt(&checked(&[&flipped])), "byte {at}");
        }
    }

    #[test]
    fn check_when_a_later_file_goes_on_then_only_a_missing_commit_is_damage() {
        let (file, ends) = three_commits();
        let mut next = Vec::new();
        push_commit(&mut next, 3, 10);
        let torn = &file[..ends[2] - 1];
        checked(&[torn, &next]).unwrap();
        let mut after_next = Vec::new();
        push_commit(&mut after_next, 4, 10);
        assert!(is_corrupt(&checked(&[torn, &after_next])));
        checked(&[&file, &after_next]).unwrap();
    }

    #[test]
    fn check_when_bytes_are_random_then_it_does_not_panic() {
        let mut state = 7_u64;
        let mut random = Vec::new();
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random.extend(state.to_le_bytes());
        }
        checked(&[&random]).unwrap();
    }
}
