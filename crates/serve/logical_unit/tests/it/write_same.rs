//! WRITE SAME(10) and (16).

use crate::support::*;

const WRITE_SAMES: [u8; 2] = [0x41, 0x93];
const UNMAP: u8 = 0x08;
const ANCHOR: u8 = 0x10;
const NDOB: u8 = 0x01;

fn filled() -> Bench {
    let mut bench = Bench::new();
    bench.write(0, &[0xff; 16 * 512]);
    bench
}

fn status(bench: &mut Bench, lba: u64) -> u8 {
    bench.command(&get_lba_status(lba, 24)).good().data[20]
}

#[test]
fn one_block_many_times() {
    for opcode in WRITE_SAMES {
        let mut bench = filled();
        bench.send(&sized(opcode, 0, 2, 3), &pattern(1, 512)).good();
        assert_eq!(
            bench.read(1, 5),
            [[0xff; 512], [1; 512], [1; 512], [1; 512], [0xff; 512]].concat()
        );
    }
}

#[test]
fn more_blocks_than_one_piece() {
    let mut bench = Bench::of_disk(DiskOptions {
        blocks: 5000,
        ..DiskOptions::default()
    });
    let block: Vec<u8> = (0..512).map(|byte| byte as u8).collect();
    bench.send(&sized(0x93, 0, 1, 4998), &block).good();
    assert_eq!(
        bench.read(4997, 3),
        [&block[..], &block, &[0; 512]].concat()
    );
}

/// Tests a unit whose WSNZ is zero (VPD page B0h; SBC-4 5.50 and 6.6.4).
#[test]
fn zero_blocks_are_all_to_the_end_where_nothing_is_unmapped() {
    for opcode in WRITE_SAMES {
        let options = DiskOptions {
            thin: false,
            blocks: 100,
            ..DiskOptions::default()
        };
        let mut bench = Bench::of_disk(options);
        assert_eq!(bench.command(&inquiry(Some(0xb0), 64)).good().data[4], 0);
        bench.send(&sized(opcode, 0, 97, 0), &[7; 512]).good();
        assert_eq!(
            bench.read(96, 4),
            [[0; 512], [7; 512], [7; 512], [7; 512]].concat()
        );
        bench
            .send(&sized(opcode, 0, 101, 0), &[7; 512])
            .check(5, 0x2100);
    }
}

/// Tests a unit whose WSNZ is one (VPD page B0h; SBC-4 5.50 and 6.6.4).
#[test]
fn zero_blocks_are_refused() {
    for opcode in WRITE_SAMES {
        for flags in [0, UNMAP] {
            let mut bench = filled();
            let length_at = if opcode == 0x41 { 7 } else { 10 };
            bench
                .send(&sized(opcode, flags, 3, 0), &[0; 512])
                .invalid_field(length_at);
            assert_eq!(bench.read(3, 1), [0xff; 512]);
        }
    }
}

#[test]
fn unmap_gives_zeros_back_their_space() {
    for opcode in WRITE_SAMES {
        let mut bench = filled();
        bench.send(&sized(opcode, UNMAP, 3, 2), &[0; 512]).good();
        assert_eq!(
            bench.read(2, 4),
            [[0xff; 512], [0; 512], [0; 512], [0xff; 512]].concat()
        );
        assert_eq!(
            [2, 3, 4, 5].map(|lba| status(&mut bench, lba)),
            [0, 1, 1, 0]
        );
    }
}

/// UNMAP is a hint: "subsequent read operations behave as if the device server wrote the single block of user
/// data received from the Data-Out Buffer to each logical block" (SBC-3 5.43, SBC-4 5.50).
#[test]
fn data_other_than_zeros_are_written_whether_or_not_the_blocks_may_be_unmapped() {
    for opcode in WRITE_SAMES {
        for in_memory in [false, true] {
            let mut bench = Bench::of_disk(DiskOptions {
                in_memory,
                ..DiskOptions::default()
            });
            bench.send(&sized(opcode, UNMAP, 3, 2), &[7; 512]).good();
            assert_eq!(
                bench.read(2, 4),
                [[0; 512], [7; 512], [7; 512], [0; 512]].concat()
            );
            assert_eq!(
                [2, 3, 4, 5].map(|lba| status(&mut bench, lba)),
                [1, 0, 0, 1]
            );
        }
    }
}

#[test]
fn without_unmap_zeros_keep_their_space() {
    let mut bench = filled();
    bench.send(&sized(0x93, 0, 3, 1), &[0; 512]).good();
    assert_eq!((status(&mut bench, 3), bench.read(3, 1)), (0, vec![0; 512]));
}

#[test]
fn without_a_data_out_buffer_the_blocks_become_zeros() {
    let mut bench = filled();
    bench.send(&sized(0x93, NDOB | UNMAP, 3, 1), &[]).good();
    bench.send(&sized(0x93, NDOB, 4, 1), &[]).good();
    assert_eq!(bench.read(3, 2), vec![0; 1024]);
    assert_eq!([3, 4].map(|lba| status(&mut bench, lba)), [1, 0]);
}

#[test]
fn write_same_10_knows_no_ndob() {
    Bench::new()
        .send(&sized(0x41, NDOB, 0, 1), &[])
        .check(5, 0x0e03);
}

#[test]
fn another_amount_of_data_than_one_block_is_refused() {
    for opcode in WRITE_SAMES {
        for offered in [0, 256, 1024] {
            Bench::new()
                .send(&sized(opcode, 0, 0, 4), &vec![0; offered])
                .check(5, 0x0e03);
        }
    }
    Bench::new()
        .send(&sized(0x93, NDOB, 0, 4), &[0; 512])
        .check(5, 0x0e03);
}

#[test]
fn flags_that_we_do_not_support_are_refused() {
    for opcode in WRITE_SAMES {
        for flags in [ANCHOR, ANCHOR | UNMAP, 0x04, 0x02, 0x20] {
            Bench::new()
                .send(&sized(opcode, flags, 0, 1), &[0; 512])
                .invalid_field(1);
        }
    }
    Bench::of_unit(|unit| unit.thin = Some(false))
        .send(&sized(0x41, UNMAP, 0, 1), &[0; 512])
        .invalid_field(1);
}

#[test]
fn more_than_the_maximum_write_same_length_is_refused() {
    let disk = DiskOptions {
        claimed_blocks: Some((1 << 20) + 1),
        ..DiskOptions::default()
    };
    let mut bench = Bench::of_disk(disk);
    bench
        .send(&sized(0x93, NDOB | UNMAP, 0, (1 << 20) + 1), &[])
        .invalid_field(10);
}

#[test]
fn beyond_end() {
    for opcode in WRITE_SAMES {
        Bench::new()
            .send(&sized(opcode, 0, 4095, 2), &[0; 512])
            .out_of_range();
    }
}
