//! G6, one identity: what names the volume is the same on every gateway, what names the port is not.

use super::*;

fn identification(target: Target) -> Vec<u8> {
    let mut host = Host::with(unit_512());
    host.target = target;
    host.data(&[0x12, 1, 0x83, 4, 0, 0])
}

/// Designators by their second byte, association and kind.
fn designators(page: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut rest = &page[4..];
    let mut list = Vec::new();
    while let [_, kind, _, length, tail @ ..] = rest {
        let (designator, tail) = tail.split_at(usize::from(*length));
        list.push((*kind, designator.to_vec()));
        rest = tail;
    }
    assert!(rest.is_empty());
    list
}

#[test]
fn two_gateways_and_two_targets_show_the_same_unit_and_different_ports() {
    let first = designators(&identification(target([(0, unit_512())])));
    let second = designators(&identification(Target {
        name: "iqn.2026-11.io.holdfast:other".to_owned(),
        relative_port: 2,
        port_group: 2,
        ..target([(0, unit_512())])
    }));
    for (one, other) in first.iter().zip(&second) {
        assert_eq!(one.0, other.0);
        let of_unit = one.0 & 0x30 == 0;
        assert_eq!(one.1 == other.1, of_unit, "{:02x}", one.0);
    }
    assert_eq!(first.len(), 7);
}

#[test]
fn the_longest_iscsi_name_fits_and_an_impossible_one_is_left_out() {
    let long = Target { name: "i".repeat(223), ..target([(0, unit_512())]) };
    let list = designators(&identification(long));
    assert_eq!(list.len(), 7);
    assert_eq!(list[5].1.len(), 236);
    let impossible = Target { name: "i".repeat(400), ..target([(0, unit_512())]) };
    assert_eq!(designators(&identification(impossible)).len(), 5);
}

#[test]
fn a_serial_number_is_shown_in_printable_characters_and_not_too_long() {
    let mut host = Host::with(LogicalUnit { serial: format!("a\u{7}b {}", "x".repeat(300)), ..unit_512() });
    let page = host.data(&[0x12, 1, 0x80, 0xff, 0xff, 0]);
    assert_eq!(page[..8], [0, 0x80, 0, 252, b'a', b'?', b'b', b' ']);
    assert_eq!(page.len(), 256);
}

#[test]
fn locally_assigned_identifiers_have_their_kind_in_the_first_nibble() {
    assert_eq!(locally_assigned_naa(u64::MAX), 0x3fff_ffff_ffff_ffff);
    assert_eq!(locally_assigned_naa(0), 0x3000_0000_0000_0000);
}

#[test]
fn extended_inquiry_says_what_task_attributes_are_obeyed() {
    let page = Host::with(unit_512()).data(&[0x12, 1, 0x86, 0, 64, 0]);
    assert_eq!(page, padded(hex("00 86 003c 00 01 00 01"), 64));
}

#[test]
fn a_fully_provisioned_unit_offers_no_unmap_anywhere() {
    let mut host = Host::with(LogicalUnit { thin: false, ..unit_512() });
    assert_eq!(host.data(&hex("12 01 b2 00 08 00")), hex("00 b2 0004 00 00 00 00"));
    assert_eq!(host.data(&hex("12 01 b0 00 40 00"))[20..36], [0; 16]);
    assert_eq!(host.data(&hex("9e 10 0000000000000000 00000020 00 00"))[14], 0);
    assert_eq!(host.sense(&hex("42 00 00000000 00 0018 00")), Sense::INVALID_OPERATION_CODE);
    assert_eq!(host.sense(&hex("93 08 0000000000000000 00000001 00 00")), Sense::invalid_bit_in_cdb(1, 3));
    assert_eq!(host.data(&hex("a3 0c 01 42 0000 00000200 00 00")), hex("00 01 0000"));
}
