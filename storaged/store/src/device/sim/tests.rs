use std::io::ErrorKind;
use std::sync::Arc;

use super::*;
use crate::device::power::is_power_cut;
use crate::device::suite;

const LEN: u64 = 256 << 10;

fn page(fill: u8) -> Bytes {
    Bytes::from(vec![fill; 4096])
}

fn write(page_number: u64, fill: u8) -> DeviceWrite {
    DeviceWrite::new(page_number * 4096, page(fill))
}

/// The first bytes of the sectors of a page.
fn sectors(disk: &SimDisk, page_number: u64) -> Vec<u8> {
    disk.read(page_number * 4096, 4096).unwrap().iter().step_by(SECTOR_LEN).copied().collect()
}

fn is_eio(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::IO.raw_os_error())
}

#[test]
fn suite_when_the_disk_is_simulated_then_passes() {
    suite::run(|len| SimDisk::new(len, 1));
}

#[test]
fn after_power_cut_when_synced_then_all_is_there_whatever_the_seed() {
    let disk = SimDisk::new(LEN, 1);
    disk.write(&[write(0, 1), write(1, 2)]).unwrap();
    assert_eq!(disk.unsynced_writes(), 2);
    disk.sync().unwrap();
    assert_eq!(disk.unsynced_writes(), 0);
    for seed in 0..50 {
        assert_eq!(disk.after_power_cut(seed).digest(), disk.digest());
    }
}

#[test]
fn after_power_cut_when_not_synced_then_every_subset_and_every_tear_comes_with_some_seed() {
    let disk = SimDisk::new(LEN, 1);
    disk.write_durably(&[write(0, 1), write(1, 1)]).unwrap();
    disk.write(&[write(0, 2)]).unwrap();
    disk.write(&[write(1, 2)]).unwrap();
    let whole = |sectors: &[u8]| sectors.iter().all(|byte| *byte == sectors[0]).then_some(sectors[0]);
    let (mut subsets, mut tears) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    for seed in 0..40_000 {
        let after = disk.after_power_cut(seed);
        let (first, second) = (sectors(&after, 0), sectors(&after, 1));
        assert!(first.iter().chain(&second).all(|byte| matches!(byte, 1 | 2)));
        subsets.insert((whole(&first), whole(&second)));
        tears.insert(first);
    }
    assert_eq!(subsets.len(), 9, "each old, new or torn: {subsets:?}");
    assert_eq!(tears.len(), 256, "each subset of eight sectors");
}

#[test]
fn after_power_cut_when_the_seed_is_the_same_then_the_result_is() {
    let run = || {
        let disk = SimDisk::new(LEN, 9).with_faults(FaultPlan::new([Fault::WriteError { write: 3 }]));
        for number in 0..6 {
            let _expected_to_fail_once = disk.write(&[write(number, 7), write(number + 10, 8)]);
        }
        (0..20).map(|seed| disk.after_power_cut(seed).digest()).collect::<Vec<_>>()
    };
    let digests = run();
    assert_eq!(digests, run());
    assert!(digests.iter().any(|digest| *digest != digests[0]));
}

#[test]
fn write_durably_when_something_else_is_unsynced_then_that_can_still_be_lost() {
    let disk = SimDisk::new(LEN, 1);
    disk.write(&[write(0, 1), write(1, 1)]).unwrap();
    disk.write_durably(&[write(1, 2), write(2, 2)]).unwrap();
    let mut lost = 0;
    for seed in 0..100 {
        let after = disk.after_power_cut(seed);
        lost += u32::from(sectors(&after, 0) == [0; 8]);
        assert_eq!(sectors(&after, 1), [2; 8], "the older write never comes over the newer, durable one");
        assert_eq!(sectors(&after, 2), [2; 8]);
    }
    assert!((10..90).contains(&lost), "{lost}");
}

