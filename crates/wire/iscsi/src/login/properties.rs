//! What holds for any login: no PDU panics, nobody gets in without a secret, and cuts in the text change nothing.

use proptest::prelude::*;

use super::pair::*;
use super::*;
use crate::chap::Algorithm;
use crate::pdu::{LoginRequest, Opcode, Stage};

/// Headers that are mostly logins, with texts that are mostly keys: what random bytes alone would never reach.
fn likely_pdus() -> impl Strategy<Value = Vec<(Bhs, Vec<u8>)>> {
    let flags = prop_oneof![Just(0x81u8), Just(0x87), Just(0x83), Just(0), Just(4), Just(0x40), any::<u8>()];
    let opcode = prop_oneof![4 => Just(Opcode::LoginRequest), 4 => Just(Opcode::LoginResponse), 1 => Just(Opcode::NopOut)];
    let noise = proptest::collection::vec((0usize..48, any::<u8>()), 0..3);
    let known: Vec<String> = crate::keys::TABLE.iter().map(|entry| entry.name.to_owned()).collect();
    let value = prop_oneof![
        Just(INITIATOR.to_owned()),
        Just("CHAP".to_owned()),
        Just("None".to_owned()),
        Just("5".to_owned()),
        Just("Yes".to_owned()),
        Just("0x0102".to_owned()),
        "[ -~]{0,12}",
    ];
    let text = proptest::collection::vec((proptest::sample::select(known), value), 0..8);
    let pdu = (opcode, flags, noise, text).prop_map(|(opcode, flags, noise, pairs)| {
        let mut bhs = Bhs::new(opcode);
        bhs.set_u8(1, flags);
        noise.into_iter().for_each(|(at, byte)| bhs.set_u8(at, byte));
        let text = pairs.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect();
        (bhs, text)
    });
    proptest::collection::vec(pdu, 1..12)
}

proptest! {
    #[test]
    fn any_pdus_are_survived_by_a_target(pdus in likely_pdus(), chap: bool, named: bool) {
        let mut door = if chap { Door::with_chap() } else { Door::open() };
        if named {
            door.say(request(Stage::SecurityNegotiation, None), &names_and(""));
        }
        for (bhs, data) in &pdus {
            let _ = door.say_pdu(bhs, data);
        }
        let is_in = matches!(door.end, Some(TargetEvent::LoggedIn(_)));
        prop_assert!(!(chap && is_in), "in without a secret");
    }

    #[test]
    fn any_pdus_are_survived_by_an_initiator(pdus in likely_pdus(), chap: bool) {
        let pair = if chap { Pair::with_chap(mutual(Algorithm::Md5)) } else { Pair::plain() };
        let mut initiator = InitiatorLogin::new(pair.config);
        pdus.iter().for_each(|(bhs, data)| initiator.handle_pdu(bhs, data));
        let is_in = matches!(initiator.poll_event(), Some(InitiatorEvent::LoggedIn(_)));
        prop_assert!(!(chap && is_in), "attached to a target without a secret");
    }

    /// However the initiator cuts its text, the same is agreed.
    #[test]
    fn text_may_be_cut_anywhere(cuts in proptest::collection::vec(0usize..400, 0..6)) {
        let text = names_and("HeaderDigest=CRC32C MaxBurstLength=65536 X-a=1 InitialR2T=No").replace(' ', "\0");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let mut door = Door::open();
        let mut from = 0;
        for &cut in &cuts {
            let go_on = LoginRequest { continues: true, ..request(Stage::OperationalNegotiation, None) };
            let reply = door.say_bytes(go_on, &text.as_bytes()[from..cut]).expect("a response");
            prop_assert_eq!(reply.text, "");
            from = cut;
        }
        let reply = door.say_bytes(request(Stage::OperationalNegotiation, Some(Stage::FullFeature)), &text.as_bytes()[from..]).expect("a response");
        prop_assert_eq!(reply.text, "TargetPortalGroupTag=1 MaxRecvDataSegmentLength=262144 HeaderDigest=CRC32C \
            MaxBurstLength=65536 X-a=NotUnderstood InitialR2T=No ");
    }
}
