//! Runs tgt (Debian's package `tgt`), with its own control socket and port.

use tempfile::TempDir;
use xtask::process::Background;
use xtask::serving::Placement;
use xtask::serving::tgt::Control;

use super::san::{Disk, PREFIX, SECRET, TARGET_SECRET, TARGET_USER, USER, images};
use crate::program::signal;
use crate::server::{free_port, has_ipv6};

#[derive(Debug)]
pub(super) struct Tgt {
    daemon: Background,
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
        let tgt = Tgt {
            daemon,
            port,
            images,
        };
        tgt.set_up();
        tgt
    }

    pub(super) fn kill(&mut self) {
        self.daemon.kill();
        Control::of(self.port).remove();
    }

    pub(super) fn restart(&mut self) {
        self.daemon = daemon(self.port);
        self.set_up();
    }

    /// The configuration of tgtd, as tgt's own tool dumps it.
    pub(super) fn dump(&self) -> String {
        Control::of(self.port).dump().expect("tgt-admin")
    }

    pub(super) fn signal(&self, name: &str) {
        signal(&self.daemon.child, name);
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
        let update = format!("--op update --mode target --tid {target} -n {key} -v {value}");
        self.administer(update.split(' '));
    }

    fn set_up(&self) {
        for (number, name) in [(DISKS, "disks"), (LOCKED, "locked"), (NARROW, "narrow")] {
            let target = format!("--mode target --tid {number}");
            self.administer(format!("--op new {target} -T {PREFIX}{name}").split(' '));
            self.administer(format!("--op bind {target} -I ALL").split(' '));
            self.set_for(number, "InitialR2T", "No"); // so that initiators can choose
        }
        self.add_lun(DISKS, "1", "plain", "512");
        self.add_lun(DISKS, "2", "second", "512");
        self.add_lun(DISKS, "3", "fourki", "4096");
        self.add_lun(DISKS, "4", "protected", "512");
        for (lun, parameter) in [("4", "readonly=1"), ("2", "thin_provisioning=1")] {
            let unit = format!("--mode logicalunit --tid {DISKS} --lun {lun}");
            self.administer(format!("--op update {unit} --params {parameter}").split(' '));
        }
        self.add_lun(LOCKED, "1", "locked", "512");
        for (user, secret) in [(USER, SECRET), (TARGET_USER, TARGET_SECRET)] {
            let new = "--op new --mode account --user".split(' ');
            self.administer(new.chain([user, "--password", secret]));
        }
        let bind = format!("--op bind --mode account --tid {LOCKED} --user");
        self.administer(bind.split(' ').chain([USER]));
        self.administer(bind.split(' ').chain([TARGET_USER, "--outgoing"]));
        self.add_lun(NARROW, "1", "narrow", "512");
        self.set_for(NARROW, "MaxRecvDataSegmentLength", "512");
    }

    fn add_lun(&self, target: &str, lun: &str, image: &str, block_bytes: &str) {
        let image = self.images.path().join(image).display().to_string();
        let unit = format!("--op new --mode logicalunit --tid {target} --lun {lun} -b");
        self.administer(unit.split(' ').chain([&*image, "--blocksize", block_bytes]));
    }

    fn administer<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) {
        let done = Control::of(self.port).administer(arguments);
        done.expect("tgtadm");
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        self.kill();
    }
}

fn daemon(port: u16) -> Background {
    let portals = match has_ipv6() {
        true => format!("portal=127.0.0.1:{port},portal=[::1]:{port}"),
        false => format!("portal=127.0.0.1:{port}"),
    };
    let daemon = Control::of(port).start(&portals, &Placement::default());
    daemon.expect("tgtd")
}