#[test]
fn power_when_cut_in_a_write_then_it_fails_and_all_of_the_call_may_be_there_or_not() {
    let disk = SimDisk::new(LEN, 1);
    disk.sync().unwrap();
    disk.power().cut_at(2);
    let error = disk.write_durably(&[write(0, 1), write(1, 2), write(2, 3)]).unwrap_err();
    assert!(is_power_cut(&error));
    assert_eq!(disk.power().operations(), 3);
    for result in [disk.write(&[write(5, 1)]), disk.sync(), disk.read(0, 4096).map(drop), disk.grow(LEN * 2)] {
        assert!(is_power_cut(&result.unwrap_err()));
    }
    for number in 0..3 {
        let kept = (0..200).filter(|seed| sectors(&disk.after_power_cut(*seed), number)[0] != 0).count();
        assert!((20..180).contains(&kept), "write {number}: {kept}");
    }
    assert_eq!(sectors(&disk.after_power_cut(1), 5), [0; 8], "without power nothing is written");
}

#[test]
fn power_when_cut_at_the_sync_of_a_durable_write_then_not_acknowledged_and_may_be_lost() {
    let disk = SimDisk::new(LEN, 1);
    disk.power().cut_at(1);
    assert!(is_power_cut(&disk.write_durably(&[write(0, 1)]).unwrap_err()));
    let kept = (0..200).filter(|seed| sectors(&disk.after_power_cut(*seed), 0) == [1; 8]).count();
    assert!((20..180).contains(&kept), "{kept}");
}

#[test]
fn power_when_cut_while_growing_then_either_length() {
    let disk = SimDisk::new(LEN, 1);
    disk.power().cut_at(0);
    assert!(is_power_cut(&disk.grow(LEN * 2).unwrap_err()));
    let mut lens: Vec<_> = (0..40).map(|seed| disk.after_power_cut(seed).len_bytes()).collect();
    lens.sort_unstable();
    lens.dedup();
    assert_eq!(lens, [LEN, LEN * 2]);
    let grown = SimDisk::new(LEN, 1);
    grown.grow(LEN * 2).unwrap();
    assert!((0..40).all(|seed| grown.after_power_cut(seed).len_bytes() == LEN * 2));
}

#[test]
fn power_when_shared_then_operations_of_both_count_and_both_fail() {
    let power = Power::new();
    let (one, other) = (SimDisk::new(LEN, 1).with_power(power.clone()), SimDisk::new(LEN, 2).with_power(power.clone()));
    power.cut_at(2);
    one.write(&[write(0, 1)]).unwrap();
    other.sync().unwrap();
    assert!(is_power_cut(&one.sync().unwrap_err()));
    assert!(is_power_cut(&other.sync().unwrap_err()));
    assert_eq!((one.operations(), other.operations()), (2, 1));
}

#[test]
fn fork_when_one_is_written_then_the_other_is_not() {
    let disk = SimDisk::new(LEN, 1);
    disk.write(&[write(0, 1)]).unwrap();
    let fork = disk.fork();
    assert_eq!((fork.digest(), fork.unsynced_writes()), (disk.digest(), 1));
    fork.write_durably(&[write(0, 2)]).unwrap();
    disk.power().cut_now();
    assert_eq!(sectors(&fork, 0), [2; 8]);
    let after: Vec<_> = (0..30).map(|seed| sectors(&disk.after_power_cut(seed), 0)).collect();
    assert!(after.iter().flatten().all(|byte| *byte < 2));
}

#[test]
fn c2_sync_error_when_it_comes_then_some_writes_are_gone_though_later_syncs_say_ok() {
    let (mut lost, mut kept, mut still_seen) = (0, 0, 0);
    for seed in 0..40 {
        let disk = SimDisk::new(LEN, seed).with_faults(FaultPlan::new([Fault::SyncError { sync: 0 }]));
        disk.write(&(0..8).map(|number| write(number, 1)).collect::<Vec<_>>()).unwrap();
        assert!(is_eio(&disk.sync().unwrap_err()));
        disk.sync().unwrap();
        let after = disk.after_power_cut(0);
        for number in 0..8 {
            let durable = sectors(&after, number) == [1; 8];
            kept += u32::from(durable);
            lost += u32::from(!durable);
            still_seen += u32::from(!durable && sectors(&disk, number) == [1; 8]);
        }
    }
    assert!(lost > 50 && kept > 50 && still_seen > 20, "{lost} {kept} {still_seen}");
}

