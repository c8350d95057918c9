//! The files of one volume, and the two things that are done to them: a checked read, and applying a change that the
//! journal holds.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use holdfast_proto::checksum::{self, ZERO_BLOCK};
use holdfast_proto::ids::VolumeId;
use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};
use zerocopy::IntoBytes;

use crate::disk_file::{DiskFile, Wait};
use crate::error::{Context, IoContext, StoreError};
use crate::journal::{Change, Record, entry_of};
use crate::merge::{Block, zero_block};
use crate::store::Output;
use crate::stripes::Stripes;

/// Blocks of one data file: 8 TiB, half of what ext4 allows a file to have.
const SEGMENT_BYTES: u64 = 8 << 40;

const ENTRY_BYTES: u64 = size_of::<u32>() as u64;

/// Blocks and checksums of a volume on the disk.
pub(crate) struct VolumeFiles {
    pub(crate) id: VolumeId,
    pub(crate) size_bytes: u64,
    data: Vec<DiskFile>,
    checksums: DiskFile,
    stripes: Stripes,
}

/// Why a read gave nothing.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// Not in the page cache; only with [`Wait::Never`].
    WouldBlock,
    /// The range was changed meanwhile. What was read is a mixture: read again.
    Raced,
    Store(StoreError),
}

/// Why there is no space for a write.
#[derive(Debug)]
pub(crate) enum ReserveError {
    /// This write cannot be; others can.
    Refused(StoreError),
    /// The device has failed.
    Device(io::Error),
}

/// The blocks that a byte range touches.
pub(crate) struct Blocks {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Blocks {
    pub(crate) fn of(offset: u64, len: u64) -> Self {
        Self { first: offset / BLOCK_BYTES, count: checksum::piece_count(offset, len) }
    }
}

impl VolumeFiles {
    /// Makes the files of an empty volume, and syncs them. They take no space.
    pub(crate) fn create(dir: &Path, size_bytes: u64) -> Result<(), IoContext> {
        for (path, len) in data_files(dir, size_bytes) {
            create_file(&path, len)?;
        }
        let len = size_bytes.div_ceil(BLOCK_BYTES) * ENTRY_BYTES;
        create_file(&dir.join("checksums"), len.next_multiple_of(BLOCK_BYTES))
    }

    pub(crate) fn open(dir: &Path, id: VolumeId, size_bytes: u64) -> Result<Self, IoContext> {
        let open = |path: &Path| DiskFile::open(path).context("open", path);
        Ok(Self {
            id,
            size_bytes,
            data: data_files(dir, size_bytes).map(|(path, _)| open(&path)).collect::<Result<_, _>>()?,
            checksums: open(&dir.join("checksums"))?,
            stripes: Stripes::new(),
        })
    }

    /// Reads a range inside the volume. Each block is checked, and none is a mixture of two states.
    pub(crate) fn read(&self, offset: u64, len: u64, wait: Wait) -> Result<Output, ReadError> {
        if len == 0 {
            return Ok(Output::default());
        }
        let stamp = self.stripes.stamp(offset, len).ok_or(ReadError::Raced)?;
        let result = self.read_once(offset, len, wait);
        if !self.stripes.unchanged(offset, len, stamp) {
            return Err(ReadError::Raced);
        }
        result
    }

    fn read_once(&self, offset: u64, len: u64, wait: Wait) -> Result<Output, ReadError> {
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => ReadError::WouldBlock,
            _ => ReadError::Store(StoreError::Unreadable { offset, detail: error.to_string().into() }),
        };
        let blocks = Blocks::of(offset, len);
        let mut entries = self.entries(&blocks, wait).map_err(unreadable)?;
        if entries.iter().all(|entry| *entry == 0) {
            return Ok(Output { data: zeros(len), checksums: checksum::of_zeros(offset, len) });
        }
        let start = blocks.first * BLOCK_BYTES;
        let mut data = Vec::new();
        for (file, at, part) in self.parts(start, blocks.count * BLOCK_BYTES) {
            file.read_more(&mut data, part, at, wait).map_err(unreadable)?;
        }
        // From here on `entries` turns into the checksums of the answer.
        let mut block_at = start;
        for (block, entry) in data.as_chunks_mut::<BLOCK_LEN>().0.iter_mut().zip(&mut entries) {
            if *entry == 0 {
                block.fill(0);
                *entry = ZERO_BLOCK;
            } else {
                let crc = crc32c::crc32c(block);
                if entry_of(crc) != *entry {
                    return Err(ReadError::Store(StoreError::Checksum { offset: block_at }));
                }
                *entry = crc;
            }
            block_at += BLOCK_BYTES;
        }
        let data = cut(Bytes::from(data), offset - start, len);
        if !len.is_multiple_of(BLOCK_BYTES) || offset != start {
            sum_edges(offset, &data, &mut entries);
        }
        Ok(Output { data: vec![data], checksums: entries })
    }

