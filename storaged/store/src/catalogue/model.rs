//! The catalogue in memory, for simulations and tests: what the words of [`Catalogue`] mean, in the shortest way.
//!
//! A commit is atomic and durable at once. It is one operation of the node's [`Power`], which counts those of the disk
//! too; where the power fails in the middle of a commit, a seed says whether it happened. Reads change nothing and so
//! are not counted. What else may go wrong is arranged by key: [`ModelCatalogue::fail`].

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::catalogue::{Catalogue, CatalogueError, CatalogueStatistics, Changes, Visitor};
use crate::device::Power;
use crate::device::power::Begun;

/// What goes wrong with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// Reading it, alone or within a range, finds damage. Heals when the key is put or deleted.
    Corrupt,
    /// Commits that put it find the disk full.
    NoSpace,
    /// Whatever touches it finds the disk failed, and everything after it.
    Failed,
}

/// The catalogue in memory.
pub struct ModelCatalogue {
    power: Power,
    seed: u64,
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    faults: BTreeMap<Vec<u8>, KeyFault>,
    /// A fault that lasts was met.
    failed: bool,
    statistics: CatalogueStatistics,
}

impl fmt::Debug for ModelCatalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelCatalogue").field("rows", &self.lock().rows.len()).finish_non_exhaustive()
    }
}

impl Default for ModelCatalogue {
    fn default() -> Self {
        Self::new(Power::new(), 0)
    }
}

impl ModelCatalogue {
    /// An empty one on this power supply. The seed decides about the commit in which the power fails.
    pub fn new(power: Power, seed: u64) -> Self {
        Self { power, seed, state: Mutex::new(State::default()) }
    }

    /// Another catalogue with what is durable in this one, on another supply: what is found after the next start.
    /// Faults of keys stay; a failed disk works again, and counters start afresh.
    pub fn fork(&self, power: Power, seed: u64) -> Self {
        let state = self.lock();
        let state = State { failed: false, statistics: CatalogueStatistics::default(), ..state.clone() };
        Self { power, seed, state: Mutex::new(state) }
    }

    /// From now on this goes wrong with the key.
    pub fn fail(&self, key: impl Into<Vec<u8>>, fault: KeyFault) {
        self.lock().faults.insert(key.into(), fault);
    }

    /// Nothing more goes wrong with the key.
    pub fn heal(&self, key: &[u8]) {
        self.lock().faults.remove(key);
    }

    /// All that is durable, whatever the power and faults: for comparing and printing.
    pub fn rows(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.lock().rows.clone()
    }

