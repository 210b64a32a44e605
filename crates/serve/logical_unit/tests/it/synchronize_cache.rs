//! SYNCHRONIZE CACHE(10) and (16).

use crate::support::*;

const COMMANDS: [u8; 2] = [0x35, 0x91];

#[test]
fn any_blocks_there_are() {
    for opcode in COMMANDS {
        let mut bench = Bench::new();
        bench.command(&sized(opcode, 0, 0, 0)).good();
        bench.command(&sized(opcode, 0x02, 4095, 1)).good();
        bench.command(&sized(opcode, 0, 4095, 0)).good();
    }
}

#[test]
fn beyond_end() {
    for opcode in COMMANDS {
        let mut bench = Bench::new();
        bench.command(&sized(opcode, 0, 4095, 2)).out_of_range();
        bench.command(&sized(opcode, 0, 4097, 0)).out_of_range();
        bench.command(&sized(opcode, 0, u64::MAX, 1)).out_of_range();
    }
}

#[test]
fn what_was_acknowledged_is_stable_afterwards_with_immed_too() {
    for opcode in COMMANDS {
        for immed in [0, 0x02] {
            let mut bench = Bench::new();
            bench.write(7, &[3; 512]);
            assert_eq!(bench.disk.stable_byte(7), 0);
            bench.command(&sized(opcode, immed, 0, 0)).good();
            assert_eq!(bench.disk.stable_byte(7), 3);
        }
    }
}

#[test]
fn a_flush_that_fails_is_told() {
    let mut bench = Bench::new();
    bench.disk.fail(block::DeviceError::NoSpace);
    bench.command(&sized(0x35, 0, 0, 0)).check(7, 0x2707);
    // If a host waits for space and repeats the flush, the loss is reported to it.
    bench.command(&sized(0x35, 0, 0, 0)).check(3, 0x0c00);
    bench.command(&sized(0x35, 0, 0, 0)).good();
}
