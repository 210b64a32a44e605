//! EDTL compared with the length in the CDB (RFC 7143 section 11.4.5).

use iscsi::pdu::{Residual, ScsiCommand};
use iscsi::target::Destination;

use crate::disk;
use crate::pair::{Ended, Pair, pattern};
use crate::raw;

fn residual(pair: &Pair, task: iscsi::initiator::TaskId) -> Residual {
    match &pair.ended[&task] {
        Ended::Done { residual, .. } => *residual,
        Ended::Failed(why) => panic!("{why:?}"),
    }
}

#[test]
fn a_read_of_less_or_more_than_expected_says_so_and_brings_what_fits() {
    for (moved, expected, said) in [
        (512, 2048, Residual::Underflow(1536)),
        (2048, 512, Residual::Overflow(1536)),
    ] {
        let mut pair = Pair::new();
        let task = pair.submit(0, &disk::cdb(disk::READ, 0, moved), expected, &[]);
        pair.deliver();
        assert_eq!((pair.data(task).len(), residual(&pair, task)), (512, said));
    }
}

#[test]
fn a_write_of_less_than_sent_underflows_and_drops_the_rest() {
    let mut pair = Pair::new();
    let data = pattern(1, 8192);
    let task = pair.submit(0, &disk::cdb(disk::WRITE, 0, 512), 0, &data);
    pair.deliver();
    assert_eq!(residual(&pair, task), Residual::Underflow(7680));
    assert_eq!(pair.disk.read(0, 512), data[..512]);
    assert_eq!(pair.disk.read(512, 16), [0; 16]);
}

#[test]
fn data_that_begin_beyond_what_the_command_takes_have_no_place() {
    let mut pair = Pair::new();
    let (now, id) = (pair.now, pair.wires[0].target);
    let command = ScsiCommand {
        is_final: false,
        ..raw::write(7, pair.target.exp_cmd_sn(), 20_000, 8192)
    };
    let segment = pair
        .target
        .handle_header(now, id, &command.emit(), &[])
        .expect("a good command");
    let Destination::Task { task, offset: 0 } = segment.destination else {
        panic!("{segment:?}")
    };
    pair.target.expect_data(task, 512);
    pair.target
        .handle_segment(now, id, true, &[])
        .expect("good data");
    let rest = raw::data_out(7, None, 0, 8192, 8192, false);
    let segment = pair
        .target
        .handle_header(now, id, &rest.emit(), &[])
        .expect("good data");
    assert_eq!(segment.destination, Destination::Discard);
}

#[test]
fn a_write_of_more_than_announced_overflows_and_writes_what_came() {
    let mut pair = Pair::new();
    let data = pattern(2, 512);
    let task = pair.submit(0, &disk::cdb(disk::WRITE, 0, 2048), 0, &data);
    pair.deliver();
    assert_eq!(residual(&pair, task), Residual::Overflow(1536));
    assert_eq!(pair.disk.read(0, 512), data);
}

#[test]
fn data_for_a_command_that_takes_none_is_dropped() {
    let mut pair = Pair::new();
    let task = pair.submit(0, &disk::cdb(disk::FAIL, 0, 0), 0, &pattern(3, 100_000));
    pair.deliver();
    assert_eq!(pair.status(task), Some(2));
    let next = pair.write(0, 0, &pattern(4, 100_000));
    pair.deliver();
    assert_eq!(pair.status(next), Some(0));
}
