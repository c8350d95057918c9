//! What every catalogue does: one set of tests, run against the model and against RocksDB.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use proptest::collection::vec;
use proptest::prelude::*;

use super::model::ModelCatalogue;
use super::rocks::{RocksCatalogue, RocksSettings};
use super::{Catalogue, Changes, quick_dir};
use crate::device::Power;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// A catalogue that can be closed and opened again.
trait Bench {
    fn new() -> Self;
    fn catalogue(&self) -> &dyn Catalogue;
    fn reopen(&mut self);
}

struct Model(ModelCatalogue);

impl Bench for Model {
    fn new() -> Self {
        Self(ModelCatalogue::default())
    }

    fn catalogue(&self) -> &dyn Catalogue {
        &self.0
    }

    fn reopen(&mut self) {
        self.0 = self.0.fork(Power::new(), 0);
    }
}

struct Rocks {
    catalogue: Option<RocksCatalogue>,
    dir: tempfile::TempDir,
}

impl Bench for Rocks {
    fn new() -> Self {
        let mut new = Self { catalogue: None, dir: quick_dir() };
        new.reopen();
        new
    }

    fn catalogue(&self) -> &dyn Catalogue {
        self.catalogue.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.catalogue = None;
        self.catalogue =
            Some(RocksCatalogue::open(&self.dir.path().join("catalogue"), &RocksSettings::default()).unwrap());
    }
}

