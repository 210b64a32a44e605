//! A file of `linerate attach` under a loop device, with a file system under heavy load, while the target is
//! killed. Needs root, /dev/fuse and loop devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use crate::attach::{Attached, possible};
use crate::program::{end_of, installed, run, run_command, until};
use crate::server::Server;

/// Whether a file can be used as a mounted disk here.
pub(crate) fn loops_possible(programs: &[&str]) -> bool {
    if !Path::new("/dev/loop-control").exists() {
        eprintln!("skipped: there are no loop devices");
        return false;
    }
    possible() && installed(&["losetup", "mount", "umount"]) && installed(programs)
}

/// A loop device, removed when this is dropped.
pub(crate) struct Loop {
    device: String,
    _alone: MutexGuard<'static, ()>,
}

/// A lock for loop devices, which only one test at a time may use. `losetup --find` briefly claims each
/// device that it tries, even one that another process has just taken, and that process then cannot open the
/// device (EBUSY).
fn loop_devices() -> MutexGuard<'static, ()> {
    static LOOP_DEVICES: Mutex<()> = Mutex::new(());
    LOOP_DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loop {
    pub(crate) fn over(file: &Path, options: &[&str]) -> Loop {
        let alone = loop_devices();
        let mut command = Command::new("losetup");
        command
            .args(["--find", "--show", "--direct-io=on"])
            .args(options)
            .arg(file);
        Loop {
            device: run_command(&mut command).expect_success().trim().to_owned(),
            _alone: alone,
        }
    }

    /// The device's path, such as `/dev/loop0`.
    pub(crate) fn name(&self) -> &str {
        &self.device
    }

    /// Bytes written to it, as counted by the kernel.
    fn written_bytes(&self) -> u64 {
        let name = self.device.trim_start_matches("/dev/");
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("a block device");
        let sectors = stat
            .split_whitespace()
            .nth(6)
            .and_then(|field| field.parse::<u64>().ok());
        sectors.expect("a number") * 512
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.device]);
    }
}

/// A mounted file system, unmounted when this is dropped.
pub(crate) struct Mounted {
    folder: TempDir,
}

impl Mounted {
    pub(crate) fn new(device: &Loop) -> Mounted {
        let mounted = Mounted {
            folder: TempDir::new().expect("a temporary folder"),
        };
        run("mount", &[Path::new(&device.device), mounted.path()]).expect_success();
        mounted
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = run("umount", &[self.path()]).status.success();
        if !unmounted {
            let _ = run("umount", &[Path::new("--lazy"), self.path()]);
        }
    }
}

/// Starts fio, which writes random blocks of a file, and then reads and verifies every block.
fn fio(folder: &Path) -> Child {
    let mut command = Command::new("fio");
    command
        .args([
            "--name=verified",
            "--rw=randwrite",
            "--bs=4k-64k",
            "--size=192M",
            "--ioengine=libaio",
        ])
        .args([
            "--iodepth=16",
            "--direct=1",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ])
        .args(["--fsync=512", "--randseed=7"])
        .arg(format!("--directory={}", folder.display()))
        .arg(format!("--output={}", folder.join("fio.out").display()))
        .stdin(Stdio::null());
    command.spawn().expect("fio")
}

fn expect_verified(mut fio: Child, folder: &Path) {
    let status = end_of(&mut fio);
    let said = fs::read_to_string(folder.join("fio.out")).unwrap_or_default();
    assert!(
        status.success() && said.contains("err= 0"),
        "{status}: {said}"
    );
}

fn bonnie(folder: &Path) {
    let folder = folder.display().to_string();
    let arguments = [
        "-d", &folder, "-s", "64", "-r", "0", "-n", "1", "-u", "root", "-q",
    ];
    run("bonnie++", &arguments).expect_success();
}

/// Checks that a file system created by `mkfs` continues, and that fio's data is intact, while the target is
/// killed and restarted.
fn a_file_system_outlives_its_target(volume: &str, loop_options: &[&str], mkfs: &[&str]) {
    let Some((program, arguments)) = mkfs.split_first() else {
        return;
    };
    if !loops_possible(&[program, "fio", "bonnie++"]) {
        return;
    }
    let mut server = Server::serving(&[volume]);
    let attached = Attached::to(&format!("{}?congestion=cubic", server.url("disk")));
    let device = Loop::over(&attached.path(), loop_options);
    run(program, &[arguments, &[&device.device]].concat()).expect_success();
    let mounted = Mounted::new(&device);
    let before = device.written_bytes();
    let fio = fio(mounted.path());
    until("writing", || device.written_bytes() > before + (48 << 20));
    server.kill();
    server.restart();
    expect_verified(fio, mounted.path());
    let log = attached.log();
    assert!(log.contains("the session was restored after"), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
    bonnie(mounted.path());
    drop(mounted);
    drop(device);
    attached.detach().expect_success();
}

#[test]
fn ext4_outlives_its_target() {
    a_file_system_outlives_its_target(
        "disk=file:{state}/disk.img?size=512MiB",
        &[],
        &["mkfs.ext4", "-q"],
    );
}

#[test]
fn xfs_outlives_its_target() {
    a_file_system_outlives_its_target(
        "disk=file:{state}/disk.img?size=512MiB&block=4096",
        &["--sector-size", "4096"],
        &["mkfs.xfs", "-q"],
    );
}

#[test]
fn blocks_that_a_file_system_frees_are_free_at_the_target() {
    if !loops_possible(&["mkfs.ext4", "fstrim"]) {
        return;
    }
    let server = Server::serving(&["disk=file:{state}/disk.img?size=256MiB"]);
    let attached = Attached::to(&server.url("disk"));
    let device = Loop::over(&attached.path(), &[]);
    run("mkfs.ext4", &["-q", &device.device]).expect_success();
    let mounted = Mounted::new(&device);
    let taken = || {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(server.state().join("disk.img"))
            .expect("the image")
            .blocks()
            * 512
    };
    let empty = taken();
    let file: PathBuf = mounted.path().join("file");
    fs::write(&file, vec![7; 64 << 20])
        .and_then(|()| fs::File::open(&file)?.sync_all())
        .expect("written");
    assert!(taken() > empty + (60 << 20));
    fs::remove_file(&file).expect("removed");
    run("sync", &["-f", &mounted.path().display().to_string()]).expect_success();
    run("fstrim", &[mounted.path()]).expect_success();
    assert!(
        taken() < empty + (20 << 20),
        "{} bytes more than before",
        taken() - empty
    );
}

#[test]
fn a_disk_in_use_says_by_what() {
    if !loops_possible(&["mkfs.ext4"]) {
        return;
    }
    let attached = Attached::to("ram:64MiB");
    let device = Loop::over(&attached.path(), &[]);
    run("mkfs.ext4", &["-q", &device.device]).expect_success();
    let mounted = Mounted::new(&device);
    let said = attached.detach().expect_failure();
    let expected = format!(
        "stays attached: it is in use, by {0}, mounted at {1} (to release it: umount {1} && losetup -d {0})",
        device.device,
        mounted.path().display()
    );
    assert!(said.contains(&expected), "{said}");
}
