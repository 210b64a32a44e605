//! Responses that no other response may overtake (RFC 7143 sections 4.2.2.3.3 and 4.2.2.3.4), on several
//! connections.

use std::time::Duration;

use iscsi::pdu::{
    Lun, NopOut, Pdu, ScsiCommand, Sn, TaskManagementFunction as Function, TaskManagementRequest,
    TaskManagementResult as Outcome, Ttt,
};
use iscsi::target::{self, CloseReason};

use crate::pair::{Pair, Setup};
use crate::raw;

const CMD_SN: Sn = Sn(0xffff_fff0);
const FIRST_STAT_SN: Sn = Sn(0xffff_fffe);

/// A target with two connections, to which the scene sends PDUs directly.
fn two_connections() -> Pair {
    let mut pair = Setup {
        connections: 2,
        ..Setup::new()
    }
    .build();
    pair.wires
        .iter_mut()
        .for_each(|wire| wire.intercepted = true);
    pair
}

/// As [`two_connections`]: a command has been answered on connection 1, and a reset is requested on connection 0.
fn reset_behind_an_answer() -> Pair {
    let mut pair = two_connections();
    pair.inject(1, &raw::nothing(1, CMD_SN).emit(), &[]);
    pair.deliver();
    pair.inject(
        0,
        &raw::manage(2, CMD_SN.next(), Function::LogicalUnitReset).emit(),
        &[],
    );
    pair.deliver();
    pair
}

/// A short form of the target's PDUs.
fn said(pair: &Pair) -> Vec<(usize, &'static str)> {
    let name = |pdu: &Pdu| match pdu {
        Pdu::NopIn(_) => "ping",
        Pdu::ScsiResponse(_) => "answer",
        Pdu::TaskManagementResponse(_) => "done",
        Pdu::LogoutResponse(_) => "logged out",
        _ => "other",
    };
    pair.said
        .iter()
        .map(|(wire, pdu)| (*wire, name(pdu)))
        .collect()
}

/// The tag of the last ping on a connection.
fn last_ping(pair: &Pair, on: usize) -> Option<Ttt> {
    pair.said.iter().rev().find_map(|(wire, pdu)| match pdu {
        Pdu::NopIn(pdu) if *wire == on => pdu.ttt,
        _ => None,
    })
}

/// Acknowledges everything before `exp_stat_sn`, unsolicited.
fn acknowledge(pair: &mut Pair, wire: usize, exp_stat_sn: Sn) {
    pair.inject(
        wire,
        &NopOut {
            exp_stat_sn,
            ..raw::ping(None, None, 0)
        }
        .emit(),
        &[],
    );
    pair.deliver();
}

fn closed(pair: &Pair) -> Vec<(usize, CloseReason)> {
    let close = |event: &target::Event| match event {
        target::Event::Close { connection, reason } => Some((connection.index(), *reason)),
        _ => None,
    };
    pair.target_events.iter().filter_map(close).collect()
}

#[test]
fn a_reset_is_answered_when_answers_on_other_connections_have_arrived() {
    let mut pair = reset_behind_an_answer();
    assert_eq!(said(&pair), [(1, "answer"), (1, "ping")]);
    acknowledge(&mut pair, 1, FIRST_STAT_SN);
    assert_eq!(pair.management_results(), [], "the answer has not arrived");
    acknowledge(&mut pair, 1, FIRST_STAT_SN.next());
    assert_eq!(said(&pair)[2..], [(0, "done"), (0, "ping")]);
    assert_eq!(pair.management_results(), [Outcome::FunctionComplete]);
}

#[test]
fn every_pdu_of_the_initiator_acknowledges() {
    let mut pair = reset_behind_an_answer();
    let next = ScsiCommand {
        exp_stat_sn: FIRST_STAT_SN.next(),
        ..raw::hang(3, CMD_SN.next())
    };
    pair.inject(1, &next.emit(), &[]);
    pair.deliver();
    assert_eq!(pair.management_results().len(), 1);
}

#[test]
fn the_answer_to_the_ping_is_enough() {
    let mut pair = reset_behind_an_answer();
    let ttt = last_ping(&pair, 1);
    assert!(ttt.is_some());
    let behind_the_times = FIRST_STAT_SN.minus(100);
    pair.inject(
        1,
        &NopOut {
            exp_stat_sn: behind_the_times,
            ..raw::ping(None, ttt, 0)
        }
        .emit(),
        &[],
    );
    pair.deliver();
    assert_eq!(pair.management_results().len(), 1);
}

#[test]
fn the_connection_that_asked_acknowledges_nothing_for_the_others() {
    let mut pair = reset_behind_an_answer();
    acknowledge(&mut pair, 0, FIRST_STAT_SN.plus(1000));
    assert_eq!(pair.management_results(), []);
}

#[test]
fn a_lost_connection_is_not_waited_for() {
    let mut pair = reset_behind_an_answer();
    pair.disconnect(1);
    pair.deliver();
    assert_eq!(pair.management_results().len(), 1);
}

