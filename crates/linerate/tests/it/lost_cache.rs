//! Tests with targets that are killed with acknowledged writes in a volatile cache. The unflushed data is
//! lost, and the command that has written it must write it again or fail.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};
use iscsi_client::{Lun, Management, RemoteLun, TaskManagementResult};
use testkit::Random;

use crate::attach::{Attached, possible};
use crate::copy::MIB;
use crate::program::{Ended, LINERATE, ended_within, write_patterned_file};
use crate::proxy::Proxy;
use crate::remote::{attached, in_a_world};
use crate::server::Server;

/// A write-back volume: at any time, some acknowledged data is only in memory.
const WRITE_BACK: &str = "disk=buffered:4MiB:[delay:2ms:[file:{state}/disk.img?size=48MiB]]";
const SIZE: u64 = 48 * MIB;
/// More bytes than a login transfers. If the target were killed before the command has logged in, the command
/// would immediately fail because the target is unreachable.
const LOGIN_BYTES_MAX: u64 = 64 << 10;

/// A copy that runs while its target is killed.
struct Copying {
    folder: tempfile::TempDir,
    server: Server,
    proxy: Proxy,
    child: Child,
}

impl Copying {
    fn begin(checkpoint_seconds: u64) -> Option<Copying> {
        let server = Some(Server::serving(&[WRITE_BACK])).filter(Server::is_ours)?;
        let proxy = Proxy::to(server.port());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let image = folder.path().join("image");
        write_patterned_file(&image, SIZE as usize);
        let url = server
            .url("disk")
            .replace(&server.portal(), &format!("127.0.0.1:{}", proxy.port()));
        let mut command = Command::new(LINERATE);
        command.args(format!("copy {} {url} --quiet --yes", image.display()).split(' '));
        command.arg("--journal").arg(folder.path().join("journal"));
        command.args(["--checkpoint", &checkpoint_seconds.to_string()]);
        let [report, said] = ["report", "said"]
            .map(|name| File::create(folder.path().join(name)).expect("a temporary file"));
        command.arg("--json").stdout(report).stderr(said);
        let child = command.spawn().expect("the linerate binary");
        Some(Copying {
            folder,
            server,
            proxy,
            child,
        })
    }

    /// Kills the target once this number of bytes has been transferred, unless the copy has ended before, and
    /// restarts it.
    fn kill_target_at(&mut self, bytes: u64) {
        while self.proxy.bytes() < bytes && self.child.try_wait().expect("a child").is_none() {
            std::thread::sleep(Duration::from_millis(1)); // the proxy has no event for this
        }
        self.server.kill();
        self.server.restart();
    }

    fn end(&mut self) -> Ended {
        let status = ended_within(&mut self.child, Duration::from_secs(300)).expect("an end");
        let said = std::fs::read_to_string(self.folder.path().join("said")).expect("what it said");
        Ended { status, said }
    }

    /// The number of bytes that the copy reports as written.
    fn written_bytes(&self) -> serde_json::Value {
        let report = std::fs::read(self.folder.path().join("report")).expect("a report");
        serde_json::from_slice::<serde_json::Value>(&report).expect("JSON")["written_bytes"].take()
    }

    /// The number of pieces of 64 KiB with wrong content on the medium.
    fn wrong_pieces(&mut self) -> usize {
        self.server.stop();
        let [expected, found] = [
            self.folder.path().join("image"),
            self.server.state().join("disk.img"),
        ]
        .map(|path| std::fs::read(path).expect("an image"));
        assert_eq!(expected.len(), found.len());
        expected
            .chunks(64 << 10)
            .zip(found.chunks(64 << 10))
            .filter(|(one, other)| one != other)
            .count()
    }
}

/// Regression: with `--checkpoint 3600`, a copy ended with exit code 0 although 270 of 2,048 pieces were
/// wrong.
#[test]
fn a_copy_whose_target_loses_its_cache_is_right_in_the_end() {
    let mut random = Random::of_variable("LINERATE_SEED", Random::fresh_seed());
    for case in 0..4 {
        let checkpoint = [1, 3600][case % 2];
        let mut copying = or_skip!(Copying::begin(checkpoint));
        let kills = 1 + random.below(2);
        let mut at = 0;
        for _ in 0..kills {
            at += LOGIN_BYTES_MAX + random.below(SIZE);
            copying.kill_target_at(at);
        }
        let ended = copying.end();
        let wrong = copying.wrong_pieces();
        assert!(
            ended.status.success() && wrong == 0,
            "--checkpoint {checkpoint}, killed {kills} times, last at byte {at}: {}, {wrong} pieces wrong: {}",
            ended.status,
            ended.said
        );
        assert_eq!(
            copying.written_bytes(),
            SIZE,
            "what was copied again counts once: {}",
            ended.said
        );
    }
}

/// Data from a pipe cannot be written again.
#[test]
fn a_pipe_into_a_target_that_loses_its_cache_is_no_success() {
    let mut server = or_skip!(Some(Server::serving(&[WRITE_BACK])).filter(Server::is_ours));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = File::create(folder.path().join("said")).expect("a temporary file");
    let mut command = Command::new(LINERATE);
    command
        .args(["write", &server.url("disk"), "--yes"])
        .stdin(Stdio::piped())
        .stderr(output);
    let mut child = command.spawn().expect("the linerate binary");
    let mut input = child.stdin.take().expect("a pipe");
    // Up to 16 requests of 1 MiB are outstanding, and 4 are read ahead. So when all of this was read, some
    // requests have been acknowledged.
    input.write_all(&vec![7; 32 << 20]).expect("taken");
    server.kill();
    server.restart();
    drop(input);
    let status = ended_within(&mut child, Duration::from_secs(300)).expect("an end");
    let said = std::fs::read_to_string(folder.path().join("said")).expect("what it said");
    assert_eq!(status.code(), Some(9), "{said}");
    assert!(said.contains("acknowledged writes may be lost"), "{said}");
}

