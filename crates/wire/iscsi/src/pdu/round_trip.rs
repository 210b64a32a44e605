//! Properties of every PDU, checked by its tests.

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{BHS_BYTES, Bhs, Malformed, Opcode};

/// Any bytes whatever either break a rule or come back as the same PDU; nothing panics.
///
/// Lengths are zero half of the time, since most PDUs can have no AHS and some no data.
pub(super) fn assert_any_header_holds<P: PartialEq + Debug>(
    opcode: Opcode,
    parse: fn(&Bhs) -> Result<P, Malformed>,
    emit: fn(&P) -> Bhs,
) {
    let headers = (any::<[[u8; 16]; BHS_BYTES / 16]>(), any::<bool>(), any::<bool>(), any::<bool>());
    let property = |(thirds, other_opcode, ahs, data): ([[u8; 16]; 3], bool, bool, bool)| {
        let mut bhs = Bhs([0; BHS_BYTES]);
        thirds.iter().enumerate().for_each(|(i, third)| bhs.set_bytes(16 * i, third));
        if !other_opcode {
            bhs.set_u8(0, bhs.u8(0) & 0x40 | opcode as u8);
        }
        if !ahs {
            bhs.set_u8(4, 0);
        }
        if !data {
            bhs.set_u24(5, 0);
        }
        if let Ok(pdu) = parse(&bhs) {
            let again = parse(&emit(&pdu));
            prop_assert_eq!(again.as_ref(), Ok(&pdu));
        }
        Ok(())
    };
    TestRunner::new(Config::with_cases(1024)).run(&headers, property).expect("the property holds");
}

/// The PDU has just these bytes, written as hexadecimal digits with spaces, and these bytes are just this PDU.
pub(super) fn assert_golden<P: PartialEq + Debug>(
    pdu: &P,
    golden: &str,
    parse: fn(&Bhs) -> Result<P, Malformed>,
    emit: fn(&P) -> Bhs,
) {
    let digits: Vec<u8> = golden.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(hex_pair).collect();
    let bhs = Bhs(bytes.try_into().expect("forty-eight bytes"));
    assert_eq!(hex(&emit(pdu)), hex(&bhs));
    assert_eq!(parse(&bhs).as_ref(), Ok(pdu));
}

/// The header that results when one byte of a good one is overwritten.
pub(super) fn altered(mut bhs: Bhs, at: usize, value: u8) -> Bhs {
    bhs.set_u8(at, value);
    bhs
}

fn hex_pair(pair: &[u8]) -> u8 {
    let text = std::str::from_utf8(pair).expect("ASCII");
    u8::from_str_radix(text, 16).expect("two hexadecimal digits")
}

fn hex(bhs: &Bhs) -> String {
    bhs.0
        .chunks(4)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + " ")
        .collect()
}
