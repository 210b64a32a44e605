//! Logins that fail, and logins that succeed.

use proptest::prelude::*;

use super::pair::*;
use super::*;
use crate::chap::{Algorithm, Challenge, ChapClaim, ChapError};
use crate::keys::Key;
use crate::name::{BadName, Name};
use crate::negotiate::{DigestKind, NegotiationError, Offers, Parameters, SessionType};
use crate::pdu::{
    BHS_BYTES, Cid, Isid, Itt, LoginRequest, LoginResponse, LoginStatus, Malformed, NopOut, Opcode,
    Pdu, Sn, Stage, Tsih,
};
use crate::text::MalformedText;

const SECURITY: Stage = Stage::SecurityNegotiation;
const OPERATIONAL: Stage = Stage::OperationalNegotiation;
const FULL: Option<Stage> = Some(Stage::FullFeature);

fn nop_out() -> Bhs {
    let nop = NopOut {
        immediate: true,
        lun: Default::default(),
        itt: Itt::new(5),
        ttt: None,
        cmd_sn: Sn(0),
        exp_stat_sn: Sn(0),
        data_segment_length: 0,
    };
    nop.emit()
}

/// Sends one request that must be refused: returns the status that the initiator receives, and the reason.
fn refused_at_once(request: LoginRequest, text: &str) -> (LoginStatus, LoginError) {
    let mut door = Door::open();
    let reply = door.say(request, text);
    (reply.response.status, door.error().expect("a failure"))
}

#[test]
fn a_connection_that_does_not_begin_with_a_login_is_closed_without_a_word() {
    let mut door = Door::open();
    assert!(door.say_pdu(&nop_out(), &[]).is_none());
    assert_eq!(door.error(), Some(LoginError::NotALogin));
}

#[test]
fn another_pdu_in_the_middle_of_a_login_is_invalid() {
    let mut door = Door::open();
    door.say(request(SECURITY, None), &names_and(""));
    let reply = door.say_pdu(&nop_out(), &[]).expect("a refusal");
    assert_eq!(reply.response.status, LoginStatus::InvalidDuringLogin);
    assert_eq!(door.error(), Some(LoginError::AnotherPdu));
}

#[test]
fn a_malformed_header_is_an_initiator_error() {
    let mut door = Door::open();
    let mut bhs = request(SECURITY, None).emit();
    bhs.set_u8(1, 0x08);
    let reply = door.say_pdu(&bhs, &[]).expect("a refusal");
    assert_eq!(reply.response.status, LoginStatus::InitiatorError);
    assert_eq!(
        door.error(),
        Some(LoginError::Malformed(Malformed::ReservedStage))
    );
}

#[test]
fn version_zero_is_the_only_one() {
    let future = LoginRequest {
        version_max: 2,
        version_min: 1,
        ..request(SECURITY, None)
    };
    assert_eq!(
        refused_at_once(future, &names_and("")),
        (LoginStatus::UnsupportedVersion, LoginError::Version)
    );
    let polyglot = LoginRequest {
        version_max: 2,
        ..request(SECURITY, None)
    };
    assert_eq!(
        Door::open()
            .say(polyglot, &names_and(""))
            .response
            .version_active,
        0
    );
}

#[test]
fn a_first_text_with_missing_or_malformed_names_is_refused() {
    let say = |text: &str| refused_at_once(request(SECURITY, None), text);
    let missing = |key| (LoginStatus::MissingParameter, LoginError::MissingKey(key));
    assert_eq!(say("SessionType=Discovery"), missing(Key::InitiatorName));
    assert_eq!(
        say(&format!("InitiatorName={INITIATOR}")),
        missing(Key::TargetName)
    );
    assert_eq!(
        say(&format!("InitiatorName={INITIATOR} TargetName=disk")).0,
        LoginStatus::NotFound
    );
    assert_eq!(
        say(&format!("InitiatorName=a,b TargetName={TARGET}")).0,
        LoginStatus::InitiatorError
    );
    let malformed = LoginError::MalformedText(MalformedText::NoEqualsSign);
    assert_eq!(
        say("InitiatorName"),
        (LoginStatus::InitiatorError, malformed)
    );
    let unknown_type = (
        LoginStatus::SessionTypeNotSupported,
        LoginError::UnknownSessionType,
    );
    assert_eq!(
        say(&format!("InitiatorName={INITIATOR} SessionType=Party")),
        unknown_type
    );
}

#[test]
fn a_login_keeps_its_session_connection_and_stage() {
    let first = request(OPERATIONAL, None);
    for (second, error) in [
        (
            LoginRequest {
                isid: Isid([1; 6]),
                ..first
            },
            LoginError::IdentityChanged,
        ),
        (
            LoginRequest {
                tsih: Tsih(9),
                ..first
            },
            LoginError::IdentityChanged,
        ),
        (
            LoginRequest {
                cid: Cid(8),
                ..first
            },
            LoginError::IdentityChanged,
        ),
        (request(SECURITY, None), LoginError::WrongStage),
    ] {
        let mut door = Door::open();
        door.say(first, &names_and(""));
        assert_eq!(
            door.say(second, "").response.status,
            LoginStatus::InitiatorError
        );
        assert_eq!(door.error(), Some(error));
    }
}

