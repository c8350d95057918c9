use super::*;

fn nop_in(pdu: &OutPdu) -> NopInHeader {
    assert_eq!(pdu.bhs.opcode(), Some(Opcode::NopIn), "{pdu:?}");
    *pdu.bhs.view()
}

#[test]
fn nop_out_when_it_asks_then_its_data_comes_back() {
    let mut rig = Rig::with(|parameters, _| parameters.max_send_data_segment_length = 512);
    let cmd_sn = rig.take_cmd_sn();
    rig.receive(nop_out(5, RESERVED_TAG, cmd_sn, &bytes(600)));
    let pdu = rig.pdu();
    assert_eq!(pdu.data, bytes(600)[..512], "as much as the initiator takes");
    let header = nop_in(&pdu);
    assert_eq!((header.initiator_task_tag.get(), header.target_transfer_tag.get()), (5, RESERVED_TAG));
    assert_eq!(header.exp_cmd_sn.get(), rig.cmd_sn);
}

#[test]
fn nop_out_when_it_has_no_tag_then_is_not_answered() {
    let mut rig = Rig::new();
    rig.receive(immediate(nop_out(RESERVED_TAG, RESERVED_TAG, rig.cmd_sn, &[])));
    assert!(rig.is_quiet());
    rig.receive(nop_out(RESERVED_TAG, RESERVED_TAG, rig.cmd_sn, &[]));
    assert_eq!(rig.rejected().0, 0x04, "without a tag it has to be immediate");
    rig.receive(immediate(nop_out(5, 5, rig.cmd_sn, &[])));
    assert_eq!(rig.rejected().0, 0x09, "both tags at once");
}

#[test]
fn nop_out_when_its_data_fails_the_digest_then_is_rejected_and_its_number_stays_open() {
    let mut rig = Rig::new();
    rig.receive(corrupt(nop_out(5, RESERVED_TAG, rig.cmd_sn, &[1])));
    assert_eq!(rig.rejected().0, 0x02);
    rig.receive(nop_out(5, RESERVED_TAG, rig.cmd_sn, &[1]));
    assert_eq!(nop_in(&rig.pdu()).exp_cmd_sn.get(), rig.cmd_sn.wrapping_add(1));
}

#[test]
fn tick_when_the_initiator_is_silent_then_asks_and_then_gives_it_up() {
    let mut rig = Rig::new();
    let start = rig.now;
    let limits = SessionLimits::default();
    assert_eq!(rig.session.next_deadline(), start + limits.nop_interval);
    rig.tick_at(start + limits.nop_interval - Duration::from_millis(1));
    assert!(rig.is_quiet());
    rig.tick_at(start + limits.nop_interval);
    let header = nop_in(&rig.pdu());
    assert_eq!(header.initiator_task_tag.get(), RESERVED_TAG);
    assert_ne!(header.target_transfer_tag.get(), RESERVED_TAG);
    let deadline = rig.session.next_deadline();
    assert_eq!(deadline, start + limits.nop_interval + limits.nop_timeout);
    rig.tick_at(deadline);
    assert_eq!(rig.closed(), CloseReason::InitiatorDead);
    rig.tick_at(deadline * 2);
    assert!(rig.is_quiet());
    assert_eq!(rig.session.next_deadline(), Duration::MAX);
}

#[test]
fn tick_when_the_ping_is_answered_then_silence_counts_anew() {
    let mut rig = Rig::new();
    let deadline = rig.session.next_deadline();
    rig.tick_at(deadline);
    let tag = nop_in(&rig.pdu()).target_transfer_tag.get();
    rig.now += Duration::from_secs(1);
    rig.receive(immediate(nop_out(RESERVED_TAG, tag, rig.cmd_sn, &[])));
    assert!(rig.is_quiet());
    let deadline = rig.session.next_deadline();
    assert_eq!(deadline, rig.now + SessionLimits::default().nop_interval);
    rig.tick_at(deadline);
    assert_ne!(nop_in(&rig.pdu()).target_transfer_tag.get(), tag, "another ping");
}

#[test]
fn tick_when_other_pdus_come_then_the_initiator_lives() {
    let mut rig = Rig::new();
    let deadline = rig.session.next_deadline();
    rig.tick_at(deadline);
    rig.pdu();
    rig.now += Duration::from_secs(4);
    rig.receive(data_out(1, 1, 0, 0, false, &[]));
    assert_eq!(rig.session.next_deadline(), rig.now + SessionLimits::default().nop_timeout);
}

#[test]
fn tick_when_a_discovery_session_is_silent_then_is_closed_without_a_ping() {
    let mut rig = Rig::discovery();
    let deadline = rig.session.next_deadline();
    rig.tick_at(deadline);
    assert_eq!(rig.closed(), CloseReason::InitiatorDead);
    assert!(rig.is_quiet());
}

