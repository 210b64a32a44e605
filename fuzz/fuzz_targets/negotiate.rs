//! Arbitrary input for a negotiator: negotiated values are within their limits, and its own messages are valid text.
#![no_main]

use iscsi::negotiate::{Negotiator, Offers, Role, SessionType};
use iscsi::text;
use libfuzzer_sys::fuzz_target;
use script::Script;

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let role = if script.flag() {
        Role::Initiator
    } else {
        Role::Target
    };
    let session_type = if script.flag() {
        SessionType::Discovery
    } else {
        SessionType::Normal
    };
    let mut side = Negotiator::leading(role, Offers::of_target(), session_type);
    let mut out = Vec::new();
    if script.flag() {
        side.open(&mut out);
    }
    while !script.is_over() {
        let text = script.text();
        let Ok(pairs) = text::parse(&text) else {
            return;
        };
        // Check each message separately: together, they can contain more pairs than the limit of one message.
        out.clear();
        if side
            .note_keys(&pairs)
            .and_then(|()| side.receive_all(pairs, &mut out))
            .is_err()
        {
            return;
        }
        assert!(text::parse(&out).is_ok());
    }
    let Ok(agreed) = side.finish() else { return };
    assert!(agreed.first_burst_length <= agreed.max_burst_length);
    for segment in [
        agreed.max_burst_length,
        agreed.peer_max_recv_data_segment_length,
        agreed.first_burst_length,
    ] {
        assert!((512..=0xff_ffff).contains(&segment));
    }
    assert!(
        agreed.max_connections >= 1
            && agreed.max_outstanding_r2t >= 1
            && agreed.error_recovery_level <= 2
    );
});
