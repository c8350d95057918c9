//! How a journal batch and its slots are written fastest: what the choices in `device/file.rs` rest on.
//!
//! ```text
//! cargo bench -p holdfast-store --bench disk -- DIR [seconds of one round] [rounds]
//! ```
//!
//! DIR lies on the file system to be measured (not in memory); a file of 1 GiB is made there and removed. The variants of a case
//! take turns, round by round, so that other load on the machine hits all of them; the median round counts. CPU is that of the
//! whole process, system time included.

#![allow(clippy::print_stdout, reason = "what it prints is its result")]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_store::device::{Buffer, Device, DeviceWrite, FileDevice};
use rustix::fs::OFlags;
use rustix::io::{ReadWriteFlags, pwritev2};

const FILE_LEN: u64 = 1 << 30;
const JOURNAL_LEN: u64 = 64 << 20;
const SLOT_LEN: usize = 64 << 10;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let Some(dir) = arguments.next() else {
        // `cargo test --benches` and the like: nothing to measure without a place.
        return Ok(());
    };
    let number = |text: Option<String>, default: f64| text.and_then(|text| text.parse().ok()).unwrap_or(default);
    let round = Duration::from_secs_f64(number(arguments.next(), 1.0));
    let rounds = number(arguments.next(), 5.0).max(1.0);
    let bench = Bench::new(Path::new(&dir), round)?;
    let result = bench.run(rounds);
    std::fs::remove_file(&bench.path)?;
    result
}

struct Bench {
    path: PathBuf,
    round: Duration,
    direct: Arc<File>,
    buffered: Arc<File>,
    device: FileDevice,
}

/// One way to write one operation; the number of the operation chooses the place.
type Variant<'a> = (&'static str, Box<dyn FnMut(u64) -> io::Result<()> + 'a>);

impl Bench {
    fn new(dir: &Path, round: Duration) -> io::Result<Self> {
        let path = dir.join("holdfast-bench-disk");
        let device = FileDevice::create(&path, FILE_LEN)?;
        println!("{}: {:?}", dir.display(), device.traits());
        // Written once before use, as the journal's ring is: the first write of a place also changes metadata.
        let zeros = Buffer::zeroed(4096, 1 << 20).freeze();
        for offset in (0..FILE_LEN / 2).step_by(1 << 20) {
            device.write(&[DeviceWrite::new(offset, zeros.clone())])?;
        }
        device.sync()?;
        let open = |flags: OFlags| {
            let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).map(Arc::new)
        };
        Ok(Self { direct: open(OFlags::DIRECT)?, buffered: open(OFlags::empty())?, path: path.clone(), round, device })
    }

    fn run(&self, rounds: f64) -> io::Result<()> {
        for len in [4 << 10, 128 << 10] {
            let variants: Vec<Variant<'_>> = vec![
                ("buffered, fdatasync", append(&self.buffered, len, ReadWriteFlags::empty())),
                ("buffered, RWF_DSYNC", append(&self.buffered, len, ReadWriteFlags::DSYNC)),
                ("direct, fdatasync", append(&self.direct, len, ReadWriteFlags::empty())),
                ("direct, RWF_DSYNC", append(&self.direct, len, ReadWriteFlags::DSYNC)),
                ("FileDevice::write_durably", self.device_variant(0, len, false)),
            ];
            self.compare(&format!("append of {} KiB", len >> 10), rounds, variants)?;
        }
        for slots in [1, 4, 16] {
            for fresh in [false, true] {
                let variants: Vec<Variant<'_>> = vec![
                    ("buffered, one after the other", slots_one_by_one(&self.buffered, slots, fresh)),
                    ("direct, one after the other", slots_one_by_one(&self.direct, slots, fresh)),
                    ("direct, 2 helper threads", slots_by_threads(&self.direct, slots, fresh, 2)),
                    ("direct, 4 helper threads", slots_by_threads(&self.direct, slots, fresh, 4)),
                    ("FileDevice::write_durably", self.device_variant(slots, 4096, fresh)),
                    ("the same, slots side by side", self.neighbours_variant(slots)),
                ];
                let kind = if fresh { "never written" } else { "written before" };
                let name = format!("{slots} slots of 64 KiB ({kind}) + append of 4 KiB");
                // What is fresh is so only once.
                self.compare(&name, if fresh { 1.0 } else { rounds }, variants)?;
            }
        }
        Ok(())
    }

    fn device_variant(&self, slots: u64, len: usize, fresh: bool) -> Box<dyn FnMut(u64) -> io::Result<()> + '_> {
        let (slot, journal) = (filled(SLOT_LEN), filled(len));
        Box::new(move |number| {
            let mut writes: Vec<_> =
                slot_places(number, slots, fresh).map(|offset| DeviceWrite::new(offset, slot.clone())).collect();
            writes.push(DeviceWrite::new(journal_place(number, len), journal.clone()));
            self.device.write_durably(&writes)
        })
    }

    fn neighbours_variant(&self, slots: u64) -> Box<dyn FnMut(u64) -> io::Result<()> + '_> {
        let (slot, journal) = (filled(SLOT_LEN), filled(4096));
        Box::new(move |number| {
            let places = (FILE_LEN / 2 - JOURNAL_LEN) / (SLOT_LEN as u64 * slots);
            let start = JOURNAL_LEN + number.wrapping_mul(2_654_435_761) % places * SLOT_LEN as u64 * slots;
            let offsets = (0..slots).map(|index| start + index * SLOT_LEN as u64);
            let mut writes: Vec<_> = offsets.map(|offset| DeviceWrite::new(offset, slot.clone())).collect();
            writes.push(DeviceWrite::new(journal_place(number, 4096), journal.clone()));
            self.device.write_durably(&writes)
        })
    }

    fn compare(&self, name: &str, rounds: f64, mut variants: Vec<Variant<'_>>) -> io::Result<()> {
        println!("\n{name}");
        let mut results = vec![Vec::new(); variants.len()];
        let mut number = 0;
        let mut left = rounds;
        while left > 0.0 {
            for ((_, operation), results) in variants.iter_mut().zip(&mut results) {
                let (start, cpu) = (Instant::now(), cpu_seconds());
                let mut operations = 0.0;
                while start.elapsed() < self.round {
                    operation(number)?;
                    number += 1;
                    operations += 1.0;
                }
                let cpu_us = (cpu_seconds() - cpu) * 1e6 / operations;
                results.push((operations / start.elapsed().as_secs_f64(), cpu_us));
            }
            left -= 1.0;
        }
        for ((variant, _), mut results) in variants.into_iter().zip(results) {
            results.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (per_second, cpu_us) = results.get(results.len() / 2).copied().unwrap_or_default();
            println!("  {variant:32} {per_second:8.0}/s   cpu {cpu_us:6.0} us");
        }
        Ok(())
    }
}

