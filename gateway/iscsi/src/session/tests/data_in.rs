use super::*;

fn read(rig: &mut Rig, expected_bytes: u32, result: TaskResult) -> Vec<OutPdu> {
    let task = rig.begin(0x77, FINAL | READ | SIMPLE, expected_bytes, &[]);
    rig.complete(task, result);
    rig.pdus()
}

fn good(data_in: Vec<u8>) -> TaskResult {
    TaskResult { data_in: pieces([data_in]), ..TaskResult::default() }
}

#[test]
fn complete_when_the_data_fits_one_pdu_then_these_are_the_bytes() {
    let mut rig = Rig::new();
    let pdus = read(&mut rig, 512, good(vec![0xa5; 512]));
    assert_eq!(pdus.len(), 1);
    #[rustfmt::skip]
    let golden = [
        // Data-In, F and S; status GOOD. The length is filled in when the PDU is encoded.
        0x25, 0x81, 0, 0, 0, 0, 0, 0,
        // LUN: reserved without the A bit.
        0, 0, 0, 0, 0, 0, 0, 0,
        // Initiator Task Tag, Target Transfer Tag.
        0, 0, 0, 0x77, 0xff, 0xff, 0xff, 0xff,
        // StatSN, ExpCmdSN.
        0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xfe,
        // MaxCmdSN: a window of 8 behind ExpCmdSN; DataSN.
        0, 0, 0, 5, 0, 0, 0, 0,
        // Buffer Offset, Residual Count.
        0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(pdus[0].bhs.0, golden);
    assert_eq!(pdus[0].data, vec![0xa5; 512]);
}

#[test]
fn complete_when_the_data_takes_several_bursts_then_each_ends_with_f_and_the_last_has_the_status() {
    let mut rig = Rig::with(|parameters, _| {
        parameters.max_burst_length = 10_000;
        parameters.max_send_data_segment_length = 4096;
    });
    let data = bytes(21_000);
    let pdus = read(&mut rig, 21_000, good(data.clone()));
    let found: Vec<(u32, u32, usize, u8)> = pdus
        .iter()
        .map(|pdu| {
            let header = pdu.bhs.view::<DataInHeader>();
            (header.data_sn.get(), header.buffer_offset.get(), pdu.data.len(), header.flags)
        })
        .collect();
    assert_eq!(
        found,
        [
            (0, 0, 4096, 0),
            (1, 4096, 4096, 0),
            (2, 8192, 1808, FINAL),
            (3, 10_000, 4096, 0),
            (4, 14_096, 4096, 0),
            (5, 18_192, 1808, FINAL),
            (6, 20_000, 1000, FINAL | 1),
        ]
    );
    assert_eq!(pdus.iter().flat_map(|pdu| pdu.data.clone()).collect::<Vec<u8>>(), data);
}

#[test]
fn complete_when_data_is_sent_then_it_is_not_copied() {
    let mut rig = Rig::new();
    let data = Bytes::from(bytes(20_000));
    let pdus = read(&mut rig, 20_000, TaskResult { data_in: pieces([data.clone()]), ..TaskResult::default() });
    assert_eq!(pdus[1].data.as_ptr(), data[8192..].as_ptr());
}

#[test]
fn complete_when_the_data_is_in_pieces_then_pdus_are_cut_as_if_it_were_whole() {
    let data = bytes(9000);
    let whole = read(&mut Rig::new(), 8999, good(data.clone()));
    let at = |data: &[u8], cuts: &[usize]| {
        let ends = cuts.iter().copied().chain([data.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        pieces(starts.zip(ends).map(|(start, end)| Bytes::copy_from_slice(&data[start..end])))
    };
    for cuts in [&[0][..], &[1], &[4096], &[8191], &[8192], &[8193], &[8999], &[9000], &[100, 100, 4096, 8500, 8999]] {
        let result = TaskResult { data_in: at(&data, cuts), ..TaskResult::default() };
        let pdus = read(&mut Rig::new(), 8999, result);
        assert_eq!(pdus.len(), whole.len());
        for (pdu, whole) in pdus.iter().zip(&whole) {
            assert_eq!(pdu.bhs, whole.bhs, "{cuts:?}");
            assert_eq!([&pdu.data[..], &pdu.more.concat()].concat(), whole.data, "{cuts:?}");
            assert!(pdu.more.iter().all(|piece| !piece.is_empty()), "{cuts:?}");
        }
    }
}

#[test]
fn complete_when_there_is_less_data_than_expected_then_the_residual_is_an_underflow() {
    let mut rig = Rig::new();
    let pdus = read(&mut rig, 4096, good(bytes(36)));
    let header = pdus[0].bhs.view::<DataInHeader>();
    assert_eq!(header.flags, FINAL | 1 | 0x02);
    assert_eq!(header.residual_count.get(), 4060);
}

#[test]
fn complete_when_there_is_more_data_than_expected_then_the_rest_is_an_overflow() {
    let mut rig = Rig::new();
    let pdus = read(&mut rig, 100, good(bytes(512)));
    assert_eq!(pdus.len(), 1);
    let header = pdus[0].bhs.view::<DataInHeader>();
    assert_eq!(header.flags, FINAL | 1 | 0x04);
    assert_eq!(header.residual_count.get(), 412);
    assert_eq!(pdus[0].data, bytes(512)[..100]);
}

#[test]
fn complete_when_a_read_has_no_data_then_a_response_with_the_residual_follows() {
    let mut rig = Rig::new();
    let pdus = read(&mut rig, 512, good(Vec::new()));
    let response = response_of(&pdus[0]);
    assert_eq!(response.flags, FINAL | 0x02);
    assert_eq!(response.residual_count.get(), 512);
    assert_eq!(response.exp_data_sn.get(), 0);
}

#[test]
fn complete_when_nothing_was_expected_but_there_is_data_then_it_is_an_overflow() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | SIMPLE, 0, &[]);
    rig.complete(task, good(bytes(96)));
    let response = rig.response();
    assert_eq!(response.flags, FINAL | 0x04);
    assert_eq!(response.residual_count.get(), 96);
}

#[test]
fn complete_when_the_status_is_not_good_then_data_and_sense_are_apart() {
    let mut rig = Rig::new();
    let sense = Bytes::from_static(&[0x70, 0, 3, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x11, 0, 0, 0, 0, 0]);
    let result = TaskResult { status: 2, sense, data_in: pieces([bytes(9000)]), ..TaskResult::default() };
    let pdus = read(&mut rig, 10_000, result);
    assert_eq!(pdus.len(), 3);
    assert_eq!(pdus[1].bhs.0[1], FINAL, "no S bit");
    let response = response_of(&pdus[2]);
    assert_eq!((response.status, response.response), (2, 0));
    assert_eq!(response.exp_data_sn.get(), 2);
    assert_eq!(response.residual_count.get(), 1000);
    assert_eq!(sense_of(&pdus[2]), (3, 0x11, 0));
}

#[test]
fn complete_when_it_is_a_write_then_these_are_the_bytes() {
    let mut rig = Rig::new();
    let task = rig.begin(0x77, FINAL | WRITE | SIMPLE, 512, &[0; 512]);
    rig.transfer_out(task, 512);
    rig.data_out_action();
    rig.complete(task, TaskResult { data_out_wanted: 512, ..TaskResult::default() });
    #[rustfmt::skip]
    let golden = [
        0x21, 0x80, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,
        // Initiator Task Tag, SNACK Tag.
        0, 0, 0, 0x77, 0, 0, 0, 0,
        // StatSN, ExpCmdSN.
        0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xfe,
        // MaxCmdSN, ExpDataSN.
        0, 0, 0, 5, 0, 0, 0, 0,
        // Bidirectional Read Residual Count, Residual Count.
        0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let pdu = rig.pdu();
    assert_eq!(pdu.bhs.0, golden);
    assert!(pdu.data.is_empty());
}

#[test]
fn complete_when_called_again_then_nothing_happens() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | READ, 512, &[]);
    rig.complete_good(task);
    assert_eq!(rig.pdus().len(), 1);
    rig.complete_good(task);
    rig.transfer_out(task, 512);
    assert!(rig.is_quiet());
}
