//! The example of docs/library.md: built, and run against a server.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::{run, run_command};
use crate::server::Server;

/// Cargo builds examples only when it builds everything: here it is asked for this one.
fn remote_disk() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "linerate-backends", "--example", "remote_disk"]);
    run_command(build.current_dir(env!("CARGO_MANIFEST_DIR"))).expect_success();
    // target/debug/linerate and target/debug/examples/remote_disk
    let program = Path::new(env!("CARGO_BIN_EXE_linerate"));
    program.with_file_name("examples").join("remote_disk")
}

#[test]
fn the_example_reads_from_two_threads_and_writes_only_when_told() {
    let server = Server::serving(&["disk=ram:16MiB"]);
    let (program, url) = (remote_disk().display().to_string(), server.url("disk"));
    let said = run(&program, &[&url]).expect_success();
    for line in [
        "32768 blocks of 512 bytes, 16777216 bytes",
        "block 0 begins with [00, 00,",
        "another thread has read 512 bytes",
        "nothing was written",
        "2 reads and 0 writes, 1024 bytes, median latency of a read",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let said = run(&program, &[&url, "--overwrite", "2048"]).expect_success();
    assert!(said.contains("block 2048 was overwritten and read back"), "{said}");
}

#[test]
fn the_example_says_what_is_wrong() {
    let server = Server::serving(&["disk=ram:16MiB?readonly"]);
    let (program, url) = (remote_disk().display().to_string(), server.url("disk"));
    let said = run(&program, &["iscsi://127.0.0.1:x/iqn.2026-01.io.linerate:disk/0"]).expect_failure();
    assert!(said.contains("a port is a number"), "{said}");
    let said = run(&program, &[&url, "--overwrite", "1"]).expect_failure();
    assert!(said.contains("read-only"), "{said}");
}
