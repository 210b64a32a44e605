//! An arbitrary URL: it identifies a LUN, or the error has a position in it.
#![no_main]

use iscsi_client::{Portal, Url};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(rest) = std::str::from_utf8(bytes) else {
        return;
    };
    let whole = format!("iscsi://{rest}");
    for text in [rest, &whole] {
        for error in [Url::parse(text).err(), Portal::parse(text).err()]
            .into_iter()
            .flatten()
        {
            assert!(text.is_char_boundary(error.at), "{text:?}: {error}");
        }
    }
});
