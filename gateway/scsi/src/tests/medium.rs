//! READ, WRITE, SYNCHRONIZE CACHE and WRITE SAME: ranges, limits and what is asked of the initiator.

use super::*;

/// A READ or WRITE CDB of an operation code.
fn transfer(opcode: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let [_, _, _, _, l4, l5, l6, l7] = lba.to_be_bytes();
    let [b0, b1, b2, b3] = blocks.to_be_bytes();
    match opcode >> 5 {
        0 => vec![opcode, l5, l6, l7, b3, 0],
        1 | 2 => vec![opcode, 0, l4, l5, l6, l7, 0, b2, b3, 0],
        5 => vec![opcode, 0, l4, l5, l6, l7, b0, b1, b2, b3, 0, 0],
        _ => [vec![opcode, 0], lba.to_be_bytes().to_vec(), blocks.to_be_bytes().to_vec(), vec![0, 0]].concat(),
    }
}

const READS: [u8; 4] = [0x08, 0x28, 0xa8, 0x88];
const WRITES: [u8; 4] = [0x0a, 0x2a, 0xaa, 0x8a];

#[test]
fn every_length_of_cdb_names_the_same_range() {
    for unit in [unit_512(), unit_4096()] {
        let bytes = u64::from(unit.block_size.bytes());
        let mut host = Host::with(unit);
        let range = BlockRange { lba: 0x1_2345, blocks: 0x67 };
        for opcode in READS {
            let io = host.io(&transfer(opcode, range.lba, 0x67), 0);
            assert_eq!((io.lun, &io.operation, io.data_out_bytes), (0, &Operation::Read(range), 0));
            assert_eq!(io.data_in_bytes(), 0x67 * bytes);
        }
        for opcode in WRITES {
            let io = host.io(&transfer(opcode, range.lba, 0x67), 0);
            assert_eq!((&io.operation, io.data_out_bytes), (&Operation::Write(range), 0x67 * bytes));
            assert_eq!(io.data_in_bytes(), 0);
            assert_eq!(range.offset_bytes(&io.unit), 0x1_2345 * bytes);
        }
    }
}

