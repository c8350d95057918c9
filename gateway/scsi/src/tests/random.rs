//! Whatever arrives: no panic, and an answer that makes sense.

use proptest::prelude::*;

use super::*;

/// A CDB of 0 to 260 bytes; half of them begin with the operation code of a known command.
fn any_cdb() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..=260);
    // Few bits set, so that more than the reserved bits are tried.
    let sparse = prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..=20);
    let known = (0..commands().len(), prop_oneof![bytes(), sparse]).prop_map(|(row, mut cdb)| {
        let command = &commands()[row];
        if let Some(first) = cdb.first_mut() {
            *first = command.opcode;
        }
        if let (Some(action), Some(second)) = (command.service_action, cdb.get_mut(1)) {
            *second = u8::try_from(action).unwrap();
        }
        cdb
    });
    prop_oneof![bytes(), known]
}

fn any_unit() -> impl Strategy<Value = LogicalUnit> {
    let blocks = prop_oneof![1_u64..100, Just(1 << 21), Just(1 << 32), Just(u64::MAX)];
    (blocks, any::<[bool; 4]>(), ".{0,300}").prop_map(|(blocks, [long, read_only, thin, descriptor_sense], serial)| {
        let base = if long { unit_4096() } else { unit_512() };
        LogicalUnit { blocks, read_only, thin, descriptor_sense, serial, ..base }
    })
}

fn any_lun() -> impl Strategy<Value = [u8; 8]> {
    prop_oneof![
        4 => Just(LUN_0),
        1 => Just([0, 1, 0, 0, 0, 0, 0, 0]),
        1 => Just(WELL_KNOWN),
        1 => any::<[u8; 8]>(),
    ]
}

fn check_response(response: &Response) {
    let sense = response.sense_bytes();
    if response.status != Status::CheckCondition {
        assert_eq!(response.status, Status::Good);
        assert!(response.sense.is_none() && sense.is_empty());
        return;
    }
    assert!(response.data_in.is_empty());
    match sense[0] & 0x7f {
        0x70 => {
            assert_eq!(response.sense_format, SenseFormat::Fixed);
            assert_eq!(sense.len(), 8 + usize::from(sense[7]));
            assert_ne!(sense[2] & 0x0f, 0);
        }
        0x72 => {
            assert_eq!(response.sense_format, SenseFormat::Descriptor);
            assert_eq!(sense.len(), 8 + usize::from(sense[7]));
            assert_ne!(sense[1] & 0x0f, 0);
        }
        code => panic!("response code {code:02x}"),
    }
}

fn check_range(range: &BlockRange, unit: &LogicalUnit) {
    assert!(range.blocks > 0);
    assert!(range.lba.checked_add(range.blocks).is_some_and(|end| end <= unit.blocks), "{range:?}");
}

fn check_io(io: &Io) {
    let unit = &io.unit;
    let limit = u64::from(unit.limits.max_transfer_bytes);
    match &io.operation {
        Operation::Read(range) => {
            check_range(range, unit);
            assert!(io.data_in_bytes() <= limit && io.data_out_bytes == 0);
        }
        Operation::Write(range) => {
            check_range(range, unit);
            assert!(!unit.read_only && io.data_out_bytes <= limit);
            assert_eq!(io.data_out_bytes, range.len_bytes(unit));
        }
        Operation::WriteSame { range, unmap, data_out } => {
            check_range(range, unit);
            assert!(!unit.read_only && (unit.thin || !unmap));
            assert!(range.len_bytes(unit) <= u64::from(unit.limits.max_write_same_bytes));
            assert_eq!(io.data_out_bytes, if *data_out { u64::from(unit.block_size.bytes()) } else { 0 });
        }
        Operation::Unmap(ranges) => {
            ranges.iter().for_each(|range| check_range(range, unit));
            let blocks: u64 = ranges.iter().map(|range| range.blocks).sum();
            assert!(!unit.read_only && unit.thin && blocks <= u64::from(unit.limits.max_unmap_blocks));
            assert!(!ranges.is_empty() && ranges.len() <= usize::from(unit.limits.max_unmap_descriptors));
        }
        Operation::Flush(range) => check_range(range, unit),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_command_with_any_parameters_ends_in_a_valid_way(
        unit in any_unit(),
        lun in any_lun(),
        cdb in any_cdb(),
        parameters in prop::collection::vec(any::<u8>(), 0..600),
        expected_data_out_bytes in prop_oneof![Just(0), Just(512), Just(4096), any::<u64>()],
        fresh in any::<bool>(),
    ) {
        let mut host = Host::with(unit);
        if fresh {
            host.nexus = new_nexus();
        }
        match host.plan_at(lun, &cdb, expected_data_out_bytes) {
            Plan::Respond(response) => check_response(&response),
            Plan::Io(io) => check_io(&io),
            Plan::Parameters { len_bytes, command } => {
                prop_assert!(len_bytes > 0);
                match command.finish(&parameters) {
                    Plan::Respond(response) => check_response(&response),
                    Plan::Io(io) => check_io(&io),
                    Plan::Parameters { .. } => prop_assert!(false, "parameters twice"),
                }
            }
        }
    }

    #[test]
    fn any_unmap_list_with_a_fitting_header_ends_in_a_valid_way(
        unit in any_unit(),
        descriptors in prop::collection::vec((any::<u64>(), any::<u32>(), 0_u8..64), 0..300),
    ) {
        let mut host = Host::with(LogicalUnit { thin: true, read_only: false, ..unit });
        let length = u16::try_from(descriptors.len() * 16).unwrap();
        let mut list = [(length + 6).to_be_bytes(), length.to_be_bytes(), [0; 2], [0; 2]].concat();
        for (lba, blocks, shift) in descriptors {
            list.extend_from_slice(&(lba >> shift).to_be_bytes());
            list.extend_from_slice(&(blocks >> (shift / 2)).to_be_bytes());
            list.extend_from_slice(&[0; 4]);
        }
        let [high, low] = u16::try_from(list.len()).unwrap().to_be_bytes();
        let plan = host.plan(&[0x42, 0, 0, 0, 0, 0, 0, high, low, 0]);
        let Plan::Parameters { command, .. } = plan else { panic!("{plan:?}") };
        match command.finish(&list) {
            Plan::Respond(response) => check_response(&response),
            Plan::Io(io) => check_io(&io),
            Plan::Parameters { .. } => prop_assert!(false, "parameters twice"),
        }
    }
}
