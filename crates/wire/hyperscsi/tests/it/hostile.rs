//! Invalid bytes sent to both state machines: no panic, bounded memory, and no effect on others.

use hyperscsi::initiator::Event;
use hyperscsi::{Header, Opcode};
use proptest::prelude::*;

use super::pair::{Pair, command, config};

/// A frame with a valid checksum.
fn forged(header: Header, body: &[u8]) -> Vec<u8> {
    let header = Header {
        length: body.len() as u16,
        ..header
    };
    let mut frame = [&header.bytes()[..], body].concat();
    frame.extend_from_slice(&crc_fast::crc32_iscsi(&frame).to_be_bytes());
    frame
}

#[test]
fn fragments_that_never_end_take_no_more_than_the_credit() {
    let mut pair = Pair::logged_in(config());
    let last = Header::parse(pair.to_target.last().unwrap()).unwrap();
    for message in 1..500 {
        let header = Header {
            last: false,
            message,
            message_bytes: 1 << 20,
            number: last.number + u64::from(message),
            session: last.session,
            epoch: last.epoch,
            ..Header::plain(Opcode::Request)
        };
        pair.target
            .handle_frame(pair.now, &0, &mut forged(header, &[0; 1200]));
    }
    let (_, _, held) = pair.target.holds();
    assert!((7 << 20..=8 << 20).contains(&held), "{held} bytes");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn forged_frames_break_nothing(
        frames in proptest::collection::vec(
            (0usize..8, any::<u16>(), 0u64..40, 0u32..600, 0u32..3000, any::<u8>(), any::<bool>(), 0usize..1300, any::<u8>()),
            1..60,
        ),
    ) {
        let mut pair = Pair::logged_in(config());
        let known = Header::parse(pair.to_target.last().unwrap()).unwrap();
        for (opcode, fragment, number, message, message_bytes, flags, to_target, length, fill) in frames {
            let opcodes = [
                Opcode::Request, Opcode::Reply, Opcode::Disconnect, Opcode::AckRequest, Opcode::Ack,
                Opcode::LoginRequest, Opcode::LoginReply, Opcode::Discovery,
            ];
            let opcode = opcodes[opcode];
            let in_session = !opcode.is_outside_sessions();
            let has_message = opcode.carries_message();
            let header = Header {
                last: !has_message || flags & 1 == 0,
                fragment: if has_message { fragment % 4 } else { 0 },
                session: if in_session { known.session } else { 0 },
                epoch: if in_session { known.epoch } else { 0 },
                has_ack: in_session && flags & 2 != 0,
                control: has_message && flags & 4 != 0,
                ask: in_session && flags & 8 != 0,
                bundle: has_message && flags & 16 != 0,
                number: if in_session { number } else { 0 },
                message: if has_message { message } else { 0 },
                message_bytes: if has_message { message_bytes } else { 0 },
                ..Header::plain(opcode)
            };
            let mut body = vec![fill; length];
            if let [first, second, rest @ ..] = &mut body[..] {
                (*first, *second) = (fill & 3, flags & 7);
                let zeros = rest.len().min(16);
                rest[..zeros].fill(0);
            }
            if header.bundle {
                // Lengths that may be valid.
                for two in body[header.message_bytes.min(length as u32) as usize..].chunks_exact_mut(2 + usize::from(fill)) {
                    two[..2].copy_from_slice(&u16::from(fill).to_be_bytes());
                }
            }
            let mut frame = forged(header, &body);
            if to_target {
                pair.target.handle_frame(pair.now, &0, &mut frame);
                pair.serve();
            } else {
                pair.initiator.handle_frame(pair.now, &mut frame);
                pair.collect();
            }
            let (live, unacknowledged, bytes) = pair.target.holds();
            prop_assert!(live <= 128 && unacknowledged <= 300 && bytes <= 8 << 20);
        }
        // A disturbed session ends, and another one starts, in bounded time.
        pair.pass(std::time::Duration::from_secs(200));
        if !pair.events.iter().any(|event| matches!(event, Event::Ended(_))) {
            let before = pair.events.len();
            if pair.initiator.submit(command(1, 4, Vec::new())).is_ok() {
                pair.pass(std::time::Duration::from_secs(200));
                prop_assert!(pair.events.len() > before, "a command always ends");
            }
        }
    }
}
