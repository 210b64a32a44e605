//! Data that violates a rule: digests, order, amounts, tags (RFC 7143 sections 7.7, 7.8, 11.4.7.2 and 11.7).

use iscsi::pdu::{Pdu, RejectReason, Sn, TaskManagementFunction as Function, Ttt};
use iscsi::target::{DataFault, Event, Fatal};

use crate::pair::{Pair, Setup, pattern};
use crate::{disk, raw};

const CMD_SN: Sn = Sn(0xffff_fff0);

/// A target to which the scene sends PDUs directly; the initiator receives nothing.
fn alone(setup: Setup) -> Pair {
    let mut pair = setup.build();
    pair.wires
        .iter_mut()
        .for_each(|wire| wire.intercepted = true);
    pair
}

fn asks_first() -> Setup {
    let mut setup = Setup::new();
    setup.parameters.initial_r2t = true;
    setup.parameters.immediate_data = false;
    setup.parameters.max_burst_length = 4096;
    setup
}

fn faults(pair: &Pair) -> Vec<DataFault> {
    let fault = |event: &Event| match event {
        Event::DataFailed { fault, .. } => Some(*fault),
        _ => None,
    };
    pair.target_events.iter().filter_map(fault).collect()
}

fn statuses(pair: &Pair) -> Vec<u8> {
    pair.said(|pdu| match pdu {
        Pdu::ScsiResponse(response) => Some(response.status),
        _ => None,
    })
}

fn last_ttt(pair: &Pair) -> Option<Ttt> {
    pair.said(|pdu| {
        if let Pdu::R2t(r2t) = pdu {
            Some(r2t.ttt)
        } else {
            None
        }
    })
    .pop()
}

/// A write of 8 KiB whose first R2T for 4 KiB was sent, followed by this Data-Out.
fn answered_by(pdu: impl Fn(Ttt) -> iscsi::pdu::DataOut) -> Pair {
    let mut pair = alone(asks_first());
    pair.inject(0, &raw::write(7, CMD_SN, 8192, 0).emit(), &[]);
    pair.deliver();
    let pdu = pdu(last_ttt(&pair).expect("an R2T was sent"));
    pair.inject(
        0,
        &pdu.emit(),
        &pattern(1, pdu.data_segment_length as usize),
    );
    pair.deliver();
    pair
}

#[test]
fn a_data_out_with_a_bad_digest_is_rejected_and_fails_its_command() {
    let mut setup = Setup::with_digests();
    setup.parameters.initial_r2t = true;
    setup.parameters.immediate_data = false;
    let mut pair = setup.build();
    let write = pair.write(0, 0, &[0xa5; 4000]);
    pair.step(); // the target answers with an R2T
    pair.initiator_speaks(0);
    let data_out = pair.wires[0]
        .to_target
        .pdus
        .back_mut()
        .expect("the answer to the R2T");
    data_out[100] ^= 1;
    pair.deliver();
    assert_eq!(pair.rejects(), [RejectReason::DataDigestError]);
    assert_eq!(pair.status(write), Some(2));
    assert_eq!(faults(&pair), [DataFault::Digest]);
    assert_eq!(pair.disk.read(0, 4000), [0; 4000]);
}

#[test]
fn after_a_bad_digest_the_status_waits_for_the_rest_of_the_data() {
    let mut setup = Setup::with_digests();
    setup.parameters.initial_r2t = true;
    setup.parameters.immediate_data = false;
    let mut pair = alone(setup);
    pair.inject(0, &raw::write(7, CMD_SN, 8192, 0).emit(), &[]);
    pair.deliver();
    let ttt = last_ttt(&pair);
    pair.inject(
        0,
        &raw::data_out(7, ttt, 0, 0, 4096, false).emit(),
        &[1; 4096],
    );
    pair.wires[0].to_target.pdus[0][60] ^= 1;
    pair.deliver();
    assert_eq!(statuses(&pair), [], "the F bit has not come");
    pair.inject(
        0,
        &raw::data_out(7, ttt, 1, 4096, 4096, true).emit(),
        &[1; 4096],
    );
    pair.deliver();
    assert_eq!(statuses(&pair), [2]);
}

