//! Tests with images of a Ceph cluster of one node, which Linerate serves, and which are checked with Ceph's
//! own commands.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use block::{BlockDevice, Blocks, Buffer, Durability, Extent};
use iscsi_client::verbs::Compared;

use crate::ceph::Ceph;
use crate::program::{
    LINERATE, installed, linerate, run, run_command, says, until, write_patterned_file,
};
use crate::remote::{attached, in_a_world};
use crate::server::{Server, free_port, serve};

const MIB: u64 = 1 << 20;

/// A cluster, and a Linerate server whose volume `disk` is a new image with this name.
fn serving(image: &str) -> Option<(Arc<Ceph>, Server)> {
    let ceph = Ceph::shared()?;
    let server = Server::serving(&[&format!("disk={}", ceph.volume(image, "&size=32MiB"))]);
    server.is_ours().then_some((ceph, server))
}

/// Checks that a specification is rejected with this exit code and these words.
fn refused(volume: &str, code: i32, words: &str) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ended = run_command(&mut serve(
        free_port(),
        &[format!("disk={volume}")],
        folder.path(),
    ));
    assert_eq!(ended.status.code(), Some(code), "{volume}: {}", ended.said);
    assert!(
        ended.said.contains(words),
        "{words:?} is not in: {}",
        ended.said
    );
    ended.said
}

/// Whether an image starts with the content of a file, as read by the `rbd` command.
fn holds(ceph: &Ceph, image: &str, file: &Path) -> bool {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("copy");
    ceph.rbd(&format!("export --no-progress {image} {}", copy.display()));
    let read = |path: &Path| std::fs::read(path).expect("an image");
    read(&copy).starts_with(&read(file))
}

#[test]
fn what_hosts_write_is_in_the_image() {
    let (ceph, mut server) = or_skip!(serving("hosts"));
    let before = server.state().join("before");
    write_patterned_file(&before, 8 << 20);
    let text = before.display().to_string();
    linerate(&["copy", "--yes", &text, &server.url("disk")]).expect_success();
    assert!(holds(&ceph, "hosts", &before));
    if installed(&["qemu-img", "qemu-io"]) {
        let url = server.url("disk");
        run(
            "qemu-img",
            &["convert", "-n", "-f", "raw", "-O", "raw", &text, &url],
        )
        .expect_success();
        crate::qemu::qemu_io(
            &url,
            &[
                "write -P 0xa5 8M 4M",
                "write -P 0x11 10487296 512",
                "discard 9M 64k",
                "write -z 10M 512",
                "read -P 0 9M 64k",
                "read -P 0 10M 512",
                "read -P 0xa5 8M 1M",
                "read -P 0x11 10487296 512",
                "flush",
            ],
        );
        server.stop();
        // Read with QEMU's own RBD driver, while Linerate serves the image.
        let image = format!("rbd:rbd/hosts:conf={}", ceph.configuration().display());
        run(
            "qemu-io",
            &[
                "-r",
                "-f",
                "raw",
                "-c",
                "read -P 0xa5 8M 1M",
                "-c",
                "read -P 0 9M 64k",
                &image,
            ],
        )
        .expect_success();
        assert!(holds(&ceph, "hosts", &before));
    }
}

#[test]
fn an_image_is_served_over_nbd_and_holes_are_holes() {
    let Some(ceph) = Ceph::shared() else { return };
    let port = free_port();
    let volume = ceph.volume("holes", "&size=64MiB");
    let text = format!(
        "[nbd]\nlisten = [\"127.0.0.1:{port}\"]\n[[nbd.export]]\nvolume = \"disk\"\n[volume.disk]\nspec = \"{volume}\"\n"
    );
    let mut server = or_skip!(Server::configured(&text));
    let (before, after) = (server.state().join("before"), server.state().join("after"));
    write_patterned_file(&before, 4 << 20);
    let (before, after) = (before.display().to_string(), after.display().to_string());
    let url = format!("nbd://127.0.0.1:{port}/disk");
    linerate(&["copy", "--yes", &before, &url]).expect_success();
    let copied = linerate(&["copy", "--yes", &url, &after]).expect_success();
    says(&copied, &["4.00 MiB of data", "60.00 MiB of holes"]);
    server.stop();
    assert!(holds(&ceph, "holes", Path::new(&before)));
}

