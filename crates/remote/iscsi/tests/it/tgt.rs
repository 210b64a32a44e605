//! Runs tgt (Debian's package `tgt`). Every scene has a separate daemon, with its own control socket, port
//! and file.

use std::fs::File;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use xtask::process::{Background, installed};
use xtask::serving::Placement;
use xtask::serving::tgt::Control;

pub(crate) const NAME: &str = "iqn.2026-01.io.linerate.test:tgt";
pub(crate) const BYTES: u64 = 64 << 20;
/// The accounts of the target that requires CHAP, for each direction.
pub(crate) const IN: (&str, &str) = ("joe", "a secret of joe's");
pub(crate) const OUT: (&str, &str) = ("san", "the san's secret");

/// A running tgtd with one target, whose LUN 1 is a file. Dropping the value stops it.
pub(crate) struct Tgt {
    daemon: Background,
    port: u16,
    disk: tempfile::NamedTempFile,
}

impl Tgt {
    /// Starts tgtd. If tgt is not installed, returns `None` and prints the reason on standard error.
    pub(crate) fn start() -> Option<Tgt> {
        if !installed("tgtadm") {
            eprintln!("skipped: tgt is not installed (apt-get install tgt)");
            return None;
        }
        let disk = tempfile::NamedTempFile::new().expect("a temporary file");
        File::set_len(disk.as_file(), BYTES).expect("room for a sparse file");
        let port = free_port();
        let daemon = daemon(port);
        let tgt = Tgt { daemon, port, disk };
        tgt.set_up();
        Some(tgt)
    }

    /// Restarts tgtd with the same port and disk.
    pub(crate) fn start_again(&mut self) {
        self.daemon = daemon(self.port);
        self.set_up();
    }

    fn set_up(&self) {
        let path = self.disk.path().to_str().expect("a plain path");
        self.administer(&format!("--op new --mode target --tid 1 -T {NAME}"));
        self.administer(&format!("--op new {LUN} -b {path}"));
        self.administer("--op bind --mode target --tid 1 -I ALL");
    }

    /// Makes the target require CHAP, and authenticate itself.
    pub(crate) fn with_accounts(self) -> Tgt {
        for (user, password) in [IN, OUT] {
            let new = "--op new --mode account --user".split(' ');
            let new = Control::of(self.port).administer(new.chain([user, "--password", password]));
            new.expect("tgtadm");
        }
        for user in [IN.0, &format!("{} --outgoing", OUT.0)] {
            self.administer(&format!("--op bind --mode account --tid 1 --user {user}"));
        }
        self
    }

    /// Makes the LUN support deallocation.
    pub(crate) fn thin(self) -> Tgt {
        self.administer(&format!("--op update {LUN} --params thin_provisioning=1"));
        self
    }

    /// Makes the target require these digests.
    pub(crate) fn with_digests(self, header: &str, data: &str) -> Tgt {
        for (name, value) in [("HeaderDigest", header), ("DataDigest", data)] {
            self.administer(&format!(
                "--op update --mode target --tid 1 -n {name} -v {value}"
            ));
        }
        self
    }

    /// Returns the URL of a LUN, with a prefix for the host and a suffix for the LUN.
    pub(crate) fn url(&self, account: &str, lun: u16, query: &str) -> String {
        format!(
            "iscsi://{account}127.0.0.1:{}/{NAME}/{lun}{query}",
            self.port
        )
    }

    pub(crate) fn portal(&self) -> String {
        format!("iscsi://127.0.0.1:{}", self.port)
    }

    /// Kills tgtd without notice.
    pub(crate) fn kill(&mut self) {
        self.daemon.kill();
        Control::of(self.port).remove();
    }

    fn administer(&self, line: &str) {
        let done = Control::of(self.port).administer(line.split(' '));
        done.expect("tgtadm");
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        self.kill();
    }
}

const LUN: &str = "--mode logicalunit --tid 1 --lun 1";

fn daemon(port: u16) -> Background {
    let portal = format!("portal=127.0.0.1:{port}");
    let daemon = Control::of(port).start(&portal, &Placement::default());
    daemon.expect("tgtd")
}

/// Returns a free port, which stays free until it is used: each port is returned only once, and the kernel
/// chooses ephemeral ports from 32768 on.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() % 20_000;
    let mut ports =
        (0..20_000).map(|_| 10_000 + (first as u16 + NEXT.fetch_add(1, Relaxed)) % 20_000);
    ports
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("loopback has ports")
}
