//! COMPARE AND WRITE.

use crate::support::*;
use logical_unit::{Data, Plan, Step};

fn halves(expected: u8, written: u8, blocks: usize) -> Vec<u8> {
    [vec![expected; blocks * 512], vec![written; blocks * 512]].concat()
}

#[test]
fn what_agrees_is_replaced() {
    for blocks in [1, 2, 255] {
        let mut bench = Bench::new();
        bench
            .send(
                &compare_and_write(0, blocks),
                &halves(0, 1, usize::from(blocks)),
            )
            .good();
        assert_eq!(
            bench.read(0, u32::from(blocks)),
            vec![1; usize::from(blocks) * 512]
        );
    }
}

#[test]
fn a_difference_leaves_everything_as_it_was_and_is_told_by_its_offset() {
    let mut bench = Bench::new();
    let mut data = halves(0, 1, 2);
    data[1024 - 27] = 7;
    let answer = bench
        .send(&compare_and_write(4, 2), &data)
        .check(0xe, 0x1d00);
    assert_eq!(
        answer.sense.expect("checked").bytes()[..7],
        [0xf0, 0, 0xe, 0, 0, 3, 0xe5]
    );
    assert_eq!(bench.read(4, 2), vec![0; 1024]);
}

#[test]
fn a_number_of_blocks_that_wrapped_to_zero_is_refused() {
    Bench::new()
        .send(&compare_and_write(0, 0), &halves(0, 0, 256))
        .invalid_field(13);
    Bench::new().send(&compare_and_write(0, 0), &[]).good();
}

#[test]
fn another_amount_of_data_than_twice_the_blocks_is_refused_before_any() {
    for offered in [0, 512, 1023, 1025, 2048] {
        Bench::new()
            .send(&compare_and_write(0, 1), &vec![0; offered])
            .check(5, 0x0e03);
    }
}

#[test]
fn beyond_end_and_protection() {
    let mut bench = Bench::new();
    bench
        .send(&compare_and_write(4095, 2), &halves(0, 0, 2))
        .out_of_range();
    bench
        .send(&compare_and_write(u64::MAX, 1), &halves(0, 0, 1))
        .out_of_range();
    let mut cdb = compare_and_write(0, 1);
    cdb[1] = 0x20;
    bench.send(&cdb, &halves(0, 0, 1)).invalid_field(1);
}

#[test]
fn fua_makes_it_stable() {
    let mut bench = Bench::new();
    let mut cdb = compare_and_write(0, 1);
    cdb[1] = 0x18;
    bench.send(&cdb, &halves(0, 3, 1)).good();
    assert_eq!(bench.disk.stable_byte(0), 3);
}

#[test]
fn it_waits_for_a_write_under_way_and_sees_all_of_it() {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory: true,
        ..DiskOptions::default()
    });
    let Plan::Receive(write) = bench.begin(&sized(0x2a, 0, 0, 1), 512, 0) else {
        panic!("a write receives")
    };
    let Plan::Receive(compare) = bench.begin(&compare_and_write(0, 1), 1024, 0) else {
        panic!("it receives");
    };
    let data = Data::Buffer(block::Buffer::from(&halves(6, 7, 1)[..]));
    let Step::Later(logical_unit::Running {
        reply: mut compared,
        ..
    }) = bench.unit.finish(compare.job, data)
    else {
        panic!("it needs the disk")
    };
    assert!(poll(&mut compared).is_none(), "the write has not ended");
    // While COMPARE AND WRITE runs, no other command overtakes it.
    assert!(matches!(
        bench.begin(&sized(0x28, 0, 0, 1), 0, 512),
        Plan::Run(_)
    ));

    let logical_unit::Landing::Memory(mut blocks) = write.place else {
        panic!("memory")
    };
    blocks.put(0, &[6; 512]);
    assert!(matches!(
        bench.unit.finish(write.job, Data::Placed),
        Step::Now(_)
    ));
    CommandResult::from_reply(poll(&mut compared).expect("nothing is in the way")).good();
    drop(compared);
    assert_eq!(bench.read(0, 1), vec![7; 512]);
}

#[test]
fn of_two_that_expect_the_same_one_wins() {
    let mut bench = Bench::new();
    let mut begin = |written: u8| {
        let Plan::Receive(receive) = bench.begin(&compare_and_write(0, 1), 1024, 0) else {
            panic!("receive")
        };
        let data = Data::Buffer(block::Buffer::from(&halves(0, written, 1)[..]));
        let Step::Later(logical_unit::Running { reply: future, .. }) =
            bench.unit.finish(receive.job, data)
        else {
            panic!("the disk")
        };
        future
    };
    let (mut first, mut second) = (begin(1), begin(2));
    CommandResult::from_reply(poll(&mut second).expect("free")).good();
    drop(second);
    CommandResult::from_reply(poll(&mut first).expect("free again")).check(0xe, 0x1d00);
}
