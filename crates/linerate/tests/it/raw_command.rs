//! `linerate lab raw-serve` and `raw-ask`: the ceiling serves every initiator, and its client every target.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::copy::ours;
use crate::program::{Ended, PATIENCE, installed, run};
use crate::scsi_command::boot_sector;
use crate::server::Server;

const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

/// A raw server on a port of the loopback.
struct Raw {
    child: Child,
    address: String,
}

impl Raw {
    fn start(poll: &str) -> Raw {
        let mut command = Command::new(LINERATE);
        command.args(["lab", "raw-serve", "--listen", "127.0.0.1:0", "--size", "64MiB", "--poll", poll]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a raw server");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let address = lines.into_iter().find_map(|line| {
            let rest = line.strip_prefix("listens on ")?;
            Some(rest.split(';').next()?.to_owned())
        });
        Raw { child, address: address.expect("it says where it listens") }
    }

    fn url(&self) -> String {
        format!("iscsi://{}/iqn.2026-01.io.linerate:raw/0", self.address)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

/// What a measurement tells that lasts for a moment, or for longer where that is too short for a single request to end: the
/// machine may have more to do.
fn measured(arguments: &[&str]) -> serde_json::Value {
    let measure = |seconds| run(LINERATE, &[arguments, &["--json", "--seconds", seconds]].concat());
    let has_any = |ended: &Ended| !ended.said.contains("\"ios\":0,");
    let ended = ["0.2", "2"].into_iter().map(measure).find(has_any);
    ended.unwrap_or_else(|| measure("60")).expect_json_line()
}

#[test]
fn our_initiator_reads_and_writes_at_the_ceiling() {
    for poll in ["never", "always"] {
        let raw = Raw::start(poll);
        for (block, read) in [("4KiB", "100"), ("4KiB", "0"), ("256KiB", "50"), ("1MiB", "0")] {
            let common = ["bench", &raw.url(), "--allow-write", "--yes", "--depth", "8", "--sessions", "2"];
            let said = measured(&[&common[..], &["--block", block, "--read", read]].concat());
            assert!(
                said["ios"].as_u64().is_some_and(|ios| ios > 0),
                "{poll}, {block}, {read} % reads: {said}"
            );
            assert_eq!(said["errors"], 0, "{poll}, {block}, {read} % reads");
        }
    }
}

#[test]
fn initiators_of_others_read_and_write_at_the_ceiling() {
    if !installed(&["qemu-img", "iscsi-perf"]) {
        return;
    }
    let raw = Raw::start("never");
    let bench = ["bench", "-f", "raw", "-t", "none", "-c", "200", "-d", "8", "-s"];
    for (block, more) in [("4096", &[][..]), ("1048576", &[]), ("4096", &["-w"]), ("1048576", &["-w"])] {
        run("qemu-img", &[&bench[..], &[block], more, &[&raw.url()]].concat()).expect_success();
    }
    run("iscsi-perf", &["-t", "1", &raw.url()]).expect_success();
}

#[test]
fn the_lean_client_reads_and_writes_at_our_target_and_at_the_ceiling() {
    let server = Server::serving(&["disk=ram:64MiB"]);
    let raw = Raw::start("never");
    for url in [server.url("disk"), raw.url()] {
        for more in [
            &["--random"][..],
            &["--write", "--yes"],
            &["--write", "--yes", "--block", "1MiB"],
            &["--block", "512", "--sessions", "3"],
        ] {
            let common = ["lab", "raw-ask", &url, "--span", "64MiB", "--depth", "8"];
            let said = measured(&[&common[..], more].concat());
            assert!(said["ios"].as_u64().is_some_and(|ios| ios > 0), "{url} {more:?}: {said}");
        }
    }
}

#[test]
fn the_lean_client_overwrites_nothing_unasked() {
    let Some(server) = ours(&["disk=ram:16MiB", "locked=ram:16MiB?read-only"]) else { return };
    let url = server.url("disk");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let sector = folder.path().join("sector").display().to_string();
    std::fs::write(&sector, boot_sector()).expect("a temporary file");
    run(LINERATE, &["scsi", "write-same", &url, "0", "1", "--block", &sector]).expect_success();

    let ask = |url: &str, more: &[&str]| {
        let common = ["lab", "raw-ask", url, "--write", "--span", "1MiB", "--seconds", "0.1"];
        run(LINERATE, &[&common[..], more].concat())
    };
    let refused = ask(&url, &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.said);
    assert!(refused.said.contains("partition table") && refused.said.contains("--yes"), "{}", refused.said);
    let read = ["read", &url, "--length", "512", "--output", &format!("{sector}-read")];
    run(LINERATE, &read).expect_success();
    assert_eq!(std::fs::read(format!("{sector}-read")).expect("a block"), boot_sector());
    assert_eq!(ask(&server.url("locked"), &["--yes"]).status.code(), Some(8), "write-protected");
    ask(&url, &["--yes"]).expect_success();

    let theirs = format!("{url}?initiator=iqn.2026-01.com.example:other");
    run(LINERATE, &["scsi", "register", &theirs, "--key", "abc"]).expect_success();
    run(LINERATE, &["scsi", "reserve", &theirs, "--key", "abc"]).expect_success();
    assert_eq!(ask(&url, &["--yes"]).status.code(), Some(7), "reserved by another initiator");
}

#[test]
fn a_stranger_is_turned_away_and_the_next_one_answered() {
    let raw = Raw::start("never");
    let mut stranger = TcpStream::connect(&raw.address).expect("a connection");
    stranger.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stranger.write_all(&[0xff; 30_000]).expect("there is room");
    let ended = stranger.read(&mut [0; 64]);
    assert!(
        ended.map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |bytes| bytes == 0)
    );
    assert_eq!(measured(&["bench", &raw.url()])["errors"], 0);
}
