//! A running target of any make, with the same disks.

use tempfile::TempDir;

use super::Make;
use super::istgt::Istgt;
use super::tgt::Tgt;
use crate::program::installed;
use crate::proxy::Proxy;
use crate::server::Server;

/// The account of [`Disk::Locked`]. istgt requires secrets of 12 to 16 bytes.
pub(super) const USER: &str = "joe";
pub(super) const SECRET: &str = "the joe secret";
pub(super) const TARGET_USER: &str = "san";
pub(super) const TARGET_SECRET: &str = "the san secret";

/// A disk's length in bytes.
pub(super) const BYTES: u64 = 64 << 20;

/// A disk that every target has. Its LUN depends on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disk {
    /// Blocks of 512 bytes.
    Plain,
    /// Another disk, at another LUN of the same target; thin, if the target supports it.
    Second,
    /// Blocks of 4096 bytes.
    FourKi,
    /// A write-protected disk.
    Protected,
    /// A disk of a target that requires CHAP, and responds to it.
    Locked,
    /// A disk of a target that accepts data segments of up to 512 bytes.
    Narrow,
}

/// A running target. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct San {
    make: Make,
    daemon: Daemon,
}

#[derive(Debug)]
enum Daemon {
    Linerate { server: Server, images: TempDir },
    Tgt(Tgt),
    Istgt(Istgt),
}

impl San {
    /// Starts a target. If this make is not installed, returns `None` and prints the reason on standard
    /// error.
    pub(super) fn start(make: Make) -> Option<San> {
        let daemon = match make {
            Make::Linerate => {
                let images = images(&["plain", "second", "fourki", "protected", "locked"]);
                let configuration = OURS.replace("{images}", &images.path().display().to_string());
                Daemon::Linerate {
                    server: Server::configured(&configuration)?,
                    images,
                }
            }
            Make::Tgt => Daemon::Tgt(installed(&["tgtd", "tgtadm"]).then(Tgt::start)?),
            Make::Istgt => Daemon::Istgt(installed(&["istgt"]).then(Istgt::start)?),
        };
        Some(San { make, daemon })
    }

    pub(super) fn make(&self) -> Make {
        self.make
    }

    /// The target's port on 127.0.0.1.
    pub(super) fn port(&self) -> u16 {
        match &self.daemon {
            Daemon::Linerate { server, .. } => server.port(),
            Daemon::Tgt(tgt) => tgt.port(),
            Daemon::Istgt(istgt) => istgt.port(),
        }
    }

    /// The name of a disk's target, and the disk's LUN.
    pub(super) fn place(&self, disk: Disk) -> (String, u16) {
        let (target, lun) = match &self.daemon {
            Daemon::Linerate { .. } => ours(disk),
            Daemon::Tgt(_) => Tgt::place(disk),
            Daemon::Istgt(_) => Istgt::place(disk),
        };
        (format!("{PREFIX}{target}"), lun)
    }

    /// The URL of a disk, followed by `query` such as `?initial-r2t=yes`.
    pub(super) fn url(&self, disk: Disk, query: &str) -> String {
        self.url_as("", disk, query)
    }

    /// Like [`San::url`], with an account such as `user%secret@`.
    pub(super) fn url_as(&self, account: &str, disk: Disk, query: &str) -> String {
        let (target, lun) = self.place(disk);
        format!(
            "iscsi://{account}127.0.0.1:{}/{target}/{lun}{query}",
            self.port()
        )
    }

    /// Like [`San::url`], through a proxy.
    pub(super) fn url_by(&self, proxy: &Proxy, disk: Disk, query: &str) -> String {
        let (target, lun) = self.place(disk);
        format!("iscsi://127.0.0.1:{}/{target}/{lun}{query}", proxy.port())
    }

    /// Kills the target (SIGKILL).
    pub(super) fn kill(&mut self) {
        match &mut self.daemon {
            Daemon::Linerate { server, .. } => server.kill(),
            Daemon::Tgt(tgt) => tgt.kill(),
            Daemon::Istgt(istgt) => istgt.kill(),
        }
    }

    /// Restarts the target with the same port, and the same disks with their content.
    pub(super) fn restart(&mut self) {
        match &mut self.daemon {
            Daemon::Linerate { server, .. } => server.restart(),
            Daemon::Tgt(tgt) => tgt.restart(),
            Daemon::Istgt(istgt) => istgt.restart(),
        }
    }

    /// Sends a signal, given by its name, to the target.
    pub(super) fn signal(&self, name: &str) {
        match &self.daemon {
            Daemon::Linerate { server, .. } => server.signal(name),
            Daemon::Tgt(tgt) => tgt.signal(name),
            Daemon::Istgt(istgt) => istgt.signal(name),
        }
    }

    /// Makes the plain disk's file longer.
    pub(super) fn grow(&self, bytes: u64) {
        if let Daemon::Linerate { images, .. } = &self.daemon {
            let file = std::fs::File::options()
                .write(true)
                .open(images.path().join("plain"));
            file.and_then(|file| file.set_len(bytes))
                .expect("the disk's file");
        }
    }

    /// Adds a LUN to the target of the plain disk, and returns its number.
    pub(super) fn add_lun(&self) -> u16 {
        match &self.daemon {
            Daemon::Tgt(tgt) => tgt.add_one_more(),
            other => unreachable!("{other:?} has none to add"),
        }
    }

    /// Allows these digests. tgt needs a setting for this, and then requires them.
    pub(super) fn allow_digests(&self, header: &str, data: &str) {
        if let Daemon::Tgt(tgt) = &self.daemon {
            tgt.set("HeaderDigest", header);
            tgt.set("DataDigest", data);
        }
    }
}

/// The prefix of all targets' names.
pub(super) const PREFIX: &str = "iqn.2026-01.io.linerate.test:";

/// Files of a disk's length, without any data.
pub(super) fn images(names: &[&str]) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    for name in names {
        let file = std::fs::File::create(folder.path().join(name)).expect("a temporary file");
        file.set_len(BYTES).expect("room for a hole");
    }
    folder
}

fn ours(disk: Disk) -> (&'static str, u16) {
    match disk {
        Disk::Plain | Disk::Narrow => ("disks", 0),
        Disk::Second => ("disks", 1),
        Disk::FourKi => ("disks", 2),
        Disk::Protected => ("disks", 3),
        Disk::Locked => ("locked", 0),
    }
}

const OURS: &str = r#"
reactors = 2
[volume.plain]
spec = "file:{images}/plain"
[volume.second]
spec = "file:{images}/second"
[volume.fourki]
spec = "file:{images}/fourki?block=4096"
[volume.protected]
spec = "file:{images}/protected?read-only"
[volume.locked]
spec = "file:{images}/locked"
[[target]]
name = "iqn.2026-01.io.linerate.test:disks"
lun = [
    { lun = 0, volume = "plain" }, { lun = 1, volume = "second" },
    { lun = 2, volume = "fourki" }, { lun = 3, volume = "protected" },
]
[[target]]
name = "iqn.2026-01.io.linerate.test:locked"
lun = [{ lun = 0, volume = "locked" }]
[target.chap]
mutual = { user = "san", secret = "the san secret" }
[[target.chap.account]]
user = "joe"
secret = "the joe secret"
"#;
