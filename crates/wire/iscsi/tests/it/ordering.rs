//! Command order across connections, and the command window (RFC 7143 section 4.2.2.1).

use std::time::Duration;

use iscsi::initiator::Failure;
use iscsi::pdu::{Lun, Pdu, Sn, TaskManagementFunction, TaskManagementResult};

use crate::pair::{Pair, Setup, pattern};
use crate::{disk, raw};

const CMD_SN: Sn = Sn(0xffff_fff0);

fn two_connections() -> Pair {
    Setup {
        connections: 2,
        ..Setup::new()
    }
    .build()
}

#[test]
fn commands_that_overtake_others_wait_for_them() {
    let mut pair = two_connections();
    pair.wires[0].held = true;
    let first = pair.write(0, 0, &pattern(1, 3000));
    pair.initiator_speaks(0);
    let second = pair.write(1, 10_000, &pattern(2, 30_000));
    let third = pair.read(1, 40_000, 512);
    pair.deliver();
    assert_eq!(
        pair.order,
        [],
        "nothing may happen before the first command"
    );
    pair.wires[0].held = false;
    pair.deliver();
    assert_eq!(
        [first, second, third].map(|task| pair.status(task)),
        [Some(0); 3]
    );
    assert_eq!(pair.disk.read(0, 3000), pattern(1, 3000));
    assert_eq!(
        pair.disk.read(10_000, 30_000),
        pattern(2, 30_000),
        "kept, and landed when its turn came"
    );
}

#[test]
fn a_command_released_between_its_header_and_its_data_gets_its_data() {
    let mut pair = two_connections();
    pair.wires[0].held = true;
    pair.read(0, 0, 512);
    pair.initiator_speaks(0);
    let data = pattern(3, 5000);
    let write = pair.write(1, 0, &data);
    pair.initiator_speaks(1);
    pair.cut = 60; // the header, and a little of the data
    pair.target_hears(1);
    pair.wires[0].held = false;
    pair.cut = usize::MAX;
    pair.target_hears(0);
    pair.deliver();
    assert_eq!(
        (pair.status(write), pair.disk.read(0, 5000)),
        (Some(0), data)
    );
}

#[test]
fn data_kept_for_waiting_commands_are_bounded() {
    let mut pair = Setup {
        connections: 2,
        staged_bytes_max: 10_000,
        ..Setup::new()
    }
    .build();
    pair.wires[0].held = true;
    let first = pair.read(0, 0, 512);
    pair.initiator_speaks(0);
    let fits = pair.write(1, 0, &pattern(1, 8000));
    let does_not = pair.write(1, 10_000, &pattern(2, 8000));
    pair.deliver();
    pair.wires[0].held = false;
    pair.deliver();
    // TASK SET FULL: retry.
    assert_eq!(
        [first, fits, does_not].map(|task| pair.status(task)),
        [Some(0), Some(0), Some(0x28)]
    );
    assert_eq!(pair.disk.read(10_000, 8000), [0; 8000]);
    let again = pair.write(1, 10_000, &pattern(2, 8000));
    pair.deliver();
    assert_eq!(pair.status(again), Some(0));
}

/// An empty Data-Out costs its sender 48 bytes, but used not to count towards the session's limit.
#[test]
fn data_kept_in_many_small_pieces_count_for_what_they_take() {
    let mut setup = Setup {
        connections: 2,
        staged_bytes_max: 10_000,
        ..Setup::new()
    };
    setup.parameters.local_max_recv_data_segment_length = 8;
    let mut pair = setup.build();
    pair.wires[0].held = true;
    let first = pair.read(0, 0, 512);
    pair.initiator_speaks(0);
    let crumbs = pair.write(1, 0, &pattern(1, 4000));
    pair.deliver();
    pair.wires[0].held = false;
    pair.deliver();
    assert_eq!(
        [first, crumbs].map(|task| pair.status(task)),
        [Some(0), Some(0x28)]
    );
}

#[test]
fn commands_outside_the_window_and_repeated_ones_are_ignored() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    for (tag, cmd_sn) in [
        (1, CMD_SN.minus(1)),
        (2, CMD_SN.plus(32)),
        (3, CMD_SN.plus(5)),
        (4, CMD_SN.plus(5)),
    ] {
        pair.inject(0, &raw::write(tag, cmd_sn, 512, 512).emit(), &[1; 512]);
    }
    pair.deliver();
    assert!(pair.said.is_empty() && pair.wires[0].is_up, "silently");
    assert_eq!(pair.target.counters().commands_ignored, 3);
    assert_eq!(pair.target.exp_cmd_sn(), CMD_SN);
}

