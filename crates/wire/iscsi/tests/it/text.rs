//! Text in full feature phase (RFC 7143 section 11.10, appendix C).

use iscsi::initiator::Event;
use iscsi::negotiate::SessionType;
use iscsi::pdu::{Pdu, RejectReason, TextResponse, Ttt};
use iscsi::target::{self, Fatal, TextQuery};

use crate::pair::{PART_BYTES, Pair, Setup, pattern, place};
use crate::raw;

fn discovery() -> Pair {
    let mut setup = Setup::new();
    setup.parameters.session_type = SessionType::Discovery;
    setup.initiator_segment_max = 512;
    setup.build()
}

fn queries(pair: &Pair) -> Vec<TextQuery> {
    let query = |event: &target::Event| match event {
        target::Event::SendTargets { which, .. } => Some(which.clone()),
        _ => None,
    };
    pair.target_events.iter().filter_map(query).collect()
}

fn responses(pair: &Pair) -> Vec<TextResponse> {
    pair.said(|pdu| {
        if let Pdu::TextResponse(response) = pdu {
            Some(*response)
        } else {
            None
        }
    })
}

fn answer(pair: &Pair) -> &[u8] {
    match &pair.initiator_events[..] {
        [Event::Text { text, .. }] => text,
        other => panic!("{other:?}"),
    }
}

/// Sends a text to the target, and delivers its response.
fn say(pair: &mut Pair, tag: u32, ttt: Option<Ttt>, text: &[u8], is_final: bool, continues: bool) {
    pair.wires[0].intercepted = true;
    pair.inject(
        0,
        &raw::text(tag, ttt, text.len() as u32, is_final, continues),
        text,
    );
    pair.deliver();
}

#[test]
fn all_targets_are_told_in_discovery_however_many_there_are() {
    let mut pair = discovery();
    let name = |i: u32| {
        format!("TargetName=iqn.2026-11.test:disk{i}\0TargetAddress=[2001:db8::1]:3260,1\0")
    };
    pair.targets = (0..200).map(name).collect::<String>().into_bytes();
    let id = pair.wires[0].initiator;
    assert!(pair.initiator.send_targets(id, "All"));
    pair.deliver();
    assert_eq!(answer(&pair), pair.targets);
    let begins = |event: &target::Event| match event {
        target::Event::SendTargets { from, .. } => Some(from.as_deref().map_or(0, place)),
        _ => None,
    };
    let parts: Vec<usize> = pair.target_events.iter().filter_map(begins).collect();
    assert!(
        parts.len() > 3
            && parts
                .iter()
                .copied()
                .eq((0..pair.targets.len()).step_by(PART_BYTES))
    );
    assert!(queries(&pair).iter().all(|query| *query == TextQuery::All));
    let all = responses(&pair);
    let (last, others) = all.split_last().expect("there are many");
    assert!(last.is_final && last.ttt.is_none() && others.len() > 20);
    assert!(
        others
            .iter()
            .all(|pdu| pdu.continues && !pdu.is_final && pdu.ttt.is_some())
    );
}

#[test]
fn a_normal_session_is_told_of_its_own_target_and_not_of_all() {
    let mut pair = Pair::new();
    let id = pair.wires[0].initiator;
    pair.initiator.send_targets(id, "");
    pair.deliver();
    assert_eq!(answer(&pair), pair.targets);
    pair.initiator_events.clear();
    pair.initiator.send_targets(id, "All");
    pair.deliver();
    assert_eq!(answer(&pair), b"SendTargets=Reject\0");
    assert_eq!(queries(&pair), [TextQuery::Own]);
}

#[test]
fn one_target_may_be_asked_for_by_name() {
    let mut pair = discovery();
    let id = pair.wires[0].initiator;
    pair.initiator.send_targets(id, "iqn.2026-11.test:one");
    pair.deliver();
    assert_eq!(
        queries(&pair),
        [TextQuery::One("iqn.2026-11.test:one".to_owned())]
    );
}

#[test]
fn a_question_may_come_in_pieces_even_empty_ones() {
    let mut pair = discovery();
    say(&mut pair, 1, None, b"Send", false, true);
    let ttt = responses(&pair)[0].ttt;
    assert!(ttt.is_some() && responses(&pair)[0].data_segment_length == 0);
    say(&mut pair, 1, ttt, b"", false, true);
    let ttt = responses(&pair)[1].ttt;
    say(&mut pair, 1, ttt, b"Targets=All\0", true, false);
    assert_eq!(queries(&pair), [TextQuery::All]);
    assert!(responses(&pair)[2].is_final);
}

#[test]
fn endless_pieces_end() {
    let mut pair = discovery();
    let mut ttt = None;
    for _ in 0..300 {
        say(&mut pair, 1, ttt, b"", false, true);
        ttt = responses(&pair).last().and_then(|pdu| pdu.ttt);
    }
    assert_eq!(pair.rejects().first(), Some(&RejectReason::ProtocolError));
}

#[test]
fn too_long_a_text_is_rejected() {
    let mut pair = discovery();
    let mut ttt = None;
    while pair.rejects().is_empty() {
        say(&mut pair, 1, ttt, &pattern(1, 8000), false, true);
        ttt = responses(&pair).last().and_then(|pdu| pdu.ttt);
    }
    assert!(responses(&pair).len() <= 9, "64 KiB");
}

#[test]
fn a_wrong_tag_is_rejected() {
    let mut pair = discovery();
    say(
        &mut pair,
        1,
        Ttt::new(99),
        b"SendTargets=All\0",
        true,
        false,
    );
    assert_eq!(pair.rejects(), [RejectReason::InvalidPduField]);
}