#[test]
fn an_image_that_is_resized_is_a_larger_disk() {
    let Some(ceph) = Ceph::shared() else { return };
    ceph.rbd("create --size 8M grows");
    let mut server = Server::serving(&[&format!("disk={}", ceph.volume("grows", ""))]);
    needs!(server.is_ours());
    in_a_world(async {
        let lun = attached(&server.url("disk")).await;
        assert_eq!(lun.geometry().blocks, Blocks(8 * MIB / 512));
        ceph.rbd("resize --no-progress --size 12M grows");
        let begun = reactor::now();
        while lun.geometry().blocks != Blocks(12 * MIB / 512) {
            assert!(
                reactor::now() - begun < crate::program::PATIENCE,
                "never larger"
            );
            reactor::sleep(std::time::Duration::from_millis(50)).await;
            // Consume the unit attention.
            let _ = lun.refresh().await;
        }
        let last = Extent::new(12 * MIB / 512 - 8, 8);
        let data = Buffer::zeroed(4096).share();
        lun.write(last, data, Durability::Stable)
            .await
            .expect("the new blocks are there");
        lun.close().await;
    });
    server.stop();
}

#[test]
fn a_snapshot_keeps_what_the_image_had_and_is_read_only() {
    let (ceph, mut server) = or_skip!(serving("past"));
    let [old, new] = ["old", "new"].map(|name| server.state().join(name).display().to_string());
    write_patterned_file(Path::new(&old), 1 << 20);
    std::fs::write(&new, vec![0x5a; 1 << 20]).expect("a temporary file");
    let write =
        |file: &str| linerate(&["copy", "--yes", file, &server.url("disk")]).expect_success();
    write(&old);
    ceph.rbd("snap create --no-progress past@monday");
    write(&new);
    let snapshot = ceph.volume("past@monday", "");
    let mut reader = Server::serving(&[&format!("disk={snapshot}")]);
    let url = reader.url("disk");
    let copy = reader.state().join("copy").display().to_string();
    linerate(&["copy", "--yes", &url, &copy]).expect_success();
    assert!(
        std::fs::read(&copy)
            .expect("a copy")
            .starts_with(&std::fs::read(&old).expect("a file"))
    );
    let said = linerate(&["copy", "--yes", &new, &url]);
    assert_eq!(said.status.code(), Some(8), "{}", said.said);
    reader.stop();
    server.stop();
    assert!(holds(&ceph, "past", Path::new(&new)));
}

#[test]
fn a_second_gateway_is_refused_and_told_who_has_the_image() {
    let (ceph, mut first) = or_skip!(serving("one"));
    let again = ceph.volume("one", "&lock-wait=0s");
    let said = refused(&again, 7, "has its exclusive lock");
    let holder = ceph.rbd("lock ls --format json one");
    let holder: serde_json::Value = serde_json::from_str(&holder).expect("JSON");
    let holder = holder[0]["address"].as_str().expect("an address");
    assert!(said.contains(holder), "{holder} is not in: {said}");
    // Reading takes no lock.
    linerate(&["copy", "--yes", &again, "/dev/null"]);
    first.stop();
    let mut second = Server::serving(&[&format!("disk={again}")]);
    second.stop();
    assert!(!ceph.rbd("status one").contains("watcher="), "it is closed");
}

/// Two gateways serve one image. The first is stopped with outstanding writes, the cluster declares it dead,
/// and the second takes over its lock and writes. When the first resumes, none of its writes may reach the
/// image, and its hosts must get an error that is permanent.
#[test]
fn a_gateway_that_was_stopped_writes_nothing_after_another_one_took_over() {
    let Some(ceph) = Ceph::shared() else { return };
    let volumes =
        ["stale", "idle"].map(|image| format!("{image}={}", ceph.volume(image, "&size=16MiB")));
    let volumes = [volumes[0].as_str(), volumes[1].as_str()];
    let mut first = Server::serving(&volumes);
    needs!(first.is_ours());
    let log = first.state().join("writes");
    let mut load = Command::new(LINERATE);
    load.args([
        "bench",
        &first.url("stale"),
        "--block",
        "4KiB",
        "--read",
        "0",
        "--depth",
        "16",
        "--json",
    ]);
    load.args([
        "--allow-write",
        "--yes",
        "--progress",
        "none",
        "--seconds",
        "5",
        "--verify",
        "--verify-log",
    ]);
    load.arg(&log);
    let load = std::thread::spawn(move || run_command(&mut load));
    until("a write is acknowledged", || {
        std::fs::read(&log)
            .is_ok_and(|bytes| bytes.len() > 64 && bytes[64..].iter().any(|byte| *byte != 0))
    });
    first.signal("STOP");
    // The second gateway waits until the cluster has declared the first one dead.
    let mut second = Server::serving(&volumes);
    let written = second.state().join("written");
    write_patterned_file(&written, 16 << 20);
    let text = written.display().to_string();
    linerate(&["copy", "--yes", &text, &second.url("stale")]).expect_success();
    first.signal("CONT");

    let told = load.join().expect("a load").said;
    assert!(
        told.contains("\"errors\":") && !told.contains("\"errors\":0,"),
        "{told}"
    );
    let lost = |image: &str| {
        let is_its = |line: &&str| line.contains("blocklisted this client") && line.contains(image);
        first.log().lines().filter(is_its).count()
    };
    until(
        "both volumes are fenced, the one without requests, too",
        || lost("rbd/idle") == 1,
    );
    assert_eq!(lost("rbd/stale"), 1, "one line: {}", first.log());
    assert!(
        holds(&ceph, "stale", &written),
        "a write of the first one landed"
    );
    for volume in ["stale", "idle"] {
        let said = linerate(&["copy", "--yes", &text, &first.url(volume)]);
        assert_eq!(said.status.code(), Some(9), "{}", said.said);
        assert!(
            said.said.contains("02/04/03") || said.said.contains("not ready"),
            "{}",
            said.said
        );
    }
    assert!(holds(&ceph, "stale", &written));
    // Acknowledged data is in the image, unless another client has overwritten it.
    first.end();
    second.stop();
}

