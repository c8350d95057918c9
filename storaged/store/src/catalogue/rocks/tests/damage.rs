//! Flipped bytes: each is found, or does no harm.

use super::*;

/// A catalogue as a kill leaves it: two tables, so few that none are merged, and a log of [`LOGGED`] commits.
struct Sample {
    files: Files,
    rows: Rows,
    /// Without the last commit.
    rows_before: Rows,
}

const LOGGED: u64 = 4;

fn sample() -> Sample {
    let dir = quick_dir();
    let path = dir.path().join("catalogue");
    let mut model = BTreeMap::new();
    let mut commit = |catalogue: &RocksCatalogue, seed: u64| {
        let rows = (0..150_u32).map(|at| (noise(seed * 1000 + u64::from(at), 6), noise(u64::from(at), 90)));
        let mut changes = puts(rows);
        changes.delete_range([16 * seed.to_le_bytes()[0]], [16 * seed.to_le_bytes()[0] + 2]);
        model.retain(|key: &Vec<u8>, _| *key < changes.delete_ranges[0].0 || *key >= changes.delete_ranges[0].1);
        model.extend(changes.puts.iter().cloned());
        catalogue.commit(&changes).unwrap();
        model.clone().into_iter().collect::<Rows>()
    };
    for seed in 1..=2 {
        commit(&open(&path).unwrap(), seed);
    }
    let catalogue = open(&path).unwrap();
    let states: Vec<_> = (0..LOGGED).map(|number| commit(&catalogue, 3 + number)).collect();
    let files = read_files(&path);
    assert_eq!(files.keys().filter(|name| name.ends_with(".sst")).count(), 2);
    assert_eq!(files.iter().filter(|(name, content)| name.ends_with(".log") && content.len() > 10_000).count(), 1);
    let [.., rows_before, rows] = states.as_slice() else { panic!("too few commits") };
    Sample { files, rows: rows.clone(), rows_before: rows_before.clone() }
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Refused,
    Found,
    Harmless,
    WithoutLastCommit,
}

/// Compares what a damaged catalogue shows with what it was; panics at anything that is neither right nor an error.
fn judge(opened: Result<RocksCatalogue, CatalogueError>, sample: &Sample) -> Verdict {
    let catalogue = match opened {
        Ok(catalogue) => catalogue,
        Err(CatalogueError::NoSpace { detail }) => panic!("{detail}"),
        Err(_) => return Verdict::Refused,
    };
    let (rows, result) = scan(&catalogue);
    match &result {
        Ok(()) if rows == sample.rows => {}
        Ok(()) if rows == sample.rows_before => return Verdict::WithoutLastCommit,
        Ok(()) => panic!("other content: {} rows instead of {}", rows.len(), sample.rows.len()),
        Err(CatalogueError::Corrupt { .. }) => assert!(sample.rows.starts_with(&rows), "wrong rows before the error"),
        Err(other) => panic!("{other}"),
    }
    let mut found = result.is_err();
    for (key, value) in sample.rows.iter().step_by(7) {
        match catalogue.get(key) {
            Ok(got) => assert_eq!(got.as_ref(), Some(value)),
            Err(error) => {
                assert!(matches!(error, CatalogueError::Corrupt { .. }), "{error}");
                found = true;
            }
        }
    }
    for absent in 0..20_u8 {
        assert!(!matches!(catalogue.get(&[absent, 1]), Ok(Some(_))));
    }
    if found { Verdict::Found } else { Verdict::Harmless }
}

/// Flips a byte of each of `places` in the file and judges both ways of opening.
fn flip(sample: &Sample, name: &str, places: impl Iterator<Item = usize>) -> Vec<(usize, Verdict)> {
    let dir = quick_dir();
    let path = dir.path().join("catalogue");
    let mut verdicts = Vec::new();
    for at in places {
        let mut files = sample.files.clone();
        files.get_mut(name).unwrap()[at] ^= 1 << (at % 8);
        let _ = fs::remove_dir_all(&path);
        write_files(&path, &files);
        let looked = judge(RocksCatalogue::open_read_only(&path, &SMALL), sample);
        let opened = judge(open(&path), sample);
        assert_eq!(looked == Verdict::WithoutLastCommit, opened == Verdict::WithoutLastCommit, "{name} byte {at}");
        verdicts.push((at, opened));
    }
    verdicts
}

/// Names of the files with this beginning or end, the longest first.
fn names(sample: &Sample, part: &str) -> Vec<String> {
    let fits = |name: &&String| name.starts_with(part) || name.ends_with(part);
    let mut names: Vec<_> = sample.files.keys().filter(fits).cloned().collect();
    names.sort_by_key(|name| std::cmp::Reverse(sample.files[name].len()));
    names
}

fn spread(len: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = if is_soak() { count * 10 } else { count };
    (0..len).step_by((len / count).max(1))
}

