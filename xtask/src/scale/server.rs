//! A server of ours with any arguments, in the measurement's network namespace.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::Site;
use crate::process::{self, Background};
use crate::serving::linerate::await_ready;
use crate::serving::{Placement, free_port};
use crate::workspace;

/// What is served unless something else is said.
pub(super) const VOLUME: &str = "ram0=ram:1GiB";

/// A server under measurement, stopped when dropped.
pub(super) struct Server {
    process: Background,
    port: u16,
    state: PathBuf,
    /// From its start to the line `ready`.
    pub(super) started_in: Duration,
}

impl Server {
    /// Starts one on one core, or on all, and waits for the line `ready`.
    pub(super) fn start(site: &Site, core: Option<usize>, arguments: &[&str]) -> Result<Server> {
        let port = free_port()?;
        let state = workspace::target_directory().join(format!("xtask/scale-{}-{port}", std::process::id()));
        Server::start_with_state(site, core, arguments, port, state)
    }

    /// Stops, and starts again with what was kept.
    pub(super) fn restart(mut self, site: &Site, arguments: &[&str]) -> Result<Server> {
        self.process.stop();
        let state = std::mem::take(&mut self.state); // or it would be removed with what is dropped here
        Server::start_with_state(site, None, arguments, free_port()?, state)
    }

    fn start_with_state(
        site: &Site,
        core: Option<usize>,
        arguments: &[&str],
        port: u16,
        state: PathBuf,
    ) -> Result<Server> {
        fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
        let mut command = place(site, core);
        command.args(["--log", "warn", "serve", "--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--state").arg(&state).arg("--control").arg(state.join("control"));
        let begin = Instant::now();
        let mut process = Background::start(command.args(arguments).stdout(Stdio::piped()))?;
        let stdout = process.child.stdout.take().context("the server's standard output")?;
        await_ready(stdout)?;
        Ok(Server { process, port, state, started_in: begin.elapsed() })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Who is logged in, as the server itself tells it.
    pub(super) fn sessions(&self, site: &Site) -> Result<Vec<Value>> {
        let mut command = place(site, None);
        command.args(["sessions", "--json", "--control"]).arg(self.control());
        serde_json::from_str(&process::capture(command)?).context("linerate sessions")
    }

    /// Its control socket.
    pub(super) fn control(&self) -> PathBuf {
        self.state.join("control")
    }

    /// Where it listens.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of a LUN of a target with our prefix.
    pub(super) fn url(&self, target: &str, lun: u32) -> String {
        format!("iscsi://{}/iqn.2026-01.io.linerate:{target}/{lun}", self.address())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.stop();
        if !self.state.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.state); // it lies under target/, and a leftover harms nobody
        }
    }
}

/// The program in the measurement's namespace.
pub(super) fn place(site: &Site, core: Option<usize>) -> Command {
    Placement { namespace: Some(site.namespace.name.clone()), core }.command(&site.binary)
}
