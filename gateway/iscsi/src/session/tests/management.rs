use super::*;
use crate::output::{TaskFunction, TaskManagement, TaskManagementOutcome};

const OTHER_LUN: [u8; 8] = [0, 2, 0, 0, 0, 0, 0, 0];

fn outcome(pdu: &OutPdu) -> (u32, u8) {
    assert_eq!(pdu.bhs.opcode(), Some(Opcode::TaskManagementResponse), "{pdu:?}");
    (pdu.bhs.initiator_task_tag(), pdu.bhs.view::<TaskManagementResponseHeader>().response)
}

fn at_lun(mut pdu: Pdu, lun: [u8; 8]) -> Pdu {
    pdu.bhs.0[8..16].copy_from_slice(&lun);
    pdu
}

impl Rig {
    /// An immediate task management request, as initiators send them.
    fn manage(&mut self, function: u8, referenced_tag: u32, ref_cmd_sn: u32) {
        self.receive(immediate(task_management(0xf0, self.cmd_sn, function, referenced_tag, ref_cmd_sn)));
    }

    fn outcome(&mut self) -> u8 {
        let (tag, response) = outcome(&self.pdu());
        assert_eq!(tag, 0xf0);
        response
    }

    fn management(&mut self) -> TaskManagement {
        match self.action() {
            Action::TaskManagement(management) => management,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn abort_task_when_the_task_is_running_then_is_answered_when_it_is_settled() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | READ, 512, &[]);
    let other = rig.begin(2, FINAL | READ, 512, &[]);
    rig.manage(1, 1, FIRST_CMD_SN);
    assert_eq!(rig.abandoned(), [task]);
    assert!(rig.pdus().is_empty(), "not before it is settled");
    rig.complete(task, TaskResult { data_in: pieces([bytes(512)]), ..TaskResult::default() });
    assert_eq!(rig.outcome(), 0, "and the task itself gets no response");
    rig.complete_good(other);
    assert_eq!(rig.response().initiator_task_tag.get(), 2);
}

#[test]
fn abort_task_when_the_task_waits_for_data_then_late_data_is_swallowed() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | WRITE, 8192, &[]);
    rig.transfer_out(task, 8192);
    let r2t = r2t_of(&rig.pdu());
    rig.manage(1, 1, FIRST_CMD_SN);
    assert_eq!(rig.abandoned(), [task]);
    rig.receive(data_out(1, r2t.target_transfer_tag.get(), 0, 0, true, &[0; 8192]));
    assert!(rig.is_quiet());
    rig.complete_good(task);
    assert_eq!(rig.outcome(), 0);
    // Data of the old task that comes when its tag is used again does no harm to the new one.
    let task = rig.begin(1, FINAL | WRITE, 512, &[0; 512]);
    rig.transfer_out(task, 512);
    rig.data_out_action();
    rig.receive(data_out(1, r2t.target_transfer_tag.get(), 0, 0, true, &[0; 8192]));
    assert_eq!(rig.rejected().0, 0x04);
    rig.complete(task, TaskResult { data_out_wanted: 512, ..TaskResult::default() });
    assert_eq!(rig.response().status, GOOD);
}

#[test]
fn abort_task_when_the_task_is_over_then_does_not_exist() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | READ, 512, &[]);
    rig.complete_good(task);
    rig.response();
    rig.manage(1, 1, FIRST_CMD_SN);
    assert_eq!(rig.outcome(), 1);
}

#[test]
fn abort_task_when_the_lun_is_another_then_does_not_exist() {
    let mut rig = Rig::new();
    rig.begin(1, FINAL | READ, 512, &[]);
    rig.receive(immediate(at_lun(task_management(0xf0, rig.cmd_sn, 1, 1, FIRST_CMD_SN), OTHER_LUN)));
    assert_eq!(rig.outcome(), 1);
    assert!(rig.actions().is_empty());
}

