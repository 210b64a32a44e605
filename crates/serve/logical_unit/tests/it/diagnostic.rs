//! SEND DIAGNOSTIC and RECEIVE DIAGNOSTIC RESULTS.

use block::DeviceError;

use crate::support::*;

const SELF_TEST: [u8; 6] = [0x1d, 0x04, 0, 0, 0, 0];
const FOREGROUND_SHORT: [u8; 6] = [0x1d, 0xa0, 0, 0, 0, 0];

#[test]
fn a_self_test_reads_from_the_device() {
    for cdb in [SELF_TEST, FOREGROUND_SHORT] {
        let mut bench = Bench::new();
        bench.command(&cdb).good();
        bench.disk.fail(DeviceError::Unreadable(block::Lba(7)));
        bench.command(&cdb).check(4, 0x3e03);
        bench.command(&cdb).good();
    }
}

#[test]
fn what_cannot_be_reached_cannot_be_tested() {
    let mut stopped = Bench::new();
    stopped.command(&start_stop(0)).good();
    stopped.command(&SELF_TEST).check(2, 0x0402);
}

/// Background and extended tests, and SELFTEST with a code (SPC-4 table 195).
#[test]
fn tests_that_are_not_there_are_refused() {
    for flags in [0x20, 0x40, 0x60, 0x80, 0xc0, 0xe0, 0xa4, 0x24] {
        Bench::new()
            .command(&[0x1d, flags, 0, 0, 0, 0])
            .invalid_field(1);
    }
    for flags in [0x04, 0xa0] {
        Bench::new()
            .send(&[0x1d, flags, 0, 0, 4, 0], &[0; 4])
            .invalid_field(3);
    }
}

#[test]
fn the_list_of_diagnostic_pages_can_be_asked_for() {
    let mut bench = Bench::new();
    bench.command(&[0x1d, 0, 0, 0, 0, 0]).good();
    bench.send(&[0x1d, 0x10, 0, 0, 4, 0], &[0; 4]).good();
    for cdb in [[0x1c, 0, 0, 0, 255, 0], [0x1c, 1, 0, 0, 255, 0]] {
        assert_eq!(bench.command(&cdb).good().data, [0, 0, 0, 1, 0]);
    }
    bench.command(&[0x1c, 1, 0x40, 0, 255, 0]).invalid_field(2);
    bench
        .send(&[0x1d, 0x10, 0, 0, 4, 0], &[0x40, 0, 0, 0])
        .check(5, 0x2600);
    bench
        .send(&[0x1d, 0x10, 0, 0, 8, 0], &[0; 8])
        .invalid_field(3);
    bench
        .send(&[0x1d, 0x10, 0, 0, 4, 0], &[0; 3])
        .check(5, 0x1a00);
}
