//! Tests of a session without sockets. They inspect the state machine's PDUs, most of which receive no
//! response.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use iscsi::initiator::{
    ConnectionId, ConnectionStart, NopPolicy, Session as Machine, SessionConfig,
};
use iscsi::negotiate::{Parameters, SessionType};
use iscsi::pdu::{
    Cid, Itt, LogoutResult, Lun, Opcode, Residual, Response, ScsiCommand, ScsiResponse, Sn,
    TargetNumbers, TaskManagementFunction as Function, TaskManagementRequest,
    TaskManagementResponse, TaskManagementResult,
};
use scsi::cdb;

use crate::error::{CommandError, Ending};
use crate::inner::{Restart, SessionInner, Submitted};
use crate::tasks::{CommandSpec, Ticket, Transfer};
use crate::url::Timeouts;

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Timeouts = Timeouts {
    command: SECOND.saturating_mul(30),
    tries: 1,
    abort: SECOND.saturating_mul(15),
    reset: SECOND.saturating_mul(20),
    reconnect: SECOND.saturating_mul(120),
};

struct Scene {
    inner: SessionInner,
    begun: Instant,
    connections: Vec<ConnectionId>,
}

fn scene(connections: u16) -> Scene {
    let begun = Instant::now();
    let mut inner = SessionInner::new(machine(), begun, PATIENCE, Arc::default(), Arc::default());
    let connections = (0..connections)
        .map(|cid| inner.add_connection(begun, Cid(cid), START))
        .collect();
    Scene {
        inner,
        begun,
        connections,
    }
}

const START: ConnectionStart = ConnectionStart {
    exp_stat_sn: Sn(1),
    local_max_recv_data_segment_length: 8192,
    peer_max_recv_data_segment_length: 8192,
};

fn machine() -> Machine {
    let silent = NopPolicy {
        interval: SECOND * 100_000,
        ..NopPolicy::OF_INITIATOR
    };
    Machine::new(SessionConfig {
        parameters: Parameters::defaults(SessionType::Normal),
        cmd_sn: Sn(1),
        max_cmd_sn: Sn(64),
        tasks_max: 64,
        nop: silent,
        text_bytes_max: 4096,
    })
}

impl Scene {
    fn submit(&mut self, waits_for_end: bool) -> Ticket {
        let cdb = cdb::test_unit_ready();
        self.submit_order(CommandSpec {
            lun: Lun(0),
            cdb,
            transfer: Transfer::None,
            epoch: None,
            waits_for_end,
        })
    }

    fn submit_write(&mut self) -> Ticket {
        let transfer = Transfer::Out(block::Buffer::zeroed(512).share());
        let cdb = cdb::write_16(0, 1, true);
        self.submit_order(CommandSpec {
            lun: Lun(0),
            cdb,
            transfer,
            epoch: None,
            waits_for_end: false,
        })
    }

    fn submit_order(&mut self, mut spec: CommandSpec) -> Ticket {
        match self.inner.submit(&mut spec, Waker::noop()) {
            Submitted::Sent(ticket) => ticket,
            Submitted::NoRoom | Submitted::Failed(_) => panic!("there is room"),
        }
    }

    /// Returns the PDUs sent at `seconds` after the start: the operations, and the names of functions.
    fn said_at(&mut self, seconds: u32) -> Vec<String> {
        let now = self.begun + SECOND * seconds;
        self.inner.pass_time(now);
        let mut said = Vec::new();
        for id in self.connections.clone() {
            while let Some(transmit) = self.inner.machine.poll_transmit(now, id) {
                said.push(match transmit.header.opcode() {
                    Some(Opcode::TaskManagementRequest) => function(&transmit.header),
                    other => format!("{other:?}"),
                });
            }
        }
        said
    }

    /// Sends the PDUs that are due at the start. Returns the tags of the commands, in order.
    fn sent(&mut self) -> Vec<Itt> {
        let (id, now) = (self.connections[0], self.begun);
        let sent = std::iter::from_fn(|| self.inner.machine.poll_transmit(now, id));
        sent.map(|transmit| ScsiCommand::parse(&transmit.header).expect("a command").itt)
            .collect()
    }

