//! Times of a command per phase, and counters of a session, on a virtual clock.

use std::time::Duration;

use iscsi::initiator::{Command, Counters, Phase, RoundTrips, SubmitError, TaskId};
use iscsi::negotiate::Parameters;
use iscsi::pdu::{Lun, RejectReason, TaskAttribute};

use crate::pair::{Pair, Setup, pattern};
use crate::{disk, raw};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Times of a command in milliseconds: queued, sending, waiting for R2Ts, for a response, for data, for the status.
fn spent(pair: &Pair, task: TaskId) -> [u128; 6] {
    let times = &pair.times[&task];
    assert_eq!(
        times.spent_ns().iter().sum::<u64>(),
        times.total_ns(),
        "the parts make the whole"
    );
    times
        .spent_ns()
        .map(|ns| Duration::from_nanos(ns).as_millis())
}

/// 8 KiB are immediate data, and the rest is requested 16 KiB at a time.
fn asking_target() -> Pair {
    let parameters = Parameters {
        initial_r2t: true,
        max_burst_length: 16_384,
        ..Setup::new().parameters
    };
    Setup {
        parameters,
        ..Setup::new()
    }
    .build()
}

fn target_turns(pair: &mut Pair) {
    while pair.target_hears(0) {}
    pair.target_speaks(0);
}

#[test]
fn a_reads_time_is_spent_queued_then_waiting_then_receiving() {
    let mut pair = Pair::new();
    let read = pair.read(0, 0, 20_000);
    pair.now += ms(1);
    pair.initiator_speaks(0);
    target_turns(&mut pair);
    for gap in [10, 3, 4] {
        pair.now += ms(gap);
        pair.initiator_hears(0);
    }
    assert_eq!(spent(&pair, read), [1, 0, 0, 10, 7, 0]);
}

#[test]
fn a_status_that_comes_by_itself_is_waited_for() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    let read = pair.read(0, 0, 8);
    pair.initiator_speaks(0);
    let header = raw::sent(&pair, 0);
    pair.now += ms(2);
    pair.inject_answer(0, &raw::data_in(&header, 8), &[1; 8]);
    pair.initiator_hears(0);
    pair.now += ms(5);
    pair.inject_answer(0, &raw::good(&header), &[]);
    pair.initiator_hears(0);
    assert_eq!(spent(&pair, read), [0, 0, 0, 2, 0, 5]);
}

#[test]
fn a_write_shows_how_long_it_waited_to_be_asked() {
    let mut pair = asking_target();
    let write = pair.write(0, 0, &pattern(1, 8192 + 32_768));
    pair.now += ms(1);
    pair.initiator_speaks(0);
    target_turns(&mut pair);
    pair.now += ms(5);
    pair.initiator_hears(0);
    pair.now += ms(2);
    pair.initiator_speaks(0);
    target_turns(&mut pair);
    pair.now += ms(4);
    pair.initiator_hears(0);
    pair.initiator_speaks(0);
    target_turns(&mut pair);
    pair.now += ms(6);
    pair.initiator_hears(0);
    assert_eq!(spent(&pair, write), [1, 2, 9, 6, 0, 0]);
}

#[test]
fn a_write_that_is_sent_at_once_waits_for_nothing_but_its_answer() {
    let mut pair = Pair::new();
    let write = pair.write(0, 0, &pattern(1, 60_000));
    pair.initiator_speaks(0);
    target_turns(&mut pair);
    pair.now += ms(7);
    pair.deliver();
    assert_eq!(spent(&pair, write), [0, 0, 0, 7, 0, 0]);
}

#[test]
fn a_bidirectional_commands_parts_make_the_whole() {
    let mut pair = asking_target();
    let both = pair.submit(0, &disk::cdb(disk::READ, 0, 600), 600, &pattern(6, 20_000));
    for _ in 0..20 {
        pair.now += ms(1);
        pair.step();
    }
    assert_eq!(
        spent(&pair, both)[Phase::R2t as usize],
        1,
        "the target never asks for what it does not need"
    );
}

