//! PERSISTENT RESERVE IN and OUT.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use logical_unit::{Effect, Nexus, Plan};

use crate::support::*;

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const IGNORE: u8 = 6;

const EXCLUSIVE_ACCESS: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u8 = 5;

const APTPL: u8 = 0x01;

fn reserve_out(action: u8, kind: u8) -> [u8; 10] {
    [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0]
}

fn list(key: u64, second: u64, flags: u8) -> Vec<u8> {
    [
        &key.to_be_bytes()[..],
        &second.to_be_bytes(),
        &[0, 0, 0, 0, flags, 0, 0, 0],
    ]
    .concat()
}

fn reserve_in(action: u8, allocation_length: u8) -> [u8; 10] {
    [0x5e, action, 0, 0, 0, 0, 0, 0, allocation_length, 0]
}

/// Registers two initiators with the keys 1 and 2.
fn registered() -> (Bench, Nexus) {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.send(&reserve_out(IGNORE, 0), &list(0, 1, 0)).good();
    bench
        .send_by(&mut other, &reserve_out(IGNORE, 0), &list(0, 2, 0))
        .good();
    (bench, other)
}

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];

#[test]
fn an_exclusive_reservation_keeps_the_others_out_on_the_fast_path_too() {
    let (mut bench, mut other) = registered();
    bench.by(&mut other, &READ).good();
    bench
        .send(&reserve_out(RESERVE, EXCLUSIVE_ACCESS), &list(1, 0, 0))
        .good();
    bench.by(&mut other, &READ).conflict();
    bench
        .send_by(&mut other, &sixteen(0x8a, 0, 0, 1), &[0; 512])
        .conflict();
    bench.by(&mut other, &TEST_UNIT_READY).good();
    bench.command(&READ).good();
    bench
        .send(&reserve_out(RELEASE, EXCLUSIVE_ACCESS), &list(1, 0, 0))
        .good();
    bench.by(&mut other, &READ).good();
}

#[test]
fn a_reservation_outlives_the_session_of_its_holder() {
    let (mut bench, mut other) = registered();
    bench
        .send_by(
            &mut other,
            &reserve_out(RESERVE, EXCLUSIVE_ACCESS),
            &list(2, 0, 0),
        )
        .good();
    drop(other);
    bench.command(&READ).conflict();
    let mut again = bench.second();
    bench.by(&mut again, &READ).good();
}

#[test]
fn the_holder_that_is_preempted_hears_of_it_and_its_commands_are_aborted() {
    let (mut bench, mut other) = registered();
    bench
        .send_by(
            &mut other,
            &reserve_out(RESERVE, EXCLUSIVE_ACCESS),
            &list(2, 0, 0),
        )
        .good();
    let plan = bench.begin(&reserve_out(PREEMPT_AND_ABORT, EXCLUSIVE_ACCESS), 24, 0);
    let reply = bench.carry_out(plan, &list(1, 2, 0));
    let Some([Effect::AbortTasks { nexuses, by, .. }]) = reply.effects.as_deref() else {
        panic!("{reply:?}")
    };
    assert_eq!((&nexuses[..], *by), (&[other.id()][..], bench.nexus.id()));
    bench.by(&mut other, &TEST_UNIT_READY).check(6, 0x2a05);
    bench.by(&mut other, &READ).conflict();
    bench.command(&READ).good();
}

#[test]
fn preempting_without_abort_aborts_nothing() {
    let (mut bench, _other) = registered();
    let plan = bench.begin(&reserve_out(PREEMPT, EXCLUSIVE_ACCESS), 24, 0);
    assert!(bench.carry_out(plan, &list(1, 2, 0)).effects.is_none());
}

