//! The guest's environment: a network namespace with the server, connected to the guest by two links.
//!
//! ```text
//!   linerate serve, our clients              the guest
//!     10.77.0.1 ── link0 (tap) ── eth0 ── 10.77.0.2
//!     10.77.1.1 ── link1 (tap) ── eth1 ── 10.77.1.2
//! ```

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::image::Image;
use super::machine::Guest;
use xtask::namespace::Namespace;
use xtask::process::{self, Background};
use xtask::serving::Placement;

/// The server's address on the first link.
pub(super) const SERVER: &str = "10.77.0.1";
/// The guest's address on the first link.
pub(super) const GUEST: &str = "10.77.0.2";
const LINKS: [&str; 2] = ["link0", "link1"];

/// Volumes, a target, an export and an AoE slot for each group of scenes. Discovery through one portal finds both portals.
const CONFIGURATION: &str = r#"state = "FOLDER/state"
control = "FOLDER/control"

[[portal]]
listen = "10.77.0.1:3260"

[[portal]]
listen = "10.77.1.1:3260"

[volume.disk]
spec = "file:FOLDER/disk.img?size=128MiB"

[volume.large]
spec = "file:FOLDER/large.img?size=320MiB"

[volume.scratch]
spec = "file:FOLDER/scratch.img?size=64MiB"

[volume.net]
spec = "file:FOLDER/net.img?size=64MiB"

[volume.ether]
spec = "file:FOLDER/ether.img?size=32MiB"

[[target]]
name = "iqn.2026-01.io.linerate:disks"

[[target.lun]]
lun = 0
volume = "disk"

[[target.lun]]
lun = 1
volume = "large"

[[target]]
name = "iqn.2026-01.io.linerate:scratch"

[[target.lun]]
lun = 0
volume = "scratch"

[nbd]
listen = ["10.77.0.1:10809", "10.77.1.1:10809"]

[[nbd.export]]
volume = "net"

[aoe]
listen = ["link0"]

[[aoe.slot]]
address = "7.1"
volume = "ether"
"#;

/// The environment of all scenes. Dropping it stops everything, but keeps the directory.
#[derive(Debug)]
pub(super) struct World<'a> {
    image: &'a Image,
    binary: &'a Path,
    folder: PathBuf,
    /// Number of boots so far.
    boots: u32,
    // The guest and the server are dropped before the namespace.
    pub(super) guest: Guest,
    server: Option<Background>,
    namespace: Namespace,
}

impl<'a> World<'a> {
    /// Starts the server and boots the guest.
    pub(super) fn make(image: &'a Image, binary: &'a Path, folder: &Path) -> Result<World<'a>> {
        fs::create_dir_all(folder.join("state")).with_context(|| folder.display().to_string())?;
        let namespace = Namespace::named("-guest")?;
        for (at, link) in LINKS.iter().enumerate() {
            let ip =
                |words: &[&str]| process::run("ip", &[&["-n", &namespace.name], words].concat());
            ip(&["tuntap", "add", "dev", link, "mode", "tap"])
                .context("the guest's links are taps, which need /dev/net/tun")?;
            ip(&["address", "add", &format!("10.77.{at}.1/24"), "dev", link])?;
            ip(&["link", "set", link, "up"])?;
        }
        let text = CONFIGURATION.replace("FOLDER", &folder.display().to_string());
        fs::write(folder.join("linerate.toml"), text)?;
        let place = Placement {
            namespace: Some(namespace.name.clone()),
            core: None,
        };
        let server = start_server(binary, &place, folder)?;
        let guest = Guest::boot(image, &place, &LINKS, &folder.join("console-1.log"))?;
        let folder = folder.to_owned();
        Ok(World {
            image,
            binary,
            folder,
            boots: 1,
            guest,
            server: Some(server),
            namespace,
        })
    }

    /// Boots a new guest: the previous one may have a program that hangs.
    pub(super) fn reboot(&mut self) -> Result<()> {
        self.boots += 1;
        self.guest.end();
        let console = self.folder.join(format!("console-{}.log", self.boots));
        self.guest = Guest::boot(self.image, &self.place(), &LINKS, &console)?;
        Ok(())
    }

    fn place(&self) -> Placement {
        Placement {
            namespace: Some(self.namespace.name.clone()),
            core: None,
        }
    }

    /// Kills the server, like a crash, if it is running.
    pub(super) fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill();
        }
    }

    /// Starts the server, which must not be running.
    pub(super) fn start_server(&mut self) -> Result<()> {
        ensure!(self.server.is_none(), "the server is already running");
        self.server = Some(start_server(self.binary, &self.place(), &self.folder)?);
        Ok(())
    }

    /// Starts the server and brings the links up, whatever a scene did.
    pub(super) fn ensure_server(&mut self) -> Result<()> {
        if self.server.is_none() {
            self.start_server()?;
        }
        for link in 0..LINKS.len() {
            self.set_link(link, true)?;
        }
        Ok(())
    }

    /// Runs `linerate` in the server's namespace, and returns its output.
    pub(super) fn linerate(&self, arguments: &[&str]) -> Result<String> {
        process::capture(self.command(arguments))
    }

    /// Returns a `linerate` command in the server's namespace.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place().command(self.binary);
        command.args(arguments);
        command
    }

    /// Runs `linerate server` with the control socket of the running server.
    pub(super) fn order(&self, arguments: &[&str]) -> Result<String> {
        let control = self.path("control");
        self.linerate(&[&["server", "--control", &control], arguments].concat())
    }

    /// Returns the path of a file in the environment's directory.
    pub(super) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Takes a link down, or up again. To the guest, a link that is down looks like a switch that drops every
    /// packet.
    pub(super) fn set_link(&self, number: usize, is_up: bool) -> Result<()> {
        let state = if is_up { "up" } else { "down" };
        process::run(
            "ip",
            &[
                "-n",
                &self.namespace.name,
                "link",
                "set",
                LINKS[number],
                state,
            ],
        )
        .map(drop)
    }
}

/// Starts the server in this directory, to which it also writes its log.
fn start_server(binary: &Path, place: &Placement, folder: &Path) -> Result<Background> {
    let log = folder.join("server.log");
    let log: File = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| log.display().to_string())?;
    let mut command = place.command(binary);
    command
        .args(["--log", "info", "serve", "--config"])
        .arg(folder.join("linerate.toml"))
        .stderr(log);
    Background::start_ready(&mut command).context("starting the server")
}
