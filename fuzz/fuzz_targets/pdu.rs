//! Any header: it breaks a rule, or it comes back as it was read.
#![no_main]

use iscsi::pdu::{Bhs, Pdu};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: [u8; 48]| {
    if let Ok(pdu) = Pdu::parse(&Bhs(bytes)) {
        assert_eq!(Pdu::parse(&pdu.emit()), Ok(pdu));
    }
});
