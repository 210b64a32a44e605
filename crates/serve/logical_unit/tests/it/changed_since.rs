//! Commands whose data is still outstanding when the logical unit changes. An initiator may send the data
//! arbitrarily late, so the conditions under which the command was accepted are checked again before it
//! changes the medium.

use std::cell::Cell;
use std::sync::Arc;

use logical_unit::{Data, Job, Landing, Plan, Step};

use crate::support::*;

const FORMAT: [u8; 6] = [0x04, 0, 0, 0, 0, 0];
const FORMAT_WITH_LIST: [u8; 6] = [0x04, 0x10, 0, 0, 0, 0];
const BLOCK_ERASE: [u8; 10] = [0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0];
const OVERWRITE: [u8; 10] = [0x48, 0x01, 0, 0, 0, 0, 0, 0, 5, 0];
const EJECT: [u8; 6] = [0x1b, 0, 0, 0, 0x02, 0];
const FUA: u8 = 0x08;

/// ABORTED COMMAND, I/O PROCESS TERMINATED.
const ABORTED: (u8, u16) = (0xb, 0x0006);
const FORMAT_IN_PROGRESS: (u8, u16) = (2, 0x0404);

/// Returns every kind of command that changes block 0, with its data. COMPARE AND WRITE expects a zeroed
/// medium.
fn writers() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut writers = vec![
        (six(0x0a, 0, 1).to_vec(), vec![7; 512]),
        (sized(0x8a, FUA, 0, 1), vec![7; 512]),
        (write_atomic(0, 1).to_vec(), vec![7; 512]),
        (
            compare_and_write(0, 1).to_vec(),
            [[0; 512], [7; 512]].concat(),
        ),
        (unmap(&[(0, 1)]).0.to_vec(), unmap(&[(0, 1)]).1),
        (sized(0x93, 0x08, 0, 1), vec![0; 512]), // unmaps
    ];
    let opcodes = [0x2a, 0xaa, 0x8a, 0x2e, 0xae, 0x8e, 0x41, 0x93, 0x8b];
    writers.extend(opcodes.map(|opcode| (sized(opcode, 0, 0, 1), vec![7; 512])));
    writers
}

/// Creates a disk that completes writes immediately in a cache, and one whose writes take time.
fn benches() -> [Bench; 2] {
    [false, true].map(|cached| {
        Bench::of_disk(DiskOptions {
            cached,
            blocks: 64,
            ..DiskOptions::default()
        })
    })
}

#[test]
fn data_that_arrive_after_a_format_or_sanitize_are_not_written() {
    for operation in [&FORMAT[..], &BLOCK_ERASE] {
        for (cdb, data) in writers() {
            for mut bench in benches() {
                let late = bench.accept(&cdb, data.len());
                bench.command(operation).good();
                bench.complete(late, &data).check_of(ABORTED, &cdb);
                assert_eq!(bench.disk.byte(0), 0, "{cdb:02x?}");
                bench.send(&cdb, &data).good();
            }
        }
    }
}

#[test]
fn data_that_arrive_during_a_format_are_not_written() {
    for (cdb, data) in writers() {
        for mut bench in benches() {
            let late = bench.accept(&cdb, data.len());
            let format = bench.accept(&FORMAT, 0);
            let Step::Lasting { work, .. } = bench.unit.finish(format, Data::None) else {
                panic!("it lasts")
            };
            bench
                .complete(late, &data)
                .check_of(FORMAT_IN_PROGRESS, &cdb);
            finish(work);
            assert_eq!(bench.disk.byte(0), 0, "{cdb:02x?}");
        }
    }
}

/// The write's data was moved from the medium to a buffer because it arrived slowly.
#[test]
fn a_withdrawn_write_does_not_restore_what_a_sanitize_erased() {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory: true,
        ..DiskOptions::default()
    });
    bench.write(0, &[1; 1024]);
    let Plan::Receive(mut receive) = bench.begin(&sized(0x2a, 0, 0, 2), 1024, 0) else {
        panic!("a write receives")
    };
    let Landing::Memory(blocks) = receive.place else {
        panic!("onto the medium")
    };
    let buffer = receive.job.withdraw(&blocks).expect("it was on the medium");
    bench.command(&BLOCK_ERASE).good();
    bench
        .complete(receive.job, &buffer)
        .check_of(ABORTED, &[0x2a]);
    assert_eq!(bench.read(0, 2), [0; 1024]);
}

