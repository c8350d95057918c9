//! For tests: a tape of every change made to the files below a directory, which can also cut the power or make calls fail.
//!
//! A tape is attached to a directory before the store in it is opened. [`Tape::after_power_loss`] builds what a disk may
//! hold if the power goes after the first so many events: what was synced is there, what was not is there in part.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

/// Small deterministic generator (xorshift64*), so that a seed names a run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Write {
        file: PathBuf,
        offset: u64,
        bytes: Vec<u8>,
    },
    Punch {
        file: PathBuf,
        offset: u64,
        len: u64,
    },
    Sync {
        file: PathBuf,
    },
    /// Put there by the test: the operation with this number was acknowledged.
    Acked(usize),
}

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Write,
    Punch,
    Reserve,
    Sync,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    /// After so many more changes and syncs the power is off: the next write is cut after so many bytes, and
    /// then everything fails.
    power_off: Option<(usize, usize)>,
    fail: Option<(Call, &'static str, Errno)>,
}

pub(crate) struct Tape {
    dir: PathBuf,
    state: Mutex<State>,
}

static TAPES: Mutex<Vec<Arc<Tape>>> = Mutex::new(Vec::new());

impl Tape {
    pub(crate) fn attach(dir: &Path) -> Arc<Self> {
        let tape = Arc::new(Self { dir: dir.to_owned(), state: Mutex::default() });
        TAPES.lock().unwrap().push(Arc::clone(&tape));
        tape
    }

    pub(crate) fn power_off_after(&self, events: usize, then_bytes: usize) {
        self.state.lock().unwrap().power_off = Some((events, then_bytes));
    }

    /// From now on `call` on files whose name begins with `file` fails; `None` ends that.
    pub(crate) fn fail(&self, what: Option<(Call, &'static str, Errno)>) {
        self.state.lock().unwrap().fail = what;
    }

    pub(crate) fn ack(&self, number: usize) {
        self.state.lock().unwrap().events.push(Event::Acked(number));
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.state.lock().unwrap().events.clone()
    }

    /// Turns `image`, a copy of the directory from when the tape was attached, into what may be found after a power
    /// loss behind `events`. `keep` decides for each unsynced 512-byte sector of a write whether it made it.
    pub(crate) fn after_power_loss(events: &[Event], image: &Path, mut keep: impl FnMut() -> Keep) {
        let mut synced = BTreeMap::new();
        for (index, event) in events.iter().enumerate() {
            if let Event::Sync { file } = event {
                synced.insert(file, index);
            }
        }
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Write { file, offset, bytes } => {
                    let durable = synced.get(file).is_some_and(|sync| index < *sync);
                    let target = File::options().write(true).open(image.join(file)).unwrap();
                    for (sector, chunk) in bytes.chunks(512).enumerate() {
                        if durable || keep() == Keep::Yes {
                            target.write_all_at(chunk, offset + sector as u64 * 512).unwrap();
                        }
                    }
                }
                Event::Punch { file, offset, len } => {
                    if synced.get(file).is_some_and(|sync| index < *sync) || keep() == Keep::Yes {
                        let target = File::options().write(true).open(image.join(file)).unwrap();
                        target.write_all_at(&vec![0; usize::try_from(*len).unwrap()], *offset).unwrap();
                    }
                }
                Event::Sync { .. } | Event::Acked(_) => {}
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    No,
}

/// One file's end of a tape.
pub(crate) struct Handle {
    tape: Arc<Tape>,
    file: PathBuf,
}

impl Handle {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let tapes = TAPES.lock().unwrap();
        let tape = tapes.iter().rev().find(|tape| path.starts_with(&tape.dir))?;
        Some(Self { tape: Arc::clone(tape), file: path.strip_prefix(&tape.dir).unwrap().to_owned() })
    }

    pub(crate) fn write(&self, file: &File, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let power = self.check(Call::Write);
        if let Err(Failure::PowerOff(then_bytes)) = power {
            bytes.truncate(then_bytes);
            file.write_all_at(&bytes, offset)?;
        }
        power.map_err(Failure::into_error)?;
        self.record(Event::Write { file: self.file.clone(), offset, bytes });
        Ok(())
    }

    pub(crate) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(Call::Punch).map_err(Failure::into_error)?;
        self.record(Event::Punch { file: self.file.clone(), offset, len });
        Ok(())
    }

    pub(crate) fn reserve(&self) -> io::Result<()> {
        self.check(Call::Reserve).map_err(Failure::into_error)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.check(Call::Sync).map_err(Failure::into_error)?;
        self.record(Event::Sync { file: self.file.clone() });
        Ok(())
    }

    fn record(&self, event: Event) {
        self.tape.state.lock().unwrap().events.push(event);
    }

    fn check(&self, call: Call) -> Result<(), Failure> {
        let mut state = self.tape.state.lock().unwrap();
        let name = self.file.file_name().unwrap().to_str().unwrap();
        if let Some((failing, file, errno)) = state.fail
            && failing == call
            && name.starts_with(file)
        {
            return Err(Failure::Injected(errno));
        }
        match &mut state.power_off {
            None => Ok(()),
            Some((0, then_bytes)) => Err(Failure::PowerOff(std::mem::take(then_bytes))),
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

enum Failure {
    Injected(Errno),
    PowerOff(usize),
}

impl Failure {
    fn into_error(self) -> io::Error {
        match self {
            Self::Injected(errno) => errno.into(),
            Self::PowerOff(_) => Errno::IO.into(),
        }
    }
}

/// A directory for tests, in memory where there is some.
pub(crate) fn fast_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Copies a directory with everything in it.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
