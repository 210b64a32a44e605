//! Tests of the checker, for each case of its rules.

use super::*;

fn data(checker: &Checker, id: WriteId) -> Vec<u8> {
    let mut data = vec![0; 512];
    checker.fill(id, 0, &mut data);
    data
}

fn reads(checker: &mut Checker, data: &[u8]) -> bool {
    let begun = checker.begin_read(0, 1);
    checker.read(begun, 0, data).is_ok()
}

fn checker() -> Checker {
    Checker::new(0, 512, 1, false, true)
}

#[test]
fn what_was_answered_is_shown_and_nothing_older() {
    let mut checker = checker();
    let first = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.wrote(first);
    let second = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.wrote(second);
    let (first, second) = (data(&checker, first), data(&checker, second));
    assert!(reads(&mut checker, &second));
    assert!(!reads(&mut checker, &first));
    assert!(!reads(&mut checker, &[0; 512]));
}

#[test]
fn of_writes_under_way_either_may_be_shown_but_not_in_turns() {
    let mut checker = checker();
    let (one, two) = (
        checker.begin_write(1, 0, 1, WriteKind::default()),
        checker.begin_write(2, 0, 1, WriteKind::default()),
    );
    checker.wrote(one);
    checker.wrote(two);
    let (one, two) = (data(&checker, one), data(&checker, two));
    assert!(reads(&mut checker, &one));
    assert!(reads(&mut checker, &one));
    assert!(!reads(&mut checker, &two));
}

#[test]
fn what_two_commands_found_and_exchanged_was_not_alone_with_either() {
    let mut checker = checker();
    let first = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.wrote(first);
    let found = data(&checker, first);
    let begun = checker.now();
    for writer in [1, 2] {
        let exchange = checker.begin_write(writer, 0, 1, WriteKind::default());
        checker.wrote(exchange);
    }
    checker.exchanged(begun, 0, &found).expect("one may");
    assert!(checker.exchanged(begun, 0, &found).is_err());
    checker.cut_power();
    let begun = checker.now();
    checker
        .exchanged(begun, 0, &found)
        .expect("it was there again");
}

#[test]
fn what_is_over_does_not_land_later() {
    let mut checker = checker();
    let aborted = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.is_over(aborted);
    assert!(reads(&mut checker, &[0; 512]));
    let aborted = data(&checker, aborted);
    assert!(!reads(&mut checker, &aborted));
}

#[test]
fn what_is_over_may_have_landed_before() {
    let mut checker = checker();
    let aborted = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.is_over(aborted);
    let aborted = data(&checker, aborted);
    assert!(reads(&mut checker, &aborted));
    assert!(!reads(&mut checker, &[0; 512]));
}

#[test]
fn an_aborted_write_does_not_land_on_a_newer_one() {
    let mut checker = checker();
    let aborted = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.is_over(aborted);
    let newer = checker.begin_write(2, 0, 1, WriteKind::default());
    checker.wrote(newer);
    let aborted = data(&checker, aborted);
    assert!(!reads(&mut checker, &aborted));
}

#[test]
fn a_power_cut_takes_back_what_was_not_flushed() {
    let mut checker = checker();
    let kept = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.wrote(kept);
    let flush = checker.now();
    checker.flushed(1, flush).expect("nothing was lost");
    let lost = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.wrote(lost);
    let (kept, lost) = (data(&checker, kept), data(&checker, lost));
    assert!(reads(&mut checker, &lost));
    checker.cut_power();
    assert!(reads(&mut checker, &kept));
    assert!(!reads(&mut checker, &lost));
    assert!(!reads(&mut checker, &[0; 512]));
}

#[test]
fn a_power_cut_takes_nothing_back_that_was_flushed() {
    let mut checker = checker();
    let kept = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.wrote(kept);
    let flush = checker.now();
    checker.flushed(1, flush).expect("nothing was lost");
    checker.cut_power();
    assert!(!reads(&mut checker, &[0; 512]));
}

#[test]
fn what_is_under_way_when_a_sync_fails_may_have_been_lost_with_it() {
    let mut checker = checker();
    let kept = [0; 512];
    let one = checker.begin_write(1, 0, 1, WriteKind::default());
    let other = checker.begin_write(1, 0, 1, WriteKind::default());
    let lost = data(&checker, other);
    checker.sync_failed(0, &lost, &kept);
    checker.wrote(one);
    checker.wrote(other);
    checker.flush_failed(1);
    let flush = checker.now();
    checker.flushed(1, flush).expect("its writer knows");
    checker.cut_power();
    assert!(reads(&mut checker, &kept));
}

