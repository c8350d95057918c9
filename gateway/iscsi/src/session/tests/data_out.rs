use proptest::prelude::*;

use super::*;

const UNSOLICITED: u32 = RESERVED_TAG;

/// Answers an R2T with PDUs of up to `pdu_bytes`.
fn answer(rig: &mut Rig, tag: u32, r2t: &ReadyToTransferHeader, source: &[u8], pdu_bytes: usize) {
    let offset = r2t.buffer_offset.get() as usize;
    let end = offset + r2t.desired_data_transfer_length.get() as usize;
    let pieces: Vec<&[u8]> = source[offset..end].chunks(pdu_bytes).collect();
    let mut at = r2t.buffer_offset.get();
    for (data_sn, piece) in (0u32..).zip(&pieces) {
        let is_final = data_sn as usize + 1 == pieces.len();
        rig.receive(data_out(tag, r2t.target_transfer_tag.get(), data_sn, at, is_final, piece));
        at += u32::try_from(piece.len()).unwrap();
    }
}

fn finish_write(rig: &mut Rig, task: TaskId, len_bytes: u64) -> ScsiResponseHeader {
    rig.complete(task, TaskResult { data_out_wanted: len_bytes, ..TaskResult::default() });
    rig.response()
}

#[test]
fn transfer_out_when_all_came_with_the_command_then_gives_it_at_once_and_uncopied() {
    let mut rig = Rig::new();
    let pdu = command(1, rig.take_cmd_sn(), FINAL | WRITE, 4096, &bytes(4096));
    let address = pdu.data.as_ptr();
    rig.receive(pdu);
    let command = rig.next_command();
    assert_eq!(command.immediate_data_bytes, 4096);
    assert_eq!(rig.session.buffered_bytes(), 4096);
    assert_eq!(rig.session.missing_bytes(command.task, 4096), 0);
    rig.transfer_out(command.task, 4096);
    match rig.action() {
        Action::DataOut { data, .. } => {
            assert_eq!(data.len(), 1);
            assert_eq!(data[0].as_ptr(), address);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.session.buffered_bytes(), 0);
    assert_eq!(finish_write(&mut rig, command.task, 4096).status, GOOD);
}

#[test]
fn transfer_out_when_nothing_came_then_asks_by_r2t_of_these_bytes() {
    let mut rig = Rig::new();
    let task = rig.begin(0x77, FINAL | WRITE, 4096, &[]);
    assert_eq!(rig.session.missing_bytes(task, 4096), 4096);
    rig.transfer_out(task, 4096);
    #[rustfmt::skip]
    let golden = [
        0x31, 0x80, 0, 0, 0, 0, 0, 0,
        0, 1, 0, 0, 0, 0, 0, 0,
        // Initiator Task Tag, Target Transfer Tag.
        0, 0, 0, 0x77, 0, 0, 0, 0,
        // StatSN, which it does not take, ExpCmdSN.
        0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xfe,
        // MaxCmdSN: one of the window of 8 is open; R2TSN.
        0, 0, 0, 4, 0, 0, 0, 0,
        // Buffer Offset, Desired Data Transfer Length.
        0, 0, 0, 0, 0, 0, 0x10, 0,
    ];
    let pdu = rig.pdu();
    assert_eq!(pdu.bhs.0, golden);
    answer(&mut rig, 0x77, &r2t_of(&pdu), &bytes(4096), 4096);
    assert_eq!(rig.data_out_action(), (task, bytes(4096)));
    assert_eq!(finish_write(&mut rig, task, 4096).exp_data_sn.get(), 0);
}

#[test]
fn transfer_out_when_it_takes_many_bursts_then_keeps_the_allowed_number_of_r2ts_out() {
    let mut rig = Rig::new();
    let source = bytes(16384 * 3 + 100);
    let task = rig.begin(1, FINAL | WRITE, 16384 * 3 + 100, &[]);
    rig.transfer_out(task, source.len() as u64);
    let mut open: Vec<ReadyToTransferHeader> = rig.pdus().iter().map(r2t_of).collect();
    assert_eq!(open.len(), 2, "MaxOutstandingR2T");
    let mut seen = open.clone();
    while !open.is_empty() {
        let r2t = open.remove(0);
        answer(&mut rig, 1, &r2t, &source, 8192);
        let more: Vec<ReadyToTransferHeader> = rig.pdus().iter().map(r2t_of).collect();
        seen.extend(&more);
        open.extend(more);
        assert!(open.len() <= 2);
    }
    let asked: Vec<(u32, u32, u32)> = seen
        .iter()
        .map(|r2t| (r2t.r2t_sn.get(), r2t.buffer_offset.get(), r2t.desired_data_transfer_length.get()))
        .collect();
    assert_eq!(asked, [(0, 0, 16384), (1, 16384, 16384), (2, 32768, 16384), (3, 49152, 100)]);
    assert_eq!(rig.data_out_action(), (task, source.clone()));
    assert_eq!(finish_write(&mut rig, task, source.len() as u64).status, GOOD);
}

#[test]
fn data_out_when_sequences_end_in_another_order_then_the_data_is_in_order() {
    let mut rig = Rig::new();
    let source = bytes(32768);
    let task = rig.begin(1, FINAL | WRITE, 32768, &[]);
    rig.transfer_out(task, 32768);
    let r2ts: Vec<ReadyToTransferHeader> = rig.pdus().iter().map(r2t_of).collect();
    answer(&mut rig, 1, &r2ts[1], &source, 8192);
    assert!(rig.is_quiet());
    answer(&mut rig, 1, &r2ts[0], &source, 8192);
    assert_eq!(rig.data_out_action(), (task, source));
}

#[test]
fn data_out_when_it_is_immediate_unsolicited_and_solicited_then_all_of_it_arrives() {
    let mut rig = Rig::new();
    let source = bytes(40_000);
    let task = rig.begin(1, WRITE, 40_000, &source[..4096]);
    assert_eq!(rig.session.missing_bytes(task, 40_000), 40_000 - 4096);
    rig.transfer_out(task, 40_000);
    assert!(rig.is_quiet(), "no R2T before the unsolicited data has ended");
    rig.receive(data_out(1, UNSOLICITED, 0, 4096, false, &source[4096..12288]));
    assert_eq!(rig.session.missing_bytes(task, 40_000), 40_000 - 12288);
    rig.receive(data_out(1, UNSOLICITED, 1, 12288, true, &source[12288..16384]));
    let r2ts: Vec<ReadyToTransferHeader> = rig.pdus().iter().map(r2t_of).collect();
    assert_eq!(r2ts.iter().map(|r2t| r2t.buffer_offset.get()).collect::<Vec<_>>(), [16384, 32768]);
    for r2t in &r2ts {
        answer(&mut rig, 1, r2t, &source, 5000);
    }
    assert_eq!(rig.data_out_action(), (task, source));
}

#[test]
fn data_out_when_unsolicited_data_ends_early_then_r2t_asks_for_the_rest() {
    let mut rig = Rig::new();
    let source = bytes(10_000);
    let task = rig.begin(1, WRITE, 10_000, &[]);
    rig.receive(data_out(1, UNSOLICITED, 0, 0, true, &source[..3000]));
    rig.transfer_out(task, 10_000);
    let r2t = r2t_of(&rig.pdu());
    assert_eq!((r2t.buffer_offset.get(), r2t.desired_data_transfer_length.get()), (3000, 7000));
    answer(&mut rig, 1, &r2t, &source, 7000);
    assert_eq!(rig.data_out_action(), (task, source));
}

#[test]
fn transfer_out_when_the_command_wants_less_than_came_then_gives_what_it_wants() {
    let mut rig = Rig::new();
    let source = bytes(8192);
    let task = rig.begin(1, FINAL | WRITE, 8192, &source);
    rig.transfer_out(task, 512);
    assert_eq!(rig.data_out_action(), (task, source[..512].to_vec()));
    let response = finish_write(&mut rig, task, 512);
    assert_eq!((response.flags, response.residual_count.get()), (FINAL | 0x02, 7680));
}

#[test]
fn transfer_out_when_the_command_wants_more_than_expected_then_gives_what_there_is() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | WRITE, 100, &[]);
    assert_eq!(rig.session.missing_bytes(task, u64::MAX), 100);
    rig.transfer_out(task, u64::MAX);
    let r2t = r2t_of(&rig.pdu());
    assert_eq!(r2t.desired_data_transfer_length.get(), 100);
    answer(&mut rig, 1, &r2t, &bytes(100), 100);
    assert_eq!(rig.data_out_action(), (task, bytes(100)));
    let response = finish_write(&mut rig, task, 512);
    assert_eq!((response.flags, response.residual_count.get()), (FINAL | 0x04, 412));
}

