//! Attacks with unsolicited or wrong data.

use iscsi::negotiate::Offers;
use iscsi::pdu::{DataOut, Itt, Opcode, R2t, ScsiCommand, Ttt};

use super::{Siege, data_out, solicited_only};
use crate::peer::BLOCK;

/// Starts a write that gets an R2T, and sends this Data-Out for it.
fn answers_its_r2t(answer: impl Fn(Itt, &R2t) -> DataOut) {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(solicited_only);
    let write = rogue.write(16 * BLOCK);
    rogue.say(&write.emit(), &[]);
    let r2t = R2t::parse(&rogue.hear_a(Opcode::R2t).0).expect("an R2T");
    let pdu = answer(write.itt, &r2t);
    rogue.say(&pdu.emit(), &vec![1; pdu.data_segment_length as usize]);
    if pdu.ttt == Some(r2t.ttt) {
        rogue.expect_check_condition();
    } else {
        // The Data-Out is for a transfer that was not solicited, so the solicited data is still due.
        let whole = data_out(
            write.itt,
            Some(r2t.ttt),
            0,
            0,
            r2t.desired_data_transfer_length.get(),
        );
        rogue.say(&whole.emit(), &vec![1; whole.data_segment_length as usize]);
        rogue.expect_check_condition();
    }
    rogue.expect_alive();
    let mut witness = siege;
    assert_eq!(
        witness.witness.read(1000, 1),
        [0; BLOCK],
        "only the write's blocks are written"
    );
    witness.holds();
}

#[test]
fn a_data_out_out_of_order_fails_its_command() {
    answers_its_r2t(|itt, r2t| data_out(itt, Some(r2t.ttt), 5, 0, 16 * BLOCK as u32));
}

#[test]
fn a_data_out_at_another_offset_fails_its_command() {
    answers_its_r2t(|itt, r2t| data_out(itt, Some(r2t.ttt), 0, 512, 15 * BLOCK as u32));
    answers_its_r2t(|itt, r2t| data_out(itt, Some(r2t.ttt), 0, u32::MAX - 3, 512));
}

#[test]
fn a_data_out_beyond_its_r2t_fails_its_command() {
    answers_its_r2t(|itt, r2t| data_out(itt, Some(r2t.ttt), 0, 0, 32 * BLOCK as u32));
}

#[test]
fn a_data_out_for_another_r2t_fails_its_command() {
    answers_its_r2t(|itt, r2t| {
        data_out(
            itt,
            Ttt::new(r2t.ttt.get() ^ 0x5555),
            0,
            0,
            16 * BLOCK as u32,
        )
    });
}

#[test]
fn unsolicited_data_where_none_are_agreed_on_fail_their_command() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(solicited_only);
    let write = ScsiCommand {
        data_segment_length: 1024,
        ..rogue.write(8 * BLOCK)
    };
    rogue.say(&write.emit(), &[1; 1024]);
    rogue.expect_check_condition();
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn unsolicited_data_beyond_the_first_burst_fail_their_command() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(|config| {
        config.offers = Offers {
            initial_r2t: false,
            first_burst_length: 4096,
            ..config.offers.clone()
        };
    });
    let write = ScsiCommand {
        is_final: false,
        ..rogue.write(32 * BLOCK)
    };
    rogue.say(&write.emit(), &[]);
    rogue.say(&data_out(write.itt, None, 0, 0, 8192).emit(), &[1; 8192]);
    rogue.expect_check_condition();
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn data_for_no_command_are_dropped() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(solicited_only);
    for tag in 0..200 {
        let pdu = data_out(Itt::new(tag).expect("a tag"), Ttt::new(tag), 0, 0, 4096);
        rogue.say(&pdu.emit(), &[1; 4096]);
    }
    rogue.expect_alive();
    siege.holds();
}
