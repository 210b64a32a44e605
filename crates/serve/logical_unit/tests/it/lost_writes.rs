//! Acknowledged writes that could not be flushed to stable storage: the loss is reported to each nexus that
//! could have relied on them.

use std::sync::Arc;
use std::time::Duration;

use block::{DeviceError, Lba};
use logical_unit::{
    Data, InitiatorPort, LogicalUnit, Nexus, Plan, Running, SessionTraits, Step, TargetPort,
};

use crate::mode::caching;
use crate::support::*;

const FLUSH: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn flush(bench: &mut Bench, nexus: &mut Nexus) -> CommandResult {
    bench.by(nexus, &FLUSH)
}

/// Sends a WRITE(16) of block 0 with FUA.
fn stable_write(bench: &mut Bench) -> CommandResult {
    bench.send(&sixteen(0x8a, 0x08, 0, 1), &[1; 512])
}

#[test]
fn a_flush_that_fails_is_told_to_every_nexus_once() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.disk.fail(DeviceError::Unwritable(Lba(0)));
    bench.command(&FLUSH).check(3, 0x0c00);
    flush(&mut bench, &mut other).check(3, 0x0c00);
    bench.command(&FLUSH).good();
    flush(&mut bench, &mut other).good();
}

#[test]
fn a_loss_that_no_request_was_told_of_fails_the_next_flush_of_every_nexus() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.disk.lose_writes();
    bench.command(&FLUSH).check(3, 0x0c00);
    bench.command(&FLUSH).good();
    flush(&mut bench, &mut other).check(3, 0x0c00);
    flush(&mut bench, &mut other).good();
}

#[test]
fn a_stop_tells_of_it_too() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    bench.command(&[0x1b, 0, 0, 0, 0, 0]).check(3, 0x0c00);
    bench.command(&FLUSH).good();
}

/// The initiator would attribute the error of a change to that change alone (found by `cargo measure soak`).
#[test]
fn changes_that_are_stable_leave_it_to_the_next_flush() {
    let with_fua = sixteen(0x8a, 0x08, 0, 1);
    let and_verify = sixteen(0x8e, 0, 0, 1);
    for (cdb, fails) in [
        (with_fua, false),
        (with_fua, true),
        (and_verify, false),
        (and_verify, true),
    ] {
        let mut bench = Bench::new();
        bench.disk.lose_writes();
        if fails {
            bench.disk.fail(DeviceError::Unwritable(Lba(0)));
            bench.send(&cdb, &[1; 512]).check(3, 0x0c00);
        } else {
            bench.send(&cdb, &[1; 512]).good();
        }
        bench.command(&FLUSH).check(3, 0x0c00);
        bench.command(&FLUSH).good();
    }
}

/// Without a write cache an initiator need not flush, so it would not receive a report of the loss.
#[test]
fn the_write_cache_stays_on_until_a_flush_has_reported_a_loss() {
    let mut bench = Bench::new();
    let is_on = |bench: &mut Bench| {
        bench.command(&[0x1a, 0x08, 0x08, 0, 255, 0]).good().data[4 + 2] & 4 != 0
    };
    bench.disk.lose_writes();
    let (off, list) = caching(0);
    bench.send(&off, &list).check(3, 0x0c00);
    assert!(is_on(&mut bench));
    bench.command(&FLUSH).check(3, 0x0c00);
    bench.send(&off, &list).good();
    assert!(!is_on(&mut bench));
}

/// An initiator does not interpret a failed READ as a report about writes.
#[test]
fn a_read_with_fua_leaves_it_to_the_next_flush() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    bench.command(&sixteen(0x88, 0x08, 0, 1)).good();
    bench.command(&FLUSH).check(3, 0x0c00);
}

/// Initiators that keep running while the server restarts detect the loss by the changed cache generation.
#[test]
fn a_loss_is_noted_for_the_next_start_once_and_before_anybody_is_told() {
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    bench.command(&FLUSH).good();
    stable_write(&mut bench).good();
    assert_eq!(paper.losses(), 0);
    bench.disk.fail(DeviceError::Unwritable(Lba(0)));
    paper.wet();
    let mut flush = bench.start(&FLUSH, &[]);
    assert!(
        poll(&mut flush.reply).is_none(),
        "the note is being written"
    );
    paper.dry();
    CommandResult::from_reply(poll(&mut flush.reply).expect("it is written")).check(3, 0x0c00);
    assert_eq!(paper.losses(), 1);
    bench.disk.lose_writes();
    bench.disk.fail(DeviceError::Unwritable(Lba(0)));
    stable_write(&mut bench).check(3, 0x0c00);
    assert_eq!(
        paper.losses(),
        2,
        "by a write with FUA, which only reports that write's failure"
    );
    paper.fill();
    bench.disk.lose_writes();
    bench.command(&FLUSH).check(3, 0x0c00);
    assert_eq!(paper.losses(), 2, "there is no room");
}

