//! FORMAT UNIT.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use block::DeviceError;
use logical_unit::{Background, Data, Plan, Reply, Step};

use crate::support::*;

const FORMAT: [u8; 6] = [0x04, 0, 0, 0, 0, 0];
/// FMTDATA, and with LONGLIST.
const WITH_LIST: [u8; 6] = [0x04, 0x10, 0, 0, 0, 0];
const WITH_LONG_LIST: [u8; 6] = [0x04, 0x30, 0, 0, 0, 0];
const IMMED: u8 = 0x02;

#[test]
fn a_formatted_unit_is_zero_and_has_no_block_mapped() {
    for (cdb, list) in [
        (FORMAT, &[][..]),
        (WITH_LIST, &[0; 4]),
        (WITH_LONG_LIST, &[0; 8]),
    ] {
        let mut bench = Bench::new();
        bench.write(0, &[b'a'; 512]);
        bench.write(4095, &[b'z'; 512]);
        bench.send(&cdb, list).good();
        assert_eq!(
            (bench.read(0, 1), bench.read(4095, 1)),
            (vec![0; 512], vec![0; 512])
        );
        assert_eq!(bench.disk.stable_byte(0), 0);
        let status = bench.command(&get_lba_status(0, 24)).good().data;
        assert_eq!(status[8..21], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 1]);
    }
}

#[test]
fn a_unit_without_thin_provisioning_keeps_its_space() {
    let mut bench = Bench::of_unit(|unit| unit.thin = Some(false));
    bench.write(7, &[b'a'; 512]);
    bench.command(&FORMAT).good();
    assert_eq!(bench.read(7, 1), [0; 512]);
    let status = bench.command(&get_lba_status(0, 24)).good().data;
    assert_eq!(status[20], 0, "mapped");
}

#[test]
fn an_immediate_one_is_answered_first_and_tells_how_far_it_is() {
    for (cdb, list) in [
        (WITH_LIST, vec![0, IMMED, 0, 0]),
        (WITH_LONG_LIST, vec![0, IMMED, 0, 0, 0, 0, 0, 0]),
    ] {
        let mut bench = Bench::new();
        bench.write(0, &[1; 512]);
        let Plan::Receive(receive) = bench.begin(&cdb, list.len() as u32, 0) else {
            panic!("a list")
        };
        let data = Data::Buffer(block::Buffer::from(&list[..]));
        let Step::Lasting { reply, work } = bench.unit.finish(receive.job, data) else {
            panic!("it lasts")
        };
        CommandResult::from_reply(finish(reply)).good();
        bench.command(&TEST_UNIT_READY).check(2, 0x0404);
        bench.command(&sixteen(0x88, 0, 0, 1)).check(2, 0x0404);
        bench.command(&FORMAT).check(2, 0x0404);
        bench
            .command(&[0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0])
            .check(2, 0x0404);
        bench.command(&inquiry(None, 36)).good();
        let sense = bench.command(&[0x03, 0, 0, 0, 18, 0]).good().data;
        assert_eq!(
            (sense[2], &sense[12..14], sense[15]),
            (2, &[0x04, 0x04][..], 0x80),
            "with progress"
        );
        finish(work);
        bench.command(&TEST_UNIT_READY).good();
        assert_eq!(bench.read(0, 1), [0; 512]);
    }
}

/// FORMAT UNIT waits for earlier commands, piece by piece. Otherwise a write that reaches the medium later
/// would survive the format.
#[test]
fn it_waits_for_writes_that_are_under_way() {
    let mut bench = Bench::of_disk(DiskOptions {
        queues: true,
        ..DiskOptions::default()
    });
    let mut write = bench.start(&sixteen(0x8a, 0, 0, 1), &[9; 512]);
    let Plan::Run(job) = bench.begin(&FORMAT, 0, 0) else {
        panic!("it runs")
    };
    let Step::Lasting { reply, mut work } = bench.unit.finish(job, Data::None) else {
        panic!("it lasts")
    };
    assert!(poll(&mut work).is_none());
    bench.disk.settle();
    assert!(poll(&mut write.reply).is_some());
    drop(write);
    finish(work);
    CommandResult::from_reply(finish(reply)).good();
    assert_eq!(bench.read(0, 1), [0; 512]);
}

fn begun(bench: &mut Bench) -> (Pin<Box<dyn Future<Output = Reply>>>, Background) {
    let Plan::Run(job) = bench.begin(&FORMAT, 0, 0) else {
        panic!("it runs")
    };
    let Step::Lasting { reply, work } = bench.unit.finish(job, Data::None) else {
        panic!("it lasts")
    };
    (reply, work)
}

/// Another core may start an operation after the end of this one and before its command is polled again.
#[test]
fn a_command_is_answered_for_its_own_operation_while_the_next_runs() {
    let mut bench = Bench::new();
    let (mut first, work) = begun(&mut bench);
    assert!(poll(&mut first).is_none());
    finish(work);
    let (mut second, work) = begun(&mut bench);
    assert!(poll(&mut second).is_none());
    CommandResult::from_reply(poll(&mut first).expect("its operation has ended")).good();
    finish(work);
    CommandResult::from_reply(poll(&mut second).expect("its operation has ended")).good();
}

