//! Task management against commands in each state (RFC 7143 section 11.5).

use iscsi::initiator::{Event, Failure};
use iscsi::pdu::{
    Lun, Pdu, RejectReason, Sn, TaskManagementFunction as Function, TaskManagementResult as Result,
};
use iscsi::target;

use crate::pair::{Pair, Setup, pattern};
use crate::raw;

const CMD_SN: Sn = Sn(0xffff_fff0);

/// A target to which the scene sends PDUs directly.
fn alone() -> Pair {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    pair
}

fn asked(pair: &Pair) -> Vec<Function> {
    let function = |event: &target::Event| match event {
        target::Event::TaskManagement(request) => Some(request.function),
        _ => None,
    };
    pair.target_events.iter().filter_map(function).collect()
}

#[test]
fn a_task_under_way_is_aborted_by_the_driver() {
    let mut pair = Pair::new();
    let task = pair.hang(0, Lun(0));
    pair.deliver();
    let tmf = pair
        .initiator
        .abort_task(pair.now, task)
        .expect("it was sent");
    pair.deliver();
    assert_eq!(pair.failure(task), Some(Failure::Aborted));
    assert_eq!(asked(&pair), [Function::AbortTask]);
    assert_eq!(
        pair.initiator_events,
        [Event::Managed {
            tmf,
            result: Some(Result::FunctionComplete)
        }]
    );
    assert_eq!(pair.target.commands_in_flight(), 0);
}

#[test]
fn a_task_whose_data_are_on_the_way_is_aborted_and_late_data_dropped() {
    let mut setup = Setup::new();
    setup.parameters.max_burst_length = 8192;
    let mut pair = setup.build();
    let task = pair.write(0, 0, &pattern(1, 500_000));
    for _ in 0..12 {
        pair.step();
    }
    pair.initiator.abort_task(pair.now, task);
    pair.deliver();
    assert_eq!(pair.failure(task), Some(Failure::Aborted));
    assert_eq!(pair.disk.read(0, 100), [0; 100]);
    let next = pair.write(0, 0, &pattern(2, 10_000));
    pair.deliver();
    assert_eq!(pair.status(next), Some(0));
}

#[test]
fn a_task_that_was_not_sent_is_never_sent() {
    let mut pair = Pair::new();
    let task = pair.hang(0, Lun(0));
    assert_eq!(pair.initiator.abort_task(pair.now, task), None);
    pair.deliver();
    assert_eq!(pair.failure(task), Some(Failure::Aborted));
    assert_eq!(
        (pair.target.exp_cmd_sn(), pair.initiator.room()),
        (CMD_SN, 32)
    );
}

#[test]
fn a_finished_task_is_told_as_configured_and_its_status_stands() {
    for told in [Result::TaskDoesNotExist, Result::FunctionComplete] {
        let mut pair = Setup {
            abort_of_finished: told,
            ..Setup::new()
        }
        .build();
        pair.wires[0].intercepted = true;
        pair.inject(0, &raw::nothing(1, CMD_SN).emit(), &[]);
        pair.inject(0, &raw::abort(2, CMD_SN.next(), 1, CMD_SN).emit(), &[]);
        pair.deliver();
        assert_eq!(pair.management_results(), [told]);
        assert!(
            matches!(pair.said[0].1, Pdu::ScsiResponse(_)),
            "the status comes first"
        );
    }
}

#[test]
fn an_answered_task_gets_its_answer_before_the_abort_gets_its_own() {
    let mut pair = alone();
    pair.disk.write(0, &pattern(1, 60_000));
    pair.inject(0, &raw::read(1, CMD_SN, 60_000).emit(), &[]);
    pair.inject(0, &raw::abort(2, CMD_SN.next(), 1, CMD_SN).emit(), &[]);
    while pair.target_hears(0) {}
    pair.deliver();
    assert!(matches!(
        pair.said.last(),
        Some((_, Pdu::TaskManagementResponse(_)))
    ));
    assert_eq!(pair.said.len(), 9, "eight Data-In, the last with status");
    assert_eq!(pair.management_results(), [Result::TaskDoesNotExist]);
}