#[test]
fn transfer_out_when_nothing_is_wanted_or_the_command_does_not_write_then_yields_at_once() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | WRITE, 512, &[]);
    rig.transfer_out(task, 0);
    assert_eq!(rig.data_out_action(), (task, Vec::new()));
    let task = rig.begin(2, FINAL | READ, 512, &[]);
    rig.transfer_out(task, 512);
    assert_eq!(rig.data_out_action(), (task, Vec::new()));
}

/// A write whose R2T for 8 KiB is out.
fn with_r2t() -> (Rig, TaskId, ReadyToTransferHeader) {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | WRITE, 8192, &[]);
    rig.transfer_out(task, 8192);
    let r2t = r2t_of(&rig.pdu());
    (rig, task, r2t)
}

/// Each breaks the rules of a sequence: one Reject, the shell drops the task, and after the end of the sequence and
/// the shell's completion the status follows. The session lives.
#[test]
fn data_out_when_it_breaks_the_sequence_then_the_task_alone_fails() {
    type Case = (&'static str, fn(u32) -> Pdu, u8, (u8, u8));
    let cases: [Case; 5] = [
        ("DataSN", |tag| data_out(1, tag, 1, 0, false, &[0; 512]), 0x04, (0x4b, 0x05)),
        ("offset", |tag| data_out(1, tag, 0, 512, false, &[0; 512]), 0x09, (0x4b, 0x05)),
        ("too much", |tag| data_out(1, tag, 0, 0, false, &[0; 8193]), 0x04, (0x4b, 0x02)),
        ("digest", |tag| corrupt(data_out(1, tag, 0, 0, false, &[0; 512])), 0x02, (0x47, 0x05)),
        ("transfer tag", |tag| data_out(1, tag + 1, 0, 0, false, &[0; 512]), 0x04, (0x4b, 0x01)),
    ];
    for (name, make, reason, (asc, ascq)) in cases {
        let (mut rig, task, r2t) = with_r2t();
        let tag = r2t.target_transfer_tag.get();
        rig.receive(make(tag));
        assert_eq!(rig.rejected().0, reason, "{name}");
        assert_eq!(rig.abandoned(), [task], "{name}");
        rig.receive(data_out(1, tag, 1, 512, false, &[0; 512]));
        assert!(rig.is_quiet(), "{name}: the rest is swallowed");
        assert_eq!(rig.session.buffered_bytes(), 0);
        rig.complete_good(task);
        assert!(rig.is_quiet(), "{name}: the sequence has not ended");
        rig.receive(data_out(1, tag, 9, 77, true, &[]));
        assert_eq!(sense_of(&rig.pdu()), (0x0b, asc, ascq), "{name}");
        assert_eq!(rig.session.unsettled_tasks(), 0);
        rig.begin(1, FINAL | READ, 512, &[]);
    }
}

#[test]
fn data_out_when_the_last_pdu_of_a_sequence_is_bad_then_the_status_waits_for_the_shell_only() {
    let (mut rig, task, r2t) = with_r2t();
    rig.receive(corrupt(data_out(1, r2t.target_transfer_tag.get(), 0, 0, true, &[0; 8192])));
    assert_eq!(rig.rejected().0, 0x02);
    assert_eq!(rig.abandoned(), [task]);
    rig.complete_good(task);
    assert_eq!(sense_of(&rig.pdu()), (0x0b, 0x47, 0x05));
}

#[test]
fn data_out_when_a_solicited_sequence_ends_early_then_the_task_fails() {
    let (mut rig, task, r2t) = with_r2t();
    rig.receive(data_out(1, r2t.target_transfer_tag.get(), 0, 0, true, &[0; 8000]));
    assert_eq!(rig.abandoned(), [task]);
    rig.complete_good(task);
    assert_eq!(sense_of(&rig.pdu()), (0x0b, 0x0c, 0x0d));
}

#[test]
fn data_out_when_unsolicited_data_is_not_expected_then_the_task_fails() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | WRITE, 8192, &[]);
    rig.receive(data_out(1, UNSOLICITED, 0, 0, true, &[0; 512]));
    assert_eq!(rig.rejected().0, 0x04);
    assert_eq!(rig.abandoned(), [task]);
    rig.transfer_out(task, 8192);
    assert!(rig.is_quiet(), "a failed task asks for nothing");
    rig.complete_good(task);
    assert_eq!(sense_of(&rig.pdu()), (0x0b, 0x0c, 0x0c));
}

