//! REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.

use crate::support::*;

#[test]
fn all_that_iscsi_can_ask_for_with_timeouts_if_wanted() {
    let mut cdb = [0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    assert_eq!(Bench::new().command(&cdb).good().data, [0xda, 0, 0, 0]);
    cdb[2] = 0x80;
    let data = Bench::new().command(&cdb).good().data;
    assert_eq!((data.len(), data[3], data[4]), (16, 12, 1));
    cdb[9] = 5;
    assert_eq!(Bench::new().command(&cdb).good().data.len(), 5);
}