    /// The target responds to a command with GOOD. This is its response number `stat_sn`.
    fn answer_at(&mut self, seconds: u32, itt: Itt, stat_sn: u32) {
        let numbers = TargetNumbers {
            stat_sn: Sn(stat_sn),
            exp_cmd_sn: Sn(1 + stat_sn),
            max_cmd_sn: Sn(64),
        };
        let response = ScsiResponse {
            response: Response::Completed,
            status: 0,
            itt,
            snack_tag: 0,
            numbers,
            exp_data_sn: Sn(0),
            residual: Residual::None,
            read_residual: Residual::None,
            data_segment_length: 0,
        };
        let (now, id) = (self.begun + SECOND * seconds, self.connections[0]);
        self.inner
            .machine
            .handle_header(now, id, &response.emit(), &[])
            .expect("a response");
        self.inner.deliver_events();
    }

    fn outcome(&mut self, ticket: Ticket) -> Option<Result<(), CommandError>> {
        Some(
            self.inner
                .tasks
                .poll(ticket, Waker::noop())?
                .outcome
                .map(drop),
        )
    }
}

fn function(header: &iscsi::pdu::Bhs) -> String {
    format!(
        "{:?}",
        TaskManagementRequest::parse(header).unwrap().function
    )
}

#[test]
fn a_command_that_does_not_end_is_climbed_after() {
    let mut scene = scene(1);
    let ticket = scene.submit(false);
    assert_eq!(scene.said_at(29), ["Some(ScsiCommand)"]);
    assert_eq!(scene.outcome(ticket), None);
    assert_eq!(scene.said_at(30), [format!("{:?}", Function::AbortTask)]);
    assert_eq!(scene.outcome(ticket), Some(Err(CommandError::TimedOut)));
    assert!(scene.said_at(44).is_empty());
    assert_eq!(
        scene.said_at(45),
        [format!("{:?}", Function::LogicalUnitReset)]
    );
    assert_eq!(
        scene.said_at(65),
        [format!("{:?}", Function::TargetWarmReset)]
    );
    let id = scene.connections[0];
    assert!(scene.inner.ending_of(id).is_none());
    scene.said_at(85);
    assert!(matches!(
        scene.inner.ending_of(id),
        Some(Ending::Unresponsive)
    ));
}

/// The link is so slow that five responses, in the order of the commands, take 100 s.
#[test]
fn a_command_is_waited_for_while_the_answers_to_earlier_ones_come() {
    let mut scene = scene(1);
    let tickets: Vec<Ticket> = (0..5).map(|_| scene.submit(false)).collect();
    let tags = scene.sent();
    for seconds in 1..=100 {
        assert!(scene.said_at(seconds).is_empty(), "after {seconds} s");
        if seconds % 20 == 0 {
            let place = seconds as usize / 20 - 1;
            scene.answer_at(seconds, tags[place], 1 + place as u32);
            assert_eq!(scene.outcome(tickets[place]), Some(Ok(())));
        }
    }
}

/// The target has lost the first command, and responds to the later ones.
#[test]
fn answers_to_later_commands_do_not_keep_one_waiting() {
    let mut scene = scene(1);
    let tickets: Vec<Ticket> = (0..5).map(|_| scene.submit(false)).collect();
    let tags = scene.sent();
    for seconds in 1..30 {
        scene.said_at(seconds);
        if seconds % 7 == 0 {
            let place = seconds as usize / 7;
            scene.answer_at(seconds, tags[place], place as u32);
            assert_eq!(scene.outcome(tickets[place]), Some(Ok(())));
        }
    }
    assert_eq!(scene.said_at(30), [format!("{:?}", Function::AbortTask)]);
    assert_eq!(scene.outcome(tickets[0]), Some(Err(CommandError::TimedOut)));
}

/// The target has lost two commands. The first is aborted while the second is still waiting.
#[test]
fn the_abort_of_an_earlier_command_does_not_keep_one_waiting() {
    let mut scene = scene(1);
    scene.submit(false);
    assert_eq!(scene.said_at(10), ["Some(ScsiCommand)"]);
    scene.inner.now = scene.begun + SECOND * 10;
    let second = scene.submit(false);
    for seconds in 10..30 {
        scene.said_at(seconds);
    }
    let (id, now) = (scene.connections[0], scene.begun + SECOND * 30);
    scene.inner.pass_time(now);
    let abort = scene
        .inner
        .machine
        .poll_transmit(now, id)
        .expect("ABORT TASK");
    let aborted = TaskManagementResponse {
        result: TaskManagementResult::FunctionComplete,
        itt: TaskManagementRequest::parse(&abort.header)
            .expect("a function")
            .itt,
        numbers: TargetNumbers {
            stat_sn: Sn(1),
            exp_cmd_sn: Sn(3),
            max_cmd_sn: Sn(64),
        },
    };
    scene
        .inner
        .machine
        .handle_header(now, id, &aborted.emit(), &[])
        .expect("a response");
    scene.inner.deliver_events();
    for seconds in 31..40 {
        assert!(scene.said_at(seconds).is_empty(), "after {seconds} s");
    }
    assert_eq!(scene.said_at(40), [format!("{:?}", Function::AbortTask)]);
    assert_eq!(scene.outcome(second), Some(Err(CommandError::TimedOut)));
}