/// tgt and ceph-iscsi compare the bytes of names.
#[test]
fn names_are_sent_as_they_were_written_and_compared_folded() {
    let mut pair = Pair::plain();
    pair.config.initiator_name = Name::to_send("iqn.1993-08.org.debian:01:ABCDEF").expect("a name");
    pair.config.target_name = Some(Name::to_send("iqn.2026-11.org.example:DISK").expect("a name"));
    let sent = InitiatorLogin::new(pair.config.clone())
        .poll_transmit()
        .expect("the first request")
        .data;
    let sent = String::from_utf8(sent).expect("text");
    assert!(
        sent.contains("InitiatorName=iqn.1993-08.org.debian:01:ABCDEF\0"),
        "{sent:?}"
    );
    assert!(
        sent.contains("TargetName=iqn.2026-11.org.example:DISK\0"),
        "{sent:?}"
    );
    let TargetEvent::LoggedIn(login) = pair.run().target else {
        panic!("it is logged in")
    };
    assert_eq!(login.request.target_name, Name::new(TARGET).ok());
    assert_eq!(
        login.request.initiator_name.as_str(),
        "iqn.1993-08.org.debian:01:abcdef"
    );
}

#[test]
fn an_initiator_whose_name_has_no_standard_form_logs_in() {
    let mut pair = Pair::plain();
    pair.config.initiator_name = Name::to_send("xxxx-client.000200000318").expect("a name");
    assert!(matches!(pair.run().target, TargetEvent::LoggedIn(_)));
    pair.config.initiator_name = Name::to_send("iqn.2026-11.org.example:a,i,0x1").expect("a name");
    let refused = TargetEvent::Failed(LoginError::BadInitiatorName(BadName::BadCharacter));
    assert_eq!(pair.run().target, refused);
}

#[test]
fn names_may_be_said_again_but_not_changed() {
    let mut door = Door::open();
    door.say(
        request(SECURITY, Some(OPERATIONAL)),
        &names_and("AuthMethod=None"),
    );
    let again = door.say(request(OPERATIONAL, None), &names_and(""));
    assert_eq!(again.response.status, LoginStatus::Success);
    door.say(
        request(OPERATIONAL, None),
        "InitiatorName=iqn.2026-11.org.example:eve",
    );
    assert_eq!(door.error(), Some(LoginError::IdentityChanged));
}

/// Section 6.3: "If such an attempt is detected by the target, the target MUST respond with Login reject (initiator
/// error)."
#[test]
fn a_key_said_twice_is_an_initiator_error() {
    let login = |texts: &[&str]| {
        let mut door = Door::open();
        door.say(request(SECURITY, None), &names_and(texts[0]));
        let rest = &texts[1..];
        rest.iter()
            .for_each(|text| drop(door.say(request(SECURITY, None), text)));
        door.error()
    };
    for texts in [
        &["MaxRecvDataSegmentLength=4096 MaxRecvDataSegmentLength=4096"][..],
        &[
            "MaxRecvDataSegmentLength=4096",
            "MaxRecvDataSegmentLength=8192",
        ],
        &["AuthMethod=None AuthMethod=None"],
        &["AuthMethod=None", "AuthMethod=None"],
        &["HeaderDigest=None", "", "HeaderDigest=None"],
        &["MaxBurstLength=4096", "MaxBurstLength=4096"],
        &["IFMarker=No IFMarker=No"],
        &["InitiatorName=iqn.2026-11.org.example:host"], // the names are already in this text
    ] {
        let Some(LoginError::Negotiation(NegotiationError::Repeated(key))) = login(texts) else {
            panic!("{texts:?} ends with {:?}", login(texts));
        };
        assert!(texts[0].contains(key.name()), "{texts:?}: {key:?}");
        assert_eq!(
            login(texts).and_then(LoginError::status),
            Some(LoginStatus::InitiatorError)
        );
    }
}

/// libiscsi repeats its names and its alias in every request of a login.
#[test]
fn an_alias_may_be_said_again() {
    let mut door = Door::open();
    door.say(
        request(SECURITY, Some(OPERATIONAL)),
        &names_and("InitiatorAlias=host AuthMethod=None"),
    );
    let text = names_and("InitiatorAlias=host MaxRecvDataSegmentLength=4096 X-a=1 X-a=1");
    assert_eq!(
        door.say(request(OPERATIONAL, None), &text).response.status,
        LoginStatus::Success
    );
}

/// A text in several PDUs is one text, and answers to our declarations are not offers.
#[test]
fn a_continued_text_and_answers_repeat_nothing() {
    let mut door = Door::open();
    let first = LoginRequest {
        continues: true,
        ..request(OPERATIONAL, None)
    };
    door.say(first, &names_and("MaxRecvDataSegme"));
    let rest = "ntLength=4096 TargetAlias=Irrelevant TargetAlias=Irrelevant";
    assert_eq!(
        door.say(request(OPERATIONAL, None), rest).response.status,
        LoginStatus::Success
    );
}

/// Section 6.3: "if detected by the initiator, the initiator MUST drop the connection."
#[test]
fn an_initiator_leaves_a_target_that_says_a_key_twice() {
    let redeclared = |texts: &[&str]| {
        let mut initiator = InitiatorLogin::new(Pair::plain().config);
        for text in texts {
            let Some(asked) = initiator.poll_transmit() else {
                break;
            };
            let stage = LoginRequest::parse(&asked.bhs).expect("a request").stage;
            let text = text.replace(' ', "\0").into_bytes();
            initiator.handle_pdu(&success(stage, text.len()).emit(), &text);
        }
        initiator.poll_event()
    };
    for texts in [
        &["TargetPortalGroupTag=1 AuthMethod=None TargetPortalGroupTag=1"][..],
        &["AuthMethod=None", "AuthMethod=None"],
        &[
            "MaxRecvDataSegmentLength=8192",
            "MaxRecvDataSegmentLength=8192",
        ],
        &["TargetAlias=a TargetAlias=b"],
    ] {
        let Some(InitiatorEvent::Failed(LoginFailure::Negotiation(NegotiationError::Repeated(
            key,
        )))) = redeclared(texts)
        else {
            panic!("{texts:?} ends with {:?}", redeclared(texts));
        };
        assert!(texts[0].contains(key.name()), "{texts:?}: {key:?}");
    }
    assert_eq!(
        redeclared(&[
            "TargetAddress=[::1]:1,1 TargetAddress=[::1]:2,1",
            "AuthMethod=None"
        ]),
        None
    );
}

