//! SANITIZE.

use block::DeviceError;
use logical_unit::{Background, Data, Plan, Reply, Step};

use crate::support::*;

const OVERWRITE: u8 = 0x01;
const BLOCK_ERASE: u8 = 0x02;
const CRYPTOGRAPHIC_ERASE: u8 = 0x03;
const EXIT_FAILURE_MODE: u8 = 0x1f;
const IMMED: u8 = 0x80;
const AUSE: u8 = 0x20;

const REQUEST_SENSE: [u8; 6] = [0x03, 0, 0, 0, 18, 0];

fn sanitize(action: u8, length: u16) -> [u8; 10] {
    let [high, low] = length.to_be_bytes();
    [0x48, action, 0, 0, 0, 0, 0, high, low, 0]
}

/// Creates an OVERWRITE parameter list.
fn pattern_list(flags: u8, pattern: &[u8]) -> Vec<u8> {
    let [high, low] = (pattern.len() as u16).to_be_bytes();
    [&[flags, 0, high, low], pattern].concat()
}

fn overwrite(bench: &mut Bench, flags: u8, pattern: &[u8]) -> CommandResult {
    let list = pattern_list(flags, pattern);
    bench.send(&sanitize(OVERWRITE, list.len() as u16), &list)
}

type Waiting = std::pin::Pin<Box<dyn Future<Output = Reply>>>;

/// Begins an erase that has not changed anything yet.
fn begun(bench: &mut Bench, flags: u8) -> (Waiting, Background) {
    let Plan::Run(job) = bench.begin(&sanitize(BLOCK_ERASE | flags, 0), 0, 0) else {
        panic!("it runs");
    };
    match bench.unit.finish(job, Data::None) {
        Step::Lasting { reply, work } => (reply, work),
        Step::Now(_) | Step::Later(_) => panic!("it outlives its command"),
    }
}

#[test]
fn overwriting_leaves_the_pattern_in_every_block() {
    let mut bench = Bench::new();
    bench.write(0, &[b'a'; 512]);
    overwrite(&mut bench, 1, &[0xaa; 512]).good();
    assert!(bench.read(0, 4096).iter().all(|&byte| byte == 0xaa));
    assert_eq!(bench.disk.stable_byte(4095), 0xaa);
    overwrite(&mut bench, 1, &[1, 2, 3]).good();
    assert_eq!(bench.read(4095, 1)[509..], [3, 1, 2]);
}

#[test]
fn inversion_is_for_every_other_pass() {
    let mut bench = Bench::new();
    overwrite(&mut bench, 0x80 | 2, &[0xf0]).good();
    assert_eq!(bench.read(7, 1), [0x0f; 512]);
    overwrite(&mut bench, 0x80 | 3, &[0xf0]).good();
    assert_eq!(bench.read(7, 1), [0xf0; 512]);
}

#[test]
fn an_erased_unit_is_zero_and_has_no_block_mapped() {
    let mut bench = Bench::new();
    bench.write(0, &[b'a'; 512]);
    bench.command(&sanitize(BLOCK_ERASE, 0)).good();
    assert_eq!(bench.read(0, 1), [0; 512]);
    let status = bench.command(&get_lba_status(0, 24)).good().data;
    assert_eq!(status[8..21], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 1]);
}

#[test]
fn cryptographic_erase_is_for_what_forgets() {
    let mut file = Bench::new();
    file.command(&sanitize(CRYPTOGRAPHIC_ERASE, 0))
        .invalid_field(1);
    assert_eq!(file.command(&inquiry(Some(0xb1), 64)).good().data[7], 0x40);
    let mut memory = Bench::of_disk(DiskOptions {
        durable: false,
        ..DiskOptions::default()
    });
    memory.write(0, &[b'a'; 512]);
    memory.command(&sanitize(CRYPTOGRAPHIC_ERASE, 0)).good();
    assert_eq!(memory.read(0, 1), [0; 512]);
    assert_eq!(
        memory.command(&inquiry(Some(0xb1), 64)).good().data[7],
        0x50
    );
}

#[test]
fn without_thin_provisioning_there_is_only_overwriting() {
    let mut bench = Bench::of_unit(|unit| unit.thin = Some(false));
    bench.command(&sanitize(BLOCK_ERASE, 0)).invalid_field(1);
    overwrite(&mut bench, 1, &[5]).good();
}

#[test]
fn while_it_runs_only_questions_about_the_device_are_answered() {
    let mut bench = Bench::new();
    let (reply, work) = begun(&mut bench, 0);
    bench.command(&TEST_UNIT_READY).check(2, 0x041b);
    bench.command(&start_stop(1)).check(2, 0x041b);
    bench.command(&[0x1a, 0, 0x3f, 0, 255, 0]).check(2, 0x041b);
    bench.command(&sixteen(0x88, 0, 0, 1)).check(2, 0x041b);
    bench.command(&sanitize(BLOCK_ERASE, 0)).check(2, 0x041b);
    bench.command(&inquiry(None, 36)).good();
    let sense = bench.command(&REQUEST_SENSE).good().data;
    assert_eq!(
        (sense[2], &sense[12..14], sense[15]),
        (2, &[0x04, 0x1b][..], 0x80),
        "with progress"
    );
    finish(work);
    CommandResult::from_reply(finish(reply)).good();
    bench.command(&TEST_UNIT_READY).good();
}

