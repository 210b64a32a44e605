//! Tests of a server under a service manager: its messages on the notification socket, and the unit file.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::program::{LINERATE, PATIENCE, end_of, installed, linerate, run, signal};
use crate::server::{free_port, serve};

const UNIT: &str = include_str!("../../../../contrib/linerate.service");

/// A server and its notifications. The test acts as its service manager.
struct Supervised {
    child: Child,
    socket: UnixDatagram,
    folder: TempDir,
}

fn supervised(watchdog: Option<Duration>) -> Supervised {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut command = serve(free_port(), &["a=ram:1MiB".to_owned()], folder.path());
    command
        .env("NOTIFY_SOCKET", &path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(watchdog) = watchdog {
        command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
    }
    Supervised {
        child: command.spawn().expect("the linerate binary"),
        socket,
        folder,
    }
}

impl Supervised {
    /// Receives the next datagram with this prefix.
    fn hear(&self, beginning: &str) -> String {
        let mut heard = Vec::new();
        loop {
            let mut bytes = [0; 4096];
            let length = self
                .socket
                .recv(&mut bytes)
                .unwrap_or_else(|error| panic!("{error} after {heard:?}"));
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if text.starts_with(beginning) {
                return text;
            }
            heard.push(text);
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

#[test]
fn the_service_manager_hears_of_the_beginning_reloads_and_the_end() {
    let mut supervised = supervised(None);
    assert_eq!(
        supervised.hear("READY=1"),
        "READY=1\nSTATUS=serves 1 target(s), 1 volume(s)"
    );
    let control = supervised
        .folder
        .path()
        .join("control")
        .display()
        .to_string();
    linerate(&["server", "add", "b=ram:1MiB", "--control", &control]).expect_success();
    let reloading = supervised.hear("RELOADING=1\n");
    let time = reloading
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    let time: u128 = time.and_then(|time| time.parse().ok()).expect("a time");
    assert!(time > 0 && time <= host::monotonic().as_micros());
    assert_eq!(
        supervised.hear("READY=1"),
        "READY=1\nSTATUS=serves 2 target(s), 2 volume(s)"
    );
    signal(&supervised.child, "HUP");
    supervised.hear("RELOADING=1\n");
    supervised.hear("READY=1");
    signal(&supervised.child, "TERM");
    supervised.hear("STOPPING=1");
    assert!(end_of(&mut supervised.child).success());
}

#[test]
fn the_watchdog_hears_of_a_server_that_works() {
    let mut supervised = supervised(Some(Duration::from_secs(2)));
    supervised.hear("READY=1");
    for _ in 0..3 {
        supervised.hear("WATCHDOG=1");
    }
    signal(&supervised.child, "TERM");
    assert!(end_of(&mut supervised.child).success());
}

/// The unit file, with this build instead of the installed program.
fn unit(folder: &Path) -> String {
    let path = folder.join("linerate.service");
    assert!(
        UNIT.contains("ExecStart=/usr/bin/linerate serve")
            && UNIT.contains("ExecReload=/usr/bin/linerate server reload")
    );
    std::fs::write(&path, UNIT.replace("/usr/bin/linerate", LINERATE)).expect("a temporary file");
    path.display().to_string()
}

#[test]
fn the_unit_is_one_that_systemd_takes_and_calls_safe() {
    needs!(installed(&["systemd-analyze"]));
    let folder = TempDir::new().expect("a temporary folder");
    let unit = unit(folder.path());
    let said = run("systemd-analyze", &["verify", "--man=no", &unit]).expect_success();
    assert!(!said.contains("linerate.service"), "{said}");
    // This requires a version of systemd-analyze that can rate units without a running systemd.
    let rated = run(
        "systemd-analyze",
        &[
            "security",
            "--offline=true",
            "--threshold=20",
            "--no-pager",
            &unit,
        ],
    );
    if rated.said.contains("unrecognized option") {
        eprintln!("skipped: this systemd-analyze cannot rate a unit offline");
        return;
    }
    rated.expect_success();
}

/// The program accepts the commands of its unit.
#[test]
fn the_unit_starts_what_there_is() {
    for line in UNIT.lines().filter_map(|line| {
        line.strip_prefix("ExecStart=")
            .or(line.strip_prefix("ExecReload="))
    }) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let help = run_help(words[0]);
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{option} of {line}");
        }
    }
}

fn run_help(command: &str) -> String {
    let mut help = Command::new(LINERATE);
    crate::program::run_command(help.args([command, "--help"])).expect_success()
}