/// All rows of a range.
fn rows(catalogue: &dyn Catalogue, from: &[u8], to: &[u8]) -> Rows {
    let mut rows = Vec::new();
    let result = catalogue.range(from, to, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    result.unwrap();
    rows
}

fn everything(catalogue: &dyn Catalogue) -> Rows {
    rows(catalogue, b"", &[0xFF; 40])
}

fn puts(rows: &[(&[u8], &[u8])]) -> Changes {
    let puts = rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    Changes { puts, ..Changes::default() }
}

fn owned(rows: &[(&[u8], &[u8])]) -> Rows {
    rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn get_when_never_put_then_none(bench: &mut impl Bench) {
    assert_eq!(bench.catalogue().get(b"a").unwrap(), None);
    assert_eq!(everything(bench.catalogue()), []);
    bench.catalogue().commit(&Changes::default()).unwrap();
    bench.reopen();
    assert_eq!(everything(bench.catalogue()), []);
}

fn get_when_put_then_the_value_also_after_reopening(bench: &mut impl Bench) {
    bench.catalogue().commit(&puts(&[(b"b", b"1"), (b"a", b""), (b"c", b"3")])).unwrap();
    for _ in 0..3 {
        assert_eq!(bench.catalogue().get(b"b").unwrap().unwrap(), b"1");
        assert_eq!(bench.catalogue().get(b"a").unwrap().unwrap(), b"");
        let keys = [b"c".to_vec(), b"x".to_vec(), b"a".to_vec(), b"c".to_vec()];
        let many = bench.catalogue().get_many(&keys).unwrap();
        assert_eq!(many, [Some(b"3".to_vec()), None, Some(Vec::new()), Some(b"3".to_vec())]);
        bench.reopen();
    }
}

fn range_when_visited_then_ascending_without_the_end_until_it_breaks(bench: &mut impl Bench) {
    let all: [(&[u8], &[u8]); 6] =
        [(b"", b"0"), (b"\x00", b"1"), (b"\x00\xff", b"2"), (b"a", b"3"), (b"a\x00", b"4"), (b"\xff\xff", b"5")];
    let mut shuffled = all;
    shuffled.reverse();
    bench.catalogue().commit(&puts(&shuffled)).unwrap();
    for _ in 0..2 {
        let catalogue = bench.catalogue();
        assert_eq!(everything(catalogue), owned(&all));
        assert_eq!(rows(catalogue, b"\x00", b"a"), owned(&all[1..3]));
        assert_eq!(rows(catalogue, b"\x00\x01", b"a\x00\x00"), owned(&all[2..5]));
        assert_eq!(rows(catalogue, b"a", b"a"), []);
        assert_eq!(rows(catalogue, b"b", b"a"), []);
        let mut seen = 0;
        let result = catalogue.range(b"\x00", b"b", &mut |_, _| {
            seen += 1;
            if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((result, seen), (Ok(()), 2));
        bench.reopen();
    }
}

fn commit_when_it_does_everything_then_ranges_go_first_and_puts_last(bench: &mut impl Bench) {
    bench.catalogue().commit(&puts(&[(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1")])).unwrap();
    let mut changes = puts(&[(b"b", b"2"), (b"e", b"2"), (b"d", b"2"), (b"b", b"3")]);
    changes.delete(b"a");
    changes.delete(b"d");
    changes.delete(b"never there");
    changes.delete_range(b"b", b"d");
    changes.delete_range(b"z", b"a");
    bench.catalogue().commit(&changes).unwrap();
    let expected = owned(&[(b"b", b"3"), (b"d", b"2"), (b"e", b"2")]);
    assert_eq!(everything(bench.catalogue()), expected);
    bench.reopen();
    assert_eq!(everything(bench.catalogue()), expected);
}

fn commit_when_a_long_range_is_deleted_then_only_that(bench: &mut impl Bench) {
    let key = |number: u32| number.to_be_bytes().to_vec();
    let all: Rows = (0..20_000).map(|number| (key(number), vec![7; 90])).collect();
    bench.catalogue().commit(&Changes { puts: all.clone(), ..Changes::default() }).unwrap();
    bench.reopen();
    let mut changes = Changes::default();
    changes.delete_range(key(1000), key(19_000));
    changes.delete_range(key(19_990), key(19_995));
    changes.put(key(5000), b"new".as_slice());
    bench.catalogue().commit(&changes).unwrap();
    let mut expected = all;
    expected.retain(|(at, _)| *at < key(1000) || (*at >= key(19_000) && !(key(19_990)..key(19_995)).contains(at)));
    expected.insert(1000, (key(5000), b"new".to_vec()));
    for _ in 0..2 {
        assert_eq!(everything(bench.catalogue()), expected);
        assert_eq!(bench.catalogue().get(&key(4999)).unwrap(), None);
        assert_eq!(bench.catalogue().get(&key(18_999)).unwrap(), None);
        assert_eq!(bench.catalogue().get(&key(5000)).unwrap().unwrap(), b"new");
        bench.reopen();
    }
}

/// The largest checkpoint: 300,000 entries.
fn commit_when_it_is_large_then_all_of_it(bench: &mut impl Bench) {
    let key = |number: u32| [b"m".as_slice(), &number.to_be_bytes()].concat();
    let value = |number: u32, round: u8| [number.to_le_bytes().as_slice(), &[round; 86]].concat();
    for round in 1..=2 {
        let puts = (0..300_000).map(|number| (key(number), value(number, round))).collect();
        bench.catalogue().commit(&Changes { puts, ..Changes::default() }).unwrap();
    }
    bench.reopen();
    let mut next = 0;
    let result = bench.catalogue().range(b"m", b"n", &mut |at, row| {
        assert_eq!((at, row), (key(next).as_slice(), value(next, 2).as_slice()));
        next += 1;
        ControlFlow::Continue(())
    });
    assert_eq!((result, next), (Ok(()), 300_000));
}

/// Readers see the state between two commits, while commits go on.
fn commit_when_others_read_then_they_see_all_of_it_or_nothing(bench: &mut impl Bench) {
    let both = |number: u64| puts(&[(b"a", &number.to_le_bytes()), (b"b", &number.to_le_bytes())]);
    bench.catalogue().commit(&both(0)).unwrap();
    let catalogue = bench.catalogue();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                let rows = everything(catalogue);
                assert_eq!((rows.len(), &rows[0].1), (2, &rows[1].1));
            }
        });
        for number in 1..200 {
            catalogue.commit(&both(number)).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

fn statistics_when_committed_then_bytes_and_syncs_are_counted(bench: &mut impl Bench) {
    let before = bench.catalogue().statistics();
    bench.catalogue().commit(&puts(&[(b"a", &[1; 1000])])).unwrap();
    bench.catalogue().commit(&puts(&[(b"b", &[2; 1000])])).unwrap();
    let after = bench.catalogue().statistics();
    assert_eq!(after.commits - before.commits, 2);
    assert!((2..=4).contains(&(after.syncs - before.syncs)), "{after:?}");
    assert!((2000..3000).contains(&(after.wal_bytes - before.wal_bytes)), "{after:?}");
    assert!(after.disk_bytes >= 2000, "{after:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Changes),
    Get(Vec<u8>),
    Range(Vec<u8>, Vec<u8>, usize),
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop::sample::select(&[0_u8, 1, 0x7F, 0x80, 0xFF][..]), 0..4)
}

fn changes() -> impl Strategy<Value = Changes> {
    let value = vec(any::<u8>(), 0..40);
    (vec((key(), key()), 0..3), vec((key(), value), 0..12), vec(key(), 0..4))
        .prop_map(|(delete_ranges, puts, deletes)| Changes { delete_ranges, puts, deletes })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => changes().prop_map(Step::Commit),
        4 => key().prop_map(Step::Get),
        4 => (key(), key(), 0..6_usize).prop_map(|(from, to, limit)| Step::Range(from, to, limit)),
        1 => Just(Step::Reopen),
    ]
}

/// What a step shows, and the oracle: a plain map.
fn run(steps: &[Step], bench: &mut impl Bench) -> Result<(), TestCaseError> {
    let mut oracle: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Commit(changes) => {
                bench.catalogue().commit(changes).unwrap();
                for (from, to) in &changes.delete_ranges {
                    oracle.retain(|key, _| key < from || key >= to);
                }
                oracle.retain(|key, _| !changes.deletes.contains(key));
                oracle.extend(changes.puts.iter().cloned());
            }
            Step::Get(key) => prop_assert_eq!(&bench.catalogue().get(key).unwrap(), &oracle.get(key).cloned()),
            Step::Range(from, to, limit) => {
                let mut seen = Vec::new();
                let visited = bench.catalogue().range(from, to, &mut |key, value| {
                    seen.push((key.to_vec(), value.to_vec()));
                    if seen.len() > *limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                prop_assert_eq!(visited, Ok(()));
                let bounds = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
                let there = from < to;
                let expected = there.then(|| oracle.range(bounds)).into_iter().flatten().take(limit + 1);
                prop_assert_eq!(seen, expected.map(|(key, value)| (key.clone(), value.clone())).collect::<Rows>());
            }
            Step::Reopen => bench.reopen(),
        }
    }
    prop_assert_eq!(everything(bench.catalogue()), oracle.into_iter().collect::<Rows>());
    Ok(())
}

/// A module for each implementation, with all of it.
macro_rules! suite {
    ($module:ident, $bench:ty, $cases:expr, [$($test:ident),* $(,)?]) => {
        mod $module {
            use super::*;

            $(
                #[test]
                fn $test() {
                    super::$test(&mut <$bench>::new());
                }
            )*

            proptest! {
                #![proptest_config(ProptestConfig { cases: $cases, ..ProptestConfig::default() })]
                #[test]
                fn any_steps_when_run_then_a_plain_map_shows_the_same(steps in vec(step(), 1..40)) {
                    run(&steps, &mut <$bench>::new())?;
                }
            }
        }
    };
}

macro_rules! suites {
    ($tests:tt) => {
        suite!(model, Model, 500, $tests);
        suite!(rocks, Rocks, 40, $tests);
    };
}

suites!([
    get_when_never_put_then_none,
    get_when_put_then_the_value_also_after_reopening,
    range_when_visited_then_ascending_without_the_end_until_it_breaks,
    commit_when_it_does_everything_then_ranges_go_first_and_puts_last,
    commit_when_a_long_range_is_deleted_then_only_that,
    commit_when_it_is_large_then_all_of_it,
    commit_when_others_read_then_they_see_all_of_it_or_nothing,
    statistics_when_committed_then_bytes_and_syncs_are_counted,
]);
