use std::collections::BTreeMap;
use std::ops::ControlFlow;

use tempfile::TempDir;

use super::*;
use crate::catalogue::quick_dir;

mod damage;
mod full;
mod kill;

/// Names and contents of the files of a directory.
type Files = BTreeMap<String, Vec<u8>>;

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Little, so that tables are written and merged within a test.
const SMALL: RocksSettings = RocksSettings { memory_bytes: 4 << 20, open_files: 16 };

fn is_soak() -> bool {
    std::env::var("HOLDFAST_SOAK").is_ok_and(|value| value == "1")
}

fn open(dir: &Path) -> Result<RocksCatalogue, CatalogueError> {
    RocksCatalogue::open(dir, &SMALL)
}

fn read_files(dir: &Path) -> Files {
    let file = |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
    fs::read_dir(dir).unwrap().map(|entry| file(entry.unwrap())).collect()
}

fn write_files(dir: &Path, files: &Files) {
    fs::create_dir_all(dir).unwrap();
    for (name, content) in files {
        fs::write(dir.join(name), content).unwrap();
    }
}

/// All rows that can be read in order, and how it ended.
fn scan(catalogue: &RocksCatalogue) -> (Rows, Result<(), CatalogueError>) {
    let mut rows = Vec::new();
    let result = catalogue.range(b"", &[0xFF; 9], &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    (rows, result)
}

fn puts(rows: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Changes {
    Changes { puts: rows.into_iter().collect(), ..Changes::default() }
}

fn row(key: &[u8], value: &[u8]) -> Changes {
    puts([(key.to_vec(), value.to_vec())])
}

/// Bytes that no compression makes smaller.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

fn failed<T>(result: Result<T, CatalogueError>) -> String {
    match result {
        Err(CatalogueError::Failed { detail }) => detail,
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

#[test]
fn open_when_open_already_then_refused() {
    let dir = quick_dir();
    let path = dir.path().join("catalogue");
    let first = open(&path).unwrap();
    assert!(failed(open(&path)).contains("lock"));
    drop(first);
    open(&path).unwrap();
}

#[test]
fn open_when_a_creation_was_interrupted_then_it_starts_again() {
    let dir = quick_dir();
    let new = dir.path().join("catalogue.new");
    write_files(&new, &Files::from([("CURRENT".to_owned(), b"half of it".to_vec()), ("x.log".to_owned(), vec![1])]));
    let catalogue = open(&dir.path().join("catalogue")).unwrap();
    catalogue.commit(&row(b"a", b"1")).unwrap();
    assert!(!new.exists());
}

#[test]
fn open_when_the_directory_holds_something_else_then_nothing_is_made_there() {
    let dir = quick_dir();
    for files in [
        Files::new(),
        Files::from([("letter.txt".to_owned(), b"dear".to_vec())]),
        Files::from([("CURRENT".to_owned(), b"MANIFEST-000077\n".to_vec())]),
    ] {
        let path = dir.path().join(format!("other{}", files.keys().next().map_or("", String::as_str)));
        write_files(&path, &files);
        let error = open(&path).unwrap_err();
        assert!(!matches!(error, CatalogueError::NoSpace { .. }), "{error}");
        for (name, content) in &files {
            assert_eq!(&fs::read(path.join(name)).unwrap(), content);
        }
        assert!(!path.join("CURRENT").exists() || files.contains_key("CURRENT"));
    }
}

#[test]
fn open_when_the_parent_is_missing_or_a_file_then_a_clear_error() {
    let dir = quick_dir();
    assert!(failed(open(&dir.path().join("no/catalogue"))).contains("no/catalogue"));
    let file = dir.path().join("file");
    fs::write(&file, b"x").unwrap();
    assert!(failed(open(&file)).contains("file"));
}

#[test]
fn open_read_only_when_there_is_an_unflushed_log_then_it_is_read_and_no_byte_changes() {
    let dir = quick_dir();
    let path = dir.path().join("catalogue");
    let catalogue = open(&path).unwrap();
    catalogue.commit(&row(b"a", b"1")).unwrap();
    let copy = dir.path().join("copy");
    write_files(&copy, &read_files(&path));
    let before = read_files(&copy);
    assert!(before.iter().any(|(name, content)| name.ends_with(".log") && !content.is_empty()));

    let reader = RocksCatalogue::open_read_only(&copy, &SMALL).unwrap();
    assert_eq!(reader.get(b"a").unwrap().unwrap(), b"1");
    assert_eq!(scan(&reader), (vec![(b"a".to_vec(), b"1".to_vec())], Ok(())));
    failed(reader.commit(&row(b"b", b"2")));
    drop(reader);
    assert_eq!(read_files(&copy), before);
    failed(RocksCatalogue::open_read_only(&dir.path().join("absent"), &SMALL));
    assert!(!dir.path().join("absent").exists());
}

#[test]
fn drop_when_closed_then_the_log_holds_no_commit() {
    let dir = quick_dir();
    let path = dir.path().join("catalogue");
    let catalogue = open(&path).unwrap();
    catalogue.commit(&row(b"a", &noise(1, 5000))).unwrap();
    drop(catalogue);
    let files = read_files(&path);
    assert!(files.iter().any(|(name, content)| name.ends_with(".sst") && content.len() > 5000), "{:?}", files.keys());
    assert!(files.iter().all(|(name, content)| !name.ends_with(".log") || content.len() < 100));
    assert!(!files.contains_key("LOG"), "RocksDB writes a log of its own");
}

#[test]
fn options_when_much_is_written_then_files_stay_few() {
    let dir = quick_dir();
    let path = dir.path().join("catalogue");
    let catalogue = open(&path).unwrap();
    for round in 0..100_u64 {
        let rows = (0..64_u32).map(|at| (at.to_be_bytes().to_vec(), noise(round, 2000)));
        catalogue.commit(&puts(rows)).unwrap();
    }
    let statistics = catalogue.statistics();
    assert_eq!((statistics.commits, statistics.syncs >= 100), (100, true), "{statistics:?}");
    assert!(statistics.flushed_bytes > 0, "{statistics:?}");
    assert!(statistics.disk_bytes < 12 << 20, "{statistics:?}");
    assert!(fs::read_dir(&path).unwrap().count() < 30);
}