/// Regression test: seed 500010 of commit ea5884c.
#[test]
fn what_a_cache_above_the_disk_still_has_is_not_lost_with_what_is_older() {
    let mut checker = checker();
    let [older, _] = [1, 2].map(|writer| {
        let write = checker.begin_write(writer, 0, 1, WriteKind::default());
        checker.wrote(write);
        write
    });
    let lost = data(&checker, older);
    checker.sync_failed(0, &lost, &[0; 512]);
    let flush = checker.now();
    checker
        .flushed(2, flush)
        .expect("the disk has yet to get it");
    assert!(checker.flushed(1, flush).is_err());
}

/// Regression test: seed 200121 of commit 0ed2524. A server that shut down could not sync. The write was not
/// answered, and was retried on the next server.
#[test]
fn what_is_sent_again_is_not_lost_with_the_first_try() {
    let mut checker = checker();
    let write = checker.begin_write(
        1,
        0,
        1,
        WriteKind {
            repeats: true,
            ..WriteKind::default()
        },
    );
    let lost = data(&checker, write);
    checker.sync_failed(0, &lost, &[0; 512]);
    checker.wrote(write);
    let flush = checker.now();
    checker.flushed(1, flush).expect("it has landed again");
    assert!(reads(&mut checker, &lost));
}

/// Regression test: seed 194 of commit 79f0cb1.
#[test]
fn what_a_copy_brought_may_be_lost_before_it_is_answered() {
    let mut checker = Checker::new(1, 512, 8, false, true);
    let older = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.wrote(older);
    let flush = checker.now();
    checker.flushed(1, flush).expect("nothing was lost");
    let copy = checker.begin_write(
        1,
        0,
        1,
        WriteKind {
            copied_from: Some(0),
            ..WriteKind::default()
        },
    );
    let (older, copied) = (data(&checker, older), data(&checker, WriteId(7)));
    checker.sync_failed(0, &copied, &older);
    checker.flush_failed(1);
    checker.wrote(copy);
    let flush = checker.now();
    checker.flushed(1, flush).expect("its writer knows");
    checker.cut_power();
    assert!(reads(&mut checker, &older));
}

/// Regression test: seed 75010075 of commit f25a49a.
#[test]
fn what_is_kept_was_not_copied_from_a_volume_that_has_no_such_thing() {
    let mut checker = Checker::new(2, 512, 8, false, true);
    let mut copied = |source: u64| {
        let copy = checker.begin_write(
            1,
            0,
            1,
            WriteKind {
                copied_from: Some(source),
                ..WriteKind::default()
            },
        );
        checker.wrote(copy);
        let flush = checker.now();
        (data(&checker, WriteId(source << VOLUME_SHIFT | 7)), flush)
    };
    let (kept, flush) = copied(1);
    let (lost, second) = copied(0);
    checker.flushed(1, flush).expect("nothing was lost");
    checker.sync_failed(0, &lost, &kept);
    checker.flush_failed(1);
    checker.flushed(1, second).expect("its writer knows");
    checker.cut_power();
    assert!(reads(&mut checker, &kept));
}

/// Regression test: seeds 2026112510265 and 2026112520091 of commit 9791306.
#[test]
fn zeros_that_are_kept_may_be_those_of_a_later_copy() {
    let mut checker = Checker::new(1, 512, 8, false, true);
    let zeros = checker.begin_write(
        1,
        0,
        1,
        WriteKind {
            zeros: true,
            ..WriteKind::default()
        },
    );
    checker.wrote(zeros);
    let copy = checker.begin_write(
        2,
        0,
        1,
        WriteKind {
            copied_from: Some(0),
            ..WriteKind::default()
        },
    );
    checker.wrote(copy);
    let flush = checker.now();
    let newer = checker.begin_write(3, 0, 1, WriteKind::default());
    checker.wrote(newer);
    checker.sync_failed(0, &data(&checker, newer), &[0; 512]);
    checker
        .flushed(2, flush)
        .expect("it was carried out before the loss");
    assert!(
        checker.flushed(3, flush).is_ok(),
        "it had not been answered then"
    );
    let flush = checker.now();
    assert!(
        checker.flushed(3, flush).is_err(),
        "the newer one is lost for certain"
    );
}

#[test]
fn of_two_copies_of_one_volume_either_may_be_what_is_kept() {
    let mut checker = Checker::new(1, 512, 8, false, true);
    let copy = WriteKind {
        copied_from: Some(0),
        ..WriteKind::default()
    };
    let first = checker.begin_write(1, 0, 1, copy);
    checker.is_over(first);
    let second = checker.begin_write(1, 0, 1, copy);
    checker.wrote(second);
    let (kept, lost) = (data(&checker, WriteId(7)), data(&checker, WriteId(8)));
    checker.sync_failed(0, &lost, &kept);
    checker.flush_failed(1);
    let flush = checker.now();
    checker.flushed(1, flush).expect("its writer knows");
    assert!(reads(&mut checker, &lost));
    checker.cut_power();
    assert!(reads(&mut checker, &kept));
}

