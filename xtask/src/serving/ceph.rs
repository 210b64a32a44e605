//! A one-node Ceph cluster on the loopback, in one directory: a monitor, a manager, and an object server. The
//! cluster needs no user, no key and no other machine.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::free_port;
use crate::process::{self, Background};

/// The programs that the cluster needs.
pub const PROGRAMS: &[&str] = &[
    "ceph-mon",
    "ceph-mgr",
    "ceph-osd",
    "ceph",
    "rbd",
    "rados",
    "monmaptool",
    "setpriv",
];

/// The shortest data paths: no authentication, no replication.
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
";

/// Options of the object server and of clients for measurements: data in memory, and no client cache.
pub const IN_MEMORY: &str = "\
osd objectstore = memstore
memstore device bytes = 2147483648
[client]
rbd cache = false
";

/// Time limit for each step of the cluster's start. No step takes this long, even on a busy machine, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// A running cluster with the pool `rbd`, stopped when dropped.
#[derive(Debug)]
pub struct Ceph {
    folder: PathBuf,
    /// The manager, the object server and the monitor. The monitor is stopped last, because the others report to it.
    daemons: Vec<Background>,
}

impl Ceph {
    /// Starts a cluster. `options` continue the section `[osd]` of its configuration.
    pub fn start(options: &str) -> Result<Ceph> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        process::require(PROGRAMS)?;
        // The directory's path is short, because the path of a Unix socket has at most 107 bytes.
        let number = (std::process::id(), STARTED.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(format!("linerate-ceph-{}-{}", number.0, number.1));
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
        fs::write(folder.join("ceph.conf"), configuration + options)?;
        let mut ceph = Ceph {
            folder,
            daemons: Vec::new(),
        };
        let map = format!("{at}/monmap");
        let monitor = format!("--create --fsid {cluster} --addv a [v1:127.0.0.1:{port}] {map}");
        ceph.run("monmaptool", &monitor)?;
        ceph.run("ceph-mon", &format!("-i a --mkfs --monmap {map}"))?;
        let monitor = ceph.daemon("ceph-mon", "a")?;
        ceph.daemons = vec![ceph.daemon("ceph-mgr", "x")?, monitor];
        ceph.until_told(&format!("--connect-timeout 120 osd create {osd}"))?;
        ceph.run("ceph-osd", &format!("-i 0 --mkfs --osd-uuid {osd}"))?;
        let osd = ceph.daemon("ceph-osd", "0")?;
        ceph.daemons.insert(OSD, osd);
        ceph.until_osd_is_up()?;
        ceph.until_told("osd pool create rbd 8")?;
        ceph.run("rbd", "pool init rbd")?;
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

    /// Runs a program, which must succeed, and returns its output. Spaces separate the arguments.
    pub fn run(&self, program: &str, arguments: &str) -> Result<String> {
        let mut command = self.command(program);
        command.args(arguments.split(' '));
        process::capture(command)
    }

    /// Returns the path of the cluster's configuration.
    pub fn configuration(&self) -> PathBuf {
        self.folder.join("ceph.conf")
    }

    /// Kills the object server, and notifies the monitor, as other object servers would do.
    pub fn kill_osd(&mut self) -> Result<()> {
        self.daemons[OSD].kill();
        self.until_told("osd down 0")?;
        self.until("osd stat", |ceph| ceph.osd_is("0 up"))
    }

    /// Restarts the object server with its existing data.
    pub fn restart_osd(&mut self) -> Result<()> {
        self.daemons[OSD] = self.daemon("ceph-osd", "0")?;
        self.until_osd_is_up()
    }

    /// Waits until the object server is up. If it starts before it has the cluster's ID, the monitor rejects it
    /// (`wrong fsid`) and it exits, so another one is started.
    fn until_osd_is_up(&mut self) -> Result<()> {
        self.until("osd stat", |ceph| {
            if matches!(ceph.daemons[OSD].child.try_wait(), Ok(Some(_)))
                && let Ok(osd) = ceph.daemon("ceph-osd", "0")
            {
                ceph.daemons[OSD] = osd;
            }
            ceph.osd_is("1 up")
        })
    }

    fn osd_is(&self, state: &str) -> bool {
        let told = self.run("ceph", "osd stat");
        told.is_ok_and(|told| told.contains(state))
    }

    /// Repeats a command to the monitor until it succeeds, because the monitor rejects a client without the cluster's ID.
    fn until_told(&mut self, arguments: &str) -> Result<()> {
        self.until(arguments, |ceph| ceph.run("ceph", arguments).is_ok())
    }

    fn daemon(&self, program: &str, name: &str) -> Result<Background> {
        let output = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("output"))?;
        // The daemon is killed together with this process.
        let arguments = format!("--pdeathsig KILL -- {program} -f -i {name}");
        let mut command = self.command("setpriv");
        command
            .args(arguments.split(' '))
            .stdout(Stdio::from(output.try_clone()?))
            .stderr(Stdio::from(output));
        Background::start_from_lasting_thread(command)
    }

    fn until(&mut self, what: &str, mut is_done: impl FnMut(&mut Ceph) -> bool) -> Result<()> {
        let begun = Instant::now();
        while !is_done(self) {
            let log = self.folder.join("output");
            ensure!(
                begun.elapsed() < PATIENCE,
                "`ceph {what}` does not succeed: see {}",
                log.display()
            );
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

/// The index of the object server in [`Ceph::daemons`].
const OSD: usize = 1;

impl Drop for Ceph {
    fn drop(&mut self) {
        self.daemons.iter_mut().for_each(Background::kill); // all of their data is in the directory
        if thread::panicking() {
            for log in ["mon.log", "osd.log"] {
                let text = fs::read_to_string(self.folder.join(log)).unwrap_or_default();
                let last = text
                    .rmatch_indices('\n')
                    .nth(20)
                    .map_or(0, |(at, _)| at + 1);
                eprintln!("--- {log}\n{}", &text[last..]);
            }
        }
        let _ = fs::remove_dir_all(&self.folder); // a leftover is harmless
    }
}
