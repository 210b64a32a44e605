//! Tests of `linerate bench verify`: after a run or its storage was killed, the storage must have kept its
//! guarantees.

use std::fs;
use std::process::Command;

use super::{REFUSED, Scene, begun, bench, expect};
use crate::program::{Ended, LINERATE, run_command, says, until};
use crate::server::Server;

const MISMATCH: i32 = 10;

/// Writes and reads in a small span, so that every block is written often.
const LOAD: [&str; 10] = [
    "--block",
    "4KiB",
    "--read",
    "30",
    "--verify",
    "--span",
    "4MiB",
    "--allow-write",
    "--yes",
    "--seconds",
];

fn verify_log(log: &str, place: &str, after: &str) -> Ended {
    let mut command = Command::new(LINERATE);
    run_command(command.args(["bench", "verify", log, place, "--after", after]))
}

/// Whether a flush has already made a write durable, which sets the third word of a granule.
fn promises(log: &str) -> bool {
    let bytes = fs::read(log).unwrap_or_default();
    bytes
        .get(64..)
        .unwrap_or_default()
        .chunks_exact(12)
        .any(|granule| granule[8..] != [0; 4])
}

#[test]
fn a_killed_client_finds_all_that_was_acknowledged() {
    let scene = Scene::new();
    let (image, log) = (scene.image("disk.img", 16), scene.text("log"));
    let mut child = begun(&[&[image.as_str()], &LOAD[..], &["60", "--verify-log", &log]].concat());
    until("something to be durable", || promises(&log));
    expect(
        verify_log(&log, &image, "client"),
        REFUSED,
        &["another run is using this log"],
    );
    child.kill().and_then(|()| child.wait()).expect("it runs");
    let said = verify_log(&log, &image, "client").expect_success();
    says(&said, &["blocks contain the acknowledged data"]);

    // The next run continues the log, with its state.
    bench(&[&[image.as_str()], &LOAD[..], &["2", "--verify-log", &log]].concat()).expect_success();
    verify_log(&log, &image, "client").expect_success();

    // The whole span now has content that is older than the log.
    let mut bytes = fs::read(&image).expect("the image");
    bytes[..4 << 20].fill(0x5a);
    fs::write(&image, bytes).expect("the image");
    expect(
        verify_log(&log, &image, "storage"),
        MISMATCH,
        &[
            "NOT contain the acknowledged data",
            "does not contain the data written",
        ],
    );
}

#[test]
fn a_killed_target_has_kept_what_was_flushed() {
    let mut server = Server::serving(&["disk=file:{state}/disk.img?size=16MiB"]);
    needs!(server.is_ours());
    let scene = Scene::new();
    let (url, log) = (server.url("disk"), scene.text("log"));
    let mut child = begun(&[&[url.as_str()], &LOAD[..], &["60", "--verify-log", &log]].concat());
    until("something to be durable", || promises(&log));
    server.kill();
    child
        .kill()
        .and_then(|()| child.wait())
        .expect("it runs, or has ended");
    server.restart();
    verify_log(&log, &server.url("disk"), "storage").expect_success();
}

#[test]
fn a_log_of_something_else_is_refused() {
    let scene = Scene::new();
    let (image, log) = (
        scene.image("disk.img", 16),
        scene.file("log", "this is a letter to somebody, and no log"),
    );
    expect(
        verify_log(&log, &image, "client"),
        REFUSED,
        &["log", "not a log of verified writes"],
    );
    let lists = [
        "--block",
        "4KiB,8KiB",
        "--read",
        "50",
        "--verify",
        "--verify-log",
        &log,
    ];
    expect(
        bench(&[&[image.as_str()], &lists[..]].concat()),
        REFUSED,
        &["--verify-log supports one workload"],
    );
    let cut = scene.text("cut");
    let mut child = begun(&[&[image.as_str()], &LOAD[..], &["60", "--verify-log", &cut]].concat());
    until("something to be durable", || promises(&cut));
    child.kill().and_then(|()| child.wait()).expect("it runs");
    let bytes = fs::read(&cut).expect("a log");
    fs::write(&cut, &bytes[..bytes.len() / 2]).expect("a shorter one");
    expect(
        verify_log(&cut, &image, "client"),
        REFUSED,
        &["the end of the log is missing"],
    );
}
