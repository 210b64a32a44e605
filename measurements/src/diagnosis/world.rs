//! A running scene: hosts, the link, the server and the disturbances. Removed when dropped.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use anyhow::{Context, Result, bail, ensure};
use lab::{Conditions, HostPlan, Lab, LinkPlan, Plan};
use xtask::process::{Background, Ended};
use xtask::{process, workspace};

/// A running scene.
pub(super) struct World {
    // Dropped in this order, so that servers are dropped before the hosts on which they run.
    _forwarder: Option<Background>,
    _server: Background,
    lab: Lab,
    binary: PathBuf,
    scene: Scene,
    url: String,
    state: PathBuf,
}

/// Time limit of a diagnosis: several times its documented duration on the slowest paths.
const DIAGNOSIS: Duration = Duration::from_secs(180);
/// Time limit of a measurement, which normally takes about a second. If full-size packets are lost, it never completes.
const MEASUREMENT: Duration = Duration::from_secs(10);

const CLIENT: &str = "client";
const SERVER: &str = "server";
const PORT: u16 = 3260;
/// The server's port if there is a forwarder in front of it.
const PORT_BEHIND: u16 = 3261;
const NAME: &str = "iqn.2026-01.io.linerate:disk";

impl World {
    /// Builds `scene`; `name` is part of the name of its directory.
    pub(super) fn build(scene: &Scene, binary: &Path, name: &str) -> Result<World> {
        let lab = Lab::build(&plan(scene)).context("building the lab")?;
        let state = workspace::target_directory()
            .join(format!("xtask/diagnosis/{}-{name}", std::process::id()));
        fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
        let host = if scene.link.is_some() { SERVER } else { CLIENT };
        let address = lab.host(host)?.address();
        let behind = scene.middle.is_some();
        let at = match behind {
            true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT_BEHIND),
            false => SocketAddr::new(address, PORT),
        };
        let server = start(&lab, scene, binary, at, &state)?;
        let forwarder = match scene.middle {
            None => None,
            Some(middle) => {
                let mut command = lab.host(host)?.command(std::env::current_exe()?);
                command.args([
                    "forward",
                    "--listen",
                    &format!("{address}:{PORT}"),
                    "--to",
                    &at.to_string(),
                ]);
                command.args(middle.nagle.then_some("--nagle"));
                Some(Background::start_ready(&mut command)?)
            }
        };
        let mut keys: Vec<String> = scene
            .keys
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let place = match &scene.server.nbd {
            None => format!("iscsi://{address}:{PORT}/{NAME}/0"),
            Some(NbdServer::Linerate { tls: true }) => {
                keys.push(format!(
                    "tls-ca={}&tls-hostname=localhost",
                    state.join("ca-cert.pem").display()
                ));
                format!("nbds://{address}:{PORT}/disk")
            }
            Some(_) => format!("nbd://{address}:{PORT}/disk"),
        };
        let mark = if keys.is_empty() { "" } else { "?" };
        let url = format!("{place}{mark}{}", keys.join("&"));
        let (binary, scene) = (binary.to_owned(), scene.clone());
        Ok(World {
            _forwarder: forwarder,
            _server: server,
            lab,
            binary,
            scene,
            url,
            state,
        })
    }

    /// Runs `linerate diagnose`, and returns its evidence as JSON.
    pub(super) fn evidence(&self, more: &[String]) -> Result<String> {
        let _burner = self.disturbed()?;
        let mut command = self.client()?;
        command
            .args(["--log", "error", "diagnose", &self.url])
            .args(&self.scene.asked)
            .args(more);
        let file = self.state.join("evidence.json");
        command.arg("--evidence").arg(&file);
        said(DIAGNOSIS, command)?;
        fs::read_to_string(&file).with_context(|| file.display().to_string())
    }

    /// Runs `linerate bench` with these arguments, and returns its output.
    pub(super) fn bench(&self, arguments: &[String]) -> Result<String> {
        let _burner = self.disturbed()?;
        let mut command = self.client()?;
        command
            .args(["--log", "error", "bench", &self.url, "--json"])
            .args(arguments);
        said(MEASUREMENT, command)
    }

    /// Starts the scene's burner, which runs only during a measurement: the other environment uses the same cores.
    fn disturbed(&self) -> Result<Option<Background>> {
        self.scene.burner.map(|burner| burn(&burner)).transpose()
    }

    fn client(&self) -> Result<Command> {
        on_core(&self.lab, CLIENT, self.scene.client_core, &self.binary)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.state); // a leftover under target/ is harmless
    }
}

