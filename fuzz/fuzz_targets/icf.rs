//! An arbitrary Iometer configuration: it becomes a suite, or the error has a position in the file.
#![no_main]

use bench::icf;
use libfuzzer_sys::fuzz_target;
use script::{Script, assert_in_text, assert_measurable, edited};

const GOOD: &str = include_str!("../../crates/measure/bench/tests/data/vmware4.icf");

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "0", "1", "100", "101", "512", "1000", "4294967296", "18446744073709551615", "-1", ",", "\t", "'",
    "'End", "ENABLED", "DISABLED", "LINEAR", "EXPONENTIAL", "CYCLE_WORKERS", "CYCLE_OUTSTANDING_IOS",
    "CYCLE_TARGETS", "Idle", "NETWORK,TCP", "é",
];

fuzz_target!(|bytes: &[u8]| {
    let text = &edited(GOOD, &mut Script(bytes), WORDS);
    let setup = match icf::parse(text) {
        Ok(setup) => setup,
        Err(error) => {
            assert_in_text(text, error.line, error.column);
            return;
        }
    };
    let suite = setup.suite("fuzzed");
    assert!(suite.cells().next().is_some());
    assert_measurable(&suite);
});
