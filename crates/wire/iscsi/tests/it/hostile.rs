//! Malicious peers: they cause no panic, memory stays bounded, and no byte outside a task's data is accessed.

use iscsi::initiator::Fatal;
use iscsi::pdu::{
    BHS_BYTES, Bhs, DataIn, DataInStatus, Itt, Lun, Opcode, R2t, Residual, Response, ScsiResponse,
    Sn, TargetNumbers, Ttt,
};
use iscsi::{initiator, target};
use proptest::prelude::*;
use std::num::NonZeroU32;
use std::time::Instant;

use crate::pair::{Pair, Setup, pattern};
use crate::raw;

/// The tag of the only command that was sent, taken from the wire.
fn sent_tag(pair: &mut Pair) -> Itt {
    pair.wires[0].held = true;
    pair.initiator_speaks(0);
    let header = Bhs(*pair.wires[0].to_target.pdus[0]
        .first_chunk::<BHS_BYTES>()
        .expect("a header"));
    Itt::new(header.itt_raw()).expect("a tag")
}

fn data_in(itt: Itt, data_sn: u32, offset: u32, length: u32) -> DataIn {
    DataIn {
        is_final: false,
        acknowledge: false,
        status: None,
        lun: Lun(0),
        itt,
        ttt: None,
        exp_cmd_sn: Sn(0xffff_fff1),
        max_cmd_sn: Sn(0xffff_fff8),
        data_sn: Sn(data_sn),
        buffer_offset: offset,
        data_segment_length: length,
    }
}

fn r2t(itt: Itt, r2t_sn: u32, offset: u32, length: u32) -> Bhs {
    let pdu = R2t {
        lun: Lun(0),
        itt,
        ttt: Ttt::new(1).expect("a tag"),
        numbers: TargetNumbers::default(),
        r2t_sn: Sn(r2t_sn),
        buffer_offset: offset,
        desired_data_transfer_length: NonZeroU32::new(length).expect("not empty"),
    };
    pdu.emit()
}

/// The reaction of an initiator that reads 1000 bytes to these Data-In PDUs.
fn reading(pdus: &[(u32, u32, u32)]) -> Option<Fatal> {
    let mut pair = Pair::new();
    pair.read(0, 0, 1000);
    let itt = sent_tag(&mut pair);
    for &(data_sn, offset, length) in pdus {
        let data = pattern(1, length as usize);
        pair.inject_answer(0, &data_in(itt, data_sn, offset, length).emit(), &data);
    }
    pair.deliver();
    pair.wires[0].initiator_fatal
}

/// The reaction of an initiator that writes 100,000 bytes to these R2Ts.
fn writing(r2ts: &[(u32, u32, u32)]) -> Option<Fatal> {
    let mut setup = Setup::new();
    setup.parameters.max_burst_length = 20_000;
    let mut pair = setup.build();
    pair.write(0, 0, &pattern(1, 100_000));
    let itt = sent_tag(&mut pair);
    for &(r2t_sn, offset, length) in r2ts {
        pair.inject_answer(0, &r2t(itt, r2t_sn, offset, length), &[]);
    }
    while !pair.wires[0].to_initiator.pdus.is_empty() && pair.wires[0].initiator_fatal.is_none() {
        pair.step();
    }
    pair.wires[0].initiator_fatal
}

#[test]
fn data_in_stay_within_the_buffer_and_in_order() {
    assert_eq!(reading(&[(0, 0, 400), (1, 400, 600)]), None);
    assert_eq!(reading(&[(0, 0, 1001)]), Some(Fatal::DataInBeyondEnd));
    assert_eq!(
        reading(&[(0, 0, 600), (1, 600, 401)]),
        Some(Fatal::DataInBeyondEnd)
    );
    assert_eq!(reading(&[(0, 4, 4)]), Some(Fatal::DataInOutOfOrder));
    assert_eq!(reading(&[(1, 0, 4)]), Some(Fatal::DataInOutOfOrder));
    assert_eq!(
        reading(&[(0, 0, 4), (1, 0, 4)]),
        Some(Fatal::DataInOutOfOrder)
    );
    assert_eq!(reading(&[(0, u32::MAX, 4)]), Some(Fatal::DataInOutOfOrder));
}

#[test]
fn r2ts_stay_within_the_data_and_what_was_agreed() {
    assert_eq!(writing(&[(0, 65_536, 20_000)]), None);
    assert_eq!(writing(&[(0, 90_000, 10_001)]), Some(Fatal::BadR2t));
    assert_eq!(writing(&[(0, u32::MAX, 2)]), Some(Fatal::BadR2t));
    assert_eq!(writing(&[(0, 65_536, 20_001)]), Some(Fatal::BadR2t));
    assert_eq!(writing(&[(1, 65_536, 100)]), Some(Fatal::BadR2t));
}