fn plan(scene: &Scene) -> Plan {
    let Some(link) = &scene.link else {
        return Plan {
            hosts: vec![HostPlan::new(CLIENT)],
            links: Vec::new(),
        };
    };
    let mut wire = LinkPlan::new("wire", CLIENT, SERVER, link.conditions.clone());
    for end in &mut wire.ends {
        end.interface_mtu = link.interface_mtu;
        end.reported_megabits = link.reported_megabits;
    }
    // The two directions lose different packets; a flow uses the same lane in both.
    match wire.conditions[1].lanes.is_empty() {
        true => wire.conditions[1].seed ^= 1,
        false => wire.conditions[1]
            .lanes
            .iter_mut()
            .for_each(|lane| lane.seed ^= 1),
    }
    let server = HostPlan {
        sysctls: scene.server.sysctls.clone(),
        ..HostPlan::new(SERVER)
    };
    Plan {
        hosts: vec![HostPlan::new(CLIENT), server],
        links: vec![wire],
    }
}

/// Returns a command that runs `program` on a host, optionally on one core.
fn on_core(lab: &Lab, host: &str, core: Option<usize>, program: &Path) -> Result<Command> {
    let host = lab.host(host)?;
    let Some(core) = core else {
        return Ok(host.command(program));
    };
    let mut command = host.command("taskset");
    command.args(["--cpu-list", &core.to_string()]).arg(program);
    Ok(command)
}

/// Starts the scene's server, and waits until it listens.
fn start(
    lab: &Lab,
    scene: &Scene,
    binary: &Path,
    at: SocketAddr,
    state: &Path,
) -> Result<Background> {
    let host = if scene.link.is_some() { SERVER } else { CLIENT };
    if let Some(NbdServer::Nbdkit(arguments)) = &scene.server.nbd {
        let ready = state.join("nbdkit.pid");
        let mut command = on_core(lab, host, scene.server.core, Path::new("nbdkit"))?;
        command.args([
            "--foreground",
            "--ipaddr",
            &at.ip().to_string(),
            "--port",
            &at.port().to_string(),
        ]);
        command.arg("--pidfile").arg(&ready).args(arguments);
        let server = Background::start(&mut command)?;
        let begun = Instant::now();
        while !ready.exists() {
            ensure!(begun.elapsed() < READY, "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        return Ok(server);
    }
    let configuration = state.join("linerate.toml");
    let text = match &scene.server.nbd {
        None => configured(&scene.server, at, state),
        Some(_) => exported(&scene.server, at, state)?,
    };
    fs::write(&configuration, text)?;
    let command = on_core(lab, host, scene.server.core, binary)?;
    Background::start_ready(&mut serve(command, &configuration, state))
}

/// Time limit for nbdkit to listen.
const READY: Duration = Duration::from_secs(10);

/// Returns the configuration of Linerate's NBD server. For TLS, it uses copies of the tests' certificates
/// that only their owner can read.
fn exported(server: &Server, listen: SocketAddr, state: &Path) -> Result<String> {
    let volume = server
        .volume
        .replace("{state}", &state.display().to_string());
    let mut text = format!("[nbd]\nlisten = [\"{listen}\"]\n");
    if let Some(NbdServer::Linerate { tls: true }) = server.nbd {
        for name in ["ca-cert.pem", "server-cert.pem", "server-key.pem"] {
            let (from, to) = (
                workspace::root()
                    .join("crates/runtime/tls/tests/pki")
                    .join(name),
                state.join(name),
            );
            fs::copy(&from, &to).with_context(|| from.display().to_string())?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600))?;
        }
        let file = |name: &str| state.join(name).display().to_string();
        // Writing into a String does not fail.
        let _ = writeln!(
            text,
            "tls = \"allowed\"\ntls-certificate = \"{}\"\ntls-key = \"{}\"",
            file("server-cert.pem"),
            file("server-key.pem")
        );
    }
    let _ = writeln!(
        text,
        "[volume.disk]\nspec = \"{volume}\"\n[[nbd.export]]\nvolume = \"disk\""
    );
    Ok(text)
}

