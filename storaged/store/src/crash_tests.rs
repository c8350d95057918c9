//! What is found after a kill or a power loss at any instant: everything that was acknowledged, and of the rest a
//! whole prefix in the order of submission.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use holdfast_proto::ids::VolumeId;
use proptest::prelude::*;

use crate::file_store::tests::{Step, disk, hold, model, noise, read, run, small, step, write};
use crate::file_store::{FileStore, Options};
use crate::store::{Operation, Store};
use crate::tape::{Event, Keep, Random, Tape, copy_dir, fast_dir};

const SIZE: u64 = 40 * 4096 + 2048;
const ID: VolumeId = VolumeId(1);

/// A journal that is full after a few batches, so that crashes hit checkpoints too.
fn options() -> Options {
    Options { journal_bytes: 100 << 10, reader_threads: 1 }
}

fn new_store(dir: &Path) {
    let store = FileStore::open(dir, &options()).unwrap();
    assert_eq!(store.create_volume(disk("disk0", SIZE)).unwrap().id, ID);
}

/// Submits the steps, noting every acknowledgement on the tape; gives the states that the volume went through. What is
/// between two waits goes as one batch, so that one seed gives one run.
fn run_steps(store: &FileStore, tape: &Arc<Tape>, steps: &[Step]) -> Vec<Vec<u8>> {
    let mut states = vec![vec![0; usize::try_from(SIZE).unwrap()]];
    let (sender, receiver) = mpsc::channel();
    let mut held = Some(hold(store, ID));
    let mut waiting = 0;
    for step in steps.iter().chain([&Step::Wait]) {
        let mut state = states.last().unwrap().clone();
        if let Some(operation) = model(&mut state, step) {
            states.push(state);
            let (sender, tape, number) = (sender.clone(), Arc::clone(tape), states.len() - 1);
            let done = Box::new(move |result: Result<_, _>| {
                if result.is_ok() {
                    tape.ack(number);
                }
                sender.send(()).unwrap();
            });
            store.submit(ID, operation, done);
            waiting += 1;
        } else {
            held.take();
            (0..std::mem::take(&mut waiting)).for_each(|_| receiver.recv().unwrap());
            held = Some(hold(store, ID));
        }
    }
    states
}

fn last_acked(events: &[Event]) -> usize {
    let acked = events.iter().filter_map(|event| match event {
        Event::Acked(number) => Some(*number),
        _ => None,
    });
    acked.max().unwrap_or(0)
}

