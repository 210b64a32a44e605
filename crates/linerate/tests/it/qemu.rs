//! QEMU's initiator: whole images in both directions, patterns, discards.

use std::path::Path;

use crate::capture::watched;
use crate::program::{installed, run, write_patterned_file};
use crate::server::Server;

/// An object for `--object`, with `DIR` for the directory of certificates.
pub(crate) const TLS_CREDENTIALS: &str = "tls-creds-x509,id=tls0,endpoint=client,dir=DIR";

const TOOLS: &[&str] = &["qemu-img", "qemu-io"];

/// The volumes that images are copied to: every kind of block, and both stores.
const VOLUMES: &[(&str, &str)] = &[
    ("ram", "disk=ram:8MiB"),
    ("blocks of 4096 bytes", "disk=ram:8MiB?block=4096"),
    ("file", "disk=file:{state}/disk.img?size=8MiB"),
];

#[test]
fn an_image_copied_there_and_back_is_the_same() {
    needs!(installed(TOOLS));
    for (name, volume) in VOLUMES {
        let server = Server::serving(&[volume]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (before, after) = (
            folder.path().join("before.img"),
            folder.path().join("after.img"),
        );
        write_patterned_file(&before, 8 << 20);
        eprintln!("volume: {name}");
        watched(&server, || {
            there_and_back(&server.url("disk"), &before, &after)
        });
        assert!(begins_with(&after, &before), "{name}");
    }
}

/// Whether the returned image equals the sent one; further content of a larger volume does not matter.
fn begins_with(after: &Path, before: &Path) -> bool {
    let read = |path: &Path| std::fs::read(path).expect("an image");
    read(after).starts_with(&read(before))
}

fn there_and_back(url: &str, before: &Path, after: &Path) {
    let (before, after) = (before.display().to_string(), after.display().to_string());
    run(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", &before, url],
    )
    .expect_success();
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", &before, url],
    )
    .expect_success();
    run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "raw", url, &after],
    )
    .expect_success();
}

#[test]
fn patterns_discards_and_zeroes_read_back_as_written() {
    needs!(installed(TOOLS));
    let server = Server::serving(&["disk=ram:64MiB"]);
    let said = watched(&server, || {
        qemu_io(
            &server.url("disk"),
            &[
                "write -P 0xa5 0 4M",
                "write -P 0x5a 1M 64k",
                "read -P 0xa5 0 1M",
                "read -P 0x5a 1M 64k",
                "write -P 0x11 2097664 512", // one block, not aligned to 4 KiB
                "read -P 0x11 2097664 512",
                "read -P 0xa5 2098176 3584",
                "discard 1M 64k",
                "read -P 0 1M 64k",
                "write -z 3M 256k",
                "read -P 0 3M 256k",
                "flush",
            ],
        )
    });
    assert!(!said.contains("Pattern verification failed"), "{said}");
}

#[test]
fn writes_beyond_the_end_are_refused() {
    needs!(installed(TOOLS));
    let server = Server::serving(&["disk=ram:64MiB"]);
    watched(&server, || {
        run(
            "qemu-io",
            &["-f", "raw", "-c", "write -P 1 64M 4k", &server.url("disk")],
        )
        .expect_failure();
    });
}

#[test]
fn a_read_only_volume_is_read_only() {
    needs!(installed(TOOLS));
    let server = Server::serving(&["disk=ram:64MiB?read-only"]);
    if server.is_ours() {
        let url = server.url("disk");
        watched(&server, || {
            run(
                "qemu-io",
                &["-r", "-f", "raw", "-c", "read -P 0 0 64k", &url],
            )
            .expect_success();
            run("qemu-io", &["-f", "raw", "-c", "write -P 1 0 64k", &url]).expect_failure();
        });
    }
}

/// Runs these commands of qemu-io one after the other.
pub(crate) fn qemu_io(url: &str, commands: &[&str]) -> String {
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(url);
    run("qemu-io", &arguments).expect_success()
}
