//! Logout (RFC 7143 section 11.14), and the target's handling of connections.

use std::time::Duration;

use iscsi::initiator::{self, ConnectionId, Event, Failure, LogoutScope};
use iscsi::pdu::{Cid, LogoutReason, LogoutResult, Lun, Pdu};
use iscsi::target::{self, CloseReason, LogoutId};

use crate::pair::{Pair, Setup, pattern};
use crate::raw;

fn results(pair: &Pair) -> Vec<LogoutResult> {
    pair.said(|pdu| {
        if let Pdu::LogoutResponse(response) = pdu {
            Some(response.result)
        } else {
            None
        }
    })
}

fn closed(pair: &Pair) -> Vec<(usize, CloseReason)> {
    let close = |event: &target::Event| match event {
        target::Event::Close { connection, reason } => Some((connection.index(), *reason)),
        _ => None,
    };
    pair.target_events.iter().filter_map(close).collect()
}

fn logged_out(
    connection: ConnectionId,
    leaving: LogoutScope,
    result: Option<LogoutResult>,
) -> Event {
    Event::LoggedOut {
        connection,
        leaving,
        result,
    }
}

fn waiting(pair: &Pair) -> Vec<LogoutId> {
    let waits = |event: &target::Event| match event {
        target::Event::LogoutPending { logout } => Some(*logout),
        _ => None,
    };
    pair.target_events.iter().filter_map(waits).collect()
}

fn two_connections() -> Pair {
    Setup {
        connections: 2,
        ..Setup::new()
    }
    .build()
}

#[test]
fn a_session_ends_with_all_its_connections() {
    let mut pair = two_connections();
    let id = pair.wires[0].initiator;
    assert!(
        pair.initiator
            .log_out(pair.now, id, LogoutReason::CloseSession)
    );
    pair.deliver();
    assert_eq!(results(&pair), [LogoutResult::Success]);
    assert_eq!(
        closed(&pair),
        [(0, CloseReason::Logout), (1, CloseReason::Logout)]
    );
    let event = logged_out(id, LogoutScope::Session, Some(LogoutResult::Success));
    assert_eq!(pair.initiator_events, [event]);
}

#[test]
fn one_connection_ends_and_the_other_goes_on() {
    let mut pair = two_connections();
    let id = pair.wires[0].initiator;
    pair.initiator
        .log_out(pair.now, id, LogoutReason::CloseConnection);
    pair.deliver();
    assert_eq!(closed(&pair), [(0, CloseReason::Logout)]);
    pair.disconnect(0);
    let read = pair.read(1, 0, 512);
    pair.deliver();
    assert_eq!(pair.status(read), Some(0));
}

#[test]
fn a_lost_connection_is_logged_out_by_another_which_goes_on() {
    let mut pair = two_connections();
    let (lost, via) = (pair.wires[0].initiator, pair.wires[1].initiator);
    let write = pair.write(0, 0, &pattern(1, 512));
    pair.initiator.remove_connection(pair.now, lost);
    assert!(pair.initiator.log_out_other(pair.now, via, Cid(0)));
    pair.deliver();
    assert_eq!(pair.failure(write), Some(Failure::ConnectionLost));
    assert_eq!(closed(&pair), [(0, CloseReason::Logout)]);
    let answer = logged_out(
        via,
        LogoutScope::OtherConnection(Cid(0)),
        Some(LogoutResult::Success),
    );
    assert!(
        pair.initiator_events.contains(&answer),
        "{:?}",
        pair.initiator_events
    );
    let read = pair.read(1, 0, 512);
    pair.deliver();
    assert_eq!(pair.status(read), Some(0));
}

#[test]
fn a_logout_of_another_connection_that_is_lost_itself_settles_nothing() {
    let mut pair = two_connections();
    let (lost, via) = (pair.wires[0].initiator, pair.wires[1].initiator);
    pair.initiator.remove_connection(pair.now, lost);
    assert!(pair.initiator.log_out_other(pair.now, via, Cid(0)));
    pair.disconnect(1);
    pair.deliver();
    assert!(pair.initiator_events.contains(&logged_out(
        via,
        LogoutScope::OtherConnection(Cid(0)),
        None
    )));
    assert!(
        !pair.initiator.log_out_other(pair.now, via, Cid(0)),
        "no connection is left to send it"
    );
}

