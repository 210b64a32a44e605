//! Arbitrary additional header segments: they are rejected, or are unchanged when written again.
#![no_main]

use iscsi::pdu::Ahs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ahs) = Ahs::parse(bytes) {
        let mut wire = Vec::new();
        ahs.emit(&mut wire);
        assert_eq!(wire.len(), ahs.total_length());
        assert_eq!(Ahs::parse(&wire), Ok(ahs));
    }
});