#[test]
fn a_task_that_waits_for_its_turn_is_dropped() {
    let mut pair = alone();
    pair.inject(0, &raw::write(1, CMD_SN.next(), 512, 512).emit(), &[1; 512]);
    pair.inject(
        0,
        &raw::abort(2, CMD_SN.plus(2), 1, CMD_SN.next()).emit(),
        &[],
    );
    pair.inject(0, &raw::nothing(3, CMD_SN).emit(), &[]);
    pair.deliver();
    assert_eq!(pair.management_results(), [Result::FunctionComplete]);
    assert_eq!(
        (pair.target.exp_cmd_sn(), pair.order.len()),
        (CMD_SN.plus(2), 0)
    );
    assert_eq!(asked(&pair), []);
}

#[test]
fn a_task_that_has_not_come_counts_as_received() {
    let mut pair = alone();
    pair.inject(
        0,
        &raw::abort(2, CMD_SN.plus(3), 1, CMD_SN.next()).emit(),
        &[],
    );
    pair.inject(0, &raw::hang(1, CMD_SN.next()).emit(), &[]);
    pair.inject(0, &raw::nothing(3, CMD_SN).emit(), &[]);
    pair.deliver();
    assert_eq!(pair.management_results(), [Result::FunctionComplete]);
    assert_eq!(
        (pair.target.exp_cmd_sn(), pair.under_way().len()),
        (CMD_SN.plus(2), 0)
    );
}

#[test]
fn a_task_that_cannot_have_existed_does_not_exist() {
    let mut pair = alone();
    pair.inject(0, &raw::abort(2, CMD_SN, 1, CMD_SN.plus(1000)).emit(), &[]);
    pair.inject(
        0,
        &raw::abort(3, CMD_SN.next(), 1, CMD_SN.next()).emit(),
        &[],
    );
    pair.deliver();
    assert_eq!(pair.management_results(), [Result::TaskDoesNotExist; 2]);
}

#[test]
fn a_task_of_another_lun_is_not_the_one_meant() {
    let mut pair = alone();
    pair.inject(0, &raw::hang(1, CMD_SN).emit(), &[]);
    let abort = iscsi::pdu::TaskManagementRequest {
        lun: Lun(5),
        ..raw::abort(2, CMD_SN.next(), 1, CMD_SN)
    };
    pair.inject(0, &abort.emit(), &[]);
    pair.deliver();
    assert_eq!(pair.management_results(), [Result::TaskDoesNotExist]);
    assert_eq!(pair.under_way().len(), 1);
}

#[test]
fn a_reset_ends_what_was_sent_before_it_to_its_lun() {
    for function in [Function::LogicalUnitReset, Function::AbortTaskSet] {
        let mut pair = Pair::new();
        let (here, elsewhere) = (pair.hang(0, Lun(1)), pair.hang(0, Lun(2)));
        pair.deliver();
        let id = pair.wires[0].initiator;
        pair.initiator
            .manage(pair.now, id, function, Lun(1))
            .expect("it can be asked");
        pair.deliver();
        assert_eq!(
            (pair.failure(here), pair.failure(elsewhere)),
            (Some(Failure::Aborted), None)
        );
        assert_eq!(asked(&pair), [function]);
    }
}

#[test]
fn a_target_reset_ends_everything() {
    for function in [Function::TargetWarmReset, Function::TargetColdReset] {
        let mut pair = Setup {
            connections: 2,
            ..Setup::new()
        }
        .build();
        let tasks = [pair.hang(0, Lun(1)), pair.hang(1, Lun(2))];
        pair.deliver();
        let id = pair.wires[0].initiator;
        pair.initiator.manage(pair.now, id, function, Lun(0));
        pair.deliver();
        assert_eq!(
            tasks.map(|task| pair.failure(task)),
            [Some(Failure::Aborted); 2]
        );
        assert!(pair.wires.iter().all(|wire| wire.is_up));
    }
}