#[test]
fn abort_task_when_the_command_has_not_come_then_its_number_counts_as_received() {
    let mut rig = Rig::new();
    let lost = rig.take_cmd_sn();
    rig.command(2, FINAL | READ, 512, &[]);
    assert!(rig.is_quiet(), "waits behind the gap");
    rig.manage(1, 1, lost);
    assert_eq!(rig.outcome(), 0);
    assert_eq!(rig.next_command().initiator_task_tag, 2);
    rig.receive(command(1, lost, FINAL | READ, 512, &[]));
    assert!(rig.is_quiet(), "too late");
}

#[test]
fn abort_task_when_the_command_waits_behind_a_gap_then_it_is_dropped() {
    let mut rig = Rig::new();
    let lost = rig.take_cmd_sn();
    let waiting = rig.cmd_sn;
    rig.command(2, FINAL | READ, 512, &[]);
    rig.manage(1, 2, waiting);
    assert_eq!(rig.outcome(), 0);
    rig.receive(command(1, lost, FINAL | READ, 512, &[]));
    assert_eq!(rig.next_command().initiator_task_tag, 1);
    let task = rig.begin(3, FINAL | READ, 512, &[]);
    rig.complete_good(task);
    assert_eq!(rig.response().exp_cmd_sn.get(), FIRST_CMD_SN.wrapping_add(3));
}

#[test]
fn abort_task_when_the_number_is_outside_the_window_or_not_before_it_then_does_not_exist() {
    let mut rig = Rig::new();
    for ref_cmd_sn in [rig.cmd_sn.wrapping_sub(1), rig.cmd_sn, rig.cmd_sn.wrapping_add(20)] {
        rig.manage(1, 9, ref_cmd_sn);
        assert_eq!(rig.outcome(), 1);
    }
}

#[test]
fn task_set_functions_when_tasks_are_running_then_the_shell_gets_its_turn_after_they_are_settled() {
    for (code, function) in
        [(2, TaskFunction::AbortTaskSet), (3, TaskFunction::ClearTaskSet), (5, TaskFunction::LogicalUnitReset)]
    {
        let mut rig = Rig::new();
        let tasks = [rig.begin(1, FINAL | READ, 512, &[]), rig.begin(2, FINAL | WRITE, 512, &[])];
        let cmd_sn = rig.take_cmd_sn();
        rig.receive(at_lun(command(3, cmd_sn, FINAL | READ, 512, &[]), OTHER_LUN));
        let other = rig.next_command().task;
        rig.manage(code, RESERVED_TAG, 0);
        assert_eq!(rig.abandoned(), tasks);
        rig.complete_good(tasks[1]);
        assert!(rig.is_quiet());
        rig.complete_good(tasks[0]);
        let management = rig.management();
        assert_eq!((management.function, management.lun), (function, LUN));
        assert!(rig.pdus().is_empty(), "the shell answers");
        rig.session.complete_task_management(management.token, TaskManagementOutcome::LunDoesNotExist, &mut rig.out);
        assert_eq!(rig.outcome(), 2);
        rig.session.complete_task_management(management.token, TaskManagementOutcome::Complete, &mut rig.out);
        assert!(rig.is_quiet(), "once");
        rig.complete_good(other);
        assert_eq!(rig.response().initiator_task_tag.get(), 3);
    }
}

#[test]
fn target_resets_when_tasks_are_running_then_cover_all_logical_units() {
    for code in [6, 7] {
        let mut rig = Rig::new();
        let first = rig.begin(1, FINAL | READ, 512, &[]);
        let cmd_sn = rig.take_cmd_sn();
        rig.receive(at_lun(command(2, cmd_sn, FINAL | READ, 512, &[]), OTHER_LUN));
        let second = rig.next_command().task;
        rig.manage(code, RESERVED_TAG, 0);
        assert_eq!(rig.abandoned(), [first, second]);
        rig.complete_good(first);
        rig.complete_good(second);
        let management = rig.management();
        rig.session.complete_task_management(management.token, TaskManagementOutcome::Complete, &mut rig.out);
        assert_eq!(rig.outcome(), 0);
        if code == 7 {
            assert_eq!(rig.closed(), CloseReason::TargetReset);
        } else {
            assert!(rig.actions().is_empty());
        }
    }
}

