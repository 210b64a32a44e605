//! EXTENDED COPY and RECEIVE COPY RESULTS.

use std::sync::Arc;

use block::{BlockSize, DeviceError};
use logical_unit::{Data, LogicalUnit, Plan, SiblingUnits, Step};

use crate::support::*;

/// The other logical unit at the target.
struct Pair(Arc<LogicalUnit>);

impl SiblingUnits for Pair {
    fn luns(&self) -> Vec<u64> {
        vec![0, 1 << 48]
    }

    fn by_designator(&self, designator: &[u8]) -> Option<Arc<LogicalUnit>> {
        self.0
            .identity()
            .has_designator(designator)
            .then(|| Arc::clone(&self.0))
    }

    fn luns_reported(&self) {}
}

fn pair(disk: DiskOptions) -> (Bench, Bench) {
    let mut options = unit_options();
    options.identity = logical_unit::Identity::new([7; 16]);
    let other = Bench::with(disk, options);
    let mut bench = Bench::new();
    bench.luns = Arc::new(Pair(Arc::clone(&other.unit)));
    (bench, other)
}

fn target(bench: &Bench) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    bytes[0] = 0xe4;
    bytes[7] = 8;
    bytes[8..16].copy_from_slice(&bench.unit.identity().naa());
    bytes[29..32].copy_from_slice(&(bench.block_bytes() as u32).to_be_bytes()[1..]);
    bytes
}

