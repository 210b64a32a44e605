//! READ(6), (10), (12), (16).

use crate::support::*;
use block::BlockSize;

const READS: [u8; 3] = [0x28, 0x88, 0xa8];

fn patterned(in_memory: bool) -> Bench {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory,
        ..DiskOptions::default()
    });
    bench.write(0, &pattern(300, 512));
    bench
}

#[test]
fn each_length_of_cdb_reads_the_blocks_it_names() {
    for in_memory in [false, true] {
        let mut bench = patterned(in_memory);
        for opcode in READS {
            let answer = bench.command(&sized(opcode, 0, 3, 2)).good();
            assert_eq!(answer.data, pattern(300, 512)[3 * 512..5 * 512]);
            assert_eq!(answer.expected_bytes, 1024);
        }
        assert_eq!(
            bench.command(&six(0x08, 299, 1)).good().data,
            pattern(300, 512)[299 * 512..]
        );
    }
}

#[test]
fn read_6_of_zero_blocks_reads_256() {
    assert_eq!(
        patterned(false).command(&six(0x08, 0, 0)).good().data.len(),
        256 * 512
    );
}

#[test]
fn beyond_end() {
    let mut bench = Bench::new();
    for opcode in READS {
        bench.command(&sized(opcode, 0, 4095, 2)).out_of_range();
        bench.command(&sized(opcode, 0, 4096, 1)).out_of_range();
        bench.command(&sized(opcode, 0, u64::MAX, 2)).out_of_range();
    }
    bench.command(&six(0x08, 4095, 2)).out_of_range();
}

#[test]
fn zero_blocks() {
    let mut bench = Bench::new();
    for opcode in READS {
        assert!(
            bench
                .command(&sized(opcode, 0, 0, 0))
                .good()
                .data
                .is_empty()
        );
        bench.command(&sized(opcode, 0, 4097, 0)).out_of_range();
        bench.command(&sized(opcode, 0, u64::MAX, 0)).out_of_range();
    }
}

#[test]
fn protection_information_is_refused() {
    for protect in 1..8 {
        for opcode in READS {
            Bench::new()
                .command(&sized(opcode, protect << 5, 0, 1))
                .invalid_field(1);
        }
    }
}

#[test]
fn dpo_and_fua_read_the_same() {
    let mut bench = patterned(true);
    for flags in [0x10, 0x08, 0x18] {
        assert_eq!(
            bench.command(&sized(0x28, flags, 1, 1)).good().data,
            vec![2; 512]
        );
    }
}

#[test]
fn fua_brings_what_is_cached_to_the_medium_first() {
    let mut bench = patterned(false);
    bench.command(&sized(0x28, 0x08, 0, 1)).good();
    assert_eq!(bench.disk.stable_byte(0), 1);
}

#[test]
fn more_than_the_maximum_transfer_length_is_refused() {
    let claimed_blocks = Some(1 << 20);
    let mut bench = Bench::of_disk(DiskOptions {
        claimed_blocks,
        ..DiskOptions::default()
    });
    assert!(matches!(
        bench.begin(&sized(0x88, 0, 0, 65_536), 0, u32::MAX),
        logical_unit::Plan::Run(_)
    ));
    bench.command(&sized(0x88, 0, 0, 65_537)).invalid_field(10);
    bench.command(&sized(0xa8, 0, 0, 65_537)).invalid_field(6);
}

#[test]
fn an_initiator_without_room_gets_what_fits_and_learns_of_the_rest() {
    for in_memory in [false, true] {
        let mut bench = patterned(in_memory);
        for (room, got) in [(0, 0), (200, 200), (512, 512), (700, 700), (10_000, 1024)] {
            let answer = bench.exchange(&sized(0x28, 0, 0, 2), &[], room).good();
            assert_eq!((answer.data.len(), answer.expected_bytes), (got, 1024));
            assert_eq!(answer.data, pattern(2, 512)[..got]);
        }
    }
}

#[test]
fn naca_is_refused() {
    let mut cdb = sized(0x28, 0, 0, 1);
    cdb[9] = 4;
    Bench::new().command(&cdb).invalid_field(9);
}

#[test]
fn blocks_of_4096_bytes() {
    let disk = DiskOptions {
        block_size: BlockSize::B4096,
        blocks: 16,
        ..DiskOptions::default()
    };
    let mut bench = Bench::of_disk(disk);
    bench.write(15, &[9; 4096]);
    assert_eq!(bench.read(15, 1), vec![9; 4096]);
    bench.command(&sized(0x28, 0, 16, 1)).out_of_range();
}

#[test]
fn a_cut_cdb_is_no_panic() {
    for length in 0..16 {
        Bench::new().command(&sixteen(0x88, 0, 0, 1)[..length]);
    }
}
