//! Tests of the commands that a user runs first, with every target: `discover`, `info` and the verbs of
//! `scsi` that query.

use std::process::Command;

use super::san::{BYTES, Disk, San, USER};
use super::{Needs, with_each};
use crate::program::{Ended, LINERATE, linerate, run_command};

fn json(said: &str) -> serde_json::Value {
    // The output starts with a warning.
    let begin = said.find('{').unwrap_or_else(|| panic!("no JSON: {said}"));
    let mut values = serde_json::Deserializer::from_str(&said[begin..]).into_iter();
    values
        .next()
        .and_then(Result::ok)
        .unwrap_or_else(|| panic!("no JSON: {said}"))
}

fn portal(san: &San) -> String {
    format!("127.0.0.1:{}", san.port())
}

#[test]
fn targets_and_luns_are_found() {
    with_each(Needs::Nothing, async |san| {
        let Ended { status, said } = linerate(&["discover", "--luns", "--json", &portal(san)]);
        // One of the targets rejects unauthenticated initiators, but is still listed.
        assert_eq!(status.code(), Some(5), "{said}");
        let found = json(&said);
        let targets = found["targets"].as_array().expect("targets");
        let (name, lun) = san.place(Disk::Plain);
        let lun = lun.to_string();
        let plain = targets
            .iter()
            .find(|target| target["name"] == name)
            .unwrap_or_else(|| panic!("{said}"));
        let luns = plain["luns"].as_array().expect("LUNs");
        let disk = luns
            .iter()
            .find(|one| one["lun"].as_str() == Some(lun.as_str()))
            .unwrap_or_else(|| panic!("{said}"));
        assert_eq!(disk["bytes"], BYTES, "{said}");
    });
}

#[test]
fn a_disk_is_told_in_words() {
    with_each(Needs::Nothing, async |san| {
        let said = linerate(&["info", &san.url(Disk::FourKi, ""), "--json"]).expect_success();
        let disk = &json(&said)["luns"][0]["disk"];
        assert_eq!(
            (&disk["bytes"], &disk["block_bytes"]),
            (&BYTES.into(), &4096.into()),
            "{said}"
        );
        let said = linerate(&["info", &san.url(Disk::Protected, "")]).expect_success();
        assert!(
            said.contains("  writable     no\n") || said.contains("  writable   no\n"),
            "{said}"
        );
    });
}

#[test]
fn verbs_that_ask_are_answered() {
    with_each(Needs::Nothing, async |san| {
        let url = san.url(Disk::Plain, "");
        for verb in [
            "inquiry",
            "vpd",
            "ready",
            "sense",
            "modes",
            "luns",
            "capacity",
            "registrations",
        ] {
            let said = linerate(&["scsi", verb, &url]).expect_success();
            assert!(!said.trim().is_empty(), "{verb}");
        }
    });
}

#[test]
fn a_wrong_secret_and_none_are_the_same_failure() {
    with_each(Needs::Nothing, async |san| {
        let url = san.url_as(&format!("{USER}@"), Disk::Locked, "?chap=md5");
        let mut command = Command::new(LINERATE);
        command
            .args(["scsi", "ready", &url])
            .env("LINERATE_SECRET", "not the secret");
        let stranger = linerate(&["scsi", "ready", &san.url(Disk::Locked, "")]);
        for Ended { status, said } in [run_command(&mut command), stranger] {
            assert_eq!(status.code(), Some(5), "{said}");
        }
    });
}