/// Opens what a crash left; the volume must be in one of the states from `acked` on, and the store must go on working.
fn check(dir: &Path, states: &[Vec<u8>], acked: usize, what: &str) {
    let store = FileStore::open(dir, &options()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = read(&store, ID, 0, SIZE).unwrap_or_else(|error| panic!("{what}: {error}"));
    let is_allowed = states[acked..].contains(&found);
    assert!(is_allowed, "{what}: not a state from {acked} on, but {:?}", states.iter().position(|s| *s == found));
    write(&store, ID, 700, noise(99, 6000)).unwrap();
    drop(store);
    let store = FileStore::open(dir, &options()).unwrap();
    assert_eq!(read(&store, ID, 700, 6000).unwrap(), noise(99, 6000), "{what}");
}

/// Steps that do not reopen.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = step().prop_map(|step| if matches!(step, Step::Reopen) { Step::Wait } else { step });
    prop::collection::vec(step, 5..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn c1_process_when_killed_at_any_write_then_acked_present_and_the_rest_whole(steps in steps(), seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let base = fast_dir();
        new_store(base.path());
        let mut complete = false;
        for events in 0.. {
            let dir = fast_dir();
            copy_dir(base.path(), dir.path());
            let tape = Tape::attach(dir.path());
            let store = FileStore::open(dir.path(), &options()).unwrap();
            // The write that is cut off leaves a part that ends anywhere.
            tape.power_off_after(events, usize::try_from(random.below(9000)).unwrap());
            let states = run_steps(&store, &tape, &steps);
            let acked = last_acked(&tape.events());
            complete |= acked == states.len() - 1;
            drop(store);
            let image = fast_dir();
            copy_dir(dir.path(), image.path());
            check(image.path(), &states, acked, &format!("killed after {events} events"));
            if complete {
                break;
            }
        }
    }

    #[test]
    fn c3_power_when_lost_at_any_event_then_acked_present_and_the_rest_whole(steps in steps(), seed in any::<u64>()) {
        let mut random = Random::new(seed);
        let base = fast_dir();
        new_store(base.path());
        let dir = fast_dir();
        copy_dir(base.path(), dir.path());
        let tape = Tape::attach(dir.path());
        let store = FileStore::open(dir.path(), &options()).unwrap();
        let states = run_steps(&store, &tape, &steps);
        drop(store);
        let events = tape.events();
        for cut in 0..=events.len() {
            // Nothing of what was not synced is there, or everything, or some sectors.
            for percent in [0, 100, 50] {
                let image = fast_dir();
                copy_dir(base.path(), image.path());
                let keep = || if random.below(100) < percent { Keep::Yes } else { Keep::No };
                Tape::after_power_loss(&events[..cut], image.path(), keep);
                let acked = last_acked(&events[..cut]);
                check(image.path(), &states, acked, &format!("{cut} of {} events, {percent} %", events.len()));
            }
        }
    }
}

/// A directory whose volume has nothing of what its journal holds: three batches of two blocks, an unaligned piece and a
/// hole. With the states of the volume after 0 to 3 batches, and the end of each batch in the journal.
fn journal_only(dir: &Path) -> (Vec<Vec<u8>>, Vec<usize>) {
    new_store(dir);
    let live = fast_dir();
    copy_dir(dir, live.path());
    let tape = Tape::attach(live.path());
    let store = FileStore::open(live.path(), &options()).unwrap();
    let steps = [
        Step::Write { offset: 4096, len: 8192, seed: 1 },
        Step::Wait,
        Step::Write { offset: 5000, len: 100, seed: 2 },
        Step::Wait,
        Step::Unmap { offset: 8192, len: 4096 },
    ];
    let states = run_steps(&store, &tape, &steps);
    let mut ends = vec![8192];
    let journal = |event: &Event| match event {
        Event::Write { file, offset, bytes } if file == Path::new("journal") && *offset >= 8192 => {
            ends.push(usize::try_from(*offset).unwrap() + bytes.len());
            true
        }
        Event::Sync { file } => file == Path::new("journal"),
        _ => false,
    };
    let events: Vec<Event> = tape.events().into_iter().filter(journal).collect();
    Tape::after_power_loss(&events, dir, || Keep::Yes);
    drop(store);
    (states, ends)
}

/// The state of the volume, or the message that the store was refused with.
fn outcome(dir: &Path) -> Result<Vec<u8>, String> {
    let store = FileStore::open(dir, &options()).map_err(|error| error.to_string())?;
    Ok(read(&store, ID, 0, SIZE).unwrap())
}

#[test]
fn journal_when_cut_at_any_byte_then_the_whole_batches_before_it_are_there() {
    let base = fast_dir();
    let (states, ends) = journal_only(base.path());
    assert_eq!(ends, [8192, 20_480, 28_672, 32_768]);
    let whole = fs::read(base.path().join("journal")).unwrap();
    let cuts = (8192..=32_768).filter(|cut| cut % 4096 < 200 || cut % 61 == 0);
    for cut in cuts {
        let image = fast_dir();
        copy_dir(base.path(), image.path());
        fs::write(image.path().join("journal"), &whole[..cut]).unwrap();
        let batches = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert!(outcome(image.path()).unwrap() == states[batches], "cut at byte {cut}");
    }
    for cut in [0, 47, 4096, 8191] {
        let image = fast_dir();
        copy_dir(base.path(), image.path());
        fs::write(image.path().join("journal"), &whole[..cut]).unwrap();
        let error = outcome(image.path()).unwrap_err();
        assert!(error.contains("no valid header"), "cut at byte {cut}: {error}");
    }
}

#[test]
fn c4_journal_when_any_byte_is_damaged_then_refused_unless_it_could_be_a_torn_tail() {
    let base = fast_dir();
    let (states, ends) = journal_only(base.path());
    let whole = fs::read(base.path().join("journal")).unwrap();
    let mut random = Random::new(3);
    let mut refused = 0;
    let places = (0..ends[3]).filter(|at| at % 4096 < 200 || at % 61 == 0);
    for at in places {
        let image = fast_dir();
        copy_dir(base.path(), image.path());
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << random.below(8);
        fs::write(image.path().join("journal"), bytes).unwrap();
        match outcome(image.path()) {
            // A byte that carries nothing, or the other header.
            Ok(found) if found == states[3] => {}
            // The last batch cannot be told from one that was torn.
            Ok(found) => assert!(at >= ends[2] && found == states[2], "byte {at}"),
            Err(error) => {
                assert!(at < ends[2], "byte {at}: {error}");
                assert!(error.contains("corrupt"), "byte {at}: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 400, "{refused}");
}

#[test]
fn c4_journal_when_of_another_disk_then_refused() {
    let (one, other) = (fast_dir(), fast_dir());
    journal_only(one.path());
    new_store(other.path());
    fs::copy(one.path().join("journal"), other.path().join("journal")).unwrap();
    assert!(outcome(other.path()).unwrap_err().contains("no valid header of this disk"));
}

#[test]
fn journal_when_started_anew_then_old_batches_are_never_replayed() {
    let dir = fast_dir();
    let (states, ends) = journal_only(dir.path());
    let old = fs::read(dir.path().join("journal")).unwrap();
    assert!(outcome(dir.path()).unwrap() == states[3]);
    // The same batches under a header of the next generation, as if its first batch had not been written yet.
    let store = FileStore::open(dir.path(), &options()).unwrap();
    write(&store, ID, 4096, noise(7, 8192)).unwrap();
    run(&store, ID, Operation::Flush).unwrap();
    drop(store);
    let mut journal = fs::read(dir.path().join("journal")).unwrap();
    journal[8192..ends[3]].copy_from_slice(&old[8192..ends[3]]);
    fs::write(dir.path().join("journal"), journal).unwrap();
    let store = FileStore::open(dir.path(), &small()).unwrap();
    assert_eq!(read(&store, ID, 4096, 8192).unwrap(), noise(7, 8192));
}

#[test]
fn journal_when_a_later_hole_covers_a_write_then_the_write_is_not_repeated() {
    let base = fast_dir();
    new_store(base.path());
    let live = fast_dir();
    copy_dir(base.path(), live.path());
    let tape = Tape::attach(live.path());
    let store = FileStore::open(live.path(), &options()).unwrap();
    let steps = [
        Step::Write { offset: 0, len: 4 * 4096, seed: 1 },
        Step::Wait,
        Step::Unmap { offset: 4096, len: 2 * 4096 },
        Step::Wait,
        Step::Write { offset: 10 * 4096, len: 2 * 4096, seed: 2 },
        Step::Wait,
        // One block of the hole again: the later write does count.
        Step::Write { offset: 2 * 4096, len: 4096, seed: 3 },
    ];
    let states = run_steps(&store, &tape, &steps);
    let journal: Vec<Event> = tape
        .events()
        .into_iter()
        .filter(
            |event| matches!(event, Event::Write { file, .. } | Event::Sync { file } if file == Path::new("journal")),
        )
        .take_while(|event| !matches!(event, Event::Write { offset: ..8192, .. }))
        .collect();
    Tape::after_power_loss(&journal, base.path(), || Keep::Yes);
    drop(store);

    let tape = Tape::attach(base.path());
    assert!(outcome(base.path()).unwrap() == states[4]);
    let mut written: Vec<u64> = tape
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::Write { file, offset, bytes } if file == Path::new("volumes/1/data.0") => {
                Some(*offset / 4096..(*offset + bytes.len() as u64) / 4096)
            }
            _ => None,
        })
        .flatten()
        .collect();
    written.sort_unstable();
    assert_eq!(written, [0, 2, 3, 10, 11]);
}
