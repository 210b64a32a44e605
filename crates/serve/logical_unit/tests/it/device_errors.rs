//! The sense data that initiators receive when the device fails.

use crate::support::*;
use block::{DeviceError, Lba};

#[test]
fn each_error_has_its_sense_data() {
    for (error, key, asc) in [
        (DeviceError::OutOfRange, 5, 0x2100),
        (DeviceError::ReadOnly, 7, 0x2700),
        (DeviceError::Unsupported, 5, 0x2000),
        (DeviceError::NoSpace, 7, 0x2707),
        (DeviceError::Unreadable(Lba(1)), 3, 0x1100),
        (DeviceError::Unwritable(Lba(1)), 3, 0x0c00),
        (DeviceError::NotReady, 2, 0x0401),
        (DeviceError::Reserved, 2, 0x0401),
        (DeviceError::TimedOut, 0xb, 0x2e02),
        (DeviceError::Cancelled, 0xb, 0x0006),
        (DeviceError::WritesLost, 3, 0x0c00),
        (DeviceError::Unsettled, 4, 0x4400),
    ] {
        let mut bench = Bench::new();
        bench.disk.fail(error);
        bench.send(&sized(0x2a, 0, 0, 1), &[0; 512]).check(key, asc);
        bench.send(&sized(0x2a, 0, 0, 1), &[0; 512]).good();
    }
}

#[test]
fn a_device_that_another_host_has_taken_over_is_out_of_service_for_good() {
    let mut bench = Bench::new();
    bench.disk.fail(DeviceError::Fenced);
    bench
        .send(&sized(0x2a, 0, 0, 1), &[0; 512])
        .check(2, 0x0403);
    // The unit now rejects commands without sending them to the device, and TEST UNIT READY also reports the
    // error.
    bench
        .send(&sized(0x2a, 0, 0, 1), &[0; 512])
        .check(2, 0x0403);
    bench.command(&[0; 6]).check(2, 0x0403);
    bench.command(&[0x12, 0, 0, 0, 36, 0]).good();
}

#[test]
fn a_block_that_cannot_be_read_is_named() {
    let mut bench = Bench::new();
    bench.disk.fail(DeviceError::Unreadable(Lba(0x234)));
    let answer = bench.command(&sized(0x28, 0, 0x230, 8)).check(3, 0x1100);
    assert_eq!(
        answer.sense.expect("checked").bytes()[..7],
        [0xf0, 0, 3, 0, 0, 2, 0x34]
    );
}

#[test]
fn an_error_in_the_middle_of_a_long_write_same_ends_it() {
    let mut bench = Bench::new();
    bench.disk.fail(DeviceError::NoSpace);
    bench
        .send(&sized(0x93, 0, 0, 4096), &[1; 512])
        .check(7, 0x2707);
}
