//! Both sides of CHAP hear anything: neither believes a peer that does not know the secret.
#![no_main]

use iscsi::chap::{
    Algorithm, Authenticator, Challenge, ChapClaim, ChapPolicy, Claimant, Credentials, Secret,
};
use iscsi::text;
use libfuzzer_sys::fuzz_target;
use script::Script;

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let credentials =
        |name: &str, secret: &[u8]| Credentials { name: name.to_owned(), secret: Secret::new(secret) };
    let mut authenticator = Authenticator::new(ChapPolicy {
        algorithms: Algorithm::ALL.to_vec(),
        initiators: [credentials("alice", b"twelve or more")].into(),
        target: Some(credentials("disk", b"the target's own")),
        challenge: Challenge { identifier: 1, bytes: vec![0xaa; 16] },
    });
    let ours = Challenge { identifier: 2, bytes: vec![0xbb; 16] };
    let mut claimant = Claimant::new(ChapClaim {
        algorithms: Algorithm::ALL.to_vec(),
        initiator: credentials("alice", b"twelve or more"),
        target: Some((credentials("disk", b"the target's own"), ours)),
    });
    while !script.is_over() {
        let text = script.text();
        let Ok(pairs) = text::parse(&text) else { continue };
        let mut out = Vec::new();
        let _ = authenticator.handle(&pairs, &mut out);
        let _ = claimant.handle(&pairs, &mut out);
        assert!(text::parse(&out).is_ok());
    }
    assert_eq!(authenticator.authenticated(), None);
    assert!(!claimant.is_done());
});