#[test]
fn lun_reset_when_nothing_is_running_then_the_shell_gets_its_turn_at_once() {
    let mut rig = Rig::new();
    rig.manage(5, RESERVED_TAG, 0);
    assert_eq!(rig.management().function, TaskFunction::LogicalUnitReset);
}

#[test]
fn lun_reset_when_commands_wait_behind_a_gap_then_those_before_it_are_dropped() {
    let mut rig = Rig::new();
    let lost = rig.take_cmd_sn();
    rig.command(2, FINAL | READ, 512, &[]);
    let reset = rig.cmd_sn;
    rig.command(3, FINAL | READ, 512, &[]);
    rig.receive(immediate(task_management(0xf0, reset, 5, RESERVED_TAG, 0)));
    rig.management();
    rig.receive(command(1, lost, FINAL | READ, 512, &[]));
    let tags: Vec<u32> = rig
        .actions()
        .into_iter()
        .map(|action| match action {
            Action::Command(command) => command.initiator_task_tag,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tags, [1, 3], "the first came later, the third is numbered later");
}

#[test]
fn lun_reset_when_a_response_waits_for_the_end_of_data_then_it_is_dropped() {
    let mut rig = Rig::new();
    let task = rig.begin(1, WRITE, 16384, &[]);
    rig.complete_good(task);
    assert!(rig.is_quiet());
    rig.manage(5, RESERVED_TAG, 0);
    rig.management();
    rig.receive(data_out(1, RESERVED_TAG, 0, 0, true, &[0; 8192]));
    assert!(rig.is_quiet());
}

#[test]
fn functions_when_they_overlap_then_all_are_answered_in_order() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | READ, 512, &[]);
    rig.manage(1, 1, FIRST_CMD_SN);
    assert_eq!(rig.abandoned(), [task]);
    rig.receive(immediate(task_management(0xf1, rig.cmd_sn, 1, 1, FIRST_CMD_SN)));
    rig.receive(immediate(task_management(0xf2, rig.cmd_sn, 5, RESERVED_TAG, 0)));
    rig.session.abort_from_other_nexus(Some(LUN), 77, &mut rig.out);
    assert!(rig.is_quiet(), "the shell knows already");
    rig.complete_good(task);
    let actions = rig.actions();
    assert!(matches!(actions[..], [Action::TaskManagement(_), Action::AbortsSettled(77)]), "{actions:?}");
    assert_eq!(rig.pdus().iter().map(outcome).collect::<Vec<_>>(), [(0xf0, 0), (0xf1, 0)]);
}

#[test]
fn functions_when_they_are_not_supported_then_are_answered_so() {
    // CLEAR ACA, TASK REASSIGN, QUERY TASK, QUERY TASK SET, I_T NEXUS RESET, QUERY ASYNCHRONOUS EVENT, reserved.
    for (code, response) in [(4, 5), (8, 4), (9, 5), (10, 5), (11, 5), (12, 5), (0, 5), (127, 5)] {
        let mut rig = Rig::new();
        rig.begin(1, FINAL | READ, 512, &[]);
        rig.manage(code, 1, FIRST_CMD_SN);
        assert_eq!(rig.outcome(), response, "function {code}");
        assert!(rig.actions().is_empty());
    }
}

#[test]
fn functions_when_they_are_numbered_then_take_their_turn() {
    let mut rig = Rig::new();
    let cmd_sn = rig.take_cmd_sn();
    rig.receive(task_management(0xf0, cmd_sn, 5, RESERVED_TAG, 0));
    let management = rig.management();
    rig.session.complete_task_management(management.token, TaskManagementOutcome::Complete, &mut rig.out);
    let pdu = rig.pdu();
    assert_eq!(pdu.bhs.view::<TaskManagementResponseHeader>().exp_cmd_sn.get(), rig.cmd_sn);
}

