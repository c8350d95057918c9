//! Every bit that the standards reserve, and every CDB that is too short, for every command.

use super::*;

/// Operation code, service action, and for each byte behind the first the bits that belong to a field which this
/// target supports, from the CDB's layout in the standard. Not here: RDPROTECT and WRPROTECT (no protection
/// information), ANCHOR (ANC_SUP=0), NACA of the control byte (NORMACA=0), and everything obsolete.
const FIELDS: &[(u8, u8, &str, &str)] = &[
    (0x00, 0, "00 00 00 00 00", "TEST UNIT READY, SPC-4"),
    (0x03, 0, "01 00 00 ff 00", "REQUEST SENSE, SPC-4: DESC"),
    (0x08, 0, "1f ff ff ff 00", "READ(6), SBC-3: 21-bit address"),
    (0x0a, 0, "1f ff ff ff 00", "WRITE(6), SBC-3: 21-bit address"),
    (0x12, 0, "01 ff ff ff 00", "INQUIRY, SPC-4: EVPD; CMDDT is obsolete"),
    (0x1a, 0, "08 ff ff ff 00", "MODE SENSE(6), SPC-4: DBD"),
    (0x25, 0, "00 ffffffff 0000 01 00", "READ CAPACITY(10), SBC-3: PMI"),
    (0x28, 0, "18 ffffffff 1f ffff 00", "READ(10), SBC-3: DPO, FUA, group number"),
    (0x2a, 0, "18 ffffffff 1f ffff 00", "WRITE(10), SBC-3"),
    (0x35, 0, "02 ffffffff 1f ffff 00", "SYNCHRONIZE CACHE(10), SBC-3: IMMED"),
    (0x41, 0, "08 ffffffff 1f ffff 00", "WRITE SAME(10), SBC-3: UNMAP"),
    (0x42, 0, "00 00000000 1f ffff 00", "UNMAP, SBC-3"),
    (0x5a, 0, "18 ff ff 000000 ffff 00", "MODE SENSE(10), SPC-4: LLBAA, DBD"),
    (0x88, 0, "18 ffffffffffffffff ffffffff 1f 00", "READ(16), SBC-3"),
    (0x8a, 0, "18 ffffffffffffffff ffffffff 1f 00", "WRITE(16), SBC-3"),
    (0x91, 0, "02 ffffffffffffffff ffffffff 1f 00", "SYNCHRONIZE CACHE(16), SBC-3"),
    (0x93, 0, "09 ffffffffffffffff ffffffff 1f 00", "WRITE SAME(16), SBC-3: UNMAP, NDOB"),
    (0x9e, 0x10, "1f ffffffffffffffff ffffffff 01 00", "READ CAPACITY(16), SBC-3: PMI"),
    (0x9e, 0x12, "1f ffffffffffffffff ffffffff 00 00", "GET LBA STATUS, SBC-3"),
    (0xa0, 0, "00 ff 000000 ffffffff 00 00", "REPORT LUNS, SPC-4"),
    (0xa3, 0x0c, "1f 87 ff ffff ffffffff 00 00", "REPORT SUPPORTED OPERATION CODES, SPC-4: RCTD"),
    (0xa3, 0x0d, "1f 80 00 0000 ffffffff 00 00", "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS, SPC-4"),
    (0xa8, 0, "18 ffffffff ffffffff 1f 00", "READ(12), SBC-3"),
    (0xaa, 0, "18 ffffffff ffffffff 1f 00", "WRITE(12), SBC-3"),
];

#[test]
fn the_list_has_every_command() {
    let listed: Vec<(u8, u8)> = FIELDS.iter().map(|(opcode, action, ..)| (*opcode, *action)).collect();
    let known: Vec<(u8, u8)> = commands()
        .iter()
        .map(|command| (command.opcode, u8::try_from(command.service_action.unwrap_or(0)).unwrap()))
        .collect();
    assert_eq!(listed, known);
}

