//! `linerate copy`: images and LUNs in every direction, holes, interruptions, and refusals.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use block::{BlockDevice, Extent};
use rustix::fs::{SeekFrom as Whence, seek};
use tempfile::TempDir;

use crate::nbd::Both;
use crate::nbd_client::Foreign;
use crate::program::{
    Ended, LINERATE, end_of, installed, run, run_command, says, signal, until, write_patterned_file,
};
use crate::proxy::Proxy;
use crate::remote::{attached, in_a_world};
use crate::server::Server;

pub(crate) const MIB: u64 = 1 << 20;

/// Runs the program under test.
pub(crate) fn linerate(arguments: &[&str]) -> Ended {
    run_command(&mut program(arguments))
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(LINERATE);
    command.args(arguments);
    command
}

/// Linerate's server with these volumes; `None` if the tests run with another server, for which
/// [`crate::foreign`] has scenes.
pub(crate) fn ours(volumes: &[&str]) -> Option<Server> {
    Some(Server::serving(volumes)).filter(Server::is_ours)
}

/// A directory for the inputs and outputs of a copy.
pub(crate) struct Scene {
    folder: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The command, with this scene's journal.
    fn copy(&self, from: &str, to: &str, more: &[&str]) -> Command {
        let mut command = program(&["copy", from, to, "--journal", &self.text("journal")]);
        command.args(more);
        command
    }

    /// Runs a copy, and returns its result.
    pub(crate) fn copied(&self, from: &str, to: &str, more: &[&str]) -> serde_json::Value {
        let said = run_command(&mut self.copy(from, to, &[more, &["--json", "--quiet"]].concat()));
        let said = said.expect_success();
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    fn refused(&self, from: &str, to: &str, more: &[&str]) -> (Option<i32>, String) {
        let ended = run_command(&mut self.copy(from, to, more));
        (ended.status.code(), ended.said)
    }

    /// Creates an image of this length with data in these parts. All blocks of data differ.
    pub(crate) fn image(
        &self,
        name: &str,
        bytes: u64,
        parts: impl IntoIterator<Item = (u64, u64)>,
    ) -> String {
        let mut file = File::create(self.path(name)).expect("an image");
        file.set_len(bytes).expect("an image");
        for (at, length) in parts {
            let mut data = vec![0xa5; length as usize];
            for (index, block) in data.chunks_mut(512).enumerate() {
                block[..8].copy_from_slice(&(at + index as u64).to_le_bytes());
            }
            file.seek(SeekFrom::Start(at))
                .and_then(|_| file.write_all(&data))
                .expect("an image");
        }
        self.text(name)
    }
}

/// The offsets of `count` parts of 1 MiB, evenly spread over this length and aligned only to blocks.
fn scattered(bytes: u64, count: u64) -> impl Iterator<Item = (u64, u64)> {
    let step = bytes / count;
    (0..count).map(move |index| (index * step + (index * 7919) % 64 * 512, MIB))
}

/// Whether two files are identical. Holes common to both need not be read.
pub(crate) fn same(one: &str, other: &str) -> bool {
    let [one, other] = [one, other].map(|path| File::open(path).expect("a file"));
    let length = |file: &File| file.metadata().expect("a file").len();
    let equal = |(at, length): &(u64, u64)| {
        let [one, other] = [&one, &other].map(|file| {
            let mut bytes = vec![0; *length as usize];
            file.read_exact_at(&mut bytes, *at).map(|()| bytes)
        });
        one.expect("data") == other.expect("data")
    };
    length(&one) == length(&other)
        && [&one, &other]
            .iter()
            .all(|file| data(file).iter().all(equal))
}

/// The data extents of a file, in pieces of up to 1 MiB.
fn data(file: &File) -> Vec<(u64, u64)> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while let Ok(start) = seek(file, Whence::Data(at)) {
        at = seek(file, Whence::Hole(start)).expect("an end");
        pieces.extend(
            (start..at)
                .step_by(MIB as usize)
                .map(|piece| (piece, MIB.min(at - piece))),
        );
    }
    pieces
}

