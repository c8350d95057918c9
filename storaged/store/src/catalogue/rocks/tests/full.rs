//! A full disk: a small file system in memory, which only root can mount.

use std::process::Command;

use super::*;

/// A tmpfs of a few MiB; `None` when it cannot be mounted.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    fn mount(mib: usize) -> Option<Self> {
        let dir = quick_dir();
        let size = format!("size={mib}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "holdfast-test"]).arg(dir.path()).output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self { dir })
    }

    /// Takes all space but `free` bytes.
    fn fill(&self, free: u64) {
        let stat = rustix::fs::statvfs(self.dir.path()).unwrap();
        let bytes = (stat.f_bavail * stat.f_frsize).saturating_sub(free);
        fs::write(self.dir.path().join("ballast"), vec![0; usize::try_from(bytes).unwrap()]).unwrap();
    }

    fn make_room(&self) {
        fs::remove_file(self.dir.path().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.dir.path()).status();
    }
}

/// The gate counts these.
fn skipped(test: &str) {
    let line = format!("{test}: only root can mount a small file system\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("HOLDFAST_SKIPPED") {
        let file = File::options().append(true).create(true).open(path);
        file.and_then(|mut file| io::Write::write_all(&mut file, line.as_bytes())).unwrap();
    }
}

fn is_full(result: &Result<(), CatalogueError>) -> bool {
    matches!(result, Err(CatalogueError::NoSpace { .. }))
}

/// Every commit writes the same rows anew, so that what is live stays small.
fn commit(catalogue: &RocksCatalogue, number: u64) -> Result<(), CatalogueError> {
    catalogue.commit(&puts((0..40_u8).map(|at| (vec![at], noise(number * 64 + u64::from(at), 2000)))))
}

fn check(catalogue: &RocksCatalogue, number: u64) {
    let (rows, result) = scan(catalogue);
    result.unwrap();
    let expected: Rows = (0..40_u8).map(|at| (vec![at], noise(number * 64 + u64::from(at), 2000))).collect();
    assert!(rows == expected, "not what commit {number} wrote");
    assert_eq!(catalogue.get(&[7]).unwrap().unwrap(), expected[7].1);
}

#[test]
fn commit_when_the_disk_is_full_then_nothing_changes_and_it_goes_on_when_there_is_space() {
    for free_kib in [0, 40, 300, 1500] {
        let Some(disk) = SmallDisk::mount(32) else {
            return skipped("commit_when_the_disk_is_full_then_nothing_changes_and_it_goes_on_when_there_is_space");
        };
        let path = disk.dir.path().join("catalogue");
        let mut catalogue = open(&path).unwrap();
        let mut last = 0;
        for number in 1..=5 {
            commit(&catalogue, number).unwrap();
            last = number;
        }
        disk.fill(free_kib << 10);
        // Until it is full, and then three times more.
        let mut full = 0;
        for number in 6..2000 {
            let result = commit(&catalogue, number);
            if is_full(&result) {
                full += 1;
            } else {
                result.unwrap();
                last = number;
            }
            check(&catalogue, last);
            if full == 4 {
                break;
            }
        }
        assert_eq!(full, 4, "{free_kib} KiB free");
        disk.make_room();
        commit(&catalogue, 3000).unwrap();
        check(&catalogue, 3000);
        for number in 3001..3050 {
            commit(&catalogue, number).unwrap();
        }
        drop(catalogue);
        catalogue = open(&path).unwrap();
        check(&catalogue, 3049);
    }
}

/// Where not even opening finds space, reads go on.
#[test]
fn reopen_when_the_disk_is_full_then_everything_is_still_read_until_there_is_space() {
    let Some(disk) = SmallDisk::mount(24) else {
        return skipped("reopen_when_the_disk_is_full_then_everything_is_still_read_until_there_is_space");
    };
    let catalogue = open(&disk.dir.path().join("catalogue")).unwrap();
    commit(&catalogue, 1).unwrap();
    // Behind what `check` looks at: opening wants to write all of it as a table.
    let many = (0..200_u8).map(|at| ([[0xFF; 10].as_slice(), &[at]].concat(), noise(u64::from(at), 4000)));
    catalogue.commit(&puts(many)).unwrap();
    disk.fill(0);
    let result = catalogue.reopen(false);
    assert!(is_full(&result), "{result:?}");
    check(&catalogue, 1);
    catalogue.writer().condition = Condition::Full;
    assert!(is_full(&commit(&catalogue, 2)));
    check(&catalogue, 1);
    disk.make_room();
    commit(&catalogue, 2).unwrap();
    check(&catalogue, 2);
}

/// The process dies while the disk is full: what was committed is there at the next start.
#[test]
fn open_when_the_disk_was_full_then_the_last_commit_is_there() {
    let Some(disk) = SmallDisk::mount(24) else {
        return skipped("open_when_the_disk_was_full_then_the_last_commit_is_there");
    };
    let path = disk.dir.path().join("catalogue");
    let catalogue = open(&path).unwrap();
    commit(&catalogue, 1).unwrap();
    disk.fill(200 << 10);
    let mut last = 1;
    while commit(&catalogue, last + 1).is_ok() {
        last += 1;
    }
    let copy = quick_dir();
    let path = copy.path().join("catalogue");
    write_files(&path, &read_files(&disk.dir.path().join("catalogue")));
    check(&RocksCatalogue::open_read_only(&path, &SMALL).unwrap(), last);
    check(&open(&path).unwrap(), last);
}

#[test]
fn open_when_the_disk_is_full_at_creation_then_no_space_and_nothing_is_left_in_the_way() {
    let Some(disk) = SmallDisk::mount(4) else {
        return skipped("open_when_the_disk_is_full_at_creation_then_no_space_and_nothing_is_left_in_the_way");
    };
    let path = disk.dir.path().join("catalogue");
    disk.fill(0);
    let error = open(&path).unwrap_err();
    assert!(matches!(error, CatalogueError::NoSpace { .. }), "{error}");
    assert!(!path.exists());
    disk.make_room();
    commit(&open(&path).unwrap(), 1).unwrap();
}