#[test]
fn bytes_are_counted_by_how_they_were_allowed() {
    let parameters = Parameters {
        first_burst_length: 20_000,
        max_burst_length: 16_384,
        ..Setup::new().parameters
    };
    let mut pair = Setup {
        parameters,
        ..Setup::new()
    }
    .build();
    pair.write(0, 0, &pattern(1, 50_000));
    pair.read(0, 0, 1000);
    pair.deliver();
    let Counters {
        immediate_bytes,
        unsolicited_bytes,
        solicited_bytes,
        ..
    } = *pair.initiator.counters();
    assert_eq!(
        (immediate_bytes, unsolicited_bytes, solicited_bytes),
        (8192, 20_000 - 8192, 30_000)
    );
    let Counters {
        commands,
        r2ts,
        data_in_bytes,
        pdus_in,
        pdus_out,
        ..
    } = *pair.initiator.counters();
    assert_eq!((commands, r2ts, data_in_bytes), (2, 2, 1000));
    // In: two R2Ts, a response, and a Data-In with its status. Out: two commands, and three times two
    // Data-Out PDUs of up to 8 KiB.
    assert_eq!((pdus_in, pdus_out), (4, 2 + 6));
}

#[test]
fn a_window_of_one_shows_how_often_and_how_long_it_held_us_up() {
    let mut pair = Setup {
        window: 1,
        ..Setup::new()
    }
    .build();
    let wanted = Command {
        lun: Lun(0),
        cdb: &[0; 6],
        attribute: TaskAttribute::Simple,
        read_bytes: 0,
        write_bytes: 0,
    };
    let id = pair.wires[0].initiator;
    for round in 1..=3 {
        pair.read(0, 0, 512);
        assert_eq!(
            pair.initiator.submit(pair.now, id, &wanted),
            Err(SubmitError::NoRoom)
        );
        pair.now += ms(10);
        // A repeated attempt belongs to the same stall.
        assert_eq!(
            pair.initiator.submit(pair.now, id, &wanted),
            Err(SubmitError::NoRoom)
        );
        pair.now += ms(5);
        pair.deliver();
        let Counters {
            window_stalls,
            window_stalled,
            ..
        } = *pair.initiator.counters();
        assert_eq!((window_stalls, window_stalled), (round, 15 * ms(round)));
        pair.now += ms(100);
    }
}

#[test]
fn nops_are_timed_from_when_they_are_sent() {
    let mut pair = Pair::new();
    let id = pair.wires[0].initiator;
    for time in [3, 9] {
        pair.initiator.ping(id, b"still there?");
        pair.now += ms(50);
        pair.initiator_speaks(0);
        pair.now += ms(time);
        pair.deliver();
    }
    let nops = pair.initiator.counters().nops;
    assert_eq!(
        nops,
        RoundTrips {
            count: 2,
            sum: ms(12),
            min: Some(ms(3)),
            max: Some(ms(9))
        }
    );
    assert_eq!(nops.mean(), Some(ms(6)));
}

#[test]
fn a_busy_connection_is_pinged_too_and_never_ended_for_it() {
    let mut pair = Pair::new();
    pair.wires[0].intercepted = true;
    for _ in 0..100 {
        pair.tick(ms(1000));
        pair.initiator_speaks(0);
        pair.target_hears(0);
        pair.inject_answer(0, &raw::nop_in(), &[]);
        pair.initiator_hears(0);
    }
    assert_eq!(pair.initiator_events, []);
    assert_eq!(
        pair.initiator.counters().pdus_out,
        1,
        "the first has no answer yet"
    );
}

#[test]
fn under_load_there_is_a_ping_every_interval() {
    let mut pair = Pair::new();
    for _ in 0..100 {
        pair.read(0, 0, 512);
        pair.pass(ms(500));
    }
    assert_eq!(pair.initiator.counters().nops.count, 10, "in 50 seconds");
    assert_eq!(pair.initiator.in_flight(), 0);
}

#[test]
fn what_the_target_refuses_is_counted() {
    let mut pair = Pair::new();
    pair.hang(0, Lun(0));
    pair.wires[0].held = true;
    pair.initiator_speaks(0);
    let header = raw::sent(&pair, 0);
    pair.inject_answer(
        0,
        &raw::reject(RejectReason::CommandNotSupported),
        &header.0,
    );
    pair.deliver();
    assert_eq!(pair.initiator.counters().rejects, 1);
}

#[test]
fn counters_tell_what_came_since() {
    let mut pair = Pair::new();
    pair.read(0, 0, 512);
    pair.deliver();
    let earlier = *pair.initiator.counters();
    pair.write(0, 0, &[1; 300]);
    pair.deliver();
    let since = pair.initiator.counters().since(&earlier);
    assert_eq!(
        (since.commands, since.data_in_bytes, since.immediate_bytes),
        (1, 0, 300)
    );
    let mut both = earlier;
    both += since;
    assert_eq!(both, *pair.initiator.counters());
}