fn space(path: &str) -> u64 {
    std::fs::metadata(path).expect("a file").blocks() * 512
}

#[test]
fn a_sparse_image_keeps_its_holes_there_and_back_and_on_the_wire() {
    const BYTES: u64 = 4 << 30;
    const DATA: u64 = 200 * MIB;
    let server = or_skip!(ours(&["disk=file:{state}/disk.img?size=4GiB"]));
    let proxy = Proxy::to(server.port());
    let url = server
        .url("disk")
        .replace(&server.portal(), &format!("127.0.0.1:{}", proxy.port()));
    let scene = Scene::new();
    let (image, back) = (
        scene.image("image", BYTES, scattered(BYTES, 200)),
        scene.text("back"),
    );
    let before = proxy.bytes();
    let there = scene.copied(&image, &url, &[]);
    let written = proxy.bytes();
    assert_eq!(there["bytes"], BYTES);
    assert!(
        written - before < DATA + DATA / 10,
        "{} bytes on the wire",
        written - before
    );
    scene.copied(&url, &back, &[]);
    let read = proxy.bytes() - written;
    assert!(read < DATA + DATA / 10, "{read} bytes on the wire");
    assert!(same(&image, &back));
    assert!(
        space(&back) < DATA + DATA / 10,
        "{} bytes of space",
        space(&back)
    );
    assert!(space(&server.state().join("disk.img").display().to_string()) < DATA + DATA / 10);
    if installed(&["qemu-img"]) {
        run(
            "qemu-img",
            &[
                "compare",
                "-f",
                "raw",
                "-F",
                "raw",
                &image,
                &server.url("disk"),
            ],
        )
        .expect_success();
    }
}

#[test]
fn zeros_among_data_are_left_out_and_what_was_there_is_gone() {
    let server = or_skip!(ours(&["disk=ram:32MiB", "thick=ram:32MiB?block=4096"]));
    let scene = Scene::new();
    let full = scene.text("full");
    write_patterned_file(Path::new(&full), 32 << 20);
    std::fs::write(scene.path("zeros"), vec![0; 32 << 20]).expect("an image without holes");
    let mut mixed = File::options()
        .write(true)
        .open(scene.path("zeros"))
        .expect("it");
    mixed
        .seek(SeekFrom::Start(5 * MIB + 100))
        .and_then(|_| mixed.write_all(b"data"))
        .expect("it");
    for volume in ["disk", "thick"] {
        let url = server.url(volume);
        scene.copied(&full, &url, &[]);
        let copied = scene.copied(&scene.text("zeros"), &url, &["--yes", "--verify"]);
        assert_eq!(copied["written_bytes"], 64 << 10, "one grain: {copied}");
        let again = scene.copied(&scene.text("zeros"), &url, &["--yes", "--no-zero-detect"]);
        assert_eq!(again["written_bytes"], 32 << 20, "{again}");
    }
}

#[test]
fn a_file_of_any_length_comes_back_to_the_byte() {
    let server = or_skip!(ours(&["disk=ram:4MiB", "large=ram:4MiB?block=4096"]));
    let scene = Scene::new();
    let odd = scene.text("odd");
    std::fs::write(&odd, [&[7; 1_000_003][..], b"end"].concat()).expect("an image");
    for volume in ["disk", "large"] {
        scene.copied(&odd, &server.url(volume), &["--verify"]);
    }
    let copied = scene.copied(&odd, &scene.text("other"), &["--verify", "--checksum"]);
    assert!(same(&odd, &scene.text("other")));
    if installed(&["sha256sum"]) {
        let sum = run("sha256sum", &[&odd]).expect_success();
        assert!(
            sum.starts_with(copied["sha256"].as_str().expect("a digest")),
            "{sum} {copied}"
        );
    }
}