#[test]
fn a_length_of_zero_is_256_blocks_in_six_bytes_and_nothing_in_more() {
    let mut host = Host::with(unit_512());
    let io = host.io(&transfer(0x08, 5, 0), 0);
    assert_eq!(io.operation, Operation::Read(BlockRange { lba: 5, blocks: 256 }));
    for opcode in [0x28, 0xa8, 0x88, 0x2a, 0xaa, 0x8a] {
        assert_eq!(host.plan(&transfer(opcode, 0, 0)), Plan::Respond(Response::good()));
        assert_eq!(host.plan(&transfer(opcode, 1 << 21, 0)), Plan::Respond(Response::good()));
        let beyond = host.sense(&transfer(opcode, (1 << 21) + 1, 0));
        assert_eq!(beyond, Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    }
}

#[test]
fn the_last_block_can_be_reached_and_the_one_behind_it_cannot() {
    let mut host = Host::with(LogicalUnit { blocks: 1 << 20, ..unit_512() });
    let end = 1_u64 << 20;
    for opcode in READS.into_iter().chain(WRITES) {
        for blocks in 1..=255 {
            host.io(&transfer(opcode, end - u64::from(blocks), blocks), 0);
            let beyond = host.sense(&transfer(opcode, end + 1 - u64::from(blocks), blocks));
            assert_eq!(codes(beyond), (5, 0x21, 0));
        }
    }
}

#[test]
fn addresses_at_the_end_of_the_number_range_do_not_wrap() {
    let mut host = Host::with(unit_512());
    for lba in [u64::MAX, 1 << 63, u64::MAX - 1] {
        for blocks in [1, 2, u32::MAX] {
            for opcode in [0x88, 0x8a] {
                assert_eq!(codes(host.sense(&transfer(opcode, lba, blocks))), (5, 0x21, 0));
            }
        }
    }
    let mut host = Host::with(LogicalUnit { blocks: u64::MAX, ..unit_512() });
    assert_eq!(codes(host.sense(&transfer(0x88, u64::MAX, 1))), (5, 0x21, 0));
    host.io(&transfer(0x88, u64::MAX - 1, 1), 0);
}

#[test]
fn a_transfer_above_the_limit_is_refused_at_its_length_field() {
    for (unit, most) in [(unit_512(), 16384), (unit_4096(), 2048)] {
        let mut host = Host::with(unit);
        for (opcode, length_at) in [(0x28, 7), (0xa8, 6), (0x88, 10), (0x2a, 7), (0xaa, 6), (0x8a, 10)] {
            host.io(&transfer(opcode, 0, most), 0);
            assert_eq!(host.sense(&transfer(opcode, 0, most + 1)), Sense::invalid_field_in_cdb(length_at));
        }
    }
}

#[test]
fn dpo_fua_and_group_numbers_change_nothing() {
    let mut host = Host::with(unit_512());
    for (opcode, group_at) in [(0x28, 6), (0xa8, 10), (0x88, 14), (0x2a, 6), (0xaa, 10), (0x8a, 14)] {
        let plain = host.io(&transfer(opcode, 1, 1), 0);
        let mut cdb = transfer(opcode, 1, 1);
        cdb[1] = 0x18;
        cdb[group_at] = 0x1f;
        assert_eq!(host.io(&cdb, 0), plain);
    }
}

#[test]
fn a_read_only_unit_refuses_every_write_and_nothing_else() {
    let mut host = Host::with(LogicalUnit { read_only: true, ..unit_512() });
    let mut writes: Vec<Vec<u8>> = WRITES.iter().map(|opcode| transfer(*opcode, 0, 1)).collect();
    writes.push(hex("41 08 00000000 00 0001 00"));
    writes.push(hex("93 08 0000000000000000 00000001 00 00"));
    writes.push(hex("42 00 00000000 00 0018 00"));
    for cdb in writes {
        assert_eq!(codes(host.sense(&cdb)), (7, 0x27, 0), "{cdb:02x?}");
    }
    for opcode in READS {
        host.io(&transfer(opcode, 0, 1), 0);
    }
    host.io(&hex("35 00 00000000 00 0000 00"), 0);
}

#[test]
fn synchronize_cache_covers_the_range_or_everything_to_the_end() {
    let mut host = Host::with(unit_512());
    let whole = BlockRange { lba: 0, blocks: 1 << 21 };
    assert_eq!(host.io(&hex("35 00 00000000 00 0000 00"), 0).operation, Operation::Flush(whole));
    assert_eq!(host.io(&hex("91 00 0000000000000000 00200000 00 00"), 0).operation, Operation::Flush(whole));
    let some = BlockRange { lba: 16, blocks: 3 };
    assert_eq!(host.io(&hex("35 00 00000010 00 0003 00"), 0).operation, Operation::Flush(some));
    assert_eq!(host.plan(&hex("35 02 00000010 00 0003 00")), Plan::Respond(Response::good()));
    for cdb in ["35 00 00200000 00 0000 00", "35 02 001fffff 00 0002 00", "91 00 ffffffffffffffff 00000001 00 00"] {
        assert_eq!(codes(host.sense(&hex(cdb))), (5, 0x21, 0));
    }
}

/// A WRITE SAME (10) or (16) CDB.
fn write_same(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut cdb = transfer(opcode, lba, blocks);
    cdb[1] = flags;
    cdb
}

#[test]
fn write_same_asks_for_one_block_of_data() {
    for unit in [unit_512(), unit_4096()] {
        let block = u64::from(unit.block_size.bytes());
        let mut host = Host::with(unit);
        let range = BlockRange { lba: 8, blocks: 256 };
        for opcode in [0x41, 0x93] {
            for (flags, unmap) in [(0, false), (0x08, true)] {
                let io = host.io(&write_same(opcode, flags, 8, 256), block);
                assert_eq!(io.operation, Operation::WriteSame { range, unmap, data_out: true });
                assert_eq!(io.data_out_bytes, block);
            }
        }
    }
}

#[test]
fn write_same_with_more_or_less_than_one_block_of_data_is_refused() {
    let mut host = Host::with(unit_512());
    for opcode in [0x41, 0x93] {
        for announced in [0, 1, 256, 511, 513, 1024] {
            let plan = host.plan_at(LUN_0, &write_same(opcode, 0x08, 0, 1), announced);
            assert_eq!(codes(sense_of(plan)), (5, 0x24, 0), "{announced}");
        }
    }
}

#[test]
fn write_same_without_a_data_out_buffer_writes_zeros() {
    let mut host = Host::with(unit_512());
    let io = host.io(&write_same(0x93, 0x01, 0, 5), 0);
    let range = BlockRange { lba: 0, blocks: 5 };
    assert_eq!(io.operation, Operation::WriteSame { range, unmap: false, data_out: false });
    assert_eq!(io.data_out_bytes, 0);
    // In the shorter CDB this bit is obsolete.
    assert_eq!(host.sense(&write_same(0x41, 0x01, 0, 5)), Sense::invalid_bit_in_cdb(1, 0));
}

#[test]
fn anchoring_is_refused_with_and_without_unmap() {
    let mut host = Host::with(unit_512());
    for opcode in [0x41, 0x93] {
        for flags in [0x10, 0x18] {
            assert_eq!(host.sense(&write_same(opcode, flags, 0, 1)), Sense::invalid_bit_in_cdb(1, 4));
        }
    }
}

#[test]
fn write_same_of_zero_blocks_goes_to_the_end_within_the_limit() {
    let mut host = Host::with(unit_512());
    let (end, most) = (1_u64 << 21, 32768_u64);
    for (opcode, length_at) in [(0x41, 7), (0x93, 10)] {
        for blocks in [most, most - 1, 1] {
            let io = host.io(&write_same(opcode, 0, end - blocks, 0), 512);
            let range = BlockRange { lba: end - blocks, blocks };
            assert_eq!(io.operation, Operation::WriteSame { range, unmap: false, data_out: true });
        }
        for lba in [0, end - most - 1] {
            let plan = host.plan_at(LUN_0, &write_same(opcode, 0, lba, 0), 512);
            assert_eq!(sense_of(plan), Sense::invalid_field_in_cdb(length_at));
        }
        for lba in [end, end + 1, 1 << 31, 0xffff_ffff] {
            let plan = host.plan_at(LUN_0, &write_same(opcode, 0, lba, 0), 512);
            assert_eq!(codes(sense_of(plan)), (5, 0x21, 0));
        }
    }
    for lba in [1 << 63, u64::MAX] {
        let plan = host.plan_at(LUN_0, &write_same(0x93, 0, lba, 0), 512);
        assert_eq!(codes(sense_of(plan)), (5, 0x21, 0));
    }
}

#[test]
fn the_write_same_limit_is_never_above_the_size_of_the_unit() {
    let mut host = Host::with(LogicalUnit { blocks: 1000, ..unit_512() });
    assert_eq!(host.data(&hex("12 01 b0 00 40 00"))[36..44], 1000_u64.to_be_bytes());
    let io = host.io(&write_same(0x93, 0x08, 0, 0), 512);
    let range = BlockRange { lba: 0, blocks: 1000 };
    assert_eq!(io.operation, Operation::WriteSame { range, unmap: true, data_out: true });
}

#[test]
fn storage_errors_become_the_sense_that_hosts_act_on() {
    let unit = unit_512();
    for (error, expected) in [
        (IoError::Medium { lba: 7 }, (3, 0x11, 0x00)),
        (IoError::Write { lba: 7 }, (3, 0x0c, 0x00)),
        (IoError::NoSpace, (7, 0x27, 0x07)),
        (IoError::WriteProtected, (7, 0x27, 0x00)),
        (IoError::NotReady, (2, 0x04, 0x01)),
        (IoError::TransportLost, (0xb, 0x08, 0x00)),
        (IoError::DataOutDamaged, (0xb, 0x47, 0x01)),
        (IoError::OutOfRange, (5, 0x21, 0x00)),
        (IoError::MiscompareAt(512), (0xe, 0x1d, 0x00)),
        (IoError::Internal, (4, 0x44, 0x00)),
    ] {
        assert_eq!(codes(sense_of(Plan::Respond(error.response(&unit)))), expected, "{error}");
    }
    let bytes = IoError::Medium { lba: 7 }.response(&unit).sense_bytes();
    assert_eq!(bytes[..], hex("f0 00 03 00000007 0a 00000000 11 00 00 000000"));
}