#[test]
fn what_is_shut_out_does_not_land_until_it_is_let_in() {
    let mut checker = checker();
    let write = checker.begin_write(1, 0, 1, WriteKind::default());
    let now = checker.now();
    checker.suspend(now, |_, writer| writer == 1);
    let other = checker.begin_write(2, 0, 1, WriteKind::default());
    checker.wrote(other);
    let (shut_out, other) = (data(&checker, write), data(&checker, other));
    assert!(!reads(&mut checker, &shut_out));
    assert!(reads(&mut checker, &other));
    checker.resume();
    assert!(reads(&mut checker, &shut_out));
    checker.wrote(write);
    assert!(!reads(&mut checker, &other));
}

#[test]
fn a_copy_that_was_let_in_again_shows_what_its_source_has() {
    let mut checker = Checker::new(1, 512, 1, false, true);
    let copy = WriteKind {
        copied_from: Some(0),
        ..WriteKind::default()
    };
    checker.begin_write(1, 0, 1, copy);
    let now = checker.now();
    checker.suspend(now, |_, _| true);
    checker.resume();
    let zeros = checker.begin_write(
        2,
        0,
        1,
        WriteKind {
            zeros: true,
            ..WriteKind::default()
        },
    );
    checker.wrote(zeros);
    let mut source = Checker::new(0, 512, 1, false, true);
    let write = source.begin_write(1, 0, 1, WriteKind::default());
    let shown = data(&source, write);
    assert!(reads(&mut checker, &shown));
}

#[test]
fn what_was_answered_as_stable_is_there_after_a_power_cut() {
    let mut checker = checker();
    let write = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.wrote_stable(write);
    checker.cut_power();
    assert!(!reads(&mut checker, &[0; 512]));
}

#[test]
fn a_torn_block_is_wrong() {
    let mut checker = checker();
    let write = checker.begin_write(1, 0, 1, WriteKind::default());
    checker.wrote(write);
    let mut torn = data(&checker, write);
    torn[256..].fill(0);
    assert!(!reads(&mut checker, &torn));
}

#[test]
fn what_was_given_up_before_a_restart_may_be_lost_untold_and_what_was_answered_may_not() {
    for is_answered in [false, true] {
        let mut checker = checker();
        let lost = checker.begin_write(1, 0, 1, WriteKind::default());
        if is_answered {
            checker.wrote(lost)
        } else {
            checker.is_over(lost)
        }
        // A read has returned the write's data.
        let seen = data(&checker, lost);
        assert!(reads(&mut checker, &seen));
        checker.sync_failed(0, &seen, &[0; 512]);
        checker.has_restarted(|_| true);
        let flush = checker.now();
        assert_eq!(checker.flushed(1, flush).is_err(), is_answered);
    }
}

#[test]
fn what_was_answered_and_may_be_carried_out_again_comes_back_over_others_until_it_is_over() {
    let mut checker = checker();
    let opened = checker.now();
    let (mine, other) = (
        checker.begin_write(
            1,
            0,
            1,
            WriteKind {
                repeats: true,
                ..WriteKind::default()
            },
        ),
        2,
    );
    assert!(reads(&mut checker, &[0; 512]));
    checker.wrote_perhaps_again(mine, opened);
    assert!(!reads(&mut checker, &[0; 512]), "it was carried out once");
    let theirs = checker.begin_write(other, 0, 1, WriteKind::default());
    checker.wrote(theirs);
    let (mine_data, theirs_data) = (data(&checker, mine), data(&checker, theirs));
    assert!(reads(&mut checker, &theirs_data));
    assert!(reads(&mut checker, &mine_data), "a copy of it was late");
    checker.is_over(mine);
    let last = checker.begin_write(other, 0, 1, WriteKind::default());
    checker.wrote(last);
    assert!(!reads(&mut checker, &mine_data));
}

#[test]
fn what_may_be_carried_out_again_never_comes_back_over_a_newer_write_of_the_same_client() {
    for is_same_client in [true, false] {
        let mut checker = checker();
        let opened = checker.now();
        let old = checker.begin_write(
            1,
            0,
            1,
            WriteKind {
                repeats: true,
                ..WriteKind::default()
            },
        );
        checker.wrote_perhaps_again(old, opened);
        let opened = if is_same_client {
            opened
        } else {
            checker.now()
        };
        let new = checker.begin_write(
            1,
            0,
            1,
            WriteKind {
                repeats: true,
                ..WriteKind::default()
            },
        );
        checker.wrote_perhaps_again(new, opened);
        let old = data(&checker, old);
        assert_eq!(reads(&mut checker, &old), !is_same_client);
    }
}
