//! An arbitrary suite file: it becomes a suite that can be measured, or the error has a position in the file.
#![no_main]

use bench::plan::Step;
use bench::suite;
use libfuzzer_sys::fuzz_target;
use script::{Script, assert_in_text, assert_measurable, edited};

const GOOD: &str = concat!(
    include_str!("../../crates/measure/bench/suites/iometer-sweep.toml"),
    "[[step]]\nfill = { block = \"128KiB\", depth = 32, passes = 2 }\n",
    "[[step]]\nstop = { requests = 10, most = \"1min\" }\nsteady = \"all\"\nrounds = 25\n",
    "[[step.cell]]\nname = \"all\"\nmix = [{ share = 70, block = \"4KiB\" }, { share = 30, block = \"64KiB\" }]\n",
    "read = 100\nrandom = 50\nrate = 1000\npoisson = true\nspan = { start = \"1MiB\", length = \"1GiB\" }\n",
    "distribution = { hot = [90, 10] }\ndata = \"stamped\"\nclients = 2\nsessions = 3\nread-ahead = \"1MiB\"\n",
);

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "0", "1", "100", "101", "-1", "1e400", "nan", "18446744073709551616", "\"4KiB\"", "\"9999999TiB\"",
    "\"64MiB\"", "\"10s\"", "[1, 2, 3]", "[[]]", "{ zipf = 1.1 }", "{ pareto = 0.2 }", "{block}", "{", "}",
    "[", "]", "\"", "\n", "true", "clients = [1, 2, 256]", "drain-after = 500", "é",
];

fuzz_target!(|bytes: &[u8]| {
    let text = &edited(GOOD, &mut Script(bytes), WORDS);
    let suite = match suite::parse(text) {
        Ok(suite) => suite,
        Err(error) => {
            assert_in_text(text, error.line, error.column);
            return;
        }
    };
    assert_measurable(&suite);
    assert!(
        suite
            .steps
            .iter()
            .any(|step| matches!(step, Step::Measure { .. }))
    );
    assert!(suite.longest_s().is_finite());
});
