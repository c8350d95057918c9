//! Unit attention conditions as commands meet them (SAM-5, 5.14; SPC-4).

use super::*;

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const REQUEST_SENSE: [u8; 6] = [0x03, 0, 0, 0, 252, 0];

#[test]
fn each_unit_reports_the_new_nexus_once() {
    let target = target([(0, unit_512()), (7, unit_512())]);
    let mut nexus = new_nexus();
    for lun in [0, 7] {
        let lun = LunAddress::Unit(lun).to_bytes().unwrap();
        let request = Request { lun, cdb: &TEST_UNIT_READY, expected_data_out_bytes: 0 };
        assert_eq!(codes(sense_of(prepare(&request, &mut nexus, &target))), (6, 0x29, 0));
        assert_eq!(prepare(&request, &mut nexus, &target), Plan::Respond(Response::good()));
    }
}

#[test]
fn inquiry_and_report_luns_pass_by_and_leave_the_condition() {
    let mut host = Host::with(unit_512());
    host.nexus.raise(Some(0), UnitAttention::CapacityDataHasChanged);
    assert_eq!(host.answer(&hex("12 00 00 00 24 00")).status, Status::Good);
    assert_eq!(host.answer(&hex("a0 00 00 00 00 00 00 00 10 00 00 00")).status, Status::Good);
    assert_eq!(codes(host.sense(&TEST_UNIT_READY)), (6, 0x2a, 0x09));
    assert_eq!(host.answer(&TEST_UNIT_READY).status, Status::Good);
}

#[test]
fn request_sense_returns_the_condition_as_data_and_ends_it() {
    let mut host = Host::with(unit_512());
    host.nexus.raise(Some(0), UnitAttention::ModeParametersChanged);
    assert_eq!(host.data(&REQUEST_SENSE), hex("70 00 06 00000000 0a 00000000 2a 01 00 000000"));
    assert_eq!(host.data(&REQUEST_SENSE), hex("70 00 00 00000000 0a 00000000 00 00 00 000000"));
    assert_eq!(host.answer(&TEST_UNIT_READY).status, Status::Good);
}

#[test]
fn request_sense_in_descriptor_format_when_desc_is_set() {
    let mut host = Host::with(unit_512());
    host.nexus.raise(Some(0), UnitAttention::ITNexusLoss);
    assert_eq!(host.data(&[0x03, 0x01, 0, 0, 252, 0]), hex("72 06 29 07 00 00 00 00"));
}

#[test]
fn a_bad_request_sense_does_not_end_the_condition() {
    let mut host = Host::with(unit_512());
    host.nexus.raise(Some(0), UnitAttention::ITNexusLoss);
    assert_eq!(codes(host.sense(&[0x03, 0x02, 0, 0, 252, 0])), (5, 0x24, 0));
    assert_eq!(codes(host.sense(&TEST_UNIT_READY)), (6, 0x29, 0x07));
}

#[test]
fn the_condition_comes_before_an_unknown_operation_code_and_a_bad_field() {
    let mut host = Host::with(unit_512());
    host.nexus.raise(Some(0), UnitAttention::ITNexusLoss);
    assert_eq!(codes(host.sense(&[0xff; 16])), (6, 0x29, 0x07));
    assert_eq!(codes(host.sense(&[0xff; 16])), (5, 0x20, 0x00));
    host.nexus.raise(Some(0), UnitAttention::ITNexusLoss);
    assert_eq!(codes(host.sense(&[0x28, 0xff, 0, 0, 0, 0, 0, 0, 0, 0])), (6, 0x29, 0x07));
    assert_eq!(codes(host.sense(&[0x28, 0xff, 0, 0, 0, 0, 0, 0, 0, 0])), (5, 0x24, 0x00));
}

#[test]
fn report_luns_ends_changed_inventory_on_every_unit_and_nothing_else() {
    let mut host = Host::new([(0, unit_512()), (7, unit_512())]);
    host.nexus.raise(None, UnitAttention::ReportedLunsDataHasChanged);
    host.nexus.raise(Some(7), UnitAttention::CapacityDataHasChanged);
    assert_eq!(host.data(&hex("a0 00 00 00 00 00 00 00 10 00 00 00")).len(), 24);
    assert_eq!(host.nexus.pending(0), Some(&[][..]));
    assert_eq!(host.nexus.pending(7), Some(&[UnitAttention::CapacityDataHasChanged][..]));
}

#[test]
fn an_event_for_all_units_reaches_those_that_were_used() {
    let mut nexus = new_nexus();
    assert_eq!(nexus.pending(3), None);
    nexus.raise(None, UnitAttention::BusDeviceResetFunction);
    assert_eq!(nexus.pending(3), None);
    // The first command still finds the strongest condition there is.
    assert_eq!(nexus.take(3), Some(UnitAttention::PowerOnResetOrBusDeviceReset));
    nexus.raise(None, UnitAttention::BusDeviceResetFunction);
    assert_eq!(nexus.pending(3), Some(&[UnitAttention::BusDeviceResetFunction][..]));
    nexus.forget(3);
    assert_eq!(nexus.take(3), Some(UnitAttention::PowerOnResetOrBusDeviceReset));
}

#[test]
fn conditions_are_reported_one_a_command_and_resets_first() {
    let mut host = Host::with(unit_512());
    host.nexus.raise(Some(0), UnitAttention::CapacityDataHasChanged);
    host.nexus.raise(Some(0), UnitAttention::CommandsClearedByPowerLoss);
    host.nexus.raise(Some(0), UnitAttention::BusDeviceResetFunction);
    assert_eq!(codes(host.sense(&TEST_UNIT_READY)), (6, 0x29, 0x03));
    assert_eq!(codes(host.sense(&TEST_UNIT_READY)), (6, 0x2f, 0x01));
    assert_eq!(codes(host.sense(&TEST_UNIT_READY)), (6, 0x2a, 0x09));
    assert_eq!(host.answer(&TEST_UNIT_READY).status, Status::Good);
}