#[test]
fn data_out_when_unsolicited_data_goes_past_the_first_burst_then_the_task_fails() {
    let mut rig = Rig::new();
    let task = rig.begin(1, WRITE, 40_000, &[0; 8192]);
    rig.receive(data_out(1, UNSOLICITED, 0, 8192, false, &[0; 8192]));
    assert!(rig.is_quiet());
    rig.receive(data_out(1, UNSOLICITED, 1, 16384, true, &[0; 1]));
    assert_eq!(rig.rejected().0, 0x04);
    assert_eq!(rig.abandoned(), [task]);
    rig.complete_good(task);
    assert_eq!(sense_of(&rig.pdu()), (0x0b, 0x4b, 0x02));
}

#[test]
fn data_out_when_its_task_reads_or_has_all_of_its_data_then_is_rejected_and_the_task_goes_on() {
    let mut rig = Rig::new();
    let reader = rig.begin(1, FINAL | READ, 512, &[]);
    rig.receive(data_out(1, UNSOLICITED, 0, 0, true, &[0; 512]));
    assert_eq!(rig.rejected().0, 0x04);
    let writer = rig.begin(2, FINAL | WRITE, 512, &[0; 512]);
    rig.transfer_out(writer, 512);
    rig.data_out_action();
    rig.receive(data_out(2, UNSOLICITED, 0, 512, true, &[0; 512]));
    assert_eq!(rig.rejected().0, 0x04);
    assert!(rig.actions().is_empty());
    assert_eq!(finish_write(&mut rig, writer, 512).status, GOOD);
    rig.complete_good(reader);
    assert_eq!(rig.response().status, GOOD);
}

