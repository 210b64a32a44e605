//! Tests of journal files with real processes. A gateway with acknowledged, unflushed writes is killed, and
//! so is the server behind it, which loses these writes. The next gateway must replay them, unless another
//! client has written in the meantime.

use std::sync::Arc;

use block::BlockDevice;
use tempfile::TempDir;

use crate::nbd_channels::{PAGES, all, data, page, versions, write_all};
use crate::nbd_client::{Foreign, opened};
use crate::program::{installed, linerate, says};
use crate::remote::{attached, in_a_world};
use crate::server::{Server, free_port};

/// A server that loses unflushed data when it is killed, and a gateway to it with a journal file.
struct Scene {
    back: Server,
    front: Server,
    /// The volume on the server, as used by other clients.
    direct: String,
    /// The volume with the gateway's journal file.
    kept: String,
    _folder: TempDir,
}

const NBD: &str = "nbd://127.0.0.1:{nbd}/disk?timeout=600";

impl Scene {
    fn new(is_nbd: bool) -> Option<Scene> {
        let port = free_port();
        let back = Server::configured(&format!(
            "[[portal]]\nlisten = \"127.0.0.1:{{port}}\"\n[nbd]\nlisten = [\"127.0.0.1:{port}\"]\n\
             [volume.disk]\nspec = \"buffered:4MiB:[file:{{state}}/disk?size=8MiB]\"\n\
             [[target]]\nname = \"iqn.2026-01.io.linerate:disk\"\nlun = [{{ lun = 0, volume = \"disk\" }}]\n\
             [[nbd.export]]\nvolume = \"disk\"\n"
        ))?;
        let folder = TempDir::new().expect("a temporary folder");
        let journal = folder.path().join("disk.journal");
        let direct = match is_nbd {
            true => NBD.replace("{nbd}", &port.to_string()),
            false => back.url("disk") + "?reconnect-time=600",
        };
        let kept = format!("{direct}&journal=1MiB&journal-file={}", journal.display());
        let front = Server::serving(&[&format!("disk={kept}")]);
        Some(Scene {
            back,
            front,
            direct,
            kept,
            _folder: folder,
        })
    }

    /// Writes all pages and flushes them. Then writes the pages with even numbers again, without a flush.
    fn write(&self) {
        in_a_world(async {
            let lun: Arc<dyn BlockDevice> = Arc::new(attached(&self.front.url("disk")).await);
            write_all(&lun, 1).await;
            lun.flush().await.expect("a flush");
            for number in (0..PAGES).step_by(2) {
                let written = lun
                    .write(page(&lun, number), data(2), block::Durability::Cached)
                    .await;
                written.expect("a gateway");
            }
            assert_eq!(versions(&lun).await, written());
        });
    }

    fn kill_both(&mut self) {
        self.front.kill();
        self.back.kill();
        self.back.restart();
    }

    /// The data that another client reads from the server.
    fn at_the_server(&self) -> Vec<u8> {
        in_a_world(async { versions(&opened(&self.direct).await).await })
    }

    /// The error of opening the volume with its journal file.
    fn refusal(&self) -> String {
        in_a_world(async {
            let spec = backends::parse(&self.kept).expect("a URL");
            match backends::open(&spec).await {
                Ok(_) => panic!("it was opened"),
                Err(error) => error.to_string(),
            }
        })
    }
}

/// The acknowledged content.
fn written() -> Vec<u8> {
    (0..PAGES)
        .map(|number| if number % 2 == 0 { 2 } else { 1 })
        .collect()
}

#[test]
fn what_a_killed_gateway_has_acknowledged_is_written_again() {
    for is_nbd in [true, false] {
        let mut scene = or_skip!(Scene::new(is_nbd));
        scene.write();
        scene.kill_both();
        assert_eq!(scene.at_the_server(), all(1), "the server has lost them");
        scene.front.restart();
        in_a_world(async {
            let lun: Arc<dyn BlockDevice> = Arc::new(attached(&scene.front.url("disk")).await);
            assert_eq!(versions(&lun).await, written());
        });
        assert_eq!(scene.at_the_server(), written());
        // The replayed writes are durable, and flushed data is not replayed.
        scene.kill_both();
        assert_eq!(scene.at_the_server(), written());
        in_a_world(async {
            let device = opened(&scene.direct).await;
            write_all(&device, 3).await;
            device.flush().await.expect("a flush");
        });
        scene.front.restart();
        assert_eq!(scene.at_the_server(), all(3), "NBD: {is_nbd}");
    }
}