#[test]
fn what_lies_behind_the_copy_is_left_alone() {
    let server = or_skip!(ours(&["disk=ram:8MiB?block=4096"]));
    let scene = Scene::new();
    let (full, short) = (scene.text("full"), scene.text("short"));
    write_patterned_file(Path::new(&full), 8 << 20);
    std::fs::write(&short, vec![9; 512 * 3]).expect("an image");
    scene.copied(&full, &server.url("disk"), &[]);
    let said =
        run_command(&mut scene.copy(&short, &server.url("disk"), &["--yes"])).expect_success();
    says(&said, &["bytes of", "are not changed"]);
    scene.copied(&server.url("disk"), &scene.text("back"), &[]);
    let (before, after) = (
        std::fs::read(&full).expect("it"),
        std::fs::read(scene.path("back")).expect("it"),
    );
    assert!(after[..1536].iter().all(|byte| *byte == 9) && after[1536..] == before[1536..]);
}

/// Starts a copy, and waits until it has recorded its progress.
fn begun(scene: &Scene, from: &str, to: &str) -> Child {
    let mut command = scene.copy(from, to, &["--checkpoint", "1", "--depth", "1"]);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the linerate binary");
    until("a checkpoint", || scene.path("journal/copy.json").exists());
    child
}

/// The position in the journal.
fn done_bytes(scene: &Scene) -> u64 {
    let journal = std::fs::read(scene.path("journal/copy.json")).expect("a journal");
    let journal: serde_json::Value = serde_json::from_slice(&journal).expect("JSON");
    journal["done_bytes"].as_u64().expect("a number")
}

/// A volume whose requests take so long that a copy can be interrupted in the middle.
const SLOW: &str = "disk=delay:40ms:[file:{state}/disk.img?size=128MiB]";

/// Starts a copy, kills it and resumes it. Returns the position at which it resumed, and the report of the
/// resumed copy.
fn killed_and_resumed(scene: &Scene, image: &str, url: &str) -> (u64, serde_json::Value) {
    let mut child = begun(scene, image, url);
    child
        .kill()
        .and_then(|()| child.wait())
        .expect("a running copy");
    let at = done_bytes(scene);
    assert!(at > 0 && at < 128 * MIB, "{at}");
    let rest = scene.copied(image, url, &["--verify", "--depth", "32"]);
    assert_eq!(rest["resumed_at_bytes"], at);
    (at, rest)
}

#[test]
fn a_copy_that_was_killed_resumes() {
    let Some(server) = ours(&[SLOW]) else { return };
    let (scene, url) = (Scene::new(), server.url("disk"));
    let image = scene.image(
        "image",
        128 * MIB,
        [(0, 80 * MIB), (100 * MIB + 512, 8 * MIB)],
    );
    let (at, rest) = killed_and_resumed(&scene, &image, &url);
    assert!(
        rest["written_bytes"].as_u64().expect("a number") <= 89 * MIB - at.min(80 * MIB),
        "{rest}"
    );
    assert!(!scene.path("journal").exists());
    scene.copied(&url, &scene.text("back"), &["--depth", "64"]);
    assert!(same(&image, &scene.text("back")));
}

#[test]
fn a_copy_to_an_export_whose_server_names_its_volume_is_resumed() {
    let server = or_skip!(Both::serving(&[SLOW], ""));
    let (scene, url) = (Scene::new(), server.url("disk"));
    let image = scene.image("image", 128 * MIB, [(0, 80 * MIB)]);
    killed_and_resumed(&scene, &image, &url);
    assert!(!scene.path("journal").exists());
}

#[test]
fn a_copy_that_cannot_be_resumed_says_so_at_its_beginning() {
    needs!(installed(&["nbdkit"]));
    let (server, scene) = (Foreign::nbdkit(&["memory", "8M"]), Scene::new());
    let image = scene.image("image", 8 * MIB, [(0, MIB)]);
    let url = format!("nbd://127.0.0.1:{}/", server.port);
    let said = run_command(&mut scene.copy(&image, &url, &["--yes"])).expect_success();
    says(&said, &["cannot be resumed", &url]);
}

#[test]
fn a_device_that_is_missing_is_not_made_a_file() {
    let scene = Scene::new();
    let image = scene.image("image", MIB, [(0, MIB)]);
    let (code, said) = scene.refused(&image, "/dev/linerate-no-such-disk", &["--yes"]);
    assert_eq!(code, Some(2), "{said}");
    says(
        &said,
        &["the device /dev/linerate-no-such-disk does not exist"],
    );
    let said = linerate(&["bench", "/dev/linerate-no-such-disk"]).expect_failure();
    assert!(
        said.contains("does not exist") && !said.contains("--size"),
        "{said}"
    );
    assert!(!Path::new("/dev/linerate-no-such-disk").exists());
}