#[test]
fn a_silent_connection_is_waited_for_for_a_second() {
    let mut pair = reset_behind_an_answer();
    assert!(
        pair.target
            .poll_timeout()
            .is_some_and(|due| due <= pair.now),
        "the timeout is immediate"
    );
    pair.pass(Duration::ZERO);
    pair.pass(Duration::from_millis(999));
    assert_eq!(pair.management_results(), []);
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.management_results().len(), 1);
}

#[test]
fn an_asker_that_is_lost_leaves_no_fence() {
    let mut pair = reset_behind_an_answer();
    pair.disconnect(0);
    acknowledge(&mut pair, 1, FIRST_STAT_SN.next());
    pair.inject(1, &raw::nothing(3, CMD_SN.next()).emit(), &[]);
    pair.deliver();
    assert_eq!(said(&pair).last(), Some(&(1, "answer")));
    assert_eq!(pair.management_results(), []);
}

#[test]
fn later_answers_of_the_logical_unit_wait_until_the_reset_is_known() {
    let mut pair = reset_behind_an_answer();
    let elsewhere = ScsiCommand {
        lun: Lun(7),
        ..raw::nothing(4, CMD_SN.plus(2))
    };
    pair.inject(
        1,
        &ScsiCommand {
            exp_stat_sn: FIRST_STAT_SN,
            ..raw::nothing(3, CMD_SN.next())
        }
        .emit(),
        &[],
    );
    pair.inject(
        1,
        &ScsiCommand {
            exp_stat_sn: FIRST_STAT_SN,
            ..elsewhere
        }
        .emit(),
        &[],
    );
    pair.deliver();
    assert_eq!(
        said(&pair)[2..],
        [(1, "answer")],
        "the other logical unit's"
    );
    acknowledge(&mut pair, 1, FIRST_STAT_SN.next());
    assert_eq!(said(&pair)[3..], [(0, "done"), (0, "ping")]);
    acknowledge(&mut pair, 0, FIRST_STAT_SN.next());
    assert_eq!(said(&pair)[5..], [(1, "answer")]);
    assert_eq!(pair.target.commands_in_flight(), 0);
}

#[test]
fn fences_stand_one_behind_the_other() {
    let mut pair = reset_behind_an_answer();
    let second = raw::manage(5, CMD_SN.next(), Function::AbortTaskSet);
    pair.inject(
        1,
        &TaskManagementRequest {
            exp_stat_sn: FIRST_STAT_SN,
            ..second
        }
        .emit(),
        &[],
    );
    pair.deliver();
    assert_eq!(pair.management_results(), []);
    for stat_sn in 1..=3 {
        acknowledge(&mut pair, 1, FIRST_STAT_SN.plus(stat_sn));
        acknowledge(&mut pair, 0, FIRST_STAT_SN.plus(stat_sn));
    }
    let done: Vec<_> = said(&pair)
        .into_iter()
        .filter(|(_, what)| *what == "done")
        .collect();
    assert_eq!(done, [(0, "done"), (1, "done")]);
}

#[test]
fn a_logout_behind_a_fence_is_the_last_on_its_connection() {
    let mut pair = reset_behind_an_answer();
    pair.inject(
        0,
        &raw::logout(9, iscsi::pdu::LogoutReason::CloseConnection, 0).emit(),
        &[],
    );
    pair.deliver();
    acknowledge(&mut pair, 1, FIRST_STAT_SN.next());
    pair.outwait();
    let on_0: Vec<_> = said(&pair)
        .into_iter()
        .filter(|(wire, _)| *wire == 0)
        .map(|(_, what)| what)
        .collect();
    assert_eq!(on_0, ["done", "logged out"]);
    assert_eq!(closed(&pair), [(0, CloseReason::Logout)]);
}

#[test]
fn one_connection_needs_no_fence() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    pair.inject(0, &raw::nothing(1, CMD_SN).emit(), &[]);
    pair.inject(
        0,
        &raw::manage(2, CMD_SN.next(), Function::LogicalUnitReset).emit(),
        &[],
    );
    pair.inject(0, &raw::nothing(3, CMD_SN.next()).emit(), &[]);
    pair.deliver();
    assert_eq!(said(&pair), [(0, "answer"), (0, "done"), (0, "answer")]);
}

#[test]
fn an_abort_of_one_task_is_no_fence() {
    let mut pair = two_connections();
    pair.inject(1, &raw::hang(1, CMD_SN).emit(), &[]);
    pair.deliver();
    pair.inject(0, &raw::abort(2, CMD_SN.next(), 1, CMD_SN).emit(), &[]);
    pair.deliver();
    assert_eq!(said(&pair), [(0, "done")]);
}

