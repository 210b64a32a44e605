//! Arbitrary input for both sides of CHAP: neither accepts a peer without the secret.
#![no_main]

use iscsi::chap::{Authenticator, Claimant};
use iscsi::text;
use libfuzzer_sys::fuzz_target;
use script::{Script, chap_claim, chap_policy};

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut authenticator = Authenticator::new(chap_policy());
    let mut claimant = Claimant::new(chap_claim());
    while !script.is_over() {
        let text = script.text();
        let Ok(pairs) = text::parse(&text) else {
            continue;
        };
        let mut out = Vec::new();
        let _ = authenticator.handle(&pairs, &mut out);
        let _ = claimant.handle(&pairs, &mut out);
        assert!(text::parse(&out).is_ok());
    }
    assert_eq!(authenticator.authenticated(), None);
    assert!(!claimant.is_done());
});
