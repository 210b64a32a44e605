//! REPORT LUNS.

use crate::support::*;

fn report_luns(select: u8, allocation_length: u32) -> [u8; 12] {
    let mut cdb = twelve(0xa0, 0, 0, allocation_length);
    cdb[2] = select;
    cdb
}

#[test]
fn the_luns_this_nexus_sees() {
    let data = Bench::new().command(&report_luns(0, 256)).good().data;
    assert_eq!(
        data,
        [
            0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0
        ]
    );
}

#[test]
fn the_well_known_one_when_asked_for() {
    let only = Bench::new().command(&report_luns(1, 256)).good().data;
    assert_eq!(only[..10], [0, 0, 0, 8, 0, 0, 0, 0, 0xc1, 0x01]);
    assert_eq!(
        Bench::new().command(&report_luns(2, 256)).good().data.len(),
        32
    );
    Bench::new()
        .command(&report_luns(0x10, 256))
        .invalid_field(2);
}

#[test]
fn truncation_leaves_the_length_of_the_whole() {
    for length in 4..24 {
        let data = Bench::new().command(&report_luns(0, length)).good().data;
        assert_eq!((data.len(), data[3]), (length as usize, 16));
    }
}