#[test]
fn requests_that_never_end_are_ended() {
    let mut door = Door::open();
    let go_on = LoginRequest {
        continues: true,
        ..request(SECURITY, None)
    };
    let mut replies = std::iter::from_fn(|| Some(door.say(go_on, "").response.status));
    assert_eq!(
        replies.position(|status| status == LoginStatus::InitiatorError),
        Some(LOGIN_PDUS_MAX)
    );
    assert_eq!(door.error(), Some(LoginError::TooMuch));
}

#[test]
fn a_request_or_a_text_that_is_too_large_is_refused() {
    let mut door = Door::open();
    door.say_bytes(request(SECURITY, None), &[b'x'; LOGIN_DATA_BYTES_MAX + 1]);
    assert_eq!(door.error(), Some(LoginError::TooMuch));

    let mut door = Door::open();
    let go_on = LoginRequest {
        continues: true,
        ..request(SECURITY, None)
    };
    while door.error().is_none() {
        door.say_bytes(go_on, &[b'x'; LOGIN_DATA_BYTES_MAX]);
    }
    assert_eq!(
        door.error(),
        Some(LoginError::MalformedText(MalformedText::TooLong))
    );
}

#[test]
fn nothing_is_said_after_the_end() {
    let mut door = Door::open();
    door.say(request(SECURITY, None), "InitiatorName");
    assert!(door.say_bytes(request(SECURITY, None), b"").is_none());
    door.target.admit(accept(None));
    door.target.grant(Ok(grant()));
    assert!(door.target.poll_transmit().is_none() && door.target.poll_event().is_none());
}

#[test]
fn an_initiator_that_does_not_wait_for_admission_is_refused() {
    let mut target = TargetLogin::new(TargetPolicy {
        first_stat_sn: Sn(0),
    });
    let text = names_and("").replace(' ', "\0");
    target.handle_pdu(&request(SECURITY, None).emit(), text.as_bytes());
    target.handle_pdu(&request(SECURITY, None).emit(), b"");
    assert!(matches!(target.poll_event(), Some(TargetEvent::Admit(_))));
    assert_eq!(
        target.poll_event(),
        Some(TargetEvent::Failed(LoginError::OutOfTurn))
    );
}

#[test]
fn what_the_driver_refuses_with_is_what_the_initiator_hears() {
    use LoginStatus::*;
    for status in [
        AuthorizationFailure,
        NotFound,
        TargetRemoved,
        TooManyConnections,
        CannotIncludeInSession,
        SessionTypeNotSupported,
        SessionDoesNotExist,
        TargetError,
        ServiceUnavailable,
        OutOfResources,
    ] {
        let at_the_door = Pair {
            admission: Admission::Refuse(status),
            ..Pair::plain()
        };
        assert_eq!(
            at_the_door.run().refused(),
            (status, LoginError::Refused(status))
        );
        let at_the_end = Pair {
            grant: Err(status),
            ..Pair::plain()
        };
        assert_eq!(
            at_the_end.run().refused(),
            (status, LoginError::Refused(status))
        );
    }
}

#[test]
fn a_target_that_has_moved_says_where_to() {
    for permanent in [false, true] {
        let address = "[2001:db8::1]:3260,2".to_owned();
        let moved = Pair {
            admission: Admission::Redirect {
                address: address.clone(),
                permanent,
            },
            ..Pair::plain()
        };
        assert_eq!(
            moved.run().initiator,
            InitiatorEvent::Redirected { address, permanent }
        );
    }
}

#[test]
fn a_wrong_secret_fails_either_way() {
    for algorithm in Algorithm::ALL {
        let mut guess = one_way(algorithm);
        guess.initiator = credentials("alice", "a guess");
        let wrong = (
            LoginStatus::AuthenticationFailure,
            LoginError::Chap(ChapError::WrongResponse),
        );
        assert_eq!(Pair::with_chap(guess).run().refused(), wrong);

        let mut suspicious = mutual(algorithm);
        suspicious.target = suspicious
            .target
            .map(|(_, challenge)| (credentials("disk", "another"), challenge));
        let failure = InitiatorEvent::Failed(LoginFailure::Chap(ChapError::WrongResponse));
        assert_eq!(lonely_initiator_end(&Pair::with_chap(suspicious)), failure);
    }
}

/// The result for an initiator that gives up without notifying the target.
fn lonely_initiator_end(pair: &Pair) -> InitiatorEvent {
    let mut initiator = InitiatorLogin::new(pair.config.clone());
    let mut door = Door {
        admission: pair.admission.clone(),
        ..Door::open()
    };
    for _ in 0..LOGIN_PDUS_MAX {
        let sent = initiator.poll_transmit();
        let Some(reply) = sent.and_then(|Transmit { bhs, data }| door.say_pdu(&bhs, &data)) else {
            break;
        };
        initiator.handle_pdu(
            &reply.response.emit(),
            reply.text.replace(' ', "\0").as_bytes(),
        );
    }
    initiator.poll_event().expect("an end")
}

#[test]
fn authentication_cannot_be_skipped() {
    let failure = LoginStatus::AuthenticationFailure;
    for (first, text, error) in [
        (
            request(OPERATIONAL, FULL),
            "",
            LoginError::AuthenticationSkipped,
        ),
        (
            request(OPERATIONAL, None),
            "AuthMethod=CHAP",
            LoginError::AuthenticationSkipped,
        ),
        (
            request(SECURITY, Some(OPERATIONAL)),
            "",
            LoginError::AuthenticationSkipped,
        ),
        (
            request(SECURITY, FULL),
            "",
            LoginError::AuthenticationSkipped,
        ),
        (
            request(SECURITY, Some(OPERATIONAL)),
            "AuthMethod=None",
            LoginError::NoSharedAuthMethod,
        ),
        (
            request(SECURITY, None),
            "AuthMethod=KRB5,SRP",
            LoginError::NoSharedAuthMethod,
        ),
        (
            request(SECURITY, None),
            "AuthMethod=CHAP CHAP_A=4",
            LoginError::Chap(ChapError::NoSharedAlgorithm),
        ),
    ] {
        let mut door = Door::with_chap();
        assert_eq!(
            door.say(first, &names_and(text)).response.status,
            failure,
            "{text}"
        );
        assert_eq!(door.error(), Some(error), "{text}");
    }
}

