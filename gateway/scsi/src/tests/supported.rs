//! REPORT SUPPORTED OPERATION CODES and TASK MANAGEMENT FUNCTIONS (SPC-4, 6.35 and 6.36).

use super::*;

fn report(options: u8, opcode: u8, service_action: u16) -> Vec<u8> {
    let [high, low] = service_action.to_be_bytes();
    vec![0xa3, 0x0c, options, opcode, high, low, 0, 0, 0xff, 0xff, 0, 0]
}

/// Operation code, service action where there is one, length of the CDB.
const SUPPORTED: &[(u8, Option<u16>, u16)] = &[
    (0x00, None, 6),
    (0x03, None, 6),
    (0x08, None, 6),
    (0x0a, None, 6),
    (0x12, None, 6),
    (0x1a, None, 6),
    (0x25, None, 10),
    (0x28, None, 10),
    (0x2a, None, 10),
    (0x35, None, 10),
    (0x41, None, 10),
    (0x42, None, 10),
    (0x5a, None, 10),
    (0x88, None, 16),
    (0x8a, None, 16),
    (0x91, None, 16),
    (0x93, None, 16),
    (0x9e, Some(0x10), 16),
    (0x9e, Some(0x12), 16),
    (0xa0, None, 12),
    (0xa3, Some(0x0c), 12),
    (0xa3, Some(0x0d), 12),
    (0xa8, None, 12),
    (0xaa, None, 12),
];

#[test]
fn the_whole_list_has_a_descriptor_of_eight_bytes_for_each_command() {
    let data = Host::with(unit_512()).data(&report(0, 0, 0));
    assert_eq!(data[..4], u32::try_from(SUPPORTED.len() * 8).unwrap().to_be_bytes());
    let expected: Vec<u8> = SUPPORTED
        .iter()
        .flat_map(|&(opcode, action, length)| {
            let [action_high, action_low] = action.unwrap_or(0).to_be_bytes();
            let [length_high, length_low] = length.to_be_bytes();
            [opcode, 0, action_high, action_low, 0, u8::from(action.is_some()), length_high, length_low]
        })
        .collect();
    assert_eq!(data[4..], expected);
}

#[test]
fn with_rctd_every_descriptor_is_followed_by_timeouts() {
    let data = Host::with(unit_512()).data(&report(0x80, 0, 0));
    assert_eq!(data.len(), 4 + SUPPORTED.len() * 20);
    for descriptor in data[4..].chunks(20) {
        assert_eq!(descriptor[5] & 0x02, 0x02, "CTDP");
        assert_eq!(descriptor[8..10], [0, 10]);
    }
    // READ(10), the eighth command: nominal 1 s, recommended 30 s.
    assert_eq!(data[4 + 7 * 20..][..20], hex("28 00 0000 00 02 000a 000a 00 00 00000001 0000001e"));
}

#[test]
fn one_command_options_tell_service_actions_apart() {
    let mut host = Host::with(unit_512());
    let options = Sense::invalid_bit_in_cdb(2, 2);
    for &(opcode, action, length) in SUPPORTED {
        let number = action.unwrap_or(0);
        let by_opcode = host.plan(&report(1, opcode, 0));
        let by_action = host.plan(&report(2, opcode, number));
        let (works, refused) = if action.is_some() { (by_action, by_opcode) } else { (by_opcode, by_action) };
        assert_eq!(sense_of(refused), options, "{opcode:02x}");
        let Plan::Respond(response) = works else { panic!() };
        assert_eq!(response.data_in[..2], [0, 3], "{opcode:02x}");
        assert_eq!(response.data_in[2..4], length.to_be_bytes());
        assert_eq!(response.data_in[4], opcode);
        assert_eq!(response.data_in.len(), 4 + usize::from(length));
        // Option 011b takes both kinds.
        assert_eq!(host.data(&report(3, opcode, number)), response.data_in);
        assert_eq!(host.data(&report(3, opcode, number + 1))[1], if (opcode, number) == (0xa3, 0x0c) { 3 } else { 1 });
    }
}

#[test]
fn commands_that_are_not_supported_say_so() {
    let mut host = Host::with(unit_512());
    for options in 1..=3 {
        assert_eq!(host.data(&report(options, 0x85, 0)), hex("00 01 0000"));
    }
    assert_eq!(host.data(&report(2, 0x9e, 0x14)), hex("00 01 0000"));
    for options in 4..=7 {
        assert_eq!(host.sense(&report(options, 0x28, 0)), Sense::invalid_bit_in_cdb(2, 2));
    }
}

#[test]
fn dpo_and_fua_are_in_the_usage_data_of_reads_and_writes() {
    let mut host = Host::with(unit_512());
    for opcode in [0x28, 0x2a, 0x88, 0x8a, 0xa8, 0xaa] {
        assert_eq!(host.data(&report(1, opcode, 0))[5] & 0x18, 0x18);
    }
}

#[test]
fn a_single_command_with_timeouts() {
    let data = Host::with(unit_512()).data(&report(0x82, 0x9e, 0x10));
    let expected = "00 83 0010 9e 10 ffffffffffffffff ffffffff 01 00 000a 00 00 00000000 0000000a";
    assert_eq!(data, hex(expected));
}

#[test]
fn task_management_functions_are_those_of_rfc_7143() {
    let mut host = Host::with(unit_512());
    assert_eq!(host.data(&hex("a3 0d 00 00 0000 00000004 00 00")), hex("da 00 00 00"));
    assert_eq!(host.data(&hex("a3 0d 80 00 0000 00000010 00 00")), padded(hex("da 00 00 0c"), 16));
}
