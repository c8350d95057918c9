use proptest::prelude::*;

use super::*;
use crate::serial::SerialNumber;

#[test]
fn request_when_it_is_ahead_of_its_turn_then_waits_for_it() {
    let mut rig = Rig::new();
    let at = |steps: u32| FIRST_CMD_SN.wrapping_add(steps);
    for steps in [3, 1, 2] {
        rig.receive(command(steps, at(steps), FINAL | READ, 512, &[]));
    }
    assert!(rig.is_quiet());
    rig.receive(command(0, at(0), FINAL | READ, 512, &[]));
    let tags: Vec<u32> = rig
        .actions()
        .into_iter()
        .map(|action| match action {
            Action::Command(command) => command.initiator_task_tag,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(tags, [0, 1, 2, 3]);
}

#[test]
fn request_when_it_is_a_duplicate_or_outside_the_window_then_is_ignored() {
    let mut rig = Rig::new();
    let at = |steps: u32| FIRST_CMD_SN.wrapping_add(steps);
    rig.begin(0, FINAL | READ, 512, &[]);
    rig.receive(command(2, at(2), FINAL | READ, 512, &[]));
    for (tag, steps) in [(10, 0), (11, 2), (12, 8), (13, 1000), (14, u32::MAX), (15, 1 << 31)] {
        rig.receive(command(tag, at(steps), FINAL | READ, 512, &[]));
        assert!(rig.is_quiet(), "step {steps}");
    }
    assert_eq!(rig.session.counters().ignored_requests, 6);
    // The last number of the window is inside: 8 commands, of which the first is open.
    rig.receive(command(7, at(7), FINAL | READ, 512, &[]));
    rig.command(1, FINAL | READ, 512, &[]);
    assert_eq!(rig.actions().len(), 2, "the one that was missing and the one behind it");
}

#[test]
fn request_when_held_ones_hold_too_much_data_then_the_connection_ends() {
    let mut rig = Rig::with(|parameters, limits| {
        limits.command_window = 1000;
        parameters.first_burst_length = 1 << 20;
    });
    let mut count = 0;
    while rig.is_quiet() {
        count += 1;
        assert!(count < 1000);
        rig.receive(command(count, FIRST_CMD_SN.wrapping_add(count), FINAL | WRITE, 8192, &[0; 8192]));
    }
    assert!(matches!(rig.closed(), CloseReason::ProtocolError(_)));
    assert_eq!(count, 129, "1 MiB in 8 KiB pieces, and one more");
    rig.receive(command(0, FIRST_CMD_SN, FINAL | READ, 512, &[]));
    assert!(rig.is_quiet(), "nothing happens after the close");
}

#[test]
fn window_when_commands_are_open_then_has_room_for_the_rest_only() {
    let mut rig = Rig::new();
    let tasks: Vec<TaskId> = (0..8).map(|tag| rig.begin(tag, FINAL | READ, 512, &[])).collect();
    // The window is used up: the next one is outside.
    rig.command(8, FINAL | READ, 512, &[]);
    assert!(rig.is_quiet());
    rig.cmd_sn = rig.cmd_sn.wrapping_sub(1);
    rig.complete_good(tasks[3]);
    let response = rig.response();
    assert_eq!(response.exp_cmd_sn.get(), rig.cmd_sn);
    assert_eq!(response.max_cmd_sn.get(), rig.cmd_sn, "room for one");
    rig.begin(8, FINAL | READ, 512, &[]);
}

#[test]
fn window_when_it_is_enlarged_then_a_closed_one_is_told_by_a_nop_in() {
    let mut rig = Rig::with(|_, limits| limits.command_window = 2);
    for tag in 0..2 {
        rig.begin(tag, FINAL | READ, 512, &[]);
    }
    rig.receive(immediate(nop_out(50, RESERVED_TAG, rig.cmd_sn, &[])));
    let nop_in = rig.pdu();
    let header = nop_in.bhs.view::<NopInHeader>();
    assert_eq!(header.max_cmd_sn.get(), rig.cmd_sn.wrapping_sub(1), "closed");
    rig.session.set_command_window(5, &mut rig.out);
    let nop_in = rig.pdu();
    let header = nop_in.bhs.view::<NopInHeader>();
    assert_eq!(nop_in.bhs.opcode(), Some(Opcode::NopIn));
    assert_eq!((header.initiator_task_tag.get(), header.target_transfer_tag.get()), (RESERVED_TAG, RESERVED_TAG));
    assert_eq!(header.max_cmd_sn.get(), rig.cmd_sn.wrapping_add(2));
    rig.session.set_command_window(6, &mut rig.out);
    assert!(rig.is_quiet(), "an open window is told with the next PDU");
}

#[test]
fn window_when_it_is_made_smaller_then_max_cmd_sn_stays() {
    let mut rig = Rig::new();
    let task = rig.begin(0, FINAL | READ, 512, &[]);
    rig.session.set_command_window(1, &mut rig.out);
    rig.complete_good(task);
    let max_cmd_sn = rig.response().max_cmd_sn.get();
    assert_eq!(max_cmd_sn, FIRST_CMD_SN.wrapping_add(7));
    // As many as were allowed are taken, then one at a time.
    let tasks: Vec<TaskId> = (1..8).map(|tag| rig.begin(tag, FINAL | READ, 512, &[])).collect();
    for task in &tasks[..6] {
        rig.complete_good(*task);
        assert_eq!(rig.response().max_cmd_sn.get(), max_cmd_sn);
    }
    rig.complete_good(tasks[6]);
    assert_eq!(rig.response().max_cmd_sn.get(), max_cmd_sn.wrapping_add(1));
}

#[test]
fn window_when_the_last_task_ends_without_a_response_then_is_told() {
    let mut rig = Rig::with(|_, limits| limits.command_window = 1);
    let task = rig.begin(1, FINAL | READ, 512, &[]);
    rig.receive(immediate(task_management(2, rig.cmd_sn, 1, 1, FIRST_CMD_SN)));
    rig.abandoned();
    rig.complete_good(task);
    let pdu = rig.pdu();
    assert_eq!(pdu.bhs.opcode(), Some(Opcode::TaskManagementResponse));
    assert_eq!(rig.check.open_window(), 1);
}

/// What the initiator of the property below does.
#[derive(Clone, Debug)]
enum Step {
    Command { ahead: u32 },
    Complete { nth: usize },
    Window(u16),
    Nop,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![6 => Just(0u32), 2 => 0..12u32, 1 => any::<u32>()].prop_map(|ahead| Step::Command { ahead }),
        4 => any::<usize>().prop_map(|nth| Step::Complete { nth }),
        1 => (0..12u16).prop_map(Step::Window),
        1 => Just(Step::Nop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever the initiator numbers its commands with: they are delivered in order, once each, and there are never
    /// more of them than the largest window so far.
    #[test]
    fn window_when_commands_come_in_any_order_then_they_are_delivered_in_order(
        steps in prop::collection::vec(any_step(), 1..200),
    ) {
        let mut rig = Rig::new();
        let (mut open, mut delivered, mut largest) = (Vec::new(), SerialNumber(FIRST_CMD_SN), 8u16);
        let mut tag = 0;
        for step in steps {
            match step {
                Step::Command { ahead } => {
                    tag += 1;
                    let mut pdu = command(tag, delivered.plus(ahead).0, FINAL | READ, 512, &[]);
                    // The CDB remembers the number.
                    let number: [u8; 4] = pdu.bhs.0[24..28].try_into().unwrap();
                    pdu.bhs.0[34..38].copy_from_slice(&number);
                    rig.receive(pdu);
                }
                Step::Complete { nth } if !open.is_empty() => {
                    let task = open.swap_remove(nth % open.len());
                    rig.complete_good(task);
                }
                Step::Complete { .. } => {}
                Step::Window(window) => {
                    largest = largest.max(window);
                    rig.session.set_command_window(window, &mut rig.out);
                }
                Step::Nop => rig.receive(immediate(nop_out(0x8000_0000, RESERVED_TAG, 0, &[]))),
            }
            for action in rig.actions() {
                let Action::Command(command) = action else { panic!("{action:?}") };
                prop_assert_eq!(&command.cdb.as_slice()[2..6], &delivered.0.to_be_bytes());
                delivered = delivered.next();
                open.push(command.task);
            }
            rig.pdus();
            prop_assert!(open.len() <= usize::from(largest));
            prop_assert_eq!(rig.session.unsettled_tasks(), open.len());
        }
    }
}
