//! LOG SENSE.

use crate::support::*;

fn log_sense(page: u8, subpage: u8, pointer: u16) -> [u8; 10] {
    let [high, low] = pointer.to_be_bytes();
    [0x4d, 0, 0x40 | page, subpage, 0, high, low, 0xff, 0xff, 0]
}

fn page(bench: &mut Bench, code: u8) -> Vec<u8> {
    let data = bench.command(&log_sense(code, 0, 0)).good().data;
    assert_eq!(data[..2], [code, 0]);
    assert_eq!(
        usize::from(u16::from_be_bytes([data[2], data[3]])),
        data.len() - 4
    );
    data
}

/// Returns the numbers of reads, writes, blocks received and blocks sent.
fn counters(bench: &mut Bench) -> Vec<u64> {
    let data = page(bench, 0x19);
    assert_eq!(data[4..8], [0, 1, 3, 64], "parameter 1, a binary list");
    let counters = data[8..72]
        .chunks_exact(8)
        .map(|bytes| u64::from_be_bytes(bytes.try_into().expect("eight")));
    let counters: Vec<u64> = counters.collect();
    assert_eq!(
        data[72..],
        [
            [0, 2, 3, 8, 0, 0, 0, 0, 0, 0, 0, 0],
            [0, 3, 3, 8, 0, 0, 0, 0, 0, 0, 0, 0]
        ]
        .concat()
    );
    assert_eq!(counters[4..], [0; 4], "no times are taken");
    counters[..4].to_vec()
}

#[test]
fn every_page_that_is_listed_is_there() {
    let mut bench = Bench::new();
    let listed = page(&mut bench, 0)[4..].to_vec();
    assert_eq!(listed, [0x00, 0x0c, 0x0d, 0x19, 0x37]);
    for code in listed {
        page(&mut bench, code);
    }
    let both = bench.command(&log_sense(0, 0xff, 0)).good().data;
    assert_eq!(
        both,
        [
            0x40, 0xff, 0, 12, 0, 0, 0, 0xff, 0x0c, 0, 0x0d, 0, 0x19, 0, 0x37, 0
        ]
    );
    for code in (0..0x3f).filter(|code| ![0x00, 0x0c, 0x0d, 0x19, 0x37].contains(code)) {
        bench.command(&log_sense(code, 0, 0)).invalid_field(2);
    }
    bench.command(&log_sense(0x19, 1, 0)).invalid_field(3);
}

/// Resource counts of threshold sets: 2^11 blocks, by VPD page B2h.
#[test]
fn a_thin_unit_tells_of_its_space() {
    let mut bench = Bench::new();
    let available = [0, 1, 3, 8, 0, 0, 0, 5, 2, 0, 0, 0];
    let used = |sets| [0, 2, 3, 8, 0, 0, 0, sets, 1, 0, 0, 0];
    assert_eq!(page(&mut bench, 0x0c)[4..], [available, used(0)].concat());
    bench.write(4000, &[1; 512]);
    assert_eq!(page(&mut bench, 0x0c)[4..], [available, used(1)].concat());
    assert_eq!(
        bench.command(&log_sense(0x0c, 0, 2)).good().data[4..],
        used(1)
    );
    bench.command(&log_sense(0x0c, 0, 3)).invalid_field(5);
    bench.command(&log_sense(0x0c, 1, 0)).invalid_field(3);
    bench.command(&[0x1b, 0, 0, 0, 0, 0]).good();
    assert_eq!(page(&mut bench, 0x0c).len(), 28, "it is stopped");
    let mut bench = Bench::of_disk(DiskOptions {
        available_bytes: None,
        ..DiskOptions::default()
    });
    assert_eq!(page(&mut bench, 0x0c)[4..], used(0));
    let mut thick = Bench::of_disk(DiskOptions {
        thin: false,
        ..DiskOptions::default()
    });
    assert_eq!(page(&mut thick, 0)[4..], [0x00, 0x0d, 0x19, 0x37]);
    thick.command(&log_sense(0x0c, 0, 0)).invalid_field(2);
}

#[test]
fn the_vendors_page_has_the_blocks_of_both_directions() {
    let mut bench = Bench::new();
    bench.write(0, &[1; 1024]);
    bench.read(0, 3);
    let parameter = |code, blocks| [0, code, 3, 8, 0, 0, 0, 0, 0, 0, 0, blocks];
    assert_eq!(
        page(&mut bench, 0x37)[4..],
        [parameter(0, 3), parameter(1, 2)].concat()
    );
}

#[test]
fn a_temperature_that_nobody_measures_is_told_as_such() {
    assert_eq!(
        page(&mut Bench::new(), 0x0d)[4..],
        [0, 0, 3, 2, 0, 0xff, 0, 1, 3, 2, 0, 0xff]
    );
}

#[test]
fn reads_and_writes_of_all_nexuses_are_counted_those_that_are_gone_too() {
    for in_memory in [false, true] {
        let mut bench = Bench::of_disk(DiskOptions {
            in_memory,
            ..DiskOptions::default()
        });
        let mut other = bench.second();
        assert_eq!(counters(&mut bench), [0; 4]);
        bench.write(0, &[1; 1024]);
        bench.read(0, 3);
        bench.by(&mut other, &sixteen(0x88, 0, 0, 5)).good();
        bench
            .send_by(&mut other, &sized(0x2a, 0, 8, 7), &[2; 7 * 512])
            .good();
        drop(other);
        assert_eq!(counters(&mut bench), [2, 2, 9, 8]);
        bench.exchange(&sixteen(0x88, 0, 0, 4), &[], 2 * 512).good();
        assert_eq!(counters(&mut bench), [3, 2, 9, 10], "two of four blocks");
        bench.command(&sixteen(0x88, 0, 4096, 1)).out_of_range();
        assert_eq!(counters(&mut bench), [3, 2, 9, 10]);
    }
}

#[test]
fn parameters_begin_at_the_pointer() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.command(&log_sense(0x0d, 0, 1)).good().data,
        [0x0d, 0, 0, 6, 0, 1, 3, 2, 0, 0xff]
    );
    bench.command(&log_sense(0x0d, 0, 2)).invalid_field(5);
    bench.command(&log_sense(0x00, 0, 1)).invalid_field(5);
}

#[test]
fn nothing_is_saved() {
    for flags in [0x01, 0x02] {
        Bench::new()
            .command(&[0x4d, flags, 0x40, 0, 0, 0, 0, 0, 255, 0])
            .invalid_field(1);
    }
}
