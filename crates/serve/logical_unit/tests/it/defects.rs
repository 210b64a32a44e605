//! READ DEFECT DATA(10) and (12).

use crate::support::*;

#[test]
fn both_lists_are_empty_in_the_format_asked_for() {
    let mut cdb = [0x37, 0, 0x1d, 0, 0, 0, 0, 0, 255, 0];
    assert_eq!(Bench::new().command(&cdb).good().data, [0, 0x1d, 0, 0]);
    cdb[8] = 3;
    assert_eq!(Bench::new().command(&cdb).good().data, [0, 0x1d, 0]);
    let cdb = [0xb7, 0x08, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    assert_eq!(
        Bench::new().command(&cdb).good().data,
        [0, 0x08, 0, 0, 0, 0, 0, 0]
    );
}
