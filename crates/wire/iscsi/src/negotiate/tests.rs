//! Examples of negotiations, and properties of any negotiation.

use proptest::prelude::*;

use super::*;

/// The target's answers to a text, and its resulting parameters.
fn answers(target: &mut Negotiator, offered: &str) -> Result<String, NegotiationError> {
    let mut out = Vec::new();
    let wire = offered.replace(' ', "\0");
    let pairs = text::parse(wire.as_bytes()).expect("well formed");
    target.note_keys(&pairs)?;
    target.receive_all(pairs, &mut out)?;
    Ok(String::from_utf8(out)
        .expect("text")
        .trim_end_matches('\0')
        .replace('\0', " "))
}

fn target() -> Negotiator {
    Negotiator::leading(Role::Target, Offers::of_target(), SessionType::Normal)
}

/// Runs both sides until neither has anything to send.
fn meet(initiator: &mut Negotiator, target: &mut Negotiator) -> Result<(), NegotiationError> {
    let (mut to_target, mut to_initiator) = (Vec::new(), Vec::new());
    initiator.open(&mut to_target);
    target.open(&mut to_initiator);
    let hear = |side: &mut Negotiator, text: &mut Vec<u8>, out: &mut Vec<u8>| {
        let text = std::mem::take(text);
        let pairs = text::parse(&text).expect("text");
        side.note_keys(&pairs)
            .and_then(|()| side.receive_all(pairs, out))
    };
    for _ in 0..4 {
        hear(target, &mut to_target, &mut to_initiator)?;
        hear(initiator, &mut to_initiator, &mut to_target)?;
    }
    assert!(
        to_target.is_empty() && to_initiator.is_empty(),
        "they never stop"
    );
    Ok(())
}

#[test]
fn unknown_keys_are_not_understood_and_nobody_answers_an_answer() {
    assert_eq!(
        answers(&mut target(), "X-com.example.Dance=Yes").as_deref(),
        Ok("X-com.example.Dance=NotUnderstood")
    );
    assert_eq!(
        answers(&mut target(), "X-com.example.Dance=NotUnderstood").as_deref(),
        Ok("")
    );
    assert_eq!(
        answers(&mut target(), "MaxBurstLength=Irrelevant IFMarker=Reject").as_deref(),
        Ok("")
    );
}

#[test]
fn values_that_cannot_be_are_rejected_and_the_default_stays() {
    let mut target = target();
    let text = "MaxBurstLength=511 InitialR2T=Maybe HeaderDigest=MD5 ErrorRecoveryLevel=3";
    let refusals =
        "MaxBurstLength=Reject InitialR2T=Reject HeaderDigest=Reject ErrorRecoveryLevel=Reject";
    assert_eq!(answers(&mut target, text).as_deref(), Ok(refusals));
    assert_eq!(
        target.finish(),
        Ok(Parameters::defaults(SessionType::Normal))
    );
}

#[test]
fn a_key_negotiated_twice_ends_the_login() {
    let mut target = target();
    assert!(answers(&mut target, "MaxBurstLength=65536").is_ok());
    let again = answers(&mut target, "MaxBurstLength=65536");
    assert_eq!(again, Err(NegotiationError::Repeated(Key::MaxBurstLength)));
}

#[test]
fn a_key_declared_twice_ends_the_login() {
    let again = answers(
        &mut target(),
        "MaxRecvDataSegmentLength=4096 MaxRecvDataSegmentLength=65536",
    );
    assert_eq!(
        again,
        Err(NegotiationError::Repeated(Key::MaxRecvDataSegmentLength))
    );
}

#[test]
fn a_declaration_that_cannot_be_is_rejected() {
    let mut target = target();
    let refused = answers(&mut target, "MaxRecvDataSegmentLength=0 TargetAlias=mine");
    assert_eq!(
        refused.as_deref(),
        Ok("MaxRecvDataSegmentLength=Reject TargetAlias=Reject")
    );
    assert_eq!(
        target
            .finish()
            .map(|agreed| agreed.peer_max_recv_data_segment_length),
        Ok(8192)
    );
}

#[test]
fn markers_get_the_answers_that_section_13_25_asks_for() {
    let answered = answers(
        &mut target(),
        "IFMarker=Yes OFMarker=No IFMarkInt=1~65535 OFMarkInt=2048",
    );
    assert_eq!(
        answered.as_deref(),
        Ok("IFMarker=No OFMarker=No IFMarkInt=Reject OFMarkInt=Reject")
    );
}

