//! tgt, for comparison: a separate daemon with one file-backed thin LUN, independent of any that the system runs.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::image::Image;
use super::{Placement, Serving, free_port};
use crate::process::{self, Background};

/// A tgtd that serves one LUN.
#[derive(Debug)]
pub struct Tgt {
    server: Background,
    port: u16,
    control: u16,
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
        let control = port % 32_000 + 1; // number of its control socket, which must be below 32768
        let mut command = placement.command("tgtd");
        command.args(["--foreground", "--control-port", &control.to_string()]);
        command.args(["--iscsi", &format!("portal=127.0.0.1:{port}")]);
        let server = Background::start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let tgt = Tgt {
            server,
            port,
            control,
            image,
        };
        tgt.await_control()?;
        tgt.export(store)?;
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

    fn await_control(&self) -> Result<()> {
        for _ in 0..100 {
            if self.administer(&["--op", "show", "--mode", "sys"]).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!(
            "tgtd does not respond to tgtadm on its control port {}",
            self.control
        )
    }

    fn export(&self, store: &str) -> Result<()> {
        let image = self.image.path().display().to_string();
        self.administer(&[
            "--op",
            "new",
            "--mode",
            "target",
            "--tid",
            "1",
            "--targetname",
            NAME,
        ])?;
        let unit = ["--mode", "logicalunit", "--tid", "1", "--lun", "1"];
        self.administer(
            &[
                &["--op", "new"],
                &unit[..],
                &["--backing-store", &image, "--bstype", store],
            ]
            .concat(),
        )?;
        self.administer(
            &[
                &["--op", "update"],
                &unit[..],
                &["--params", "thin_provisioning=1"],
            ]
            .concat(),
        )?;
        self.administer(&[
            "--op",
            "bind",
            "--mode",
            "target",
            "--tid",
            "1",
            "--initiator-address",
            "ALL",
        ])
    }

    fn administer(&self, arguments: &[&str]) -> Result<()> {
        let control = self.control.to_string();
        let common = ["--control-port", &control, "--lld", "iscsi"];
        process::run("tgtadm", &[&common, arguments].concat()).map(drop)
    }
}

impl Serving for Tgt {
    /// Returns the URL of LUN 1, because tgt reserves LUN 0 for its controller.
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
        let control = format!("/var/run/tgtd/socket.{}", self.control);
        let _ = fs::remove_file(format!("{control}.lock"));
        let _ = fs::remove_file(control);
    }
}
