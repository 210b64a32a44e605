//! A diagnosis does not modify the storage.

use std::path::PathBuf;

use super::{diagnose, evidence, median_us, why_not};
use crate::program::{LINERATE, run, write_patterned_file};
use crate::server::Server;

/// A server of a file full of data.
struct Scene {
    server: Server,
    image: PathBuf,
    _folder: tempfile::TempDir,
}

const BYTES: usize = 64 << 20;

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let image = folder.path().join("disk.img");
        write_patterned_file(&image, BYTES);
        let server = Server::serving(&[&format!("disk=file:{}", image.display())]);
        Scene {
            server,
            image,
            _folder: folder,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.image).expect("the image")
    }

    /// Other initiators' view of the LUN, in addition to its data.
    fn state(&self) -> String {
        let ask = |command: &str| {
            let program = LINERATE;
            run(program, &["scsi", command, &self.server.url("disk")]).expect_success()
        };
        ask("modes") + &ask("registrations")
    }
}

#[test]
fn nothing_is_changed_unless_writing_is_allowed() {
    let scene = Scene::new();
    let (bytes, state) = (scene.bytes(), scene.state());
    let found = evidence(&scene.server.url("disk"), &[]);
    assert!(
        median_us(&found["ladder"]["medium_read"]) > 0.0,
        "it was looked at: {found}"
    );
    assert!(why_not(&found["ladder"]["flush"]).contains("--allow-write"));
    assert!(
        found["loads"]
            .as_array()
            .is_some_and(|loads| loads.iter().all(|load| load["load"]["direction"] == "read"))
    );
    assert!(scene.bytes() == bytes, "the data are what they were");
    assert_eq!(scene.state(), state);
}

#[test]
fn only_what_was_named_is_overwritten() {
    let scene = Scene::new();
    let bytes = scene.bytes();
    let said =
        diagnose(&scene.server.url("disk"), &["--allow-write=16MiB..24MiB"]).expect_failure();
    assert!(said.contains("--yes"), "there is something on it: {said}");
    assert!(scene.bytes() == bytes, "it was asked first");
    let found = evidence(
        &scene.server.url("disk"),
        &["--allow-write=16MiB..24MiB", "--yes"],
    );
    assert!(median_us(&found["ladder"]["write"]) > 0.0);
    let after = scene.bytes();
    let (from, to) = (16 << 20, 24 << 20);
    assert!(
        after[..from] == bytes[..from] && after[to..] == bytes[to..],
        "only this part was touched"
    );
    assert!(after[from..to] != bytes[from..to], "and it was");
}
