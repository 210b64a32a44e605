//! Scenes of successful and failed authentication.

use proptest::prelude::*;

use super::*;

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials {
        name: name.to_owned(),
        secret: Secret::new(secret.as_bytes()),
    }
}

fn challenge(identifier: u8, byte: u8) -> Challenge {
    Challenge {
        identifier,
        bytes: vec![byte; 16],
    }
}

fn policy() -> ChapPolicy {
    ChapPolicy {
        algorithms: Algorithm::ALL.to_vec(),
        initiators: [
            credentials("alice", "twelve or more"),
            credentials("bob", "another secret"),
        ]
        .into(),
        target: Some(credentials("disk", "the target's own")),
        challenge: challenge(1, 0xaa),
    }
}

fn claim() -> ChapClaim {
    ChapClaim {
        algorithms: Algorithm::ALL.to_vec(),
        initiator: credentials("bob", "another secret"),
        target: Some((credentials("disk", "the target's own"), challenge(2, 0xbb))),
    }
}

/// Runs the whole exchange; returns the authenticated initiator name if both sides succeed.
fn meet(claim: ChapClaim, policy: ChapPolicy) -> Result<String, ChapError> {
    let (mut claimant, mut authenticator) = (Claimant::new(claim), Authenticator::new(policy));
    let mut to_initiator = Vec::new();
    while !(claimant.is_done() && authenticator.authenticated().is_some()) {
        let mut to_target = Vec::new();
        claimant.handle(&text::parse(&to_initiator).expect("text"), &mut to_target)?;
        if claimant.is_done() && to_target.is_empty() {
            break;
        }
        to_initiator.clear();
        authenticator.handle(&text::parse(&to_target).expect("text"), &mut to_initiator)?;
    }
    Ok(authenticator
        .authenticated()
        .expect("authenticated")
        .to_owned())
}

