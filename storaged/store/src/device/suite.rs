//! What every device does, whatever it is made of.

use std::io::ErrorKind;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

/// Runs everything; `make` gives a new empty device of a length.
pub(super) fn run<D: Device>(make: impl Fn(u64) -> D) {
    what_was_never_written_reads_as_zeros(&make(64 << 10));
    misaligned_and_beyond_the_end_are_refused(&make(64 << 10));
    pieces_of_any_kind_become_one_range(&make(256 << 10));
    many_writes_of_one_call_are_all_there(&make(4 << 20));
    grow_keeps_what_was_there(&make(64 << 10));
    statistics_count(&make(64 << 10));
    threads_do_not_disturb_each_other(&make(1 << 20));
    random_calls_equal_a_plain_array(make);
}

fn what_was_never_written_reads_as_zeros(device: &impl Device) {
    assert_eq!(device.len_bytes(), 64 << 10);
    assert!(device.read(0, 64 << 10).unwrap().iter().all(|byte| *byte == 0));
    assert!(device.read(64 << 10, 0).unwrap().is_empty());
}

fn misaligned_and_beyond_the_end_are_refused(device: &impl Device) {
    let kind = |result: io::Result<()>| result.unwrap_err().kind();
    let page = Bytes::from(vec![1; 4096]);
    for (offset, len) in [(512, 4096), (0, 4095), (1, 1)] {
        assert_eq!(kind(device.read(offset, len).map(drop)), ErrorKind::InvalidInput);
    }
    for offset in [60 << 10, 64 << 10, u64::MAX - 4095] {
        assert_eq!(kind(device.read(offset, 8192).map(drop)), ErrorKind::UnexpectedEof);
        let write = DeviceWrite::new(offset, Bytes::from(vec![1; 8192]));
        let writes = [DeviceWrite::new(0, page.clone()), write];
        assert_eq!(kind(device.write(&writes)), ErrorKind::UnexpectedEof);
        assert_eq!(kind(device.write_durably(&writes)), ErrorKind::UnexpectedEof);
    }
    assert_eq!(kind(device.write(&[DeviceWrite::new(512, page.clone())])), ErrorKind::InvalidInput);
    assert_eq!(kind(device.write(&[DeviceWrite::new(0, page.slice(1..))])), ErrorKind::InvalidInput);
    assert_eq!(kind(device.grow((64 << 10) + 512)), ErrorKind::InvalidInput);
    assert_eq!(kind(device.grow(u64::MAX - 4095)), ErrorKind::InvalidInput);
    let untouched = device.read(0, 64 << 10).unwrap();
    assert!(untouched.iter().all(|byte| *byte == 0), "a refused call writes nothing");
}

fn pieces_of_any_kind_become_one_range(device: &impl Device) {
    let bytes: Bytes = (0..200_000_u32).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect();
    let mut aligned = Buffer::with_capacity(4096, 8192);
    aligned.extend_from_slice(&bytes[..8192]);
    let pieces = vec![
        aligned.freeze(),
        bytes.slice(8192..8193),
        Bytes::new(),
        bytes.slice(8193..12_288),
        bytes.slice(12_288..20_480),
        bytes.slice(20_480..32_767),
        bytes.slice(32_767..131_072),
    ];
    device.write(&[DeviceWrite { offset: 4096, pieces }]).unwrap();
    assert_eq!(device.read(4096, 131_072).unwrap(), bytes[..131_072]);
    let crumbs: Vec<_> = (0..8192).map(|n| bytes.slice(n..=n)).collect();
    device.write_durably(&[DeviceWrite { offset: 0, pieces: crumbs }]).unwrap();
    assert_eq!(device.read(0, 8192).unwrap(), bytes[..8192]);
    device.write(&[DeviceWrite { offset: 0, pieces: Vec::new() }]).unwrap();
    device.write(&[]).unwrap();
    device.write_durably(&[]).unwrap();
}

fn many_writes_of_one_call_are_all_there(device: &impl Device) {
    let fill = |number: u64| vec![u8::try_from(number + 1).unwrap(); 64 << 10];
    let writes: Vec<_> = (0..40).map(|n| DeviceWrite::new((39 - n) * 100 * 1024, fill(n).into())).collect();
    device.write_durably(&writes).unwrap();
    for number in 0..40 {
        let read = device.read((39 - number) * 100 * 1024, 64 << 10).unwrap();
        assert!(read == fill(number), "write {number}");
    }
}

fn grow_keeps_what_was_there(device: &impl Device) {
    device.write(&[DeviceWrite::new(60 << 10, Bytes::from(vec![9; 4096]))]).unwrap();
    device.grow(1 << 20).unwrap();
    assert_eq!(device.len_bytes(), 1 << 20);
    device.grow(4096).unwrap();
    assert_eq!(device.len_bytes(), 1 << 20, "it never shrinks");
    assert_eq!(device.read(60 << 10, 8192).unwrap(), [[9; 4096], [0; 4096]].concat());
    device.write(&[DeviceWrite::new((1 << 20) - 4096, Bytes::from(vec![8; 4096]))]).unwrap();
    device.sync().unwrap();
    assert_eq!(device.read((1 << 20) - 8192, 8192).unwrap(), [[0; 4096], [8; 4096]].concat());
}

fn statistics_count(device: &impl Device) {
    let before = device.statistics();
    let page = Bytes::from(vec![1; 4096]);
    let writes = [DeviceWrite::new(0, page.clone()), DeviceWrite::new(8192, page)];
    device.write(&writes).unwrap();
    device.write_durably(&writes).unwrap();
    device.sync().unwrap();
    device.read(0, 8192).unwrap();
    let after = device.statistics();
    assert_eq!((after.writes - before.writes, after.bytes_written - before.bytes_written), (4, 16_384));
    assert_eq!((after.reads - before.reads, after.bytes_read - before.bytes_read), (1, 8192));
    assert_eq!(after.syncs - before.syncs, 2);
}

fn threads_do_not_disturb_each_other(device: &impl Device) {
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            scope.spawn(move || {
                for round in 0..16_u8 {
                    let offset = u64::from(thread) * (256 << 10) + u64::from(round) * (16 << 10);
                    let bytes = Bytes::from(vec![thread * 16 + round; 16 << 10]);
                    let write = [DeviceWrite::new(offset, bytes.clone())];
                    if round % 4 == 0 { device.write_durably(&write) } else { device.write(&write) }.unwrap();
                    assert_eq!(device.read(offset, 16 << 10).unwrap(), bytes);
                }
            });
        }
    });
}

fn random_calls_equal_a_plain_array<D: Device>(make: impl Fn(u64) -> D) {
    const PAGES: usize = 24;
    let call = (0..4_u8, 0..PAGES, 1..6_usize, any::<u8>());
    let calls = proptest::collection::vec(call, 1..40);
    let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
    let result = runner.run(&calls, |calls| {
        let device = make((PAGES * 4096) as u64);
        let mut array = vec![0; PAGES * 4096];
        for (kind, page, pages, fill) in calls {
            let (start, end) = (page * 4096, (page + pages).min(PAGES) * 4096);
            let write = DeviceWrite::new(start as u64, vec![fill; end - start].into());
            match kind {
                0 => device.write(&[write]).unwrap(),
                1 => device.write_durably(&[write]).unwrap(),
                2 => device.sync().unwrap(),
                _ => {}
            }
            if kind < 2 {
                array[start..end].fill(fill);
            }
            prop_assert!(device.read(start as u64, end - start).unwrap() == array[start..end]);
        }
        prop_assert!(device.read(0, array.len()).unwrap() == array);
        Ok(())
    });
    result.unwrap();
}
