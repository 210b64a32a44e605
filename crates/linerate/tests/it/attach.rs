//! `linerate attach`: a LUN as a file. Needs root (or a FUSE that lets others mount) and /dev/fuse.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::capture::tell;
use crate::nbd_client::Foreign;
use crate::program::{
    Ended, LINERATE, end_of, installed, linerate, run, says, until, write_patterned_file,
};
use crate::recorder;
use crate::remote::{attached, in_a_world, reserve_out};
use crate::server::{Server, free_port};
use crate::sessions::listed;

/// Whether FUSE can be used here; prints the reason if the test is skipped.
pub(crate) fn possible() -> bool {
    let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match fuse {
        Err(error) => eprintln!("skipped: /dev/fuse: {error}"),
        Ok(_) if !is_root() => eprintln!("skipped: only root mounts without fusermount3"),
        Ok(_) => return true,
    }
    false
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// An attached file, detached when this is dropped, even if the test fails. Its sessions' traffic is
/// recorded, and must be decoded by tshark when it is detached.
pub(crate) struct Attached {
    folder: TempDir,
}

impl Attached {
    pub(crate) fn to(volume: &str) -> Attached {
        Attached::with(&[volume])
    }

    /// Arguments, before the path.
    fn with(arguments: &[&str]) -> Attached {
        let attached = Attached {
            folder: TempDir::new().expect("a temporary folder"),
        };
        let recording = attached.recording();
        attach(
            &[&["--record", text(&recording)], arguments].concat(),
            &attached.path(),
        )
        .expect_success();
        attached
    }

    fn recording(&self) -> PathBuf {
        self.folder.path().join("recording.pcapng")
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    pub(crate) fn detach(&self) -> Ended {
        let ended = linerate(&["detach", text(&self.path())]);
        if ended.status.success() {
            let recording = self.recording();
            until("a recording", || {
                recording.metadata().is_ok_and(|file| file.len() > 0)
            });
            recorder::look_at(&recording);
        }
        ended
    }

    /// The record printed by `attachments`.
    fn record(&self) -> Value {
        let all = linerate(&["attach", "--list", "--json"]).expect_success();
        crate::json::check(
            crate::json::ATTACH,
            &serde_json::from_str(&all).expect("JSON"),
        );
        let all = listed("attached", &all);
        let path = self.path();
        let here = |record: &Value| record["path"].as_str().map(Path::new) == Some(&path);
        all.into_iter().find(here).expect("a record")
    }

    /// The log of the process behind the file.
    pub(crate) fn log(&self) -> String {
        let log = self.record()["log"].as_str().expect("a log").to_owned();
        fs::read_to_string(log).expect("readable")
    }

    pub(crate) fn pid(&self) -> String {
        self.record()["pid"].to_string()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = linerate(&["detach", "--force", text(&self.path())]); // most tests have already done this
    }
}

fn attach(arguments: &[&str], path: &Path) -> Ended {
    linerate(&[&["attach"], arguments, &[text(path)]].concat())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("the file")
}

fn errno<T: std::fmt::Debug>(outcome: io::Result<T>) -> i32 {
    outcome
        .expect_err("an error")
        .raw_os_error()
        .expect("of the system")
}

pub(crate) fn kill(signal: &str, pid: &str) {
    let killed = Command::new("kill").args([signal, pid]).status();
    assert!(
        killed.is_ok_and(|status| status.success()),
        "cannot send {signal}"
    );
}

const EPERM: i32 = 1;
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENOTCONN: i32 = 107;

#[test]
fn attaching_for_reading_makes_no_volume() {
    needs!(possible());
    let folder = TempDir::new().expect("a temporary folder");
    let image = folder.path().join("new.img");
    let volume = format!("file:{}?size=1MiB", image.display());
    let Ended { status, said } = attach(&["--read-only", &volume], &folder.path().join("disk"));
    let _ = linerate(&["detach", "--force", text(&folder.path().join("disk"))]);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(!image.exists(), "created although writing is not allowed");
}

#[test]
fn any_bytes_are_written_and_read_and_are_in_the_image() {
    needs!(possible());
    let server = Server::serving(&["disk=file:{state}/disk.img?size=64MiB&block=4096"]);
    let attached = Attached::to(&server.url("disk"));
    let pattern = server.state().join("pattern");
    write_patterned_file(&pattern, 5_000_000);
    let pattern = fs::read(pattern).expect("written");
    let file = open(&attached.path());
    for (at, piece) in pattern.chunks(1_234_567).enumerate() {
        file.write_all_at(piece, 777 + at as u64 * 1_234_567)
            .expect("written");
    }
    file.sync_data().expect("on stable storage");
    let mut back = vec![0; pattern.len()];
    file.read_exact_at(&mut back, 777).expect("read");
    assert!(back == pattern);
    drop(file);
    attached.detach().expect_success();
    let image = fs::read(server.state().join("disk.img")).expect("the image");
    assert!(image[777..777 + pattern.len()] == pattern[..]);
    assert!(!attached.path().exists(), "the file was made by attach");
}

#[test]
fn a_file_has_the_size_of_its_disk_and_keeps_it() {
    needs!(possible());
    let attached = Attached::to("ram:1MiB");
    let file = open(&attached.path());
    assert_eq!(file.metadata().expect("there").len(), 1 << 20);
    assert_eq!(
        file.write_at(&[1; 20], (1 << 20) - 10)
            .expect("a short write"),
        10
    );
    assert_eq!(errno(file.write_at(&[1], 1 << 20)), ENOSPC);
    assert_eq!(
        file.read_at(&mut [0; 20], (1 << 20) - 10)
            .expect("a short read"),
        10
    );
    assert_eq!(errno(file.set_len(5)), EPERM);
    file.set_len(1 << 20).expect("no change");
    assert_eq!(
        errno(
            OpenOptions::new()
                .write(true)
                .truncate(true)
                .open(attached.path())
        ),
        EPERM
    );
}

#[test]
fn a_disk_that_grows_is_a_larger_file() {
    needs!(possible());
    let folder = TempDir::new().expect("a temporary folder");
    let image = folder.path().join("image");
    fs::write(&image, vec![0; 1 << 20]).expect("a temporary file");
    let server = Server::serving(&[&format!("disk=file:{}", image.display())]);
    let attached = Attached::to(&server.url("disk"));
    let file = open(&attached.path());
    OpenOptions::new()
        .write(true)
        .open(&image)
        .and_then(|image| image.set_len(2 << 20))
        .expect("larger");
    until("growth", || {
        file.metadata().expect("the file").len() == 2 << 20
    });
    file.write_all_at(&[1; 4096], (2 << 20) - 4096)
        .expect("the new blocks are there");
}

/// The export's last byte is not in a whole block.
#[test]
fn an_export_of_any_length_is_a_file_of_that_length() {
    if !possible() || !installed(&["nbdkit"]) {
        return;
    }
    let attached = Attached {
        folder: TempDir::new().expect("a temporary folder"),
    };
    let image = attached.path().with_file_name("image");
    fs::write(&image, vec![7; 1_000_003]).expect("an image");
    let server = Foreign::nbdkit(&["file", text(&image)]);
    attach(&[&server.url()], &attached.path()).expect_success();
    let file = open(&attached.path());
    assert_eq!(file.metadata().expect("the file").len(), 1_000_003);
    file.write_all_at(&[1, 2, 3, 4], 999_999).expect("written");
    file.sync_all().expect("on the server");
    let mut end = [0; 5];
    file.read_exact_at(&mut end, 999_998).expect("read");
    assert_eq!(end, [7, 1, 2, 3, 4]);
    drop(file);
    linerate(&["detach", text(&attached.path())]).expect_success();
    let content = fs::read(&image).expect("the image");
    assert_eq!((content.len(), &content[999_998..]), (1_000_003, &end[..]));
}

#[test]
fn holes_are_punched_and_found() {
    use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
    needs!(possible());
    let server = Server::serving(&["disk=file:{state}/disk.img?size=64MiB"]);
    let attached = Attached::to(&server.url("disk"));
    let file = open(&attached.path());
    assert_eq!(
        seek(&file, SeekFrom::Data(0)).map_err(|error| error.raw_os_error()),
        Err(ENXIO)
    );
    file.write_all_at(&vec![7; 4 << 20], 8 << 20)
        .expect("written");
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(8 << 20));
    assert_eq!(seek(&file, SeekFrom::Hole(8 << 20)), Ok(12 << 20));
    // cp looks for holes only if the file has fewer blocks than its size requires.
    let copy = attached.path().with_file_name("copy");
    run(
        "cp",
        &["--sparse=auto", text(&attached.path()), text(&copy)],
    )
    .expect_success();
    assert!(
        fs::metadata(&copy).expect("a copy").blocks() * 512 < 8 << 20,
        "holes were copied as zeros"
    );
    if installed(&["qemu-img"]) {
        let map = run(
            "qemu-img",
            &["map", "-f", "raw", "--output=json", text(&attached.path())],
        )
        .expect_success();
        let map: Value = serde_json::from_str(&map).expect("JSON");
        let parts: Vec<_> = map
            .as_array()
            .expect("a list")
            .iter()
            .map(|part| (part["start"].as_u64(), part["data"].as_bool()))
            .collect();
        assert_eq!(
            parts,
            [
                (Some(0), Some(false)),
                (Some(8 << 20), Some(true)),
                (Some(12 << 20), Some(false))
            ],
            "{map}"
        );
    }
    let taken = || {
        fs::metadata(server.state().join("disk.img"))
            .expect("the image")
            .blocks()
            * 512
    };
    assert!(taken() >= 4 << 20);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 8 << 20, 4 << 20).expect("punched");
    assert!(taken() < 1 << 20, "the space is the server's again");
    fallocate(
        &file,
        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        100,
        10_000,
    )
    .expect("zeroed");
    let mut bytes = vec![1; 12 << 20];
    file.read_exact_at(&mut bytes, 0).expect("read");
    assert!(bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn what_is_attached_read_only_cannot_be_written() {
    needs!(possible());
    for arguments in [&["--read-only", "ram:1MiB"][..], &["ram:1MiB?read-only"]] {
        let attached = Attached::with(arguments);
        assert_eq!(
            errno(OpenOptions::new().write(true).open(attached.path())),
            EROFS
        );
        let mut byte = [1];
        File::open(attached.path())
            .and_then(|mut file| file.read_exact(&mut byte))
            .expect("read");
        assert_eq!(byte, [0]);
    }
}

#[test]
fn a_lun_that_another_initiator_has_reserved_is_refused() {
    const RESERVED: i32 = 7;
    const REGISTER: u8 = 0;
    const RESERVE: u8 = 1;
    const RELEASE: u8 = 2;
    const WRITE_EXCLUSIVE: u8 = 1;
    const EXCLUSIVE_ACCESS: u8 = 3;
    needs!(possible());
    let server = Server::serving(&["disk=ram:1MiB"]);
    let url = server.url("disk");
    in_a_world(async {
        let holder = attached(&url).await;
        reserve_out(&holder, REGISTER, 0, 0, 0xabc).await;
        reserve_out(&holder, RESERVE, EXCLUSIVE_ACCESS, 0xabc, 0).await;
        let folder = TempDir::new().expect("a temporary folder");
        let path = folder.path().join("disk");
        for arguments in [&[&*url][..], &[&*url, "--read-only"]] {
            let ended = attach(arguments, &path);
            assert_eq!(ended.status.code(), Some(RESERVED));
            let said = ended.expect_failure();
            says(
                &said,
                &["exclusive-access, key 0x0000000000000abc, held by iqn."],
            );
        }
        reserve_out(&holder, RELEASE, EXCLUSIVE_ACCESS, 0xabc, 0).await;
        reserve_out(&holder, RESERVE, WRITE_EXCLUSIVE, 0xabc, 0).await;
        let said = attach(&[&url], &path).expect_failure();
        says(&said, &["write-exclusive, key", "--read-only is allowed"]);
        assert!(!path.exists(), "nothing is left behind");
        drop(Attached::with(&["--read-only", &url]));
    });
}

#[test]
fn what_cannot_be_attached_says_why_and_leaves_nothing() {
    const REFUSED: i32 = 2;
    const UNREACHABLE: i32 = 3;
    needs!(possible());
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("disk");
    let nobody = format!(
        "iscsi://127.0.0.1:{}/iqn.2026-01.com.example:disk/0",
        free_port()
    );
    let ended = attach(&[&nobody], &path);
    assert_eq!(ended.status.code(), Some(UNREACHABLE), "{}", ended.said);
    assert_eq!(
        attach(&["iscsi://host:x/iqn.x:y/0"], &path).status.code(),
        Some(REFUSED)
    );
    let ended = attach(&["ram:1MiB"], folder.path());
    assert_eq!(ended.status.code(), Some(REFUSED));
    says(&ended.said, &["this is a directory; add a file name"]);
    assert!(!path.exists());
    let said = linerate(&["detach", text(&path)]).expect_failure();
    assert!(said.contains("nothing is attached there"), "{said}");
}

#[test]
fn detaching_waits_for_users_and_names_them() {
    needs!(possible());
    let attached = Attached::to("ram:1MiB");
    let file = open(&attached.path());
    let said = attached.detach().expect_failure();
    let this = format!("it is in use, by process {}", std::process::id());
    assert!(said.contains(&this), "{said}");
    file.write_all_at(&[1], 0).expect("still there");
    let taken = attach(&["ram:1MiB"], &attached.path()).expect_failure();
    says(&taken, &["a volume is already attached there"]);
    drop(file);
    attached.detach().expect_success();
}

#[test]
fn a_lazy_detach_leaves_the_file_to_its_users() {
    needs!(possible());
    let attached = Attached::to("ram:1MiB");
    let file = open(&attached.path());
    let pid = attached.pid();
    linerate(&["detach", "--lazy", text(&attached.path())]).expect_success();
    file.write_all_at(&[1], 0).expect("still served");
    drop(file);
    until("its end", || !Path::new("/proc").join(&pid).exists());
    assert!(!attached.path().exists());
}

#[test]
fn detaching_in_another_mount_namespace_says_where_it_is_mounted() {
    if !possible() || !installed(&["unshare", "nsenter"]) {
        return;
    }
    let attached = Attached::to("ram:1MiB");
    let (path, pid) = (attached.path(), attached.pid());
    let entered = format!(
        "nsenter --target {pid} --mount linerate detach {}",
        path.display()
    );
    let detach = format!("{} detach {}", LINERATE, path.display());
    // Test both with the mount, which a new namespace copies, and without it.
    for unmounted in ["", "umount \"$1\" && "] {
        let shell = format!("{unmounted}exec {detach}");
        let said = run(
            "unshare",
            &["--mount", "sh", "-c", &shell, "sh", text(&path)],
        )
        .expect_failure();
        assert!(said.contains(&entered), "{said}");
    }
    open(&attached.path())
        .write_all_at(&[1], 0)
        .expect("still there");
    attached.detach().expect_success();
}

#[test]
fn a_killed_process_leaves_nothing_that_cannot_be_cleared_away() {
    needs!(possible());
    let attached = Attached::to("ram:1MiB");
    let detach = || linerate(&["detach", text(&attached.path())]); // a killed process leaves no recording
    let kill_it = || {
        let (pid, path) = (attached.pid(), attached.path());
        kill("-KILL", &pid);
        // While the kernel removes the mount, it returns ECONNABORTED.
        until("a dead mount", || {
            fs::metadata(&path).is_err_and(|error| error.raw_os_error() == Some(ENOTCONN))
        });
    };
    kill_it();
    let listed = linerate(&["attach", "--list"]).expect_success();
    says(&listed, &["its process was killed; detach it"]);
    detach().expect_success();
    assert!(!attached.path().exists());
    attach(&["ram:1MiB"], &attached.path()).expect_success();
    kill_it();
    attach(&["ram:1MiB"], &attached.path()).expect_success();
    open(&attached.path())
        .write_all_at(&[1], 0)
        .expect("it works");
    detach().expect_success();
    assert!(!attached.path().exists());
}

#[test]
fn a_forced_detach_ends_requests_that_wait_for_a_target() {
    needs!(possible());
    let mut server = Server::serving(&["disk=ram:1MiB"]);
    let attached = Attached::to(&server.url("disk"));
    let file = open(&attached.path());
    server.kill();
    let write = std::thread::spawn(move || file.write_at(&[1; 4096], 0).map(|_| ()));
    linerate(&["detach", "--force", text(&attached.path())]).expect_success();
    write
        .join()
        .expect("no panic")
        .expect_err("the connection is aborted");
    assert!(!attached.path().exists());
}

#[test]
fn a_target_that_is_away_for_too_long_is_an_error_until_it_is_back() {
    needs!(possible());
    let mut server = Server::serving(&["disk=file:{state}/disk.img?size=1MiB"]);
    let attached = Attached::to(&format!("{}?reconnect-time=1", server.url("disk")));
    let file = open(&attached.path());
    file.write_all_at(&[1; 4096], 0).expect("written");
    file.sync_all().expect("flushed");
    server.kill();
    assert_eq!(errno(file.read_at(&mut [0; 4096], 0)), EIO);
    drop(open(&attached.path())); // without new writes, this does not use the device
    assert!(
        attached.record()["error"].is_string(),
        "{}",
        attached.record()
    );
    assert!(
        !attached.log().contains("requests succeed again"),
        "{}",
        attached.log()
    );
    assert_eq!(errno(file.write_at(&[2; 4096], 0)), EIO);
    assert_eq!(file.metadata().expect("the size it had").len(), 1 << 20);
    server.restart();
    until("the target's return", || {
        file.write_all_at(&[3; 4096], 0).is_ok()
    });
    assert!(
        attached.record()["error"].is_null(),
        "{}",
        attached.record()
    );
    let log = attached.log();
    says(&log, &["cannot read", "requests succeed again"]);
}

#[test]
fn sigterm_detaches_unless_somebody_uses_it() {
    needs!(possible());
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("disk");
    let mut foreground = Command::new(LINERATE)
        .args(["attach", "--foreground", "ram:1MiB", text(&path)])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the linerate binary");
    until("a file", || {
        fs::metadata(&path).is_ok_and(|file| file.len() == 1 << 20)
    });
    let file = open(&path);
    kill("-TERM", &foreground.id().to_string());
    let mut said = [0; 400];
    let length = foreground
        .stderr
        .as_mut()
        .expect("a pipe")
        .read(&mut said)
        .expect("a line");
    let said = String::from_utf8_lossy(&said[..length]).into_owned();
    assert!(said.contains("stays attached"), "{said}");
    file.write_all_at(&[1], 0).expect("still served");
    kill("-TERM", &foreground.id().to_string());
    until("its leaving the tree", || {
        fs::metadata(&path).is_ok_and(|file| file.len() == 0)
    });
    file.write_all_at(&[1], 0).expect("still served");
    drop(file);
    let status = end_of(&mut foreground);
    assert!(status.success() && !path.exists());
}

#[test]
fn what_programs_want_to_be_stable_is_stable_at_the_target() {
    const O_DSYNC: i32 = 0o10000;
    if !possible() || !installed(&["tshark"]) {
        return;
    }
    let server = Server::serving(&["disk=file:{state}/disk.img?size=1MiB"]);
    let attached = Attached::to(&server.url("disk"));
    let recording = attached.recording();
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .custom_flags(O_DSYNC)
        .open(attached.path())
        .expect("the file");
    file.write_all_at(&[1; 512], 512).expect("written");
    drop(file);
    let file = open(&attached.path());
    file.write_all_at(&[2; 512], 1024).expect("written");
    file.sync_data().expect("flushed");
    drop(file);
    attached.detach().expect_success();
    let said = |filter: &str| {
        tell(
            &recording,
            "1-65535",
            &["-Y", filter, "-T", "fields", "-e", "frame.number"],
        )
    };
    let count = |filter: &str| {
        said(filter)
            .lines()
            .filter(|line| line.parse::<u32>().is_ok())
            .count()
    };
    assert_eq!(
        count("scsi_sbc.opcode == 0x8a && scsi_sbc.fua == 1"),
        1,
        "WRITE(16) with FUA"
    );
    assert_eq!(
        count("scsi_sbc.opcode == 0x8a && scsi_sbc.fua == 0"),
        1,
        "WRITE(16) without"
    );
    assert!(
        count("scsi_sbc.opcode == 0x35 || scsi_sbc.opcode == 0x91") >= 1,
        "SYNCHRONIZE CACHE"
    );
}
