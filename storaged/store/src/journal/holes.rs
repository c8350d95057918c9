//! The last hole that each block became in a journal, by the number of its record.
//!
//! What a later hole covers is not written again when the journal is replayed: when it was unmapped its space was given
//! back, another block may have it now, and on a full disk there is none left to write it to.

use std::collections::{BTreeMap, HashMap};

use holdfast_proto::ids::VolumeId;

use crate::journal::{Change, Record};
use crate::merge;

/// Grows with the number of holes in the journal, not with their length.
#[derive(Default)]
pub(super) struct Holes {
    /// For each volume, ranges that do not overlap, by their first block.
    volumes: HashMap<VolumeId, BTreeMap<u64, Range>>,
}

#[derive(Clone, Copy)]
struct Range {
    end: u64,
    /// Number of the latest record that made a hole of the range.
    number: u64,
}

impl Holes {
    /// Takes in record `number` if it is a hole. Numbers must grow.
    pub(super) fn add(&mut self, number: u64, record: &Record) {
        let Change::Hole { blocks } = record.change else {
            return;
        };
        let (first, end) = (record.first_block, record.first_block.saturating_add(blocks));
        if first == end {
            return;
        }
        let ranges = self.volumes.entry(record.volume).or_default();
        let before = ranges.range(..first).next_back().map(|(_, range)| *range).filter(|range| range.end > first);
        if let Some(before) = before {
            // Cut at `first`, so that from here on only ranges that begin in the hole overlap it.
            if let Some((_, cut)) = ranges.range_mut(..first).next_back() {
                cut.end = first;
            }
            ranges.insert(first, before);
        }
        while let Some((&at, &range)) = ranges.range(first..end).next() {
            ranges.remove(&at);
            if range.end > end {
                ranges.insert(end, range);
            }
        }
        ranges.insert(first, Range { end, number });
    }

    /// What of record `number` no later hole covers: the record itself, or parts of it.
    pub(super) fn uncovered(&self, number: u64, record: Record) -> Vec<Record> {
        let first = record.first_block;
        let end = first.saturating_add(record.blocks());
        let Some(ranges) = self.volumes.get(&record.volume).filter(|_| !record.is_hole()) else {
            return vec![record];
        };
        let start = ranges.range(..=first).next_back().map_or(first, |(at, _)| *at);
        let later = ranges.range(start..end).filter(|(_, range)| range.number > number && range.end > first);
        let mut parts = Vec::new();
        let mut at = first;
        for (&hole_at, range) in later {
            if at < hole_at {
                parts.push(part(&record, at, hole_at));
            }
            at = range.end.min(end);
        }
        if at == first {
            return vec![record];
        }
        if at < end {
            parts.push(part(&record, at, end));
        }
        parts
    }
}

/// The blocks from `from` to before `to` of a record that holds them.
fn part(record: &Record, from: u64, to: u64) -> Record {
    let (skip, blocks) = (from - record.first_block, to - from);
    let change = match &record.change {
        Change::Write { entries, payload } => {
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX);
            let count = usize::try_from(blocks).unwrap_or(usize::MAX);
            let entries = entries.iter().skip(skipped).take(count).copied().collect();
            Change::Write { entries, payload: merge::blocks_of(payload, skip, blocks) }
        }
        Change::Hole { .. } => Change::Hole { blocks },
    };
    Record { volume: record.volume, first_block: from, change }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use holdfast_proto::checksum;
    use holdfast_proto::units::BLOCK_LEN;
    use proptest::prelude::*;

    use super::*;

    /// Of block `b` of record `n` every byte is the low byte of `n + b`.
    fn record(number: usize, volume: u64, first_block: u64, blocks: u64, is_hole: bool) -> Record {
        let fill = |block: u64| u8::try_from((number as u64 + block) % 256).unwrap();
        let change = if is_hole {
            Change::Hole { blocks }
        } else {
            let bytes: Vec<u8> = (first_block..first_block + blocks).flat_map(|at| vec![fill(at); BLOCK_LEN]).collect();
            let payload = vec![Bytes::from(bytes)];
            Change::Write { entries: checksum::of_pieces(0, &payload), payload }
        };
        Record { volume: VolumeId(volume), first_block, change }
    }

    proptest! {
        #[test]
        fn holes_when_any_records_then_exactly_the_blocks_of_no_later_hole_are_left(
            steps in prop::collection::vec((1u64..3, 0u64..30, 0u64..12, any::<bool>()), 1..30)
        ) {
            let records: Vec<Record> = steps.iter().enumerate()
                .map(|(number, (volume, first, blocks, is_hole))| record(number, *volume, *first, *blocks, *is_hole))
                .collect();
            let mut holes = Holes::default();
            records.iter().enumerate().for_each(|(number, record)| holes.add(number as u64, record));
            for (number, record) in records.iter().enumerate() {
                let parts = holes.uncovered(number as u64, record.clone());
                if record.is_hole() {
                    prop_assert_eq!(parts, vec![record.clone()]);
                    continue;
                }
                let mut left = Vec::new();
                for part in &parts {
                    let Change::Write { entries, payload } = &part.change else { panic!("not a write") };
                    prop_assert_eq!(entries, &checksum::of_pieces(0, payload));
                    let bytes = payload.concat();
                    prop_assert_eq!(bytes.len(), entries.len() * BLOCK_LEN);
                    for (index, block) in bytes.chunks(BLOCK_LEN).enumerate() {
                        let at = part.first_block + index as u64;
                        prop_assert_eq!(u64::from(block[0]), (number as u64 + at) % 256);
                        left.push(at);
                    }
                }
                let is_covered = |block: u64| records[number + 1..].iter()
                    .any(|later| later.is_hole() && later.touches(record.volume, block, 1));
                let expected: Vec<u64> = (record.first_block..record.first_block + record.blocks())
                    .filter(|block| !is_covered(*block)).collect();
                prop_assert_eq!(left, expected);
            }
        }
    }
}
