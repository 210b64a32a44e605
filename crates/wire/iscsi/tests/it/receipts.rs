//! Responses whose receipt the target requests.

use iscsi::initiator;
use iscsi::pdu::{
    Bhs, Lun, NopOut, Residual, Response, ScsiCommand, ScsiResponse, Sn, TargetNumbers,
};
use iscsi::target::{self, Receipt, TaskId};

use crate::pair::{Pair, Setup};
use crate::raw;

const CMD_SN: Sn = Sn(0xffff_fff0);
/// StatSN wraps during these scenes.
const FIRST_STAT_SN: Sn = Sn(0xffff_fffe);

/// A target to which the scene sends PDUs directly.
fn connections(count: u16) -> Pair {
    let mut pair = Setup {
        connections: count,
        ..Setup::new()
    }
    .build();
    pair.wires
        .iter_mut()
        .for_each(|wire| wire.intercepted = true);
    pair
}

/// This many hanging commands.
fn commands(pair: &mut Pair, count: u32) -> Vec<TaskId> {
    for number in 0..count {
        pair.inject(
            0,
            &raw::hang(number + 1, Sn(CMD_SN.0.wrapping_add(number))).emit(),
            &[],
        );
    }
    pair.deliver();
    let tasks = pair.under_way();
    assert_eq!(tasks.len(), count as usize);
    tasks
}

fn answer(pair: &mut Pair, task: TaskId, value: u64) {
    let receipt = Some(Receipt { subject: 7, value });
    pair.target.respond(
        task,
        target::Response {
            status: 2,
            receipt,
            ..Default::default()
        },
    );
    pair.deliver();
}

fn acknowledge(pair: &mut Pair, wire: usize, exp_stat_sn: Sn) {
    pair.inject(
        wire,
        &NopOut {
            exp_stat_sn,
            ..raw::ping(None, None, 0)
        }
        .emit(),
        &[],
    );
    pair.deliver();
}

/// The acknowledgements at the target, in order.
fn acknowledged(pair: &Pair) -> Vec<u64> {
    let value = |event: &target::Event| match event {
        target::Event::Acknowledged(Receipt { subject: 7, value }) => Some(*value),
        _ => None,
    };
    pair.target_events.iter().filter_map(value).collect()
}

#[test]
fn a_receipt_comes_when_the_status_is_acknowledged() {
    let mut pair = connections(1);
    let tasks = commands(&mut pair, 1);
    answer(&mut pair, tasks[0], 1);
    acknowledge(&mut pair, 0, FIRST_STAT_SN);
    assert_eq!(acknowledged(&pair), [], "it has only been sent");
    let next = ScsiCommand {
        exp_stat_sn: FIRST_STAT_SN.next(),
        ..raw::hang(9, CMD_SN.next())
    };
    pair.inject(0, &next.emit(), &[]);
    pair.deliver();
    assert_eq!(acknowledged(&pair), [1]);
    acknowledge(&mut pair, 0, FIRST_STAT_SN.next());
    assert_eq!(acknowledged(&pair), [1], "once");
}

#[test]
fn one_acknowledgement_covers_all_before_it_and_none_behind() {
    let mut pair = connections(1);
    for (task, value) in commands(&mut pair, 3).into_iter().zip(1..) {
        answer(&mut pair, task, value);
    }
    acknowledge(&mut pair, 0, FIRST_STAT_SN.next().next());
    assert_eq!(acknowledged(&pair), [1, 2]);
}

/// Otherwise a series of flushes with the same receipt would defer the acknowledgement forever.
#[test]
fn the_first_of_equal_receipts_counts() {
    let mut pair = connections(1);
    for task in commands(&mut pair, 3) {
        answer(&mut pair, task, 1);
    }
    acknowledge(&mut pair, 0, FIRST_STAT_SN.next());
    assert_eq!(acknowledged(&pair), [1]);
    acknowledge(&mut pair, 0, FIRST_STAT_SN.next().next().next());
    assert_eq!(acknowledged(&pair), [1]);
}