#[test]
fn a_reset_is_asked_for_once_however_many_commands_hang() {
    let mut scene = scene(1);
    for _ in 0..5 {
        scene.submit(false);
    }
    scene.said_at(0);
    scene.said_at(30);
    assert_eq!(
        scene.said_at(45),
        [format!("{:?}", Function::LogicalUnitReset)]
    );
}

#[test]
fn who_insists_waits_until_the_command_has_ended() {
    let mut scene = scene(1);
    let ticket = scene.submit(true);
    for seconds in [29, 30, 45, 65, 85] {
        scene.said_at(seconds);
        assert_eq!(scene.outcome(ticket), None, "after {seconds} s");
    }
    scene.inner.remove_connection(scene.connections[0]);
    assert_eq!(
        scene.outcome(ticket),
        Some(Err(CommandError::ConnectionLost))
    );
}

#[test]
fn a_lost_connections_commands_end_at_once_and_are_settled_by_another_connection() {
    let mut scene = scene(2);
    let tickets = [scene.submit(false), scene.submit(false)];
    scene.said_at(1);
    scene.inner.remove_connection(scene.connections[0]);
    let lost = tickets
        .map(|ticket| scene.outcome(ticket))
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    assert_eq!(lost, [Err(CommandError::ConnectionLost)]);
    let said = scene.said_at(1);
    assert!(said.contains(&"Some(LogoutRequest)".to_owned()), "{said:?}");
    assert!(
        scene
            .inner
            .state()
            .poll_usable(Some(0), Waker::noop())
            .is_pending()
    );
    scene
        .inner
        .connection_logged_out(Cid(0), Some(LogoutResult::Success));
    assert!(
        scene
            .inner
            .state()
            .poll_usable(Some(0), Waker::noop())
            .is_ready()
    );
}

#[test]
fn a_target_that_cannot_let_go_of_a_connection_loses_the_session() {
    let mut scene = scene(2);
    scene.inner.remove_connection(scene.connections[0]);
    scene
        .inner
        .connection_logged_out(Cid(0), Some(LogoutResult::CleanupFailed));
    assert!(matches!(
        scene.inner.ending_of(scene.connections[1]),
        Some(Ending::Unresponsive)
    ));
}

/// Regression, found by the fuzz target `initiator_whole`: requests waited forever for the response to the
/// logout.
#[test]
fn a_target_that_never_says_whether_it_has_let_go_loses_the_session() {
    let mut scene = scene(2);
    scene.inner.remove_connection(scene.connections[0]);
    scene.said_at(19);
    assert!(scene.inner.ending_of(scene.connections[1]).is_none());
    scene.said_at(20);
    assert!(matches!(
        scene.inner.ending_of(scene.connections[1]),
        Some(Ending::Unresponsive)
    ));
}

#[test]
fn a_request_for_a_session_that_was_lost_is_not_sent_in_the_next() {
    let mut scene = scene(1);
    scene.inner.remove_connection(scene.connections[0]);
    let mut spec = CommandSpec {
        lun: Lun(0),
        cdb: cdb::test_unit_ready(),
        transfer: Transfer::None,
        epoch: Some(0),
        waits_for_end: false,
    };
    assert!(
        matches!(
            scene.inner.submit(&mut spec, Waker::noop()),
            Submitted::NoRoom
        ),
        "it waits"
    );
    scene
        .inner
        .restart(scene.begun + SECOND, machine(), Restart::Reinstated);
    match scene.inner.submit(&mut spec, Waker::noop()) {
        Submitted::Failed(error) => assert_eq!(error, CommandError::Reinstated),
        Submitted::Sent(_) | Submitted::NoRoom => panic!("it was sent"),
    }
}