#[test]
fn the_window_closes_when_it_is_full_and_opens_again() {
    let mut pair = Setup {
        window: 4,
        ..Setup::new()
    }
    .build();
    let tasks: Vec<_> = (0..4).map(|_| pair.hang(0, Lun(0))).collect();
    assert!(!pair.initiator.can_submit());
    pair.deliver();
    let (first, others) = pair
        .under_way()
        .split_first()
        .map(|(a, b)| (*a, b.to_vec()))
        .expect("all are there");
    pair.finish(first);
    pair.deliver();
    assert_eq!((pair.initiator.room(), pair.status(tasks[0])), (1, Some(0)));
    others.into_iter().for_each(|task| pair.finish(task));
    pair.deliver();
    assert_eq!(pair.initiator.room(), 4);
}

#[test]
fn a_closed_window_that_opens_without_an_answer_is_told_by_a_nop_in() {
    let mut pair = Setup {
        window: 1,
        ..Setup::new()
    }
    .build();
    pair.hang(0, Lun(0));
    pair.deliver();
    let task = pair.under_way()[0];
    pair.commands.remove(&task);
    pair.target.abort(task); // for example because of another initiator's reset
    pair.deliver();
    assert!(
        matches!(pair.said[..], [(0, Pdu::NopIn(nop))] if nop.itt.is_none() && nop.ttt.is_none())
    );
    assert_eq!(pair.initiator.room(), 1);
}

#[test]
fn immediate_commands_overtake_and_use_no_number_up() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    pair.inject(0, &raw::nothing(2, CMD_SN.next()).emit(), &[]);
    let urgent = iscsi::pdu::ScsiCommand {
        immediate: true,
        ..raw::nothing(3, CMD_SN.plus(9))
    };
    pair.inject(0, &urgent.emit(), &[]);
    pair.deliver();
    let answered = pair.said(|pdu| {
        if let Pdu::ScsiResponse(r) = pdu {
            Some(r.itt)
        } else {
            None
        }
    });
    assert_eq!(
        (answered, pair.target.exp_cmd_sn()),
        (vec![raw::itt(3)], CMD_SN)
    );
}

#[test]
fn a_lost_connection_takes_its_commands_and_leaves_the_session() {
    let mut pair = two_connections();
    let (lost, kept) = (pair.hang(0, Lun(0)), pair.hang(1, Lun(0)));
    pair.deliver();
    pair.disconnect(0);
    pair.deliver();
    assert_eq!(pair.failure(lost), Some(Failure::ConnectionLost));
    assert_eq!(pair.under_way().len(), 1);
    let task = pair.under_way()[0];
    pair.finish(task);
    pair.deliver();
    assert_eq!(pair.status(kept), Some(0));
}

/// Found by the fuzz target session_pair: the driver was notified of the end of a task that had never been
/// announced.
#[test]
fn a_command_that_found_no_room_and_loses_its_connection_is_nobodys_business() {
    let mut pair = Setup {
        connections: 2,
        staged_bytes_max: 100,
        ..Setup::new()
    }
    .build();
    pair.wires[0].held = true;
    let first = pair.write(0, 0, &pattern(1, 512));
    pair.initiator_speaks(0);
    pair.write(1, 0, &pattern(2, 512));
    pair.initiator_speaks(1);
    pair.target_hears(1);
    pair.wires[0].held = false;
    pair.target_hears(0);
    pair.disconnect(1);
    pair.deliver();
    assert_eq!(pair.status(first), Some(0));
    assert_eq!((pair.order.len(), pair.target.commands_in_flight()), (1, 0));
}

/// Found by the fuzz target session_pair: when a connection is lost, the target no longer delays a function
/// until earlier commands arrive. The initiator considers everything that it sent earlier ended by the
/// function's response.
#[test]
fn a_command_that_arrives_behind_the_reset_that_ended_it_does_not_begin() {
    let mut pair = Setup {
        connections: 3,
        ..Setup::new()
    }
    .build();
    pair.wires[0].held = true;
    let late = pair.write(0, 0, &pattern(1, 512));
    pair.initiator_speaks(0);
    let id = pair.wires[1].initiator;
    pair.initiator.manage(
        pair.now,
        id,
        TaskManagementFunction::LogicalUnitReset,
        Lun(0),
    );
    pair.deliver();
    pair.disconnect(2);
    pair.outwait();
    assert_eq!(pair.failure(late), Some(Failure::Aborted));
    let next = pair.read(1, 0, 512);
    pair.deliver();
    assert_eq!(pair.status(next), Some(0), "there is no gap");
    pair.wires[0].held = false;
    pair.deliver();
    assert_eq!(pair.disk.read(0, 512), [0; 512]);
}