#[test]
fn clear_aca_and_clear_task_set_are_the_drivers_to_answer() {
    let mut pair = alone();
    pair.inject(0, &raw::manage(1, CMD_SN, Function::ClearAca).emit(), &[]);
    pair.inject(
        0,
        &raw::manage(2, CMD_SN, Function::ClearTaskSet).emit(),
        &[],
    );
    pair.deliver();
    assert_eq!(asked(&pair), [Function::ClearAca, Function::ClearTaskSet]);
    assert_eq!(pair.management_results().len(), 2);
}

#[test]
fn what_level_zero_does_not_have_is_not_supported() {
    let mut pair = alone();
    pair.inject(
        0,
        &raw::manage(1, CMD_SN, Function::TaskReassign).emit(),
        &[],
    );
    pair.inject(0, &raw::manage(2, CMD_SN, Function::QueryTask).emit(), &[]);
    pair.inject(0, &raw::manage(3, CMD_SN, Function::Other(99)).emit(), &[]);
    pair.deliver();
    assert_eq!(
        pair.management_results(),
        [
            Result::ReassignmentNotSupported,
            Result::NotSupported,
            Result::NotSupported
        ]
    );
}

#[test]
fn query_task_tells_whether_it_is_there() {
    let mut setup = Setup::new();
    setup.parameters.protocol_level = 2;
    let mut pair = setup.build();
    pair.wires[0].intercepted = true;
    pair.inject(0, &raw::hang(1, CMD_SN).emit(), &[]);
    for (tag, about) in [(2, 1), (3, 77)] {
        let query = iscsi::pdu::TaskManagementRequest {
            function: Function::QueryTask,
            ..raw::abort(tag, CMD_SN.next(), about, CMD_SN)
        };
        pair.inject(0, &query.emit(), &[]);
    }
    pair.deliver();
    assert_eq!(
        pair.management_results(),
        [Result::FunctionSucceeded, Result::FunctionComplete]
    );
}

#[test]
fn a_function_in_order_waits_for_its_turn() {
    let mut pair = alone();
    let reset = iscsi::pdu::TaskManagementRequest {
        immediate: false,
        ..raw::manage(1, CMD_SN.next(), Function::LogicalUnitReset)
    };
    pair.inject(0, &reset.emit(), &[]);
    pair.deliver();
    assert_eq!(asked(&pair), []);
    pair.inject(0, &raw::hang(2, CMD_SN).emit(), &[]);
    pair.deliver();
    assert_eq!(
        (asked(&pair), pair.under_way().len()),
        (vec![Function::LogicalUnitReset], 0)
    );
    assert_eq!(pair.target.exp_cmd_sn(), CMD_SN.plus(2));
}

#[test]
fn too_many_functions_at_once_are_rejected() {
    let mut setup = Setup::new();
    setup.connections = 2; // so that functions wait for a command that does not arrive
    let mut pair = setup.build();
    pair.wires[0].intercepted = true;
    for tag in 0..70 {
        pair.inject(
            0,
            &raw::manage(tag, CMD_SN.plus(5), Function::LogicalUnitReset).emit(),
            &[],
        );
    }
    pair.deliver();
    assert_eq!(pair.rejects(), [RejectReason::ImmediateCommandReject; 6]);
    assert_eq!(pair.management_results(), []);
}

#[test]
fn a_row_of_waiting_aborts_is_worked_off_without_depth() {
    let mut pair = Setup {
        window: 4000,
        ..Setup::new()
    }
    .build();
    pair.wires[0].intercepted = true;
    for step in 1..1999 {
        let abort = iscsi::pdu::TaskManagementRequest {
            immediate: false,
            ..raw::abort(step, CMD_SN.plus(2 * step), 9999, CMD_SN.plus(2 * step - 1))
        };
        pair.inject(0, &abort.emit(), &[]);
    }
    pair.inject(0, &raw::nothing(0, CMD_SN).emit(), &[]);
    pair.inject(0, &raw::nothing(1, CMD_SN.next()).emit(), &[]);
    pair.deliver();
    assert!(pair.wires[0].is_up);
}

#[test]
fn an_answer_given_after_the_abort_counts_for_nothing() {
    let mut pair = Pair::new();
    let task = pair.hang(0, Lun(0));
    pair.deliver();
    let at_target = pair.under_way()[0];
    pair.initiator.abort_task(pair.now, task);
    pair.deliver();
    pair.finish(at_target); // the device completes late
    pair.deliver();
    assert_eq!(pair.failure(task), Some(Failure::Aborted));
    assert!(pair.wires[0].is_up);
}

