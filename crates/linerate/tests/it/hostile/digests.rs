//! Attacks with wrong digests.

use iscsi::pdu::{Itt, Opcode, R2t, RejectReason};

use super::{Siege, data_out, ping, with_digests};
use crate::peer::BLOCK;

#[test]
fn a_bad_header_digest_ends_the_connection() {
    let siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(with_digests);
    let mut bytes = rogue.wire.framed(&ping(Itt::new(1)).emit(), &[], &[]);
    bytes[40] ^= 1;
    rogue
        .wire
        .send_bytes(&bytes)
        .expect("a connection that is open");
    rogue.wire.hear_the_end();
    siege.holds();
}

/// Writes over the witness's data, in one segment that is corrupted in transit and arrives in two parts, the
/// first with `cut` bytes. None of the corrupted data may be visible afterwards.
fn writes_bent_data(blocks: usize, cut: usize) {
    let mut siege = or_skip!(Siege::begin(""));
    let mut rogue = siege.peer(with_digests);
    let write = rogue.write(blocks * BLOCK);
    rogue.say(&write.emit(), &[]);
    let r2t = R2t::parse(&rogue.hear_a(Opcode::R2t).0).expect("an R2T");
    let pdu = data_out(write.itt, Some(r2t.ttt), 0, 0, (blocks * BLOCK) as u32);
    let mut bytes = rogue
        .wire
        .framed(&pdu.emit(), &[], &vec![1; blocks * BLOCK]);
    bytes[100] ^= 1;
    let (first, rest) = bytes.split_at(cut);
    rogue
        .wire
        .send_bytes(first)
        .expect("a connection that is open");
    assert_eq!(
        siege.witness.read(0, 64),
        [0x5a; 64 * BLOCK],
        "before the digest has come"
    );
    rogue
        .wire
        .send_bytes(rest)
        .expect("a connection that is open");
    rogue.expect_reject(RejectReason::DataDigestError);
    rogue.expect_check_condition();
    rogue.expect_alive();
    siege.holds();
}

#[test]
fn a_bad_data_digest_is_rejected_and_fails_the_write() {
    writes_bent_data(8, 0);
}

#[test]
fn bent_data_that_come_in_pieces_never_reach_the_medium() {
    writes_bent_data(8, 2000);
}

#[test]
fn bent_data_too_long_for_one_read_never_reach_the_medium() {
    writes_bent_data(512, 100_000);
}

#[test]
fn data_whose_digest_is_all_that_is_missing_have_not_reached_the_medium() {
    writes_bent_data(512, 52 + 512 * BLOCK);
}
