//! Runs tgt (Debian's package `tgt`). Every scene has a separate daemon, with its own control socket, port
//! and file.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const NAME: &str = "iqn.2026-01.io.linerate.test:tgt";
pub(crate) const BYTES: u64 = 64 << 20;
/// The accounts of the target that requires CHAP, for each direction.
pub(crate) const IN: (&str, &str) = ("joe", "a secret of joe's");
pub(crate) const OUT: (&str, &str) = ("san", "the san's secret");

/// Time limit for the start of tgtd, which is longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// A running tgtd with one target, whose LUN 1 is a file. Dropping the value stops it.
pub(crate) struct Tgt {
    daemon: Child,
    port: u16,
    control: u16,
    disk: tempfile::NamedTempFile,
}

impl Tgt {
    /// Starts tgtd. If tgt is not installed, returns `None` and prints the reason on standard error.
    pub(crate) fn start() -> Option<Tgt> {
        let probe = Command::new("tgtadm")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if probe.is_err() {
            eprintln!("skipped: tgt is not installed (apt-get install tgt)");
            return None;
        }
        let disk = tempfile::NamedTempFile::new().expect("a temporary file");
        File::set_len(disk.as_file(), BYTES).expect("room for a sparse file");
        let port = free_port();
        // The port is unique, so this number is unique as well. tgtd uses 15 bits of it.
        let control = port & 0x7fff;
        let mut tgt = Tgt {
            daemon: daemon(port, control),
            port,
            control,
            disk,
        };
        tgt.set_up();
        Some(tgt)
    }

    /// Restarts tgtd with the same port and disk.
    pub(crate) fn start_again(&mut self) {
        self.daemon = daemon(self.port, self.control);
        self.set_up();
    }

    fn set_up(&mut self) {
        self.until_it_listens();
        let path = self.disk.path().to_str().expect("a plain path").to_owned();
        self.admin(&["--op", "new", "--mode", "target", "--tid", "1", "-T", NAME]);
        self.admin(&[
            "--op",
            "new",
            "--mode",
            "logicalunit",
            "--tid",
            "1",
            "--lun",
            "1",
            "-b",
            &path,
        ]);
        self.admin(&[
            "--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL",
        ]);
    }

    /// Makes the target require CHAP, and authenticate itself.
    pub(crate) fn with_accounts(self) -> Tgt {
        for (user, password) in [IN, OUT] {
            self.admin(&[
                "--op",
                "new",
                "--mode",
                "account",
                "--user",
                user,
                "--password",
                password,
            ]);
        }
        self.admin(&[
            "--op", "bind", "--mode", "account", "--tid", "1", "--user", IN.0,
        ]);
        self.admin(&[
            "--op",
            "bind",
            "--mode",
            "account",
            "--tid",
            "1",
            "--user",
            OUT.0,
            "--outgoing",
        ]);
        self
    }

    /// Makes the LUN support deallocation.
    pub(crate) fn thin(self) -> Tgt {
        let lun = ["--tid", "1", "--lun", "1"];
        let update = ["--op", "update", "--mode", "logicalunit"];
        self.admin(&[&update[..], &lun, &["--params", "thin_provisioning=1"]].concat());
        self
    }

    /// Makes the target require these digests.
    pub(crate) fn with_digests(self, header: &str, data: &str) -> Tgt {
        for (name, value) in [("HeaderDigest", header), ("DataDigest", data)] {
            self.admin(&[
                "--op", "update", "--mode", "target", "--tid", "1", "-n", name, "-v", value,
            ]);
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
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }

    /// Waits until tgtd accepts connections. Its portal and its control socket appear separately, in any
    /// order.
    fn until_it_listens(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert_eq!(
                self.daemon.try_wait().expect("a child"),
                None,
                "tgtd has ended"
            );
            let obeys = || {
                self.try_admin(&["--op", "show", "--mode", "target"])
                    .status
                    .success()
            };
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && obeys() {
                return;
            }
            assert!(Instant::now() < deadline, "tgtd does not listen");
            thread::sleep(Duration::from_millis(25));
        }
    }

    fn try_admin(&self, words: &[&str]) -> Output {
        let control = self.control.to_string();
        let run = Command::new("tgtadm")
            .args(["-C", &control, "--lld", "iscsi"])
            .args(words)
            .output();
        run.expect("tgtadm is there")
    }

    fn admin(&self, words: &[&str]) {
        let run = self.try_admin(words);
        assert!(
            run.status.success(),
            "tgtadm {words:?}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        self.kill();
    }
}

fn daemon(port: u16, control: u16) -> Child {
    Command::new("tgtd")
        .args([
            "-f",
            "-C",
            &control.to_string(),
            "--iscsi",
            &format!("portal=127.0.0.1:{port}"),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("tgtd starts where tgtadm does")
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