fn configured(server: &Server, listen: SocketAddr, state: &Path) -> String {
    let volume = server
        .volume
        .replace("{state}", &state.display().to_string());
    let mut text = format!("[[portal]]\nlisten = \"{listen}\"\n");
    // Writing into a String does not fail.
    if let Some(bytes) = server.receive_buffer {
        let _ = writeln!(text, "receive-buffer = \"{bytes}B\"");
    }
    let _ = writeln!(text, "[volume.disk]\nspec = \"{volume}\"");
    let _ = writeln!(
        text,
        "[[target]]\nname = \"{NAME}\"\nlun = [{{ lun = 0, volume = \"disk\" }}]"
    );
    let _ = writeln!(text, "[target.session]\n{}", server.session.join("\n"));
    if let Some(window) = server.window {
        let _ = writeln!(text, "[limits]\nwindow = {window}");
    }
    text
}

fn serve(mut command: Command, configuration: &Path, state: &Path) -> Command {
    command
        .args(["--log", "error", "serve", "--reactors", "1", "--config"])
        .arg(configuration);
    command
        .arg("--state")
        .arg(state)
        .arg("--control")
        .arg(state.join("control"));
    command
}

/// Starts a burner with real-time priority, so that it gets its full share of the core. Linux reserves 5 % of a core for other
/// processes (sched_rt_runtime_us).
fn burn(burner: &Burner) -> Result<Background> {
    let mut command = Command::new("taskset");
    command
        .args(format!("--cpu-list {} chrt --fifo 50", burner.core).split(' '))
        .arg(std::env::current_exe()?);
    let period_us = burner.period.as_micros().to_string();
    command.args(format!("burn --share {} --period-us {period_us}", burner.share).split(' '));
    Background::start(&mut command)
}

/// Runs a program, which must succeed within its time limit, and returns its output.
fn said(limit: Duration, command: Command) -> Result<String> {
    let (ended, text) = process::within(limit, command)?;
    match ended {
        Ended::Exited(status) => ensure!(status.success(), "{status}: {text}"),
        Ended::Crashed(signal) => bail!("signal {signal}: {text}"),
        Ended::OutOfTime => bail!("it did not end in {} s: {text}", limit.as_secs()),
    }
    Ok(text)
}

// The description of a storage path: one or two hosts, the link between them, the server, and the client's options.

/// The description of a storage path.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// The link; without one, client and server are on the same host.
    pub(super) link: Option<Link>,
    pub(super) server: Server,
    /// A forwarder in front of the server.
    pub(super) middle: Option<Forwarder>,
    /// The client's core, if pinned.
    pub(super) client_core: Option<usize>,
    /// Other work on a core.
    pub(super) burner: Option<Burner>,
    /// Keys of the URL.
    pub(super) keys: Vec<(&'static str, String)>,
    /// Additional arguments for `linerate diagnose`.
    pub(super) asked: Vec<String>,
}

