//! Arbitrary bytes as a frame and as a discovery response: an accepted header is unchanged when written again, and lengths stay
//! within the bytes.
#![no_main]

use hyperscsi::{HEADER_BYTES, Header, discovery};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = Header::parse(bytes) {
        assert_eq!(header.bytes(), bytes[..HEADER_BYTES]);
        assert!(HEADER_BYTES + usize::from(header.length) + header.trailer_bytes() <= bytes.len());
    }
    let mut answer = bytes.to_vec();
    if let Some(names) = discovery::answered(0, &mut answer) {
        assert!(names.iter().all(|name| hyperscsi::is_name(name)));
    }
});
