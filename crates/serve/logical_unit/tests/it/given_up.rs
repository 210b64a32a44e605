//! Commands that are cancelled while a device executes their requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::support::*;

fn queueing() -> Bench {
    Bench::of_disk(DiskOptions {
        queues: true,
        ..DiskOptions::default()
    })
}

fn quiesced(bench: &Bench) -> Pin<Box<dyn Future<Output = ()>>> {
    let unit = Arc::clone(&bench.unit);
    Box::pin(async move { unit.volume().quiesced().await })
}

/// Regression: a write that a reset had aborted was still in the kernel when the next write of the same block
/// was sent. The kernel executed the two writes in its own order, and the content of the aborted write
/// remained.
#[test]
fn a_write_waits_until_the_device_has_let_go_of_an_aborted_one_for_its_blocks() {
    let mut bench = queueing();
    let aborted = bench.start(&sized(0x8a, 0, 0, 8), &[1; 8 * 512]);
    assert!(give_up(aborted).is_none());
    let mut quiesced = quiesced(&bench);
    assert!(poll(&mut quiesced).is_none());
    let mut newer = bench.start(&sized(0x8a, 0, 0, 8), &[2; 8 * 512]);
    assert_eq!(bench.disk.queued(), 1, "the newer one waits");
    assert!(
        newer.watch.request().is_none(),
        "and no device has it: its deadline is not the device's fault"
    );
    bench.disk.settle();
    assert!(poll(&mut quiesced).is_some());
    assert!(poll(&mut newer.reply).is_none());
    bench.disk.settle();
    assert_eq!(
        poll(&mut newer.reply).expect("it ends").status,
        logical_unit::Status::Good
    );
    assert_eq!(bench.disk.byte(0), 2);
}

#[test]
fn what_does_not_touch_the_blocks_of_an_aborted_write_does_not_wait() {
    let mut bench = queueing();
    assert!(give_up(bench.start(&sized(0x8a, 0, 0, 8), &[1; 8 * 512])).is_none());
    let _elsewhere = bench.start(&sized(0x8a, 0, 2048, 8), &[2; 8 * 512]);
    assert_eq!(bench.disk.queued(), 2);
    assert!(bench.read(2056, 8).iter().all(|byte| *byte == 0));
}

/// Reads of the blocks also wait: otherwise one read could return the old data, and the next read the new
/// data.
#[test]
fn every_kind_of_command_waits_for_the_blocks_of_an_aborted_write() {
    let block = [0; 512];
    for (cdb, data) in [
        (sized(0x88, 0, 0, 8), &[][..]),
        (sized(0x8a, 0, 4, 1), &block),
        (sized(0x93, 0, 0, 16), &block),
        (compare_and_write(0, 1).to_vec(), &[0; 1024]),
        (sized(0x8b, 0, 0, 1), &block),
        (unmap(&[(0, 8)]).0.to_vec(), &unmap(&[(0, 8)]).1),
        (write_atomic(0, 1).to_vec(), &block),
    ] {
        let mut bench = queueing();
        assert!(give_up(bench.start(&sized(0x8a, 0, 0, 8), &[1; 8 * 512])).is_none());
        let mut quiesced = quiesced(&bench);
        let mut waiting = bench.start(&cdb, data);
        assert!(
            waiting.watch.request().is_none(),
            "{cdb:02x?} has reached the device"
        );
        bench.disk.settle();
        assert!(poll(&mut quiesced).is_some());
        while poll(&mut waiting.reply).is_none() {
            bench.disk.settle();
        }
    }
}

/// If the front end drops the future of `quiesced`, because it has waited long enough and fences the unit,
/// the blocks stay locked.
#[test]
fn a_wait_that_is_given_up_releases_nothing() {
    let mut bench = queueing();
    assert!(give_up(bench.start(&sized(0x8a, 0, 0, 8), &[1; 8 * 512])).is_none());
    let mut first = quiesced(&bench);
    assert!(poll(&mut first).is_none());
    drop(first);
    let mut waiting = bench.start(&sized(0x88, 0, 0, 8), &[]);
    bench.disk.settle();
    assert!(poll(&mut waiting.reply).is_none());
    assert!(poll(&mut quiesced(&bench)).is_some());
    assert!(poll(&mut waiting.reply).is_some());
}