#[test]
fn a_gateway_that_was_stopped_leaves_nothing_to_be_written_again() {
    let mut scene = or_skip!(Scene::new(true));
    scene.write();
    scene.front.stop();
    in_a_world(async {
        let device = opened(&scene.direct).await;
        write_all(&device, 3).await;
        device.flush().await.expect("a flush");
    });
    scene.back.kill();
    scene.back.restart();
    scene.front.restart();
    assert_eq!(scene.at_the_server(), all(3));
}

/// The other client has overwritten flushed data, so this is detected.
#[test]
fn what_another_client_has_written_meanwhile_is_kept() {
    for is_nbd in [true, false] {
        let mut scene = or_skip!(Scene::new(is_nbd));
        scene.write();
        scene.kill_both();
        in_a_world(async {
            let device = opened(&scene.direct).await;
            write_all(&device, 4).await;
            device.flush().await.expect("a flush");
        });
        let refusal = scene.refusal();
        says(
            &refusal,
            &["32 acknowledged changes", "another client has written"],
        );
        assert_eq!(scene.at_the_server(), all(4));
        // The changes are replayed only if this is forced.
        let forced = format!("{}&journal-replay=force", scene.kept);
        in_a_world(async { drop(opened(&forced).await) });
        let expected: Vec<u8> = written()
            .into_iter()
            .map(|version| if version == 2 { 2 } else { 4 })
            .collect();
        assert_eq!(scene.at_the_server(), expected);
    }
}

/// A server that was not restarted has lost no writes.
#[test]
fn the_death_of_the_gateway_alone_loses_nothing() {
    let mut scene = or_skip!(Scene::new(true));
    scene.write();
    scene.front.kill();
    in_a_world(async {
        let device = opened(&scene.direct).await;
        let other = device
            .write(page(&device, 0), data(5), block::Durability::Cached)
            .await;
        other.expect("a server");
    });
    let refusal = scene.refusal();
    says(
        &refusal,
        &[
            "1 acknowledged changes",
            "the server has lost nothing since",
        ],
    );
    let dropped = format!("{}&journal-replay=discard", scene.kept);
    in_a_world(async { drop(opened(&dropped).await) });
    scene.front.restart();
    assert_eq!(scene.at_the_server()[..3], [5, 1, 2]);
}

/// Uses nbdkit, which does not report a restart.
#[test]
fn a_file_has_one_user_and_one_export() {
    needs!(installed(&["nbdkit"]));
    let (server, other) = (
        Foreign::nbdkit(&["memory", "8M"]),
        Foreign::nbdkit(&["memory", "8M"]),
    );
    let folder = TempDir::new().expect("a temporary folder");
    let journal = folder.path().join("journal");
    let with_file =
        |server: &Foreign| format!("{}?journal-file={}", server.url(), journal.display());
    let why = |url: String| {
        in_a_world(async {
            let spec = backends::parse(&url).expect("a URL");
            backends::open(&spec)
                .await
                .err()
                .map(|error| error.to_string())
        })
    };
    let mut front = Server::serving(&[&format!("disk={}", with_file(&server))]);
    needs!(front.is_ours());
    in_a_world(async {
        let lun: Arc<dyn BlockDevice> = Arc::new(attached(&front.url("disk")).await);
        write_all(&lun, 1).await;
    });
    let told = why(with_file(&server)).expect("the gateway has it");
    assert!(told.contains("in use by another process"), "{told}");
    // A command that only reads needs no journal file.
    let read = linerate(&["info", &with_file(&server)]).expect_success();
    assert!(read.contains("8MiB"), "{read}");
    front.kill();
    let told = why(with_file(&other)).expect("another export");
    assert!(told.contains("it belongs to nbd://127.0.0.1"), "{told}");
    assert_eq!(why(with_file(&server)), None, "everything is there");
}
