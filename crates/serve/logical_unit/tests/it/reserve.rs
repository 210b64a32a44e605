//! RESERVE and RELEASE.

use crate::support::*;

const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE: [u8; 6] = [0x17, 0, 0, 0, 0, 0];
const MODE_SENSE: [u8; 6] = [0x1a, 0, 0x3f, 0, 255, 0];

/// libiscsi Reserve6.2Initiators.
#[test]
fn the_holder_alone_has_access_until_it_releases() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.command(&RESERVE).good();
    bench.command(&RESERVE).good();
    bench.by(&mut other, &RESERVE).conflict();
    bench.by(&mut other, &RELEASE).good();
    bench.by(&mut other, &MODE_SENSE).conflict();
    bench.by(&mut other, &TEST_UNIT_READY).conflict();
    bench.by(&mut other, &sixteen(0x88, 0, 0, 1)).conflict();
    bench.by(&mut other, &inquiry(None, 36)).good();
    bench.by(&mut other, &[0x03, 0, 0, 0, 18, 0]).good();
    bench.command(&MODE_SENSE).good();
    bench.read(0, 1);
    bench.command(&RELEASE).good();
    bench.by(&mut other, &RESERVE).good();
}

#[test]
fn the_ten_byte_forms_are_the_same() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.command(&[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good();
    bench.by(&mut other, &RESERVE).conflict();
    bench.command(&[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good();
    bench.by(&mut other, &RESERVE).good();
}

#[test]
fn the_loss_of_the_nexus_releases() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.by(&mut other, &RESERVE).good();
    bench.command(&TEST_UNIT_READY).conflict();
    drop(other);
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn a_logical_unit_reset_releases() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.by(&mut other, &RESERVE).good();
    bench.unit.reset();
    bench.hear_attentions();
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn extents_and_third_parties_are_refused() {
    let mut bench = Bench::new();
    bench.command(&[0x16, 0x01, 0, 0, 0, 0]).invalid_field(1);
    bench
        .command(&[0x56, 0x10, 0, 0, 0, 0, 0, 0, 0, 0])
        .invalid_field(1);
}
