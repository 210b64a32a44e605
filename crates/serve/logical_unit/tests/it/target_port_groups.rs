//! REPORT TARGET PORT GROUPS.

use crate::support::*;

#[test]
fn one_group_active_on_all_ports() {
    let mut bench = Bench::new();
    let _other = bench.second();
    let mut cdb = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    let data = bench.command(&cdb).good().data;
    assert_eq!(
        data,
        [0, 0, 0, 16, 0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]
    );
    cdb[1] |= 0x20;
    assert_eq!(
        bench.command(&cdb).good().data[..8],
        [0, 0, 0, 20, 0x10, 0, 0, 0]
    );
    cdb[1] |= 0x40;
    bench.command(&cdb).invalid_field(1);
}
