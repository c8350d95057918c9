//! Commands to units that are there, are not there, and the well known unit (SPC-4, 6.6.2, 6.33 and 8).

use super::*;

const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];
const LUN_5: [u8; 8] = [0, 5, 0, 0, 0, 0, 0, 0];

fn report_luns(select_report: u8, allocation_length: u32) -> Vec<u8> {
    let mut cdb = vec![0xa0, 0, select_report, 0, 0, 0];
    cdb.extend_from_slice(&allocation_length.to_be_bytes());
    cdb.extend_from_slice(&[0, 0]);
    cdb
}

/// Units 5, 255, 256 and 16,383, and nothing at LUN 0.
fn without_lun_zero() -> Host {
    Host::new([5, 255, 256, 16383].map(|lun| (lun, unit_512())))
}

const INVENTORY: &str = "0005000000000000 00ff000000000000 4100000000000000 7fff000000000000";

#[test]
fn lun_zero_without_a_unit_answers_what_a_scan_needs() {
    let mut host = without_lun_zero();
    let inquiry = host.data(&INQUIRY);
    assert_eq!(inquiry[0], 0x3f, "qualifier 001b, type 1Fh");
    assert_eq!(inquiry.len(), 96);
    let expected = [hex("00000020 00000000"), hex(INVENTORY)].concat();
    assert_eq!(host.data(&report_luns(0, 4096)), expected);
    assert_eq!(host.data(&[0x12, 1, 0, 0, 255, 0]), hex("3f 00 0001 00"));
    assert_eq!(codes(host.sense(&[0x12, 1, 0x83, 0, 255, 0])), (5, 0x24, 0));
}

#[test]
fn other_commands_at_a_lun_without_a_unit_are_refused_at_once() {
    let mut host = without_lun_zero();
    let read_10 = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    for lun in [LUN_0, [0, 6, 0, 0, 0, 0, 0, 0], [0x80; 8], [0, 5, 0, 1, 0, 0, 0, 0]] {
        for cdb in [&[0; 6][..], &read_10, &[0x1a, 0, 0x3f, 0, 255, 0], &[0xff; 16], &[]] {
            assert_eq!(codes(host.sense_at(lun, cdb)), (5, 0x25, 0), "{lun:x?} {cdb:x?}");
        }
    }
    assert_eq!(host.answer_at(LUN_5, &[0; 6]).status, Status::Good);
}

#[test]
fn a_lun_without_a_unit_says_so_in_inquiry_and_request_sense() {
    let mut host = without_lun_zero();
    let nowhere = [0, 6, 0, 0, 0, 0, 0, 0];
    assert_eq!(host.data_at(nowhere, &INQUIRY)[0], 0x7f, "qualifier 011b, type 1Fh");
    let sense = host.data_at(nowhere, &[0x03, 0, 0, 0, 18, 0]);
    assert_eq!(sense, hex("70 00 05 00000000 0a 00000000 25 00 00 000000"));
    assert_eq!(codes(host.sense_at(nowhere, &report_luns(0, 4096))), (5, 0x25, 0));
}

#[test]
fn every_select_report_has_an_answer() {
    let mut host = without_lun_zero();
    let units = hex(INVENTORY);
    let well_known = hex("c101000000000000");
    for (select_report, expected) in [
        (0x00, units.clone()),
        (0x01, well_known.clone()),
        (0x02, [units.clone(), well_known].concat()),
        (0x10, vec![]),
        (0x11, units),
        (0x12, vec![]),
    ] {
        let data = host.data(&report_luns(select_report, 4096));
        assert_eq!(data[..4], u32::try_from(expected.len()).unwrap().to_be_bytes(), "{select_report:x}");
        assert_eq!(data[8..], expected, "{select_report:x}");
    }
    for select_report in (0x03..=0x0f).chain(0x13..=0xff) {
        assert_eq!(host.sense(&report_luns(select_report, 4096)), Sense::invalid_field_in_cdb(2));
    }
}

#[test]
fn report_luns_is_cut_to_the_allocation_length_but_says_the_whole_one() {
    let mut host = without_lun_zero();
    for length in 0..=41 {
        let data = host.data(&report_luns(0, length));
        assert_eq!(data.len(), usize::try_from(length.min(40)).unwrap());
        if data.len() >= 4 {
            assert_eq!(data[..4], [0, 0, 0, 32]);
        }
    }
}

#[test]
fn all_16384_luns_are_listed() {
    let mut host = Host::new((0..=MAX_LUN).map(|lun| (lun, unit_512())));
    let data = host.data(&report_luns(0, u32::MAX));
    assert_eq!(data.len(), 8 + 8 * 16384);
    assert_eq!(data[data.len() - 8..], hex("7fff000000000000"));
}

#[test]
fn the_well_known_unit_has_few_commands_and_its_own_type() {
    let mut host = without_lun_zero();
    assert_eq!(host.data_at(WELL_KNOWN, &INQUIRY)[0], 0x1e);
    assert_eq!(host.data_at(WELL_KNOWN, &[0x12, 1, 0, 0, 255, 0]), hex("1e 00 0002 00 83"));
    let identification = host.data_at(WELL_KNOWN, &[0x12, 1, 0x83, 0, 255, 0]);
    assert_eq!(identification[..12], hex("1e 83 0060 51 94 00 04 00000001"));
    assert_eq!(host.answer_at(WELL_KNOWN, &[0; 6]).status, Status::Good);
    assert_eq!(host.data_at(WELL_KNOWN, &[0x03, 0, 0, 0, 18, 0])[2], 0);
    assert_eq!(host.data_at(WELL_KNOWN, &report_luns(1, 16))[8..], hex("c101000000000000"));
    for cdb in [&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0][..], &[0x1a, 0, 0x3f, 0, 255, 0], &[0xff; 16]] {
        assert_eq!(codes(host.sense_at(WELL_KNOWN, cdb)), (5, 0x20, 0));
    }
}

#[test]
fn flat_addressing_reaches_the_same_unit_as_peripheral() {
    let mut host = without_lun_zero();
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    for lun in [LUN_5, [0x40, 5, 0, 0, 0, 0, 0, 0]] {
        let Plan::Io(io) = host.plan_at(lun, &read, 0) else { panic!() };
        assert_eq!(io.lun, 5);
    }
}
