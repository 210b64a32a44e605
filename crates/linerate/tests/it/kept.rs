//! Tests of a server's persistent state: identities across restarts and renames, reservations with and
//! without APTPL, and data that must be on the disk, not only in the kernel, when its command completes.
//!
//! A kill (SIGKILL) does not lose the page cache, so `crash` tests only the program. The tests here check the
//! system calls that a flush and a write with FUA cause.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::peer::{BLOCK, Moves, Peer, SYNCHRONIZE_CACHE, write_10};
use crate::program::{PATIENCE, end_of, installed, signal};
use crate::server::Server;

fn configuration(volume: &str, more: &str) -> String {
    format!(
        "io-engine = \"threads\" # io_uring's work is not to be seen by strace\n[volume.{volume}]\n\
         spec = \"ram:16MiB\"\n{more}\n[[target]]\nname = \"iqn.2026-01.io.linerate:disk\"\n\
         lun = [{{ lun = 0, volume = \"{volume}\" }}]\n"
    )
}

/// The VPD pages 80h (unit serial number) and 83h (device identification).
fn identifiers(server: &Server) -> [Vec<u8>; 2] {
    let mut peer = Peer::attach(server, "disk", 1);
    [0x80, 0x83].map(|page| {
        peer.run(&[0x12, 1, page, 2, 0, 0], Moves::In(512))
            .expect_good()
    })
}

#[test]
fn identifiers_survive_restarts_and_renames() {
    let mut server = or_skip!(Server::configured(&configuration("disk", "")));
    let before = identifiers(&server);
    server.kill();
    server.restart();
    assert_eq!(identifiers(&server), before, "after a kill");
    server.stop();
    server.reconfigure(&configuration("renamed", "previous-name = \"disk\""));
    server.restart();
    assert_eq!(identifiers(&server), before, "under another name");
    server.stop();
    server.restart();
    assert_eq!(identifiers(&server), before, "and once more");
}

/// PERSISTENT RESERVE OUT (SPC-4 6.16): REGISTER with this key, with or without APTPL.
fn register(peer: &mut Peer, key: u64, aptpl: bool) {
    let mut list = vec![0; 24];
    list[8..16].copy_from_slice(&key.to_be_bytes());
    list[20] = u8::from(aptpl);
    peer.run(&[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], Moves::Out(list))
        .expect_good();
}

/// PERSISTENT RESERVE IN (SPC-4 6.15), READ KEYS: the keys alone.
fn keys(peer: &mut Peer) -> Vec<u8> {
    peer.run(&[0x5e, 0, 0, 0, 0, 0, 0, 0, 64, 0], Moves::In(64))
        .expect_good()
        .split_off(8)
}

#[test]
fn registrations_survive_a_kill_with_aptpl_only() {
    const KEY: u64 = 0x1122_3344_5566_7788;
    for aptpl in [true, false] {
        let mut server = or_skip!(Server::configured(&configuration("disk", "")));
        let mut peer = Peer::attach(&server, "disk", 1);
        register(&mut peer, KEY, aptpl);
        assert_eq!(keys(&mut peer), KEY.to_be_bytes());
        server.kill();
        server.restart();
        let left = keys(&mut Peer::attach(&server, "disk", 2));
        assert_eq!(
            left,
            if aptpl {
                KEY.to_be_bytes().to_vec()
            } else {
                Vec::new()
            },
            "APTPL: {aptpl}"
        );
    }
}

#[test]
fn fua_and_flushes_reach_the_disk() {
    needs!(installed(&["strace"]));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = configuration("disk", "").replace("ram:16MiB", &spec(folder.path()));
    let server = or_skip!(Server::configured(&text));
    let mut peer = Peer::attach(&server, "disk", 1);
    let Some(fua) = traced(&server, folder.path(), || {
        peer.run(&write_10(0, BLOCK, true), Moves::Out(vec![1; BLOCK]))
            .expect_good();
    }) else {
        return eprintln!("skipped: strace may not trace here");
    };
    assert!(
        fua.contains("RWF_DSYNC") || fua.contains("sync("),
        "FUA: {fua}"
    );
    let plain =
        traced(&server, folder.path(), || peer.write(8, &[2; BLOCK])).expect("strace as before");
    assert!(
        plain.contains("pwrite") && !plain.contains("SYNC") && !plain.contains("sync("),
        "no FUA: {plain}"
    );
    let flush = traced(&server, folder.path(), || {
        peer.run(&SYNCHRONIZE_CACHE, Moves::Nothing).expect_good();
    });
    let flush = flush.expect("strace as before");
    assert!(
        flush.contains("fdatasync(") || flush.contains("fsync("),
        "SYNCHRONIZE CACHE: {flush}"
    );
}

fn spec(folder: &Path) -> String {
    format!("file:{}?size=16MiB", folder.join("disk.img").display())
}

/// The writing and syncing system calls of a server during an action; `None` if strace is not permitted.
fn traced(server: &Server, folder: &Path, what: impl FnOnce()) -> Option<String> {
    let (calls, pid) = (folder.join("calls"), server.pid().to_string());
    let mut strace = Command::new("strace")
        .args([
            "-f",
            "-p",
            &pid,
            "-e",
            "trace=fdatasync,fsync,pwrite64,pwritev,pwritev2,sync_file_range",
            "-o",
        ])
        .arg(&calls)
        .stderr(Stdio::null())
        .spawn()
        .expect("strace");
    if !attached(&mut strace, server.pid()) {
        return None;
    }
    what();
    signal(&strace, "INT");
    end_of(&mut strace);
    std::fs::read_to_string(calls).ok()
}

/// Waits until strace traces every thread of a process; `false` if it gave up.
fn attached(strace: &mut Child, pid: u32) -> bool {
    let is_traced = |status: String| !status.contains("TracerPid:\t0\n");
    let all_traced = || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a running server");
        threads.flatten().all(|thread| {
            std::fs::read_to_string(thread.path().join("status")).is_ok_and(is_traced)
        })
    };
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && strace.try_wait().expect("a child to wait for").is_none() {
        if all_traced() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5)); // there is no event to wait for
    }
    let _ = strace.kill().and_then(|()| strace.wait()); // it may have ended already
    false
}
