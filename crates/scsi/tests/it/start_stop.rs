//! START STOP UNIT.

use crate::support::*;

const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 0x02, 0];
const LOAD: [u8; 6] = [0x1b, 0, 0, 0, 0x03, 0];

fn removable() -> Bench {
    Bench::of_unit(|unit| unit.removable = true)
}

#[test]
fn an_ejected_medium_is_missed_by_every_command_that_needs_it() {
    let mut bench = removable();
    bench.command(&EJECT).good();
    bench.command(&TEST_UNIT_READY).check(2, 0x3a00);
    for opcode in
        [0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x41, 0x42, 0x88, 0x8a, 0x8b, 0x89, 0x8e, 0x8f, 0x90]
    {
        bench.send(&sized(opcode, 0xff, u64::MAX, 1), &[0; 512]).check(2, 0x3a00);
    }
    bench.command(&get_lba_status(0, 24)).check(2, 0x3a00);
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

#[test]
fn stopping_leaves_the_medium_where_it_is_and_flushes() {
    let mut bench = removable();
    bench.write(0, &[1; 512]);
    for bits in [0x04, 0x05, 0x01] {
        bench.command(&start_stop(bits)).good();
        bench.command(&TEST_UNIT_READY).good();
    }
    assert_eq!(bench.disk.stable_byte(0), 0);
    bench.command(&start_stop(0)).good();
    assert_eq!(bench.disk.stable_byte(0), 1);
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn a_fixed_medium_cannot_be_ejected() {
    Bench::new().command(&EJECT).invalid_field(4);
    Bench::new().command(&LOAD).invalid_field(4);
}