/// The second flush may be for other writes.
#[test]
fn a_flush_that_began_before_a_report_was_acknowledged_fails_as_well() {
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    bench.disk.lose_writes();
    paper.wet();
    let (mut first, mut second) = (bench.start(&FLUSH, &[]), bench.start(&FLUSH, &[]));
    paper.dry();
    CommandResult::from_reply(poll(&mut first.reply).expect("it is written")).check(3, 0x0c00);
    bench.nexus.note_told(first.watch.reported_losses());
    CommandResult::from_reply(poll(&mut second.reply).expect("it is written")).check(3, 0x0c00);
    bench.command(&FLUSH).good();
}

/// A server was killed and started again. One initiator returned only after the flush of another initiator
/// had reported the loss of its writes (seed 202611252601171 of the simulation).
#[test]
fn the_cache_generation_changes_with_each_loss_and_is_the_same_at_the_next_start() {
    let generation = |bench: &mut Bench| bench.command(&[0x12, 1, 0xc0, 0, 255, 0]).data;
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    let mut seen = vec![generation(&mut bench)];
    for _ in 0..2 {
        bench.disk.lose_writes();
        let changed = generation(&mut bench);
        assert!(!seen.contains(&changed), "before any flush");
        bench.command(&FLUSH).check(3, 0x0c00);
        assert_eq!(
            generation(&mut bench),
            changed,
            "what was told is no other loss"
        );
        assert_eq!(
            generation(&mut Bench::keeping(&paper)),
            changed,
            "nor is a restart"
        );
        seen.push(changed);
    }
    paper.fill();
    bench.disk.lose_writes();
    bench.command(&FLUSH).check(3, 0x0c00);
    assert!(
        !seen.contains(&generation(&mut bench)),
        "although it cannot be noted"
    );
}

#[test]
fn a_nexus_that_comes_later_is_not_told() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    let mut later = attach_after(&bench.unit, 2, Duration::from_secs(301));
    bench.by(&mut later, &[0; 6]);
    flush(&mut bench, &mut later).good();
    bench.command(&FLUSH).check(3, 0x0c00);
}

/// It may have used an earlier server process.
#[test]
fn a_nexus_that_comes_soon_after_the_start_is_told_of_a_loss_that_was_told_to_others() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    bench.command(&FLUSH).check(3, 0x0c00);
    let mut soon = attach_after(&bench.unit, 2, Duration::from_secs(299));
    bench.by(&mut soon, &[0; 6]);
    flush(&mut bench, &mut soon).check(3, 0x0c00);
    flush(&mut bench, &mut soon).good();
}

/// A lost session does not cancel reports to its initiator: the same initiator port continues its writes in
/// the next session.
#[test]
fn a_nexus_that_comes_back_is_told_of_what_was_lost_meanwhile() {
    let mut bench = Bench::new();
    let other = bench.second();
    drop(other);
    bench.disk.lose_writes();
    let mut again = bench.second();
    flush(&mut bench, &mut again).check(3, 0x0c00);
    flush(&mut bench, &mut again).good();
}

#[test]
fn a_device_that_is_away_has_lost_nothing() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.disk.fail(DeviceError::NotReady);
    bench.command(&FLUSH).check(2, 0x0401);
    bench.command(&FLUSH).good();
    flush(&mut bench, &mut other).good();
}

/// A response can be lost with its connection, or discarded with its task.
#[test]
fn a_nexus_has_been_told_once_it_has_acknowledged_the_answer() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    for _ in 0..2 {
        unacknowledged(&mut bench);
    }
    bench.command(&FLUSH).check(3, 0x0c00);
    bench.command(&FLUSH).good();
}

/// Responses may overtake each other on a session's connections, so the second flush must not report success.
#[test]
fn flushes_that_are_under_way_at_the_same_time_all_fail() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    let (first, second) = (unacknowledged(&mut bench), unacknowledged(&mut bench));
    assert_eq!((first, second), (1, 1));
    bench.nexus.note_told(first);
    bench.command(&FLUSH).good();
}

/// A loss between a response and its acknowledgement is a new loss.
#[test]
fn an_acknowledgement_covers_no_later_losses() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    let reported = unacknowledged(&mut bench);
    bench.disk.lose_writes();
    bench.nexus.note_told(reported);
    bench.command(&FLUSH).check(3, 0x0c00);
    bench.command(&FLUSH).good();
}

