//! Arbitrary bytes as the payload of an Ethernet frame: an accepted frame is unchanged, except for its padding, when written
//! again. A malformed frame gets an error or no response. IDENTIFY data is parsed and written consistently.
#![no_main]

use aoe::{Body, Frame, IDENTITY_BYTES, Identity, TrimRanges};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Frame::parse(bytes) {
        Ok(frame) => {
            let written = frame.write();
            let again = Frame::parse(&written).expect("it was written by us");
            assert_eq!(again.header, frame.header);
            if let (Body::Ata(ata, data), Body::Ata(again, same)) = (&frame.body, &again.body) {
                // The flag for asynchronous writes is never sent.
                assert_eq!((again.operation(), same), (ata.operation(), data));
                assert!(
                    TrimRanges::new(data)
                        .all(|(lba, sectors)| lba < 1 << 48 && (1..1 << 16).contains(&sectors))
                );
            } else {
                assert_eq!(again, frame);
            }
        }
        Err(malformed) => {
            if let Some(answer) = malformed.answer() {
                assert!(answer.len() == 10 && answer[0] & 0x0c == 0x0c);
            }
        }
    }
    if let Some(sector) = bytes.first_chunk::<IDENTITY_BYTES>() {
        let identity = Identity::parse(sector);
        let again = Identity::parse(&identity.bytes());
        assert_eq!(
            (again.is_extended, again.physical_exponent),
            (identity.is_extended, identity.physical_exponent)
        );
    }
});
