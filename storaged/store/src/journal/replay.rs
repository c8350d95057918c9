//! Reading the journal back: the chain of whole batches from the start of the current generation.
//!
//! A batch that is not whole ends the chain. It was torn by a crash, and then never acknowledged, if nothing that was
//! written later follows: a batch is written only after the one before it was synced. If something does follow, the
//! batch was acknowledged once and is corrupt now (hazard C4), and the store is not opened.
//!
//! The journal is read twice: the first time for its end and its holes, the second time to carry it out without the
//! blocks that a later hole covers (see `holes.rs`).

use std::io;
use std::path::Path;

use bytes::Bytes;
use holdfast_proto::units::{BLOCK_BYTES, BLOCK_LEN};

use crate::directory::DiskUuid;
use crate::disk_file::{DiskFile, Wait};
use crate::error::{Context, OpenError, corrupt};
use crate::journal::Record;
use crate::journal::holes::Holes;
use crate::journal::layout::{BATCH_MAGIC, BATCHES_AT, Batch, Claim, Link, decode_slot, slot_at};

/// Bytes that the search for later batches reads at a time.
const SCAN_LEN: usize = 1 << 20;

/// Where the chain ends.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) link: Link,
    pub(super) position: u64,
}

struct Reader<'a> {
    file: &'a DiskFile,
    path: &'a Path,
    disk: DiskUuid,
    len_bytes: u64,
}

pub(super) fn replay(
    file: &DiskFile,
    path: &Path,
    disk: DiskUuid,
    mut redo: impl FnMut(Record) -> Result<(), OpenError>,
) -> Result<End, OpenError> {
    let len_bytes = file.len().context("read", path)?;
    let reader = Reader { file, path, disk, len_bytes };
    let start = End { link: reader.current_generation()?, position: BATCHES_AT };
    let mut holes = Holes::default();
    let found = reader.walk(start, u64::MAX, |number, record| {
        holes.add(number, &record);
        Ok(())
    })?;
    reader.refuse_later_batches(&found)?;
    let end = reader.walk(start, found.position, |number, record| {
        holes.uncovered(number, record).into_iter().try_for_each(&mut redo)
    })?;
    if end.position != found.position {
        return Err(corrupt(path, format!("the batch at byte {} was there once and cannot be read now", end.position)));
    }
    let batches = end.link.number - start.link.number;
    tracing::info!(path = %path.display(), generation = end.link.generation, batches, "journal replayed");
    Ok(end)
}

impl Reader<'_> {
    /// Gives every record, numbered from 0, of the whole batches from `end` on and before byte `limit`; says where they end.
    fn walk(
        &self,
        mut end: End,
        limit: u64,
        mut each: impl FnMut(u64, Record) -> Result<(), OpenError>,
    ) -> Result<End, OpenError> {
        let mut number = 0;
        while end.position < limit
            && let Some((records, next, batch_bytes)) = self.batch(&end)?
        {
            for record in records {
                each(number, record)?;
                number += 1;
            }
            end = End { link: next, position: end.position + batch_bytes };
        }
        Ok(end)
    }

    /// The link of the slot with the highest generation.
    fn current_generation(&self) -> Result<Link, OpenError> {
        let mut current: Option<Link> = None;
        for generation in [0, 1] {
            let block = self.read(BLOCK_LEN, slot_at(generation))?;
            let Some(link) = block.and_then(|block| decode_slot(&block, self.disk)) else {
                continue;
            };
            if slot_at(link.generation) != slot_at(generation) {
                return Err(corrupt(self.path, "a header lies in the other's place"));
            }
            if current.is_none_or(|other| other.generation < link.generation) {
                current = Some(link);
            }
        }
        current.ok_or_else(|| corrupt(self.path, "it has no valid header of this disk"))
    }

    /// The batch at the end of the chain, if it is whole: its records, the link to the next, its length.
    fn batch(&self, end: &End) -> Result<Option<(Vec<Record>, Link, u64)>, OpenError> {
        let Some((claim, batch)) = self.meta(end.position)? else {
            return Ok(None);
        };
        if claim.link.generation < end.link.generation {
            return Ok(None);
        }
        if claim.link != end.link {
            let detail = format!("the batch at byte {} does not continue the chain", end.position);
            return Err(corrupt(self.path, detail));
        }
        let payload_at = end.position + (claim.batch_bytes() - claim.payload_bytes);
        let payload_len = usize::try_from(claim.payload_bytes).unwrap_or(usize::MAX);
        let Some(payload) = self.read(payload_len, payload_at)? else {
            return Ok(None);
        };
        let next = batch.next;
        Ok(batch.with_payload(&Bytes::from(payload)).map(|records| (records, next, claim.batch_bytes())))
    }

    /// Header and records of the batch at `position`, if its crc is right.
    fn meta(&self, position: u64) -> Result<Option<(Claim, Batch)>, OpenError> {
        let Some(block) = self.read(BLOCK_LEN, position)? else {
            return Ok(None);
        };
        let Some(claim) = Claim::decode(&block, self.disk) else {
            return Ok(None);
        };
        let Some(meta) = self.read(claim.meta_len, position)? else {
            return Ok(None);
        };
        Ok(Batch::decode(&meta).map(|batch| (claim, batch)))
    }

    /// Looks behind the chain for a whole header that was written after what should have been at its end.
    fn refuse_later_batches(&self, end: &End) -> Result<(), OpenError> {
        let mut at = end.position;
        while at < self.len_bytes {
            let len = usize::try_from(self.len_bytes - at).unwrap_or(SCAN_LEN).min(SCAN_LEN);
            let bytes = self.read(len, at)?.unwrap_or_default();
            for (index, block) in bytes.chunks(BLOCK_LEN).enumerate() {
                let position = at + index as u64 * BLOCK_BYTES;
                if block.starts_with(&BATCH_MAGIC) && self.is_later(position, end)? {
                    let detail = format!(
                        "the batch at byte {} cannot be read though a later one at byte {position} can; \
                         acknowledged writes are lost here, restore them from another copy",
                        end.position
                    );
                    return Err(corrupt(self.path, detail));
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    fn is_later(&self, position: u64, end: &End) -> Result<bool, OpenError> {
        let Some((claim, _)) = self.meta(position)? else {
            return Ok(false);
        };
        let order = (claim.link.generation, claim.link.number);
        // The torn batch itself may have a whole header.
        let is_torn_one = position == end.position && claim.link == end.link;
        Ok(order >= (end.link.generation, end.link.number) && !is_torn_one)
    }

    /// `None` when the file ends before the range does.
    fn read(&self, len: usize, offset: u64) -> Result<Option<Vec<u8>>, OpenError> {
        if offset.saturating_add(len as u64) > self.len_bytes {
            return Ok(None);
        }
        match self.file.read(len, offset, Wait::Allowed) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Ok(Err(error).context("read", self.path)?),
        }
    }
}
