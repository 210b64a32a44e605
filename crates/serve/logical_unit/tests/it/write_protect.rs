//! A write-protected volume.

use crate::support::*;

const WRITERS: [u8; 14] = [
    0x2a, 0x2e, 0x41, 0x42, 0x89, 0x8a, 0x8b, 0x8e, 0x93, 0x9c, 0xaa, 0xae, 0x0a, 0x0a,
];

#[test]
fn every_command_that_writes_is_refused_before_its_data_are_asked_for() {
    let of_unit = || Bench::read_only();
    let of_disk = || {
        Bench::of_disk(DiskOptions {
            read_only: true,
            ..DiskOptions::default()
        })
    };
    for mut bench in [of_unit(), of_disk()] {
        for opcode in WRITERS {
            bench
                .send(&sized(opcode, 0, u64::MAX, 1), &[0; 512])
                .check(7, 0x2700);
        }
        bench.command(&sized(0x28, 0, 0, 1)).good();
        bench.command(&sized(0x35, 0, 0, 0)).good();
    }
}