#[test]
fn request_logout_when_sent_then_the_initiator_has_its_time() {
    let mut rig = Rig::new();
    rig.session.request_logout(3, &mut rig.out);
    let pdu = rig.pdu();
    let header = pdu.bhs.view::<AsyncMessageHeader>();
    assert_eq!((header.async_event, header.parameter_3.get()), (1, 3));
    assert_eq!(header.stat_sn.get(), FIRST_STAT_SN);
    assert_eq!(rig.session.next_deadline(), Duration::ZERO, "the clock is to be looked at");
    let start = rig.now + Duration::from_secs(1);
    rig.tick_at(start);
    assert!(rig.is_quiet());
    assert_eq!(rig.session.next_deadline(), start + Duration::from_secs(3));
    let task = rig.begin(1, FINAL | READ, 512, &[]);
    rig.complete_good(task);
    assert_eq!(rig.response().status, GOOD, "work goes on");
    rig.tick_at(start + Duration::from_secs(3));
    assert_eq!(rig.closed(), CloseReason::LogoutOverdue);
}

#[test]
fn logout_when_tasks_are_running_then_is_answered_after_they_are_settled() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | READ, 512, &[]);
    let draining = rig.begin(2, WRITE, 512, &[]);
    rig.complete_good(draining);
    rig.receive(immediate(task_management(3, rig.cmd_sn, 5, RESERVED_TAG, 0)));
    assert_eq!(rig.abandoned(), [task]);
    let cmd_sn = rig.take_cmd_sn();
    rig.receive(logout(4, cmd_sn, 0, 0));
    assert!(rig.is_quiet());
    rig.command(5, FINAL | READ, 512, &[]);
    assert!(rig.is_quiet(), "nothing is taken after a logout");
    assert_eq!(rig.session.next_deadline(), Duration::MAX, "the silence is ours");
    rig.complete_good(task);
    let pdu = rig.pdu();
    assert_eq!(pdu.bhs.opcode(), Some(Opcode::LogoutResponse));
    let header = pdu.bhs.view::<LogoutResponseHeader>();
    assert_eq!((header.response, header.initiator_task_tag.get()), (0, 4));
    assert_eq!(rig.closed(), CloseReason::LoggedOut);
}

#[test]
fn logout_when_it_names_a_connection_then_the_name_counts() {
    let mut rig = Rig::new();
    rig.receive(immediate(logout(4, rig.cmd_sn, 1, 8)));
    assert_eq!(rig.pdu().bhs.view::<LogoutResponseHeader>().response, 1, "CID not found");
    rig.receive(immediate(logout(4, rig.cmd_sn, 2, 7)));
    assert_eq!(rig.pdu().bhs.view::<LogoutResponseHeader>().response, 2, "recovery not supported");
    rig.receive(immediate(logout(4, rig.cmd_sn, 3, 7)));
    assert_eq!(rig.rejected().0, 0x09);
    assert!(rig.is_quiet());
    rig.receive(immediate(logout(4, rig.cmd_sn, 1, 7)));
    assert_eq!(rig.pdu().bhs.view::<LogoutResponseHeader>().response, 0);
    assert_eq!(rig.closed(), CloseReason::LoggedOut);
}

#[test]
fn receive_when_the_opcode_is_not_an_initiators_then_is_rejected() {
    for opcode in (0..0x40).filter(|opcode| !matches!(opcode, 0..=6 | 0x10)) {
        let mut rig = Rig::new();
        let mut pdu = nop_out(5, RESERVED_TAG, rig.cmd_sn, &[]);
        pdu.bhs.0[0] = opcode;
        rig.receive(pdu);
        assert_eq!(rig.rejected().0, 0x05, "opcode {opcode:02x}");
        rig.begin(1, FINAL | READ, 512, &[]);
    }
}

#[test]
fn receive_when_it_is_a_snack_then_is_rejected() {
    let mut rig = Rig::new();
    let mut pdu = nop_out(5, RESERVED_TAG, rig.cmd_sn, &[]);
    pdu.bhs.0[0] = Opcode::SnackRequest as u8;
    rig.receive(pdu);
    assert_eq!(rig.rejected().0, 0x03);
}

#[test]
fn receive_when_it_is_a_login_request_then_the_connection_ends() {
    let mut rig = Rig::new();
    let mut pdu = nop_out(5, RESERVED_TAG, rig.cmd_sn, &[]);
    pdu.bhs.0[0] = Opcode::LoginRequest as u8 | 0x40;
    rig.receive(pdu);
    assert_eq!(rig.rejected().0, 0x04);
    assert!(matches!(rig.closed(), CloseReason::ProtocolError(_)));
}

#[test]
fn text_when_the_initiator_declares_a_longer_segment_then_data_in_uses_it() {
    let mut rig = Rig::new();
    let cmd_sn = rig.take_cmd_sn();
    rig.receive(text(5, cmd_sn, b"MaxRecvDataSegmentLength=16384\0"));
    assert_eq!(rig.pdu().bhs.opcode(), Some(Opcode::TextResponse));
    let task = rig.begin(1, FINAL | READ, 16384, &[]);
    rig.complete(task, TaskResult { data_in: pieces([bytes(16384)]), ..TaskResult::default() });
    assert_eq!(rig.pdu().data.len(), 16384);
}