#[test]
fn immediate_data_with_a_bad_digest_fails_its_command() {
    let mut pair = Setup::with_digests().build();
    let write = pair.write(0, 0, &[1; 512]);
    pair.initiator_speaks(0);
    pair.wires[0].to_target.pdus[0][80] ^= 1;
    pair.deliver();
    // The Reject arrives first and determines the result; the status that follows is still recognised.
    assert_eq!(
        pair.failure(write),
        Some(iscsi::initiator::Failure::Rejected(
            RejectReason::DataDigestError
        ))
    );
    assert_eq!(statuses(&pair), [2]);
    assert!(pair.wires[0].is_up);
}

#[test]
fn a_bad_header_digest_ends_the_connection() {
    let mut pair = Setup::with_digests().build();
    pair.write(0, 0, &[1; 512]);
    pair.initiator_speaks(0);
    pair.wires[0].to_target.pdus[0][8] ^= 1;
    pair.deliver();
    assert_eq!(pair.wires[0].target_fatal, Some(Fatal::HeaderDigest));
}

#[test]
fn data_in_with_a_bad_digest_ends_the_connection() {
    let mut pair = Setup::with_digests().build();
    let read = pair.read(0, 0, 512);
    pair.initiator_speaks(0);
    pair.target_hears(0);
    pair.target_speaks(0);
    pair.wires[0].to_initiator.pdus[0][60] ^= 1;
    pair.deliver();
    assert_eq!(
        pair.wires[0].initiator_fatal,
        Some(iscsi::initiator::Fatal::DataDigest)
    );
    assert_eq!(
        pair.failure(read),
        Some(iscsi::initiator::Failure::ConnectionLost)
    );
}

#[test]
fn a_data_out_that_is_not_what_the_r2t_asked_for_fails_the_command() {
    type Answer = fn(Ttt) -> iscsi::pdu::DataOut;
    let sequence: [(&str, Answer); 6] = [
        ("the wrong DataSN", |ttt| {
            raw::data_out(7, Some(ttt), 1, 0, 4096, true)
        }),
        ("the wrong offset", |ttt| {
            raw::data_out(7, Some(ttt), 0, 512, 512, false)
        }),
        ("more than was asked for", |ttt| {
            raw::data_out(7, Some(ttt), 0, 0, 4097, true)
        }),
        ("less than was asked for", |ttt| {
            raw::data_out(7, Some(ttt), 0, 0, 512, true)
        }),
        ("an unknown tag", |ttt| {
            raw::data_out(7, Ttt::new(ttt.get() ^ 1 << 16), 0, 0, 4096, true)
        }),
        ("another LUN", |ttt| iscsi::pdu::DataOut {
            lun: iscsi::pdu::Lun(1 << 48),
            ..raw::data_out(7, Some(ttt), 0, 0, 4096, true)
        }),
    ];
    for (what, answer) in sequence {
        let pair = answered_by(answer);
        assert_eq!(
            (faults(&pair), statuses(&pair)),
            (vec![DataFault::Sequence], vec![2]),
            "{what}"
        );
    }
    let pair = answered_by(|_| raw::data_out(7, None, 0, 0, 512, true));
    assert_eq!(
        (faults(&pair), statuses(&pair)),
        (vec![DataFault::Unsolicited], vec![2]),
        "not announced"
    );
}

#[test]
fn immediate_data_that_were_not_agreed_on_or_are_too_many_fail_the_command() {
    for (setup, edtl) in [(asks_first(), 512), (Setup::new(), 256)] {
        let mut pair = alone(setup);
        pair.inject(0, &raw::write(7, CMD_SN, edtl, 512).emit(), &[1; 512]);
        pair.deliver();
        assert_eq!(
            (faults(&pair), statuses(&pair)),
            (vec![DataFault::Unsolicited], vec![2])
        );
        assert_eq!(
            pair.target.exp_cmd_sn(),
            CMD_SN.next(),
            "an answer, not a Reject"
        );
    }
}

#[test]
fn unsolicited_data_beyond_first_burst_length_fail_the_command() {
    let mut setup = Setup::new();
    setup.parameters.first_burst_length = 1024;
    let mut pair = alone(setup);
    let command = iscsi::pdu::ScsiCommand {
        is_final: false,
        ..raw::write(7, CMD_SN, 8192, 512)
    };
    pair.inject(0, &command.emit(), &[1; 512]);
    pair.inject(
        0,
        &raw::data_out(7, None, 0, 512, 513, true).emit(),
        &[1; 513],
    );
    pair.deliver();
    assert_eq!(
        (faults(&pair), statuses(&pair)),
        (vec![DataFault::Unsolicited], vec![2])
    );
}