/// Found by the fuzz target session_pair.
#[test]
fn a_gap_is_plugged_though_the_connection_that_was_to_do_it_is_lost_too() {
    let mut pair = Setup {
        connections: 3,
        ..Setup::new()
    }
    .build();
    let lost = pair.read(2, 0, 512);
    pair.initiator_speaks(2);
    let read = pair.read(1, 0, 512);
    pair.initiator_speaks(1);
    pair.disconnect(2);
    pair.disconnect(0);
    pair.deliver();
    assert_eq!(pair.failure(lost), Some(Failure::ConnectionLost));
    assert_eq!(pair.status(read), Some(0));
}

#[test]
fn commands_lost_with_a_connection_leave_no_gap() {
    let mut pair = two_connections();
    pair.wires[0].held = true;
    let lost = pair.write(0, 0, &pattern(1, 100));
    pair.initiator_speaks(0);
    let waiting = pair.write(1, 1000, &pattern(2, 100));
    pair.deliver();
    assert_eq!(pair.status(waiting), None);
    pair.disconnect(0); // the target never received the first command
    pair.deliver();
    assert_eq!(
        (pair.failure(lost), pair.status(waiting)),
        (Some(Failure::ConnectionLost), Some(0))
    );
    assert_eq!(
        pair.management_results(),
        [TaskManagementResult::FunctionComplete],
        "section 11.5.5"
    );
    assert_eq!(pair.initiator.in_flight(), 0);
}

#[test]
fn commands_held_from_a_lost_connection_count_as_received() {
    let mut pair = two_connections();
    pair.wires[0].held = true;
    let first = pair.read(0, 0, 512);
    pair.initiator_speaks(0);
    let held = pair.write(1, 0, &pattern(1, 5000));
    let third = pair.hang(1, Lun(0));
    pair.deliver();
    pair.disconnect(1);
    pair.wires[0].held = false;
    pair.deliver();
    assert_eq!(
        [held, third].map(|task| pair.failure(task)),
        [Some(Failure::ConnectionLost); 2]
    );
    assert_eq!(
        (pair.status(first), pair.disk.read(0, 100)),
        (Some(0), vec![0; 100])
    );
    let next = pair.read(0, 0, 512);
    pair.deliver();
    assert_eq!(pair.status(next), Some(0));
}

#[test]
fn a_reset_waits_for_the_commands_sent_before_it() {
    let mut pair = two_connections();
    pair.wires[0].held = true;
    let before = pair.hang(0, Lun(0));
    pair.initiator_speaks(0);
    let id = pair.wires[1].initiator;
    pair.initiator.manage(
        pair.now,
        id,
        TaskManagementFunction::LogicalUnitReset,
        Lun(0),
    );
    pair.deliver();
    assert_eq!(pair.management_results(), []);
    pair.wires[0].held = false;
    pair.deliver();
    assert_eq!(
        pair.management_results(),
        [TaskManagementResult::FunctionComplete]
    );
    assert_eq!(
        (pair.failure(before), pair.under_way().len()),
        (Some(Failure::Aborted), 0)
    );
}

#[test]
fn a_reset_waits_no_longer_than_the_connection_lives() {
    let mut pair = two_connections();
    pair.wires[0].held = true;
    pair.hang(0, Lun(0));
    pair.initiator_speaks(0);
    let id = pair.wires[1].initiator;
    pair.initiator.manage(
        pair.now,
        id,
        TaskManagementFunction::LogicalUnitReset,
        Lun(0),
    );
    pair.deliver();
    pair.disconnect(0);
    pair.deliver();
    assert!(
        pair.management_results()
            .contains(&TaskManagementResult::FunctionComplete)
    );
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.initiator.in_flight(), 0);
}

#[test]
fn many_connections_finish_in_the_order_of_their_numbers() {
    let mut pair = Setup {
        connections: 8,
        ..Setup::new()
    }
    .build();
    for round in 0..4u32 {
        for wire in 0..8 {
            pair.submit(
                wire,
                &disk::cdb(disk::READ, round * 8 + wire as u32, 16),
                16,
                &[],
            );
            pair.initiator_speaks(wire);
        }
    }
    // The last connection's bytes arrive first.
    for wire in (0..8).rev() {
        pair.wires
            .iter_mut()
            .enumerate()
            .for_each(|(i, w)| w.held = i < wire);
        pair.deliver();
    }
    assert_eq!(pair.order, (0..32).collect::<Vec<usize>>());
}
