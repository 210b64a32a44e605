//! `linerate diagnose` with other targets: it completes, measures the layers, and prints a result.

use super::san::Disk;
use super::{Needs, for_each};
use crate::diagnose::told::{diagnose, json};

#[test]
fn every_make_is_diagnosed_to_the_end() {
    for_each(Needs::Nothing, |san| {
        let told = json(&diagnose(&san.url(Disk::Plain, ""), &["--json"]).expect_success());
        assert!(
            told["verdict"].is_string() || told["verdict"].is_object(),
            "{}",
            told["verdict"]
        );
        let ladder = &told["evidence"]["ladder"];
        for rung in ["nop", "test_unit_ready", "cached_read"] {
            let median = ladder[rung]["measured"]["median_us"].as_f64();
            assert!(
                median.is_some_and(|us| us > 0.0),
                "{rung}: {}",
                ladder[rung]
            );
        }
        let loads = told["evidence"]["loads"].as_array().expect("loads");
        assert!(
            loads
                .iter()
                .any(|load| load["bytes_per_s"][0].as_f64() > Some(0.0)),
            "{}",
            told["says"]
        );
    });
}
