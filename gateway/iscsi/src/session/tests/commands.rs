use super::*;
use crate::output::{Cdb, TaskAttribute};

#[test]
fn command_when_it_reads_then_the_shell_gets_its_fields() {
    let mut rig = Rig::new();
    rig.command(0x1234, FINAL | READ | 0x02, 4096, &[]);
    let command = rig.next_command();
    let expected = ScsiCommand {
        task: command.task,
        initiator_task_tag: 0x1234,
        lun: LUN,
        cdb: Cdb::Inline([0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        attribute: TaskAttribute::Ordered,
        read: true,
        write: false,
        expected_data_transfer_length: 4096,
        bidirectional_read_length: None,
        immediate_data_bytes: 0,
    };
    assert_eq!(command, expected);
    assert_eq!(rig.session.unsettled_tasks(), 1);
}

#[test]
fn command_when_its_tag_comes_again_after_the_response_then_the_task_id_is_new() {
    let mut rig = Rig::new();
    let first = rig.begin(1, FINAL | SIMPLE, 0, &[]);
    rig.complete_good(first);
    let second = rig.begin(1, FINAL | SIMPLE, 0, &[]);
    assert_ne!(first, second);
    rig.complete_good(first);
    assert_eq!(rig.pdus().len(), 1, "an old id is nobody's");
    rig.complete_good(second);
    assert_eq!(rig.response().initiator_task_tag.get(), 1);
    assert_eq!(rig.session.unsettled_tasks(), 0);
}

/// Each cannot be, so it is rejected, leaves its number open and makes no task.
#[test]
fn command_when_it_contradicts_itself_then_is_rejected_and_its_number_stays_open() {
    let data = [0; 8];
    let cases: [(u8, u32, &[u8], u8); 7] = [
        // Reserved task attribute.
        (FINAL | READ | 0x05, 512, &[], 0x09),
        // A length, but no direction.
        (FINAL, 512, &[], 0x09),
        // Both directions, but no read length.
        (FINAL | READ | WRITE, 512, &[], 0x09),
        // Immediate data with a read; more of it than expected.
        (FINAL | READ, 512, &data, 0x04),
        (FINAL | WRITE, 4, &data, 0x04),
        // Unsolicited data to follow on a read; or when all is here.
        (READ, 512, &[], 0x04),
        (WRITE, 8, &data, 0x04),
    ];
    for (flags, expected_bytes, data, reason) in cases {
        let mut rig = Rig::new();
        rig.command(5, flags, expected_bytes, data);
        let (found, header) = rig.rejected();
        assert_eq!(found, reason, "flags {flags:02x}, {expected_bytes} bytes");
        assert_eq!(header, command(5, FIRST_CMD_SN, flags, expected_bytes, data).bhs.0[..]);
        assert!(rig.actions().is_empty());
        // The initiator plugs the gap with another command of the same number (RFC 7143, 7.3).
        rig.cmd_sn = FIRST_CMD_SN;
        rig.begin(5, FINAL | READ | SIMPLE, 512, &[]);
    }
}

#[test]
fn command_when_its_tag_is_reserved_then_is_rejected() {
    let mut rig = Rig::new();
    rig.command(RESERVED_TAG, FINAL | SIMPLE, 0, &[]);
    assert_eq!(rig.rejected().0, 0x09);
}

#[test]
fn command_when_its_tag_is_in_use_then_is_rejected_and_the_first_task_goes_on() {
    let mut rig = Rig::new();
    let task = rig.begin(5, FINAL | READ, 512, &[]);
    rig.command(5, FINAL | READ, 512, &[]);
    assert_eq!(rig.rejected().0, 0x07);
    rig.complete_good(task);
    assert_eq!(rig.response().status, GOOD);
}

#[test]
fn command_when_it_brings_data_that_was_not_negotiated_then_is_rejected() {
    let mut rig = Rig::with(|parameters, _| parameters.immediate_data = false);
    rig.command(1, FINAL | WRITE, 512, &[0; 512]);
    assert_eq!(rig.rejected().0, 0x04);

    let mut rig = Rig::with(|parameters, _| parameters.first_burst_length = 512);
    rig.command(1, FINAL | WRITE, 1024, &[0; 513]);
    assert_eq!(rig.rejected().0, 0x04);

    let mut rig = Rig::with(|parameters, _| parameters.initial_r2t = true);
    rig.command(1, WRITE, 1024, &[0; 512]);
    assert_eq!(rig.rejected().0, 0x04);
}

#[test]
fn command_when_too_many_are_immediate_then_is_rejected() {
    let mut rig = Rig::with(|_, limits| limits.max_immediate_commands = 2);
    let cmd_sn = rig.cmd_sn;
    let mut tasks = Vec::new();
    for tag in 0..2 {
        rig.receive(immediate(command(tag, cmd_sn, FINAL | READ, 512, &[])));
        tasks.push(rig.next_command().task);
    }
    rig.receive(immediate(command(2, cmd_sn, FINAL | READ, 512, &[])));
    assert_eq!(rig.rejected().0, 0x06);
    rig.complete_good(tasks[0]);
    assert_eq!(rig.response().exp_cmd_sn.get(), FIRST_CMD_SN, "immediate commands take no number");
    rig.receive(immediate(command(2, cmd_sn, FINAL | READ, 512, &[])));
    rig.next_command();
}

fn with_ahs(mut pdu: Pdu, ahs: &[u8]) -> Pdu {
    pdu.bhs.0[4] = u8::try_from(ahs.len() / 4).unwrap();
    pdu.ahs = Bytes::copy_from_slice(ahs);
    pdu
}

#[test]
fn command_when_its_cdb_goes_on_in_an_ahs_then_the_shell_gets_all_of_it() {
    let mut rig = Rig::new();
    // RFC 7143, 11.2.2.3: AHSLength is CDBLength - 15.
    let ahs = [0, 17, 1, 0, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31];
    rig.receive(with_ahs(command(1, FIRST_CMD_SN, FINAL | SIMPLE, 0, &[]), &ahs));
    let cdb = rig.next_command().cdb;
    assert_eq!(cdb.as_slice().len(), 32);
    assert_eq!(cdb.as_slice()[..2], [0x2a, 0]);
    assert_eq!(cdb.as_slice()[16..], (16..32).collect::<Vec<u8>>());
}

#[test]
fn command_when_it_is_bidirectional_then_both_lengths_are_told_and_both_residuals_come_back() {
    let mut rig = Rig::new();
    // Extended CDB of 17 bytes, padded by two; then the read length of 1000.
    let ahs = [0, 2, 1, 0, 16, 0, 0, 0, 0, 5, 2, 0, 0, 0, 0x03, 0xe8];
    rig.receive(with_ahs(command(1, FIRST_CMD_SN, FINAL | READ | WRITE, 600, &[1; 600]), &ahs));
    let command = rig.next_command();
    assert_eq!(command.bidirectional_read_length, Some(1000));
    assert_eq!(command.expected_data_transfer_length, 600);
    assert_eq!(command.cdb.as_slice().len(), 17);
    rig.transfer_out(command.task, 512);
    assert_eq!(rig.data_out_action().1.len(), 512);
    let data_in = Bytes::from(bytes(1200));
    rig.complete(
        command.task,
        TaskResult { data_in: pieces([data_in.clone()]), data_out_wanted: 512, ..TaskResult::default() },
    );
    let pdus = rig.pdus();
    assert_eq!(pdus.len(), 2);
    assert_eq!(pdus[0].data, data_in[..1000]);
    assert_eq!(pdus[0].bhs.0[1], FINAL, "no status in the data of a bidirectional command");
    let response = response_of(&pdus[1]);
    assert_eq!(response.flags, FINAL | 0x02 | 0x10, "underflow of the write, overflow of the read");
    assert_eq!(response.residual_count.get(), 88);
    assert_eq!(response.bidirectional_read_residual_count.get(), 200);
    assert_eq!(response.exp_data_sn.get(), 1);
}

#[test]
fn command_when_its_ahs_lies_then_is_rejected() {
    let cases: [&[u8]; 9] = [
        // Longer than there is.
        &[0, 6, 1, 0, 0, 0, 0, 0],
        &[0xff, 0xff, 1, 0],
        // An extended CDB of nothing, of nothing but the reserved byte, and one too long.
        &[0, 0, 1, 0],
        &[0, 1, 1, 0],
        &[&[0, 246, 1][..], &[0; 249]].concat(),
        // A read length of the wrong size; on a command that does not write.
        &[0, 4, 2, 0, 0, 0, 0, 0],
        &[0, 5, 2, 0, 0, 0, 0, 1],
        // Reserved types.
        &[0, 1, 0, 0],
        &[0, 1, 3, 0],
    ];
    for ahs in cases {
        let mut rig = Rig::new();
        rig.receive(with_ahs(command(1, FIRST_CMD_SN, FINAL | READ, 512, &[]), ahs));
        let (reason, header) = rig.rejected();
        assert_eq!(reason, 0x09, "{ahs:?}");
        assert_eq!(header.len(), 48 + ahs.len(), "the AHS goes back too");
    }
}

#[test]
fn command_when_its_immediate_data_fails_the_digest_then_is_rejected_and_ends_and_the_session_lives() {
    let mut rig = Rig::new();
    let cmd_sn = rig.take_cmd_sn();
    rig.receive(corrupt(command(1, cmd_sn, FINAL | WRITE, 512, &[0; 512])));
    assert!(rig.actions().is_empty(), "the shell never hears of it");
    let pdus = rig.pdus();
    assert_eq!(pdus.len(), 2);
    assert_eq!(pdus[0].bhs.opcode(), Some(Opcode::Reject));
    assert_eq!(pdus[0].bhs.view::<RejectHeader>().reason, 0x02);
    assert_eq!(sense_of(&pdus[1]), (0x0b, 0x47, 0x05));
    assert_eq!(rig.session.unsettled_tasks(), 0);
    rig.begin(2, FINAL | READ, 512, &[]);
}

#[test]
fn command_when_its_immediate_data_fails_the_digest_and_more_follows_then_the_status_waits_for_the_end() {
    let mut rig = Rig::new();
    let cmd_sn = rig.take_cmd_sn();
    rig.receive(corrupt(command(1, cmd_sn, WRITE, 1024, &[0; 512])));
    assert_eq!(rig.rejected().0, 0x02);
    rig.receive(data_out(1, RESERVED_TAG, 0, 512, true, &[0; 512]));
    let pdu = rig.pdu();
    assert_eq!(sense_of(&pdu), (0x0b, 0x47, 0x05));
    assert!(rig.actions().is_empty());
}

#[test]
fn session_when_it_is_a_discovery_session_then_only_text_and_logout_are_taken() {
    let mut rig = Rig::discovery();
    rig.command(1, FINAL | READ, 512, &[]);
    assert_eq!(rig.rejected().0, 0x05);
    rig.receive(data_out(1, RESERVED_TAG, 0, 0, true, &[1]));
    assert_eq!(rig.rejected().0, 0x05);
    rig.receive(immediate(task_management(2, FIRST_CMD_SN, 5, RESERVED_TAG, 0)));
    assert_eq!(rig.rejected().0, 0x05);
    rig.receive(immediate(nop_out(3, RESERVED_TAG, FIRST_CMD_SN, &[])));
    assert_eq!(rig.rejected().0, 0x05);
    rig.receive(text(4, FIRST_CMD_SN, b"SendTargets=All\0"));
    let response = rig.pdu();
    assert_eq!(response.bhs.opcode(), Some(Opcode::TextResponse));
    assert_eq!(response.bhs.view::<TextResponseHeader>().exp_cmd_sn.get(), FIRST_CMD_SN.wrapping_add(1));
    rig.receive(logout(5, FIRST_CMD_SN.wrapping_add(1), 0, 7));
    assert_eq!(rig.pdu().bhs.opcode(), Some(Opcode::LogoutResponse));
    assert_eq!(rig.closed(), CloseReason::LoggedOut);
}