#[test]
fn a_command_is_told_of_its_own_operation_s_failure_when_the_next_has_succeeded() {
    let mut bench = Bench::new();
    bench.disk.fail(DeviceError::TimedOut);
    let (first, work) = begun(&mut bench);
    finish(work);
    bench.command(&FORMAT).good();
    CommandResult::from_reply(finish(first)).check(3, 0x3101);
}

/// Starts a FORMAT UNIT as soon as another has ended, but before the future of the first is dropped, as
/// another core may do.
struct Successor(Mutex<Bench>);

impl Wake for Successor {
    fn wake(self: Arc<Self>) {
        // The second operation stays outstanding.
        std::mem::forget(begun(&mut self.0.lock().expect("woken once")));
    }
}

#[test]
fn the_end_of_an_operation_does_not_fail_the_next() {
    let mut bench = Bench::new();
    let (mut reply, work) = begun(&mut bench);
    let (disk, unit, luns) = (
        Arc::clone(&bench.disk),
        Arc::clone(&bench.unit),
        Arc::clone(&bench.luns),
    );
    let successor = Successor(Mutex::new(Bench {
        disk,
        unit,
        nexus: bench.second(),
        luns,
    }));
    let waker = Waker::from(Arc::new(successor));
    assert!(
        reply
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    finish(work);
    bench.command(&TEST_UNIT_READY).check(2, 0x0404);
}

#[test]
fn neither_abort_nor_reset_stops_it() {
    let mut bench = Bench::new();
    let Plan::Run(job) = bench.begin(&FORMAT, 0, 0) else {
        panic!("it runs")
    };
    let Step::Lasting { reply, work } = bench.unit.finish(job, Data::None) else {
        panic!("it lasts")
    };
    drop(reply);
    bench.unit.reset();
    bench.command(&TEST_UNIT_READY).check(6, 0x2903);
    bench.command(&TEST_UNIT_READY).check(2, 0x0404);
    finish(work);
    bench.command(&TEST_UNIT_READY).good();
}

/// FORMAT COMMAND FAILED, then MEDIUM FORMAT CORRUPTED (SBC-3 5.3.1).
#[test]
fn after_a_failure_the_medium_is_out_of_reach_until_one_succeeds() {
    for second in [FORMAT.to_vec(), vec![0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let mut bench = Bench::new();
        bench.disk.fail(DeviceError::TimedOut);
        bench.command(&FORMAT).check(3, 0x3101);
        bench.command(&sixteen(0x88, 0, 0, 1)).check(3, 0x3100);
        bench.command(&[0x48, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0]).good(); // EXIT FAILURE MODE applies to SANITIZE
        bench.command(&sixteen(0x88, 0, 0, 1)).check(3, 0x3100);
        bench.command(&second).good();
        bench.read(0, 1);
    }
}

/// SBC-4 4.11.4: only another SANITIZE can finish an incomplete SANITIZE.
#[test]
fn a_sanitize_that_failed_is_not_made_good_by_a_format() {
    let mut bench = Bench::new();
    bench.disk.fail(DeviceError::TimedOut);
    bench
        .command(&[0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0])
        .check(3, 0x3103);
    bench.command(&FORMAT).check(3, 0x3103);
    bench.command(&TEST_UNIT_READY).check(3, 0x3103);
}

#[test]
fn protection_types_defects_and_patterns_are_refused() {
    let mut bench = Bench::new();
    bench.write(0, &[b'a'; 512]);
    for byte in [0x40, 0x80, 0x01, 0x07, 0x17] {
        bench.command(&[0x04, byte, 0, 0, 0, 0]).invalid_field(1);
    }
    for at in 2..5 {
        let mut cdb = FORMAT;
        cdb[at] = 1;
        bench.command(&cdb).invalid_field(at as u8);
    }
    for list in [
        [1, 0, 0, 0],
        [0, 0x08, 0, 0],
        [0, 0x10, 0, 0],
        [0, 0x40, 0, 0],
        [0, 0x80, 0, 4],
        [0, 0, 1, 0],
    ] {
        bench.send(&WITH_LIST, &list).check(5, 0x2600);
    }
    for (at, value) in [(0, 2), (3, 0x10), (3, 1), (4, 1), (7, 8)] {
        let mut list = [0; 8];
        list[at] = value;
        bench.send(&WITH_LONG_LIST, &list).check(5, 0x2600);
    }
    bench.send(&WITH_LIST, &[0, 0, 0]).check(5, 0x1a00);
    bench.send(&WITH_LONG_LIST, &[0; 4]).check(5, 0x1a00);
    bench.send(&WITH_LIST, &[]).check(5, 0x1a00);
    assert_eq!(bench.read(0, 1), [b'a'; 512]);
    bench.send(&WITH_LIST, &[0, 0xf0, 0, 0]).good();
}

#[test]
fn protection_of_the_medium_holds() {
    let mut protected = Bench::read_only();
    protected.command(&FORMAT).check(7, 0x2700);
    let mut stopped = Bench::new();
    stopped.command(&start_stop(0)).good();
    stopped.command(&FORMAT).check(2, 0x0402);
}
