//! START STOP UNIT.

use crate::support::*;

const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 0x02, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 0x03, 0];
const STOP: [u8; 6] = [0x1b, 0, 0, 0, 0x00, 0];
const START: [u8; 6] = [0x1b, 0, 0, 0, 0x01, 0];

/// NOT READY, INITIALIZING COMMAND REQUIRED.
const STOPPED: (u8, u16) = (2, 0x0402);

/// Every command that needs the medium.
fn need_the_medium(bench: &mut Bench, (key, code): (u8, u16)) {
    bench.command(&TEST_UNIT_READY).check(key, code);
    for opcode in [
        0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x41, 0x42, 0x88, 0x8a, 0x8b, 0x89, 0x8e, 0x8f,
        0x90,
    ] {
        bench
            .send(&sized(opcode, 0xff, u64::MAX, 1), &[0; 512])
            .check(key, code);
    }
    bench.command(&get_lba_status(0, 24)).check(key, code);
}

fn removable() -> Bench {
    Bench::of_unit(|unit| unit.removable = true)
}

#[test]
fn an_ejected_medium_is_missed_by_every_command_that_needs_it() {
    let mut bench = removable();
    bench.command(&EJECT).good();
    need_the_medium(&mut bench, (2, 0x3a00));
    bench.command(&inquiry(None, 96)).good();
    bench.command(&LOAD).good();
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn ejecting_an_empty_drive_is_good() {
    let mut bench = removable();
    bench.command(&EJECT).good();
    bench.command(&EJECT).good();
    bench.command(&LOAD).good();
    bench.command(&LOAD).good();
}

#[test]
fn ejecting_flushes_first_unless_told_not_to() {
    let mut bench = removable();
    bench.write(0, &[1; 512]);
    bench.command(&start_stop(0x06)).good();
    assert_eq!(bench.disk.stable_byte(0), 0);
    bench.command(&LOAD).good();
    bench.command(&EJECT).good();
    assert_eq!(bench.disk.stable_byte(0), 1);
}

#[test]
fn a_loaded_medium_is_news_to_the_other_initiators() {
    let mut bench = removable();
    let mut other = bench.second();
    bench.command(&EJECT).good();
    bench.by(&mut other, &TEST_UNIT_READY).check(2, 0x3a00);
    bench.command(&LOAD).good();
    bench.by(&mut other, &TEST_UNIT_READY).check(6, 0x2800);
    bench.by(&mut other, &TEST_UNIT_READY).good();
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn a_power_condition_ejects_nothing() {
    let mut bench = removable();
    for condition in 1..16 {
        bench.command(&start_stop(condition << 4 | 0x02)).good();
        bench.command(&TEST_UNIT_READY).good();
    }
}

/// SBC-3 5.25 and 4.20: the unit is in the stopped power condition until a START STOP UNIT with START = 1.
#[test]
fn a_stopped_unit_refuses_every_command_that_needs_the_medium_until_it_is_started() {
    for in_memory in [false, true] {
        let mut bench = Bench::of_disk(DiskOptions {
            in_memory,
            ..DiskOptions::default()
        });
        let mut other = bench.second();
        bench.write(0, &[1; 512]);
        bench.command(&STOP).good();
        need_the_medium(&mut bench, STOPPED);
        bench
            .by(&mut other, &sixteen(0x88, 0, 0, 1))
            .check(STOPPED.0, STOPPED.1);
        bench.by(&mut other, &inquiry(None, 96)).good();
        bench.by(&mut other, &[0x1a, 0, 0x3f, 0, 255, 0]).good();
        let sense = bench.command(&[0x03, 0, 0, 0, 18, 0]).good().data;
        assert_eq!((sense[2], &sense[12..14]), (2, &[0x04, 0x02][..]));
        bench.by(&mut other, &START).good();
        assert_eq!(bench.read(0, 1), [1; 512]);
    }
}

#[test]
fn stopping_flushes_first_unless_told_not_to() {
    let mut bench = Bench::new();
    bench.write(0, &[1; 512]);
    bench.command(&start_stop(0x04)).good();
    bench.command(&TEST_UNIT_READY).check(STOPPED.0, STOPPED.1);
    assert_eq!(bench.disk.stable_byte(0), 0);
    bench.command(&START).good();
    bench.command(&STOP).good();
    assert_eq!(bench.disk.stable_byte(0), 1);
}

#[test]
fn a_unit_whose_cache_cannot_be_flushed_does_not_stop() {
    let mut bench = Bench::new();
    bench.disk.fail(block::DeviceError::WritesLost);
    bench.command(&STOP).check(3, 0x0c00);
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn a_reset_starts_a_stopped_unit() {
    let mut bench = Bench::new();
    bench.command(&STOP).good();
    bench.unit.reset();
    bench.command(&TEST_UNIT_READY).check(6, 0x2903);
    bench.command(&TEST_UNIT_READY).good();
}

/// ACTIVE, IDLE and STANDBY are power conditions that end the stopped one; the others concern timers.
#[test]
fn a_power_condition_starts_a_stopped_unit_if_it_is_one_of_a_running_unit() {
    for condition in 1..16 {
        let mut bench = Bench::new();
        bench.command(&STOP).good();
        bench.command(&start_stop(condition << 4)).good();
        let answer = bench.command(&TEST_UNIT_READY);
        match condition {
            1..=3 => drop(answer.good()),
            _ => drop(answer.check(STOPPED.0, STOPPED.1)),
        }
    }
}

/// libiscsi's StartStopUnit.NoLoej.
#[test]
fn a_removable_medium_is_flushed_and_stays_ready() {
    let mut bench = removable();
    bench.write(0, &[1; 512]);
    for bits in [0x04, 0x05, 0x01] {
        bench.command(&start_stop(bits)).good();
        bench.command(&TEST_UNIT_READY).good();
    }
    assert_eq!(bench.disk.stable_byte(0), 0);
    bench.command(&STOP).good();
    assert_eq!(bench.disk.stable_byte(0), 1);
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn a_fixed_medium_cannot_be_ejected() {
    Bench::new().command(&EJECT).invalid_field(4);
    Bench::new().command(&LOAD).invalid_field(4);
}