async fn write(lun: &RemoteLun, durability: Durability) -> Result<(), DeviceError> {
    lun.write(
        Extent::new(64, 8),
        Buffer::from(&[7; 4096][..]).share(),
        durability,
    )
    .await
}

const LOST: Result<(), DeviceError> = Err(DeviceError::WritesLost);

#[test]
fn a_flush_after_a_loss_fails_once_and_a_stable_write_leaves_it_to_the_flush() {
    let mut server = or_skip!(Some(Server::serving(&[WRITE_BACK])).filter(Server::is_ours));
    in_a_world(async {
        let lun = Arc::new(attached(&server.url("disk")).await);
        write(&lun, Durability::Cached).await.expect("written");
        server.kill();
        server.restart();
        write(&lun, Durability::Stable)
            .await
            .expect("on stable storage by itself");
        let both = [Arc::clone(&lun), Arc::clone(&lun)];
        for flush in both.map(|lun| reactor::spawn(async move { lun.flush().await })) {
            assert_eq!(flush.await, LOST);
        }
        assert_eq!(lun.flush().await, Ok(()));
        lun.target().close().await;
    });
}

#[test]
fn nothing_is_lost_where_nothing_was_in_a_volatile_cache() {
    let volumes = [
        WRITE_BACK,
        "file=file:{state}/file.img?size=1MiB",
        "memory=ram:1MiB",
    ];
    let mut server = or_skip!(Some(Server::serving(&volumes)).filter(Server::is_ours));
    in_a_world(async {
        let unwritten = attached(&server.url("disk")).await;
        let flushed = attached(&server.url("disk")).await;
        write(&flushed, Durability::Cached).await.expect("written");
        flushed.flush().await.expect("flushed");
        let stable = attached(&server.url("disk")).await;
        write(&stable, Durability::Stable).await.expect("written");
        // Data acknowledged by a file volume is in the kernel, and survives the server's process.
        let with_kernel = attached(&server.url("file")).await;
        write(&with_kernel, Durability::Cached)
            .await
            .expect("written");
        // A RAM volume reports that it has no cache.
        let write_through = attached(&server.url("memory")).await;
        write(&write_through, Durability::Cached)
            .await
            .expect("written");
        server.kill();
        server.restart();
        for lun in [unwritten, flushed, stable, with_kernel, write_through] {
            assert_eq!(
                lun.flush().await,
                Ok(()),
                "{:?}",
                lun.target().nexus().target
            );
            assert_eq!(lun.target().reinstatements(), 1);
            lun.close().await;
        }
    });
}

#[test]
fn a_reset_of_the_logical_unit_loses_no_cache() {
    let server = or_skip!(Some(Server::serving(&[WRITE_BACK])).filter(Server::is_ours));
    in_a_world(async {
        let lun = attached(&server.url("disk")).await;
        write(&lun, Durability::Cached).await.expect("written");
        let other = attached(&server.url("disk")).await;
        let reset = other
            .target()
            .manage(Management::LogicalUnitReset(Lun(0)))
            .await;
        assert_eq!(reset, Ok(TaskManagementResult::FunctionComplete));
        let before = lun
            .target()
            .statistics()
            .await
            .expect("counted")
            .incidents
            .unit_attentions;
        assert_eq!(lun.flush().await, Ok(()));
        let after = lun
            .target()
            .statistics()
            .await
            .expect("counted")
            .incidents
            .unit_attentions;
        assert!(after > before, "the reset was reported");
        lun.close().await;
        other.close().await;
    });
}

#[test]
fn a_connection_that_is_cut_loses_no_cache() {
    let server = or_skip!(Some(Server::serving(&[WRITE_BACK])).filter(Server::is_ours));
    let proxy = Proxy::to(server.port());
    let url = server
        .url("disk")
        .replace(&server.portal(), &format!("127.0.0.1:{}", proxy.port()));
    in_a_world(async {
        let lun = attached(&url).await;
        write(&lun, Durability::Cached).await.expect("written");
        proxy.cut_all();
        assert_eq!(lun.flush().await, Ok(()));
        assert_eq!(lun.target().reinstatements(), 1);
        lun.close().await;
    });
}

#[test]
fn fsync_of_an_attached_file_fails_once_for_each_that_had_it_open() {
    const EIO: i32 = 5;
    needs!(possible());
    let mut server = or_skip!(Some(Server::serving(&[WRITE_BACK])).filter(Server::is_ours));
    let attached = Attached::to(&server.url("disk"));
    let open = || {
        File::options()
            .read(true)
            .write(true)
            .open(attached.path())
            .expect("the file")
    };
    let errno = |synced: io::Result<()>| synced.err().and_then(|error| error.raw_os_error());
    let [writer, other, closed] = [open(), open(), open()];
    writer.write_all_at(&[7; 4096], 0).expect("written");
    server.kill();
    server.restart();
    drop(closed); // the flush on close reports no error
    for file in [&writer, &other] {
        assert_eq!(
            [errno(file.sync_all()), errno(file.sync_all())],
            [Some(EIO), None]
        );
    }
    assert_eq!(
        errno(open().sync_all()),
        None,
        "what has been told is no news to who comes later"
    );
    drop((writer, other));
    attached.detach().expect_success();
}
