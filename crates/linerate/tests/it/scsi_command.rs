//! Tests of `linerate scsi`: the output of its verbs, and the confirmation of destructive ones.

use std::process::Command;

use crate::program::{Ended, LINERATE, run_command, says};
use crate::server::Server;

fn scsi(arguments: &[&str]) -> Ended {
    run_command(Command::new(LINERATE).arg("scsi").args(arguments))
}

/// The output of a verb with `--json`.
fn json(arguments: &[&str]) -> serde_json::Value {
    let said = scsi(&[arguments, &["--json"]].concat()).expect_success();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_disk_tells_what_it_is() {
    let server = Server::serving(&["disk=ram:1MiB?block=4096"]);
    needs!(server.is_ours());
    let url = server.url("disk");
    assert!(
        scsi(&["inquiry", &url])
            .expect_success()
            .contains("vendor         LINERATE")
    );
    assert_eq!(json(&["capacity", &url])["blocks"], 256);
    assert_eq!(json(&["vpd", &url, "b2"])["fields"]["LBPU"], 1);
    assert_eq!(json(&["modes", &url, "08"])["pages"][0]["fields"]["RCD"], 0);
    assert_eq!(json(&["luns", &url])["luns"][0]["lun"], "0");
    assert_eq!(scsi(&["ready", &url]).expect_success(), "ready\n");
    let commands = scsi(&["opcodes", &url]).expect_success();
    assert!(commands.contains("READ CAPACITY(16)"), "{commands}");
}

#[test]
fn a_missing_lun_and_a_missing_registration_are_told_as_what_they_are() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    needs!(server.is_ours());
    let (url, target) = (server.url("disk"), server.target_name("disk"));
    let missing = scsi(&["vpd", &format!("iscsi://{}/{target}/7", server.portal())]);
    assert_eq!(missing.status.code(), Some(6), "{}", missing.said);
    scsi(&["register", &url, "--key", "abc"]).expect_success();
    for (key, code, says) in [
        ("def", Some(1), "is registered with a key other than def"),
        ("abc", Some(0), ""),
        ("abc", Some(1), "has no registration with the LUN"),
    ] {
        let ended = scsi(&["unregister", &url, "--key", key]);
        assert_eq!(ended.status.code(), code, "{}", ended.said);
        assert!(ended.said.contains(says), "{}", ended.said);
    }
}

#[test]
fn what_is_written_over_is_named_first() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    needs!(server.is_ours());
    let url = server.url("disk");
    // Write a partition table to an empty disk with the verb itself.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sector = folder.path().join("sector");
    std::fs::write(&sector, boot_sector()).expect("a temporary file");
    let sector = sector.display().to_string();
    scsi(&["write-same", &url, "0", "1", "--block", &sector]).expect_success();
    for verb in [
        &["unmap", &url, "0", "8"][..],
        &["sanitize", &url, "--block-erase"],
    ] {
        let Ended { status, said } = scsi(verb);
        assert_eq!(status.code(), Some(2), "{said}");
        says(&said, &["partition table", "--yes"]);
    }
    scsi(&["unmap", &url, "0", "2048", "--yes"]).expect_success();
    assert_eq!(
        json(&["lba-status", &url])["extents"][0]["status"],
        "deallocated"
    );
}

/// A partition table with one Linux partition.
pub(crate) fn boot_sector() -> [u8; 512] {
    let mut sector = [0; 512];
    sector[450] = 0x83;
    sector[454] = 8;
    sector[459] = 1;
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

#[test]
fn blocks_are_replaced_only_if_they_are_what_they_should_be() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    needs!(server.is_ours());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, byte: u8| {
        let path = folder.path().join(name);
        std::fs::write(&path, [byte; 1024]).expect("a temporary file");
        path.display().to_string()
    };
    let (zeros, ones) = (file("zeros", 0), file("ones", 1));
    let url = server.url("disk");
    let replace = || {
        scsi(&[
            "compare-and-write",
            &url,
            "7",
            "--expect",
            &zeros,
            "--write",
            &ones,
        ])
    };
    replace().expect_success();
    let Ended { status, said } = replace();
    assert_eq!(status.code(), Some(10), "{said}");
    assert!(said.contains("at byte 0; nothing was written"), "{said}");
}

