//! UNMAP and its parameter list (SBC-3, 5.28).

use super::*;

fn cdb(parameter_list_length: usize) -> Vec<u8> {
    let [high, low] = u16::try_from(parameter_list_length).unwrap().to_be_bytes();
    vec![0x42, 0, 0, 0, 0, 0, 0, high, low, 0]
}

fn list(descriptors: &[(u64, u32)]) -> Vec<u8> {
    let length = u16::try_from(descriptors.len() * 16).unwrap();
    let mut list = Vec::new();
    list.extend_from_slice(&(length + 6).to_be_bytes());
    list.extend_from_slice(&length.to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    for (lba, blocks) in descriptors {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    list
}

/// Runs UNMAP with the list as it is.
fn run(host: &mut Host, list: &[u8]) -> Plan {
    match host.plan(&cdb(list.len())) {
        Plan::Parameters { len_bytes, command } => {
            assert_eq!(usize::try_from(len_bytes).unwrap(), list.len());
            command.finish(list)
        }
        other => other,
    }
}

fn ranges(plan: Plan) -> Vec<(u64, u64)> {
    let Plan::Io(Io { operation: Operation::Unmap(ranges), data_out_bytes: 0, .. }) = plan else { panic!("{plan:?}") };
    ranges.iter().map(|range| (range.lba, range.blocks)).collect()
}

#[test]
fn descriptors_become_ranges_in_their_order_and_neighbours_are_joined() {
    let mut host = Host::with(unit_512());
    let plan = run(&mut host, &list(&[(100, 10), (0, 1), (1, 1), (5, 0), (2, 6), (7, 1)]));
    assert_eq!(ranges(plan), [(100, 10), (0, 8), (7, 1)]);
}

#[test]
fn nothing_to_unmap_is_no_error() {
    let mut host = Host::with(unit_512());
    let good = Plan::Respond(Response::good());
    assert_eq!(host.plan(&cdb(0)), good, "no parameter list");
    assert_eq!(run(&mut host, &list(&[])), good, "no descriptors");
    assert_eq!(run(&mut host, &list(&[(0, 0)])), good);
    assert_eq!(run(&mut host, &list(&[(1 << 21, 0)])), good, "no blocks just behind the end");
    assert_eq!(run(&mut host, &list(&[(0, 0); 256])), good);
}

#[test]
fn a_range_beyond_the_end_stops_the_whole_command() {
    let mut host = Host::with(unit_512());
    for bad in [((1 << 21) - 1, 2), (1 << 21, 1), (u64::MAX, 1), (u64::MAX, u32::MAX), ((1 << 21) + 1, 0)] {
        assert_eq!(codes(sense_of(run(&mut host, &list(&[(0, 1), bad])))), (5, 0x21, 0), "{bad:?}");
    }
}

#[test]
fn as_many_descriptors_as_reported_are_taken_and_one_more_is_not() {
    let mut host = Host::with(unit_512());
    let descriptors: Vec<_> = (0..257).map(|index| (index * 2, 1)).collect();
    assert_eq!(ranges(run(&mut host, &list(&descriptors[..256]))).len(), 256);
    assert_eq!(sense_of(run(&mut host, &list(&descriptors))), Sense::invalid_field_in_parameter_list(2));
}

#[test]
fn as_many_blocks_as_reported_are_taken_and_one_more_is_not() {
    let mut host = Host::with(unit_512());
    assert_eq!(ranges(run(&mut host, &list(&[(0, 1 << 20)]))), [(0, 1 << 20)]);
    let sense = sense_of(run(&mut host, &list(&[(0, 1 << 20), (1 << 20, 1)])));
    assert_eq!(sense, Sense::invalid_field_in_parameter_list(8 + 16 + 8));
}

#[test]
fn every_truncation_of_a_list_is_a_length_error() {
    let mut host = Host::with(unit_512());
    let whole = list(&[(0, 1), (8, 1)]);
    for len in 1..whole.len() {
        let sense = sense_of(run(&mut host, &whole[..len]));
        assert_eq!(codes(sense), (5, 0x1a, 0), "{len}");
    }
    // The initiator may also send less than its CDB says.
    for len in 0..whole.len() {
        let Plan::Parameters { command, .. } = host.plan(&cdb(whole.len())) else { panic!() };
        assert_eq!(codes(sense_of(command.finish(&whole[..len]))), (5, 0x1a, 0), "{len}");
    }
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    let mut host = Host::with(unit_512());
    let mut lying = list(&[(0, 1)]);
    lying[1] = 21;
    assert_eq!(sense_of(run(&mut host, &lying)), Sense::invalid_field_in_parameter_list(0));
    let mut lying = list(&[(0, 1)]);
    lying[..4].copy_from_slice(&[0xff, 0xff, 0xff, 0xf0]);
    assert_eq!(codes(sense_of(run(&mut host, &lying))), (5, 0x1a, 0));
}

#[test]
fn an_incomplete_last_descriptor_is_ignored() {
    let mut host = Host::with(unit_512());
    let mut long = list(&[(0, 1), (8, 1)]);
    // The descriptors' length ends in the middle of the second one.
    long[3] = 24;
    assert_eq!(ranges(run(&mut host, &long)), [(0, 1)]);
}

#[test]
fn anchoring_is_refused() {
    let mut host = Host::with(unit_512());
    let mut anchor = cdb(24);
    anchor[1] = 1;
    assert_eq!(host.sense(&anchor), Sense::invalid_bit_in_cdb(1, 0));
}
