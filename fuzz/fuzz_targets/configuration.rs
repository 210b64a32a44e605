//! An arbitrary configuration file: it is accepted, or each error has a position in the file. No message contains a secret.
#![no_main]

use daemon::Config;
use libfuzzer_sys::fuzz_target;
use script::{Script, assert_in_text, edited};

/// A configuration with every section and key.
const GOOD: &str = include_str!("../../crates/serve/daemon/src/config/reference.toml");

/// The secrets in this configuration.
const SECRETS: [&str; 2] = ["twelve-bytes-and-more", "another-long-secret"];

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "0", "1", "-1", "65536", "18446744073709551616", "1e400", "true", "\"4KiB\"", "\"9999999TiB\"",
    "\"ram:64MiB\"", "\"fault:[ram:1MiB]?x\"", "\"10s\"", "\"127.0.0.1:0\"", "\"[::]:3260\"",
    "\"iqn.2026-01.com.example:t\"", "[1, 2, 3]", "[[volume]]", "[[target]]", "[", "]", "{", "}", "\"", "'",
    "\n", "=", ".", "é", "\u{1}",
];

fuzz_target!(|bytes: &[u8]| {
    let text = &edited(GOOD, &mut Script(bytes), WORDS);
    let told = match Config::parse("file.toml", text) {
        Ok(config) => {
            assert!(
                config
                    .exported()
                    .all(|volume| config.volume(&volume.name).is_some())
            );
            return;
        }
        Err(told) => told.to_string(),
    };
    assert!(
        !SECRETS.iter().any(|secret| told.contains(secret)),
        "{told}"
    );
    for place in told
        .lines()
        .filter_map(|line| line.strip_prefix("file.toml:"))
    {
        let mut numbers = place.splitn(3, ':').map(str::parse);
        let (Some(Ok(line)), Some(Ok(column))) = (numbers.next(), numbers.next()) else {
            panic!("{told}")
        };
        assert_in_text(text, line, column);
    }
});