#[test]
fn a_challenge_is_not_answered_by_moving_on() {
    let mut door = Door::with_chap();
    door.say(request(SECURITY, None), &names_and("AuthMethod=CHAP"));
    door.say(request(SECURITY, None), "CHAP_A=7");
    let reply = door.say(request(SECURITY, FULL), "");
    assert_eq!(
        (reply.response.transit_to, reply.response.status),
        (None, LoginStatus::Success)
    );
    door.say(request(OPERATIONAL, FULL), "");
    assert_eq!(door.error(), Some(LoginError::WrongStage));
}

/// A target that has sent its challenge to alice. Also returns the text of the request with her correct
/// proof.
fn about_to_prove(admission: Admission) -> (Door, String) {
    let mut door = Door {
        admission,
        ..Door::open()
    };
    door.say(request(SECURITY, None), &names_and("AuthMethod=CHAP"));
    door.say(request(SECURITY, None), "CHAP_A=7");
    let response = Algorithm::Sha256.response(&policy().initiators[0].secret, &policy().challenge);
    (
        door,
        format!("CHAP_N=alice CHAP_R={}", crate::text::hex_value(&response)),
    )
}

/// After too many wrong proofs, the result of a further one is not revealed.
#[test]
fn a_proof_is_looked_at_only_if_the_driver_says_so() {
    for wrong in [false, true] {
        let (mut door, mut proof) = about_to_prove(accept(Some(policy())));
        door.verdict = Err(LoginStatus::ServiceUnavailable);
        if wrong {
            proof += "00";
        }
        let reply = door.say(request(SECURITY, Some(OPERATIONAL)), &proof);
        assert_eq!(
            (reply.response.status, reply.text.as_str()),
            (LoginStatus::ServiceUnavailable, "")
        );
        assert_eq!(
            (door.users.as_slice(), door.target.proved()),
            (&["alice".to_owned()][..], None)
        );
    }
    let (mut door, proof) = about_to_prove(accept(Some(policy())));
    door.say(request(SECURITY, Some(OPERATIONAL)), &proof);
    assert_eq!(door.target.proved(), Some("alice"));
}

/// With "service unavailable" alone, a user with the correct secret would look for a problem of the server.
#[test]
fn an_initiator_says_so_if_its_proof_is_not_looked_at() {
    for algorithm in Algorithm::ALL {
        let verdict = Err(LoginStatus::ServiceUnavailable);
        let ended = Pair {
            verdict,
            ..Pair::with_chap(one_way(algorithm))
        }
        .run();
        let InitiatorEvent::Failed(why) = ended.initiator else {
            panic!("{:?}", ended.initiator)
        };
        assert_eq!(why, LoginFailure::Unchecked);
        let words = why.to_string();
        assert!(
            words.contains("did not check the secret: it may delay logins"),
            "{words}"
        );
    }
}

#[test]
fn a_user_is_named_to_the_driver_as_it_names_itself() {
    let (mut door, _) = about_to_prove(accept(Some(policy())));
    door.say(request(SECURITY, None), "CHAP_N=a\u{1b}[2J CHAP_R=0x00");
    assert_eq!(door.users, ["a\u{1b}[2J"]);
    assert_eq!(
        door.error(),
        Some(LoginError::Chap(ChapError::WrongResponse))
    );
    assert_eq!(door.target.proved(), None);
}

/// Information that unauthenticated initiators must not get, such as whether a session exists, is sent only
/// after the proof.
#[test]
fn a_refusal_waits_for_the_proof() {
    let Admission::Accept(acceptance) = accept(Some(policy())) else {
        unreachable!("accepted")
    };
    let refusal = Some(LoginStatus::SessionDoesNotExist);
    let (mut door, proof) = about_to_prove(Admission::Accept(Box::new(Acceptance {
        refusal,
        ..*acceptance
    })));
    assert_eq!(door.error(), None, "nothing is refused yet");
    let reply = door.say(request(SECURITY, Some(OPERATIONAL)), &proof);
    assert_eq!(
        (Some(reply.response.status), reply.text.as_str()),
        (refusal, "")
    );
    assert_eq!(door.target.proved(), Some("alice"), "which was no guess");

    let (mut door, _) = about_to_prove(door.admission);
    let reply = door.say(
        request(SECURITY, Some(OPERATIONAL)),
        "CHAP_N=alice CHAP_R=0x00",
    );
    assert_eq!(reply.response.status, LoginStatus::AuthenticationFailure);
}

