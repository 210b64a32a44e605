//! The server under test: start, stop, kill and restart.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tempfile::TempDir;
use xtask::process::Background;
use xtask::serving::Placement;
use xtask::serving::tgt::Control;

use crate::program::{Ended, LINERATE, PATIENCE, end_of, linerate, run, signal};

/// A running server with a state directory that survives restarts, and a fixed port.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    process: Background,
    port: u16,
    volumes: Vec<String>,
    state: TempDir,
}

/// The make of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Linerate,
    /// tgt, with which these tests themselves can be checked.
    Tgt,
}

/// The configuration file in the state directory, if there is one.
const CONFIGURATION: &str = "linerate.toml";

/// The file with the server's standard error.
const LOG: &str = "log";

const TGT_NAME: &str = "iqn.2026-01.io.linerate:disk";

impl Server {
    /// Serves volumes, given as `NAME=SPEC`. `{state}` in a specification is the server's state directory.
    pub(crate) fn serving(volumes: &[&str]) -> Server {
        let state = TempDir::new().expect("a temporary folder");
        let port = free_port();
        let volumes: Vec<String> = volumes
            .iter()
            .map(|volume| volume.replace("{state}", &state.path().display().to_string()))
            .collect();
        let kind = kind();
        let process = start(kind, port, &volumes, state.path());
        Server {
            kind,
            process,
            port,
            volumes,
            state,
        }
    }

    /// Serves the content of a configuration file, with `{port}` for a portal's port and `{state}` for the
    /// state directory. Only Linerate can do this: `None` when another server is tested.
    pub(crate) fn configured(text: &str) -> Option<Server> {
        if kind() != Kind::Linerate {
            return None;
        }
        let state = TempDir::new().expect("a temporary folder");
        let port = free_port();
        let text = text.replace("{port}", &port.to_string());
        let text = text.replace("{state}", &state.path().display().to_string());
        write_configuration(&text, state.path());
        let process = start_linerate(port, &[], state.path());
        Some(Server {
            kind: Kind::Linerate,
            process,
            port,
            volumes: Vec::new(),
            state,
        })
    }

    /// The server's log so far; empty if it is not Linerate.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.state.path().join(LOG)).unwrap_or_default()
    }

    /// Whether this is Linerate, and can be used in tests that require it.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == Kind::Linerate
    }

    /// The server's port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The server's portal, as `host:port`.
    pub(crate) fn portal(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The iSCSI name of a volume's target.
    pub(crate) fn target_name(&self, volume: &str) -> String {
        match self.kind {
            Kind::Linerate => format!("iqn.2026-01.io.linerate:{volume}"),
            Kind::Tgt => TGT_NAME.to_owned(),
        }
    }

    /// The URL of a volume's logical unit, in the syntax of libiscsi and QEMU.
    pub(crate) fn url(&self, volume: &str) -> String {
        let lun = if self.is_ours() { 0 } else { 1 }; // tgt keeps LUN 0 for its controller
        format!(
            "iscsi://{}/{}/{lun}",
            self.portal(),
            self.target_name(volume)
        )
    }

    /// Runs `linerate WORDS`, a command to this server.
    pub(crate) fn ask(&self, words: &[&str]) -> Ended {
        let control = self.state().join("control").display().to_string();
        linerate(&[words, &["--control", &control]].concat())
    }

    /// The directory of the server's persistent state.
    pub(crate) fn state(&self) -> &Path {
        self.state.path()
    }

    /// Shuts the server down (SIGTERM), and checks that it ends in time, with success.
    pub(crate) fn stop(&mut self) {
        let status = self.end();
        assert!(status.success(), "after SIGTERM: {status}");
    }

    /// Shuts the server down (SIGTERM), and returns its exit status. Fails if it does not end in time.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended()
    }

    /// Sends a signal, given by its name, to the server.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.process.child, name);
    }

    /// Waits for the exit status after a signal. Fails if the server does not end in time.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        end_of(&mut self.process.child)
    }

    /// The server's process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills the server (SIGKILL).
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Replaces the server's configuration, for the next start or reload.
    pub(crate) fn reconfigure(&mut self, text: &str) {
        write_configuration(text, self.state.path());
    }

    /// Restarts the server with the same port, volumes and state. As under a service manager, the start is
    /// repeated while its volumes are rejected: the kernel completes outstanding file operations of a killed
    /// process, such as a sync, shortly after the process has ended, and keeps the file locked until then.
    pub(crate) fn restart(&mut self) {
        self.process = start(self.kind, self.port, &self.volumes, self.state.path());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the server's log\n{}---", self.log());
        }
        self.process.kill();
        if self.kind == Kind::Tgt {
            Control::of(self.port).remove();
        }
    }
}

