//! Tests of the suite with its own network. If no lab can be created, the suite and these tests name the
//! missing requirement.

use std::time::Duration;

use super::{REFUSED, Scene, begun, bench, expect, record, runs};
use crate::program::{end_of, signal};

const WAN: [&str; 5] = ["--suite", "wan", "--quick", "--seconds", "0.2"];

#[test]
fn what_makes_no_sense_beside_a_lab_is_refused() {
    for (arguments, words) in [
        (&["ram:16MiB"][..], &["omit the target"][..]),
        (&["--suite", "quick"], &["omit the other --suite"]),
        (&["--block", "4KiB"], &["omit workload options"]),
        (&["--allow-write"], &["--allow-write"]),
        (&["--connections", "2"], &["session options"]),
        (&["--link", "0"], &["--link"]),
        (&["--link", "1GB/s"], &["is in bytes"]),
    ] {
        expect(bench(&[&WAN, arguments].concat()), REFUSED, words);
    }
    expect(
        bench(&["--suite", "quick"]),
        REFUSED,
        &["specify the storage to measure"],
    );
    for own in [&["--quick"][..], &["--link", "1G"]] {
        expect(
            bench(&[&["ram:16MiB", "--suite", "quick"], own].concat()),
            REFUSED,
            &["--suite wan"],
        );
    }
    let scene = Scene::new();
    let other = scene.text("other");
    bench(&["ram:16MiB", "--seconds", "0.2", "--out", &other]).expect_success();
    expect(
        bench(&["--suite", "wan", "--resume", &other]),
        REFUSED,
        &["a measurement of the suite `wan`"],
    );
}

#[test]
fn a_matrix_that_was_interrupted_is_gone_on_with() {
    let scene = Scene::new();
    let out = scene.text("out");
    let kept = || {
        scene
            .path("out/result.json")
            .exists()
            .then(|| runs(&record(&scene.path("out"))).len())
    };
    let mut before = 0;
    for place in ["--out", "--resume"] {
        let mut child = begun(&[&["--suite", "wan", "--seconds", "0.2", place, &out][..]].concat());
        let more = std::iter::repeat_with(|| {
            std::thread::sleep(Duration::from_millis(20));
            (kept(), child.try_wait().expect("our own child"))
        })
        .find(|(runs, ended)| ended.is_some() || runs.is_some_and(|runs| runs > before + 1));
        if let Some((_, Some(status))) = more {
            // Without the right to create a lab, the exit code is 2, and nothing is measured.
            assert_eq!((status.code(), kept().unwrap_or(0)), (Some(REFUSED), 0));
            eprintln!("skipped: no lab can be made here");
            return;
        }
        signal(&child, "INT");
        let status = end_of(&mut child);
        assert_eq!(status.code(), Some(130));
        before = kept().expect("a result");
    }
    let record = record(&scene.path("out"));
    assert_eq!(record["subject"]["kind"], "lab");
    assert!(
        record["notes"].to_string().contains("resumed at"),
        "{}",
        record["notes"]
    );
}
