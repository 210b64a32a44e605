//! An arbitrary volume specification: it is unchanged when printed and parsed again, or the error has a position in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use volume::backends::ALL;
use volume::spec::Grammar;

/// The kinds that do not use the system.
const GRAMMAR: Grammar = Grammar(&[ALL]);

fuzz_target!(|bytes: &[u8]| {
    let Ok(rest) = std::str::from_utf8(bytes) else {
        return;
    };
    let [stored, layered] = [format!("null:{rest}"), format!("fault:[{rest}")];
    for text in [rest, &stored, &layered] {
        match GRAMMAR.parse(text) {
            Ok(spec) => {
                let printed = spec.to_string();
                let again = GRAMMAR
                    .parse(&printed)
                    .unwrap_or_else(|error| panic!("{text:?}: {error}"));
                assert_eq!(again.to_string(), printed);
            }
            Err(error) => assert!(text.get(error.at()).is_some(), "{text:?}: {error}"),
        }
    }
});