/// A further connection of a session may not change MaxBurstLength, so the answer to an offer of it reveals
/// whether the named session exists. Initiators may offer keys together with AuthMethod; these are answered
/// after authentication.
#[test]
fn what_is_offered_before_the_proof_is_answered_behind_it() {
    let Admission::Accept(acceptance) = accept(Some(policy())) else {
        unreachable!("accepted")
    };
    let (_, session) = Pair::plain().run().logged_in();
    let missing = Acceptance {
        refusal: Some(LoginStatus::SessionDoesNotExist),
        ..(*acceptance).clone()
    };
    let existing = Acceptance {
        session: Some(session.parameters),
        ..(*acceptance).clone()
    };
    let named = |acceptance: Acceptance| {
        let mut door = Door {
            admission: Admission::Accept(Box::new(acceptance)),
            ..Door::open()
        };
        let text = names_and("AuthMethod=CHAP MaxBurstLength=512 X-a=1");
        let told = door.say(request(SECURITY, None), &text).text;
        (door, told)
    };
    let (mut door, told) = named(existing);
    assert_eq!(told, "TargetPortalGroupTag=1 AuthMethod=CHAP ");
    assert_eq!(
        named(missing).1,
        told,
        "a stranger does not learn whether the session exists"
    );

    door.say(request(SECURITY, None), "CHAP_A=7");
    let response = Algorithm::Sha256.response(&policy().initiators[0].secret, &policy().challenge);
    let proof = format!(
        "CHAP_N=alice CHAP_R={} X-b=1",
        crate::text::hex_value(&response)
    );
    let reply = door.say(request(SECURITY, Some(OPERATIONAL)), &proof);
    assert_eq!(
        reply.text,
        "MaxBurstLength=Reject X-a=NotUnderstood X-b=NotUnderstood "
    );
    assert_eq!(reply.response.transit_to, Some(OPERATIONAL));
}

#[test]
fn keys_that_are_kept_until_the_proof_are_bounded() {
    let mut door = Door::with_chap();
    door.say(request(SECURITY, None), &names_and("AuthMethod=CHAP"));
    let key = format!("X-a={}", "x".repeat(4000));
    let kept = (0..LOGIN_PDUS_MAX).take_while(|_| {
        door.say(request(SECURITY, None), &key);
        door.error().is_none()
    });
    assert_eq!(kept.count(), LOGIN_TEXT_BYTES_MAX / (key.len() + 1));
    assert_eq!(door.error(), Some(LoginError::TooMuch));
}

#[test]
fn where_nothing_is_to_be_proved_a_refusal_comes_at_once() {
    let Admission::Accept(acceptance) = accept(None) else {
        unreachable!("accepted")
    };
    let refusal = Some(LoginStatus::SessionDoesNotExist);
    let mut door = Door {
        admission: Admission::Accept(Box::new(Acceptance {
            refusal,
            ..*acceptance
        })),
        ..Door::open()
    };
    assert_eq!(
        Some(
            door.say(request(SECURITY, None), &names_and(""))
                .response
                .status
        ),
        refusal
    );
}

#[test]
fn the_names_of_a_login_are_known_although_they_are_none() {
    let mut door = Door::open();
    door.say(
        request(SECURITY, None),
        &format!("InitiatorName=joe TargetName={}", "ä".repeat(200)),
    );
    let claimed = door.target.claimed();
    assert_eq!(claimed.initiator.as_deref(), Some("joe"));
    assert_eq!(
        claimed.target.as_deref(),
        Some("ä".repeat(111).as_str()),
        "no longer than a name"
    );
}

#[test]
fn a_mutual_initiator_does_not_make_do_with_less() {
    let open_door = Pair {
        admission: accept(None),
        ..Pair::with_chap(mutual(Algorithm::Sha256))
    };
    assert_eq!(
        open_door.run().refused(),
        (
            LoginStatus::AuthenticationFailure,
            LoginError::NoSharedAuthMethod
        )
    );
}

#[test]
fn a_one_way_initiator_makes_do_with_an_open_target() {
    let open_door = Pair {
        admission: accept(None),
        ..Pair::with_chap(one_way(Algorithm::Sha256))
    };
    assert_eq!(open_door.run().logged_in().1.authenticated_as, None);
}

#[test]
fn every_algorithm_logs_in_one_way_and_mutually() {
    for algorithm in Algorithm::ALL {
        for claim in [one_way(algorithm), mutual(algorithm)] {
            let (_, logged_in) = Pair::with_chap(claim).run().logged_in();
            assert_eq!(logged_in.authenticated_as.as_deref(), Some("alice"));
        }
    }
}

/// iPXE sets T, with the operational stage as the next one, in each round of CHAP.
#[test]
fn t_in_every_round_of_chap_is_tolerated() {
    let mut door = Door::with_chap();
    let eager = request(SECURITY, Some(OPERATIONAL));
    assert_eq!(
        door.say(eager, &names_and("AuthMethod=CHAP,None"))
            .response
            .transit_to,
        None
    );
    assert_eq!(door.say(eager, "CHAP_A=5").response.transit_to, None);
    let alice = policy().initiators[0].clone();
    let response = Algorithm::Md5.response(&alice.secret, &policy().challenge);
    let proof = format!(
        "CHAP_N=alice CHAP_R={} CHAP_I=9 CHAP_C=0x0102030405060708",
        crate::text::hex_value(&response)
    );
    let reply = door.say(eager, &proof);
    assert_eq!(reply.response.transit_to, Some(OPERATIONAL));
    assert!(
        reply.text.starts_with("CHAP_N=disk CHAP_R=0x"),
        "{}",
        reply.text
    );
}

#[test]
fn a_plain_login_agrees_on_everything() {
    let (attached, logged_in) = Pair::plain().run().logged_in();
    assert_eq!(attached.parameters.mirrored(), logged_in.parameters);
    assert_eq!(
        (attached.tsih, logged_in.request.tsih),
        (Tsih(0x55), Tsih(0x55))
    );
    assert_eq!(attached.target_portal_group_tag, Some(1));
    assert_eq!(attached.exp_stat_sn, logged_in.stat_sn);
    assert_eq!(
        (attached.exp_cmd_sn, attached.max_cmd_sn),
        (Sn(0x20), Sn(0x11f))
    );
    assert_eq!(
        (logged_in.exp_cmd_sn, logged_in.max_cmd_sn),
        (Sn(0x20), Sn(0x11f))
    );
    assert_eq!(
        logged_in.parameters.local_max_recv_data_segment_length,
        262_144
    );
    assert_eq!(
        logged_in.parameters.peer_max_recv_data_segment_length,
        262_144
    );
    assert!(!logged_in.parameters.initial_r2t && logged_in.parameters.immediate_data);
}

