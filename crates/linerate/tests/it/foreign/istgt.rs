//! Runs istgt (Debian's package `istgt`), with a separate configuration in a temporary directory.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::san::{Disk, SECRET, TARGET_SECRET, TARGET_USER, USER, images};
use crate::program::{signal, until};
use crate::server::{free_port, has_ipv6};

#[derive(Debug)]
pub(super) struct Istgt {
    daemon: Child,
    port: u16,
    /// The directory with istgt's configuration and disks.
    folder: TempDir,
}

/// A section `[LogicalUnit]`, istgt's term for a target.
struct Unit {
    name: &'static str,
    more: &'static str,
}

/// The targets. In istgt, block length, protection and limits are properties of a target, not of a LUN, so
/// each disk with other values is a separate target.
const UNITS: &[Unit] = &[
    Unit {
        name: "disks",
        more: "LUN1 Storage {folder}/second 64MB",
    },
    Unit {
        name: "fourki",
        more: "BlockLength 4096",
    },
    Unit {
        name: "protected",
        more: "ReadOnly Yes",
    },
    Unit {
        name: "locked",
        more: "AuthMethod CHAP",
    },
    Unit {
        name: "narrow",
        more: "MaxRecvDataSegmentLength 512\n  FirstBurstLength 512",
    },
];

impl Istgt {
    pub(super) fn start() -> Istgt {
        let names: Vec<&str> = UNITS
            .iter()
            .map(|unit| unit.name)
            .chain(["second"])
            .collect();
        let folder = images(&names);
        let (port, control) = (free_port(), free_port());
        write(
            &folder.path().join("istgt.conf"),
            &configuration(folder.path(), port, control),
        );
        let accounts = format!(
            "[AuthGroup1]\n  Auth \"{USER}\" \"{SECRET}\" \"{TARGET_USER}\" \"{TARGET_SECRET}\"\n"
        );
        write(&folder.path().join("auth.conf"), &accounts);
        let daemon = daemon(folder.path());
        let mut istgt = Istgt {
            daemon,
            port,
            folder,
        };
        istgt.until_it_listens();
        istgt
    }

    pub(super) fn kill(&mut self) {
        let _ = self.daemon.kill(); // it may have ended already
        let _ = self.daemon.wait();
    }

    pub(super) fn restart(&mut self) {
        self.daemon = daemon(self.folder.path());
        self.until_it_listens();
    }

    pub(super) fn signal(&self, name: &str) {
        signal(&self.daemon, name);
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn place(disk: Disk) -> (&'static str, u16) {
        match disk {
            Disk::Plain => ("disks", 0),
            Disk::Second => ("disks", 1),
            Disk::FourKi => ("fourki", 0),
            Disk::Protected => ("protected", 0),
            Disk::Locked => ("locked", 0),
            Disk::Narrow => ("narrow", 0),
        }
    }

    /// Waits until istgt listens, which it announces only in its log.
    fn until_it_listens(&mut self) {
        until("an istgt that listens", || {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert_eq!(
                self.daemon.try_wait().expect("a child"),
                None,
                "istgt has ended: {}",
                log()
            );
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }
}

impl Drop for Istgt {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts istgt in the foreground (-D). Its output is written to a file, for the analysis of failures.
fn daemon(folder: &Path) -> Child {
    let log = fs::File::create(folder.join("log")).expect("a temporary file");
    Command::new("istgt")
        .arg("-D")
        .arg("-c")
        .arg(folder.join("istgt.conf"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("another handle of it"))
        .stderr(log)
        .spawn()
        .expect("istgt")
}

/// Writes a file with access for its owner only, because istgt requires this for its configuration.
fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("a temporary file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("a file of our own");
}

/// The configuration. istgt requires every part of it, even the control portal.
fn configuration(folder: &Path, port: u16, control: u16) -> String {
    let folder = folder.display().to_string();
    let mut text = HEAD
        .replace("{folder}", &folder)
        .replace("{six}", if has_ipv6() { SIX } else { "" })
        .replace("{port}", &port.to_string())
        .replace("{control}", &control.to_string());
    for (number, unit) in (1..).zip(UNITS) {
        let Unit { name, more } = unit;
        text += &format!(
            "[LogicalUnit{number}]\n  TargetName {name}\n  Mapping PortalGroup1 InitiatorGroup1\n  \
             AuthGroup AuthGroup1\n  UseDigest Auto\n  UnitType Disk\n  QueueDepth 32\n  \
             LUN0 Storage {folder}/{name} 64MB\n  {}\n",
            more.replace("{folder}", &folder)
        );
    }
    text
}

const HEAD: &str = "\
[Global]
  NodeBase iqn.2026-01.io.linerate.test
  PidFile {folder}/pid
  AuthFile {folder}/auth.conf
  MediaDirectory {folder}
  Timeout 30
  NopInInterval 20
  DiscoveryAuthMethod Auto
  MaxSessions 64
  MaxConnections 4
  MaxR2T 32
  MaxOutstandingR2T 16
  FirstBurstLength 262144
  MaxBurstLength 1048576
  MaxRecvDataSegmentLength 262144
  InitialR2T Yes
  ImmediateData Yes
[UnitControl]
  AuthMethod None
  AuthGroup AuthGroup1
  Portal UC1 127.0.0.1:{control}
  Netmask 127.0.0.1
[PortalGroup1]
  Portal DA1 127.0.0.1:{port}{six}
[InitiatorGroup1]
  InitiatorName ALL
  Netmask 127.0.0.0/8
  Netmask [::1]
";

const SIX: &str = "\n  Portal DA2 [::1]:{port}";
