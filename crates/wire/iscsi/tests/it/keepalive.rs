//! NOP in both directions, on a virtual clock.

use std::time::Duration;

use iscsi::initiator;
use iscsi::pdu::{Pdu, Ttt};
use iscsi::target::{CloseReason, Event};

use crate::pair::{Pair, Setup};
use crate::raw;

const SECOND: Duration = Duration::from_secs(1);

fn closed(pair: &Pair) -> Vec<CloseReason> {
    let reason = |event: &Event| match event {
        Event::Close { reason, .. } => Some(*reason),
        _ => None,
    };
    pair.target_events.iter().filter_map(reason).collect()
}

fn pings(pair: &Pair) -> usize {
    pair.said(|pdu| matches!(pdu, Pdu::NopIn(nop) if nop.ttt.is_some()).then_some(()))
        .len()
}

#[test]
fn a_ping_is_answered_with_its_data() {
    let mut pair = Pair::new();
    let id = pair.wires[0].initiator;
    let ping = pair
        .initiator
        .ping(id, b"are you there?")
        .expect("a connection that is open");
    pair.deliver();
    let pong = initiator::Event::Pong {
        ping,
        data: Some(b"are you there?".to_vec()),
    };
    assert_eq!(pair.initiator_events, [pong]);
}

#[test]
fn who_waits_for_a_ping_is_told_that_there_will_be_no_answer() {
    let mut pair = Pair::new();
    let id = pair.wires[0].initiator;
    let ping = pair
        .initiator
        .ping(id, &[])
        .expect("a connection that is open");
    pair.initiator.remove_connection(pair.now, id);
    assert_eq!(
        pair.initiator.poll_event(),
        Some(initiator::Event::Pong { ping, data: None })
    );
    assert_eq!(pair.initiator.ping(id, &[]), None);
}

#[test]
fn a_pings_data_are_cut_to_what_the_initiator_takes() {
    let mut pair = Setup {
        initiator_segment_max: 512,
        ..Setup::new()
    }
    .build();
    pair.wires[0].intercepted = true;
    pair.inject(0, &raw::ping(Some(1), None, 4000).emit(), &[7; 4000]);
    pair.deliver();
    assert!(matches!(pair.said[..], [(0, Pdu::NopIn(nop))] if nop.data_segment_length == 512));
}

#[test]
fn a_ping_without_a_tag_wants_no_answer() {
    let mut pair = Pair::new();
    pair.inject(0, &raw::ping(None, Ttt::new(3), 0).emit(), &[]);
    pair.inject(0, &raw::ping(None, None, 0).emit(), &[]);
    pair.deliver();
    assert!(pair.said.is_empty());
}

#[test]
fn a_ping_is_answered_while_commands_hang_and_before_long_reads() {
    let mut pair = Pair::new();
    for _ in 0..10 {
        pair.hang(0, iscsi::pdu::Lun(0));
    }
    pair.read(0, 0, 1 << 20);
    let id = pair.wires[0].initiator;
    pair.initiator.ping(id, &[]);
    pair.initiator_speaks(0);
    while pair.target_hears(0) {}
    pair.target_speaks(0);
    assert!(matches!(pair.said[0].1, Pdu::NopIn(_)), "before the data");
}

#[test]
fn both_sides_ask_when_it_is_quiet_and_both_are_answered() {
    let mut pair = Pair::new();
    for _ in 0..1000 {
        pair.pass(SECOND);
    }
    assert!(closed(&pair).is_empty() && pair.initiator_events.is_empty());
    assert_eq!(pair.initiator.in_flight(), 0, "answered pings are over");
}

#[test]
fn a_silent_initiator_is_asked_and_then_given_up() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    for _ in 0..119 {
        pair.now += SECOND;
        pair.target.handle_timeout(pair.now);
        pair.target_speaks(0);
    }
    assert_eq!(
        (pings(&pair), closed(&pair).len()),
        (1, 0),
        "grace for boot firmware"
    );
    assert_eq!(pair.target.poll_timeout(), Some(pair.now + SECOND));
    pair.now += SECOND;
    pair.target.handle_timeout(pair.now);
    pair.step();
    assert_eq!(closed(&pair), [CloseReason::Silent]);
    assert_eq!(pair.target.poll_timeout(), None);
}

#[test]
fn an_initiator_that_talks_is_never_given_up_even_if_it_answers_no_ping() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    for round in 0..100 {
        pair.now += 15 * SECOND;
        pair.target.handle_timeout(pair.now);
        pair.inject(0, &raw::ping(Some(round), None, 0).emit(), &[]);
        pair.target_speaks(0);
        pair.target_hears(0);
    }
    assert!(closed(&pair).is_empty());
    assert_eq!(pings(&pair), 100);
}

#[test]
fn a_silent_target_is_given_up() {
    let mut pair = Pair::new();
    pair.wires[0].held = true;
    pair.pass(5 * SECOND);
    assert_eq!(pair.initiator_events, []);
    pair.pass(5 * SECOND);
    let connection = pair.wires[0].initiator;
    let reason = initiator::CloseReason::Silent;
    assert_eq!(
        pair.initiator_events,
        [initiator::Event::Close { connection, reason }]
    );
}

/// A silent connection is pinged after five seconds and closed after five more. So a network that delays data
/// by a few seconds closes no connection, and a network that loses data closes only the affected connection.
#[test]
fn one_connection_of_four_may_be_late_for_as_long_as_it_is_asked_and_waited_for() {
    let mut pair = Setup {
        connections: 4,
        ..Setup::new()
    }
    .build();
    let pass =
        |pair: &mut Pair, seconds: u32| (0..10 * seconds).for_each(|_| pair.pass(SECOND / 10));
    for late in [2, 8] {
        pair.wires[1].held = true;
        pair.read(1, 0, 4096);
        pass(&mut pair, late);
        pair.wires[1].held = false;
        pass(&mut pair, 1);
        assert!(
            pair.initiator_events.is_empty(),
            "{late} s: {:?}",
            pair.initiator_events
        );
        assert!(closed(&pair).is_empty(), "{late} s");
    }
    pair.wires[1].held = true;
    pass(&mut pair, 11);
    let (connection, reason) = (pair.wires[1].initiator, initiator::CloseReason::Silent);
    assert_eq!(
        pair.initiator_events,
        [initiator::Event::Close { connection, reason }]
    );
}

#[test]
fn an_initiators_answer_repeats_the_targets_tag() {
    let mut pair = Pair::new();
    let ping = iscsi::pdu::NopIn {
        lun: iscsi::pdu::Lun(3 << 48),
        itt: None,
        ttt: Ttt::new(77),
        numbers: iscsi::pdu::TargetNumbers::default(),
        data_segment_length: 0,
    };
    pair.wires[0].held = true;
    pair.inject_answer(0, &ping.emit(), &[]);
    pair.deliver();
    let bytes = &pair.wires[0].to_target.pdus[0];
    let header = iscsi::pdu::Bhs(*bytes.first_chunk().expect("a header"));
    let answer = iscsi::pdu::NopOut::parse(&header).expect("a NOP-Out");
    assert_eq!(
        (answer.ttt, answer.itt, answer.lun, answer.immediate),
        (ping.ttt, None, ping.lun, true)
    );
}
