//! Whatever decodes a logical unit's answers without asking it: nothing panics, and what was decoded can be shown.
#![no_main]

use initiator::Sense;
use initiator::verbs::{BlockLimits, Designator, Inquiry, Provisioning, TransportId, Vpd};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [code, rest @ ..] = bytes else { return };
    shown(&Vpd::parse(*code, rest));
    shown(&Inquiry::parse(rest));
    shown(&Designator::parse(rest));
    shown(&TransportId::parse(rest));
    shown(&BlockLimits::parse(rest));
    shown(&Provisioning::parse(rest));
    if let Some(sense) = Sense::parse(rest) {
        shown(&sense);
        assert!(!sense.to_string().is_empty());
    }
});

/// Text is as much code as decoding is.
fn shown(decoded: &impl std::fmt::Debug) {
    let _ = format!("{decoded:?}");
}
