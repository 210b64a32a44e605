//! A Ceph cluster of one node on the loopback: a monitor, a manager and an object server, whose data is in
//! one directory. The daemons are children of the test and end with it. They need no user, no key and no
//! other machine.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;

use tempfile::TempDir;

use crate::program::{Ended, installed, run_command, until};
use crate::server::free_port;

const PROGRAMS: &[&str] = &[
    "ceph-mon",
    "ceph-mgr",
    "ceph-osd",
    "ceph",
    "rbd",
    "rados",
    "monmaptool",
    "setpriv",
];

/// The configuration, with minimal sizes, for 127.0.0.1 only.
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
osd objectstore = bluestore
bluestore block size = 4294967296
bluestore cache autotune = false
bluestore cache size = 67108864
osd client watch timeout = WATCH
";

/// The timeout of watches in seconds: half of the default, so that tests wait less.
const WATCH: &str = "15";

/// A running cluster with the pool `rbd`.
pub(crate) struct Ceph {
    folder: TempDir,
    monitor: Child,
    manager: Child,
    osd: Child,
}

impl Ceph {
    /// A cluster shared by concurrent tests that do not modify it; it ends with the last of them.
    pub(crate) fn shared() -> Option<Arc<Ceph>> {
        static SHARED: Mutex<Weak<Ceph>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ceph) = shared.upgrade() {
            return Some(ceph);
        }
        let ceph = Arc::new(Ceph::start()?);
        *shared = Arc::downgrade(&ceph);
        Some(ceph)
    }

    /// Starts a cluster; `None`, with the reason, if its programs are not installed.
    pub(crate) fn start() -> Option<Ceph> {
        if !installed(PROGRAMS) {
            return None;
        }
        let folder = TempDir::new().expect("a temporary folder");
        let at = folder.path().display().to_string();
        let [cluster, osd] = [(); 2].map(|()| uuid());
        for part in ["mon", "mgr", "osd"] {
            fs::create_dir(folder.path().join(part)).expect("a temporary folder");
        }
        let port = free_port().to_string();
        let configuration = CONFIGURATION
            .replace("FSID", &cluster)
            .replace("PORT", &port)
            .replace("DIR", &at);
        let configuration = configuration.replace("WATCH", WATCH);
        fs::write(folder.path().join("ceph.conf"), configuration).expect("a temporary file");
        let map = format!("{at}/monmap");
        let in_folder = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            run_command(
                command
                    .args(arguments)
                    .env("CEPH_CONF", format!("{at}/ceph.conf")),
            )
            .expect_success()
        };
        let monitors = format!("[v1:127.0.0.1:{port}]");
        in_folder(
            "monmaptool",
            &[
                "--create", "--fsid", &cluster, "--addv", "a", &monitors, &map,
            ],
        );
        in_folder("ceph-mon", &["-i", "a", "--mkfs", "--monmap", &map]);
        let monitor = daemon(folder.path(), "ceph-mon", "a");
        let manager = daemon(folder.path(), "ceph-mgr", "x");
        let conf = format!("{at}/ceph.conf");
        until("the monitor knows the object server", || {
            let mut command = Command::new("ceph");
            command
                .args(["--connect-timeout", "120", "osd", "create", &osd])
                .env("CEPH_CONF", &conf);
            run_command(&mut command).status.success()
        });
        in_folder("ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", &osd]);
        let osd = daemon(folder.path(), "ceph-osd", "0");
        let mut ceph = Ceph {
            folder,
            monitor,
            manager,
            osd,
        };
        ceph.until_up();
        ceph.until_told(&["osd", "pool", "create", "rbd", "8"]);
        ceph.rbd(&["pool", "init", "rbd"]);
        Some(ceph)
    }

    /// Whether to run tests that take minutes on a busy machine. If not, prints why they are skipped.
    pub(crate) fn is_asked_for_all() -> bool {
        let is_asked = std::env::var_os("LINERATE_CEPH_LONG").is_some();
        if !is_asked {
            eprintln!("skipped: it takes minutes; set LINERATE_CEPH_LONG=1");
        }
        is_asked
    }

    /// The specification of a volume in the cluster: an image of the pool `rbd`, with options.
    pub(crate) fn volume(&self, image: &str, options: &str) -> String {
        format!(
            "rbd:rbd/{image}?conf={}{options}",
            self.configuration().display()
        )
    }

    pub(crate) fn configuration(&self) -> PathBuf {
        self.folder.path().join("ceph.conf")
    }

    /// Runs a program with this cluster's configuration.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Ended {
        run_command(
            Command::new(program)
                .args(arguments)
                .env("CEPH_CONF", self.configuration()),
        )
    }

    /// Like [`Ceph::run`], in the background.
    pub(crate) fn start_program(&self, program: &str, arguments: &[&str]) -> Child {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("CEPH_CONF", self.configuration())
            .stdin(Stdio::null());
        command
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    /// The output of a successful `rbd …`.
    pub(crate) fn rbd(&self, arguments: &[&str]) -> String {
        self.run("rbd", arguments).expect_success()
    }

    /// Kills the object server, and notifies the monitor, as other object servers would do.
    pub(crate) fn kill_osd(&mut self) {
        end(&mut self.osd);
        self.until_told(&["osd", "down", "0"]);
        until("the object server is down", || self.osd_is("0 up"));
    }

    /// Restarts the object server with its existing data.
    pub(crate) fn restart_osd(&mut self) {
        self.osd = daemon(self.folder.path(), "ceph-osd", "0");
        self.until_up();
    }

    /// Waits until the object server is up. If it starts before it has the cluster's ID, the monitor rejects
    /// it (`wrong fsid`) and it exits, so another one is started.
    fn until_up(&mut self) {
        until("the object server is up", || {
            if matches!(self.osd.try_wait(), Ok(Some(_))) {
                self.osd = daemon(self.folder.path(), "ceph-osd", "0");
            }
            self.osd_is("1 up")
        });
    }

    /// Repeats a command to the monitor until it succeeds, because the monitor rejects a client without the
    /// cluster's ID.
    fn until_told(&self, arguments: &[&str]) {
        until(arguments[1], || {
            self.run("ceph", arguments).status.success()
        });
    }

    fn osd_is(&self, state: &str) -> bool {
        let told = self.run("ceph", &["osd", "stat"]);
        told.status.success() && told.said.contains(state)
    }
}