#[test]
fn data_out_when_no_task_has_its_tag_then_is_swallowed() {
    let mut rig = Rig::new();
    rig.receive(data_out(1, UNSOLICITED, 0, 0, true, &[0; 512]));
    rig.receive(corrupt(data_out(1, 3, 0, 0, true, &[0; 512])));
    assert!(rig.is_quiet());
    assert_eq!(rig.session.counters().discarded_data_out, 2);
}

#[test]
fn complete_when_unsolicited_data_is_still_coming_then_the_response_waits_for_its_end() {
    let mut rig = Rig::new();
    let task = rig.begin(1, WRITE, 16384, &[0; 4096]);
    let sense = Bytes::from_static(&[0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x25, 0, 0, 0, 0, 0]);
    rig.complete(task, TaskResult { status: 2, sense, ..TaskResult::default() });
    assert!(rig.is_quiet());
    assert_eq!(rig.session.buffered_bytes(), 0);
    assert_eq!(rig.session.unsettled_tasks(), 0);
    rig.receive(data_out(1, UNSOLICITED, 0, 4096, false, &[0; 8192]));
    assert!(rig.is_quiet());
    assert_eq!(rig.session.buffered_bytes(), 0);
    rig.receive(data_out(1, UNSOLICITED, 1, 12288, true, &[0; 4096]));
    let pdu = rig.pdu();
    assert_eq!(sense_of(&pdu), (5, 0x25, 0));
    assert_eq!(response_of(&pdu).residual_count.get(), 16384);
    rig.begin(1, FINAL | READ, 512, &[]);
}