#[test]
fn sync_error_when_in_a_durable_write_then_eio() {
    let disk = SimDisk::new(LEN, 1).with_faults(FaultPlan::new([Fault::SyncError { sync: 1 }]));
    disk.write_durably(&[write(0, 1)]).unwrap();
    assert!(is_eio(&disk.write_durably(&[write(1, 1)]).unwrap_err()));
    assert_eq!(sectors(&disk.after_power_cut(3), 0), [1; 8]);
}

#[test]
fn lying_sync_when_the_power_fails_then_acknowledged_writes_can_be_gone() {
    let disk = SimDisk::new(LEN, 1).with_faults(FaultPlan::new([Fault::LyingSync { syncs: 0..2 }]));
    disk.write_durably(&[write(0, 1)]).unwrap();
    disk.sync().unwrap();
    assert!((0..40).any(|seed| sectors(&disk.after_power_cut(seed), 0) == [0; 8]));
    disk.sync().unwrap();
    assert!((0..40).all(|seed| sectors(&disk.after_power_cut(seed), 0) == [1; 8]), "the third is honest");
}

#[test]
fn write_error_when_it_comes_then_eio_and_any_part_is_there() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(LEN, seed).with_faults(FaultPlan::new([Fault::WriteError { write: 1 }]));
        assert!(is_eio(&disk.write(&[write(0, 1), write(1, 1), write(2, 1)]).unwrap_err()));
        assert_eq!(sectors(&disk, 0), [1; 8]);
        seen.insert(sectors(&disk, 1));
        disk.write(&[write(1, 2)]).unwrap();
    }
    assert!(seen.len() > 30 && seen.contains(&vec![0; 8]) && seen.contains(&vec![1; 8]), "{seen:?}");
}

#[test]
fn read_error_when_it_comes_then_once_and_an_unreadable_page_until_written() {
    let disk = SimDisk::new(LEN, 1).with_faults(FaultPlan::new([Fault::ReadError { read: 1 }]));
    disk.read(0, 4096).unwrap();
    assert!(is_eio(&disk.read(0, 4096).unwrap_err()));
    disk.read(0, 4096).unwrap();
    disk.make_unreadable(4096 + 17);
    assert!(is_eio(&disk.read(0, 8192).unwrap_err()));
    assert!(is_eio(&disk.after_power_cut(1).read(4096, 4096).unwrap_err()));
    disk.read(0, 4096).unwrap();
    disk.write(&[write(1, 3)]).unwrap();
    assert_eq!(sectors(&disk, 1), [3; 8]);
}

#[test]
fn c5_lost_and_misdirected_writes_when_they_come_then_acknowledged_and_elsewhere() {
    let faults = [Fault::LostWrite { write: 0 }, Fault::MisdirectedWrite { write: 1, to: 5 * 4096 + 9 }];
    let disk = SimDisk::new(LEN, 1).with_faults(FaultPlan::new(faults));
    disk.write_durably(&[write(0, 1), write(1, 2), write(2, 3)]).unwrap();
    for disk in [&disk, &disk.after_power_cut(1)] {
        assert_eq!((sectors(disk, 0), sectors(disk, 1)), (vec![0; 8], vec![0; 8]));
        assert_eq!((sectors(disk, 5), sectors(disk, 2)), (vec![2; 8], vec![3; 8]));
    }
    disk.set_faults(FaultPlan::new([Fault::MisdirectedWrite { write: 3, to: LEN - 4096 }]));
    disk.write(&[DeviceWrite::new(0, vec![9; 8192].into())]).unwrap();
    assert_eq!(sectors(&disk, LEN / 4096 - 1), [9; 8]);
    assert_eq!(disk.len_bytes(), LEN);
}