#[test]
fn r2ts_at_a_time_are_limited() {
    let mut pair = Pair::new();
    pair.write(0, 0, &pattern(1, 100_000));
    let itt = sent_tag(&mut pair);
    let id = pair.wires[0].initiator;
    let first = pair
        .initiator
        .handle_header(pair.now, id, &r2t(itt, 0, 65_536, 100), &[]);
    let second = pair
        .initiator
        .handle_header(pair.now, id, &r2t(itt, 1, 65_636, 100), &[]);
    assert!(first.is_ok());
    assert_eq!(second, Err(Fatal::TooManyR2ts));
}

#[test]
fn answers_to_nothing_end_the_connection() {
    let mut pair = Pair::new();
    let itt = Itt::new(12345).expect("a tag");
    pair.inject_answer(0, &data_in(itt, 0, 0, 4).emit(), &[0; 4]);
    pair.deliver();
    assert_eq!(pair.wires[0].initiator_fatal, Some(Fatal::UnknownTag));
}

#[test]
fn a_ping_that_answers_a_command_does_not_end_it() {
    // Regression: the initiator dropped the command without notifying the caller that waited for it.
    let mut pair = Pair::new();
    let task = pair.hang(0, Lun(0));
    let itt = sent_tag(&mut pair);
    let pong = iscsi::pdu::NopIn {
        lun: Lun(0),
        itt: Some(itt),
        ttt: None,
        numbers: TargetNumbers {
            stat_sn: Sn(0xffff_fffe),
            exp_cmd_sn: Sn(0),
            max_cmd_sn: Sn(0),
        },
        data_segment_length: 0,
    };
    pair.inject_answer(0, &pong.emit(), &[]);
    pair.deliver();
    assert_eq!(pair.wires[0].initiator_fatal, Some(Fatal::WrongAnswer));
    assert_eq!(pair.failure(task), Some(initiator::Failure::ConnectionLost));
}

#[test]
fn a_status_that_comes_twice_ends_the_connection_and_no_other_command() {
    let mut pair = Pair::new();
    let first = pair.hang(0, Lun(0));
    let itt = sent_tag(&mut pair);
    let status = DataInStatus {
        status: 0,
        stat_sn: Sn(0xffff_fffe),
        residual: Residual::None,
    };
    let answer = DataIn {
        is_final: true,
        status: Some(status),
        ..data_in(itt, 0, 0, 0)
    }
    .emit();
    pair.inject_answer(0, &answer, &[]);
    pair.deliver();
    let second = pair.hang(0, Lun(0));
    pair.inject_answer(0, &answer, &[]);
    pair.deliver();
    assert_eq!(pair.status(first), Some(0));
    assert_eq!(pair.wires[0].initiator_fatal, Some(Fatal::UnknownTag));
    assert_eq!(
        pair.failure(second),
        Some(initiator::Failure::ConnectionLost)
    );
}

#[test]
fn sense_data_cut_short_end_the_connection() {
    for data in [&[0u8][..], &[0, 9, 1, 2][..]] {
        let mut pair = Pair::new();
        pair.hang(0, Lun(0));
        let itt = sent_tag(&mut pair);
        let response = ScsiResponse {
            response: Response::Completed,
            status: 2,
            itt,
            snack_tag: 0,
            numbers: TargetNumbers {
                stat_sn: Sn(0xffff_fffe),
                exp_cmd_sn: Sn(0),
                max_cmd_sn: Sn(0),
            },
            exp_data_sn: Sn(0),
            residual: Residual::None,
            read_residual: Residual::None,
            data_segment_length: data.len() as u32,
        };
        pair.inject_answer(0, &response.emit(), data);
        pair.deliver();
        assert_eq!(pair.wires[0].initiator_fatal, Some(Fatal::Truncated));
    }
}

#[test]
fn a_target_that_refuses_a_command_ends_only_that() {
    let mut pair = Pair::new();
    pair.wires[0].held = true;
    let refused = pair.hang(0, Lun(0));
    pair.initiator_speaks(0);
    let command = pair.wires[0]
        .to_target
        .pdus
        .pop_front()
        .expect("the command");
    let reject = raw::reject(iscsi::pdu::RejectReason::InvalidPduField);
    pair.inject_answer(0, &reject, &command);
    pair.wires[0].held = false;
    pair.deliver();
    let why = initiator::Failure::Rejected(iscsi::pdu::RejectReason::InvalidPduField);
    assert_eq!(pair.failure(refused), Some(why));
    // The gap that the command left in the CmdSNs is plugged, so the next command is delivered.
    let next = pair.read(0, 0, 512);
    pair.deliver();
    assert_eq!(pair.status(next), Some(0));
}