#[test]
fn a_file_that_was_being_made_is_gone_on_with() {
    let Some(server) = ours(&[SLOW]) else { return };
    let (scene, url) = (Scene::new(), server.url("disk"));
    let image = scene.image("image", 128 * MIB, [(0, 80 * MIB)]);
    scene.copied(&image, &url, &["--depth", "64"]);
    let back = scene.text("back");
    let mut child = begun(&scene, &url, &back);
    signal(&child, "INT");
    let status = end_of(&mut child);
    let mut said = String::new();
    child
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut said)
        .expect("text");
    assert_eq!(status.code(), Some(130), "{said}");
    says(
        &said,
        &["interrupted at", "run the same command again to resume"],
    );
    let at = done_bytes(&scene);
    let rest = scene.copied(&url, &back, &["--depth", "64", "--checksum"]);
    assert_eq!(rest["resumed_at_bytes"], at);
    assert_eq!(
        rest["read_bytes"],
        80 * MIB,
        "a digest is of everything: {rest}"
    );
    assert!(same(&image, &back));
}

/// A LUN does not report changed data: zeros that replace data written by the first copy must not be skipped
/// as holes.
#[test]
fn what_has_become_zero_in_the_source_is_zero_in_a_file_that_is_gone_on_with() {
    let Some(server) = ours(&[SLOW]) else { return };
    let (scene, url) = (Scene::new(), server.url("disk"));
    let image = scene.image("image", 128 * MIB, [(0, 128 * MIB)]);
    scene.copied(&image, &url, &["--depth", "64"]);
    let back = scene.text("back");
    let mut child = begun(&scene, &url, &back);
    let written_beyond = |at: u64| {
        let file = File::open(&back).expect("the destination");
        seek(&file, Whence::Data(at)).is_ok()
    };
    until("writing beyond the checkpoint", || {
        written_beyond(done_bytes(&scene) + MIB)
    });
    child
        .kill()
        .and_then(|()| child.wait())
        .expect("a running copy");
    let at = done_bytes(&scene);
    assert!(written_beyond(at) && at < 127 * MIB, "{at}");
    in_a_world(async {
        let lun = attached(&url).await;
        let rest = Extent::new(at / 512, (128 * MIB - at) / 512);
        lun.write_zeroes(rest, true).await.expect("zeros");
        lun.close().await;
    });
    let rest = scene.copied(&url, &back, &["--depth", "64"]);
    assert_eq!(rest["resumed_at_bytes"], at);
    assert!(
        same(
            &server.state().join("disk.img").display().to_string(),
            &back
        ),
        "resumed at {at}"
    );
}

#[test]
fn a_source_that_has_changed_is_not_gone_on_with() {
    let Some(server) = ours(&[SLOW]) else { return };
    let (scene, url) = (Scene::new(), server.url("disk"));
    let image = scene.image("image", 128 * MIB, [(0, 80 * MIB)]);
    let mut child = begun(&scene, &image, &url);
    child
        .kill()
        .and_then(|()| child.wait())
        .expect("a running copy");
    let mut file = File::options().write(true).open(&image).expect("the image");
    file.write_all(b"changed").expect("the image");
    let (code, said) = scene.refused(&image, &url, &[]);
    assert_eq!(code, Some(2));
    says(&said, &["the source has changed", "--restart"]);
    let whole = scene.copied(
        &image,
        &url,
        &["--restart", "--yes", "--depth", "64", "--verify"],
    );
    assert_eq!(whole["resumed_at_bytes"], 0);
}

/// A target with two disks, and another one.
const TWO_TARGETS: &str = r#"
    [volume.one]
    spec = "ram:32MiB"
    [volume.other]
    spec = "ram:32MiB"
    [volume.apart]
    spec = "ram:32MiB"
    [[target]]
    name = "iqn.2026-01.io.linerate:both"
    lun = [{ lun = 0, volume = "one" }, { lun = 1, volume = "other" }]
    [[target]]
    name = "iqn.2026-01.io.linerate:apart"
    lun = [{ lun = 0, volume = "apart" }]
