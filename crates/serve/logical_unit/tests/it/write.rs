//! WRITE(6), (10), (12), (16).

use crate::support::*;
use logical_unit::{CommandIn, Data, Landing, Plan, Status, Step};

const WRITES: [u8; 3] = [0x2a, 0x8a, 0xaa];

#[test]
fn each_length_of_cdb_writes_the_blocks_it_names() {
    for in_memory in [false, true] {
        let mut bench = Bench::of_disk(DiskOptions {
            in_memory,
            ..DiskOptions::default()
        });
        for (number, opcode) in (1..).zip(WRITES) {
            bench.send(&sized(opcode, 0, 7, 2), &[number; 1024]).good();
            assert_eq!(
                bench.read(6, 4),
                [vec![0; 512], vec![number; 1024], vec![0; 512]].concat()
            );
        }
        bench.send(&six(0x0a, 7, 1), &[9; 512]).good();
        assert_eq!(bench.read(7, 1), vec![9; 512]);
    }
}

#[test]
fn write_6_of_zero_blocks_writes_256() {
    let mut bench = Bench::new();
    bench.send(&six(0x0a, 0, 0), &[1; 256 * 512]).good();
    assert_eq!(bench.read(255, 2), [[1; 512], [0; 512]].concat());
}

#[test]
fn beyond_end() {
    let mut bench = Bench::new();
    for opcode in WRITES {
        bench
            .send(&sized(opcode, 0, 4095, 2), &[1; 1024])
            .out_of_range();
        bench
            .send(&sized(opcode, 0, 4096, 1), &[1; 512])
            .out_of_range();
        bench
            .send(&sized(opcode, 0, u64::MAX, 1), &[1; 512])
            .out_of_range();
    }
    assert_eq!(bench.read(4095, 1), vec![0; 512]);
}

#[test]
fn zero_blocks() {
    let mut bench = Bench::new();
    for opcode in WRITES {
        bench.send(&sized(opcode, 0, 0, 0), &[]).good();
        bench.send(&sized(opcode, 0, 4097, 0), &[]).out_of_range();
    }
}

#[test]
fn protection_information_is_refused() {
    for protect in 1..8 {
        for opcode in WRITES {
            Bench::new()
                .send(&sized(opcode, protect << 5, 0, 1), &[0; 512])
                .invalid_field(1);
        }
    }
}

#[test]
fn a_write_is_cached_and_fua_makes_it_stable() {
    for in_memory in [false, true] {
        let mut bench = Bench::of_disk(DiskOptions {
            in_memory,
            ..DiskOptions::default()
        });
        bench.send(&sized(0x2a, 0x10, 0, 1), &[1; 512]).good();
        assert_eq!(bench.disk.stable_byte(0), 0);
        bench.send(&sized(0x2a, 0x08, 0, 1), &[2; 512]).good();
        assert_eq!(bench.disk.stable_byte(0), 2);
    }
}

#[test]
fn what_the_initiator_offers_too_little_of_is_written_as_far_as_it_goes() {
    for in_memory in [false, true] {
        let mut bench = Bench::of_disk(DiskOptions {
            in_memory,
            ..DiskOptions::default()
        });
        for (offered, written) in [(0, 0), (200, 0), (512, 512), (700, 512)] {
            bench.write(0, &[b'a'; 1024]);
            let answer = bench
                .send(&sized(0x2a, 0, 0, 2), &vec![b'b'; offered])
                .good();
            assert_eq!(answer.expected_bytes, 1024);
            let expected = [vec![b'b'; written], vec![b'a'; 1024 - written]].concat();
            assert_eq!(bench.read(0, 2), expected, "{offered} bytes offered");
        }
    }
}

#[test]
fn what_the_initiator_offers_too_much_of_is_not_asked_for() {
    let mut bench = Bench::new();
    let answer = bench.send(&sized(0x2a, 0, 0, 1), &[b'b'; 10_000]).good();
    assert_eq!(answer.expected_bytes, 512);
    assert_eq!(bench.read(0, 2), [[b'b'; 512], [0; 512]].concat());
}

#[test]
fn data_that_must_be_checked_first_do_not_land_on_the_medium() {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory: true,
        ..DiskOptions::default()
    });
    for (stage, direct) in [(false, true), (true, false)] {
        let cdb = sized(0x2a, 0, 0, 1);
        let command = CommandIn {
            cdb: &cdb,
            data_out_bytes: 512,
            data_in_bytes: 0,
            luns: &bench.luns,
            stage,
        };
        let Plan::Receive(receive) = bench.unit.begin(&mut bench.nexus, &command) else {
            panic!("a write receives");
        };
        assert_eq!(matches!(receive.place, Landing::Memory(_)), direct);
    }
}

#[test]
fn a_write_given_up_leaves_no_lock_behind() {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory: true,
        ..DiskOptions::default()
    });
    drop(bench.begin(&sized(0x2a, 0, 0, 1), 512, 0));
    bench.send(&compare_and_write(0, 1), &[0; 1024]).good();
}

#[test]
fn a_write_withdrawn_from_the_medium_makes_room_for_others_and_loses_nothing() {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory: true,
        ..DiskOptions::default()
    });
    let Plan::Receive(mut receive) = bench.begin(&sized(0x2a, 0, 0, 2), 1024, 0) else {
        panic!("a write receives");
    };
    let Landing::Memory(mut blocks) = receive.place else {
        panic!("onto the medium")
    };
    blocks.put(0, &[7; 700]); // the first block has arrived, most of the second is slow
    let mut rest = receive.job.withdraw(&blocks).expect("it was on the medium");
    assert_eq!(
        (blocks.rest_start(), rest.len()),
        (512, 512),
        "what has landed is not written again"
    );
    for (lba, found) in [(0, 7), (1, 0)] {
        bench
            .send(
                &compare_and_write(lba, 1),
                &[[found; 512], [9; 512]].concat(),
            )
            .good();
    }
    assert_eq!(rest[..188], [7; 188]);
    rest[188..].fill(8);
    let Step::Later(running) = bench.unit.finish(receive.job, Data::Buffer(rest)) else {
        panic!("a device writes")
    };
    assert_eq!(finish(running.reply).status, Status::Good);
    assert_eq!(
        bench.read(0, 2),
        [vec![9; 512], vec![7; 188], vec![8; 324]].concat()
    );
}
