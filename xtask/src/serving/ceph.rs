//! A one-node Ceph cluster on the loopback, in one directory: a monitor, a manager, and an object server that
//! stores its data in memory. The cluster needs no user, no key and no other machine.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::free_port;
use crate::process::{self, Background};
use crate::workspace;

/// The programs that the cluster needs.
pub const PROGRAMS: &[&str] = &[
    "ceph-mon",
    "ceph-mgr",
    "ceph-osd",
    "ceph",
    "rbd",
    "monmaptool",
];

/// The shortest data paths: no authentication, no replication, no client cache.
const CONFIGURATION: &str = "\
[global]
fsid = FSID
mon host = v1:127.0.0.1:PORT
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd class update on start = false
mon allow pool size one = true
ms bind msgr2 = false
ms bind ipv6 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = DIR
[client]
rbd cache = false
[mon]
mon data = DIR/mon
mon data avail warn = 0
mon data avail crit = 0
log file = DIR/mon.log
[mgr]
mgr data = DIR/mgr
log file = DIR/mgr.log
mgr initial modules =
[osd]
osd data = DIR/osd
log file = DIR/osd.log
osd objectstore = memstore
memstore device bytes = 2147483648
";

/// Time limit for each step of the cluster's start, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running cluster with the pool `rbd`, stopped when dropped.
#[derive(Debug)]
pub struct Ceph {
    folder: PathBuf,
    // The daemons, in the order in which they are stopped.
    daemons: Vec<Background>,
}

impl Ceph {
    /// Starts a cluster.
    pub fn start() -> Result<Ceph> {
        process::require(PROGRAMS)?;
        let folder =
            workspace::target_directory().join(format!("xtask/ceph-{}", std::process::id()));
        for part in ["mon", "mgr", "osd"] {
            fs::create_dir_all(folder.join(part)).with_context(|| folder.display().to_string())?;
        }
        let (at, port) = (folder.display().to_string(), free_port()?.to_string());
        let uuid = || fs::read_to_string("/proc/sys/kernel/random/uuid").context("a random UUID");
        let (cluster, osd) = (uuid()?.trim().to_owned(), uuid()?.trim().to_owned());
        let configuration = CONFIGURATION
            .replace("FSID", &cluster)
            .replace("PORT", &port)
            .replace("DIR", &at);
        fs::write(folder.join("ceph.conf"), configuration)?;
        let mut ceph = Ceph {
            folder,
            daemons: Vec::new(),
        };
        let map = format!("{at}/monmap");
        let monitor = format!("[v1:127.0.0.1:{port}]");
        ceph.run(
            "monmaptool",
            &[
                "--create", "--fsid", &cluster, "--addv", "a", &monitor, &map,
            ],
        )?;
        ceph.run("ceph-mon", &["-i", "a", "--mkfs", "--monmap", &map])?;
        ceph.daemon("ceph-mon", "a")?;
        ceph.daemon("ceph-mgr", "x")?;
        ceph.until("osd create", |ceph| {
            ceph.run("ceph", &["osd", "create", &osd]).is_ok()
        })?;
        ceph.run("ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", &osd])?;
        ceph.daemon("ceph-osd", "0")?;
        // An object server that starts before it has the cluster's ID is rejected by the monitor, and exits.
        ceph.until("the object server", |ceph| {
            if ceph
                .daemons
                .last_mut()
                .is_some_and(|osd| matches!(osd.child.try_wait(), Ok(Some(_))))
            {
                ceph.daemons.pop();
                let _ = ceph.daemon("ceph-osd", "0"); // the next iteration checks it
            }
            ceph.run("ceph", &["osd", "stat"])
                .is_ok_and(|told| told.contains("1 up"))
        })?;
        ceph.until("the pool", |ceph| {
            ceph.run("ceph", &["osd", "pool", "create", "rbd", "8"])
                .is_ok()
        })?;
        ceph.run("rbd", &["pool", "init", "rbd"])?;
        // Stop the object server first, because it reports its shutdown to the monitor.
        ceph.daemons.reverse();
        Ok(ceph)
    }

    /// Returns the specification of a volume: an image of the pool `rbd`, and options.
    pub fn volume(&self, image: &str, options: &str) -> String {
        format!(
            "rbd:rbd/{image}?conf={}{options}",
            self.configuration().display()
        )
    }

    /// Returns a command that uses this cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("CEPH_CONF", self.configuration())
            .current_dir(&self.folder);
        command
    }

    /// Runs a command, which must succeed, and returns its output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(program);
        command.args(arguments);
        process::capture(command)
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    fn daemon(&mut self, program: &str, name: &str) -> Result<()> {
        let output = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("output"))?;
        let mut command = self.command(program);
        command
            .args(["-f", "-i", name])
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output));
        self.daemons.push(Background::start(&mut command)?);
        Ok(())
    }

    fn until(&mut self, what: &str, mut is_done: impl FnMut(&mut Ceph) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !is_done(self) {
            if begun.elapsed() > PATIENCE {
                bail!(
                    "Ceph did not start ({what}): see {}",
                    self.folder.join("output").display()
                );
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        for mut daemon in self.daemons.drain(..) {
            daemon.kill(); // all of its data is in the directory
        }
        let _ = fs::remove_dir_all(&self.folder); // a leftover under target/ is harmless
    }
}