#[test]
fn who_shared_a_reservation_hears_of_its_release() {
    let (mut bench, mut other) = registered();
    bench
        .send(
            &reserve_out(RESERVE, WRITE_EXCLUSIVE_REGISTRANTS_ONLY),
            &list(1, 0, 0),
        )
        .good();
    bench
        .send(
            &reserve_out(RELEASE, WRITE_EXCLUSIVE_REGISTRANTS_ONLY),
            &list(1, 0, 0),
        )
        .good();
    bench.by(&mut other, &TEST_UNIT_READY).check(6, 0x2a04);
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn everybody_hears_of_clear() {
    let (mut bench, mut other) = registered();
    bench.send(&reserve_out(CLEAR, 0), &list(1, 0, 0)).good();
    bench.by(&mut other, &TEST_UNIT_READY).check(6, 0x2a03);
    assert_eq!(
        bench.command(&reserve_in(0, 255)).good().data,
        [0, 0, 0, 3, 0, 0, 0, 0]
    );
}

#[test]
fn a_wrong_key_is_a_conflict() {
    let (mut bench, _other) = registered();
    bench
        .send(&reserve_out(REGISTER, 0), &list(9, 3, 0))
        .conflict();
    bench
        .send(&reserve_out(RESERVE, EXCLUSIVE_ACCESS), &list(9, 0, 0))
        .conflict();
}

#[test]
fn lists_are_cut_by_the_allocation_length_and_their_lengths_are_not() {
    let (mut bench, _other) = registered();
    let answer = bench.command(&reserve_in(0, 8)).good();
    assert_eq!(
        (answer.data, answer.expected_bytes),
        (vec![0, 0, 0, 2, 0, 0, 0, 16], 8)
    );
}

/// libiscsi PrinServiceactionRange.
#[test]
fn four_reports_are_there_and_no_more() {
    let (mut bench, _other) = registered();
    for action in 0..0x20 {
        let answer = bench.command(&reserve_in(action, 255));
        if action < 4 {
            drop(answer.good())
        } else {
            answer.invalid_field(1)
        }
    }
}

#[test]
fn a_list_the_initiator_cuts_short_has_a_wrong_length() {
    let mut bench = Bench::new();
    bench
        .send(&reserve_out(IGNORE, 0), &list(0, 1, 0)[..20])
        .check(5, 0x1a00);
    bench
        .send(&[0x5f, IGNORE, 0, 0, 0, 0, 0, 0, 20, 0], &[0; 20])
        .check(5, 0x1a00);
}

#[test]
fn reserve_and_persistent_reservations_exclude_each_other() {
    let mut bench = Bench::new();
    bench.command(&[0x16, 0, 0, 0, 0, 0]).good();
    bench
        .send(&reserve_out(IGNORE, 0), &list(0, 1, 0))
        .conflict();
    bench.command(&reserve_in(0, 255)).conflict();
    bench.command(&[0x17, 0, 0, 0, 0, 0]).good();
    bench.send(&reserve_out(IGNORE, 0), &list(0, 1, 0)).good();
    bench.command(&[0x16, 0, 0, 0, 0, 0]).conflict();
}

/// Compatible reservation handling, SPC-4 5.12.3.
#[test]
fn reserve_by_a_registrant_with_access_is_good_and_does_nothing() {
    let (mut bench, mut other) = registered();
    bench
        .send(
            &reserve_out(RESERVE, WRITE_EXCLUSIVE_REGISTRANTS_ONLY),
            &list(1, 0, 0),
        )
        .good();
    bench.by(&mut other, &[0x16, 0, 0, 0, 0, 0]).good();
    bench.command(&READ).good();
}

#[test]
fn a_logical_unit_reset_leaves_persistent_reservations() {
    let (mut bench, mut other) = registered();
    bench
        .send(&reserve_out(RESERVE, EXCLUSIVE_ACCESS), &list(1, 0, 0))
        .good();
    bench.unit.reset();
    bench.by(&mut other, &TEST_UNIT_READY).check(6, 0x2903);
    bench.by(&mut other, &READ).conflict();
}

#[test]
fn with_aptpl_all_is_there_after_a_restart() {
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    bench
        .send(&reserve_out(IGNORE, 0), &list(0, 7, APTPL))
        .good();
    bench
        .send(&reserve_out(RESERVE, EXCLUSIVE_ACCESS), &list(7, 0, 0))
        .good();
    let mut restarted = Bench::keeping(&paper);
    let mut other = restarted.second();
    restarted.by(&mut other, &READ).conflict();
    restarted.command(&READ).good();
    let keys = restarted.command(&reserve_in(0, 255)).good().data;
    assert_eq!(keys, [0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7]);
}

#[test]
fn taking_aptpl_back_forgets_all_at_a_restart() {
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    bench
        .send(&reserve_out(IGNORE, 0), &list(0, 7, APTPL))
        .good();
    bench.send(&reserve_out(IGNORE, 0), &list(0, 7, 0)).good();
    let mut restarted = Bench::keeping(&paper);
    assert_eq!(restarted.command(&reserve_in(0, 255)).good().data, [0; 8]);
}

#[test]
fn what_cannot_be_kept_does_not_happen() {
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    bench
        .send(&reserve_out(IGNORE, 0), &list(0, 7, APTPL))
        .good();
    paper.fill();
    bench
        .send(&reserve_out(RESERVE, EXCLUSIVE_ACCESS), &list(7, 0, 0))
        .check(4, 0x4400);
    assert_eq!(
        bench.command(&reserve_in(1, 255)).good().data,
        [0, 0, 0, 1, 0, 0, 0, 0]
    );
}

/// Regression: a registration was aborted while it was being saved. It was on disk but not in memory, so the
/// next restart restored a registration that had never been visible.
#[test]
fn a_registration_that_is_given_up_while_it_is_saved_is_in_memory_as_on_disk() {
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    paper.wet();
    let aborted = bench.start(&reserve_out(IGNORE, 0), &list(0, 7, APTPL));
    let mut rest = give_up(aborted).expect("it must be run to its end");
    let unit = Arc::clone(&bench.unit);
    let mut quiesced: Pin<Box<dyn Future<Output = ()>>> =
        Box::pin(async move { unit.volume().quiesced().await });
    assert!(
        poll(&mut quiesced).is_none(),
        "what is kept may still change"
    );
    paper.dry();
    assert!(poll(&mut rest).is_some());
    assert!(poll(&mut quiesced).is_some());
    let keys = |bench: &mut Bench| bench.command(&reserve_in(0, 255)).good().data[8..].to_vec();
    let after_restart = keys(&mut Bench::keeping(&paper));
    assert_eq!(after_restart, [0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!(keys(&mut bench), after_restart);
}

/// Saves are executed in order. A save that waits for its turn has not started.
#[test]
fn a_registration_that_is_given_up_before_it_is_saved_has_no_effect() {
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    paper.wet();
    let mut first = bench.start(&reserve_out(IGNORE, 0), &list(0, 7, APTPL));
    let second = bench.start(&reserve_out(IGNORE, 0), &list(0, 8, APTPL));
    assert!(give_up(second).is_none());
    paper.dry();
    assert!(poll(&mut first.reply).is_some());
    assert_eq!(
        bench.command(&reserve_in(0, 255)).good().data[8..],
        [0, 0, 0, 0, 0, 0, 0, 7]
    );
}

#[test]
fn aptpl_without_a_place_to_keep_anything_is_refused() {
    let mut bench = Bench::new();
    bench
        .send(&reserve_out(IGNORE, 0), &list(0, 7, APTPL))
        .check(5, 0x2600);
}

#[test]
fn damaged_reservations_refuse_the_volume() {
    let paper = Arc::new(Paper::default());
    Bench::keeping(&paper)
        .send(&reserve_out(IGNORE, 0), &list(0, 7, APTPL))
        .good();
    let text = paper.text().expect("it was written");
    for damaged in [&text[..text.len() - 1], &text[..3], &[]] {
        let disk = Arc::new(Disk::new(DiskOptions::default()));
        let paper = Arc::new(Paper::with(damaged.to_vec()));
        assert!(unit_over(disk, kept_on(&paper), unit_options()).is_err());
    }
}

/// The state is checked again when the command is executed, because another command may have changed it after
/// this command was planned.
#[test]
fn of_two_that_reserve_at_once_one_wins() {
    let (mut bench, mut other) = registered();
    let cdb = reserve_out(RESERVE, EXCLUSIVE_ACCESS);
    let first = bench.begin(&cdb, 24, 0);
    bench.send_by(&mut other, &cdb, &list(2, 0, 0)).good();
    let Plan::Receive(_) = &first else {
        panic!("it waits for its list")
    };
    CommandResult::from_reply(bench.carry_out(first, &list(1, 0, 0))).conflict();
}
