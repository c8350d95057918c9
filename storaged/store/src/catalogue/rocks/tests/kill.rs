//! kill -9 in the middle of commits.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::*;

/// Tells the child which catalogue to write to.
const DIR_VARIABLE: &str = "HOLDFAST_CATALOGUE_KILL_DIR";

const ROWS: u32 = 100;

/// Batch `number` gives every row a value that names it, and moves the one row of the range `x`.
fn batch(number: u64) -> Changes {
    let value = |at: u32| [number.to_le_bytes().as_slice(), &noise(number ^ u64::from(at), 700)].concat();
    let mut changes = puts((0..ROWS).map(|at| ([b"r".as_slice(), &at.to_be_bytes()].concat(), value(at))));
    changes.delete_range(b"x".as_slice(), b"y".as_slice());
    changes.put([b"x".as_slice(), &number.to_be_bytes()].concat(), number.to_le_bytes());
    changes
}

/// Which batch a catalogue holds: the last one, whole. 0 when none.
fn batch_in(catalogue: &RocksCatalogue) -> u64 {
    let (rows, result) = scan(catalogue);
    result.unwrap();
    let Some((_, last)) = rows.last() else { return 0 };
    let number = u64::from_le_bytes(last.as_slice().try_into().unwrap());
    let mut expected = batch(number).puts;
    expected.sort();
    assert!(rows == expected, "not all of batch {number}: {} rows", rows.len());
    number
}

#[test]
#[ignore = "what the killed process does"]
fn child() {
    let Some(dir) = std::env::var_os(DIR_VARIABLE) else { return };
    let catalogue = open(Path::new(&dir)).unwrap();
    let first = batch_in(&catalogue) + 1;
    for number in first.. {
        catalogue.commit(&batch(number)).unwrap();
        let mut out = io::stdout().lock();
        writeln!(out, "committed {number}").unwrap();
        out.flush().unwrap();
    }
}

fn spawn(dir: &Path) -> Child {
    let module = module_path!().split_once("::").unwrap().1;
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("{module}::child"), "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(DIR_VARIABLE, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn commit_when_the_process_is_killed_then_reported_batches_are_there_and_the_last_is_whole_or_absent() {
    let dir = quick_dir();
    let path = dir.path().join("catalogue");
    let mut reported = 0;
    let (mut kept, rounds) = (0, if is_soak() { 100 } else { 10 });
    for round in 0..rounds {
        let dice = noise(round, 3);
        let mut child = spawn(&path);
        let stdout = child.stdout.take().unwrap();
        let numbers = BufReader::new(stdout).lines().map_while(Result::ok);
        let mut numbers = numbers.filter_map(|line| line.rsplit_once("committed ")?.1.trim().parse::<u64>().ok());
        // The moment is somewhere in the commit after a chosen one; the first rounds may hit the creation.
        for number in numbers.by_ref().take(usize::from(dice[0] / 3)) {
            reported = number;
        }
        std::thread::sleep(Duration::from_micros(u64::from(dice[1]) * 16 + u64::from(dice[2])));
        child.kill().unwrap();
        for number in numbers {
            reported = number;
        }
        child.wait().unwrap();

        let catalogue = open(&path).unwrap();
        let found = batch_in(&catalogue);
        assert!(found == reported || found == reported + 1, "reported {reported}, found {found}, round {round}");
        kept += u64::from(found > reported);
        reported = found;
    }
    println!("{rounds} kills, {reported} batches, {kept} of those in flight kept");
    assert!(reported > rounds);
}