#[test]
fn functions_when_too_many_wait_then_are_refused() {
    let mut rig = Rig::with(|_, limits| limits.max_task_management = 2);
    rig.begin(1, FINAL | READ, 512, &[]);
    rig.manage(5, RESERVED_TAG, 0);
    rig.abandoned();
    rig.manage(5, RESERVED_TAG, 0);
    rig.manage(5, RESERVED_TAG, 0);
    assert_eq!(rig.rejected().0, 0x06, "an immediate one is rejected");
    let cmd_sn = rig.take_cmd_sn();
    rig.receive(task_management(0xf0, cmd_sn, 5, RESERVED_TAG, 0));
    assert_eq!(rig.outcome(), 255, "a numbered one is answered");
}

#[test]
fn functions_when_their_tag_is_bad_then_are_rejected() {
    let mut rig = Rig::new();
    rig.begin(1, FINAL | READ, 512, &[]);
    rig.receive(immediate(task_management(1, rig.cmd_sn, 5, RESERVED_TAG, 0)));
    assert_eq!(rig.rejected().0, 0x07);
    rig.receive(immediate(task_management(RESERVED_TAG, rig.cmd_sn, 5, RESERVED_TAG, 0)));
    assert_eq!(rig.rejected().0, 0x09);
}

#[test]
fn abort_from_other_nexus_when_tasks_are_running_then_they_end_with_task_aborted() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | READ, 512, &[]);
    let cmd_sn = rig.take_cmd_sn();
    rig.receive(at_lun(command(2, cmd_sn, FINAL | READ, 512, &[]), OTHER_LUN));
    let other = rig.next_command().task;
    rig.session.abort_from_other_nexus(Some([0x40, 1, 0, 0, 0, 0, 0, 0]), 5, &mut rig.out);
    assert_eq!(rig.abandoned(), [task]);
    rig.complete(task, TaskResult { data_in: pieces([bytes(512)]), ..TaskResult::default() });
    let response = rig.response();
    assert_eq!((response.status, response.residual_count.get()), (0x40, 512));
    assert!(matches!(rig.action(), Action::AbortsSettled(5)));
    rig.complete_good(other);
    assert_eq!(rig.response().status, GOOD);
}

#[test]
fn abort_from_other_nexus_when_data_is_still_coming_then_settles_first_and_answers_after_its_end() {
    let mut rig = Rig::new();
    let task = rig.begin(1, WRITE, 16384, &[]);
    rig.session.abort_from_other_nexus(None, 5, &mut rig.out);
    rig.abandoned();
    rig.complete_good(task);
    assert!(matches!(rig.action(), Action::AbortsSettled(5)), "a silent host does not hold up another one");
    assert!(rig.pdus().is_empty());
    rig.receive(data_out(1, RESERVED_TAG, 0, 0, true, &[0; 8192]));
    assert_eq!(rig.response().status, 0x40);
}

#[test]
fn abort_from_other_nexus_when_nothing_is_running_then_is_settled_at_once() {
    let mut rig = Rig::new();
    rig.session.abort_from_other_nexus(None, 9, &mut rig.out);
    assert!(matches!(rig.action(), Action::AbortsSettled(9)));
}

#[test]
fn abandon_all_when_tasks_are_running_then_nothing_is_sent_any_more_but_others_are_told() {
    let mut rig = Rig::new();
    let task = rig.begin(1, FINAL | READ, 512, &[]);
    let writer = rig.begin(2, WRITE, 512, &[]);
    rig.complete_good(writer);
    rig.manage(5, RESERVED_TAG, 0);
    assert_eq!(rig.abandoned(), [task]);
    rig.session.abort_from_other_nexus(None, 3, &mut rig.out);
    rig.session.abandon_all(&mut rig.out);
    assert!(rig.is_quiet(), "each task is told once");
    rig.receive(nop_out(9, RESERVED_TAG, rig.cmd_sn, &[]));
    assert!(rig.is_quiet());
    assert_eq!(rig.session.unsettled_tasks(), 1);
    rig.complete_good(task);
    assert!(matches!(rig.action(), Action::AbortsSettled(3)));
    assert!(rig.is_quiet());
    assert_eq!(rig.session.unsettled_tasks(), 0);
    assert_eq!(rig.session.next_deadline(), Duration::MAX);
}
