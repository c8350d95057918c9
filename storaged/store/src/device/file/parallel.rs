//! A call's writes: neighbours joined, and the rest side by side where that is faster.
//!
//! A direct write waits for the disk, so that sixteen places one after the other cost sixteen times the disk's latency. Some
//! helper threads bring that down; they are started with the first call that can use them. A write through the page cache does not
//! wait and is left to the caller.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use super::transfer::write_fully;
use crate::device::DeviceWrite;

/// How many threads help the caller.
const HELPERS: usize = 4;

/// With fewer places than this, waking helpers costs more than it saves.
const MIN_PLACES: usize = 4;

/// Writes for one file.
#[derive(Debug)]
pub(super) struct Writer {
    file: Arc<File>,
    memory_align: usize,
    helpers: Option<OnceLock<Helpers>>,
}

#[derive(Debug)]
struct Helpers {
    batches: Sender<Arc<Batch>>,
}

/// Places of one call that caller and helpers take from, one by one.
#[derive(Debug)]
struct Batch {
    file: Arc<File>,
    memory_align: usize,
    places: Vec<DeviceWrite>,
    next: AtomicUsize,
    state: Mutex<BatchState>,
    done: Condvar,
}

#[derive(Debug)]
struct BatchState {
    left: usize,
    error: Option<io::Error>,
}

impl Writer {
    /// `waits`: a write returns only when the disk has it.
    pub(super) fn new(file: Arc<File>, memory_align: usize, waits: bool) -> Self {
        Self { file, memory_align, helpers: waits.then(OnceLock::new) }
    }

    /// Writes all. When it returns, with an error too, nothing is under way any more.
    pub(super) fn write(&self, writes: &[DeviceWrite]) -> io::Result<()> {
        let places = joined(writes);
        match &self.helpers {
            Some(helpers) if places.len() >= MIN_PLACES => {
                self.write_together(places.into_owned(), helpers.get_or_init(Helpers::start))
            }
            _ => places.iter().try_for_each(|place| write_fully(&self.file, place, self.memory_align)),
        }
    }

    fn write_together(&self, places: Vec<DeviceWrite>, helpers: &Helpers) -> io::Result<()> {
        let left = places.len();
        let batch = Arc::new(Batch {
            file: Arc::clone(&self.file),
            memory_align: self.memory_align,
            places,
            next: AtomicUsize::new(0),
            state: Mutex::new(BatchState { left, error: None }),
            done: Condvar::new(),
        });
        for _ in 1..left.min(HELPERS + 1) {
            // Without helpers the caller does it all.
            if helpers.batches.send(Arc::clone(&batch)).is_err() {
                break;
            }
        }
        batch.work();
        batch.wait()
    }
}

impl Batch {
    /// Writes places until all are taken.
    fn work(&self) {
        while let Some(place) = self.places.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let written = write_fully(&self.file, place, self.memory_align);
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.left -= 1;
            if let Err(error) = written {
                state.error.get_or_insert(error);
            }
            if state.left == 0 {
                self.done.notify_all();
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.left > 0 {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.error.take().map_or(Ok(()), Err)
    }
}

impl Helpers {
    /// They end when the writer is dropped.
    fn start() -> Self {
        let (batches, work) = channel();
        let work = Arc::new(Mutex::new(work));
        for _ in 0..HELPERS {
            let work = Arc::clone(&work);
            let helper = std::thread::Builder::new().name("disk-write".into()).spawn(move || help(&work));
            if let Err(error) = helper {
                tracing::warn!(%error, "a thread for parallel disk writes was not started; writes are slower");
            }
        }
        Self { batches }
    }
}

fn help(work: &Mutex<Receiver<Arc<Batch>>>) {
    loop {
        let batch = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match batch {
            Ok(batch) => batch.work(),
            Err(_) => return,
        }
    }
}

/// In order of their places, and what lies side by side as one: a sequential stream gets neighbouring slots.
fn joined(writes: &[DeviceWrite]) -> Cow<'_, [DeviceWrite]> {
    if writes.len() < 2 {
        return Cow::Borrowed(writes);
    }
    let mut sorted: Vec<_> = writes.iter().collect();
    sorted.sort_by_key(|write| write.offset);
    let mut places: Vec<DeviceWrite> = Vec::with_capacity(writes.len());
    let mut end = None;
    for write in sorted {
        match places.last_mut() {
            Some(place) if end == Some(write.offset) => place.pieces.extend_from_slice(&write.pieces),
            _ => places.push(write.clone()),
        }
        end = write.offset.checked_add(write.len_bytes());
    }
    Cow::Owned(places)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use bytes::Bytes;

    use super::*;

    fn write(offset: u64, fill: u8) -> DeviceWrite {
        DeviceWrite::new(offset, Bytes::from(vec![fill; 4096]))
    }

    #[test]
    fn joined_when_some_are_neighbours_then_one_place_each_in_order() {
        let writes = [write(20_480, 5), write(4096, 2), write(0, 1), write(12_288, 4), write(8192, 3)];
        let places = joined(&writes);
        let shape: Vec<_> = places.iter().map(|place| (place.offset, place.len_bytes())).collect();
        assert_eq!(shape, [(0, 16_384), (20_480, 4096)]);
        let firsts: Vec<_> = places.iter().flat_map(|place| &place.pieces).map(|piece| piece[0]).collect();
        assert_eq!(firsts, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn write_when_helpers_take_part_then_every_place_is_written_once() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let writer = Writer::new(Arc::clone(&file), 1, true);
        for round in 1..20_u8 {
            let writes: Vec<_> = (0..30).map(|n| write(n * 8192, round)).collect();
            writer.write(&writes).unwrap();
            let mut bytes = vec![0; 30 * 8192 - 4096];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert!(bytes.chunks(4096).step_by(2).all(|page| page.iter().all(|byte| *byte == round)));
            assert!(bytes.chunks(4096).skip(1).step_by(2).all(|page| page.iter().all(|byte| *byte == 0)));
        }
    }

    #[test]
    fn write_when_the_file_refuses_then_the_error_after_all_have_ended() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(File::open(path.path()).unwrap());
        let writes: Vec<_> = (0..30).map(|n| write(n * 8192, 1)).collect();
        for waits in [false, true] {
            let writer = Writer::new(Arc::clone(&file), 1, waits);
            let error = writer.write(&writes).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
        }
    }
}