/// SBC-4 4.11.2, libiscsi Sanitize.Reset.
#[test]
fn neither_abort_nor_reset_nor_nexus_loss_stops_it() {
    let mut bench = Bench::new();
    let mut other = bench.second();
    std::mem::swap(&mut bench.nexus, &mut other);
    let (reply, work) = begun(&mut bench, 0);
    std::mem::swap(&mut bench.nexus, &mut other);
    drop(reply);
    drop(other);
    bench.unit.reset();
    bench.command(&TEST_UNIT_READY).check(6, 0x2903);
    bench.command(&TEST_UNIT_READY).check(2, 0x041b);
    finish(work);
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn an_immediate_one_is_answered_before_it_is_done() {
    let mut bench = Bench::new();
    let (reply, work) = begun(&mut bench, IMMED);
    CommandResult::from_reply(finish(reply)).good();
    bench.command(&TEST_UNIT_READY).check(2, 0x041b);
    finish(work);
    bench.command(&TEST_UNIT_READY).good();
}

/// A RAM volume completes each piece immediately. The thread must still answer NOP-Outs in between.
#[test]
fn it_lets_others_use_the_thread_between_pieces() {
    let mut bench = Bench::new();
    let (_reply, mut work) = begun(&mut bench, IMMED);
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(work.as_mut().poll(context).is_pending());
    finish(work);
    bench.command(&TEST_UNIT_READY).good();
}

#[test]
fn after_a_failure_the_medium_is_out_of_reach_until_one_succeeds() {
    let mut bench = Bench::new();
    bench.disk.fail(DeviceError::TimedOut);
    bench.command(&sanitize(BLOCK_ERASE, 0)).check(3, 0x3103);
    bench.command(&sixteen(0x88, 0, 0, 1)).check(3, 0x3103);
    bench
        .command(&sanitize(EXIT_FAILURE_MODE, 0))
        .invalid_field(1);
    bench.command(&sanitize(BLOCK_ERASE, 0)).good();
    bench.read(0, 1);
}

#[test]
fn with_ause_a_failure_can_be_left() {
    let mut bench = Bench::new();
    bench.disk.fail(DeviceError::TimedOut);
    bench
        .command(&sanitize(BLOCK_ERASE | AUSE, 0))
        .check(3, 0x3103);
    bench.command(&sanitize(EXIT_FAILURE_MODE, 0)).good();
    bench.read(0, 1);
    bench.command(&sanitize(EXIT_FAILURE_MODE, 0)).good();
}

#[test]
fn an_operation_that_is_dropped_has_failed() {
    let mut bench = Bench::new();
    let (_reply, work) = begun(&mut bench, 0);
    drop(work);
    bench.command(&sixteen(0x88, 0, 0, 1)).check(3, 0x3103);
}

/// libiscsi Sanitize.Overwrite.
#[test]
fn lists_and_patterns_of_a_wrong_length_are_refused() {
    let mut bench = Bench::new();
    for length in [0, 1, 2, 3, 4, 517] {
        bench
            .send(&sanitize(OVERWRITE, length), &vec![0; usize::from(length)])
            .invalid_field(7);
    }
    overwrite(&mut bench, 0, &[1; 512]).check(5, 0x2600);
    for length in [0u16, 516, 513] {
        let mut list = pattern_list(1, &[0; 512]);
        list[2..4].copy_from_slice(&length.to_be_bytes());
        bench
            .send(&sanitize(OVERWRITE, 516), &list)
            .check(5, 0x2600);
    }
    bench
        .send(&sanitize(OVERWRITE, 516), &[1; 100])
        .check(5, 0x1a00);
    for action in [BLOCK_ERASE, EXIT_FAILURE_MODE] {
        bench.send(&sanitize(action, 8), &[0; 8]).invalid_field(7);
    }
}

#[test]
fn reserved_bits_and_service_actions_are_refused() {
    let mut bench = Bench::new();
    bench
        .command(&sanitize(BLOCK_ERASE | 0x40, 0))
        .invalid_field(1);
    for at in 2..7 {
        let mut cdb = sanitize(BLOCK_ERASE, 0);
        cdb[at] = at as u8;
        bench.command(&cdb).invalid_field(at as u8);
    }
    for action in (0..0x1f).filter(|action| !(1..=3).contains(action)) {
        bench.command(&sanitize(action, 0)).invalid_field(1);
    }
}

#[test]
fn protection_and_reservations_hold() {
    let mut protected = Bench::read_only();
    protected
        .command(&sanitize(BLOCK_ERASE, 0))
        .check(7, 0x2700);
    let mut bench = Bench::new();
    let mut other = bench.second();
    bench.by(&mut other, &[0x16, 0, 0, 0, 0, 0]).good();
    bench.command(&sanitize(BLOCK_ERASE, 0)).conflict();
}