/// A target's reply to one request, whose text has spaces for NULs.
fn say(authenticator: &mut Authenticator, request: &str) -> Result<String, ChapError> {
    let mut out = Vec::new();
    let wire = request.replace(' ', "\0");
    authenticator.handle(&text::parse(wire.as_bytes()).expect("text"), &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

#[test]
fn a_wrong_secret_or_an_unknown_name_is_refused_alike() {
    for wrong in [
        credentials("bob", "guess"),
        credentials("eve", "another secret"),
        credentials("alice", "another secret"),
    ] {
        let claim = ChapClaim {
            initiator: wrong,
            ..claim()
        };
        assert_eq!(meet(claim, policy()), Err(ChapError::WrongResponse));
    }
}

#[test]
fn a_target_that_cannot_prove_itself_is_refused() {
    let impostor = ChapPolicy {
        target: Some(credentials("disk", "a guess")),
        ..policy()
    };
    assert_eq!(meet(claim(), impostor), Err(ChapError::WrongResponse));
    let mute = ChapPolicy {
        target: None,
        ..policy()
    };
    assert_eq!(meet(claim(), mute), Err(ChapError::CannotProve));
}

#[test]
fn every_algorithm_proves_both_ways_and_one_way() {
    for algorithm in Algorithm::ALL {
        let mutual = ChapClaim {
            algorithms: vec![algorithm],
            ..claim()
        };
        let one_way = ChapClaim {
            target: None,
            ..mutual.clone()
        };
        assert_eq!(meet(mutual, policy()).as_deref(), Ok("bob"));
        assert_eq!(meet(one_way, policy()).as_deref(), Ok("bob"));
    }
}

/// Otherwise an attacker who can modify an initiator's messages could move MD5 to the front.
#[test]
fn of_the_hashes_that_both_sides_accept_the_strongest_is_taken() {
    let strict = ChapPolicy {
        algorithms: vec![Algorithm::Md5, Algorithm::Sha256],
        ..policy()
    };
    for offered in ["8,99,x,7,6,5", "5,6,7,8", "5,7"] {
        let answer = say(
            &mut Authenticator::new(strict.clone()),
            &format!("CHAP_A={offered}"),
        );
        assert!(
            answer.expect("an algorithm").starts_with("CHAP_A=7\0"),
            "of {offered}"
        );
    }
    let answer = say(&mut Authenticator::new(policy()), "CHAP_A=5,6,7,8").expect("an algorithm");
    assert!(answer.starts_with("CHAP_A=8\0"), "{answer:?}");
    assert_eq!(
        say(&mut Authenticator::new(strict), "CHAP_A=6,8"),
        Err(ChapError::NoSharedAlgorithm)
    );
}

#[test]
fn an_algorithm_that_was_not_offered_is_not_used() {
    let mut claimant = Claimant::new(ChapClaim {
        algorithms: vec![Algorithm::Sha3_256],
        ..claim()
    });
    claimant.handle(&[], &mut Vec::new()).expect("an offer");
    let downgrade = text::parse(b"CHAP_A=5\0CHAP_I=1\0CHAP_C=0x0102030405060708\0").expect("text");
    assert_eq!(
        claimant.handle(&downgrade, &mut Vec::new()),
        Err(ChapError::NoSharedAlgorithm)
    );
}

#[test]
fn a_reflected_challenge_is_refused_on_both_sides() {
    let reflecting = ChapClaim {
        target: Some((credentials("disk", "the target's own"), challenge(1, 0xaa))),
        ..claim()
    };
    assert_eq!(
        meet(reflecting, policy()),
        Err(ChapError::ReflectedChallenge)
    );

    let mut authenticator = Authenticator::new(policy());
    say(&mut authenticator, "CHAP_A=5").expect("an algorithm");
    let bob = Algorithm::Md5.response(&Secret::new(b"another secret"), &challenge(1, 0xaa));
    let proof = format!(
        "CHAP_N=bob CHAP_R={} CHAP_I=9 CHAP_C=0x{}",
        text::hex_value(&bob),
        "aa".repeat(16)
    );
    assert_eq!(
        say(&mut authenticator, &proof),
        Err(ChapError::ReflectedChallenge)
    );
}

#[test]
fn equal_secrets_are_refused_on_both_sides() {
    let careless = ChapPolicy {
        target: Some(credentials("disk", "another secret")),
        ..policy()
    };
    assert_eq!(meet(claim(), careless), Err(ChapError::EqualSecrets));
    let careless = ChapClaim {
        target: Some((credentials("disk", "another secret"), challenge(2, 0xbb))),
        ..claim()
    };
    assert_eq!(meet(careless, policy()), Err(ChapError::EqualSecrets));
}

#[test]
fn keys_missing_repeated_or_malformed_are_told() {
    let after_algorithms = || {
        let mut authenticator = Authenticator::new(policy());
        say(&mut authenticator, "CHAP_A=5").expect("an algorithm");
        authenticator
    };
    assert_eq!(
        say(&mut Authenticator::new(policy()), "CHAP_N=bob"),
        Err(ChapError::Missing(Key::ChapA))
    );
    assert_eq!(
        say(&mut Authenticator::new(policy()), "CHAP_A=5 CHAP_A=7"),
        Err(ChapError::Repeated(Key::ChapA))
    );
    assert_eq!(
        say(&mut after_algorithms(), "CHAP_N=bob"),
        Err(ChapError::Missing(Key::ChapR))
    );
    assert_eq!(
        say(&mut after_algorithms(), "CHAP_R=0x00"),
        Err(ChapError::Missing(Key::ChapN))
    );
    assert_eq!(
        say(&mut after_algorithms(), "CHAP_N=bob CHAP_R=hello"),
        Err(ChapError::BadValue(Key::ChapR))
    );
    assert_eq!(
        say(&mut after_algorithms(), "CHAP_N=bob CHAP_R=0x"),
        Err(ChapError::WrongResponse)
    );
}

#[test]
fn challenges_have_1_to_1024_bytes_and_identifiers_one() {
    let answer = |text: &str| {
        let mut claimant = Claimant::new(claim());
        claimant.handle(&[], &mut Vec::new()).expect("an offer");
        claimant.handle(
            &text::parse(text.replace(' ', "\0").as_bytes()).expect("text"),
            &mut Vec::new(),
        )
    };
    assert_eq!(
        answer("CHAP_A=5 CHAP_I=256 CHAP_C=0x01"),
        Err(ChapError::BadValue(Key::ChapI))
    );
    assert_eq!(
        answer("CHAP_A=5 CHAP_I=1 CHAP_C=0x"),
        Err(ChapError::BadValue(Key::ChapC))
    );
    assert_eq!(
        answer(&format!("CHAP_A=5 CHAP_I=1 CHAP_C=0x{}", "00".repeat(1025))),
        Err(ChapError::BadValue(Key::ChapC))
    );
    assert_eq!(
        answer(&format!("CHAP_A=5 CHAP_I=1 CHAP_C=0x{}", "00".repeat(1024))),
        Ok(())
    );
    assert_eq!(
        answer(&format!(
            "CHAP_A=5 CHAP_I=0x1 CHAP_C={}",
            text::base64_value(&[1; 1024])
        )),
        Ok(())
    );
}

/// The expected hashes are the output of `printf '\x01secret\x00\x01\x02\x03' | md5sum`, and of the other
/// programs.
#[test]
fn responses_are_what_other_programs_compute() {
    let challenge = Challenge {
        identifier: 1,
        bytes: vec![0, 1, 2, 3],
    };
    let hex = |algorithm: Algorithm| {
        text::hex_value(&algorithm.response(&Secret::new(b"secret"), &challenge))
    };
    assert_eq!(hex(Algorithm::Md5), "0xe82cb2ed1efe04893c9cf73d4dd12e2d");
    assert_eq!(
        hex(Algorithm::Sha1),
        "0x4ba9b914438b0a2231ce08d06e1814afdbbd02c9"
    );
    assert_eq!(
        hex(Algorithm::Sha256),
        "0x60ad105214396c736e4569759380672905396143713449e104a2be1e885b5d06"
    );
    assert_eq!(
        hex(Algorithm::Sha3_256),
        "0x5a8cab9a6c0245b91a7d0d2966f24cb7328b2a59616809840e7a77c9c4fb94d8"
    );
}

#[test]
fn a_secret_does_not_print_itself() {
    assert_eq!(
        format!("{:?}", credentials("bob", "another secret")),
        r#"Credentials { name: "bob", secret: Secret(..) }"#
    );
}

proptest! {
    #[test]
    fn any_keys_are_survived(values in prop::collection::vec((0usize..5, "[ -~]{0,40}"), 0..12), rounds in 1usize..4) {
        let names = [Key::ChapA, Key::ChapI, Key::ChapC, Key::ChapN, Key::ChapR];
        let pairs: Vec<Pair<'_>> = values.iter().map(|(key, value)| Pair { key: names[*key].name(), value }).collect();
        let (mut claimant, mut authenticator) = (Claimant::new(claim()), Authenticator::new(policy()));
        for _ in 0..rounds {
            let _ = claimant.handle(&pairs, &mut Vec::new());
            let _ = authenticator.handle(&pairs, &mut Vec::new());
        }
        prop_assert_eq!(authenticator.authenticated(), None);
    }
}