#[test]
fn what_changes_something_is_unsettled_when_the_session_has_moved() {
    for (writes, how, expected) in [
        (0, Restart::Moved, 0),
        (2, Restart::Moved, 2),
        (2, Restart::Reinstated, 0),
    ] {
        let mut scene = scene(1);
        scene.submit(false);
        for _ in 0..writes {
            scene.submit_write();
        }
        scene.inner.remove_connection(scene.connections[0]);
        let outage = scene.inner.restart(scene.begun + SECOND, machine(), how);
        assert_eq!(
            (outage.commands, outage.unsettled),
            (writes + 1, expected),
            "{how:?}"
        );
        let usable = scene.inner.state().poll_usable(Some(0), Waker::noop());
        assert_eq!(usable.is_pending(), expected > 0, "{how:?}");
    }
}

#[test]
fn a_request_waits_while_the_session_is_logged_out_at_the_targets_wish() {
    let mut scene = scene(1);
    scene.inner.log_out_for_now(scene.connections[0]);
    let spec = || CommandSpec {
        lun: Lun(0),
        cdb: cdb::test_unit_ready(),
        transfer: Transfer::None,
        epoch: None,
        waits_for_end: false,
    };
    let submitted = scene.inner.submit(&mut spec(), Waker::noop());
    assert!(
        matches!(submitted, Submitted::NoRoom),
        "the connection is still there"
    );
    scene.inner.remove_connection(scene.connections[0]);
    let submitted = scene.inner.submit(&mut spec(), Waker::noop());
    assert!(
        matches!(submitted, Submitted::NoRoom),
        "it is gone, and will be back"
    );
    scene
        .inner
        .restart(scene.begun + SECOND, machine(), Restart::Reinstated);
    scene
        .inner
        .add_connection(scene.begun + SECOND, Cid(0), START);
    assert!(matches!(
        scene.inner.submit(&mut spec(), Waker::noop()),
        Submitted::Sent(_)
    ));
}

#[test]
fn a_target_that_does_not_answer_the_logout_it_asks_for_loses_the_session() {
    let mut scene = scene(1);
    scene.inner.log_out_for_now(scene.connections[0]);
    scene.said_at(19);
    scene.inner.log_out_for_now(scene.connections[0]);
    assert!(scene.inner.ending_of(scene.connections[0]).is_none());
    scene.said_at(20);
    assert!(matches!(
        scene.inner.ending_of(scene.connections[0]),
        Some(Ending::Unresponsive)
    ));
}

/// A target that closes the connection, and is then unavailable for a while, has not ignored the logout.
#[test]
fn a_logout_is_due_no_more_when_the_session_has_ended() {
    let mut scene = scene(1);
    scene.inner.log_out_for_now(scene.connections[0]);
    scene.inner.is_logged_out = true;
    scene.inner.remove_connection(scene.connections[0]);
    assert!(scene.inner.logout_due.is_none());
    scene
        .inner
        .restart(scene.begun + SECOND * 19, machine(), Restart::Reinstated);
    let connection = scene
        .inner
        .add_connection(scene.begun + SECOND * 19, Cid(0), START);
    scene.said_at(40);
    assert!(scene.inner.ending_of(connection).is_none());
}

/// A target that is being drained requests a logout and redirects the next login.
#[test]
fn a_logout_settles_everything_wherever_the_session_goes() {
    let mut scene = scene(1);
    scene.submit_write();
    scene.inner.is_logged_out = true;
    scene.inner.remove_connection(scene.connections[0]);
    let outage = scene
        .inner
        .restart(scene.begun + SECOND, machine(), Restart::Moved);
    assert_eq!((outage.commands, outage.unsettled), (1, 0));
}

#[test]
fn what_the_target_has_let_go_of_is_settled_wherever_the_session_goes() {
    let mut scene = scene(2);
    scene.submit_write();
    scene.submit_write();
    scene.inner.remove_connection(scene.connections[0]);
    scene
        .inner
        .connection_logged_out(Cid(0), Some(LogoutResult::Success));
    scene.inner.remove_connection(scene.connections[1]);
    let outage = scene
        .inner
        .restart(scene.begun + SECOND, machine(), Restart::Moved);
    assert_eq!(
        (outage.commands, outage.unsettled),
        (2, 1),
        "what the last connection carried"
    );
}
