//! Arbitrary text in arbitrary pieces: its pairs are unchanged when written again, and its values can be parsed as any type.
#![no_main]

use iscsi::name::Name;
use iscsi::text::{self, Assembly};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut assembly = Assembly::new(4096);
    for (index, piece) in bytes.chunks(37).enumerate() {
        let _ = assembly.add(piece, index % 5 != 4);
    }
    let Ok(pairs) = text::parse(bytes) else {
        return;
    };
    let mut again = Vec::new();
    for pair in &pairs {
        text::append(&mut again, pair.key, pair.value);
        let _ = (
            text::number(pair.value),
            text::boolean(pair.value),
            Name::new(pair.value),
        );
        if let Some(binary) = text::binary(pair.value, 1024) {
            assert_eq!(
                text::binary(&text::hex_value(&binary), 1024).as_ref(),
                Some(&binary)
            );
            assert_eq!(
                text::binary(&text::base64_value(&binary), 1024).as_ref(),
                Some(&binary)
            );
        }
    }
    assert_eq!(text::parse(&again).as_ref(), Ok(&pairs));
});
