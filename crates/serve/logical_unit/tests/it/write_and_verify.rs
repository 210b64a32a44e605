//! WRITE AND VERIFY(10), (12), (16).

use crate::support::*;

const COMMANDS: [u8; 3] = [0x2e, 0x8e, 0xae];

#[test]
fn the_blocks_are_written_and_stable() {
    let mut bench = Bench::new();
    for (number, opcode) in (1..).zip(COMMANDS) {
        for flags in [0, 0x02] {
            bench
                .send(&sized(opcode, flags, 5, 2), &[number; 1024])
                .good();
            assert_eq!(bench.read(5, 2), vec![number; 1024]);
            assert_eq!(bench.disk.stable_byte(6), number);
        }
    }
}

#[test]
fn byte_check_of_2_and_3_is_reserved() {
    for opcode in COMMANDS {
        Bench::new()
            .send(&sized(opcode, 0x04, 0, 1), &[0; 512])
            .invalid_field(1);
        Bench::new()
            .send(&sized(opcode, 0x06, 0, 1), &[0; 512])
            .invalid_field(1);
    }
}

#[test]
fn beyond_end_zero_blocks_and_protection() {
    let mut bench = Bench::new();
    for opcode in COMMANDS {
        bench
            .send(&sized(opcode, 0, 4095, 2), &[0; 1024])
            .out_of_range();
        bench.send(&sized(opcode, 0, 0, 0), &[]).good();
        bench.send(&sized(opcode, 0, 4097, 0), &[]).out_of_range();
        bench
            .send(&sized(opcode, 0xe0, 0, 1), &[0; 512])
            .invalid_field(1);
    }
}

#[test]
fn what_is_offered_is_written() {
    let mut bench = Bench::new();
    assert_eq!(
        bench
            .send(&sized(0x2e, 0x02, 0, 2), &[1; 700])
            .good()
            .expected_bytes,
        1024
    );
    assert_eq!(bench.read(0, 2), [[1; 512], [0; 512]].concat());
}