/// A header whose fields are mostly small numbers, so that they match existing objects.
fn header(opcodes: Vec<Opcode>) -> impl Strategy<Value = (Bhs, Vec<u8>)> {
    let word = prop_oneof![4 => 0u32..6, 1 => 0xffff_ffeeu32..=0xffff_ffff, 1 => any::<u32>()];
    let words = prop::collection::vec(word, 8);
    (
        prop::sample::select(opcodes),
        any::<bool>(),
        any::<u8>(),
        words,
        0usize..600,
    )
        .prop_map(|(opcode, immediate, flags, words, length)| {
            let mut bhs = Bhs([0; BHS_BYTES]);
            bhs.set_u8(0, opcode as u8 | if immediate { 0x40 } else { 0 });
            bhs.set_u8(1, flags);
            words
                .iter()
                .enumerate()
                .for_each(|(i, &word)| bhs.set_u32(16 + 4 * i, word));
            let length = if length > 300 { 0 } else { length };
            bhs.set_u24(5, length as u32);
            (bhs, pattern(flags.into(), length))
        })
}

fn to_target() -> Vec<Opcode> {
    use Opcode::*;
    vec![
        ScsiCommand,
        ScsiCommand,
        DataOut,
        DataOut,
        NopOut,
        TaskManagementRequest,
        TextRequest,
        SnackRequest,
    ]
}

fn to_initiator() -> Vec<Opcode> {
    use Opcode::*;
    vec![
        DataIn,
        ScsiResponse,
        R2t,
        NopIn,
        TaskManagementResponse,
        TextResponse,
        AsyncMessage,
        Reject,
    ]
}

proptest! {
    #[test]
    fn a_target_survives_anything(pdus in prop::collection::vec(header(to_target()), 1..80), connections in 1u16..3) {
        let mut setup = Setup { connections, cmd_sn: Sn(0), window: 8, staged_bytes_max: 2000, ..Setup::new() };
        setup.parameters.max_burst_length = 100;
        setup.parameters.first_burst_length = 100;
        let mut pair = setup.build();
        for (i, (bhs, data)) in pdus.iter().enumerate() {
            let wire = i % usize::from(connections);
            pair.wires[wire].intercepted = true;
            pair.inject(wire, bhs, data);
            pair.step();
            prop_assert!(pair.target.commands_in_flight() <= 8 + 64);
            prop_assert!(pair.commands.len() <= 8 + 64);
        }
        pair.deliver();
        (0..pair.wires.len()).for_each(|wire| pair.disconnect(wire));
        pair.deliver();
        prop_assert_eq!(pair.target.commands_in_flight(), 0);
        prop_assert_eq!(pair.commands.len(), 0);
    }

    #[test]
    fn an_initiator_survives_anything(pdus in prop::collection::vec(header(to_initiator()), 1..60)) {
        let mut pair = Setup { cmd_sn: Sn(0), ..Setup::new() }.build();
        pair.wires[0].held = true;
        pair.read(0, 0, 100);
        pair.write(0, 0, &pattern(1, 70_000));
        pair.hang(0, Lun(0));
        let id = pair.wires[0].initiator;
        pair.initiator.send_targets(id, "");
        for (mut bhs, data) in pdus {
            // Existing tags: the first generation of the first slots.
            bhs.set_u32(16, if bhs.u32(16) < 6 { 1 << 16 | bhs.u32(16) } else { bhs.u32(16) });
            pair.inject_answer(0, &bhs, &data);
            pair.step();
            if !pair.wires[0].is_up {
                break;
            }
        }
        if pair.wires[0].is_up {
            pair.disconnect(0);
        }
        pair.deliver();
        prop_assert_eq!(pair.ended.len(), 3, "each command ends once");
        prop_assert_eq!(pair.initiator.in_flight(), 0);
    }

    #[test]
    fn headers_of_pure_noise_do_no_harm(headers in prop::collection::vec(any::<[u8; 32]>(), 1..30)) {
        let mut pair = Pair::new();
        let (to, from) = (pair.wires[0].target, pair.wires[0].initiator);
        for noise in headers {
            let mut bhs = Bhs([0; BHS_BYTES]);
            bhs.set_bytes(0, &noise);
            bhs.set_u24(5, 0);
            let ahs = &noise[..usize::from(noise[4] % 8) * 4];
            let now: Instant = pair.now;
            let _: Result<target::Segment, target::Fatal> = pair.target.handle_header(now, to, &bhs, ahs);
            let _: Result<initiator::Segment, Fatal> = pair.initiator.handle_header(now, from, &bhs, ahs);
        }
    }
}