#[test]
fn a_session_that_ends_before_the_answer_arrives_hears_it_in_its_next_one() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.disk.lose_writes();
    std::mem::swap(&mut bench.nexus, &mut other);
    unacknowledged(&mut bench);
    std::mem::swap(&mut bench.nexus, &mut other);
    drop(other);
    let mut again = bench.second();
    flush(&mut bench, &mut again).check(3, 0x0c00);
    flush(&mut bench, &mut again).good();
}

/// An initiator that is redirected to another portal group continues its writes there.
#[test]
fn an_initiator_that_comes_back_by_another_target_port_is_told() {
    let mut bench = Bench::new();
    let initiator = InitiatorPort {
        name: "iqn.2026-11.test:mover".into(),
        qualifier: [0x80; 6],
    };
    let through = |group| {
        let port = TargetPort {
            name: "iqn.2026-11.test:target".into(),
            group,
            relative_port: group,
        };
        Arc::new(SessionTraits::new(initiator.clone(), port, start))
    };
    drop(bench.unit.attach(through(1), start()));
    bench.disk.lose_writes();
    let mut moved = bench.unit.attach(through(2), start());
    bench.by(&mut moved, &[0; 6]);
    flush(&mut bench, &mut moved).check(3, 0x0c00);
    flush(&mut bench, &mut moved).good();
    // With sessions through both ports, the loss is reported to each.
    let mut first = bench.unit.attach(through(1), start());
    bench.by(&mut first, &[0; 6]);
    flush(&mut bench, &mut first).check(3, 0x0c00);
    flush(&mut bench, &mut first).good();
}

/// Thousands of sessions start and end, for example because of a port scanner or an attacker.
#[test]
fn a_crowd_of_other_sessions_does_not_make_the_unit_forget_whom_it_has_to_tell() {
    let mut bench = Bench::new();
    let other = bench.second();
    drop(other);
    bench.disk.lose_writes();
    for number in 0..5000_u32 {
        let mut isid = [0x80; 6];
        isid[2..].copy_from_slice(&number.to_be_bytes());
        let initiator = InitiatorPort {
            name: "iqn.2026-11.test:crowd".into(),
            qualifier: isid,
        };
        let port = TargetPort {
            name: "iqn.2026-11.test:target".into(),
            group: 1,
            relative_port: 1,
        };
        drop(bench.unit.attach(
            Arc::new(SessionTraits::new(initiator, port, start)),
            start(),
        ));
    }
    let mut again = bench.second();
    flush(&mut bench, &mut again).check(3, 0x0c00);
    // Hosts that are not of the crowd are new.
    let mut later = attach_after(&bench.unit, 3, Duration::from_secs(301));
    bench.by(&mut later, &[0; 6]);
    flush(&mut bench, &mut later).good();
}

/// Each run of a program such as a backup logs in with a new random ISID, and logs out.
#[test]
fn runs_of_a_program_that_have_logged_out_cause_no_report_to_later_ones() {
    let mut bench = Bench::new();
    let later = start() + Duration::from_secs(301);
    let run = |unit: &Arc<LogicalUnit>, first, number, now| {
        let initiator = InitiatorPort {
            name: "iqn.2026-11.test:backup".into(),
            qualifier: [first, 0, 0, 0, 0, number],
        };
        let port = TargetPort {
            name: "iqn.2026-11.test:target".into(),
            group: 1,
            relative_port: 1,
        };
        let session = Arc::new(SessionTraits::new(initiator, port, start));
        (unit.attach(Arc::clone(&session), now), session)
    };
    for number in 0..100 {
        let (nexus, session) = run(&bench.unit, 0x80, number, start());
        session.log_out();
        drop(nexus);
    }
    bench.disk.lose_writes();
    let (mut next, session) = run(&bench.unit, 0x80, 200, later);
    bench.by(&mut next, &[0; 6]);
    flush(&mut bench, &mut next).good();
    session.log_out();
    drop(next);
    // A port with a permanent name may return after a logout, such as a host after a restart.
    let (host, session) = run(&bench.unit, 0x40, 1, later);
    session.log_out();
    drop(host);
    bench.disk.lose_writes();
    let (mut host, _) = run(&bench.unit, 0x40, 1, later);
    bench.by(&mut host, &[0; 6]);
    flush(&mut bench, &mut host).check(3, 0x0c00);
}

/// Sends a flush whose response is not acknowledged. Returns the number of losses that it reports.
fn unacknowledged(bench: &mut Bench) -> u64 {
    let Plan::Run(job) = bench.begin(&FLUSH, 0, 0) else {
        panic!("a flush is at work")
    };
    let Step::Later(Running { reply, watch }) = bench.unit.finish(job, Data::None) else {
        panic!("a flush goes to the device")
    };
    CommandResult::from_reply(finish(reply)).check(3, 0x0c00);
    watch.reported_losses()
}