/// The link between the two hosts.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) conditions: Conditions,
    /// The rate that the interfaces report, in Mbit/s, if it differs from the link's rate.
    pub(super) reported_megabits: Option<u32>,
    /// The MTU of the interfaces, if it differs from the link's.
    pub(super) interface_mtu: Option<u32>,
}

/// `linerate serve`, with one volume.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// The volume; `{state}` in it is the server's state directory.
    pub(super) volume: String,
    /// Lines of `[target.session]`.
    pub(super) session: Vec<String>,
    /// The command window.
    pub(super) window: Option<u32>,
    /// SO_RCVBUF of the server's portal, in bytes.
    pub(super) receive_buffer: Option<u64>,
    /// The server's core, if pinned.
    pub(super) core: Option<usize>,
    /// Serve an NBD export instead of a LUN.
    pub(super) nbd: Option<NbdServer>,
    /// Kernel settings of the server's host. They require a link.
    pub(super) sysctls: Vec<(String, String)>,
}

/// An NBD server.
#[derive(Clone, Debug)]
pub(super) enum NbdServer {
    /// `linerate serve`; `tls` permits TLS without requiring it.
    Linerate { tls: bool },
    /// nbdkit with these arguments.
    Nbdkit(Vec<String>),
}

/// Forwards bytes between the client and the server. It sends the server's PDUs in pieces, the header before the data, as an
/// inefficient target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forwarder {
    /// Whether TCP_NODELAY is not set, so that the second piece waits until the first is acknowledged (RFC
    /// 896).
    pub(super) nagle: bool,
}

/// A program that occupies a core for a part of each period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Burner {
    pub(super) core: usize,
    /// The fraction of the time.
    pub(super) share: f64,
    pub(super) period: Duration,
}

impl Scene {
    /// Returns a scene with one host and a RAM volume, without a link or disturbances.
    pub(super) fn loopback() -> Scene {
        Scene {
            link: None,
            server: Server {
                volume: "ram:1GiB".to_owned(),
                session: Vec::new(),
                window: None,
                receive_buffer: None,
                core: None,
                nbd: None,
                sysctls: Vec::new(),
            },
            middle: None,
            client_core: None,
            burner: None,
            keys: Vec::new(),
            asked: Vec::new(),
        }
    }

    /// Returns a scene with two hosts on a link with this rate and round-trip time. The user specifies the
    /// rate.
    pub(super) fn network(megabits: f64, round_trip_ms: f64) -> Scene {
        Scene::unknown_network(megabits, round_trip_ms)
            .asking(["--link", &format!("{megabits}Mbit/s")])
    }

    /// Like [`Scene::network`], but only the interfaces report the rate.
    pub(super) fn unknown_network(megabits: f64, round_trip_ms: f64) -> Scene {
        let conditions = Conditions {
            bits_per_s: Some(megabits * 1e6),
            delay: Duration::from_secs_f64(round_trip_ms / 2e3),
            ..Conditions::default()
        };
        let link = Link {
            conditions,
            reported_megabits: None,
            interface_mtu: None,
        };
        Scene {
            link: Some(link),
            ..Scene::loopback()
        }
    }

    /// Permits writes to all of the volume.
    pub(super) fn writable(self) -> Scene {
        self.asking(["--allow-write", "--yes"])
    }

    pub(super) fn asking<const N: usize>(mut self, arguments: [&str; N]) -> Scene {
        self.asked.extend(arguments.map(str::to_owned));
        self
    }

    pub(super) fn with_key(mut self, key: &'static str, value: impl fmt::Display) -> Scene {
        self.keys.push((key, value.to_string()));
        self
    }

    pub(super) fn with_volume(mut self, volume: impl Into<String>) -> Scene {
        self.server.volume = volume.into();
        self
    }

    /// Changes the link's conditions; does nothing without a link.
    pub(super) fn with_conditions(mut self, change: impl FnOnce(&mut Conditions)) -> Scene {
        if let Some(link) = &mut self.link {
            change(&mut link.conditions);
        }
        self
    }
}
