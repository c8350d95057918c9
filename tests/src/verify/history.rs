//! Which content each block may have: the last write that got GOOD, or one that was begun after it.

use std::collections::{HashMap, HashSet};

use super::stamp::{BLOCK_BYTES, Content, identify};

/// Writes of one block that matter. At most one of them is on its way at a time, so they have an order.
#[derive(Clone, Debug, Default)]
struct Block {
    /// The last one that got GOOD, or was read; `None`: zeros.
    settled: Option<u64>,
    /// Begun after it, without GOOD, in order.
    open: Vec<u64>,
}

/// All that was written, and how far it was acknowledged.
#[derive(Clone, Debug, Default)]
pub struct History {
    blocks: HashMap<u64, Block>,
    /// Operations that leave zeros.
    holes: HashSet<u64>,
    last_op: u64,
}

impl History {
    /// Begins a write of `count` blocks from `first`; returns its op id. None of them may have a write on its way.
    pub fn begin(&mut self, first: u64, count: u64) -> u64 {
        self.last_op += 1;
        for block in first..first + count {
            self.blocks.entry(block).or_default().open.push(self.last_op);
        }
        self.last_op
    }

    /// Begins an unmap of `count` blocks from `first`, as [`History::begin`] does a write.
    pub fn begin_hole(&mut self, first: u64, count: u64) -> u64 {
        let op = self.begin(first, count);
        self.holes.insert(op);
        op
    }

    /// The write got GOOD: from now on its blocks hold it or something newer.
    pub fn acknowledge(&mut self, first: u64, count: u64, op: u64) {
        for block in first..first + count {
            let block = self.blocks.entry(block).or_default();
            block.settled = Some(op);
            block.open.retain(|open| *open > op);
        }
    }

    /// Judges what was read of the blocks from `first` on while no write was on its way. What is read settles the block:
    /// an older write must not come back later.
    pub fn check(&mut self, first: u64, bytes: &[u8]) -> Result<(), String> {
        for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_BYTES)) {
            let known = self.blocks.entry(block).or_default();
            let found = match identify(bytes, block) {
                Content::Zeros => None,
                Content::Op(op) => Some(op),
                Content::Damaged(what) => return Err(what),
            };
            let leaves = |op: u64| if self.holes.contains(&op) { None } else { Some(op) };
            let settled = known.settled.and_then(leaves);
            if found != settled && !known.open.iter().any(|op| leaves(*op) == found) {
                return Err(format!(
                    "block {block} holds {found:?}; the last write with GOOD left {settled:?}, begun after it: {:?}",
                    known.open
                ));
            }
            known.settled = found;
            known.open.clear();
        }
        Ok(())
    }

    /// How many writes were begun.
    pub fn begun(&self) -> u64 {
        self.last_op
    }
}

#[cfg(test)]
mod tests {
    use super::super::stamp::fill;
    use super::*;

    fn block(number: u64, op: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        fill(&mut bytes, number, op);
        bytes
    }

    #[test]
    fn check_when_acknowledged_write_is_missing_then_error() {
        let mut history = History::default();
        let op = history.begin(3, 1);
        history.acknowledge(3, 1, op);
        assert!(history.check(3, &vec![0; BLOCK_BYTES]).is_err());
        assert!(history.check(3, &block(3, op)).is_ok());
    }

    #[test]
    fn check_when_older_write_is_back_then_error() {
        let mut history = History::default();
        let old = history.begin(3, 1);
        history.acknowledge(3, 1, old);
        let new = history.begin(3, 1);
        history.acknowledge(3, 1, new);
        assert!(history.check(3, &block(3, old)).is_err());
    }

    #[test]
    fn check_when_write_is_open_then_either_and_what_is_read_stays() {
        let mut history = History::default();
        let old = history.begin(3, 2);
        history.acknowledge(3, 2, old);
        let open = history.begin(3, 2);
        assert!(history.check(3, &block(3, old)).is_ok());
        assert!(history.check(4, &block(4, open)).is_ok());
        assert!(history.check(3, &block(3, open)).is_err(), "was read as the older write before");
        assert!(history.check(4, &block(4, old)).is_err(), "was read as the newer write before");
    }

    #[test]
    fn check_when_unmapped_then_zeros_once_it_has_good_and_either_before() {
        let mut history = History::default();
        let old = history.begin(3, 2);
        history.acknowledge(3, 2, old);
        let hole = history.begin_hole(3, 2);
        assert!(history.check(3, &block(3, old)).is_ok());
        assert!(history.check(4, &vec![0; BLOCK_BYTES]).is_ok());
        assert!(history.check(4, &block(4, old)).is_err(), "was read as zeros before");
        history.acknowledge(3, 1, hole);
        assert!(history.check(3, &block(3, old)).is_err());
        assert!(history.check(3, &vec![0; BLOCK_BYTES]).is_ok());
    }

    #[test]
    fn check_when_never_begun_then_only_zeros() {
        let mut history = History::default();
        assert!(history.check(9, &vec![0; BLOCK_BYTES]).is_ok());
        assert!(history.check(9, &block(9, 1)).is_err());
    }
}