#[test]
fn one_command_releases_what_another_reserved() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    needs!(server.is_ours());
    let ours = server.url("disk");
    let theirs = format!("{ours}?initiator=iqn.2026-01.com.example:other");
    for url in [&ours, &theirs] {
        scsi(&["register", url, "--key", "abc"]).expect_success();
    }
    scsi(&["reserve", &ours, "--key", "abc"]).expect_success();
    let held = json(&["registrations", &theirs]);
    assert_eq!(held["reservation"]["type"], "write-exclusive");
    assert_eq!(held["registrations"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        scsi(&["clear", &theirs, "--key", "def"]).status.code(),
        Some(1),
        "a wrong key"
    );
    scsi(&["release", &ours, "--key", "abc"]).expect_success();
    scsi(&["clear", &theirs, "--key", "abc"]).expect_success();
    assert_eq!(
        json(&["registrations", &ours])["registrations"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}

#[test]
fn a_mode_field_is_set_by_its_name() {
    let server = Server::serving(&["disk=file:{state}/disk.img?size=1MiB"]);
    needs!(server.is_ours());
    let url = server.url("disk");
    let wce = |more: &[&str]| {
        json(&[&["modes", &url, "08"], more].concat())["pages"][0]["fields"]["WCE"].clone()
    };
    assert_eq!(wce(&[]), 1);
    assert_eq!(wce(&["--set", "WCE=0"]), 0);
    assert_eq!(wce(&[]), 0);
    let Ended { status, said } = scsi(&["modes", &url, "--set", "TURBO=1"]);
    assert_eq!(status.code(), Some(2), "{said}");
}

#[test]
fn functions_end_commands_and_resets_are_told() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    let url = server.url("disk");
    for function in [
        "abort-task-set",
        "clear-task-set",
        "reset-lun",
        "reset-target",
    ] {
        scsi(&[function, &url]).expect_success();
    }
}

#[test]
fn a_command_by_its_bytes_asks_or_wants_to_be_meant() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    needs!(server.is_ours());
    let url = server.url("disk");
    let said = scsi(&["raw", &url, "--cdb", "12 00 00 00 24 00", "--in", "36"]).expect_success();
    assert!(
        said.starts_with("good, 36 bytes\n") && said.contains("LINERATE"),
        "{said}"
    );
    let synchronize = ["raw", &url, "--cdb", "35 00 00 00 00 00 00 00 00 00"];
    assert_eq!(scsi(&synchronize).status.code(), Some(2));
    // SANITIZE transfers no data, and a buffer for a response does not make it a query.
    let Ended { status, said } = scsi(&[
        "raw",
        &url,
        "--cdb",
        "48 82 00 00 00 00 00 00 00 00",
        "--in",
        "1",
    ]);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("--yes"), "{said}");
    scsi(&[&synchronize[..], &["--yes"]].concat()).expect_success();
}

/// REMOVE ELEMENT AND TRUNCATE, RESTORE ELEMENTS AND REBUILD, STREAM CONTROL and BACKGROUND CONTROL share the
/// operation code of READ CAPACITY(16). XPWRITE(10) shares the operation code of READ DISC INFORMATION on an
/// optical drive.
#[test]
fn a_command_that_only_looks_like_a_question_wants_to_be_meant() {
    let server = Server::serving(&["disk=ram:1MiB"]);
    let url = server.url("disk");
    let raw = |cdb: &str| {
        scsi(&["raw", &url, "--cdb", cdb, "--in", "32"])
            .status
            .code()
    };
    for action in ["14", "15", "18", "19"] {
        assert_eq!(raw(&format!("9e {action} {:028}", 0)), Some(2), "{action}");
    }
    assert_eq!(raw(&format!("51 {:018}", 0)), Some(2));
    assert_eq!(
        raw(&format!("9e 10 {:022} 20 00 00", 0)),
        Some(0),
        "READ CAPACITY(16)"
    );
}