/// A write received directly into memory is not checked when its data is complete. It must therefore not lock
/// a range that an operation on another core has already processed since the write was accepted.
#[test]
fn a_write_that_takes_its_range_after_a_sanitize_has_passed_does_not_land_in_memory() {
    let mut bench = Bench::of_disk(DiskOptions {
        in_memory: true,
        ..DiskOptions::default()
    });
    let (disk, unit, luns) = (
        Arc::clone(&bench.disk),
        Arc::clone(&bench.unit),
        Arc::clone(&bench.luns),
    );
    let other = Bench {
        disk,
        unit,
        nexus: bench.second(),
        luns,
    };
    bench.command(&TEST_UNIT_READY).good();
    OTHER_CORE.set(Some(other));
    block::set_interleaving(Some(|| {
        if let Some(mut other) = OTHER_CORE.take() {
            other.command(&BLOCK_ERASE).good();
        }
    }));
    let late = bench.accept(&sized(0x2a, 0, 0, 1), 512);
    block::set_interleaving(None);
    assert!(OTHER_CORE.take().is_none(), "it has come to a lock");
    bench.complete(late, &[7; 512]).check_of(ABORTED, &[0x2a]);
    assert_eq!(bench.disk.byte(0), 0);
}

thread_local! {
    static OTHER_CORE: Cell<Option<Bench>> = const { Cell::new(None) };
}

type Change = fn(&mut Bench);

/// Conditions that forbid writing, and the sense data that a write then returns.
const OBSTACLES: [(Change, (u8, u16)); 4] = [
    (
        |bench| drop(bench.command(&start_stop(0)).good()),
        (2, 0x0402),
    ),
    (protect, (7, 0x2702)),
    (
        |bench| std::mem::forget(bench.unit.volume().fence()),
        (2, 0x0401),
    ),
    (fail_a_format, (3, 0x3100)),
];

/// Software write protection: SWP of the control mode page.
fn protect(bench: &mut Bench) {
    let list = [
        0, 0, 0, 0, 0x0a, 0x0a, 0x02, 0x10, 0x08, 0x40, 0, 0, 0xff, 0xff, 0, 0,
    ];
    bench.send(&[0x15, 0x10, 0, 0, 16, 0], &list).good();
}

fn fail_a_format(bench: &mut Bench) {
    bench.disk.fail(block::DeviceError::TimedOut);
    bench.command(&FORMAT).check(3, 0x3101);
}

#[test]
fn data_that_arrive_at_a_medium_that_may_no_longer_be_written_are_not_written() {
    for (obstruct, answer) in OBSTACLES {
        for (cdb, data) in writers() {
            for mut bench in benches() {
                let late = bench.accept(&cdb, data.len());
                obstruct(&mut bench);
                bench.complete(late, &data).check_of(answer, &cdb);
                assert_eq!(bench.disk.byte(0), 0, "{cdb:02x?}");
            }
        }
    }
    let mut bench = Bench::of_unit(|unit| unit.removable = true);
    let late = bench.accept(&sized(0x2a, 0, 0, 1), 512);
    bench.command(&EJECT).good();
    bench.complete(late, &[7; 512]).check(2, 0x3a00);
    assert_eq!(bench.disk.byte(0), 0);
}

/// A read does not wait for data, but it may have waited for memory.
#[test]
fn a_read_that_waited_does_not_read_a_stopped_medium() {
    for mut bench in benches() {
        let late = bench.accept(&sized(0x28, 0, 0, 1), 0);
        bench.command(&start_stop(0)).good();
        bench.complete(late, &[]).check(2, 0x0402);
    }
}

