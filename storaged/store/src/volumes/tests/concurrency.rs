//! Many operations in flight, of any alignment, around a border of shards and up to the end of the volume: each byte
//! stays a register, whatever the engine completes first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::history::{Action, Event, judge};
use super::*;

/// The part of the volume that is used: three blocks before the border of the shards, and four and a half behind.
const FROM: u64 = SHARD_BYTES - 3 * 4096;
const END: u64 = SHARD_BYTES + 4 * 4096 + 2048;

/// A range of that part: whole blocks, sectors, or any bytes.
fn range(random: &mut Random) -> (u64, u64) {
    let unit = [4096, 512, 1][usize::try_from(random.below(3)).unwrap()];
    let offset = FROM + random.below(END - FROM) / unit * unit;
    let most = if random.below(2) == 0 { 1500 } else { 12_000 };
    let len = (1 + random.below(most)).next_multiple_of(unit).min(END - offset);
    (offset, len)
}

/// A random operation, and the event that it is; each write has a value of its own.
fn operation(random: &mut Random, value: u8) -> (Operation, Event) {
    let (offset, len) = range(random);
    let index = |at: u64| usize::try_from(at - FROM).unwrap();
    let (operation, action) = match random.below(8) {
        0..4 => (write_of(offset, vec![value; usize::try_from(len).unwrap()]), Action::Set(value)),
        4 => (Operation::Unmap { offset, len }, Action::Set(0)),
        5..8 => (Operation::Read { offset, len }, Action::Saw(Vec::new())),
        _ => unreachable!(),
    };
    (operation, Event { range: index(offset)..index(offset + len), invoked: 0, answered: u64::MAX, action })
}

/// The outcome as it goes into the event.
fn note(event: &mut Event, result: Outcome, now: u64) {
    event.answered = now;
    let output = result.unwrap();
    if let Action::Saw(data) = &mut event.action {
        let offset = FROM + event.range.start as u64;
        assert_eq!(checksum::verify(offset, &output.data, &output.checksums), Ok(()));
        *data = output.data.concat();
    }
}

fn small_volume(fake: Fake) -> Bench {
    let bench = Bench::new(fake);
    let id = bench.volumes.create_volume(disk("small", END)).unwrap().id;
    Bench { id, ..bench }
}

/// One run on one thread; the seed decides about everything.
fn simulate(seed: u64, locks: bool) -> Result<(), String> {
    let bench = small_volume(Fake::new(seed));
    if !locks {
        bench.volumes.get(bench.id).unwrap().switch_locks_off();
    }
    let mut random = Random::new(seed ^ 0x5eed);
    let most_in_flight = 1 + random.below(12);
    let events = Arc::new(Mutex::new(Vec::<Event>::new()));
    let clock = Arc::new(AtomicU64::new(0));
    let in_flight = Arc::new(AtomicU64::new(0));
    for value in 1..=60 {
        while in_flight.load(Ordering::Relaxed) >= most_in_flight || random.below(3) == 0 {
            if !bench.fake.step() {
                break;
            }
        }
        if random.below(10) == 0 {
            let before = events.lock().unwrap().len();
            let events = Arc::clone(&events);
            let done = move |result: Outcome| {
                result.unwrap();
                let events = events.lock().unwrap();
                assert!(events[..before].iter().all(|event| event.answered < u64::MAX), "flush came too early");
            };
            bench.volumes.submit(bench.id, Operation::Flush, Box::new(done));
            continue;
        }
        let (operation, mut event) = operation(&mut random, value);
        event.invoked = clock.fetch_add(1, Ordering::Relaxed);
        let index = {
            let mut events = events.lock().unwrap();
            events.push(event);
            events.len() - 1
        };
        in_flight.fetch_add(1, Ordering::Relaxed);
        let (events, clock, in_flight) = (Arc::clone(&events), Arc::clone(&clock), Arc::clone(&in_flight));
        let done = move |result| {
            in_flight.fetch_sub(1, Ordering::Relaxed);
            note(&mut events.lock().unwrap()[index], result, clock.fetch_add(1, Ordering::Relaxed));
        };
        bench.volumes.submit(bench.id, operation, Box::new(done));
    }
    bench.fake.settle();
    let mut events = std::mem::take(&mut *events.lock().unwrap());
    assert!(events.iter().all(|event| event.answered < u64::MAX), "an operation was never answered");
    let now = clock.load(Ordering::Relaxed);
    let action = Action::Saw(bench.read(FROM, END - FROM).unwrap());
    events.push(Event { range: 0..usize::try_from(END - FROM).unwrap(), invoked: now, answered: now + 1, action });
    judge(&events)?;
    // What reads as zeros because it was unmapped takes no space, and all of it comes back.
    bench.unmap(FROM, END - FROM).unwrap();
    assert_eq!(bench.allocated_blocks(), 0);
    Ok(())
}

#[test]
fn a9_operations_when_they_overlap_and_complete_in_any_order_then_each_byte_is_a_register() {
    for seed in 0..400 {
        simulate(seed, true).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a9_mutant_without_range_locks_then_lost_updates_are_found() {
    let found = (0..400).filter(|seed| simulate(*seed, false).is_err()).count();
    assert!(found >= 40, "only {found} of 400 seeds notice");
}

#[test]
fn operations_when_from_many_threads_then_each_byte_is_a_register() {
    for seed in 0..20 {
        let fake = if seed % 3 == 0 { Fake::new(seed).inline() } else { Fake::new(seed) };
        let bench = small_volume(fake);
        let clock = AtomicU64::new(0);
        let working = AtomicU64::new(3);
        let (bench, clock, working) = (&bench, &clock, &working);
        let mut events: Vec<Event> = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    while working.load(Ordering::Relaxed) > 0 {
                        if !bench.fake.step() {
                            thread::yield_now();
                        }
                    }
                });
            }
            let client = move |client: u64| {
                let mut random = Random::new(seed * 8 + client);
                let mut events = Vec::new();
                for round in 0..10 {
                    // Two at a time.
                    let pair = [0, 1].map(|index| {
                        let value = u8::try_from(1 + client * 20 + round * 2 + index).unwrap();
                        let (operation, mut event) = operation(&mut random, value);
                        event.invoked = clock.fetch_add(1, Ordering::SeqCst);
                        let (sender, receiver) = mpsc::channel();
                        let done = move |result| sender.send(result).unwrap();
                        bench.volumes.submit(bench.id, operation, Box::new(done));
                        (event, receiver)
                    });
                    for (mut event, receiver) in pair {
                        let result = receiver.recv().unwrap();
                        note(&mut event, result, clock.fetch_add(1, Ordering::SeqCst));
                        events.push(event);
                    }
                }
                working.fetch_sub(1, Ordering::Relaxed);
                events
            };
            let clients: Vec<_> = (0..3).map(|number| scope.spawn(move || client(number))).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        bench.fake.settle();
        let action = Action::Saw(bench.read(FROM, END - FROM).unwrap());
        events.push(Event {
            range: 0..usize::try_from(END - FROM).unwrap(),
            invoked: 1 << 20,
            answered: 1 << 21,
            action,
        });
        judge(&events).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}
