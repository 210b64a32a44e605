//! Tests that run the examples of docs/library.md with a server.

use std::path::Path;

use crate::program::{LINERATE, run, says};
use crate::server::Server;

/// An example of docs/library.md, built by `cargo test --workspace` and `cargo xtask test`. Tests do not
/// build: that would wait for every other build of the source tree.
fn example(package: &str, name: &str) -> Option<String> {
    // target/debug/linerate and target/debug/examples/NAME
    let program = Path::new(LINERATE).with_file_name("examples").join(name);
    if !program.is_file() {
        eprintln!(
            "skipped: the example is not built (cargo build --package {package} --example {name})"
        );
        return None;
    }
    Some(program.display().to_string())
}

#[test]
fn the_example_reads_from_two_threads_and_writes_only_when_told() {
    let program = or_skip!(example("linerate-backends", "remote_disk"));
    let server = Server::serving(&["disk=ram:16MiB"]);
    let url = server.url("disk");
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
    says(&said, &["block 2048 was overwritten and read back"]);
}

#[test]
fn the_example_says_what_is_wrong() {
    let program = or_skip!(example("linerate-backends", "remote_disk"));
    let server = Server::serving(&["disk=ram:16MiB?read-only"]);
    let url = server.url("disk");
    let said = run(
        &program,
        &["iscsi://127.0.0.1:x/iqn.2026-01.io.linerate:disk/0"],
    )
    .expect_failure();
    assert!(said.contains("the port must be a number"), "{said}");
    let said = run(&program, &[&url, "--overwrite", "1"]).expect_failure();
    assert!(said.contains("read-only"), "{said}");
}

#[test]
fn a_program_on_tokio_copies_a_file_to_a_lun_and_reads_it_back() {
    let program = or_skip!(example("linerate", "tokio_disk"));
    let server = Server::serving(&["disk=ram:16MiB"]);
    let url = server.url("disk");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    // The length is not a whole number of blocks, and needs more than one request.
    let content: Vec<u8> = (0..3_000_001u32).map(|at| (at / 512) as u8).collect();
    std::fs::write(file.path(), &content).expect("room");
    let said = run(&program, &[&url, &file.path().display().to_string()]).expect_success();
    let sum: u64 = content[..32 * 512]
        .iter()
        .map(|&byte| u64::from(byte))
        .sum();
    for line in [
        "3000001 bytes were written and read back",
        &format!("32 blocks have the sum {sum}"),
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    std::fs::write(file.path(), vec![1; (16 << 20) + 1]).expect("room");
    let said = run(&program, &[&url, &file.path().display().to_string()]).expect_failure();
    assert!(said.contains("tokio_disk: no storage space"), "{said}");
}
