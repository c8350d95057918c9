//! Which operations have taken effect, so that a repeated one does not do so twice (hazard A7).
//!
//! A row for each thread of each gateway's life. What the gateway has acknowledged is forgotten, and refused for ever.

use std::collections::BTreeMap;

use holdfast_proto::ids::{Incarnation, OpId};

use crate::format::record::OperationRecord;
use crate::format::shard::{DedupeRow, DoneOperation};

/// The operations of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dedupe {
    rows: BTreeMap<(Incarnation, u32), Row>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    acked_below: u64,
    done: BTreeMap<(u64, u32), u8>,
}

/// What is known of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Not seen: it may run.
    New,
    /// It took effect, with this outcome: answer the same again.
    Done(u8),
    /// Its gateway has been told its outcome, or has given it up: never run it.
    Forgotten,
}

impl Dedupe {
    /// What is known of an operation.
    pub(crate) fn known(&self, id: &OpId) -> Known {
        let Some(row) = self.rows.get(&(id.incarnation, id.lane)) else {
            return Known::New;
        };
        if id.sequence < row.acked_below {
            return Known::Forgotten;
        }
        row.done.get(&(id.sequence, id.part)).map_or(Known::New, |outcome| Known::Done(*outcome))
    }

    /// An operation has taken effect, and its gateway has the answers of those before `acked_below`.
    pub(crate) fn record(&mut self, operation: &OperationRecord) {
        let row = self.rows.entry((operation.id.incarnation, operation.id.lane)).or_default();
        if operation.acked_below > row.acked_below {
            row.acked_below = operation.acked_below;
            row.done = row.done.split_off(&(operation.acked_below, 0));
        }
        if operation.id.sequence >= row.acked_below {
            row.done.insert((operation.id.sequence, operation.id.part), operation.outcome);
        }
    }

    pub(crate) fn from_rows(rows: &[DedupeRow]) -> Self {
        let row = |row: &DedupeRow| {
            let done = row.done.iter().map(|done| ((done.sequence, done.part), done.outcome)).collect();
            ((row.incarnation, row.lane), Row { acked_below: row.acked_below, done })
        };
        Self { rows: rows.iter().map(row).collect() }
    }

    /// As it is kept in the catalogue.
    pub(crate) fn rows(&self) -> Vec<DedupeRow> {
        let done = |((sequence, part), outcome): (&(u64, u32), &u8)| DoneOperation {
            sequence: *sequence,
            part: *part,
            outcome: *outcome,
        };
        let row = |((incarnation, lane), row): (&(Incarnation, u32), &Row)| DedupeRow {
            incarnation: *incarnation,
            lane: *lane,
            acked_below: row.acked_below,
            done: row.done.iter().map(done).collect(),
        };
        self.rows.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(lane: u32, sequence: u64, part: u32) -> OpId {
        OpId { incarnation: Incarnation(5), lane, sequence, part }
    }

    #[test]
    fn known_when_recorded_then_done_until_it_is_acknowledged() {
        let mut table = Dedupe::default();
        let record =
            |sequence, part, acked_below, outcome| OperationRecord { id: id(1, sequence, part), acked_below, outcome };
        table.record(&record(10, 0, 3, 0));
        table.record(&record(10, 1, 3, 7));
        assert_eq!(table.known(&id(1, 10, 1)), Known::Done(7));
        assert_eq!(table.known(&id(1, 10, 2)), Known::New);
        assert_eq!(table.known(&id(1, 2, 0)), Known::Forgotten);
        assert_eq!(table.known(&id(2, 10, 1)), Known::New);
        table.record(&record(12, 0, 11, 0));
        assert_eq!(table.known(&id(1, 10, 1)), Known::Forgotten);
        table.record(&record(11, 0, 4, 1));
        assert_eq!(table.known(&id(1, 11, 0)), Known::Done(1), "acked_below never falls");
        assert_eq!(table.known(&id(1, 10, 1)), Known::Forgotten);
        assert_eq!(Dedupe::from_rows(&table.rows()), table);
    }
}
