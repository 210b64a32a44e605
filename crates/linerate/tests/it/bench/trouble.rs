//! Failures during a measurement: the results so far are kept.

use std::path::Path;

use super::{NO_SPACE, Scene, begun, bench, command, expect, record, runs};
use crate::attach::is_root;
use crate::program::{Ended, end_of, run, run_command, signal, until};
use crate::server::Server;

/// A small file system in memory, unmounted when this is dropped.
struct Tiny {
    folder: tempfile::TempDir,
}

impl Tiny {
    fn mounted(size: &str) -> Option<Tiny> {
        if !is_root() {
            eprintln!("skipped: only root mounts a small file system");
            return None;
        }
        let tiny = Tiny {
            folder: tempfile::TempDir::new().expect("a temporary folder"),
        };
        let options = format!("size={size}");
        run(
            "mount",
            &["-t", "tmpfs", "-o", &options, "linerate-test", &tiny.path()],
        )
        .expect_success();
        Some(tiny)
    }

    fn path(&self) -> String {
        self.folder.path().display().to_string()
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = run("umount", &["--lazy", &self.path()]);
    }
}

const SWEEP: [&str; 6] = [
    "--block",
    "4KiB,8KiB,16KiB,32KiB,64KiB,128KiB",
    "--depth",
    "1,4,16",
    "--seconds",
    "0.2",
];

/// Whether at least this number of results has been saved.
fn has_runs(folder: &Path, least: usize) -> bool {
    folder.join("result.json").exists() && runs(&record(folder)).len() >= least
}

#[test]
fn a_full_output_disk_is_told_and_what_was_measured_is_shown() {
    let tiny = or_skip!(Tiny::mounted("64k"));
    let out = format!("{}/out", tiny.path());
    let said = expect(
        bench(&[&["ram:16MiB"], &SWEEP[..], &["--out", &out]].concat()),
        NO_SPACE,
        &["No space", &out],
    );
    assert!(said.contains("IOPS"), "{said}");
}

#[test]
fn a_disk_that_is_full_when_a_run_is_resumed_keeps_what_was_there() {
    let tiny = or_skip!(Tiny::mounted("512k"));
    let scene = Scene::new();
    let (image, out) = (scene.image("disk.img", 16), format!("{}/out", tiny.path()));
    let mut child = begun(&[&[image.as_str()], &SWEEP[..], &["--out", &out]].concat());
    until("two results", || has_runs(Path::new(&out), 2));
    child.kill().and_then(|()| child.wait()).expect("it runs");
    let before = record(Path::new(&out));
    let filler = vec![1; 1 << 20];
    let _ = std::fs::write(format!("{}/filler", tiny.path()), filler); // until there is no space
    expect(bench(&[&image, "--resume", &out]), NO_SPACE, &["No space"]);
    assert_eq!(record(Path::new(&out)), before);
    std::fs::remove_file(format!("{}/filler", tiny.path())).expect("it is there");
}

#[test]
fn a_target_that_vanishes_ends_the_run_and_leaves_the_results() {
    const UNREACHABLE: i32 = 3;
    let mut server = Server::serving(&["disk=ram:16MiB"]);
    let scene = Scene::new();
    let out = scene.text("out");
    let url = format!("{}?reconnect-time=1", server.url("disk"));
    let mut command = command(
        &[
            &[url.as_str()],
            &SWEEP[..4],
            &["--seconds", "0.2", "--out", &out],
        ]
        .concat(),
    );
    let thread = std::thread::spawn(move || run_command(&mut command));
    until("a result", || has_runs(&scene.path("out"), 1));
    server.kill();
    let Ended { status, said } = thread.join().expect("it ends");
    assert_eq!(status.code(), Some(UNREACHABLE), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    let record = record(&scene.path("out"));
    assert!(!runs(&record).is_empty());
    assert!(runs(&record).iter().all(|run| run["cell"].is_string()));
}

#[test]
fn ctrl_c_ends_a_run_with_its_record_and_says_how_to_go_on() {
    const INTERRUPTED: i32 = 130;
    let scene = Scene::new();
    let (image, out) = (scene.image("disk.img", 16), scene.text("out"));
    let mut child = begun(&[&[image.as_str()], &SWEEP[..], &["--out", &out]].concat());
    until("a result", || has_runs(&scene.path("out"), 1));
    signal(&child, "INT");
    let status = end_of(&mut child);
    assert_eq!(status.code(), Some(INTERRUPTED));
    assert!(record(&scene.path("out"))["ended"].is_null());
    bench(&[&image, "--resume", &out]).expect_success();
}
