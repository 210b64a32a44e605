//! Tests with other clients: libnbd with its programs, QEMU and fio.

use super::Both;
use crate::program::{installed, run, write_patterned_file};

/// Every kind of block, and both stores.
const VOLUMES: &[&str] = &[
    "disk=ram:64MiB",
    "disk=ram:64MiB?block=4096",
    "disk=file:{state}/disk.img?size=64MiB",
];

/// The distribution's Python has libnbd, whichever Python is first in PATH.
const PYTHON: &str = "/usr/bin/python3";

fn has_libnbd() -> bool {
    let has = installed(&["python3"]) && run(PYTHON, &["-c", "import nbd"]).status.success();
    if !has {
        eprintln!("skipped: python3-libnbd is not installed");
    }
    has
}

/// Tests illegal requests, and the limits of legal requests: see the script.
#[test]
fn the_rules_of_the_standard_hold() {
    needs!(has_libnbd());
    for volume in VOLUMES {
        let both = or_skip!(Both::serving(&[volume], ""));
        let base = format!("nbd://127.0.0.1:{}", both.port);
        run(PYTHON, &["-c", include_str!("rules.py"), &base, "67108864"]).expect_success();
    }
}

#[test]
fn nbdinfo_lists_and_maps() {
    needs!(installed(&["nbdinfo"]));
    let both = or_skip!(Both::serving(&["disk=ram:64MiB", "other=ram:8MiB"], ""));
    let said = run("nbdinfo", &["--list", "--json", &both.url("")]).expect_success();
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let exports = said["exports"].as_array().expect("exports");
    let told: Vec<_> = exports
        .iter()
        .map(|export| {
            (
                export["export-name"].as_str(),
                export["export-size"].as_u64(),
                export["is_read_only"].as_bool(),
            )
        })
        .collect();
    let size = Some(64 << 20);
    let wanted = [
        (Some("disk"), size, Some(false)),
        (Some("protected"), size, Some(true)),
        (Some("other"), Some(8 << 20), Some(false)),
    ];
    assert_eq!(told, wanted);
    assert_eq!(exports[0]["description"], "it is disk");
    for can in [
        "can_multi_conn",
        "can_flush",
        "can_fua",
        "can_trim",
        "can_zero",
        "can_fast_zero",
        "can_df",
        "can_cache",
    ] {
        assert_eq!(exports[0][can], true, "{can}");
    }
    let image = both.server.state().join("image");
    write_patterned_file(&image, 1 << 20);
    let image = image.display().to_string();
    if installed(&["nbdcopy"]) {
        run("nbdcopy", &[&image, &both.url("disk")]).expect_success();
        let said = run("nbdinfo", &["--map", "--json", &both.url("disk")]).expect_success();
        let map: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(
            (&map[0]["length"], &map[0]["type"]),
            (&(1 << 20).into(), &0.into()),
            "{said}"
        );
        assert_eq!(
            (&map[1]["length"], &map[1]["type"]),
            (&(63 << 20).into(), &3.into()),
            "{said}"
        );
    }
    run("nbdinfo", &[&both.url("nothing")]).expect_failure();
}

#[test]
fn images_are_copied_over_several_connections() {
    needs!(installed(&["nbdcopy", "cmp"]));
    for volume in VOLUMES {
        let both = or_skip!(Both::serving(&[volume], ""));
        copied_there_and_back(&both, &both.url("disk"));
    }
}

/// Copies a file of 64 MiB to the export and back, with nbdcopy over four connections, and compares; returns
/// both files.
pub(super) fn copied_there_and_back(both: &Both, url: &str) -> [String; 2] {
    let [before, after] = ["before", "after"].map(|name| both.server.state().join(name));
    write_patterned_file(&before, 64 << 20);
    let [before, after] = [before, after].map(|path| path.display().to_string());
    let many = ["--connections=4", "--threads=4", "--requests=16", "--flush"];
    run("nbdcopy", &[&many[..], &[&before, url]].concat()).expect_success();
    run("nbdcopy", &[&many[..], &[url, &after]].concat()).expect_success();
    run("cmp", &[&before, &after]).expect_success();
    [before, after]
}

#[test]
fn qemu_copies_images_and_parts_of_blocks() {
    needs!(installed(&["qemu-img", "qemu-io"]));
    for volume in VOLUMES {
        let both = or_skip!(Both::serving(&[volume], ""));
        let url = both.url("disk");
        let image = both.server.state().join("image");
        write_patterned_file(&image, 64 << 20);
        let image = image.display().to_string();
        run(
            "qemu-img",
            &["convert", "-n", "-f", "raw", "-O", "raw", &image, &url],
        )
        .expect_success();
        run(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "raw", &image, &url],
        )
        .expect_success();
        let said = crate::qemu::qemu_io(
            &url,
            &[
                "write -P 0xa5 0 4M",
                "write -P 0x5a 1000 5000",
                "read -P 0xa5 0 1000",
                "read -P 0x5a 1000 5000",
                "read -P 0xa5 6000 1000",
                "write -f -P 0x11 4095 2",
                "read -P 0x11 4095 2",
                "write -z 2097153 65537",
                "read -P 0 2097153 65537",
                "read -P 0xa5 2097152 1",
                "discard 3M 64k",
                "write -z -u 3M 256k",
                "read -P 0 3M 256k",
                "flush",
            ],
        );
        assert!(!said.contains("Pattern verification failed"), "{said}");
        let url = both.url("protected");
        run(
            "qemu-io",
            &["-r", "-f", "raw", "-c", "read -P 0 3M 256k", &url],
        )
        .expect_success();
        run("qemu-io", &["-f", "raw", "-c", "write -P 1 0 64k", &url]).expect_failure();
    }
}

#[test]
fn fio_reads_what_it_has_written() {
    if !installed(&["fio"]) || !run("fio", &["--enghelp"]).said.contains("nbd") {
        return eprintln!("skipped: fio has no engine nbd");
    }
    let both = or_skip!(Both::serving(&[VOLUMES[2]], ""));
    let uri = format!("--uri={}", both.url("disk"));
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        "--rw=randrw",
        "--bsrange=512-64k",
        "--blockalign=512",
        "--size=16m",
        "--offset_increment=16m",
        "--numjobs=4",
        "--iodepth=8",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0", // otherwise fio leaves files in the working directory
        "--group_reporting",
    ];
    let said = run("fio", &[&arguments[..], &[&uri]].concat()).expect_success();
    assert!(said.contains("err= 0"), "{said}");
}

/// Uses an export as a block device of the kernel, without nbd.ko.
#[test]
fn a_file_system_lives_on_an_export() {
    if !installed(&["nbdfuse", "losetup", "mkfs.ext4", "umount"])
        || !std::path::Path::new("/dev/fuse").exists()
    {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: mounting wants root");
    }
    let both = or_skip!(Both::serving(&[VOLUMES[0]], ""));
    let script = include_str!("filesystem.sh");
    let folder = both.server.state().display().to_string();
    run(
        "sh",
        &["-euc", script, "filesystem", &folder, &both.url("disk")],
    )
    .expect_success();
}