    /// Content of one block; `None` for a hole. For the commit thread, which nothing races with.
    pub(crate) fn block(&self, block: u64) -> Result<Option<Block>, StoreError> {
        let offset = block * BLOCK_BYTES;
        let unreadable = |error: io::Error| StoreError::Unreadable { offset, detail: error.to_string().into() };
        let entries = self.entries(&Blocks { first: block, count: 1 }, Wait::Allowed).map_err(unreadable)?;
        if entries == [0] {
            return Ok(None);
        }
        let mut content = zero_block();
        for (file, at, _) in self.parts(offset, BLOCK_BYTES) {
            file.read_into(&mut *content, at, Wait::Allowed).map_err(unreadable)?;
        }
        if entries == [entry_of(crc32c::crc32c(&*content))] {
            Ok(Some(content))
        } else {
            Err(StoreError::Checksum { offset })
        }
    }

    /// Takes space for blocks that are holes now, so that applying a write to them cannot fail for lack of it. Either all
    /// of it or nothing is taken. `pending` are changes that are not applied yet; what they took they keep.
    pub(crate) fn reserve<'a>(
        &self,
        blocks: &Blocks,
        pending: impl Iterator<Item = &'a Record>,
    ) -> Result<(), ReserveError> {
        let offset = blocks.first * BLOCK_BYTES;
        let mut entries = self.entries(blocks, Wait::Allowed).map_err(|error| {
            ReserveError::Refused(StoreError::Unreadable { offset, detail: error.to_string().into() })
        })?;
        if entries.iter().all(|entry| *entry != 0) {
            return Ok(());
        }
        let Err(error) = self.allocate(blocks) else {
            return Ok(());
        };
        if !is_no_space(&error) {
            return Err(ReserveError::Device(error));
        }
        for record in pending {
            take_out(&mut entries, blocks.first, record);
        }
        self.free_holes(blocks.first, &entries).map_err(ReserveError::Device)?;
        Err(ReserveError::Refused(StoreError::NoSpace))
    }

    /// The checksums first: their few bytes serve later writes nearby, whatever becomes of this one.
    fn allocate(&self, blocks: &Blocks) -> io::Result<()> {
        self.checksums.reserve(blocks.first * ENTRY_BYTES, blocks.count * ENTRY_BYTES)?;
        let mut parts = self.parts_of_any_len(blocks.first * BLOCK_BYTES, blocks.count * BLOCK_BYTES);
        parts.try_for_each(|(file, at, len)| file.reserve(at, len))
    }

    /// Gives back what was reserved for blocks that are still holes. Nothing may be pending.
    pub(crate) fn release(&self, blocks: &Blocks) -> io::Result<()> {
        let entries = self.entries(blocks, Wait::Allowed)?;
        self.free_holes(blocks.first, &entries)
    }

    /// Frees the blocks from `first` on whose entry is 0.
    fn free_holes(&self, first: u64, entries: &[u32]) -> io::Result<()> {
        let mut at = first;
        for run in entries.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
            let blocks = run.len() as u64;
            if run.first() == Some(&0) {
                self.free(at * BLOCK_BYTES, blocks * BLOCK_BYTES)?;
            }
            at += blocks;
        }
        Ok(())
    }

    /// Whether the record lies inside the volume.
    pub(crate) fn holds(&self, record: &Record) -> bool {
        let end = record.first_block.checked_add(record.blocks());
        end.is_some_and(|end| end <= self.size_bytes.div_ceil(BLOCK_BYTES))
    }

    /// Carries out what the journal holds. Not synced: the journal repeats it after a crash.
    pub(crate) fn apply(&self, record: &Record) -> io::Result<()> {
        let offset = record.first_block * BLOCK_BYTES;
        let len = record.blocks() * BLOCK_BYTES;
        let entries_at = record.first_block * ENTRY_BYTES;
        self.stripes.change(offset, len, || match &record.change {
            Change::Write { entries, payload } => {
                self.write_payload(offset, len, payload)?;
                self.write_entries(entries, entries_at)
            }
            Change::Hole { blocks } => {
                self.free(offset, len)?;
                self.clear_entries(entries_at, blocks * ENTRY_BYTES)
            }
        })
    }

    /// Gives the space of blocks back. A full file system may have no room for splitting an extent; that does no harm,
    /// because what makes a hole is its checksum entry.
    fn free(&self, offset: u64, len: u64) -> io::Result<()> {
        for (file, at, len) in self.parts_of_any_len(offset, len) {
            match file.punch(at, len) {
                Err(error) if is_no_space(&error) => {
                    tracing::warn!(volume = %self.id, offset, len, %error, "cannot free the space of unmapped blocks");
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Makes holes of the blocks of these entries. Where a full file system cannot punch, zeros are written over what is
    /// there, which takes no space.
    fn clear_entries(&self, at: u64, len: u64) -> io::Result<()> {
        match self.checksums.punch(at, len) {
            Err(error) if is_no_space(&error) => {
                tracing::warn!(volume = %self.id, at, len, %error, "cannot free the space of checksums, writing zeros");
                self.zero_entries(at, at + len)
            }
            result => result,
        }
    }

    fn zero_entries(&self, from: u64, to: u64) -> io::Result<()> {
        const ZEROS: [u8; BLOCK_LEN] = [0; BLOCK_LEN];
        let mut page = [0; BLOCK_LEN];
        let mut at = from;
        while let Some(data_at) = self.checksums.next_data(at)?.map(|found| found.max(at)).filter(|found| *found < to) {
            // One page at a time: its neighbours may be holes, which writing to would take space for.
            let len = (to - data_at).min(BLOCK_BYTES - data_at % BLOCK_BYTES);
            let bytes = page.get_mut(..usize::try_from(len).unwrap_or(BLOCK_LEN)).unwrap_or_default();
            self.checksums.read_into(bytes, data_at, Wait::Allowed)?;
            if bytes.iter().any(|byte| *byte != 0) {
                let zeros = ZEROS.get(..bytes.len()).unwrap_or_default();
                self.checksums.write(&mut [IoSlice::new(zeros)], data_at)?;
            }
            at = data_at + len;
        }
        Ok(())
    }

    fn write_payload(&self, offset: u64, len: u64, payload: &[Bytes]) -> io::Result<()> {
        if let ([whole], Some((file, at, part))) = (payload, self.parts(offset, len).next())
            && part == whole.len()
        {
            return file.write(&mut [IoSlice::new(whole)], at);
        }
        let mut chunks: Vec<IoSlice<'_>> = payload.iter().map(|chunk| IoSlice::new(chunk)).collect();
        if offset / SEGMENT_BYTES == (offset + len - 1) / SEGMENT_BYTES {
            return self.parts(offset, len).try_for_each(|(file, at, _)| file.write(&mut chunks, at));
        }
        // Over the border of two files: rare enough for a copy.
        let bytes = payload.concat();
        let mut rest = bytes.as_slice();
        for (file, at, part) in self.parts(offset, len) {
            let (now, later) = rest.split_at_checked(part).unwrap_or((rest, &[]));
            file.write(&mut [IoSlice::new(now)], at)?;
            rest = later;
        }
        Ok(())
    }

    fn write_entries(&self, entries: &[u32], at: u64) -> io::Result<()> {
        if cfg!(target_endian = "little") {
            return self.checksums.write(&mut [IoSlice::new(entries.as_bytes())], at);
        }
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        self.checksums.write(&mut [IoSlice::new(&bytes)], at)
    }

    fn entries(&self, blocks: &Blocks, wait: Wait) -> io::Result<Vec<u32>> {
        let mut entries = vec![0u32; usize::try_from(blocks.count).unwrap_or(usize::MAX)];
        self.checksums.read_into(entries.as_mut_bytes(), blocks.first * ENTRY_BYTES, wait)?;
        entries.iter_mut().for_each(|entry| *entry = u32::from_le(*entry));
        Ok(entries)
    }

    /// Makes everything that was applied durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.data.iter().try_for_each(DiskFile::sync)?;
        self.checksums.sync()
    }

    pub(crate) fn allocated_bytes(&self) -> io::Result<u64> {
        self.data.iter().map(DiskFile::allocated_bytes).sum()
    }

    /// The files that a range lies in, with the offset in each and the length there.
    fn parts_of_any_len(&self, offset: u64, len: u64) -> impl Iterator<Item = (&DiskFile, u64, u64)> {
        let first = usize::try_from(offset / SEGMENT_BYTES).unwrap_or(usize::MAX);
        let end = offset + len;
        let mut at = offset;
        self.data.iter().skip(first).map_while(move |file| {
            let inside = at % SEGMENT_BYTES;
            let part = (end - at).min(SEGMENT_BYTES - inside);
            at += part;
            (part > 0).then_some((file, inside, part))
        })
    }

    /// The same for a range that fits into memory.
    fn parts(&self, offset: u64, len: u64) -> impl Iterator<Item = (&DiskFile, u64, usize)> {
        self.parts_of_any_len(offset, len).map(|(file, at, len)| (file, at, usize::try_from(len).unwrap_or(usize::MAX)))
    }
}

fn data_files(dir: &Path, size_bytes: u64) -> impl Iterator<Item = (PathBuf, u64)> {
    let bytes = size_bytes.next_multiple_of(BLOCK_BYTES);
    (0..bytes.div_ceil(SEGMENT_BYTES)).map(move |index| {
        let len = (bytes - index * SEGMENT_BYTES).min(SEGMENT_BYTES);
        (dir.join(format!("data.{index}")), len)
    })
}

/// Whether the file system, or the quota, is full.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Marks those of the blocks from `first` on that the record changes as no holes.
fn take_out(entries: &mut [u32], first: u64, record: &Record) {
    let index = |block: u64| usize::try_from(block.saturating_sub(first)).unwrap_or(usize::MAX).min(entries.len());
    let range = index(record.first_block)..index(record.first_block.saturating_add(record.blocks()));
    entries.get_mut(range).unwrap_or_default().fill(1);
}

fn create_file(path: &Path, len: u64) -> Result<(), IoContext> {
    let file = DiskFile::create(path).context("create", path)?;
    file.set_len(len).context("extend", path)?;
    file.sync_all().context("sync", path)
}

/// So many zeros, without taking memory.
pub(crate) fn zeros(len: u64) -> Vec<Bytes> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut rest = usize::try_from(len).unwrap_or(usize::MAX);
    let mut chunks = Vec::with_capacity(rest.div_ceil(ZEROS.len()));
    while rest > 0 {
        let chunk = ZEROS.get(..rest).unwrap_or(&ZEROS);
        rest -= chunk.len();
        chunks.push(Bytes::from_static(chunk));
    }
    chunks
}

fn cut(data: Bytes, from: u64, len: u64) -> Bytes {
    let start = usize::try_from(from).unwrap_or(usize::MAX).min(data.len());
    let end = start.saturating_add(usize::try_from(len).unwrap_or(usize::MAX)).min(data.len());
    if start == 0 && end == data.len() { data } else { data.slice(start..end) }
}

/// Replaces the checksums of the first and last piece where these are parts of a block.
fn sum_edges(offset: u64, data: &Bytes, checksums: &mut [u32]) {
    let len = data.len() as u64;
    let head = checksum::piece_len(offset, len);
    if head < BLOCK_BYTES
        && let Some(checksum) = checksums.first_mut()
    {
        *checksum = crc32c::crc32c(usize::try_from(head).ok().and_then(|head| data.get(..head)).unwrap_or_default());
    }
    let tail = (offset + len) % BLOCK_BYTES;
    if tail > 0
        && head < len
        && let Some(checksum) = checksums.last_mut()
    {
        *checksum = crc32c::crc32c(usize::try_from(len - tail).ok().and_then(|at| data.get(at..)).unwrap_or_default());
    }
}
