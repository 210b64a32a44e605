//! Runs tgt (Debian's package `tgt`), with its own control socket and port.

use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::san::{Disk, PREFIX, SECRET, TARGET_SECRET, TARGET_USER, USER, images};
use crate::program::{Ended, run, run_command, signal, until};
use crate::server::{free_port, has_ipv6};

#[derive(Debug)]
pub(super) struct Tgt {
    daemon: Child,
    port: u16,
    images: TempDir,
}

/// The number of the target with the plain disks.
const DISKS: &str = "1";
const LOCKED: &str = "2";
const NARROW: &str = "3";

impl Tgt {
    pub(super) fn start() -> Tgt {
        let images = images(&[
            "plain",
            "second",
            "fourki",
            "protected",
            "locked",
            "narrow",
            "added",
        ]);
        let port = free_port();
        let daemon = daemon(port);
        let mut tgt = Tgt {
            daemon,
            port,
            images,
        };
        tgt.until_it_answers();
        tgt.set_up();
        tgt
    }

    pub(super) fn kill(&mut self) {
        let _ = self.daemon.kill(); // it may have ended already
        let _ = self.daemon.wait();
        let control = control_port(self.port);
        for file in [
            format!("socket.{control}"),
            format!("socket.{control}.lock"),
        ] {
            let _ = std::fs::remove_file(format!("/var/run/tgtd/{file}"));
        }
    }

    pub(super) fn restart(&mut self) {
        self.daemon = daemon(self.port);
        self.until_it_answers();
        self.set_up();
    }

    /// The configuration of tgtd, as tgt's own tool dumps it.
    pub(super) fn dump(&self) -> String {
        run(
            "tgt-admin",
            &[
                "--control-port",
                &control_port(self.port).to_string(),
                "--dump",
            ],
        )
        .expect_success()
    }

    pub(super) fn signal(&self, name: &str) {
        signal(&self.daemon, name);
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The number of a disk's target, and the disk's LUN. tgt reserves LUN 0 of every target for its
    /// controller.
    pub(super) fn place(disk: Disk) -> (&'static str, u16) {
        match disk {
            Disk::Plain => ("disks", 1),
            Disk::Second => ("disks", 2),
            Disk::FourKi => ("disks", 3),
            Disk::Protected => ("disks", 4),
            Disk::Locked => ("locked", 1),
            Disk::Narrow => ("narrow", 1),
        }
    }

    /// Changes a login requirement of the plain disks' target.
    pub(super) fn set(&self, key: &str, value: &str) {
        self.set_for(DISKS, key, value);
    }

    pub(super) fn add_one_more(&self) -> u16 {
        self.add_lun(DISKS, "9", "added", "512");
        9
    }

    fn set_for(&self, target: &str, key: &str, value: &str) {
        self.admin(&[
            "--op", "update", "--mode", "target", "--tid", target, "-n", key, "-v", value,
        ]);
    }

    fn set_up(&self) {
        for (number, name) in [(DISKS, "disks"), (LOCKED, "locked"), (NARROW, "narrow")] {
            let name = format!("{PREFIX}{name}");
            self.admin(&[
                "--op", "new", "--mode", "target", "--tid", number, "-T", &name,
            ]);
            self.admin(&[
                "--op", "bind", "--mode", "target", "--tid", number, "-I", "ALL",
            ]);
            self.set_for(number, "InitialR2T", "No"); // so that initiators can choose
        }
        self.add_lun(DISKS, "1", "plain", "512");
        self.add_lun(DISKS, "2", "second", "512");
        self.add_lun(DISKS, "3", "fourki", "4096");
        self.add_lun(DISKS, "4", "protected", "512");
        let protected = [
            "--mode",
            "logicalunit",
            "--tid",
            DISKS,
            "--lun",
            "4",
            "--params",
            "readonly=1",
        ];
        self.admin(&[&["--op", "update"], &protected[..]].concat());
        let thin = [
            "--mode",
            "logicalunit",
            "--tid",
            DISKS,
            "--lun",
            "2",
            "--params",
            "thin_provisioning=1",
        ];
        self.admin(&[&["--op", "update"], &thin[..]].concat());
        self.add_lun(LOCKED, "1", "locked", "512");
        for (user, secret) in [(USER, SECRET), (TARGET_USER, TARGET_SECRET)] {
            self.admin(&[
                "--op",
                "new",
                "--mode",
                "account",
                "--user",
                user,
                "--password",
                secret,
            ]);
        }
        let bind = [
            "--op", "bind", "--mode", "account", "--tid", LOCKED, "--user",
        ];
        self.admin(&[&bind[..], &[USER]].concat());
        self.admin(&[&bind[..], &[TARGET_USER, "--outgoing"]].concat());
        self.add_lun(NARROW, "1", "narrow", "512");
        self.set_for(NARROW, "MaxRecvDataSegmentLength", "512");
    }

    fn add_lun(&self, target: &str, lun: &str, image: &str, block_bytes: &str) {
        let image = self.images.path().join(image).display().to_string();
        let unit = ["--mode", "logicalunit", "--tid", target, "--lun", lun];
        self.admin(
            &[
                &["--op", "new"],
                &unit[..],
                &["-b", &image, "--blocksize", block_bytes],
            ]
            .concat(),
        );
    }

    fn until_it_answers(&mut self) {
        until("an answer of tgtd", || {
            assert_eq!(
                self.daemon.try_wait().expect("a child"),
                None,
                "tgtd has ended"
            );
            self.try_admin(&["--op", "show", "--mode", "sys"])
                .status
                .success()
        });
    }

    fn admin(&self, arguments: &[&str]) {
        self.try_admin(arguments).expect_success();
    }

    fn try_admin(&self, arguments: &[&str]) -> Ended {
        let control = control_port(self.port).to_string();
        run_command(
            Command::new("tgtadm")
                .args(["-C", &control, "--lld", "iscsi"])
                .args(arguments),
        )
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        self.kill();
    }
}

fn daemon(port: u16) -> Child {
    let control = control_port(port).to_string();
    let portals = match has_ipv6() {
        true => format!("portal=127.0.0.1:{port},portal=[::1]:{port}"),
        false => format!("portal=127.0.0.1:{port}"),
    };
    Command::new("tgtd")
        .args([
            "--foreground",
            "--control-port",
            &control,
            "--iscsi",
            &portals,
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("tgtd")
}

/// The control port. The TCP port is unique, so this number rarely collides; tgtd uses 15 bits of it.
fn control_port(port: u16) -> u16 {
    port & 0x7fff
}
