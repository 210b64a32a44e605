//! An arbitrary header: it is rejected, or is unchanged when written again.
#![no_main]

use iscsi::pdu::{Bhs, Pdu};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: [u8; 48]| {
    if let Ok(pdu) = Pdu::parse(&Bhs(bytes)) {
        assert_eq!(Pdu::parse(&pdu.emit()), Ok(pdu));
    }
});
