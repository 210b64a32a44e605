//! Attacks with PDUs in the wrong place.

use iscsi::pdu::{
    Bhs, Cid, Itt, LogoutReason, LogoutRequest, NopOut, Opcode, Reject, RejectReason, Residual,
    ScsiCommand, ScsiResponse, Sn, TaskAttribute,
};

use super::{Siege, login, long, ping, solicited_only};
use crate::peer::{BLOCK, read_10, write_10};

#[test]
fn sixteen_megabytes_in_one_pdu_end_the_connection() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    rogue
        .wire
        .send_bytes(
            &NopOut {
                data_segment_length: 0xff_ffff,
                ..ping(Itt::new(1))
            }
            .emit()
            .0,
        )
        .expect("open");
    rogue.wire.hear_the_end();
    siege.holds();
}

#[test]
fn opcodes_that_do_not_exist_are_rejected() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    for opcode in [0x07, 0x0f, 0x1c, 0x1e, 0x2f, 0x3e] {
        let mut bhs = ping(Itt::new(1)).emit();
        bhs.set_u8(0, opcode | 0x40);
        rogue.say(&bhs, &[]);
        let (bhs, _) = rogue.hear_a(Opcode::Reject);
        let reason = Reject::parse(&bhs).expect("a Reject").reason;
        assert!(
            matches!(
                reason,
                RejectReason::CommandNotSupported | RejectReason::ProtocolError
            ),
            "{reason:?}"
        );
    }
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_target_opcode_is_rejected() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    rogue.say(&Bhs::new(Opcode::R2t), &[]);
    rogue.expect_reject(RejectReason::CommandNotSupported);
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_snack_is_rejected() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    rogue.say(&Bhs::new(Opcode::SnackRequest), &[]);
    rogue.expect_reject(RejectReason::SnackReject);
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_second_login_ends_the_connection() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    rogue.say(&login(1, false, 0), &[]);
    rogue.wire.hear_the_end();
    siege.holds();
}

#[test]
fn additional_headers_that_make_no_sense_are_rejected() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    for ahs in [vec![0xff; 1020], vec![0; 4], vec![0, 200, 1, 0]] {
        let command = ScsiCommand {
            total_ahs_length: ahs.len(),
            ..rogue.read(1)
        };
        rogue.cmd_sn = command.cmd_sn; // a rejected command does not count as received (section 7.3)
        rogue
            .wire
            .send_with(&command.emit(), &ahs, &[])
            .expect("a connection that is open");
        let (bhs, _) = rogue.hear_a(Opcode::Reject);
        println!(
            "AHS {:02x?}…: {:?}",
            &ahs[..4],
            Reject::parse(&bhs).expect("a Reject").reason
        );
    }
    rogue.expect_alive();
    siege.holds();
}

/// If R and W do not match the CDB (RFC 7143 11.3.1), no data may be transferred, and the command must not
/// end with GOOD.
#[test]
fn a_command_whose_data_are_declared_the_wrong_way_is_refused() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    let edtl = |command| ScsiCommand {
        expected_data_transfer_length: BLOCK as u32,
        ..command
    };
    for (cdb, read, write) in [
        (long(&write_10(0, BLOCK, false)), true, false),
        (long(&write_10(0, BLOCK, false)), true, true),
        (long(&read_10(0, 1)), true, true),
    ] {
        let command = ScsiCommand {
            read,
            write,
            ..edtl(rogue.command(cdb))
        };
        rogue.say(&command.emit(), &[]);
        let (bhs, sense) = rogue.hear_a(Opcode::ScsiResponse);
        assert_eq!(
            ScsiResponse::parse(&bhs).map(|response| response.status),
            Ok(2),
            "{cdb:x?}"
        );
        assert_eq!(
            (sense[4] & 0x0f, &sense[14..16]),
            (5, &[0x0e, 0x03][..]),
            "{cdb:x?}"
        );
    }
    // A READ declared as a write: all the data that it would return exceeds the declared length.
    let read = ScsiCommand {
        write: true,
        ..edtl(rogue.command(long(&read_10(0, 1))))
    };
    rogue.say(&read.emit(), &[]);
    let (bhs, _) = rogue.hear_a(Opcode::ScsiResponse);
    let response = ScsiResponse::parse(&bhs).expect("a response");
    assert_eq!(
        (response.status, response.residual),
        (0, Residual::Overflow(BLOCK as u32))
    );
    rogue.expect_alive();
    siege.holds();
}

/// SAM-5 8.9: INVALID MESSAGE ERROR where there is no auto contingent allegiance.
#[test]
fn the_aca_attribute_is_refused() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    for command in [rogue.command([0; 16]), rogue.read(1), rogue.write(BLOCK)] {
        rogue.say(
            &ScsiCommand {
                attribute: TaskAttribute::Aca,
                ..command
            }
            .emit(),
            &[],
        );
        let (bhs, sense) = rogue.hear_a(Opcode::ScsiResponse);
        assert_eq!(
            ScsiResponse::parse(&bhs).map(|response| response.status),
            Ok(2)
        );
        assert_eq!((sense[4] & 0x0f, &sense[14..16]), (5, &[0x49, 0x00][..]));
    }
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_tag_that_is_taken_is_rejected() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(solicited_only);
    let first = rogue.write(BLOCK);
    let second = ScsiCommand {
        itt: first.itt,
        ..rogue.write(BLOCK)
    };
    rogue.say(&first.emit(), &[]);
    rogue.say(&second.emit(), &[]);
    rogue.expect_reject(RejectReason::TaskInProgress);
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn commands_outside_of_the_window_are_ignored() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    let beyond = rogue.max_cmd_sn.plus(1000);
    let before = rogue.cmd_sn.minus(50);
    for cmd_sn in [beyond, before, beyond.plus(1 << 30), before] {
        let stray = ScsiCommand {
            cmd_sn,
            itt: rogue.next_tag(),
            ..rogue.read(1)
        };
        rogue.cmd_sn = rogue.cmd_sn.minus(1);
        rogue.say(&stray.emit(), &[]);
    }
    let ready = rogue.command([0; 16]);
    rogue.say(&ready.emit(), &[]);
    let (first, _) = rogue.hear();
    assert_eq!(
        first.itt_raw(),
        ready.itt.get(),
        "section 4.2.2.1: ignored without a word"
    );
    siege.holds();
}

#[test]
fn after_a_logout_nothing_is_done() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|_| {});
    let logout = LogoutRequest {
        immediate: true,
        reason: LogoutReason::CloseSession,
        itt: rogue.next_tag(),
        cid: Cid(0),
        cmd_sn: rogue.cmd_sn,
        exp_stat_sn: Sn(0),
    };
    let (reads, mut bytes) = (
        [rogue.read(1), rogue.read(1)],
        rogue.wire.framed(&logout.emit(), &[], &[]),
    );
    reads
        .iter()
        .for_each(|read| bytes.extend(rogue.wire.framed(&read.emit(), &[], &[])));
    rogue
        .wire
        .send_bytes(&bytes)
        .expect("a connection that is open");
    assert_eq!(rogue.hear().0.opcode(), Some(Opcode::LogoutResponse));
    assert_eq!(
        rogue.wire.hear_the_end(),
        0,
        "the commands behind the logout are not answered"
    );
    siege.holds();
}