#[test]
fn each_reserved_bit_is_refused_and_pointed_at() {
    let mut host = Host::with(unit_512());
    for (opcode, action, fields, name) in FIELDS {
        let fields = hex(fields);
        for (at, field) in (1_u16..).zip(&fields) {
            for bit in (0..8).filter(|bit| field & (1 << bit) == 0) {
                let mut cdb = vec![0; 1 + fields.len()];
                cdb[0] = *opcode;
                cdb[1] = *action;
                cdb[usize::from(at)] |= 1 << bit;
                let sense = host.sense(&cdb);
                assert_eq!(codes(sense), (5, 0x24, 0), "{name}: byte {at} bit {bit}");
                let pointer = FieldPointer { in_cdb: true, byte: at, bit: Some(bit) };
                assert_eq!(sense.field, Some(pointer), "{name}: byte {at} bit {bit}");
            }
        }
    }
}

#[test]
fn each_field_bit_is_never_taken_for_a_reserved_one() {
    let mut host = Host::with(unit_512());
    for (opcode, action, fields, name) in FIELDS {
        let fields = hex(fields);
        for (at, field) in (1_u16..).zip(&fields) {
            for bit in (0..8).filter(|bit| field & (1 << bit) != 0) {
                let mut cdb = vec![0; 1 + fields.len()];
                cdb[0] = *opcode;
                cdb[1] = *action;
                cdb[usize::from(at)] |= 1 << bit;
                if let Plan::Respond(Response { sense: Some(sense), .. }) = host.plan(&cdb) {
                    // Field pointers name the leftmost bit of a field, or none; a service action is a field too.
                    let whole_field = sense.field.is_none_or(|field| field.bit.is_none_or(|bit| matches!(bit, 2..=7)));
                    assert!(whole_field, "{name}: byte {at} bit {bit}: {sense}");
                }
            }
        }
    }
}

#[test]
fn bytes_behind_the_cdb_do_not_matter() {
    // iSCSI always carries sixteen bytes; those that the command does not have are not part of it (SAM-5).
    let mut host = Host::with(unit_512());
    for (opcode, action, fields, name) in FIELDS {
        let mut cdb = vec![0; 1 + hex(fields).len()];
        cdb[0] = *opcode;
        cdb[1] = *action;
        let exact = host.plan_at(LUN_0, &cdb, 512);
        cdb.resize(16, 0xff);
        assert_eq!(host.plan_at(LUN_0, &cdb, 512), exact, "{name}");
    }
}

#[test]
fn a_cdb_that_is_too_short_is_refused_where_it_ends() {
    let mut host = Host::with(unit_512());
    assert_eq!(host.sense(&[]), Sense::INVALID_OPERATION_CODE);
    for (opcode, action, fields, name) in FIELDS {
        let mut cdb = vec![0; 1 + hex(fields).len()];
        cdb[0] = *opcode;
        cdb[1] = *action;
        for len in 1..cdb.len() {
            // Without its second byte a command with service actions is not known at all.
            let expected = if *action != 0 && len == 1 {
                Sense::invalid_bit_in_cdb(1, 4)
            } else {
                Sense::invalid_field_in_cdb(u16::try_from(len).unwrap())
            };
            assert_eq!(host.sense(&cdb[..len]), expected, "{name}: {len} bytes");
        }
    }
}

#[test]
fn every_other_operation_code_is_unknown_and_every_other_service_action_invalid() {
    let mut host = Host::with(unit_512());
    for opcode in 0..=0xff {
        let actions: Vec<u8> =
            FIELDS.iter().filter(|(known, ..)| *known == opcode).map(|(_, action, ..)| *action).collect();
        for action in 0..32 {
            let mut cdb = [0; 16];
            cdb[0] = opcode;
            cdb[1] = action;
            match actions[..] {
                [] => assert_eq!(host.sense(&cdb), Sense::INVALID_OPERATION_CODE, "{opcode:02x}"),
                [0] => break,
                _ if actions.contains(&action) => {}
                _ => assert_eq!(host.sense(&cdb), Sense::invalid_bit_in_cdb(1, 4), "{opcode:02x}/{action:02x}"),
            }
        }
    }
}

#[test]
fn inquiry_of_a_page_without_evpd_and_of_an_unknown_page_is_refused() {
    let mut host = Host::with(unit_512());
    for page in 1..=0xff {
        assert_eq!(host.sense(&[0x12, 0, page, 0, 255, 0]), Sense::invalid_field_in_cdb(2));
    }
    for page in 0..=0xff {
        let known = [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2].contains(&page);
        let response = host.answer(&[0x12, 1, page, 0, 255, 0]);
        let expected = (!known).then_some(Sense::invalid_field_in_cdb(2));
        assert_eq!(response.sense, expected, "{page:02x}");
    }
}