#[test]
fn a_new_question_ends_the_old_one() {
    let mut pair = discovery();
    pair.targets = vec![b'x'; 5000];
    say(&mut pair, 1, None, b"SendTargets=All\0", true, false);
    let old = responses(&pair)[0].ttt;
    pair.targets = b"TargetName=iqn.2026-11.test:short\0".to_vec();
    say(&mut pair, 2, None, b"SendTargets=All\0", true, false);
    assert!(responses(&pair)[1].is_final);
    say(&mut pair, 1, old, b"", true, false);
    assert_eq!(pair.rejects(), [RejectReason::InvalidPduField]);
}

#[test]
fn a_text_that_is_not_final_leaves_the_exchange_open() {
    let mut pair = Pair::new();
    say(&mut pair, 1, None, b"InitiatorAlias=me\0", false, false);
    let response = responses(&pair)[0];
    assert!(!response.is_final && !response.continues && response.ttt.is_some());
    say(&mut pair, 1, response.ttt, b"", true, false);
    assert!(responses(&pair)[1].is_final);
}

#[test]
fn max_recv_data_segment_length_may_change_and_holds_at_once() {
    let mut pair = Pair::new();
    say(
        &mut pair,
        1,
        None,
        b"MaxRecvDataSegmentLength=512\0",
        true,
        false,
    );
    assert_eq!(
        responses(&pair)[0].data_segment_length,
        0,
        "a declaration wants no answer"
    );
    let cmd_sn = pair.target.exp_cmd_sn();
    pair.inject(0, &raw::read(2, cmd_sn, 2048).emit(), &[]);
    pair.deliver();
    let lengths = pair.said(|pdu| {
        if let Pdu::DataIn(pdu) = pdu {
            Some(pdu.data_segment_length)
        } else {
            None
        }
    });
    assert_eq!(lengths, [512; 4]);
}

#[test]
fn unknown_keys_are_not_understood_and_settled_ones_rejected() {
    let mut pair = Pair::new();
    pair.targets.clear();
    let expected =
        b"X-org.example=NotUnderstood\0MaxBurstLength=Reject\0MaxRecvDataSegmentLength=Reject\0";
    let text =
        b"X-org.example=1\0MaxBurstLength=512\0MaxRecvDataSegmentLength=1\0InitiatorAlias=a\0";
    say(&mut pair, 1, None, text, true, false);
    assert_eq!(
        responses(&pair)[0].data_segment_length as usize,
        expected.len()
    );
}

/// Section 6.4: the target "MUST respond with a Reject PDU with a reason of "Protocol Error""; the exchange is over.
#[test]
fn a_key_said_twice_in_an_exchange_is_rejected() {
    let mut pair = Pair::new();
    say(
        &mut pair,
        1,
        None,
        b"MaxRecvDataSegmentLength=512\0MaxRecvDataSegmentLength=1024\0",
        true,
        false,
    );
    assert_eq!(pair.rejects(), [RejectReason::ProtocolError]);
    say(
        &mut pair,
        1,
        None,
        b"MaxRecvDataSegmentLength=512\0",
        false,
        false,
    );
    let ttt = responses(&pair)[0].ttt;
    say(
        &mut pair,
        1,
        ttt,
        b"MaxRecvDataSegmentLength=1024\0",
        true,
        false,
    );
    assert_eq!(pair.rejects(), [RejectReason::ProtocolError; 2]);
    // The same key in the next exchange is another declaration.
    say(
        &mut pair,
        2,
        None,
        b"MaxRecvDataSegmentLength=1024\0",
        true,
        false,
    );
    assert_eq!((responses(&pair).len(), pair.rejects().len()), (2, 2));
}

/// Keys that are for logins only ("IO" and "LO" in section 13) do not change a session, and the initiator
/// would take a missing answer for consent.
#[test]
fn keys_of_the_login_are_rejected() {
    let rejected = |text: &[u8]| {
        let mut pair = Pair::new();
        say(&mut pair, 1, None, text, true, false);
        responses(&pair)[0].data_segment_length as usize
    };
    for key in [
        "InitiatorName",
        "TargetName",
        "SessionType",
        "AuthMethod",
        "CHAP_A",
        "HeaderDigest",
    ] {
        let expected = format!("{key}=Reject\0").len();
        assert_eq!(
            rejected(format!("{key}=iqn.2026-11.org.example:eve\0").as_bytes()),
            expected,
            "{key}"
        );
    }
}

#[test]
fn malformed_text_is_rejected() {
    let mut pair = Pair::new();
    say(&mut pair, 1, None, b"no equals sign\0", true, false);
    assert_eq!(pair.rejects(), [RejectReason::InvalidPduField]);
}

#[test]
fn a_discovery_session_knows_no_commands() {
    let mut pair = discovery();
    pair.wires[0].intercepted = true;
    let cmd_sn = pair.target.exp_cmd_sn();
    pair.inject(0, &raw::read(1, cmd_sn, 512).emit(), &[]);
    pair.deliver();
    assert_eq!(pair.rejects(), [RejectReason::CommandNotSupported]);
}

#[test]
fn a_peer_that_asks_and_does_not_listen_is_cut_off() {
    let mut pair = Pair::new();
    for tag in 0..2000 {
        pair.inject(0, &raw::ping(Some(tag), None, 4096).emit(), &[0; 4096]);
    }
    while pair.target_hears(0) {}
    assert_eq!(pair.wires[0].target_fatal, Some(Fatal::TooManyUnanswered));
}