#[test]
fn digests_are_there_if_the_initiator_insists() {
    let mut pair = Pair::plain();
    pair.config.offers = Offers {
        header_digest: vec![DigestKind::Crc32c],
        data_digest: vec![DigestKind::Crc32c, DigestKind::None],
        ..Offers::of_initiator()
    };
    let (attached, _) = pair.run().logged_in();
    assert_eq!(attached.parameters.header_digest, DigestKind::Crc32c);
    assert_eq!(attached.parameters.data_digest, DigestKind::Crc32c);
}

#[test]
fn discovery_needs_no_target() {
    let mut pair = Pair::plain();
    pair.config.target_name = None;
    pair.config.session_type = SessionType::Discovery;
    let (_, logged_in) = pair.run().logged_in();
    assert_eq!(logged_in.request.target_name, None);
    assert_eq!(logged_in.parameters.session_type, SessionType::Discovery);
    assert_eq!(logged_in.parameters.max_burst_length, 262_144);
}

#[test]
fn a_further_connection_joins_its_session() {
    let (first, session) = Pair::plain().run().logged_in();
    let mut pair = Pair::plain();
    pair.config.tsih = first.tsih;
    pair.config.cid = Cid(8);
    pair.config.session = Some(first.parameters.clone());
    pair.config.offers.max_recv_data_segment_length = 65536;
    if let Admission::Accept(acceptance) = &mut pair.admission {
        acceptance.session = Some(session.parameters.clone());
    }
    let (attached, logged_in) = pair.run().logged_in();
    assert_eq!(
        (logged_in.request.tsih, logged_in.request.cid),
        (first.tsih, Cid(8))
    );
    let expected = Parameters {
        peer_max_recv_data_segment_length: 65536,
        ..session.parameters
    };
    assert_eq!(logged_in.parameters, expected);
    assert_eq!(attached.parameters.mirrored(), expected);
}

#[test]
fn the_first_response_gives_the_portal_group_and_no_other_does() {
    let mut door = Door::open();
    let first = door.say(
        request(SECURITY, Some(OPERATIONAL)),
        &names_and("AuthMethod=None"),
    );
    assert_eq!(first.text, "TargetPortalGroupTag=1 AuthMethod=None ");
    let second = door.say(request(OPERATIONAL, FULL), "HeaderDigest=None");
    assert_eq!(
        second.text,
        "MaxRecvDataSegmentLength=262144 HeaderDigest=None "
    );
}

#[test]
fn every_way_through_the_stages_leads_to_the_full_feature_phase() {
    let ways: [&[LoginRequest]; 4] = [
        &[
            request(SECURITY, Some(OPERATIONAL)),
            request(OPERATIONAL, FULL),
        ],
        &[
            request(SECURITY, None),
            request(SECURITY, Some(OPERATIONAL)),
            request(OPERATIONAL, None),
            request(OPERATIONAL, FULL),
        ],
        &[request(SECURITY, FULL)],
        &[request(OPERATIONAL, FULL)],
    ];
    for way in ways {
        let mut door = Door::open();
        for (index, &step) in way.iter().enumerate() {
            let text = if index == 0 {
                names_and("")
            } else {
                String::new()
            };
            let reply = door.say(step, &text);
            assert_eq!(
                (reply.response.stage, reply.response.transit_to),
                (step.stage, step.transit_to)
            );
            assert_eq!(reply.response.numbers.stat_sn, Sn(0x100 + index as u32));
        }
        let Some(TargetEvent::LoggedIn(logged_in)) = &door.end else {
            panic!("not logged in: {:?}", door.end)
        };
        assert_eq!(
            logged_in.parameters.local_max_recv_data_segment_length,
            262_144
        );
        assert_eq!(logged_in.stat_sn, Sn(0x100 + way.len() as u32));
    }
}

#[test]
fn the_handle_is_told_in_the_last_response_only() {
    let mut door = Door::open();
    assert_eq!(
        door.say(request(OPERATIONAL, None), &names_and(""))
            .response
            .tsih,
        Tsih::NEW
    );
    assert_eq!(
        door.say(request(OPERATIONAL, FULL), "").response.tsih,
        Tsih(0x55)
    );
}

#[test]
fn an_answer_longer_than_a_pdu_goes_on_while_the_initiator_says_go_on() {
    let mut door = Door::open();
    let unknown: String = (0..1000).map(|i| format!("X-k{i}=1 ")).collect();
    let mut text = names_and(&unknown).replace(' ', "\0").into_bytes();
    let rest = text.split_off(8000);
    let go_on = LoginRequest {
        continues: true,
        ..request(OPERATIONAL, None)
    };
    assert_eq!(door.say_bytes(go_on, &text).expect("a response").text, "");
    let mut reply = door
        .say_bytes(request(OPERATIONAL, FULL), &rest)
        .expect("a response");
    let mut answers = reply.text.clone();
    let mut pieces = 1;
    while reply.response.continues {
        assert_eq!(
            (reply.response.transit_to, reply.text.len()),
            (None, LOGIN_DATA_BYTES_MAX)
        );
        reply = door.say(request(OPERATIONAL, FULL), "");
        answers += &reply.text;
        pieces += 1;
    }
    assert_eq!(pieces, 3);
    assert_eq!(answers.matches("=NotUnderstood ").count(), 1000);
    assert_eq!(reply.response.transit_to, FULL);
}