fn append(file: &Arc<File>, len: usize, flags: ReadWriteFlags) -> Box<dyn FnMut(u64) -> io::Result<()>> {
    let (file, bytes) = (Arc::clone(file), filled(len));
    Box::new(move |number| {
        write(&file, &bytes, journal_place(number, len), flags)?;
        if flags.is_empty() { file.sync_data() } else { Ok(()) }
    })
}

fn slots_one_by_one(file: &Arc<File>, slots: u64, fresh: bool) -> Box<dyn FnMut(u64) -> io::Result<()>> {
    let (file, slot, journal) = (Arc::clone(file), filled(SLOT_LEN), filled(4096));
    Box::new(move |number| {
        for offset in slot_places(number, slots, fresh) {
            write(&file, &slot, offset, ReadWriteFlags::empty())?;
        }
        write(&file, &journal, journal_place(number, 4096), ReadWriteFlags::empty())?;
        file.sync_data()
    })
}

/// Long-lived threads take the slots from one queue; the caller writes the journal's part meanwhile.
fn slots_by_threads(
    file: &Arc<File>,
    slots: u64,
    fresh: bool,
    threads: usize,
) -> Box<dyn FnMut(u64) -> io::Result<()>> {
    let (file, slot, journal) = (Arc::clone(file), filled(SLOT_LEN), filled(4096));
    let (give, work): (Sender<u64>, Receiver<u64>) = channel();
    let (tell, done) = channel();
    let work = Arc::new(Mutex::new(work));
    for _ in 0..threads {
        let (file, slot, work, tell) = (Arc::clone(&file), slot.clone(), Arc::clone(&work), tell.clone());
        std::thread::spawn(move || {
            let next = || work.lock().ok()?.recv().ok();
            while let Some(offset) = next() {
                if tell.send(write(&file, &slot, offset, ReadWriteFlags::empty())).is_err() {
                    return;
                }
            }
        });
    }
    Box::new(move |number| {
        for offset in slot_places(number, slots, fresh) {
            give.send(offset).map_err(io::Error::other)?;
        }
        write(&file, &journal, journal_place(number, 4096), ReadWriteFlags::empty())?;
        for _ in 0..slots {
            done.recv().map_err(io::Error::other)??;
        }
        file.sync_data()
    })
}

fn write(file: &File, bytes: &Bytes, offset: u64, flags: ReadWriteFlags) -> io::Result<()> {
    let written = pwritev2(file, &[IoSlice::new(bytes)], offset, flags)?;
    if written == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn filled(len: usize) -> Bytes {
    let mut buffer = Buffer::zeroed(4096, len);
    buffer.fill(0x5a);
    buffer.freeze()
}

fn journal_place(number: u64, len: usize) -> u64 {
    (number * len as u64) % JOURNAL_LEN
}

/// Spread over the written half of the file, or, never the same twice as long as there is room, over the other.
fn slot_places(number: u64, slots: u64, fresh: bool) -> impl Iterator<Item = u64> {
    let slot_len = SLOT_LEN as u64;
    (0..slots).map(move |index| {
        let slot = number * slots + index;
        if fresh {
            let places = FILE_LEN / 2 / slot_len;
            FILE_LEN / 2 + slot % places * slot_len
        } else {
            let places = (FILE_LEN / 2 - JOURNAL_LEN) / slot_len;
            JOURNAL_LEN + slot.wrapping_mul(2_654_435_761) % places * slot_len
        }
    })
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // proc_pid_stat(5): utime and stime are fields 14 and 15; the name in field 2 may hold blanks.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / 100.0
}
