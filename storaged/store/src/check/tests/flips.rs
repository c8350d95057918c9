//! Any byte of a stopped store is turned: the check finds it, or nothing depends on it; and what is read afterwards is right, or an
//! error (done-when 4 of the engine's issue: each found, none served).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use super::*;
use crate::catalogue::quick_dir;
use crate::catalogue::rocks::{RocksCatalogue, RocksSettings};
use crate::device::FileDevice;
use crate::device::sim::Random;
use crate::directory::{self, Opened};
use crate::store::{Operation, Store};
use crate::{DiskStore, Options};

/// Blocks of the shard that are written.
const BLOCKS: u32 = 1024;

/// A stopped store: its files, and what its blocks hold.
struct Stopped {
    files: BTreeMap<PathBuf, Vec<u8>>,
    content: Vec<u8>,
}

/// How the store is stopped.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// The process is killed: RocksDB's last commits are in its log only.
    Killed,
    /// The process has closed RocksDB, but the journal holds live batches.
    Closed,
}

fn build(seed: u64, stop: Stop) -> Stopped {
    let dir = quick_dir();
    let Opened::Empty(new) = directory::open(dir.path(), 1).unwrap() else { panic!("the directory is not empty") };
    let identity = new.identity();
    let superblock = Superblock::new(identity.uuid, identity.node_id, [9; 16], 8 << 20).unwrap();
    let device = FileDevice::create(&new.data_path(), 0).unwrap();
    let catalogue = RocksCatalogue::open(&new.catalogue_path(), &RocksSettings::default()).unwrap();
    let mut bench = Bench::make(device, catalogue, superblock, 192);
    let directory = new.complete().unwrap();
    let mut random = Random::new(seed);
    let mut content = vec![0; BLOCKS as usize];
    for round in 0..3 {
        for _ in 0..60 {
            mutate(&mut bench, &mut random, &mut content);
        }
        if round < 2 {
            bench.checkpoint();
        }
    }
    bench.seal();
    let files = match stop {
        Stop::Killed => files_of(dir.path()),
        Stop::Closed => {
            drop(bench);
            files_of(dir.path())
        }
    };
    drop(directory);
    Stopped { files, content }
}

fn mutate(bench: &mut Bench<FileDevice, RocksCatalogue>, random: &mut Random, content: &mut [u8]) {
    let byte = u8::try_from(random.index(250) + 1).unwrap();
    let (first, len) = match random.index(4) {
        0 => (random.index(BLOCKS as usize / 16) * 16, 16),
        _ => {
            let len = random.index(20) + 1;
            (random.index(BLOCKS as usize - len), len)
        }
    };
    let first_block = u32::try_from(first).unwrap();
    if random.index(5) == 0 {
        bench.change(Change::Hole { first_block, blocks: u32::try_from(len).unwrap() });
        content[first..first + len].fill(0);
    } else {
        bench.write(first_block, &vec![byte; len]);
        content[first..first + len].fill(byte);
    }
}