#[test]
fn late_data_for_a_task_that_is_gone_are_dropped_without_a_word() {
    let mut pair = alone(Setup::new());
    pair.inject(
        0,
        &raw::data_out(9, Ttt::new(5), 0, 0, 512, true).emit(),
        &[1; 512],
    );
    pair.deliver();
    assert!(pair.said.is_empty() && pair.wires[0].is_up);
    assert_eq!(pair.target.counters().data_out_late, 1);
}

#[test]
fn data_sent_for_a_task_do_not_reach_its_successor_of_the_same_tag() {
    let mut pair = alone(asks_first());
    pair.inject(0, &raw::write(7, CMD_SN, 4096, 0).emit(), &[]);
    pair.deliver();
    let old = last_ttt(&pair);
    pair.inject(0, &raw::abort(8, CMD_SN.next(), 7, CMD_SN).emit(), &[]);
    pair.inject(0, &raw::write(7, CMD_SN.next(), 4096, 0).emit(), &[]);
    pair.deliver();
    assert_ne!(old, last_ttt(&pair));
    pair.inject(
        0,
        &raw::data_out(7, old, 0, 0, 4096, true).emit(),
        &[1; 4096],
    );
    pair.deliver();
    assert_eq!(pair.disk.read(0, 4096), [0; 4096]);
}

#[test]
fn data_for_another_connections_task_end_the_connection() {
    let mut setup = asks_first();
    setup.connections = 2;
    let mut pair = alone(setup);
    pair.inject(0, &raw::write(7, CMD_SN, 4096, 0).emit(), &[]);
    pair.deliver();
    pair.inject(
        1,
        &raw::data_out(7, last_ttt(&pair), 0, 0, 4096, true).emit(),
        &[1; 4096],
    );
    pair.deliver();
    assert_eq!(pair.wires[1].target_fatal, Some(Fatal::ForeignTask));
    assert_eq!(pair.under_way().len(), 1);
}

#[test]
fn a_segment_that_is_too_long_and_a_login_end_the_connection() {
    for (header, data, fatal) in [
        (
            raw::ping(Some(1), None, 8193).emit(),
            vec![0; 8193],
            Fatal::SegmentTooLong { length: 8193 },
        ),
        (
            iscsi::pdu::Bhs::new(iscsi::pdu::Opcode::LoginRequest),
            vec![],
            Fatal::LoginInFullFeaturePhase,
        ),
    ] {
        let mut pair = alone(Setup::new());
        pair.inject(0, &header, &data);
        pair.deliver();
        assert_eq!(pair.wires[0].target_fatal, Some(fatal));
    }
}

#[test]
fn snack_is_rejected_at_level_zero() {
    let mut pair = alone(Setup::new());
    let snack = iscsi::pdu::SnackRequest {
        kind: iscsi::pdu::SnackKind::Status,
        lun: iscsi::pdu::Lun(0),
        itt: None,
        tag: u32::MAX,
        exp_stat_sn: Sn(0),
        first: Sn(0),
        run_length: 0,
    };
    pair.inject(0, &snack.emit(), &[]);
    pair.deliver();
    assert_eq!(pair.rejects(), [RejectReason::SnackReject]);
}

#[test]
fn an_unknown_opcode_is_rejected_and_its_data_dropped() {
    let mut pair = alone(Setup::new());
    let mut header = raw::ping(Some(1), None, 100).emit();
    header.set_u8(0, 0x1c);
    pair.inject(0, &header, &[0; 100]);
    pair.inject(0, &raw::ping(Some(2), None, 0).emit(), &[]);
    pair.deliver();
    assert_eq!(pair.rejects(), [RejectReason::CommandNotSupported]);
    assert!(matches!(pair.said.last(), Some((_, Pdu::NopIn(nop))) if nop.itt == Some(raw::itt(2))));
}

#[test]
fn a_tag_in_use_is_rejected_and_its_command_does_not_count() {
    let mut pair = alone(Setup::new());
    pair.inject(0, &raw::hang(7, CMD_SN).emit(), &[]);
    pair.inject(0, &raw::hang(7, CMD_SN.next()).emit(), &[]);
    pair.deliver();
    assert_eq!(pair.rejects(), [RejectReason::TaskInProgress]);
    assert_eq!(
        pair.target.exp_cmd_sn(),
        CMD_SN.next(),
        "section 7.3: a gap must be assumed"
    );
    assert_eq!(pair.under_way().len(), 1);
}

