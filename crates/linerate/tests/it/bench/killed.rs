//! Tests that a killed run keeps its results, and can be resumed.

use std::time::{Duration, Instant};

use super::{REFUSED, Scene, begun, bench, cells_run, expect, record, runs};
use crate::program::{ended_within, until};

/// Options for eight cells of a fraction of a second, each measured twice.
const SWEEP: [&str; 8] = [
    "--block",
    "4KiB,8KiB,16KiB,64KiB",
    "--depth",
    "1,8",
    "--seconds",
    "0.2",
    "--repeats",
    "2",
];

#[test]
fn a_run_killed_at_any_moment_goes_on_to_the_same_cells() {
    let scene = Scene::new();
    let image = scene.image("disk.img", 16);
    let whole = scene.text("whole");
    let began = Instant::now();
    bench(&[&[image.as_str()], &SWEEP[..], &["--out", &whole]].concat()).expect_success();
    let takes = began.elapsed();
    let mut expected = cells_run(&record(&scene.path("whole")));
    expected.sort();
    assert_eq!(expected.len(), 16);
    for moment in 0..10 {
        let out = format!("killed-{moment}");
        let folder = scene.path(&out);
        let mut child =
            begun(&[&[image.as_str()], &SWEEP[..], &["--out", &scene.text(&out)]].concat());
        let early = ended_within_or_killed(&mut child, takes * (2 * moment + 1) / 20);
        if !folder.join("result.json").exists() {
            assert!(!early, "it ended by itself without a result");
            // The run was killed before anything was measured. There is nothing to resume, and this is
            // reported.
            expect(
                bench(&[&image, "--resume", &scene.text(&out)]),
                REFUSED,
                &["result.json"],
            );
            continue;
        }
        let partial = record(&folder); // the file is readable at any time
        // The process may be killed after its last record, which is marked complete, and before it exits.
        assert!(
            !early || partial["ended"].is_string(),
            "moment {moment}: it ended by itself before its time"
        );
        let is_whole = cells_run(&partial).len() == expected.len();
        assert!(
            partial["ended"].is_null() || is_whole,
            "moment {moment}: {}",
            partial["ended"]
        );
        let before = runs(&partial).to_vec();
        if partial["ended"].is_string() {
            expect(
                bench(&[&image, "--resume", &scene.text(&out)]),
                REFUSED,
                &["already completed at"],
            );
        } else {
            bench(&[&image, "--resume", &scene.text(&out)]).expect_success();
        }
        let resumed = record(&folder);
        assert!(resumed["ended"].is_string(), "moment {moment}");
        assert_eq!(
            runs(&resumed)[..before.len()],
            before,
            "what was measured before is kept as it was"
        );
        let mut cells = cells_run(&resumed);
        cells.sort();
        assert_eq!(cells, expected, "moment {moment}");
    }
}

/// Kills a process (SIGKILL) after some time. Returns true if it had already ended.
fn ended_within_or_killed(child: &mut std::process::Child, time: Duration) -> bool {
    ended_within(child, time).is_some()
}

#[test]
fn another_place_is_not_gone_on_with() {
    let scene = Scene::new();
    let (image, other) = (scene.image("disk.img", 16), scene.image("other.img", 16));
    let out = scene.text("out");
    let mut child = begun(&[&[image.as_str()], &SWEEP[..], &["--out", &out]].concat());
    until("a result", || scene.path("out/result.json").exists());
    child.kill().and_then(|()| child.wait()).expect("it runs");
    let before = record(&scene.path("out"));
    expect(bench(&[&other, "--resume", &out]), REFUSED, &["disk.img"]);
    assert_eq!(record(&scene.path("out")), before);
}