#[test]
fn open_when_a_table_is_damaged_then_it_is_found_or_harmless() {
    let sample = sample();
    let mut found = 0;
    for name in names(&sample, ".sst") {
        let len = sample.files[&name].len();
        let verdicts = flip(&sample, &name, spread(len, 40).chain(len - 60..len));
        assert!(verdicts.iter().all(|(_, verdict)| *verdict != Verdict::WithoutLastCommit), "{name} {verdicts:?}");
        found += verdicts.iter().filter(|(_, verdict)| *verdict != Verdict::Harmless).count();
    }
    assert!(found > 100, "{found}");
}

#[test]
fn open_when_the_log_is_damaged_then_only_the_last_commit_may_be_missed() {
    let sample = sample();
    let name = names(&sample, ".log").swap_remove(0);
    let len = sample.files[&name].len();
    let last = len - len / usize::try_from(LOGGED).unwrap();
    for (at, verdict) in flip(&sample, &name, spread(len, 150)) {
        match verdict {
            Verdict::WithoutLastCommit => assert!(at + 64 >= last, "byte {at} of {len}"),
            Verdict::Refused => assert!(at <= last + 64, "byte {at} of {len}"),
            other => panic!("byte {at} of {len}: {other:?}"),
        }
    }
}

#[test]
fn open_when_the_log_is_cut_then_it_ends_there() {
    let sample = sample();
    let name = names(&sample, ".log").swap_remove(0);
    let len = sample.files[&name].len();
    let dir = quick_dir();
    let path = dir.path().join("catalogue");
    for cut in [1, 2, 100, 5000] {
        for fill in [0, cut, 40_000] {
            let _ = fs::remove_dir_all(&path);
            let mut files = sample.files.clone();
            let log = files.get_mut(&name).unwrap();
            log.truncate(len - cut);
            log.resize(len - cut + fill, 0);
            write_files(&path, &files);
            assert_eq!(judge(open(&path), &sample), Verdict::WithoutLastCommit, "cut {cut}, zeros {fill}");
            let catalogue = open(&path).unwrap();
            catalogue.commit(&row(b"after", b"it")).unwrap();
            drop(catalogue);
            assert_eq!(open(&path).unwrap().get(b"after").unwrap().unwrap(), b"it");
        }
    }
}

#[test]
fn open_when_the_manifest_is_damaged_then_it_is_found_or_harmless() {
    let sample = sample();
    let name = names(&sample, "MANIFEST-").swap_remove(0);
    for (at, verdict) in flip(&sample, &name, spread(sample.files[&name].len(), 120)) {
        assert!(matches!(verdict, Verdict::Refused | Verdict::Harmless), "{name} byte {at}: {verdict:?}");
    }
}

#[test]
fn open_when_a_small_file_is_damaged_then_it_is_found_or_harmless() {
    let sample = sample();
    for part in ["CURRENT", "IDENTITY", "OPTIONS-"] {
        for name in names(&sample, part) {
            let verdicts = flip(&sample, &name, spread(sample.files[&name].len(), 20));
            let fine = |verdict: &Verdict| matches!(verdict, Verdict::Refused | Verdict::Harmless);
            assert!(verdicts.iter().all(|(_, verdict)| fine(verdict)), "{name} {verdicts:?}");
        }
    }
}

#[test]
fn open_when_a_file_is_missing_then_it_is_found_or_harmless() {
    let sample = sample();
    for name in sample.files.keys().filter(|name| !name.ends_with(".log")) {
        let dir = quick_dir();
        let path = dir.path().join("catalogue");
        let mut files = sample.files.clone();
        files.remove(name);
        write_files(&path, &files);
        let verdict = judge(open(&path), &sample);
        assert_ne!(verdict, Verdict::WithoutLastCommit, "{name}");
        let must_be_found = name.ends_with(".sst") || name.starts_with("MANIFEST") || name == "CURRENT";
        assert_eq!(must_be_found, verdict != Verdict::Harmless, "{name}: {verdict:?}");
    }
}

/// Damage in a table stops RocksDB when it merges it. The rest has to stay readable and writable.
#[test]
fn commit_when_a_merge_meets_damage_then_the_rest_goes_on() {
    let sample = sample();
    for end in [false, true] {
        let dir = quick_dir();
        let path = dir.path().join("catalogue");
        let mut files = sample.files.clone();
        let table = files.get_mut(&names(&sample, ".sst")[0]).unwrap();
        let at = if end { table.len() - 20 } else { 100 };
        table[at] ^= 0xFF;
        write_files(&path, &files);
        for round in 0..4_u8 {
            let catalogue = open(&path).unwrap();
            for number in 0..20_u8 {
                catalogue.commit(&row(&[0xFE, round, number], &noise(u64::from(number), 30_000))).unwrap();
            }
        }
        let catalogue = open(&path).unwrap();
        assert_eq!(catalogue.get(&[0xFE, 3, 7]).unwrap().unwrap(), noise(7, 30_000));
        let readable = sample.rows.iter().filter(|(key, value)| match catalogue.get(key) {
            Ok(got) => {
                assert_eq!(got.as_ref(), Some(value));
                true
            }
            Err(error) => {
                assert!(matches!(error, CatalogueError::Corrupt { .. }), "{error}");
                false
            }
        });
        let readable = readable.count();
        assert!((sample.rows.len() / 2..sample.rows.len()).contains(&readable), "{readable}, end {end}");
    }
}