impl Drop for Ceph {
    fn drop(&mut self) {
        [&mut self.manager, &mut self.osd, &mut self.monitor]
            .into_iter()
            .for_each(end);
        if thread::panicking() {
            for log in ["mon.log", "osd.log"] {
                let text = fs::read_to_string(self.folder.path().join(log)).unwrap_or_default();
                let last: Vec<_> = text.lines().rev().take(20).collect();
                eprintln!(
                    "--- {log}\n{}",
                    last.into_iter().rev().collect::<Vec<_>>().join("\n")
                );
            }
        }
    }
}

/// Kills a child process.
fn end(child: &mut Child) {
    let _ = child.kill(); // it may have ended already
    let _ = child.wait();
}

/// Starts a daemon in the foreground. The kernel kills the daemon together with the thread that has started
/// it. That thread lives as long as the test's process, so no daemon remains after a killed test.
fn daemon(folder: &Path, program: &str, name: &str) -> Child {
    static STARTER: OnceLock<Sender<(Command, Sender<Child>)>> = OnceLock::new();
    let output = || {
        File::options()
            .create(true)
            .append(true)
            .open(folder.join("output"))
    };
    let output = || Stdio::from(output().expect("a temporary file"));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program, "-f", "-i", name]);
    command
        .env("CEPH_CONF", folder.join("ceph.conf"))
        .stdin(Stdio::null());
    command.stdout(output()).stderr(output());
    let starter = STARTER.get_or_init(|| {
        let (give, wanted) = mpsc::channel::<(Command, Sender<Child>)>();
        thread::spawn(move || {
            for (mut command, started) in wanted {
                let _ = started.send(command.spawn().expect("setpriv"));
            }
        });
        give
    });
    let (started, child) = mpsc::channel();
    starter.send((command, started)).expect("the thread lives");
    child.recv().expect("setpriv")
}

fn uuid() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid")
        .expect("the kernel makes them")
        .trim()
        .to_owned()
}