/// If a session were granted before the last response of its login, a slow initiator could keep it waiting
/// indefinitely.
#[test]
fn a_session_is_asked_for_only_with_the_last_piece_of_an_answer() {
    let mut target = TargetLogin::new(TargetPolicy {
        first_stat_sn: Sn(0),
    });
    let unknown: String = (0..600).map(|i| format!("X-k{i}=1 ")).collect();
    let text = names_and(&unknown).replace(' ', "\0");
    target.handle_pdu(&request(OPERATIONAL, FULL).emit(), text.as_bytes());
    assert!(matches!(target.poll_event(), Some(TargetEvent::Admit(_))));
    target.admit(accept(None));
    let sent = |target: &mut TargetLogin| {
        let bhs = target.poll_transmit()?.bhs;
        Some(LoginResponse::parse(&bhs).expect("a login response"))
    };
    assert_eq!(
        target.poll_event(),
        None,
        "no session yet: the answer takes two pieces"
    );
    assert!(sent(&mut target).is_some_and(|response| response.continues));

    target.handle_pdu(&request(OPERATIONAL, FULL).emit(), b"");
    assert!(matches!(
        target.poll_event(),
        Some(TargetEvent::SessionNeeded(_))
    ));
    assert_eq!(sent(&mut target), None);
    target.grant(Ok(grant()));
    assert!(sent(&mut target).is_some_and(|response| response.transit_to == FULL));
    assert!(
        matches!(target.poll_event(), Some(TargetEvent::LoggedIn(_))),
        "with nothing more from the initiator"
    );
}

#[test]
fn an_initiator_that_does_not_let_us_finish_is_refused() {
    let mut door = Door::open();
    let unknown: String = (0..600).map(|i| format!("X-k{i}=1 ")).collect();
    assert!(
        door.say(request(OPERATIONAL, FULL), &names_and(&unknown))
            .response
            .continues
    );
    door.say(request(OPERATIONAL, FULL), "ImmediateData=Yes");
    assert_eq!(door.error(), Some(LoginError::OutOfTurn));
}

#[test]
fn security_keys_have_no_place_in_the_operational_stage() {
    let mut door = Door::open();
    let reply = door.say(request(OPERATIONAL, None), &names_and("AuthMethod=CHAP"));
    assert!(reply.text.ends_with("AuthMethod=Reject "), "{}", reply.text);
}

/// Violations by a target that end our initiator's login.
#[test]
fn a_target_that_misbehaves_is_left() {
    let logged_in = |change: &dyn Fn(&mut crate::pdu::LoginResponse)| {
        let pair = Pair::plain();
        let mut initiator = InitiatorLogin::new(pair.config.clone());
        let Transmit { bhs, data } = initiator.poll_transmit().expect("a request");
        let mut reply = Door::open().say_pdu(&bhs, &data).expect("a response");
        change(&mut reply.response);
        initiator.handle_pdu(
            &reply.response.emit(),
            reply.text.replace(' ', "\0").as_bytes(),
        );
        initiator.poll_event()
    };
    let failed = |failure| Some(InitiatorEvent::Failed(failure));
    assert_eq!(logged_in(&|_| {}), None);
    assert_eq!(
        logged_in(&|response| response.transit_to = FULL),
        failed(LoginFailure::OutOfTurn)
    );
    assert_eq!(
        logged_in(&|response| response.stage = OPERATIONAL),
        failed(LoginFailure::Malformed(Malformed::BackwardStage))
    );
    assert_eq!(
        logged_in(&|response| response.isid = Isid([9; 6])),
        failed(LoginFailure::NotOurs)
    );
    assert_eq!(
        logged_in(&|response| response.version_active = 1),
        failed(LoginFailure::NotOurs)
    );
    assert_eq!(
        logged_in(&|response| response.itt = Itt::new(1).expect("a tag")),
        failed(LoginFailure::NotOurs)
    );
    let moved = LoginFailure::NoAddress;
    assert_eq!(
        logged_in(&|response| response.status = LoginStatus::TargetMovedTemporarily),
        failed(moved)
    );
}

#[test]
fn a_target_that_never_ends_is_left() {
    let mut initiator = InitiatorLogin::new(Pair::plain().config);
    let endless = crate::pdu::LoginResponse {
        continues: true,
        ..Door::open()
            .say(request(SECURITY, None), &names_and(""))
            .response
    };
    for _ in 0..=LOGIN_PDUS_MAX {
        initiator.handle_pdu(&endless.emit(), b"");
    }
    assert_eq!(
        initiator.poll_event(),
        Some(InitiatorEvent::Failed(LoginFailure::TooManyRounds))
    );
}

/// A captured header.
fn header(digits: &str) -> Bhs {
    let nibble = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    let bytes: Vec<u8> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| nibble(pair[0]) << 4 | nibble(pair[1]))
        .collect();
    let bytes: [u8; BHS_BYTES] = bytes.try_into().expect("forty-eight bytes");
    Bhs(bytes)
}

/// A captured text, written with spaces for NULs.
fn text(pairs: &str) -> Vec<u8> {
    pairs.replace(' ', "\0").into_bytes()
}