/// The state of a command when a function arrives for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NotThere,
    /// Held: its CmdSN is not next.
    Held,
    UnderWay,
    /// An R2T is outstanding.
    AwaitsData,
    /// Its status is queued but not sent.
    Answered,
    /// Its status has been sent.
    Over,
}

const STATES: [State; 6] = [
    State::NotThere,
    State::Held,
    State::UnderWay,
    State::AwaitsData,
    State::Answered,
    State::Over,
];

/// Brings command 1 into a state; returns the next unused CmdSN.
fn bring_into(pair: &mut Pair, state: State) -> Sn {
    let next = CMD_SN.next();
    match state {
        State::NotThere => return CMD_SN,
        State::Held => {
            pair.inject(0, &raw::hang(1, next).emit(), &[]);
            while pair.target_hears(0) {}
            return next.next();
        }
        State::UnderWay => pair.inject(0, &raw::hang(1, CMD_SN).emit(), &[]),
        State::AwaitsData => {
            let write = iscsi::pdu::ScsiCommand {
                is_final: true,
                ..raw::write(1, CMD_SN, 4096, 0)
            };
            pair.inject(0, &write.emit(), &[]);
        }
        State::Answered | State::Over => pair.inject(0, &raw::nothing(1, CMD_SN).emit(), &[]),
    }
    while pair.target_hears(0) {}
    if state != State::Answered {
        pair.deliver();
    }
    next
}

#[test]
fn every_function_meets_every_state_and_is_answered_once_behind_what_was_answered_before() {
    let functions = [
        Function::AbortTask,
        Function::AbortTaskSet,
        Function::ClearAca,
        Function::ClearTaskSet,
        Function::LogicalUnitReset,
        Function::TargetWarmReset,
        Function::TargetColdReset,
        Function::TaskReassign,
    ];
    for (function, state) in functions
        .into_iter()
        .flat_map(|function| STATES.map(|state| (function, state)))
    {
        let mut pair = alone();
        let cmd_sn = bring_into(&mut pair, state);
        let request = iscsi::pdu::TaskManagementRequest {
            function,
            ..raw::abort(
                2,
                cmd_sn,
                1,
                if state == State::Held {
                    CMD_SN.next()
                } else {
                    CMD_SN
                },
            )
        };
        pair.inject(0, &request.emit(), &[]);
        pair.deliver();

        let expected = match (function, state) {
            (Function::TaskReassign, _) => Result::ReassignmentNotSupported,
            (Function::AbortTask, State::NotThere | State::Answered | State::Over) => {
                Result::TaskDoesNotExist
            }
            _ => Result::FunctionComplete,
        };
        assert_eq!(
            pair.management_results(),
            [expected],
            "{function:?} of a command {state:?}"
        );
        let statuses = pair.said(|pdu| match pdu {
            Pdu::ScsiResponse(_) => Some(()),
            _ => None,
        });
        // A queued status is not sent if the driver ends its task with the others.
        let spares_it = matches!(function, Function::AbortTask | Function::TaskReassign);
        let is_answered = state == State::Over || state == State::Answered && spares_it;
        assert_eq!(
            statuses.len(),
            usize::from(is_answered),
            "{function:?} of a command {state:?}"
        );
        assert!(matches!(
            pair.said.last(),
            Some((_, Pdu::TaskManagementResponse(_)))
        ));

        // Tasks that were announced to the driver end, unless the function spares them. Held tasks remain
        // held, unless the function refers to them.
        let is_left = match (function, state) {
            (_, State::NotThere | State::Answered | State::Over) => false,
            (Function::TaskReassign, _) => true,
            (Function::AbortTask, _) => false,
            (_, State::Held) => true,
            (_, State::UnderWay | State::AwaitsData) => false,
        };
        assert_eq!(
            pair.target.commands_in_flight(),
            usize::from(is_left),
            "{function:?} of a command {state:?}"
        );
    }
}