/// Creates a segment that copies `blocks` blocks from LBA `lbas.0` of target `ends.0` to LBA `lbas.1` of
/// target `ends.1`.
fn segment(ends: (u16, u16), blocks: u16, lbas: (u64, u64)) -> Vec<u8> {
    let mut bytes = vec![0x02, 0, 0, 24];
    bytes.extend(ends.0.to_be_bytes());
    bytes.extend(ends.1.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(blocks.to_be_bytes());
    bytes.extend(lbas.0.to_be_bytes());
    bytes.extend(lbas.1.to_be_bytes());
    bytes
}

fn copy(bench: &mut Bench, usage: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> CommandResult {
    let list = list_of(if usage == 3 { 0 } else { 1 }, usage, targets, segments);
    bench.send(&cdb(0x83, 0, list.len() as u32), &list)
}

fn list_of(id: u8, usage: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (targets, segments) = (targets.concat(), segments.concat());
    let mut list = vec![id, usage << 3];
    list.extend((targets.len() as u16).to_be_bytes());
    list.extend([0; 4]);
    list.extend((segments.len() as u32).to_be_bytes());
    list.extend([0; 4]);
    list.extend(targets);
    list.extend(segments);
    list
}

/// The number of bytes that a copy transfers in one piece.
const PIECE: usize = 1 << 20;

fn cdb(opcode: u8, action: u8, length: u32) -> [u8; 16] {
    sixteen(opcode, action, 0, length)
}

fn copy_status(id: u8) -> [u8; 16] {
    let mut status = cdb(0x84, 0, 255);
    status[2] = id;
    status
}

#[test]
fn blocks_go_from_one_end_of_the_unit_to_the_other() {
    let mut bench = Bench::new();
    let data = pattern(2048, 512);
    bench.write(0, &data);
    let targets = [target(&bench)];
    copy(&mut bench, 2, &targets, &[segment((0, 0), 2048, (0, 2048))]).good();
    assert_eq!(bench.read(2048, 2048), data);
    bench.command(&copy_status(1)).invalid_field(2);
}

#[test]
fn blocks_go_to_another_unit_with_other_blocks() {
    let (mut bench, mut other) = pair(DiskOptions {
        block_size: BlockSize::B4096,
        ..DiskOptions::default()
    });
    let data = pattern(16, 512);
    bench.write(8, &data);
    let targets = [target(&bench), target(&other)];
    copy(&mut bench, 0, &targets, &[segment((0, 1), 16, (8, 5))]).good();
    assert_eq!(other.read(5, 2), data);
    let inexact = [segment((0, 1), 9, (8, 5))];
    copy(&mut bench, 0, &targets, &inexact).check(0xa, 0x260a);
}

#[test]
fn what_was_copied_can_be_asked_for() {
    let mut bench = Bench::new();
    bench.command(&copy_status(1)).invalid_field(2);
    let targets = [target(&bench)];
    copy(
        &mut bench,
        0,
        &targets,
        &vec![segment((0, 0), 8, (0, 8)); 2],
    )
    .good();
    let expected = [0, 0, 0, 8, 1, 0, 2, 0, 0, 0, 0x20, 0];
    assert_eq!(bench.command(&copy_status(1)).good().data, expected);
    copy(&mut bench, 3, &targets, &[segment((0, 0), 8, (0, 8))]).good();
    bench.command(&copy_status(0)).invalid_field(2);
}

#[test]
fn operating_parameters_are_cut_at_the_allocation_length() {
    let mut bench = Bench::new();
    let whole = bench.command(&cdb(0x84, 3, 255)).good().data;
    assert_eq!(whole.len(), 46);
    assert_eq!(bench.command(&cdb(0x84, 3, 10)).good().data, whole[..10]);
}

/// The destination is the command's own unit, then another unit, which accepts the copy when the copy starts.
#[test]
fn a_destination_that_is_formatted_during_a_copy_stays_empty() {
    for own in [true, false] {
        let (mut bench, mut other) = pair(DiskOptions::default());
        let pieces = pattern(4096, 512);
        bench.write(0, &pieces);
        let targets = [target(&bench), target(&other)];
        let list = list_of(
            1,
            2,
            &targets,
            &[segment((0, u16::from(!own)), 4000, (0, 96))],
        );
        let mut copying = bench.start(&cdb(0x83, 0, list.len() as u32), &list);
        let formatted = if own { &mut bench } else { &mut other };
        let Plan::Run(job) = formatted.begin(&[0x04, 0, 0, 0, 0, 0], 0, 0) else {
            panic!("it runs")
        };
        let Step::Lasting { mut work, .. } = formatted.unit.finish(job, Data::None) else {
            panic!("it lasts")
        };
        assert!(
            poll(&mut work).is_none(),
            "the copy has the first piece locked"
        );
        assert!(
            poll(&mut copying.reply).is_none(),
            "and waits for the second"
        );
        finish(work);
        CommandResult::from_reply(finish(copying.reply)).check(0xa, 0x0d01);
        assert_eq!(formatted.read(0, 4096), vec![0; 4096 * 512]);
    }
}

/// libiscsi ExtendedCopy.ValidSegDescr and ValidTgtDescr.
#[test]
fn an_end_that_is_not_there_aborts_the_copy() {
    let mut bench = Bench::new();
    let mut nobody = target(&bench);
    nobody[1] |= 0x20;
    let mut stranger = target(&bench);
    stranger[8] ^= 1;
    let targets = [target(&bench), nobody, stranger];
    for end in [1, 2, 3, 0xffff] {
        copy(&mut bench, 0, &targets, &[segment((0, end), 8, (0, 8))]).check(0xa, 0x0804);
    }
    copy(&mut bench, 0, &targets, &[segment((0, 0), 8, (0, 4089))]).check(0xa, 0);
    copy(
        &mut bench,
        0,
        &targets,
        &[segment((0, 0), 8, (u64::MAX, 0))],
    )
    .check(0xa, 0);
}

#[test]
fn nothing_is_copied_if_one_segment_cannot_be() {
    let mut bench = Bench::new();
    bench.write(0, &[9; 512]);
    let targets = [target(&bench)];
    let segments = [segment((0, 0), 1, (0, 1)), segment((0, 5), 1, (0, 2))];
    copy(&mut bench, 0, &targets, &segments).check(0xa, 0x0804);
    assert_eq!(bench.read(1, 1), [0; 512]);
}

#[test]
fn a_unit_of_other_blocks_than_the_initiator_thinks_is_not_written() {
    let mut bench = Bench::new();
    let mut wrong = target(&bench);
    wrong[29..32].copy_from_slice(&[0, 0x10, 0]);
    copy(&mut bench, 0, &[wrong], &[segment((0, 0), 1, (0, 1))]).check(5, 0x2600);
}

#[test]
fn a_reservation_at_the_destination_holds_for_copies_too() {
    let (mut bench, mut other) = pair(DiskOptions::default());
    let mut holder = other.second();
    let reserve_out = |action, kind| [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let list = |first: u8, second: u8| {
        let mut list = [0; 24];
        (list[7], list[15]) = (first, second);
        list
    };
    other
        .send_by(&mut holder, &reserve_out(6, 0), &list(0, 5))
        .good();
    other
        .send_by(&mut holder, &reserve_out(1, 1), &list(5, 0))
        .good();
    let targets = [target(&bench), target(&other)];
    copy(&mut bench, 0, &targets, &[segment((0, 1), 8, (0, 0))]).conflict();
    copy(&mut bench, 0, &targets, &[segment((1, 0), 8, (0, 0))]).good();
}

#[test]
fn a_protected_destination_is_not_written() {
    let (mut bench, other) = pair(DiskOptions {
        read_only: true,
        ..DiskOptions::default()
    });
    let targets = [target(&bench), target(&other)];
    copy(&mut bench, 0, &targets, &[segment((0, 1), 8, (0, 0))]).check(7, 0x2700);
}

#[test]
fn an_end_that_fails_ends_the_copy_with_errors() {
    let mut bench = Bench::new();
    let targets = [target(&bench)];
    bench.disk.fail(DeviceError::TimedOut);
    copy(&mut bench, 0, &targets, &[segment((0, 0), 8, (0, 8))]).check(0xa, 0x0d01);
    assert_eq!(bench.command(&copy_status(1)).good().data[4], 2);
}

#[test]
fn a_copy_whose_command_is_given_up_has_ended_with_errors() {
    let mut bench = Bench::new();
    let targets = target(&bench);
    let mut list = vec![1, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend(targets);
    list.extend(segment((0, 0), 8, (0, 8)));
    let plan = bench.begin(&cdb(0x83, 0, list.len() as u32), list.len() as u32, 0);
    let logical_unit::Plan::Receive(receive) = plan else {
        panic!("it waits for its list")
    };
    let data = logical_unit::Data::Buffer(block::Buffer::from(&list[..]));
    // The second copy is aborted before its first step.
    drop(bench.unit.finish(receive.job, data));
    assert_eq!(bench.command(&copy_status(1)).good().data[4], 2);
}

/// Regression: A's copy continued through B's PREEMPT AND ABORT at its destination and overwrote B's later
/// writes, because reservations were only checked before the first piece.
#[test]
fn each_piece_of_a_copy_is_asked_whether_it_may_go() {
    let (mut bench, mut other) = pair(DiskOptions::default());
    bench.write(0, &[1; 2 * PIECE]);
    let targets = [target(&bench), target(&other)];
    let list = list_of(1, 0, &targets, &[segment((0, 1), 4096, (0, 0))]);
    let mut copy = bench.start(&cdb(0x83, 0, list.len() as u32), &list);
    assert_eq!(
        (other.disk.byte(0), other.disk.byte(2048)),
        (1, 0),
        "the first piece is there"
    );
    let mut holder = other.second();
    other.by(&mut holder, &[0x16, 0, 0, 0, 0, 0]).good(); // RESERVE(6)
    let reply = poll(&mut copy.reply).expect("it ends");
    assert_eq!(reply.status, logical_unit::Status::ReservationConflict);
    assert_eq!(other.disk.byte(2048), 0, "nothing was written any more");
}

/// Task management, removal and a preemption at the destination must find the copy there.
#[test]
fn a_copy_belongs_to_the_task_sets_of_both_its_units() {
    let (mut bench, other) = pair(DiskOptions::default());
    bench.write(0, &[1; 2 * PIECE]);
    let targets = [target(&bench), target(&other)];
    let list = list_of(1, 0, &targets, &[segment((0, 1), 4096, (0, 0))]);
    let copy = bench.start(&cdb(0x83, 0, list.len() as u32), &list);
    assert!(matches!(copy.watch.others(), [used] if Arc::ptr_eq(used, &other.unit)));
    let within = list_of(2, 0, &targets, &[segment((0, 0), 4096, (0, 0))]);
    let copy = bench.start(&cdb(0x83, 0, within.len() as u32), &within);
    assert_eq!(
        copy.watch.others().len(),
        1,
        "a unit that is named may be used"
    );
}

/// If one of the two units hangs, the front end must be able to determine which one, so that it fences only
/// that unit.
#[test]
fn a_copy_tells_which_of_its_units_it_waits_for() {
    let (mut bench, other) = pair(DiskOptions {
        queues: true,
        ..DiskOptions::default()
    });
    let targets = [target(&bench), target(&other)];
    let list = list_of(1, 0, &targets, &[segment((0, 1), 8, (0, 0))]);
    let mut copy = bench.start(&cdb(0x83, 0, list.len() as u32), &list);
    assert_eq!(
        copy.watch.request(),
        Some(logical_unit::DeviceRequest { number: 2, unit: 1 })
    );
    other.disk.settle();
    while poll(&mut copy.reply).is_none() {}
    assert_eq!(copy.watch.request(), None);
}

#[test]
fn an_empty_list_is_no_error_and_a_long_one_is_not_even_asked_for() {
    let mut bench = Bench::new();
    bench.command(&cdb(0x83, 0, 0)).good();
    bench.send(&cdb(0x83, 0, 15), &[0; 15]).check(5, 0x1a00);
    bench
        .send(&cdb(0x83, 0, 1 << 20), &[0; 64])
        .check(5, 0x1a00);
}
