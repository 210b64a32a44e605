//! MODE SENSE and MODE SELECT: pages with an effect.

use std::sync::Arc;

use crate::support::*;

const SWP: u8 = 0x08;
const D_SENSE: u8 = 0x04;

fn sense(page: u8) -> [u8; 6] {
    [0x1a, 0x08, page, 0, 255, 0]
}

/// Creates MODE SELECT(6) with a control page that has `flags` in byte 2 and `swp` in byte 4.
fn control(flags: u8, swp: u8, save: bool) -> ([u8; 6], [u8; 16]) {
    let list = [
        0,
        0,
        0,
        0,
        0x0a,
        0x0a,
        0x02 | flags,
        0x10,
        swp,
        0x40,
        0,
        0,
        0xff,
        0xff,
        0,
        0,
    ];
    ([0x15, 0x10 | u8::from(save), 0, 0, 16, 0], list)
}

pub(crate) fn caching(wce: u8) -> ([u8; 10], [u8; 28]) {
    let mut list = [0; 28];
    list[8..11].copy_from_slice(&[0x08, 0x12, wce]);
    ([0x55, 0x10, 0, 0, 0, 0, 0, 0, 28, 0], list)
}

#[test]
fn software_write_protect_stops_writes_and_the_others_hear_of_it() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    let (cdb, list) = control(0, SWP, false);
    bench.send(&cdb, &list).good();
    bench
        .send(&sixteen(0x8a, 0, 0, 1), &[0; 512])
        .check(7, 0x2702);
    assert_eq!(
        bench.command(&sense(0x0a)).good().data[2] & 0x80,
        0x80,
        "WP"
    );
    bench.by(&mut other, &TEST_UNIT_READY).check(6, 0x2a01);
    bench
        .send_by(&mut other, &sixteen(0x8a, 0, 0, 1), &[0; 512])
        .check(7, 0x2702);
    let (cdb, list) = control(0, 0, false);
    bench.send(&cdb, &list).good();
    bench.send(&sixteen(0x8a, 0, 0, 1), &[0; 512]).good();
}

#[test]
fn selecting_what_is_already_so_is_heard_by_nobody() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    let (cdb, list) = control(0, 0, false);
    bench.send(&cdb, &list).good();
    bench.by(&mut other, &TEST_UNIT_READY).good();
}

#[test]
fn descriptor_sense_changes_the_sense_data_that_follow() {
    let mut bench = Bench::new();
    let (cdb, list) = control(D_SENSE, 0, false);
    bench.send(&cdb, &list).good();
    let answer = bench
        .command(&sixteen(0x88, 0, u64::MAX, 1))
        .check(5, 0x2100);
    assert_eq!(answer.sense.map(|sense| sense.bytes()[0]), Some(0x72));
}

#[test]
fn without_write_cache_every_write_is_stable_and_what_was_cached_is_written_out() {
    let mut bench = Bench::new();
    bench.write(0, &[1; 512]);
    assert_eq!(bench.disk.stable_byte(0), 0);
    let (cdb, list) = caching(0);
    bench.send(&cdb, &list).good();
    assert_eq!(bench.disk.stable_byte(0), 1);
    bench.write(1, &[2; 512]);
    assert_eq!(bench.disk.stable_byte(1), 2);
}

#[test]
fn a_wrong_list_changes_nothing_and_is_pointed_at() {
    let mut bench = Bench::new();
    let (cdb, mut list) = control(0, SWP, false);
    list[9] = 0xff;
    let answer = bench.send(&cdb, &list).check(5, 0x2600);
    assert_eq!(answer.sense.expect("checked").bytes()[15..18], [0x80, 0, 9]);
    bench.write(0, &[1; 512]);
}

#[test]
fn a_list_the_initiator_cuts_short_has_a_wrong_length() {
    let mut bench = Bench::new();
    let (cdb, list) = control(0, SWP, false);
    bench.send(&cdb, &list[..15]).check(5, 0x1a00);
    bench.send(&cdb, &[]).check(5, 0x1a00);
}

#[test]
fn saved_pages_need_a_place_to_be_saved_in() {
    let mut bench = Bench::new();
    let (cdb, list) = control(0, SWP, true);
    bench.send(&cdb, &list).invalid_field(1);
    bench.command(&sense(0xca)).check(5, 0x3900);
}

#[test]
fn saved_pages_survive_reset_and_restart_and_unsaved_ones_do_not() {
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    let (cdb, list) = control(0, SWP, true);
    bench.send(&cdb, &list).good();
    let (cdb, list) = control(D_SENSE, SWP, false);
    bench.send(&cdb, &list).good();
    bench.unit.reset();
    bench.hear_attentions();
    assert_eq!(
        bench.command(&sense(0x0a)).good().data[4..9],
        [0x8a, 0x0a, 0x02, 0x10, SWP]
    );
    let mut restarted = Bench::keeping(&paper);
    assert_eq!(restarted.command(&sense(0x0a)).good().data[8], SWP);
}

#[test]
fn what_cannot_be_saved_is_not_selected() {
    let paper = Arc::new(Paper::default());
    let mut bench = Bench::keeping(&paper);
    paper.fill();
    let (cdb, list) = control(0, SWP, true);
    bench.send(&cdb, &list).check(4, 0x4400);
    bench.write(0, &[1; 512]);
}

#[test]
fn the_allocation_length_is_no_overflow() {
    let mut bench = Bench::new();
    let whole = bench.command(&[0x1a, 0, 0x3f, 0, 255, 0]).good();
    let cut = bench.command(&[0x1a, 0, 0x3f, 0, 4, 0]).good();
    assert_eq!(
        (cut.data, cut.expected_bytes),
        (whole.data[..4].to_vec(), 4)
    );
}
