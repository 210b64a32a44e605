//! PRE-FETCH(10) and (16).

use crate::support::*;

const COMMANDS: [u8; 2] = [0x34, 0x90];

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