/// The object server compares and writes in one step, so that a cluster client without Linerate's locks
/// cannot interfere.
#[test]
fn compare_and_write_is_one_step_for_every_client_of_the_cluster() {
    const LBA: u64 = 9;
    // With separate reads and writes, one in a dozen rounds loses a write.
    const ROUNDS: usize = 64;
    let (ceph, mut server) = or_skip!(serving("swapped"));
    let prefix = ceph.rbd("info --format json swapped");
    let prefix: serde_json::Value = serde_json::from_str(&prefix).expect("JSON");
    let object = format!(
        "{}.{:016x}",
        prefix["block_name_prefix"].as_str().expect("a prefix"),
        0
    );
    let foreign = server.state().join("foreign").display().to_string();
    std::fs::write(&foreign, [0xbb; 512]).expect("a temporary file");
    let offset = (LBA * 512).to_string();
    in_a_world(async {
        let lun = attached(&server.url("disk")).await;
        let swap = async |old, new| {
            let [old, new] = [old, new].map(block_of);
            lun.unit()
                .compare_and_write(LBA, 1, &old, &new)
                .await
                .expect("an answer")
        };
        // The blocks of an object that does not exist yet are zeros.
        assert_eq!(
            swap(1, 0xaa).await,
            Compared::Differs {
                offset_bytes: Some(0)
            }
        );
        assert_eq!(swap(0, 0xaa).await, Compared::Written);
        let (mut half, found) = (block_of(0xaa), block_of(0xaa));
        half[100..].fill(0x55);
        let differs = lun
            .unit()
            .compare_and_write(LBA, 1, &half, &found)
            .await
            .expect("an answer");
        assert_eq!(
            differs,
            Compared::Differs {
                offset_bytes: Some(100)
            }
        );
        // A longer COMPARE AND WRITE uses Linerate's own lock.
        let long = Buffer::zeroed(2 * 512);
        let written = lun
            .unit()
            .compare_and_write(LBA + 1, 2, &long, &long)
            .await
            .expect("an answer");
        assert_eq!(written, Compared::Written);
        let mut held = 0xaa;
        for _ in 0..ROUNDS {
            let mut other = ceph.start_program(
                "rados",
                &format!("-p rbd put --offset {offset} {object} {foreign}"),
            );
            loop {
                let (next, is_over) = (held ^ 0x66, other.try_wait().expect("a child").is_some());
                if swap(held, next).await != Compared::Written {
                    break;
                }
                assert!(
                    !is_over,
                    "the other client's write was lost between our comparison and our write"
                );
                held = next;
            }
            assert!(other.wait().expect("a child").success());
            assert_eq!(
                swap(0xbb, held).await,
                Compared::Written,
                "its write is what is there"
            );
        }
        lun.close().await;
    });
    server.stop();
}

fn block_of(byte: u8) -> Buffer {
    let mut buffer = Buffer::zeroed(512);
    buffer.fill(byte);
    buffer
}