#[test]
fn answers_under_way_come_before_the_logouts() {
    let mut pair = Pair::new();
    pair.disk.write(0, &pattern(1, 100_000));
    let (read, hung) = (pair.read(0, 0, 100_000), pair.hang(0, Lun(0)));
    let id = pair.wires[0].initiator;
    pair.initiator
        .log_out(pair.now, id, LogoutReason::CloseSession);
    pair.initiator_speaks(0);
    while pair.target_hears(0) {}
    pair.deliver();
    assert_eq!(pair.data(read), pattern(1, 100_000));
    assert!(matches!(
        pair.said.last(),
        Some((_, Pdu::LogoutResponse(_)))
    ));
    assert_eq!(pair.under_way().len(), 0, "what hangs is given up");
    pair.disconnect(0);
    pair.deliver();
    assert_eq!(pair.failure(hung), Some(Failure::ConnectionLost));
}

#[test]
fn another_connection_may_be_named() {
    let mut pair = two_connections();
    pair.wires[0].intercepted = true;
    pair.hang(1, Lun(0));
    pair.deliver();
    pair.inject(
        0,
        &raw::logout(9, LogoutReason::CloseConnection, 1).emit(),
        &[],
    );
    pair.deliver();
    assert_eq!(
        (results(&pair), closed(&pair)),
        (vec![LogoutResult::Success], vec![(1, CloseReason::Logout)])
    );
    assert_eq!(pair.under_way().len(), 0);
}

/// Otherwise the initiator would retry writes that the device may still be executing.
#[test]
fn another_connections_logout_is_answered_when_its_writes_cannot_land_any_more() {
    let mut pair = two_connections();
    (pair.wires[0].intercepted, pair.is_slow) = (true, true);
    pair.hang(1, Lun(0));
    pair.deliver();
    pair.inject(
        0,
        &raw::logout(9, LogoutReason::CloseConnection, 1).emit(),
        &[],
    );
    pair.inject(
        0,
        &raw::logout(10, LogoutReason::CloseConnection, 42).emit(),
        &[],
    );
    pair.deliver();
    assert_eq!((results(&pair), pair.under_way().len()), (vec![], 0));
    for logout in waiting(&pair) {
        pair.target.logout_done(logout);
        pair.target.logout_done(logout);
    }
    pair.deliver();
    assert_eq!(
        results(&pair),
        [LogoutResult::Success, LogoutResult::CidNotFound]
    );
}

#[test]
fn a_logout_whose_connection_is_gone_is_answered_to_nobody() {
    let mut pair = two_connections();
    (pair.wires[0].intercepted, pair.is_slow) = (true, true);
    pair.inject(
        0,
        &raw::logout(9, LogoutReason::CloseConnection, 1).emit(),
        &[],
    );
    pair.deliver();
    pair.disconnect(0);
    for logout in waiting(&pair) {
        pair.target.logout_done(logout);
    }
    pair.deliver();
    assert_eq!(results(&pair), []);
}

#[test]
fn logouts_do_not_pile_up() {
    let mut pair = Pair::new();
    (pair.wires[0].intercepted, pair.is_slow) = (true, true);
    for tag in 0..100 {
        pair.inject(
            0,
            &raw::logout(tag, LogoutReason::CloseConnection, 42).emit(),
            &[],
        );
    }
    pair.deliver();
    assert_eq!(
        (waiting(&pair).len(), results(&pair)),
        (64, vec![LogoutResult::CleanupFailed; 36])
    );
}

#[test]
fn an_unknown_connection_is_not_found() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    pair.inject(
        0,
        &raw::logout(9, LogoutReason::CloseConnection, 42).emit(),
        &[],
    );
    pair.deliver();
    assert_eq!(
        (results(&pair), closed(&pair).len()),
        (vec![LogoutResult::CidNotFound], 0)
    );
}

