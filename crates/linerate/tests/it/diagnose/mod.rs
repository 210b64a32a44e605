//! `linerate diagnose` with normal and faulty servers: the measurements, the untouched data, and its
//! termination.

mod bad_targets;
mod evidence;
mod long_packets;
pub(crate) mod meddler;
mod nbd;
mod read_only;
pub(crate) mod told;

use std::process::Command;

use serde_json::Value;

use crate::program::{Ended, LINERATE, run_command};

/// Runs a diagnosis of this URL for about a second, to check the measurements.
fn diagnose(url: &str, options: &[&str]) -> Ended {
    diagnose_for(1, url, options)
}

fn diagnose_for(seconds: u32, url: &str, options: &[&str]) -> Ended {
    let mut command = Command::new(LINERATE);
    command
        .args(["--log", "error", "diagnose", url, "--evidence", "-"])
        .args(options);
    run_command(command.args(["--seconds", &seconds.to_string()]))
}

/// The measurements of a diagnosis.
fn evidence(url: &str, options: &[&str]) -> Value {
    parsed(diagnose(url, options))
}

/// The JSON output of a diagnosis.
fn parsed(ended: Ended) -> Value {
    let said = ended.expect_success();
    let begin = said.find('{').unwrap_or_else(|| panic!("no JSON: {said}"));
    serde_json::from_str(&said[begin..]).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The median of a timed value, such as the latency of a layer, in microseconds.
#[track_caller]
fn median_us(timed: &Value) -> f64 {
    let median = timed["measured"]["median_us"].as_f64();
    median.unwrap_or_else(|| panic!("not measured: {timed}"))
}

/// The reason why a value is unknown.
#[track_caller]
fn why_not(timed: &Value) -> &str {
    timed["unknown"]
        .as_str()
        .unwrap_or_else(|| panic!("measured: {timed}"))
}
