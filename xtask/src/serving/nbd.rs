//! NBD servers with one export on loopback: ours, nbdkit and QEMU's.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::image::Image;
use super::linerate::Linerate;
use super::{Placement, Serving, free_port};
use crate::process::{self, Background};

/// A running server.
#[derive(Debug)]
pub struct Nbd {
    server: Server,
    url: String,
    /// Deleted after the server has stopped.
    _image: Option<Image>,
}

#[derive(Debug)]
enum Server {
    Ours(Linerate),
    Other(Background),
}

impl Nbd {
    /// Starts `linerate serve` with a RAM volume.
    pub fn linerate(
        binary: &Path,
        bytes: u64,
        options: &[String],
        placement: &Placement,
    ) -> Result<Nbd> {
        let port = free_port()?;
        let own = [
            "--volume".to_owned(),
            format!("vol0=ram:{}MiB", bytes >> 20),
            "--listen".to_owned(),
            format!("nbd://127.0.0.1:{port}"),
        ];
        // The server also serves iSCSI, on the listener that `start_with` requires.
        let server = Linerate::start_with(binary, &[&own, options].concat(), 1, placement)?;
        Ok(Nbd {
            server: Server::Ours(server),
            url: format!("nbd://127.0.0.1:{port}/vol0"),
            _image: None,
        })
    }

    /// Starts nbdkit with its memory plugin.
    pub fn nbdkit(bytes: u64, options: &[String], placement: &Placement) -> Result<Nbd> {
        let port = free_port()?;
        let mut command = placement.command("nbdkit");
        command.args(format!("--foreground --ipaddr 127.0.0.1 --port {}", port).split(' '));
        command.args(options).args(["memory", &bytes.to_string()]);
        Nbd::other(Background::start(&mut command)?, port, None, placement)
    }

    /// Starts qemu-nbd with a fully written file in memory (/dev/shm).
    pub fn qemu(bytes: u64, options: &[String], placement: &Placement) -> Result<Nbd> {
        let port = free_port()?;
        let image = Image::in_memory(&format!("qemu-nbd-{port}")).written(bytes)?;
        let mut command = placement.command("qemu-nbd");
        command.args("--format raw --persistent --shared 16 --bind 127.0.0.1".split(' '));
        command
            .args(["--port", &port.to_string()])
            .args(options)
            .arg(image.path());
        Nbd::other(
            Background::start(&mut command)?,
            port,
            Some(image),
            placement,
        )
    }

    /// Returns the versions of the other servers, for reports.
    pub fn versions() -> String {
        let of = |program: &str| {
            let said = process::run(program, &["--version"]).unwrap_or_default();
            said.lines().next().unwrap_or(program).to_owned()
        };
        format!("{}, {}", of("nbdkit"), of("qemu-nbd"))
    }

    fn other(
        server: Background,
        port: u16,
        image: Option<Image>,
        placement: &Placement,
    ) -> Result<Nbd> {
        let nbd = Nbd {
            server: Server::Other(server),
            url: format!("nbd://127.0.0.1:{port}/"),
            _image: image,
        };
        let probe = Placement {
            core: None,
            ..placement.clone()
        };
        for _ in 0..200 {
            let mut command = probe.command("nbdinfo");
            command
                .args(["--size", &nbd.url])
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
            if command.status().is_ok_and(|status| status.success()) {
                return Ok(nbd);
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("{} does not respond", nbd.url)
    }
}

impl Serving for Nbd {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn process(&self) -> &Background {
        match &self.server {
            Server::Ours(server) => server.process(),
            Server::Other(server) => server,
        }
    }
}
