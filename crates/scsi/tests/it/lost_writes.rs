//! Acknowledged writes that could not be brought to stable storage: each nexus that could have relied on them is told.

use block::{DeviceError, Lba};
use scsi::Nexus;

use crate::support::*;

const FLUSH: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn flush(bench: &mut Bench, nexus: &mut Nexus) -> Answer {
    bench.by(nexus, &FLUSH)
}

/// WRITE(16) of block 0 with FUA.
fn stable_write(bench: &mut Bench) -> Answer {
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
fn a_stable_write_and_a_stop_tell_of_it_too() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    stable_write(&mut bench).check(3, 0x0c00);
    bench.disk.lose_writes();
    bench.command(&[0x1b, 0, 0, 0, 0, 0]).check(3, 0x0c00);
    bench.command(&FLUSH).good();
}

/// The initiator takes the error of its own write for that write's alone.
#[test]
fn a_stable_write_that_fails_tells_nothing_of_earlier_writes() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    bench.disk.fail(DeviceError::Unwritable(Lba(0)));
    stable_write(&mut bench).check(3, 0x0c00);
    bench.command(&FLUSH).check(3, 0x0c00);
    bench.command(&FLUSH).good();
}

/// A READ that fails is not taken for a word about writes.
#[test]
fn a_read_with_fua_leaves_it_to_the_next_flush() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    bench.command(&sixteen(0x88, 0x08, 0, 1)).good();
    bench.command(&FLUSH).check(3, 0x0c00);
}

#[test]
fn a_nexus_that_comes_later_is_not_told() {
    let mut bench = Bench::new();
    bench.disk.lose_writes();
    let mut later = bench.second();
    flush(&mut bench, &mut later).good();
    bench.command(&FLUSH).check(3, 0x0c00);
}

/// A session that was lost takes nothing from what its initiator has to hear: the same initiator port goes on with its writes
/// in the next one.
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