#[test]
fn a_host_that_need_not_wait_before_it_reconnects_is_told_so() {
    for (offered, agreed) in [(0, 0), (2, 2), (3600, 3600)] {
        let answered = answers(&mut target(), &format!("DefaultTime2Wait={offered}"));
        assert_eq!(answered, Ok(format!("DefaultTime2Wait={agreed}")));
    }
}

#[test]
fn what_a_discovery_session_has_no_use_for_is_irrelevant() {
    let mut target = Negotiator::leading(Role::Target, Offers::of_target(), SessionType::Discovery);
    let answered = answers(&mut target, "InitialR2T=No DefaultTime2Wait=5");
    assert_eq!(
        answered.as_deref(),
        Ok("InitialR2T=Irrelevant DefaultTime2Wait=5")
    );
}

#[test]
fn the_first_burst_is_no_longer_than_a_burst_whichever_is_named_first() {
    for text in [
        "FirstBurstLength=65536 MaxBurstLength=4096",
        "MaxBurstLength=4096 FirstBurstLength=65536",
    ] {
        let mut target = target();
        let answered = answers(&mut target, text);
        assert_eq!(
            answered.as_deref(),
            Ok("MaxBurstLength=4096 FirstBurstLength=4096")
        );
    }
    let mut target = target();
    assert!(answers(&mut target, "MaxBurstLength=4096").is_ok());
    assert_eq!(
        target.finish().map(|agreed| agreed.first_burst_length),
        Ok(4096)
    );
}

#[test]
fn digests_are_as_the_initiator_prefers_and_we_accept() {
    for (offered, answer) in [
        ("None,CRC32C", "None"),
        ("CRC32C,None", "CRC32C"),
        ("CRC32C", "CRC32C"),
    ] {
        let answered = answers(&mut target(), &format!("HeaderDigest={offered}"));
        assert_eq!(answered, Ok(format!("HeaderDigest={answer}")));
    }
}

#[test]
fn who_insists_on_a_digest_does_not_work_without() {
    let offers = Offers {
        data_digest: vec![DigestKind::Crc32c],
        ..Offers::of_initiator()
    };
    let mut initiator = Negotiator::leading(Role::Initiator, offers, SessionType::Normal);
    let offers = Offers {
        data_digest: vec![DigestKind::None],
        ..Offers::of_target()
    };
    let mut target = Negotiator::leading(Role::Target, offers, SessionType::Normal);
    meet(&mut initiator, &mut target).expect("nobody misbehaves");
    assert_eq!(
        initiator.finish(),
        Err(NegotiationError::NothingShared(Key::DataDigest))
    );
}

#[test]
fn an_answer_beyond_the_offer_is_not_accepted() {
    for answer in [
        "MaxBurstLength=16777215",
        "MaxBurstLength=1",
        "HeaderDigest=CRC32C",
        "ImmediateData=Perhaps",
    ] {
        let mut initiator =
            Negotiator::leading(Role::Initiator, Offers::of_initiator(), SessionType::Normal);
        initiator.open(&mut Vec::new());
        let (name, _) = answer.split_once('=').expect("a pair");
        let key = Key::find(name).expect("a key");
        assert_eq!(
            answers(&mut initiator, answer),
            Err(NegotiationError::UnfairAnswer(key)),
            "{answer}"
        );
    }
}

#[test]
fn a_further_connection_hears_the_session_s_values_and_changes_none() {
    let session = Parameters {
        max_burst_length: 65536,
        ..Parameters::defaults(SessionType::Normal)
    };
    let mut target = Negotiator::following(Role::Target, Offers::of_target(), &session);
    let answered = answers(
        &mut target,
        "MaxBurstLength=262144 FirstBurstLength=512 HeaderDigest=CRC32C",
    );
    assert_eq!(
        answered.as_deref(),
        Ok("MaxBurstLength=65536 HeaderDigest=CRC32C FirstBurstLength=Reject")
    );
    let agreed = target.finish().expect("agreed");
    assert_eq!(
        (agreed.max_burst_length, agreed.first_burst_length),
        (65536, 65536)
    );
    assert_eq!(agreed.header_digest, DigestKind::Crc32c);
}

/// Values that a side may offer for a key with this rule; none if the key is not negotiated by value. A list
/// of choices includes the default.
fn settings(rule: Rule) -> BoxedStrategy<Vec<Setting>> {
    match rule {
        Rule::And(_) | Rule::Or(_) => any::<bool>()
            .prop_map(|yes| vec![Setting::Flag(yes)])
            .boxed(),
        Rule::Minimum(range, _) | Rule::Maximum(range, _) => (range.least..=range.greatest)
            .prop_map(|number| vec![Setting::Number(number)])
            .boxed(),
        Rule::Choice(choices) => (Just(choices.to_vec()).prop_shuffle(), 0..choices.len())
            .prop_map(move |(mut listed, last)| {
                listed.truncate(last + 1);
                if !listed.contains(&choices[0]) {
                    listed.push(choices[0]);
                }
                listed.into_iter().map(Setting::Choice).collect()
            })
            .boxed(),
        Rule::Text | Rule::DeclaredNumber(..) | Rule::Exchange | Rule::Obsolete(_) => {
            Just(Vec::new()).boxed()
        }
    }
}