#[test]
fn bit_rot_when_it_comes_then_one_bit_differs_durably() {
    // Before the sync of the first write, and after it.
    for operation in [1, 2] {
        let rot = Fault::BitRot { operation, offset: 100, bit: 3 };
        let disk = SimDisk::new(LEN, 1).with_faults(FaultPlan::new([rot]));
        disk.write_durably(&[write(0, 0xff)]).unwrap();
        disk.sync().unwrap();
        for disk in [&disk, &disk.after_power_cut(1)] {
            let read = disk.read(0, 4096).unwrap();
            assert!(read.iter().enumerate().all(|(index, byte)| *byte == if index == 100 { 0xf7 } else { 0xff }));
        }
    }
    let disk = SimDisk::new(LEN, 1);
    disk.rot(LEN - 1, 0);
    assert_eq!(disk.read(LEN - 4096, 4096).unwrap()[4095], 1, "of what was never written, too");
}

#[test]
fn grow_when_beyond_the_limit_then_storage_full_and_as_it_was() {
    let disk = SimDisk::new(LEN, 1);
    disk.set_space_limit(Some(LEN + 8192));
    assert_eq!(disk.grow(LEN + 12_288).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(disk.len_bytes(), LEN);
    disk.grow(LEN + 8192).unwrap();
    disk.set_space_limit(None);
    disk.grow(LEN * 4).unwrap();
}

#[test]
fn slow_when_planned_then_the_driver_is_told_and_nobody_sleeps() {
    let slow = |operation| Fault::Slow { operation, delay_us: 60_000_000 };
    let disk = SimDisk::new(LEN, 1).with_faults(FaultPlan::new([slow(0), slow(2)]));
    disk.write_durably(&[write(0, 1)]).unwrap();
    assert_eq!((disk.take_delay_us(), disk.take_delay_us()), (60_000_000, 0));
    disk.sync().unwrap();
    assert_eq!(disk.take_delay_us(), 60_000_000);
}

#[test]
fn hang_when_planned_then_only_that_operation_waits_until_released() {
    let disk = Arc::new(SimDisk::new(LEN, 1).with_faults(FaultPlan::new([Fault::Hang { operation: 0 }])));
    std::thread::scope(|scope| {
        let hung = scope.spawn(|| disk.write_durably(&[write(0, 1)]));
        disk.wait_until_hanging(1);
        disk.write_durably(&[write(1, 1)]).unwrap();
        assert!(!hung.is_finished());
        assert_eq!(sectors(&disk, 0), [0; 8]);
        disk.release();
        hung.join().unwrap().unwrap();
    });
    assert_eq!(sectors(&disk.after_power_cut(1), 0), [1; 8]);
}

#[test]
fn hang_when_the_power_fails_meanwhile_then_it_fails() {
    let disk = SimDisk::new(LEN, 1);
    disk.hang();
    std::thread::scope(|scope| {
        let hung = [scope.spawn(|| disk.sync()), scope.spawn(|| disk.read(0, 4096).map(drop))];
        disk.wait_until_hanging(2);
        disk.power().cut_now();
        disk.release();
        for hung in hung {
            assert!(is_power_cut(&hung.join().unwrap().unwrap_err()));
        }
    });
}

#[test]
fn write_when_two_of_a_call_overlap_then_refused() {
    let disk = SimDisk::new(LEN, 1);
    let long = DeviceWrite::new(0, vec![1; 8192].into());
    assert_eq!(disk.write(&[long, write(1, 2)]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(sectors(&disk, 0), [0; 8]);
}

#[test]
fn plan_when_made_from_seeds_then_repeatable_and_every_kind_comes() {
    let kinds = [
        FaultKind::ReadError,
        FaultKind::WriteError,
        FaultKind::SyncError,
        FaultKind::LyingSync,
        FaultKind::LostWrite,
        FaultKind::MisdirectedWrite,
        FaultKind::BitRot,
        FaultKind::Unreadable,
        FaultKind::Slow,
    ];
    let horizon = Horizon { operations: 100, len_bytes: LEN };
    let plan = |seed| FaultPlan::from_seed(seed, &kinds, horizon);
    let mut found: Vec<_> = (0..200).map(|seed| std::mem::discriminant(&plan(seed).faults[0])).collect();
    found.sort_by_key(|kind| format!("{kind:?}"));
    found.dedup();
    assert_eq!(found.len(), kinds.len());
    assert!((0..50).all(|seed| plan(seed) == plan(seed)));
    assert_eq!(FaultPlan::from_seed(1, &[], horizon), FaultPlan::none());
}
