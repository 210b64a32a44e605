//! The output of a diagnosis: as JSON, as a directory, and as an exit code.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::program::{Ended, LINERATE, run_command, says};
use crate::server::Server;

pub(crate) fn diagnose(url: &str, options: &[&str]) -> Ended {
    let mut command = Command::new(LINERATE);
    command
        .args(["--log", "error", "diagnose", url, "--seconds", "1"])
        .args(options);
    run_command(&mut command)
}

/// The JSON in the output, possibly followed by the reason for the exit code.
pub(crate) fn json(said: &str) -> Value {
    let from = &said[said.find('{').unwrap_or_else(|| panic!("no JSON: {said}"))..];
    let mut values = serde_json::Deserializer::from_str(from).into_iter();
    values
        .next()
        .expect("a value")
        .unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_directory_holds_the_page_the_text_and_what_programs_read() {
    let server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("why").display().to_string();
    let said = diagnose(&server.url("disk"), &["--details", "--out", &out]).expect_success();
    says(&said, &["tightest limits", "report.html"]);
    let read = |name: &str| fs::read_to_string(format!("{out}/{name}")).expect(name);
    let told = json(&read("diagnosis.json"));
    assert_eq!(told["format"], 1);
    assert!(
        told["says"].as_str().is_some_and(|says| !says.is_empty()),
        "{}",
        told["says"]
    );
    assert!(read("report.md").contains("## Time of one request by layer"));
    assert!(read("report.html").starts_with("<!DOCTYPE html>"));
    let refused = diagnose(&server.url("disk"), &["--out", &out]);
    assert_eq!(
        refused.status.code(),
        Some(2),
        "what was measured before is kept: {}",
        refused.said
    );
}

#[test]
fn what_was_found_is_shown_though_there_is_no_room_for_the_report() {
    let server = Server::serving(&["disk=ram:64MiB"]);
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("report.md/taken"))
        .expect("a directory in the place of a file");
    let said = diagnose(
        &server.url("disk"),
        &["--details", "--out", &folder.path().display().to_string()],
    )
    .expect_failure();
    says(&said, &["tightest limits", "cannot write"]);
}

#[test]
fn a_script_is_told_by_the_exit_code_if_it_asks() {
    let server = Server::serving(&["disk=ram:64MiB"]);
    let ended = diagnose(&server.url("disk"), &["--json", "--check"]);
    let verdict = &json(&ended.said)["verdict"];
    let expected = match verdict.as_str() {
        Some("held_back") => 13,
        _ if verdict.get("fine").is_some() => 0,
        _ => 1,
    };
    assert_eq!(ended.status.code(), Some(expected), "{verdict}");
}

#[test]
fn a_finding_that_can_be_tried_is_tried() {
    // The delay is so long that the machine's other load does not matter.
    let server = Server::serving(&["disk=delay:50ms:[ram:64MiB]"]);
    let url = server.url("disk");
    // With single requests to storage that takes 50 ms, the rate is proportional to the queue depth.
    let own = [
        "--block",
        "4KiB",
        "--depth",
        "1",
        "--read",
        "--confirm",
        "--json",
    ];
    let told = json(&diagnose(&url, &own).expect_success());
    let findings = told["findings"].as_array().expect("findings");
    for finding in findings
        .iter()
        .filter(|finding| finding["trial"].is_object())
    {
        let tried = &finding["gain"]["confirmed"];
        assert!(
            tried["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0),
            "{finding}"
        );
    }
    assert!(!findings.is_empty(), "{}", told["says"]);
}
