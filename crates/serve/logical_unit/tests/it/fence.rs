//! A fenced logical unit.

use crate::support::*;

#[test]
fn while_the_device_hangs_commands_that_need_it_are_not_ready_at_once() {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory: true,
        ..DiskOptions::default()
    });
    let fence = bench.unit.volume().fence();
    let another = bench.unit.volume().fence();
    drop(another);
    for cdb in [
        sized(0x28, 0, 0, 1),
        sized(0x2a, 0, 0, 1),
        sized(0x35, 0, 0, 0),
        TEST_UNIT_READY.to_vec(),
    ] {
        bench.send(&cdb, &[0; 512]).check(2, 0x0401);
    }
    bench.command(&inquiry(None, 96)).good();
    assert_eq!(bench.command(&[3, 0, 0, 0, 18, 0]).good().data[2], 2);
    drop(fence);
    bench.command(&sized(0x28, 0, 0, 1)).good();
}