/// The binary under test with the arguments of a server.
pub(crate) fn serve(port: u16, volumes: &[String], state: &Path) -> Command {
    let configuration = std::fs::read_to_string(state.join(CONFIGURATION)).ok();
    let has = |section: &str| {
        configuration
            .as_ref()
            .is_some_and(|text| text.contains(section))
    };
    let mut command = Command::new(LINERATE);
    if !has("[log]") {
        command.args(["--log", "warn"]);
    }
    command
        .args(["serve", "--state"])
        .arg(state)
        .arg("--control")
        .arg(state.join("control"));
    // Addresses on the command line would replace those of the file.
    if !has("[[portal]]") {
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        if has_ipv6() {
            command.args(["--listen", &format!("[::1]:{port}")]);
        }
    }
    if configuration.is_some() {
        command.arg("--config").arg(state.join(CONFIGURATION));
    }
    command.args(volumes.iter().flat_map(|volume| ["--volume", volume]));
    command
}

/// Whether the loopback has an IPv6 address, which it may not have in containers.
pub(crate) fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// A loopback port without a listener. It remains free until it is used, even between two runs of a server:
/// each port is returned once, and the kernel chooses automatic ports from 32768 on. Concurrent processes
/// start at different ports.
pub(crate) fn free_port() -> u16 {
    const PORTS: Range<u32> = 10_000..32_768;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(7919);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let numbers =
        PORTS.map(|_| first.wrapping_add(GIVEN.fetch_add(1, Relaxed)) % PORTS.len() as u32);
    let mut ports = numbers.map(|number| (PORTS.start + number) as u16);
    ports.find(is_free).expect("a free port")
}

/// The server with which these tests run.
fn kind() -> Kind {
    match std::env::var("LINERATE_INTEROP_SERVER").as_deref() {
        Ok("tgt") => Kind::Tgt,
        _ => Kind::Linerate,
    }
}

fn start(kind: Kind, port: u16, volumes: &[String], state: &Path) -> Background {
    match kind {
        Kind::Linerate => start_linerate(port, volumes, state),
        Kind::Tgt => start_tgt(port, state),
    }
}

fn start_linerate(port: u16, volumes: &[String], state: &Path) -> Background {
    let patience = || std::thread::sleep(Duration::from_millis(50));
    let started = (0..100).find_map(|attempt| {
        (attempt > 0).then(patience);
        try_to_start(port, volumes, state)
    });
    started.expect("a server that says `ready`")
}

/// Writes the configuration file. Only its owner can read it, because it may contain secrets.
fn write_configuration(text: &str, state: &Path) {
    let path = state.join(CONFIGURATION);
    let private = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path);
    private
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .expect("a temporary file");
}

/// Starts a server. Returns `None` if it ended before it was ready.
fn try_to_start(port: u16, volumes: &[String], state: &Path) -> Option<Background> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(state.join(LOG))
        .expect("a temporary file");
    let mut command = serve(port, volumes, state);
    let mut process =
        Background::start(command.stdout(Stdio::piped()).stderr(log)).expect("the linerate binary");
    let is_ready = becomes_ready(process.child.stdout.take().expect("a pipe"));
    is_ready.then_some(process)
}

/// Reads until the line `ready` or the end, and continues reading so that the server never blocks.
fn becomes_ready(stdout: ChildStdout) -> bool {
    let (sender, said) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line); // fails once the server was ready
        }
    });
    loop {
        match said.recv_timeout(PATIENCE) {
            Ok(line) if line == "ready" => return true,
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                panic!("the server neither ended nor said `ready` within {PATIENCE:?}")
            }
        }
    }
}

fn start_tgt(port: u16, state: &Path) -> Background {
    let image = state.join("disk.img");
    std::fs::File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&image)
        .and_then(|file| file.set_len(64 << 20))
        .expect("an image file");
    let control = Control::of(port);
    let portal = format!("portal=127.0.0.1:{port}");
    let server = control.start(&portal, &Placement::default());
    let unit = "--mode logicalunit --tid 1 --lun 1";
    for line in [
        format!("--op new --mode target --tid 1 -T {TGT_NAME}"),
        format!("--op new {unit} -b {}", image.display()),
        format!("--op update {unit} --params thin_provisioning=1"),
        "--op bind --mode target --tid 1 -I ALL".to_owned(),
    ] {
        control.administer(line.split(' ')).expect("tgtadm");
    }
    server.expect("tgtd")
}

/// Runs one of the small libiscsi programs on a server's volume.
pub(crate) fn ask(program: &str, arguments: &[&str], url: &str) -> String {
    run(program, &[arguments, &[url]].concat()).expect_success()
}