#[test]
fn data_out_when_an_initiator_sends_single_bytes_then_the_pieces_stay_few() {
    let (mut rig, task, r2t) = with_r2t();
    let tag = r2t.target_transfer_tag.get();
    for i in 0..8192 {
        rig.receive(data_out(1, tag, i, i, i == 8191, &[7]));
    }
    match rig.action() {
        Action::DataOut { task: found, data } => {
            assert_eq!(found, task);
            assert!(data.len() < 20, "{} pieces", data.len());
            assert_eq!(joined(&data), vec![7; 8192]);
        }
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However a write is cut up, the shell gets its bytes.
    #[test]
    fn data_out_when_a_write_is_cut_in_any_way_then_the_data_arrives(
        len in 1..100_000u32,
        immediate_bytes in 0..20_000u32,
        unsolicited: bool,
        pdu_bytes in 1000..30_000usize,
        first_burst in 512..20_000u32,
        max_burst in 512..40_000u32,
        outstanding in 1..5u16,
        wanted in 0..120_000u64,
        early: bool,
    ) {
        let mut rig = Rig::with(|parameters, _| {
            parameters.first_burst_length = first_burst;
            parameters.max_burst_length = max_burst;
            parameters.max_outstanding_r2t = outstanding;
        });
        let source = bytes(len as usize);
        let immediate_bytes = immediate_bytes.min(len).min(first_burst);
        let unsolicited_end = len.min(first_burst);
        let unsolicited = unsolicited && immediate_bytes < unsolicited_end;
        let flags = WRITE | if unsolicited { 0 } else { FINAL };
        let task = rig.begin(1, flags, len, &source[..immediate_bytes as usize]);
        if early {
            rig.transfer_out(task, wanted);
        }
        let mut at = immediate_bytes;
        let mut data_sn = 0;
        while unsolicited && at < unsolicited_end {
            let end = unsolicited_end.min(at + u32::try_from(pdu_bytes).unwrap());
            let piece = &source[at as usize..end as usize];
            rig.receive(data_out(1, UNSOLICITED, data_sn, at, end == unsolicited_end, piece));
            (at, data_sn) = (end, data_sn + 1);
        }
        if !early {
            rig.transfer_out(task, wanted);
        }
        loop {
            let r2ts: Vec<ReadyToTransferHeader> = rig.pdus().iter().map(r2t_of).collect();
            if r2ts.is_empty() {
                break;
            }
            prop_assert!(r2ts.len() <= usize::from(outstanding));
            for r2t in &r2ts {
                prop_assert!(r2t.desired_data_transfer_length.get() <= max_burst);
                answer(&mut rig, 1, r2t, &source, pdu_bytes);
            }
        }
        let (found, data) = rig.data_out_action();
        prop_assert_eq!(found, task);
        let expected = usize::try_from(wanted).unwrap().min(source.len());
        prop_assert!(data == source[..expected]);
    }
}
