//! Tests of the server's log lines about storage that fails, hangs or is full. They must contain the volume's
//! name, the cause, and the recovery.

use std::fs::File;

use serde_json::Value;

use crate::attach::is_root;
use crate::peer::{BLOCK, Moves, Peer, read_10, write_10};
use crate::program::{run, until};
use crate::server::Server;

const LAYER: &str = r#"
[log]
format = "{format}"
[volume.orders]
spec = "fault:[ram:16MiB]"
deadline = "1s"
[[target]]
name = "iqn.2026-01.io.linerate:orders"
lun = [{ lun = 0, volume = "orders" }]
"#;

fn serving(format: &str) -> Option<Server> {
    Server::configured(&LAYER.replace("{format}", format))
}

fn fault(server: &Server, mode: &str) {
    server
        .ask(&["server", "fault", "orders", mode])
        .expect_success();
}

/// The lines about storage, without their timestamps; none may name a unit by its UUID.
fn told(server: &Server) -> Vec<String> {
    let log = server.log();
    assert!(!log.contains("unit="), "{log}");
    let lines = log.lines().filter(|line| line.contains("storage "));
    lines
        .filter_map(|line| Some(line.split_once('Z')?.1.trim().to_owned()))
        .collect()
}

fn wait_for_lines(server: &Server, count: usize) -> Vec<String> {
    until("a line about storage", || told(server).len() >= count);
    told(server)
}

/// The recovery message contains one value that depends on the machine.
fn without_seconds(line: &str) -> &str {
    line.rsplit_once(" seconds=").expect("how long it failed").0
}

#[test]
fn storage_that_fails_is_an_error_by_the_volumes_name_and_its_end_is_told() {
    let server = or_skip!(serving("text"));
    let mut peer = Peer::attach(&server, "orders", 1);
    fault(&server, "fail");
    for lba in 0..20 {
        let write = peer.begin(0, &write_10(lba, BLOCK, false), Moves::Out(vec![1; BLOCK]));
        assert!(!peer.answer(write).is_good());
    }
    let begin = "ERROR front_end_core::storage: storage fails volume=\"orders\" cause=\"the device is not ready\"";
    assert_eq!(wait_for_lines(&server, 1), [begin]);
    fault(&server, "pass");
    peer.write(0, &[1; BLOCK]);
    let lines = wait_for_lines(&server, 2);
    let end = " WARN front_end_core::storage: storage works again volume=\"orders\" cause=\"the device is not ready\" \
        failed_requests=20";
    assert_eq!(
        (lines.len(), without_seconds(&lines[1])),
        (2, end.trim()),
        "one line each: {lines:?}"
    );
}

#[test]
fn the_same_is_told_in_json() {
    let server = or_skip!(serving("json"));
    let mut peer = Peer::attach(&server, "orders", 1);
    fault(&server, "fail");
    let read = peer.begin(0, &read_10(0, 1), Moves::In(BLOCK as u32));
    assert!(!peer.answer(read).is_good());
    let lines = || {
        let log = server.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .filter(|line| line["target"] == "front_end_core::storage")
            .collect::<Vec<_>>()
    };
    until("a line about storage", || lines().len() == 1);
    fault(&server, "pass");
    peer.read(0, 1);
    until("a line about its end", || lines().len() == 2);
    let lines = lines();
    let levels = lines
        .iter()
        .map(|line| line["level"].as_str())
        .collect::<Vec<_>>();
    assert_eq!(levels, [Some("ERROR"), Some("WARN")]);
    assert!(
        lines
            .iter()
            .all(|line| line["fields"]["volume"] == "orders"),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .all(|line| line["fields"]["cause"] == "the device is not ready"),
        "{lines:?}"
    );
    assert_eq!(lines[1]["fields"]["failed_requests"], 1);
}

#[test]
fn storage_that_hangs_is_an_error_by_the_volumes_name_and_its_end_is_told() {
    let server = or_skip!(serving("text"));
    let mut peer = Peer::attach(&server, "orders", 1);
    fault(&server, "hang");
    let write = peer.begin(0, &write_10(0, BLOCK, false), Moves::Out(vec![1; BLOCK]));
    assert!(!peer.answer(write).is_good());
    let lines = wait_for_lines(&server, 1);
    let begin = "ERROR front_end_core::storage: storage fails volume=\"orders\" cause=\"the device has been unresponsive for ";
    assert!(
        lines[0].starts_with(begin) && lines[0].ends_with(" s\""),
        "{lines:?}"
    );
    fault(&server, "pass");
    let lines = wait_for_lines(&server, 2);
    assert!(
        lines[1].starts_with("WARN front_end_core::storage: storage works again volume=\"orders\""),
        "{lines:?}"
    );
    assert!(
        without_seconds(&lines[1]).ends_with("failed_requests=1"),
        "{lines:?}"
    );
}

/// A separate file system, unmounted when this is dropped.
struct Full {
    server: Option<Server>,
    folder: tempfile::TempDir,
}

impl Drop for Full {
    fn drop(&mut self) {
        self.server = None; // it has a file in the file system
        let _ = run(
            "umount",
            &["--lazy", &self.folder.path().display().to_string()],
        );
    }
}

#[test]
fn a_full_file_system_is_told_in_the_operating_systems_words() {
    if !is_root() {
        eprintln!("skipped: only root mounts a small file system");
        return;
    }
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = folder.path().display().to_string();
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=4M", "linerate-test", &path],
    )
    .expect_success();
    let mut full = Full {
        server: None,
        folder,
    };
    // Another file takes the space that the volume relies on.
    let other = full.folder.path().join("other");
    std::fs::write(&other, vec![1; 3 << 20]).expect("there is room");
    let text = LAYER.replace("fault:[ram:16MiB]", &format!("file:{path}/disk?size=16MiB"));
    let server = or_skip!(Server::configured(&text.replace("{format}", "text")));
    let server = full.server.insert(server);
    let mut peer = Peer::attach(server, "orders", 1);
    let data = vec![7; 2 << 20];
    let write = peer.begin(0, &write_10(0, data.len(), false), Moves::Out(data.clone()));
    assert_eq!(peer.answer(write).sense_key(), 7, "DATA PROTECT: no space");
    let lines = wait_for_lines(server, 1);
    let begin = "ERROR front_end_core::storage: storage fails volume=\"orders\" cause=\"no space left in the underlying storage: \
        No space left on device (os error 28)\"";
    assert_eq!(lines, [begin]);
    File::create(&other).expect("emptied");
    peer.write(0, &data);
    let lines = wait_for_lines(server, 2);
    assert!(
        lines[1].starts_with("WARN front_end_core::storage: storage works again volume=\"orders\""),
        "{lines:?}"
    );
    assert!(
        without_seconds(&lines[1]).ends_with("failed_requests=1"),
        "{lines:?}"
    );
}
