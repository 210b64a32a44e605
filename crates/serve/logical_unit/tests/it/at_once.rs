//! Reads and writes of cached data complete in `finish`, without a task, with the same result as a task.

use crate::support::*;
use block::{Buffer, DeviceError, Lba};
use logical_unit::{Data, DataIn, Plan, Reply, Step};

const FUA: u8 = 1 << 3;

fn cached() -> Bench {
    Bench::of_disk(DiskOptions {
        cached: true,
        ..DiskOptions::default()
    })
}

/// Returns the reply of `finish` to a command; `None` if it must be awaited.
fn at_once(bench: &mut Bench, cdb: &[u8], data_out: &[u8], room: u32) -> Option<Reply> {
    let (job, data) = match bench.begin(cdb, data_out.len() as u32, room) {
        Plan::Run(job) => (job, Data::None),
        Plan::Receive(receive) => (receive.job, Data::Buffer(Buffer::from(data_out))),
        Plan::Reply(_) => panic!("it touches the device"),
    };
    match bench.unit.finish(job, data) {
        Step::Now(reply) => Some(reply),
        Step::Later(_) => None,
        Step::Lasting { .. } => panic!("no command of these lasts"),
    }
}

#[test]
fn cached_blocks_are_read_and_written_without_a_task() {
    let mut bench = cached();
    let written = at_once(&mut bench, &sized(0x2a, 0, 3, 2), &pattern(2, 512), 0).expect("at once");
    assert_eq!((written.expected_bytes, written.data.len()), (1024, 0));
    let read = at_once(&mut bench, &sized(0x28, 0, 3, 2), &[], 700).expect("at once");
    let DataIn::Buffer(data) = read.data else {
        panic!("blocks come in a buffer")
    };
    assert_eq!(
        (&*data, read.expected_bytes),
        (&pattern(2, 512)[..700], 1024)
    );
}

#[test]
fn what_must_be_on_stable_storage_is_waited_for() {
    let mut bench = cached();
    assert!(at_once(&mut bench, &sized(0x2a, FUA, 0, 1), &[7; 512], 0).is_none());
    assert!(at_once(&mut bench, &sized(0x28, FUA, 0, 1), &[], 512).is_none());
    bench.send(&sized(0x2a, FUA, 0, 1), &[7; 512]).good();
    assert_eq!(bench.disk.stable_byte(0), 7);
}

#[test]
fn what_the_cache_does_not_have_is_asked_of_the_device() {
    let mut bench = cached();
    bench.disk.fail(DeviceError::Unreadable(Lba(1)));
    let answer = bench.command(&sized(0x28, 0, 1, 1));
    assert_eq!(answer.sense.expect("a medium error").key(), 3);
}

#[test]
fn long_requests_leave_others_their_turn() {
    let mut bench = cached();
    assert!(at_once(&mut bench, &sized(0x28, 0, 0, 512), &[], 256 << 10).is_some());
    assert!(at_once(&mut bench, &sized(0x28, 0, 0, 513), &[], 513 << 9).is_none());
}

#[test]
fn nobody_overtakes_an_atomic_command_that_waits_for_the_same_blocks() {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory: true,
        cached: true,
        ..DiskOptions::default()
    });
    let Plan::Receive(write) = bench.begin(&sized(0x2a, 0, 0, 1), 512, 0) else {
        panic!("a write receives")
    };
    let Plan::Receive(compare) = bench.begin(&compare_and_write(0, 1), 1024, 0) else {
        panic!("it receives");
    };
    let data = Data::Buffer(Buffer::zeroed(1024));
    let Step::Later(logical_unit::Running {
        reply: mut compared,
        ..
    }) = bench.unit.finish(compare.job, data)
    else {
        panic!("it needs the disk")
    };
    assert!(poll(&mut compared).is_none(), "the write has not ended");
    assert!(at_once(&mut bench, &sized(0x28, 0, 0, 1), &[], 512).is_none());
    drop((write.job, compared));
    assert!(
        matches!(bench.begin(&sized(0x28, 0, 0, 1), 0, 512), Plan::Reply(_)),
        "free again"
    );
}