"#;

#[test]
fn a_target_copies_by_itself_what_it_has_both_ends_of() {
    let server = or_skip!(Server::configured(TWO_TARGETS));
    let proxy = Proxy::to(server.port());
    let url = |place: &str| {
        format!(
            "iscsi://127.0.0.1:{}/iqn.2026-01.io.linerate:{place}",
            proxy.port()
        )
    };
    let (one, other, apart) = (url("both/0"), url("both/1"), url("apart/0"));
    let scene = Scene::new();
    let image = scene.image(
        "image",
        32 * MIB,
        [(0, 9 * MIB), (20 * MIB + 4096, 3 * MIB)],
    );
    scene.copied(&image, &one, &[]);
    let before = proxy.bytes();
    let copied = scene.copied(&one, &other, &[]);
    let on_the_wire = proxy.bytes() - before;
    assert!(
        on_the_wire < 6 * MIB,
        "two looks at what is there: {on_the_wire}"
    );
    assert!(
        copied["offloaded_bytes"].as_u64() >= Some(12 * MIB),
        "{copied}"
    );
    let back = scene.text("back");
    scene.copied(&other, &back, &[]);
    assert!(same(&image, &back));
    for (to, more) in [(&other, "--no-xcopy"), (&apart, "--no-zero-detect")] {
        let by_us = scene.copied(&one, to, &[more, "--yes", "--verify"]);
        assert_eq!(
            (&by_us["offloaded_bytes"], &by_us["written_bytes"]),
            (&0.into(), &(12 * MIB).into())
        );
    }
}

#[test]
fn what_cannot_be_copied_is_refused_before_anything_is_lost() {
    let server = or_skip!(ours(&["disk=ram:16MiB", "protected=ram:16MiB?read-only"]));
    let (scene, url) = (Scene::new(), server.url("disk"));
    let image = scene.image("image", 32 * MIB, [(0, MIB)]);
    let small = scene.image("small", 2 * MIB, [(0, MIB)]);
    let cases: &[(&str, &str, i32, &str)] = &[
        (
            &image,
            &url,
            2,
            "is too small: it has 16MiB, and the source 32MiB",
        ),
        (&url, &url, 2, "is the source itself"),
        (&small, &small, 2, "is the source itself"),
        (&image, &small, 2, "holds 2MiB; use --yes to overwrite it"),
        (&small, &server.url("protected"), 8, "is write-protected"),
        ("/nonexistent", &url, 2, "No such file"),
        ("/dev/null", &url, 2, "less than one block"),
        (&small, "/nonexistent/file", 2, "No such file"),
    ];
    for (from, to, code, sentence) in cases {
        let (found, said) = scene.refused(from, to, &[]);
        assert_eq!(found, Some(*code), "{from} {to}: {said}");
        assert!(said.contains(sentence), "{from} {to}: {said}");
    }
    assert_eq!(std::fs::metadata(&small).expect("it").len(), 2 * MIB);
}

#[test]
fn a_disk_image_in_a_container_is_no_disk() {
    let scene = Scene::new();
    let mut image = vec![0; MIB as usize];
    image[..4].copy_from_slice(b"QFI\xfb");
    std::fs::write(scene.path("q.qcow2"), &image).expect("a file");
    let copy =
        |to: &str, more: &[&str]| run_command(&mut scene.copy(&scene.text("q.qcow2"), to, more));
    let Ended { status, said } = copy("ram:2MiB", &[]);
    assert_eq!(status.code(), Some(2), "{said}");
    says(&said, &["is a QCOW2 image", "--raw"]);
    copy("ram:2MiB", &["--raw"]).expect_success();
    // To a file, the image is copied unchanged.
    copy(&scene.text("backup.qcow2"), &[]).expect_success();
    assert!(std::fs::read(scene.path("backup.qcow2")).expect("a file") == image);
}
