//! Mode pages and capacity, and that every allocation length cuts the data and nothing else (SPC-4, 4.2.5.6).

use super::*;

/// Header and pages of MODE SENSE(6) for all pages.
const ALL_PAGES: &str = "43 00 10 08 00200000 00000200
    01 0a c0 00 00 00 00 00 00 00 00 00
    08 12 000000000000000000 000000000000000000
    0a 0a 22 10 00 40 00 00 ff ff 00 00
    1c 0a 08 00 00 00 00 00 00 00 00 00";

#[test]
fn mode_sense_6_returns_all_pages_in_ascending_order() {
    let mut host = Host::with(unit_512());
    assert_eq!(host.data(&[0x1a, 0, 0x3f, 0, 255, 0]), hex(ALL_PAGES));
    assert_eq!(host.data(&[0x1a, 0, 0x3f, 0xff, 255, 0]), hex(ALL_PAGES), "with all subpages");
    assert_eq!(host.data(&[0x1a, 0, 0xbf, 0, 255, 0]), hex(ALL_PAGES), "default values");
}

#[test]
fn mode_sense_without_block_descriptors() {
    let mut host = Host::with(unit_512());
    assert_eq!(host.data(&[0x1a, 8, 0x0a, 0, 255, 0]), hex("0f 00 10 00 0a 0a 22 10 00 40 00 00 ff ff 00 00"));
    let long = host.data(&hex("5a 18 0a 00 00 00 00 00ff 00"));
    assert_eq!(long, hex("0012 00 10 00 00 0000 0a 0a 22 10 00 40 00 00 ff ff 00 00"));
}

#[test]
fn mode_sense_10_with_short_and_long_block_descriptors() {
    let mut host = Host::with(LogicalUnit { blocks: 1 << 40, ..unit_4096() });
    let short = host.data(&hex("5a 00 1c 00 00 00 00 00ff 00"));
    let page = "1c 0a 08 00 00 00 00 00 00 00 00 00";
    assert_eq!(short, hex(&format!("001a 00 10 00 00 0008 ffffffff 00001000 {page}")));
    let long = host.data(&hex("5a 10 1c 00 00 00 00 00ff 00"));
    assert_eq!(long, hex(&format!("0022 00 10 01 00 0010 0000010000000000 00000000 00001000 {page}")));
}

#[test]
fn changeable_values_are_a_mask_of_zeros() {
    let mut host = Host::with(unit_512());
    assert_eq!(host.data(&[0x1a, 8, 0x4a, 0, 255, 0]), padded(hex("0f 00 10 00 0a 0a"), 16));
}

#[test]
fn saved_values_are_not_supported() {
    let sense = Host::with(unit_512()).sense(&[0x1a, 0, 0xff, 0, 255, 0]);
    assert_eq!(codes(sense), (5, 0x39, 0));
}

#[test]
fn unknown_pages_and_subpages_are_told_apart() {
    let mut host = Host::with(unit_512());
    assert_eq!(host.sense(&[0x1a, 0, 0x02, 0, 255, 0]), Sense::invalid_bit_in_cdb(2, 5));
    assert_eq!(host.sense(&[0x1a, 0, 0x02, 1, 255, 0]), Sense::invalid_bit_in_cdb(2, 5));
    assert_eq!(host.sense(&[0x1a, 0, 0x0a, 1, 255, 0]), Sense::invalid_field_in_cdb(3));
    assert_eq!(host.sense(&[0x1a, 0, 0x3f, 1, 255, 0]), Sense::invalid_field_in_cdb(3));
}

#[test]
fn a_read_only_unit_is_write_protected() {
    let mut host = Host::with(LogicalUnit { read_only: true, ..unit_512() });
    assert_eq!(host.data(&[0x1a, 8, 0x3f, 0, 3, 0]), hex("3b 00 90"));
}