#[test]
fn too_many_immediate_commands_are_rejected() {
    let mut pair = alone(Setup::new());
    for tag in 0..80 {
        let command = iscsi::pdu::ScsiCommand {
            immediate: true,
            ..raw::hang(tag, CMD_SN)
        };
        pair.inject(0, &command.emit(), &[]);
    }
    pair.deliver();
    assert_eq!(pair.under_way().len(), 64);
    assert_eq!(pair.rejects(), [RejectReason::ImmediateCommandReject; 16]);
    assert_eq!(
        pair.target.exp_cmd_sn(),
        CMD_SN,
        "immediate commands use no number up"
    );
}

/// Regression: libiscsi frees a command when its status arrives, and sent other bytes as the rest of its data.
#[test]
fn a_status_waits_for_the_data_that_the_initiator_is_sending() {
    let refuse = |pair: &mut Pair| {
        let task = pair.under_way()[0];
        let refusal = iscsi::target::Response {
            status: 2,
            sense: disk::SENSE,
            ..Default::default()
        };
        pair.target.respond(task, refusal);
        pair.target_speaks(0);
        assert_eq!(statuses(pair), []);
    };
    // Immediate data.
    let mut pair = alone(Setup::new());
    pair.cut = 100; // the header, and a little of the data
    pair.inject(0, &raw::write(7, CMD_SN, 4096, 4096).emit(), &[1; 4096]);
    pair.step();
    refuse(&mut pair);
    pair.deliver();
    assert_eq!((statuses(&pair), faults(&pair)), (vec![2], vec![]));
    // Unsolicited and solicited data.
    for ttt_is_known in [false, true] {
        let mut pair = alone(if ttt_is_known {
            asks_first()
        } else {
            Setup::new()
        });
        let command = iscsi::pdu::ScsiCommand {
            is_final: ttt_is_known,
            ..raw::write(7, CMD_SN, 4096, 0)
        };
        pair.inject(0, &command.emit(), &[]);
        pair.deliver();
        let ttt = last_ttt(&pair);
        assert_eq!(ttt.is_some(), ttt_is_known);
        refuse(&mut pair);
        pair.cut = 100;
        pair.inject(
            0,
            &raw::data_out(7, ttt, 0, 0, 4096, true).emit(),
            &[1; 4096],
        );
        pair.step();
        assert_eq!(statuses(&pair), [], "the Data-Out has begun");
        pair.deliver();
        assert_eq!((statuses(&pair), faults(&pair)), (vec![2], vec![]));
        assert_eq!(pair.disk.read(0, 4096), [0; 4096]);
    }
}

/// An initiator sends no more data for a command that it aborts, and may use its tag again.
#[test]
fn a_status_that_waits_for_data_does_not_outlive_an_abort() {
    for function in [
        Function::AbortTask,
        Function::AbortTaskSet,
        Function::LogicalUnitReset,
    ] {
        let mut pair = alone(Setup::new());
        let mut refused = iscsi::pdu::ScsiCommand {
            is_final: false,
            ..raw::write(7, CMD_SN, 8192, 0)
        };
        refused.cdb[0] = disk::FAIL;
        pair.inject(0, &refused.emit(), &[]);
        pair.deliver();
        assert_eq!(statuses(&pair), [], "it waits for the unsolicited data");
        let abort = iscsi::pdu::TaskManagementRequest {
            function,
            ..raw::abort(8, CMD_SN.next(), 7, CMD_SN)
        };
        pair.inject(0, &abort.emit(), &[]);
        pair.inject(0, &raw::write(7, CMD_SN.next(), 512, 512).emit(), &[1; 512]);
        pair.deliver();
        // Drivers abort only commands that they have not answered.
        let is_gone = |event: &Event| matches!(event, Event::TaskGone { .. });
        assert_eq!(
            pair.target_events
                .iter()
                .filter(|event| is_gone(event))
                .count(),
            1,
            "{function:?}"
        );
        assert_eq!(
            (statuses(&pair), pair.rejects().len()),
            (vec![0], 0),
            "{function:?}"
        );
    }
}