prop_compose! {
    fn offers()(
        negotiated in keys::TABLE.iter().map(|entry| settings(entry.rule)).collect::<Vec<_>>(),
        max_recv_data_segment_length in 512u32..0x100_0000,
        alias in prop::option::of("[a-z ]{1,40}".prop_map(|alias| alias.parse().expect("printable"))),
    ) -> Offers {
        let mut offers = Offers { max_recv_data_segment_length, alias, ..Offers::of_target() };
        let negotiated = keys::TABLE.iter().zip(negotiated).filter(|(_, settings)| !settings.is_empty());
        negotiated.for_each(|(entry, settings)| offers.set(entry.key, &settings));
        offers
    }
}

proptest! {
    #[test]
    fn both_sides_come_to_the_same(theirs in offers(), ours in offers(), discovery: bool) {
        let session_type = if discovery { SessionType::Discovery } else { SessionType::Normal };
        let mut initiator = Negotiator::leading(Role::Initiator, theirs.clone(), session_type);
        let mut target = Negotiator::leading(Role::Target, ours.clone(), session_type);
        meet(&mut initiator, &mut target).expect("nobody misbehaves");
        let agreed = target.finish().expect("None is always acceptable");
        prop_assert_eq!(initiator.finish().map(|seen| seen.mirrored()), Ok(agreed.clone()));
        prop_assert!(agreed.first_burst_length <= agreed.max_burst_length);
        if !discovery {
            prop_assert_eq!(agreed.initial_r2t, theirs.initial_r2t || ours.initial_r2t);
            prop_assert_eq!(agreed.immediate_data, theirs.immediate_data && ours.immediate_data);
            prop_assert_eq!(agreed.max_burst_length, theirs.max_burst_length.min(ours.max_burst_length));
            prop_assert_eq!(agreed.max_connections, theirs.max_connections.min(ours.max_connections));
        }
        prop_assert_eq!(agreed.default_time2wait_s, theirs.default_time2wait_s.max(ours.default_time2wait_s));
        prop_assert_eq!(agreed.peer_max_recv_data_segment_length, theirs.max_recv_data_segment_length);
    }

    /// Each key of the table, with values of every kind: whatever is offered, the negotiated value stays
    /// within the key's range, and an answer to a known key is never NotUnderstood.
    #[test]
    fn any_value_of_any_key_is_survived(
        index in 0..keys::TABLE.len(),
        value in prop_oneof!["Yes|No|None|CRC32C|Discovery", "[0-9]{1,10}", "0x[0-9a-f]{1,8}", "(CRC32C|None|,){0,4}", "\\PC{0,20}"],
        role in prop_oneof![Just(Role::Initiator), Just(Role::Target)],
    ) {
        let entry = &keys::TABLE[index];
        let mut side = Negotiator::leading(role, Offers::of_target(), SessionType::Normal);
        let mut out = Vec::new();
        side.receive_all([Pair { key: entry.name, value: &value }], &mut out).expect("a first offer breaks no rule");
        let reply = String::from_utf8(out).expect("text");
        prop_assert!(!reply.contains(answer::NOT_UNDERSTOOD));
        let agreed = side.finish().expect("None is acceptable");
        match (entry.rule, agreed.setting(entry.key)) {
            (Rule::Minimum(range, _) | Rule::Maximum(range, _), Some(Setting::Number(number))) => {
                prop_assert!(range.holds(number));
            }
            _ => prop_assert!((512..=0xff_ffff).contains(&agreed.peer_max_recv_data_segment_length)),
        }
    }

    #[test]
    fn any_pairs_are_survived(pairs in prop::collection::vec((0..keys::TABLE.len(), "[ -~]{0,12}"), 0..20), opened: bool) {
        let mut side = Negotiator::leading(Role::Initiator, Offers::of_initiator(), SessionType::Normal);
        let mut out = Vec::new();
        if opened {
            side.open(&mut out);
        }
        let pairs: Vec<Pair<'_>> =
            pairs.iter().map(|(index, value)| Pair { key: keys::TABLE[*index].name, value }).collect();
        let _ = side.note_keys(&pairs).and_then(|()| side.receive_all(pairs, &mut out));
        let _ = side.finish();
    }
}