#[test]
fn descriptor_sense_is_reported_and_used() {
    let mut host = Host::with(LogicalUnit { descriptor_sense: true, ..unit_512() });
    assert_eq!(host.data(&[0x1a, 8, 0x0a, 0, 255, 0])[6], 0x26);
    let response = host.answer(&hex("88 00 ffffffffffffffff 00000001 00 00"));
    assert_eq!(response.sense_bytes()[..], hex("72 05 21 00 00 00 00 00"));
    let error = IoError::Medium { lba: 0x12_3456_789a }.response(&host.target.luns[&0]);
    assert_eq!(error.sense_bytes()[..], hex("72 03 11 00 00 00 00 0c 00 0a 80 00 000000123456789a"));
}

#[test]
fn read_capacity_10_sends_large_units_to_the_long_command() {
    assert_eq!(Host::with(unit_512()).data(&hex("25 00 00000000 0000 00 00")), hex("001fffff 00000200"));
    for (blocks, last) in [(1 << 32, "ffffffff"), ((1 << 32) - 1, "fffffffe"), (1 << 50, "ffffffff")] {
        let mut host = Host::with(LogicalUnit { blocks, ..unit_512() });
        assert_eq!(host.data(&hex("25 00 00000000 0000 00 00")), hex(&format!("{last} 00000200")));
    }
}

#[test]
fn read_capacity_with_an_address_needs_pmi() {
    let mut host = Host::with(unit_512());
    assert_eq!(host.sense(&hex("25 00 00000001 0000 00 00")), Sense::invalid_field_in_cdb(2));
    assert_eq!(host.data(&hex("25 00 001fffff 0000 01 00")), hex("001fffff 00000200"));
    assert_eq!(host.sense(&hex("25 00 00200000 0000 01 00")), Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
    assert_eq!(host.sense(&hex("9e 10 0000000000000001 00000020 00 00")), Sense::invalid_field_in_cdb(2));
    let beyond = host.sense(&hex("9e 10 8000000000000000 00000020 01 00"));
    assert_eq!(beyond, Sense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE);
}

/// A CDB without its allocation length, and where that is: first byte and number of bytes.
const ALLOCATION_LENGTHS: &[(&str, usize, usize)] = &[
    ("03 00 00 00 00 00", 4, 1),
    ("03 01 00 00 00 00", 4, 1),
    ("12 00 00 00 00 00", 3, 2),
    ("12 01 00 00 00 00", 3, 2),
    ("12 01 80 00 00 00", 3, 2),
    ("12 01 83 00 00 00", 3, 2),
    ("12 01 86 00 00 00", 3, 2),
    ("12 01 b0 00 00 00", 3, 2),
    ("12 01 b1 00 00 00", 3, 2),
    ("12 01 b2 00 00 00", 3, 2),
    ("1a 00 3f 00 00 00", 4, 1),
    ("1a 08 0a 00 00 00", 4, 1),
    ("5a 00 3f 00 00 00 00 0000 00", 7, 2),
    ("5a 10 3f 00 00 00 00 0000 00", 7, 2),
    ("9e 10 0000000000000000 00000000 00 00", 10, 4),
    ("a0 00 02 00 00 00 00000000 00 00", 6, 4),
    ("a3 0c 00 00 0000 00000000 00 00", 6, 4),
    ("a3 0c 80 00 0000 00000000 00 00", 6, 4),
    ("a3 0c 81 28 0000 00000000 00 00", 6, 4),
    ("a3 0d 00 00 0000 00000000 00 00", 6, 4),
    ("a3 0d 80 00 0000 00000000 00 00", 6, 4),
];

#[test]
fn every_allocation_length_gives_the_beginning_of_the_same_data() {
    let mut host = Host::with(unit_512());
    for &(cdb, at, width) in ALLOCATION_LENGTHS {
        let mut cdb = hex(cdb);
        cdb[at..at + width].fill(0xff);
        let whole = host.data(&cdb);
        assert!(!whole.is_empty());
        for length in 0..=whole.len() + 1 {
            let bytes = u32::try_from(length).unwrap().to_be_bytes();
            if bytes[..4 - width].iter().any(|byte| *byte != 0) {
                continue;
            }
            cdb[at..at + width].copy_from_slice(&bytes[4 - width..]);
            assert_eq!(host.data(&cdb), whole[..length.min(whole.len())], "{cdb:02x?}");
        }
    }
}
