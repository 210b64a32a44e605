//! VERIFY(10), (12), (16).

use crate::support::*;

const VERIFIES: [u8; 3] = [0x2f, 0x8f, 0xaf];
const DATA: u8 = 0x02;
const ONE_BLOCK: u8 = 0x06;

#[test]
fn data_that_agree() {
    let mut bench = Bench::new();
    bench.write(10, &pattern(3, 512));
    for opcode in VERIFIES {
        bench
            .send(&sized(opcode, DATA, 10, 3), &pattern(3, 512))
            .good();
    }
}

#[test]
fn a_difference_is_a_miscompare_at_its_offset() {
    let mut bench = Bench::new();
    bench.write(10, &pattern(3, 512));
    let mut data = pattern(3, 512);
    data[1024 + 27] ^= 1;
    for opcode in VERIFIES {
        let answer = bench
            .send(&sized(opcode, DATA, 10, 3), &data)
            .check(0xe, 0x1d00);
        let sense = answer.sense.expect("checked");
        assert_eq!(sense.bytes()[0], 0xf0, "VALID");
        assert_eq!(sense.bytes()[3..7], (1024u32 + 27).to_be_bytes());
    }
}

#[test]
fn without_byte_check_nothing_is_compared_or_received() {
    for opcode in VERIFIES {
        Bench::new()
            .send(&sized(opcode, 0, 0, 4), &[0xff; 2048])
            .good();
    }
}

#[test]
fn one_block_for_all() {
    let mut bench = Bench::new();
    bench.write(0, &[5; 512 * 4]);
    bench.send(&sized(0x2f, ONE_BLOCK, 0, 4), &[5; 512]).good();
    let answer = bench
        .send(&sized(0x2f, ONE_BLOCK, 0, 5), &[5; 512])
        .check(0xe, 0x1d00);
    assert_eq!(
        answer.sense.expect("checked").bytes()[3..7],
        2048u32.to_be_bytes()
    );
}

#[test]
fn one_block_for_more_than_is_held_in_memory() {
    let mut bench = Bench::of_disk(DiskOptions {
        blocks: 3 << 11,
        ..DiskOptions::default()
    });
    bench
        .send(&sized(0x8f, ONE_BLOCK, 0, 3 << 11), &[0; 512])
        .good();
    bench.write((3 << 11) - 1, &[1; 512]);
    let answer = bench
        .send(&sized(0x8f, ONE_BLOCK, 0, 3 << 11), &[0; 512])
        .check(0xe, 0x1d00);
    assert_eq!(
        answer.sense.expect("checked").bytes()[3..7],
        (512u32 * ((3 << 11) - 1)).to_be_bytes()
    );
}

#[test]
fn byte_check_2_is_reserved() {
    for opcode in VERIFIES {
        Bench::new()
            .send(&sized(opcode, 0x04, 0, 1), &[0; 512])
            .invalid_field(1);
    }
}

#[test]
fn beyond_end() {
    let mut bench = Bench::new();
    for opcode in VERIFIES {
        for flags in [0, DATA, ONE_BLOCK] {
            bench
                .send(&sized(opcode, flags, 4095, 2), &[0; 1024])
                .out_of_range();
            bench
                .send(&sized(opcode, flags, u64::MAX, 2), &[0; 1024])
                .out_of_range();
        }
    }
}

#[test]
fn zero_blocks() {
    let mut bench = Bench::new();
    for opcode in VERIFIES {
        bench.send(&sized(opcode, DATA, 0, 0), &[]).good();
        bench
            .send(&sized(opcode, DATA, 4097, 0), &[])
            .out_of_range();
    }
}

#[test]
fn protection_information_is_refused() {
    for opcode in VERIFIES {
        Bench::new()
            .send(&sized(opcode, 0x20 | DATA, 0, 1), &[0; 512])
            .invalid_field(1);
    }
}

#[test]
fn what_is_not_offered_is_not_compared() {
    let mut bench = Bench::new();
    bench.write(1, &[1; 512]);
    assert_eq!(
        bench
            .send(&sized(0x2f, DATA, 0, 2), &[0; 512])
            .good()
            .expected_bytes,
        1024
    );
    bench.send(&sized(0x2f, DATA, 0, 2), &[]).good();
}

#[test]
fn a_block_that_cannot_be_read_is_found() {
    let mut bench = Bench::new();
    bench
        .disk
        .fail(block::DeviceError::Unreadable(block::Lba(3)));
    bench.command(&sized(0x2f, 0, 0, 8)).check(3, 0x1100);
}
