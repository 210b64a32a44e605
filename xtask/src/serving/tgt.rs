//! tgt, for comparison: a separate daemon, independent of any that the system runs.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::image::Image;
use super::{Placement, Serving, free_port};
use crate::process::{self, Background};

/// The control socket of a tgtd, by its number.
#[derive(Clone, Copy, Debug)]
pub struct Control(u16);

/// Time limit for the start of tgtd, which is longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

impl Control {
    /// Returns the control socket of a tgtd with this port. Ports are unique, so the numbers rarely collide; they must be below
    /// 32768.
    pub fn of(port: u16) -> Control {
        Control(port % 32_000 + 1)
    }

    /// Starts a tgtd with these portals, such as `portal=127.0.0.1:3260`, and waits until it listens and can be administered.
    pub fn start(self, portals: &str, placement: &Placement) -> Result<Background> {
        let mut command = placement.command("tgtd");
        command.args(["--foreground", "--control-port", &self.0.to_string()]);
        command.args(["--iscsi", portals]);
        let mut server = Background::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let begun = Instant::now();
        let listens = || {
            let portals = self.administer("--op show --mode portal".split(' '));
            portals.is_ok_and(|list| list.contains("Portal:"))
        };
        while !listens() {
            ensure!(server.child.try_wait()?.is_none(), "tgtd has exited");
            let waited = begun.elapsed();
            ensure!(waited < PATIENCE, "tgtd does not respond to tgtadm");
            thread::sleep(Duration::from_millis(25));
        }
        Ok(server)
    }

    /// Runs `tgtadm` with these arguments, which must succeed, and returns its output.
    pub fn administer<'a>(self, arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
        let mut command = Command::new("tgtadm");
        command.args(["--control-port", &self.0.to_string(), "--lld", "iscsi"]);
        command.args(arguments);
        process::capture(command)
    }

    /// Removes the files of the control socket, which a killed tgtd leaves behind.
    pub fn remove(self) {
        let socket = format!("/var/run/tgtd/socket.{}", self.0);
        let _ = fs::remove_file(format!("{socket}.lock"));
        let _ = fs::remove_file(socket);
    }

    /// Returns the configuration of the tgtd, as tgt's own tool dumps it.
    pub fn dump(self) -> Result<String> {
        process::run(
            "tgt-admin",
            &["--control-port", &self.0.to_string(), "--dump"],
        )
    }
}

/// A tgtd that serves one LUN.
#[derive(Debug)]
pub struct Tgt {
    server: Background,
    port: u16,
    image: Image,
}

const NAME: &str = "iqn.2026-01.io.linerate:tgt";

impl Tgt {
    /// Serves a sparse, thin-provisioned file of this size in memory (/dev/shm), which is tgt's best case.
    pub fn start(size_bytes: u64, placement: &Placement) -> Result<Tgt> {
        Tgt::start_over("rdwr", size_bytes, placement)
    }

    /// Like [`Tgt::start`], with another backing store (`tgtadm --bstype`).
    pub fn start_over(store: &str, size_bytes: u64, placement: &Placement) -> Result<Tgt> {
        let port = free_port()?;
        let image = Image::in_memory(&format!("tgt-{port}")).sparse(size_bytes)?;
        let control = Control::of(port);
        let tgt = Tgt {
            server: control.start(&format!("portal=127.0.0.1:{port}"), placement)?,
            port,
            image,
        };
        let image = tgt.image.path().display();
        for line in [
            format!("--op new --mode target --tid 1 --targetname {NAME}"),
            format!("--op new {LUN} --backing-store {image} --bstype {store}"),
            format!("--op update {LUN} --params thin_provisioning=1"),
            "--op bind --mode target --tid 1 --initiator-address ALL".to_owned(),
        ] {
            control.administer(line.split(' '))?;
        }
        Ok(tgt)
    }

    /// Returns the server's version and configuration, for reports.
    pub fn version() -> String {
        let version = process::run("tgtd", &["--version"]).unwrap_or_default();
        format!(
            "tgt {}, one file on /dev/shm, thin provisioned",
            version.trim()
        )
    }
}

/// LUN 1, because tgt reserves LUN 0 for its controller.
const LUN: &str = "--mode logicalunit --tid 1 --lun 1";

impl Serving for Tgt {
    fn url(&self) -> String {
        format!("iscsi://127.0.0.1:{}/{NAME}/1", self.port)
    }

    fn process(&self) -> &Background {
        &self.server
    }
}

impl Drop for Tgt {
    fn drop(&mut self) {
        self.server.kill(); // tgtd ignores SIGTERM while it has targets; none of its state is kept
        Control::of(self.port).remove();
    }
}
