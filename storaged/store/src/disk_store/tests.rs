//! The whole store, in real files.

use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_proto::checksum;
use holdfast_proto::units::BlockSize;

use super::*;
use crate::store::{Kind, Output};

fn options() -> Options {
    Options { journal_bytes: MIN_JOURNAL_BYTES, ..Options::default() }
}

fn new_volume(store: &DiskStore, size_bytes: u64) -> VolumeId {
    let name = "disk0".parse().unwrap();
    let new = NewVolume { name, size_bytes, block_size: BlockSize::B512, kind: Kind::Disk, read_only: false };
    store.create_volume(new).unwrap().id
}

struct Asked(
    mpsc::Receiver<(usize, Result<Output, crate::StoreError>)>,
    mpsc::Sender<(usize, Result<Output, crate::StoreError>)>,
);

impl Asked {
    fn new() -> Self {
        let (send, receive) = mpsc::channel();
        Self(receive, send)
    }

    fn submit(&self, store: &DiskStore, volume: VolumeId, tag: usize, operation: Operation) {
        let send = self.1.clone();
        store.submit(volume, operation, Box::new(move |result| send.send((tag, result)).unwrap()));
    }

    fn next(&self, store: &DiskStore) -> (usize, Output) {
        match self.0.recv_timeout(Duration::from_secs(60)) {
            Ok((tag, result)) => (tag, result.unwrap()),
            // Dropping the store would wait for what is not answered.
            Err(_) => {
                eprintln!("no answer within 60 s: {:#?}", store.statistics());
                std::process::abort();
            }
        }
    }
}

fn write(offset: u64, data: Vec<u8>) -> Operation {
    let data = vec![Bytes::from(data)];
    Operation::Write { offset, checksums: checksum::of_pieces(offset, &data), data }
}

fn content(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + seed) % 251).unwrap()).collect()
}

#[test]
fn store_when_many_sizes_are_in_flight_then_all_complete_and_are_read_after_a_restart() {
    for parent in ["/dev/shm", "/tmp"] {
        let dir = tempfile::tempdir_in(parent).or_else(|_| tempfile::tempdir()).unwrap();
        let path = dir.path().join("node");
        let store = DiskStore::open(&path, &options()).unwrap();
        let volume = new_volume(&store, 64 << 20);
        let asked = Asked::new();
        let sizes = [512, 4096, 8192, 65_536, 262_144, 1 << 20, 4 << 20];
        let mut written = Vec::new();
        let mut offset = 0;
        for (tag, len) in sizes.into_iter().cycle().take(60).enumerate() {
            let len = if tag >= 14 { len.min(65_536) } else { len };
            asked.submit(&store, volume, tag, write(offset, content(tag, len)));
            written.push((offset, len));
            offset += len as u64;
        }
        (0..written.len()).for_each(|_| drop(asked.next(&store)));
        let check = |store: &DiskStore| {
            for (tag, (offset, len)) in written.iter().enumerate() {
                asked.submit(store, volume, tag, Operation::Read { offset: *offset, len: *len as u64 });
                let (_, output) = asked.next(store);
                assert!(output.data.concat() == content(tag, *len), "what was written at {offset}");
            }
        };
        check(&store);
        drop(store);
        let store = DiskStore::open(&path, &options()).unwrap();
        check(&store);
    }
}
