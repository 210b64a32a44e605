//! An Iometer configuration comes from anywhere: it becomes a suite, or the mistake has a place in the file.
#![no_main]

use bench::icf;
use libfuzzer_sys::fuzz_target;
use script::{Script, assert_in_text, edited};

const GOOD: &str = include_str!("../../crates/measure/bench/tests/data/vmware4.icf");

const WORDS: &[&str] = &[
    "0",
    "1",
    "100",
    "101",
    "512",
    "1000",
    "4294967296",
    "18446744073709551615",
    "-1",
    ",",
    "\t",
    "'",
    "'End",
    "ENABLED",
    "DISABLED",
    "LINEAR",
    "EXPONENTIAL",
    "CYCLE_WORKERS",
    "CYCLE_OUTSTANDING_IOS",
    "CYCLE_TARGETS",
    "Idle",
    "NETWORK,TCP",
    "é",
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
    let mut names: Vec<&str> = suite.cells().map(|cell| cell.name.as_str()).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "two tests are called the same: {names:?}");
    for cell in suite.cells() {
        assert!(!cell.roles.is_empty() && cell.roles.iter().all(|role| role.workload.depth > 0));
        for accesses in cell.roles.iter().map(|role| &role.workload.accesses) {
            assert_eq!(accesses.iter().map(|access| u32::from(access.share.get())).sum::<u32>(), 100);
        }
    }
});