    /// Puts a value past all rules, for planting damage that the catalogue itself does not see.
    pub fn plant(&self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.lock().rows.insert(key.into(), value.into());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_power(&self) -> Result<(), CatalogueError> {
        if self.power.is_off() { Err(no_power()) } else { Ok(()) }
    }

    /// Whether the commit during which the power failed happened: a bit of the seed and the moment, well mixed.
    fn survives_cut(&self) -> bool {
        let mixed = (self.seed ^ self.power.operations().rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 63 == 1
    }
}

impl Catalogue for ModelCatalogue {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CatalogueError> {
        self.check_power()?;
        let mut state = self.lock();
        state.check_read(key)?;
        Ok(state.rows.get(key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), CatalogueError> {
        self.check_power()?;
        let mut state = self.lock();
        state.check_alive()?;
        if from >= to {
            return Ok(());
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        // A damaged key is met even where its row is missing: the damage may be what hides it.
        let damaged = state.faults.range::<[u8], _>(bounds).find(|(_, fault)| **fault != KeyFault::NoSpace);
        let damaged = damaged.map(|(key, _)| key.clone());
        for (key, value) in state.rows.range::<[u8], _>(bounds) {
            if damaged.as_ref().is_some_and(|damaged| key >= damaged) {
                break;
            }
            if visit(key, value).is_break() {
                return Ok(());
            }
        }
        damaged.map_or(Ok(()), |key| state.check_read(&key))
    }

    fn commit(&self, changes: &Changes) -> Result<(), CatalogueError> {
        let mut state = self.lock();
        let begun = self.power.begin();
        if begun == Begun::Off {
            return Err(no_power());
        }
        state.check_alive()?;
        state.check_commit(changes)?;
        match begun {
            Begun::Powered => state.apply(changes),
            Begun::Cut if self.survives_cut() => state.apply(changes),
            Begun::Cut | Begun::Off => {}
        }
        if begun == Begun::Powered { Ok(()) } else { Err(no_power()) }
    }

    fn statistics(&self) -> CatalogueStatistics {
        let state = self.lock();
        let disk_bytes = state.rows.iter().map(|(key, value)| bytes_of(key, value)).sum();
        CatalogueStatistics { disk_bytes, ..state.statistics }
    }
}

impl State {
    fn check_alive(&self) -> Result<(), CatalogueError> {
        if self.failed { Err(CatalogueError::Failed { detail: "it failed before".into() }) } else { Ok(()) }
    }

    fn check_read(&mut self, key: &[u8]) -> Result<(), CatalogueError> {
        self.check_alive()?;
        match self.faults.get(key) {
            None | Some(KeyFault::NoSpace) => Ok(()),
            Some(KeyFault::Corrupt) => Err(CatalogueError::Corrupt { detail: format!("key {}", Hex(key)) }),
            Some(KeyFault::Failed) => Err(self.fail(key)),
        }
    }

    fn check_commit(&mut self, changes: &Changes) -> Result<(), CatalogueError> {
        let put = changes.puts.iter().map(|(key, _)| (key, true));
        for (key, put) in put.chain(changes.deletes.iter().map(|key| (key, false))) {
            match self.faults.get(key) {
                Some(KeyFault::NoSpace) if put => {
                    return Err(CatalogueError::NoSpace { detail: format!("key {}", Hex(key)) });
                }
                Some(KeyFault::Failed) => return Err(self.fail(key)),
                _ => {}
            }
        }
        Ok(())
    }

    fn fail(&mut self, key: &[u8]) -> CatalogueError {
        self.failed = true;
        CatalogueError::Failed { detail: format!("key {}", Hex(key)) }
    }

    fn apply(&mut self, changes: &Changes) {
        for (from, to) in changes.delete_ranges.iter().filter(|(from, to)| from < to) {
            let bounds = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
            let gone: Vec<_> = self.rows.range::<[u8], _>(bounds).map(|(key, _)| key.clone()).collect();
            for key in gone {
                self.rows.remove(&key);
            }
            self.faults.retain(|key, fault| *fault != KeyFault::Corrupt || key < from || key >= to);
        }
        for key in &changes.deletes {
            self.rows.remove(key);
            self.heal(key);
        }
        for (key, value) in &changes.puts {
            self.statistics.wal_bytes += bytes_of(key, value);
            self.rows.insert(key.clone(), value.clone());
            self.heal(key);
        }
        self.statistics.commits += 1;
        self.statistics.syncs += 1;
    }

    /// A new value is as good as any.
    fn heal(&mut self, key: &[u8]) {
        if self.faults.get(key) == Some(&KeyFault::Corrupt) {
            self.faults.remove(key);
        }
    }
}

fn bytes_of(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

fn no_power() -> CatalogueError {
    CatalogueError::Failed { detail: "the power is off".into() }
}

/// A key as a person can read it.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    fn put(key: &[u8], value: &[u8]) -> Changes {
        Changes { puts: vec![(key.to_vec(), value.to_vec())], ..Changes::default() }
    }

    fn failed<T>(result: Result<T, CatalogueError>) -> bool {
        matches!(result, Err(CatalogueError::Failed { .. }))
    }

    #[test]
    fn commit_when_the_power_fails_in_it_then_it_is_whole_or_absent_by_seed_and_nothing_works_after() {
        let mut survived = 0;
        for seed in 0..100 {
            let power = Power::new();
            let catalogue = ModelCatalogue::new(power.clone(), seed);
            power.cut_at(1);
            catalogue.commit(&put(b"a", b"1")).unwrap();
            let mut both = put(b"a", b"2");
            both.put(b"b", b"2");
            assert!(failed(catalogue.commit(&both)));
            assert!(failed(catalogue.commit(&put(b"c", b"3"))));
            assert!(failed(catalogue.get(b"a")));
            assert!(failed(catalogue.range(b"", b"z", &mut |_, _| ControlFlow::Continue(()))));

            let after = catalogue.fork(Power::new(), seed);
            let done = after.get(b"b").unwrap().is_some();
            assert_eq!(after.get(b"a").unwrap().unwrap(), if done { b"2" } else { b"1" });
            assert_eq!(after.get(b"c").unwrap(), None);
            assert_eq!(done, catalogue.fork(Power::new(), 0).rows().contains_key(b"b".as_slice()));
            survived += usize::from(done);
        }
        assert!((30..70).contains(&survived), "{survived}");
    }

    #[test]
    fn commit_when_counted_then_it_is_one_operation_and_reads_are_none() {
        let power = Power::new();
        let catalogue = ModelCatalogue::new(power.clone(), 1);
        catalogue.commit(&put(b"a", b"1")).unwrap();
        catalogue.get(b"a").unwrap();
        assert_eq!(power.operations(), 1);
    }

    #[test]
    fn fork_when_either_changes_then_the_other_does_not() {
        let one = ModelCatalogue::default();
        one.commit(&put(b"a", b"1")).unwrap();
        let two = one.fork(Power::new(), 0);
        one.commit(&put(b"a", b"2")).unwrap();
        two.commit(&put(b"b", b"3")).unwrap();
        assert_eq!(one.get(b"b").unwrap(), None);
        assert_eq!(two.get(b"a").unwrap().unwrap(), b"1");
    }

    #[test]
    fn fail_when_a_key_is_damaged_then_only_what_covers_it_fails_and_a_put_heals() {
        let catalogue = ModelCatalogue::default();
        for key in [b"a", b"b", b"c"] {
            catalogue.commit(&put(key, b"1")).unwrap();
        }
        catalogue.fail(b"b", KeyFault::Corrupt);
        assert!(matches!(catalogue.get(b"b"), Err(CatalogueError::Corrupt { .. })));
        let mut seen = Vec::new();
        let result = catalogue.range(b"a", b"d", &mut |key, _| {
            seen.push(key.to_vec());
            ControlFlow::Continue(())
        });
        assert!(matches!(result, Err(CatalogueError::Corrupt { .. })));
        assert_eq!(seen, [b"a"]);
        assert!(catalogue.range(b"c", b"d", &mut |_, _| ControlFlow::Continue(())).is_ok());
        catalogue.commit(&put(b"b", b"2")).unwrap();
        assert_eq!(catalogue.get(b"b").unwrap().unwrap(), b"2");
    }

    #[test]
    fn fail_when_the_disk_is_full_then_nothing_changes_and_it_works_after_healing() {
        let catalogue = ModelCatalogue::default();
        catalogue.fail(b"b", KeyFault::NoSpace);
        let mut both = put(b"a", b"1");
        both.put(b"b", b"1");
        assert!(matches!(catalogue.commit(&both), Err(CatalogueError::NoSpace { .. })));
        assert!(catalogue.rows().is_empty());
        catalogue.heal(b"b");
        catalogue.commit(&both).unwrap();
        assert_eq!(catalogue.rows().len(), 2);
    }

    #[test]
    fn fail_when_the_disk_failed_then_everything_fails_until_it_is_opened_again() {
        let catalogue = ModelCatalogue::default();
        catalogue.commit(&put(b"a", b"1")).unwrap();
        catalogue.fail(b"b", KeyFault::Failed);
        assert!(failed(catalogue.commit(&put(b"b", b"1"))));
        assert!(failed(catalogue.get(b"a")));
        assert!(failed(catalogue.commit(&put(b"a", b"2"))));
        assert_eq!(catalogue.fork(Power::new(), 0).get(b"a").unwrap().unwrap(), b"1");
    }
}