#[test]
fn recovery_is_not_supported_at_level_zero() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    pair.inject(
        0,
        &raw::logout(9, LogoutReason::RemoveForRecovery, 0).emit(),
        &[],
    );
    pair.inject(0, &raw::ping(Some(10), None, 0).emit(), &[]);
    pair.deliver();
    assert_eq!(results(&pair), [LogoutResult::RecoveryNotSupported]);
    assert!(
        pair.said.len() == 2 && closed(&pair).is_empty(),
        "the connection goes on"
    );
}

#[test]
fn nothing_is_listened_to_behind_a_logout() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    pair.inject(
        0,
        &raw::logout(9, LogoutReason::CloseSession, 0).emit(),
        &[],
    );
    let cmd_sn = pair.target.exp_cmd_sn();
    pair.inject(0, &raw::write(10, cmd_sn, 512, 512).emit(), &[1; 512]);
    pair.deliver();
    assert_eq!(
        (pair.said.len(), pair.order.len(), pair.under_way().len()),
        (1, 0, 0)
    );
}

#[test]
fn nothing_is_submitted_behind_a_logout() {
    let mut pair = two_connections();
    let ids = [pair.wires[0].initiator, pair.wires[1].initiator];
    pair.initiator
        .log_out(pair.now, ids[0], LogoutReason::CloseSession);
    let command = iscsi::initiator::Command {
        lun: Lun(0),
        cdb: &[0; 6],
        attribute: iscsi::pdu::TaskAttribute::Simple,
        read_bytes: 0,
        write_bytes: 0,
    };
    for id in ids {
        let refused = Err(iscsi::initiator::SubmitError::NotConnected);
        assert_eq!(pair.initiator.submit(pair.now, id, &command), refused);
    }
}

/// Found by the fuzz target session_pair: the other connections stayed open and unused forever, and the
/// command waited behind the gap that the lost connection had left.
#[test]
fn a_session_logout_that_is_lost_with_its_connection_closes_the_others() {
    let mut pair = two_connections();
    pair.read(0, 0, 512);
    pair.initiator_speaks(0);
    pair.read(1, 0, 512);
    pair.initiator.log_out(
        pair.now,
        pair.wires[0].initiator,
        LogoutReason::CloseSession,
    );
    pair.disconnect(0);
    pair.deliver();
    let (connection, reason) = (pair.wires[1].initiator, initiator::CloseReason::LogoutLost);
    assert_eq!(pair.initiator_events, [Event::Close { connection, reason }]);
    pair.disconnect(1);
    pair.deliver();
    assert_eq!(pair.initiator.in_flight(), 0);
}

#[test]
fn a_logout_that_is_asked_for_and_does_not_come_is_enforced() {
    let mut pair = Pair::new();
    pair.target.request_logout(pair.now, Duration::from_secs(3));
    let write = pair.write(0, 0, &pattern(1, 20_000));
    pair.deliver();
    assert!(matches!(pair.initiator_events[..], [Event::Message { .. }]));
    assert_eq!(
        pair.status(write),
        Some(0),
        "commands are served until then"
    );
    pair.pass(Duration::from_secs(2));
    assert_eq!(closed(&pair), []);
    pair.pass(Duration::from_secs(1));
    assert_eq!(closed(&pair), [(0, CloseReason::LogoutOverdue)]);
}

#[test]
fn a_logout_that_is_asked_for_and_comes_is_not_enforced() {
    let mut pair = Pair::new();
    pair.target.request_logout(pair.now, Duration::from_secs(3));
    pair.deliver();
    let id = pair.wires[0].initiator;
    pair.initiator
        .log_out(pair.now, id, LogoutReason::CloseSession);
    pair.deliver();
    pair.pass(Duration::from_secs(4));
    assert_eq!(closed(&pair), [(0, CloseReason::Logout)]);
}