/// A command that was accepted without a conflict is not affected by a later reservation; PREEMPT AND ABORT
/// aborts it, PREEMPT does not (SPC-4 5.12.11.2).
#[test]
fn a_write_that_was_accepted_before_a_reservation_is_carried_out() {
    for mut bench in benches() {
        let mut other = bench.second();
        let late = bench.accept(&sized(0x2a, 0, 0, 1), 512);
        bench.by(&mut other, &[0x16, 0, 0, 0, 0, 0]).good();
        bench.complete(late, &[7; 512]).good();
        assert_eq!(bench.disk.byte(0), 7);
    }
}

/// FORMAT UNIT and SANITIZE destroy everything, so reservations apply to them until they start: an initiator
/// cannot benefit from withholding the parameter list.
#[test]
fn an_operation_whose_parameter_list_arrives_after_a_reservation_does_not_begin() {
    for (cdb, list) in [
        (&FORMAT_WITH_LIST[..], &[0; 4][..]),
        (&OVERWRITE, &[1, 0, 0, 1, 0]),
    ] {
        let mut bench = Bench::new();
        let mut other = bench.second();
        bench.write(0, &[7; 512]);
        let late = bench.accept(cdb, list.len());
        bench.by(&mut other, &[0x16, 0, 0, 0, 0, 0]).good();
        bench.complete(late, list).conflict();
        bench.by(&mut other, &TEST_UNIT_READY).good();
        assert_eq!(bench.disk.byte(0), 7);
    }
}

#[test]
fn an_operation_whose_parameter_list_arrives_at_a_medium_that_may_no_longer_be_written_does_not_begin()
 {
    for (cdb, list) in [
        (&FORMAT_WITH_LIST[..], &[0; 4][..]),
        (&OVERWRITE, &[1, 0, 0, 1, 0]),
    ] {
        for (obstruct, answer) in &OBSTACLES[..3] {
            let mut bench = Bench::new();
            bench.write(0, &[7; 512]);
            let late = bench.accept(cdb, list.len());
            obstruct(&mut bench);
            bench.complete(late, list).check_of(*answer, cdb);
            assert_eq!(bench.disk.byte(0), 7);
        }
    }
}

/// SBC-4 4.11.2: every command for the medium fails with NOT READY while an operation runs.
#[test]
fn a_stop_that_was_accepted_before_a_format_does_not_eject_the_medium_under_it() {
    for cdb in [EJECT, start_stop(0)] {
        let mut bench = Bench::of_unit(|unit| unit.removable = cdb == EJECT);
        let late = bench.accept(&cdb, 0);
        let format = bench.accept(&FORMAT, 0);
        let Step::Lasting { work, .. } = bench.unit.finish(format, Data::None) else {
            panic!("it lasts")
        };
        bench.complete(late, &[]).check_of(FORMAT_IN_PROGRESS, &cdb);
        finish(work);
        bench.command(&TEST_UNIT_READY).good();
    }
}

impl Bench {
    /// Begins a command. The command is accepted, but its data, if any, has not arrived yet.
    fn accept(&mut self, cdb: &[u8], data_bytes: usize) -> Job {
        match self.begin(
            cdb,
            data_bytes as u32,
            if data_bytes == 0 { 1 << 20 } else { 0 },
        ) {
            Plan::Run(job) => job,
            Plan::Receive(receive) => {
                assert!(matches!(receive.place, Landing::Buffer));
                receive.job
            }
            Plan::Reply(reply) => panic!("{cdb:02x?} has ended: {reply:?}"),
        }
    }

    /// Completes a command with its data.
    fn complete(&self, job: Job, data: &[u8]) -> CommandResult {
        CommandResult::from_reply(self.end(job, Data::Buffer(block::Buffer::from(data))))
    }
}

impl CommandResult {
    #[track_caller]
    fn check_of(self, (key, code): (u8, u16), cdb: &[u8]) {
        let told = self.sense.map(|sense| (sense.key(), sense.asc()));
        assert_eq!(told, Some((key, code)), "{cdb:02x?}: {:?}", self.status);
    }
}
