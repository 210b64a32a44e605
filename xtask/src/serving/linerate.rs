//! `linerate serve` in the background: starts with volumes and listeners, is ready when returned, and stops when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Placement, Serving, free_port};
use crate::process::Background;
use crate::workspace;

/// Our server, ready for logins.
#[derive(Debug)]
pub struct Linerate {
    server: Background,
    ports: Vec<u16>,
    state: PathBuf,
    /// Time from the start to the line `ready`.
    pub started_in: Duration,
}

impl Linerate {
    /// Serves volumes (`NAME=SPEC`, where `{state}` is the server's state directory) on `listeners` ports of the loopback.
    pub fn start(
        binary: &Path,
        volumes: &[String],
        listeners: usize,
        placement: &Placement,
    ) -> Result<Linerate> {
        let options: Vec<String> = volumes
            .iter()
            .flat_map(|volume| ["--volume".to_owned(), volume.clone()])
            .collect();
        Linerate::start_with(binary, &options, listeners, placement)
    }

    /// Like [`Linerate::start`], with any options of `linerate serve`.
    pub fn start_with(
        binary: &Path,
        options: &[String],
        listeners: usize,
        placement: &Placement,
    ) -> Result<Linerate> {
        let ports = (0..listeners)
            .map(|_| free_port())
            .collect::<Result<Vec<u16>>>()?;
        let state = workspace::target_directory().join(format!(
            "xtask/state-{}-{}",
            std::process::id(),
            ports[0]
        ));
        Linerate::start_in(state, binary, options, ports, placement)
    }

    /// Restarts the server with its state directory.
    pub fn restart(
        mut self,
        binary: &Path,
        options: &[String],
        placement: &Placement,
    ) -> Result<Linerate> {
        self.server.stop();
        let state = std::mem::take(&mut self.state); // otherwise dropping `self` would delete it
        let ports = self
            .ports
            .iter()
            .map(|_| free_port())
            .collect::<Result<Vec<u16>>>()?;
        Linerate::start_in(state, binary, options, ports, placement)
    }

    fn start_in(
        state: PathBuf,
        binary: &Path,
        options: &[String],
        ports: Vec<u16>,
        placement: &Placement,
    ) -> Result<Linerate> {
        fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
        let folder = state.display().to_string();
        let mut command = placement.command(binary);
        command.args([
            "--log",
            "warn",
            "serve",
            "--state",
            &folder,
            "--control",
            &format!("{folder}/control"),
        ]);
        command.args(
            options
                .iter()
                .map(|option| option.replace("{state}", &folder)),
        );
        for port in &ports {
            command.args(["--listen", &format!("127.0.0.1:{port}")]);
        }
        let begin = Instant::now();
        let server = Background::start_ready(&mut command)?;
        Ok(Linerate {
            server,
            ports,
            state,
            started_in: begin.elapsed(),
        })
    }

    /// Returns the address of the server's first listener.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// Returns the URL of LUN 0 of a volume's target, at one of the listeners.
    pub fn url_of(&self, volume: &str, listener: usize) -> String {
        format!(
            "iscsi://127.0.0.1:{}/iqn.2026-01.io.linerate:{volume}/0",
            self.ports[listener]
        )
    }

    /// Returns the path of the server's control socket.
    pub fn control(&self) -> PathBuf {
        self.state.join("control")
    }
}

/// Time limit for the initial resync of a set of a few hundred MiB in memory.
const IN_SYNC: Duration = Duration::from_mins(1);

/// Waits until a server's RAID volume is in sync.
pub fn await_sync(binary: &Path, control: &Path, volume: &str) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mut command = Command::new(binary);
        command
            .args(["raid", "status", volume, "--json"])
            .arg("--control")
            .arg(control);
        let status: Value = serde_json::from_slice(&command.output()?.stdout)?;
        if status["sets"][0]["state"] == "healthy" {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < IN_SYNC,
            "{volume} is not in sync after {} s",
            IN_SYNC.as_secs()
        );
        thread::sleep(Duration::from_millis(100));
    }
}

impl Serving for Linerate {
    fn url(&self) -> String {
        self.url_of("vol0", 0)
    }

    fn process(&self) -> &Background {
        &self.server
    }
}

impl Drop for Linerate {
    fn drop(&mut self) {
        self.server.stop();
        if !self.state.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.state); // a leftover under target/ is harmless
        }
    }
}