/// Our own initiator answers the pings immediately, however the streams are split, without visible effect.
#[test]
fn every_function_that_ends_many_tasks_ends_with_a_decent_initiator_at_once() {
    let functions = [
        Function::AbortTaskSet,
        Function::ClearAca,
        Function::ClearTaskSet,
        Function::LogicalUnitReset,
        Function::TargetWarmReset,
        Function::TargetColdReset,
    ];
    for (function, cut) in functions
        .into_iter()
        .flat_map(|function| (1..100).map(move |cut| (function, cut)))
    {
        let mut pair = Setup {
            connections: 4,
            ..Setup::new()
        }
        .build();
        pair.cut = cut;
        let reads: Vec<_> = (0..4).map(|wire| pair.read(wire, 0, 5_000)).collect();
        let id = pair.wires[2].initiator;
        pair.initiator
            .manage(pair.now, id, function, Lun(0))
            .expect("it can be asked");
        pair.deliver();
        assert_eq!(
            pair.management_results(),
            [Outcome::FunctionComplete],
            "{function:?}, {cut} bytes at a time"
        );
        assert!(reads.iter().all(|task| pair.ended.contains_key(task)));
        assert_eq!(pair.wires.iter().filter(|wire| wire.is_up).count(), 4);
    }
}

#[test]
fn a_cold_reset_closes_its_own_session() {
    for connections in [1, 3] {
        let mut pair = Setup {
            connections,
            ..Setup::new()
        }
        .build();
        let id = pair.wires[0].initiator;
        pair.initiator
            .manage(pair.now, id, Function::TargetColdReset, Lun(0));
        pair.deliver();
        let all: Vec<_> = (0..usize::from(connections))
            .map(|index| (index, CloseReason::Reset))
            .collect();
        assert_eq!((pair.management_results().len(), closed(&pair)), (1, all));
    }
}

#[test]
fn a_cold_reset_that_cannot_be_answered_closes_what_is_left() {
    let mut pair = two_connections();
    pair.inject(
        0,
        &raw::manage(1, CMD_SN, Function::TargetColdReset).emit(),
        &[],
    );
    pair.deliver();
    assert_eq!(closed(&pair), [], "connection 1 has not acknowledged");
    pair.disconnect(0);
    pair.deliver();
    assert_eq!(closed(&pair), [(1, CloseReason::Reset)]);
}

#[test]
fn a_reset_waits_two_seconds_for_commands_that_never_come() {
    let mut pair = two_connections();
    let reset = TaskManagementRequest {
        lun: Lun(1),
        ..raw::manage(1, CMD_SN.plus(2), Function::LogicalUnitReset)
    };
    pair.inject(0, &reset.emit(), &[]);
    pair.deliver();
    pair.pass(Duration::ZERO);
    pair.pass(Duration::from_millis(1999));
    assert_eq!(said(&pair), []);
    pair.pass(Duration::from_millis(1));
    assert_eq!(said(&pair), [(1, "ping")], "it is carried out");
    pair.outwait();
    assert_eq!(pair.management_results(), [Outcome::FunctionComplete]);
}

/// The initiator considers everything that it sent earlier to the logical unit ended by the reset's response.
#[test]
fn commands_that_come_after_the_reset_that_did_not_wait_for_them_do_not_begin() {
    let mut pair = two_connections();
    pair.inject(1, &raw::hang(5, CMD_SN.plus(2)).emit(), &[]); // held, and ended by the reset
    let reset = raw::manage(1, CMD_SN.plus(3), Function::LogicalUnitReset);
    pair.inject(0, &reset.emit(), &[]);
    pair.deliver();
    pair.outwait();
    assert_eq!(
        (
            pair.management_results().len(),
            pair.target.commands_in_flight()
        ),
        (1, 0)
    );
    let elsewhere = ScsiCommand {
        lun: Lun(7),
        ..raw::hang(3, CMD_SN.next())
    };
    pair.inject(1, &raw::write(2, CMD_SN, 512, 512).emit(), &[1; 512]);
    pair.inject(1, &elsewhere.emit(), &[]);
    pair.deliver();
    assert_eq!(pair.disk.read(0, 512), [0; 512]);
    assert_eq!(
        (pair.target.exp_cmd_sn(), pair.under_way().len()),
        (CMD_SN.plus(3), 1)
    );
    pair.inject(1, &raw::hang(4, CMD_SN.plus(3)).emit(), &[]);
    pair.deliver();
    assert_eq!(
        pair.under_way().len(),
        2,
        "what was sent after the reset begins"
    );
}

#[test]
fn commands_that_were_passed_over_early_leave_no_gap() {
    let mut pair = two_connections();
    pair.inject(
        0,
        &raw::manage(1, CMD_SN.plus(2), Function::TargetWarmReset).emit(),
        &[],
    );
    pair.deliver();
    pair.outwait();
    pair.inject(1, &raw::hang(3, CMD_SN.next()).emit(), &[]);
    pair.inject(0, &raw::hang(2, CMD_SN).emit(), &[]);
    pair.deliver();
    assert_eq!(
        (pair.target.exp_cmd_sn(), pair.target.commands_in_flight()),
        (CMD_SN.plus(2), 0)
    );
}