fn files_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for folder in [dir.to_owned(), dir.join("catalogue")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                files.insert(path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

impl Stopped {
    fn restore(&self) -> tempfile::TempDir {
        let dir = quick_dir();
        fs::create_dir(dir.path().join("catalogue")).unwrap();
        for (path, bytes) in &self.files {
            fs::write(dir.path().join(path), bytes).unwrap();
        }
        dir
    }

    /// A byte that was written, of any file.
    fn choose(&self, random: &mut Random) -> (PathBuf, usize) {
        let of_catalogue = random.index(2) == 0;
        let files: Vec<&PathBuf> = self
            .files
            .iter()
            .filter(|(path, bytes)| path.starts_with("catalogue") == of_catalogue && !bytes.is_empty())
            .map(|(path, _)| path)
            .collect();
        let path =
            if !of_catalogue && random.index(10) > 0 { Path::new("data") } else { files[random.index(files.len())] };
        let bytes = &self.files[path];
        let is_written = |page: &usize| bytes[page * 4096..].iter().take(4096).any(|byte| *byte != 0);
        let pages: Vec<usize> = (0..bytes.len().div_ceil(4096)).filter(is_written).collect();
        let page = pages[random.index(pages.len())];
        let len = (bytes.len() - page * 4096).min(4096);
        (path.to_owned(), page * 4096 + random.index(len))
    }

    /// What every block reads as; `None` where it is an error.
    fn read_all(dir: &Path) -> Result<Vec<Option<Vec<u8>>>, OpenError> {
        let store = DiskStore::open(dir, &Options { space_reserve_bytes: 0, ..Options::default() })?;
        let (send, receive) = mpsc::channel();
        let read = |block: u32| {
            let send = send.clone();
            let offset = SHARD_AT + u64::from(block) * BLOCK_LEN as u64;
            let operation = Operation::Read { offset, len: BLOCK_LEN as u64 };
            store.submit(VolumeId(1), operation, Box::new(move |result| send.send(result).unwrap()));
            receive.recv().unwrap().ok().map(|output| output.data.concat())
        };
        Ok((0..BLOCKS).map(read).collect())
    }
}

fn flip_and_check(stopped: &Stopped, path: &Path, at: usize, bits: u8) -> bool {
    let dir = stopped.restore();
    let file = dir.path().join(path);
    let mut bytes = stopped.files[path].clone();
    bytes[at] ^= bits;
    fs::write(&file, &bytes).unwrap();
    let before = files_of(dir.path());
    let mut seen = Seen::default();
    let summary = check(dir.path(), &mut seen);
    assert!(files_of(dir.path()) == before, "the check has changed the store");
    let is_clean = summary.as_ref().is_ok_and(Summary::is_clean);
    match Stopped::read_all(dir.path()) {
        Err(error) => assert!(!is_clean, "found nothing, and it cannot be opened: {error}"),
        Ok(blocks) => {
            for (block, (read, expected)) in blocks.iter().zip(&stopped.content).enumerate() {
                match read {
                    Some(read) => assert!(read.iter().all(|byte| byte == expected), "wrong bytes in block {block}"),
                    None => assert!(!is_clean, "found nothing, and block {block} cannot be read"),
                }
            }
        }
    }
    !is_clean
}

#[test]
fn c4_c5_check_when_any_byte_of_a_stopped_store_is_turned_then_found_or_nothing_depends_on_it() {
    let soak = std::env::var("HOLDFAST_SOAK").is_ok_and(|value| value == "1");
    let seed = std::env::var("HOLDFAST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let flips = if soak { 1000 } else { 40 };
    let mut random = Random::new(seed);
    for stop in [Stop::Killed, Stop::Closed] {
        let stopped = build(seed, stop);
        let dir = stopped.restore();
        let mut seen = Seen::default();
        let summary = check(dir.path(), &mut seen).unwrap();
        assert!(summary.is_clean() && summary.batches > 50, "{stop:?}: {seen:?}");
        let mut found = 0;
        for _ in 0..flips {
            let (path, at) = stopped.choose(&mut random);
            let bits = u8::try_from(random.index(255) + 1).unwrap();
            println!("HOLDFAST_SEED={seed} {stop:?}: {} byte {at} ^ {bits:#04x}", path.display());
            found += usize::from(flip_and_check(&stopped, &path, at, bits));
        }
        println!("{stop:?}: {found} of {flips} found");
        assert!(found * 4 > flips, "most written bytes are worth something: {found} of {flips}");
    }
}

#[test]
fn check_when_a_table_of_the_catalogue_cannot_be_opened_then_found_and_the_rest_checked() {
    let stopped = build(6, Stop::Closed);
    let tables = stopped.files.iter().filter(|(path, _)| path.extension().is_some_and(|extension| extension == "sst"));
    for (path, bytes) in tables {
        let dir = stopped.restore();
        let mut cut = bytes.clone();
        // The footer, without which nothing in the table is found.
        let footer = cut.len() - 20;
        cut[footer..].fill(0);
        fs::write(dir.path().join(path), cut).unwrap();
        let mut seen = Seen::default();
        let summary = check(dir.path(), &mut seen).unwrap();
        assert!(summary.damage > 0 && seen.findings[0].problem == Problem::Catalogue, "{:?}", seen.findings);
        assert!(seen.findings.len() < 100, "damage is told by what it hits, not byte by byte: {}", seen.findings.len());
    }
}

#[test]
fn check_when_a_part_is_missing_or_cut_then_found_and_the_rest_checked() {
    let stopped = build(5, Stop::Closed);
    let found = |damage: &dyn Fn(&Path)| {
        let dir = stopped.restore();
        damage(dir.path());
        let mut seen = Seen::default();
        let summary = check(dir.path(), &mut seen).unwrap();
        (seen.findings.iter().map(|finding| finding.problem).collect::<Vec<_>>(), summary)
    };
    let (problems, summary) = found(&|dir| fs::remove_file(dir.join("data")).unwrap());
    assert_eq!((problems, summary.volumes), (vec![Problem::DataFile], 1));
    let (problems, _) = found(&|dir| fs::remove_dir_all(dir.join("catalogue")).unwrap());
    assert_eq!(problems, [Problem::Catalogue]);
    let (problems, summary) =
        found(&|dir| fs::write(dir.join("format"), [b"HFSTORE\0\x02\0\0\0", &[0; 36][..]].concat()).unwrap());
    assert_eq!(problems, [Problem::Identity]);
    assert!(summary.chunks > 10 && summary.batches > 50, "{summary:?}");
    let (problems, summary) = found(&|dir| {
        let data = dir.join("data");
        let bytes = fs::read(&data).unwrap();
        fs::write(&data, &bytes[..bytes.len() - 100]).unwrap();
    });
    assert_eq!((problems, summary.volumes), (vec![Problem::DataFile], 1));
    let dir = stopped.restore();
    let Opened::Store(held) = directory::open(dir.path(), 1).unwrap() else { panic!("there is no store") };
    assert!(matches!(check(dir.path(), &mut Seen::default()), Err(OpenError::InUse(_))));
    drop(held);
    let empty = quick_dir();
    assert!(matches!(check(empty.path(), &mut Seen::default()), Err(OpenError::Io(_))));
}