#[test]
fn what_cannot_be_opened_is_refused_with_what_to_do() {
    let Some(ceph) = Ceph::shared() else { return };
    let conf = ceph.configuration().display().to_string();
    refused(
        &format!("rbd:none/image?conf={conf}"),
        6,
        "ceph osd pool create none",
    );
    refused(
        &ceph.volume("absent", ""),
        6,
        "to create it, specify a size",
    );
    refused(&ceph.volume("absent@monday", ""), 6, "no snapshot");
    refused("rbd:rbd/image?conf=/nonexistent", 2, "/nonexistent");
    let nobody = free_port();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lost = folder.path().join("conf");
    let text = format!("[global]\nmon host = v1:127.0.0.1:{nobody}\nauth client required = none\n");
    std::fs::write(&lost, text).expect("a temporary file");
    let away = format!(
        "rbd:rbd/image?conf={}&timeout=1s&lock-wait=0s",
        lost.display()
    );
    refused(&away, 3, "the cluster");
    ceph.rbd("create --size 8M --image-feature layering open");
    refused(
        &ceph.volume("open", ""),
        2,
        "rbd feature enable rbd/open exclusive-lock",
    );
    ceph.rbd("create --size 8M small");
    refused(&ceph.volume("small", "&size=16MiB"), 2, "has 8388608 bytes");
    ceph.rbd("config image set small rbd_cache true");
    refused(
        &ceph.volume("small", ""),
        2,
        "rbd config image remove rbd/small rbd_cache",
    );
}

/// The families of libiscsi's suite that read, write, deallocate, compare and lock.
const FAMILIES: &[&str] = &[
    "SCSI.CompareAndWrite",
    "SCSI.ExtendedCopy",
    "SCSI.GetLBAStatus",
    "SCSI.OrWrite",
    "SCSI.Read16",
    "SCSI.ReadCapacity16",
    "SCSI.Unmap",
    "SCSI.Write16",
    "SCSI.WriteAtomic16",
    "SCSI.WriteSame16",
    "SCSI.WriteVerify16",
];

#[test]
fn the_conformance_suite_passes_as_over_memory() {
    if !Ceph::is_asked_for_all() || !installed(&["iscsi-test-cu"]) {
        return;
    }
    let Some(ceph) = Ceph::shared() else { return };
    let image = format!("image={}", ceph.volume("suite", "&size=128MiB"));
    let mut server = Server::serving(&[&image, "memory=ram:128MiB"]);
    needs!(server.is_ours());
    for family in FAMILIES {
        let of = |volume| {
            let said = run(
                "iscsi-test-cu",
                &["--dataloss", "-t", family, &server.url(volume)],
            )
            .said;
            let told = |line: &&str| line.trim_start().starts_with("Test: ");
            said.lines()
                .filter(told)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let (image, memory) = (of("image"), of("memory"));
        assert!(
            memory.iter().any(|test| test.ends_with("passed")),
            "{family}: {memory:?}"
        );
        assert_eq!(image, memory, "{family}");
    }
    server.stop();
}

/// Requests must wait for the object server without errors, and data acknowledged before it was killed must
/// be intact.
#[test]
fn a_verified_load_goes_on_when_the_object_server_was_killed() {
    needs!(Ceph::is_asked_for_all());
    let mut ceph = or_skip!(Ceph::start());
    let spec = ceph.volume("killed", "&size=32MiB");
    let text = format!(
        "[volume.disk]\nspec = \"{spec}\"\ndeadline = \"1h\"\n[[target]]\nname = \"iqn.2026-01.io.linerate:disk\"\n\
         lun = [{{ lun = 0, volume = \"disk\" }}]\n"
    );
    let mut server = or_skip!(Server::configured(&text));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let log = folder.path().join("log").display().to_string();
    let url = format!("{}?command-time=3600", server.url("disk"));
    let arguments = [
        "bench", &url, "--block", "4KiB", "--read", "30", "--depth", "8", "--verify", "--span",
        "8MiB",
    ];
    let more = [
        "--allow-write",
        "--yes",
        "--json",
        "--seconds",
        "20",
        "--verify-log",
        &log,
    ];
    let arguments: Vec<String> = arguments
        .iter()
        .chain(&more)
        .map(|word| (*word).to_owned())
        .collect();
    let bench = std::thread::spawn(move || run(LINERATE, &arguments).expect_json_line());
    until("a write is acknowledged", || {
        std::fs::read(&log)
            .is_ok_and(|bytes| bytes.len() > 64 && bytes[64..].iter().any(|byte| *byte != 0))
    });
    for _ in 0..2 {
        ceph.kill_osd().expect("a dead object server");
        ceph.restart_osd().expect("an object server");
    }
    let told = bench.join().expect("figures");
    assert_eq!(
        (&told["errors"], &told["mismatches"]),
        (&0.into(), &0.into()),
        "{told}"
    );
    server.stop();
}