#[test]
fn what_was_sent_on_a_connection_that_is_gone_is_not_acknowledged() {
    let mut pair = connections(2);
    let tasks = commands(&mut pair, 1);
    answer(&mut pair, tasks[0], 1);
    pair.disconnect(0);
    acknowledge(&mut pair, 1, FIRST_STAT_SN.next());
    assert_eq!(acknowledged(&pair), []);
}

#[test]
fn another_connection_acknowledges_nothing() {
    let mut pair = connections(2);
    let tasks = commands(&mut pair, 1);
    answer(&mut pair, tasks[0], 1);
    acknowledge(&mut pair, 1, FIRST_STAT_SN.next());
    assert_eq!(acknowledged(&pair), []);
    acknowledge(&mut pair, 0, FIRST_STAT_SN.next());
    assert_eq!(acknowledged(&pair), [1]);
}

#[test]
fn an_answer_that_is_given_up_before_it_is_sent_has_no_receipt() {
    let mut pair = connections(1);
    let tasks = commands(&mut pair, 1);
    let receipt = Some(Receipt {
        subject: 7,
        value: 1,
    });
    pair.target.respond(
        tasks[0],
        target::Response {
            status: 2,
            receipt,
            ..Default::default()
        },
    );
    pair.target.abort(tasks[0]);
    pair.deliver();
    acknowledge(&mut pair, 0, FIRST_STAT_SN.next());
    assert_eq!(acknowledged(&pair), []);
}

/// The header of the initiator's next PDU.
fn next_header(pair: &mut Pair) -> Bhs {
    let id = pair.wires[0].initiator;
    let transmit: initiator::Transmit = pair
        .initiator
        .poll_transmit(pair.now, id)
        .expect("something to say");
    transmit.header
}

/// The target considers a loss of writes reported once the status that reports it has been acknowledged. If
/// the initiator acknowledged a status too early, a flush on another connection could succeed before the
/// sense data of the report had arrived.
#[test]
fn a_status_is_acknowledged_once_its_sense_data_are_there() {
    let mut pair = connections(1);
    let id = pair.wires[0].initiator;
    let task = pair.hang(0, Lun(0));
    let command = ScsiCommand::parse(&next_header(&mut pair)).expect("a command");
    assert_eq!(command.exp_stat_sn, FIRST_STAT_SN);
    let sense = [0, 3, 0x70, 0, 3];
    let status = ScsiResponse {
        response: Response::Completed,
        status: 2,
        itt: command.itt,
        snack_tag: 0,
        numbers: TargetNumbers {
            stat_sn: FIRST_STAT_SN,
            exp_cmd_sn: CMD_SN.next(),
            max_cmd_sn: Sn(CMD_SN.0.wrapping_add(32)),
        },
        exp_data_sn: Sn(0),
        residual: Residual::None,
        read_residual: Residual::None,
        data_segment_length: sense.len() as u32,
    };
    pair.initiator
        .handle_header(pair.now, id, &status.emit(), &[])
        .expect("a status");
    pair.hang(0, Lun(0));
    let between = ScsiCommand::parse(&next_header(&mut pair)).expect("a command");
    assert_eq!(
        between.exp_stat_sn, FIRST_STAT_SN,
        "its sense data are not there"
    );
    pair.initiator
        .handle_segment(pair.now, id, true, &sense)
        .expect("sense data");
    pair.hang(0, Lun(0));
    let behind = ScsiCommand::parse(&next_header(&mut pair)).expect("a command");
    assert_eq!(behind.exp_stat_sn, FIRST_STAT_SN.next());
    let ended = pair.initiator.poll_event().expect("the end of the first");
    assert!(matches!(ended, initiator::Event::Done { task: done, status: 2, .. } if done == task));
}