#[test]
fn qemu_logs_in_with_one_request() {
    let bhs = header(
        "438700000000019f8070175d000000000981872d00000000787b76a80000000100000000000000000000000000000000",
    );
    let data = text(
        "InitiatorName=iqn.2008-11.org.linux-kvm TargetName=iqn.2026-11.org.example:disk SessionType=Normal \
         HeaderDigest=None,CRC32C DataDigest=None InitialR2T=No ImmediateData=Yes MaxBurstLength=262144 \
         FirstBurstLength=262144 DefaultTime2Wait=2 DefaultTime2Retain=0 MaxOutstandingR2T=1 ErrorRecoveryLevel=0 \
         IFMarker=No OFMarker=No MaxConnections=1 MaxRecvDataSegmentLength=262144 DataPDUInOrder=Yes \
         DataSequenceInOrder=Yes ",
    );
    assert_eq!(data.len(), bhs.data_segment_length() as usize);
    let mut door = Door::open();
    let reply = door.say_pdu(&bhs, &data).expect("a response");
    assert_eq!(
        reply.text,
        "TargetPortalGroupTag=1 MaxRecvDataSegmentLength=262144 HeaderDigest=None DataDigest=None InitialR2T=No \
         ImmediateData=Yes MaxBurstLength=262144 DefaultTime2Wait=2 DefaultTime2Retain=0 MaxOutstandingR2T=1 \
         ErrorRecoveryLevel=0 IFMarker=No OFMarker=No MaxConnections=1 DataPDUInOrder=Yes DataSequenceInOrder=Yes \
         FirstBurstLength=262144 "
    );
    let Some(TargetEvent::LoggedIn(logged_in)) = door.end else {
        panic!("not logged in: {:?}", door.end)
    };
    assert_eq!(
        (
            logged_in.parameters.first_burst_length,
            logged_in.parameters.initial_r2t
        ),
        (262_144, false)
    );
    assert_eq!(Pdu::parse(&bhs).map(|pdu| pdu.emit()), Ok(bhs));
}

/// tgt requires mutual CHAP, accepts our proof, sends its own, and keeps most of its defaults.
#[test]
fn tgt_lets_us_in_with_mutual_chap() {
    let mut pair = Pair::plain();
    pair.config.initiator_name = Name::new("iqn.2026-11.org.example:me").expect("a name");
    pair.config.isid = crate::pdu::Isid([0x80, 0, 0, 0, 0, 1]);
    pair.config.chap = Some(ChapClaim {
        algorithms: vec![Algorithm::Md5],
        initiator: credentials("alice", "alicesecret12"),
        target: Some((
            credentials("disk", "disksecret1234"),
            Challenge {
                identifier: 3,
                bytes: vec![5; 16],
            },
        )),
    });
    let mut initiator = InitiatorLogin::new(pair.config);
    let mut said = |header_digits: &str, pairs: &str| {
        let request = initiator.poll_transmit().expect("a request");
        initiator.handle_pdu(&header(header_digits), &text(pairs));
        (
            String::from_utf8(request.data)
                .expect("text")
                .replace('\0', " "),
            initiator.poll_event(),
        )
    };
    said(
        "230000000000002780000000000100000000000000000000000000000000000100000002000000000000000000000000",
        "TargetPortalGroupTag=1 AuthMethod=CHAP ",
    );
    said(
        "230000000000008080000000000100000000000000000000000000010000000100000002000000000000000000000000",
        "CHAP_A=5 CHAP_I=1 CHAP_C=0x4311cf55b57359bd977af8815b78fa8b1ce9db8788e1d6228f3694017921369071ca094a78a0e\
         5ad95820ba692a1e212ca4b ",
    );
    let (proof, _) = said(
        "238100000000003680000000000100000000000000000000000000020000000100000002000000000000000000000000",
        "CHAP_N=disk CHAP_R=0x38f3444afa87d5181841bad3eaa9c01a ",
    );
    assert!(
        proof.starts_with("CHAP_N=alice CHAP_R=0x0fa4b0629ff209e78978adf0166731f0 CHAP_I=3 "),
        "{proof}"
    );
    let (_, end) = said(
        "238700000000013b80000000000102000000000000000000000000030000000100000002000000000000000000000000",
        "HeaderDigest=None DataDigest=None MaxConnections=1 InitialR2T=Yes ImmediateData=Yes MaxBurstLength=262144 \
         FirstBurstLength=65536 DefaultTime2Wait=2 DefaultTime2Retain=20 MaxOutstandingR2T=1 DataPDUInOrder=Yes \
         DataSequenceInOrder=Yes ErrorRecoveryLevel=0 TaskReporting=NotUnderstood iSCSIProtocolLevel=NotUnderstood ",
    );
    let Some(InitiatorEvent::LoggedIn(attached)) = end else {
        panic!("not logged in: {end:?}")
    };
    assert_eq!(
        (attached.tsih, attached.exp_stat_sn, attached.max_cmd_sn),
        (Tsih(0x200), Sn(4), Sn(2))
    );
    assert!(attached.parameters.initial_r2t);
    assert_eq!(attached.parameters.peer_max_recv_data_segment_length, 8192);
}

/// The header of tgt's refusal contains only the status, but no ISID and no sequence numbers.
#[test]
fn tgt_s_bare_refusal_is_understood() {
    let mut initiator = InitiatorLogin::new(Pair::plain().config);
    let refusal = "230000000000000000000000000000000000000000000000000000000000000000000000020000000000000000000000";
    initiator.handle_pdu(&header(refusal), &[]);
    let refused = LoginFailure::Refused(LoginStatus::InitiatorError);
    assert_eq!(
        initiator.poll_event(),
        Some(InitiatorEvent::Failed(refused))
    );
}

/// Headers that are mostly logins, with texts that are mostly keys, to reach states that random bytes never reach.
fn likely_pdus() -> impl Strategy<Value = Vec<(Bhs, Vec<u8>)>> {
    let flags = prop_oneof![
        Just(0x81u8),
        Just(0x87),
        Just(0x83),
        Just(0),
        Just(4),
        Just(0x40),
        any::<u8>()
    ];
    let opcode = prop_oneof![4 => Just(Opcode::LoginRequest), 4 => Just(Opcode::LoginResponse), 1 => Just(Opcode::NopOut)];
    let noise = proptest::collection::vec((0usize..48, any::<u8>()), 0..3);
    let known: Vec<String> = crate::keys::TABLE
        .iter()
        .map(|entry| entry.name.to_owned())
        .collect();
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
        noise
            .into_iter()
            .for_each(|(at, byte)| bhs.set_u8(at, byte));
        let text = pairs
            .iter()
            .flat_map(|(key, value)| format!("{key}={value}\0").into_bytes())
            .collect();
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

    /// The result does not depend on how the initiator splits its text.
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
