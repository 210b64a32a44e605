//! `linerate serve` in the background: started with volumes and listeners, waited for, stopped when dropped.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Placement, free_port};
use crate::process::Background;
use crate::workspace;

/// A server of ours, ready to be logged in to.
#[derive(Debug)]
pub(crate) struct Linerate {
    server: Background,
    ports: Vec<u16>,
    state: PathBuf,
}

/// How long a server may take from its start to the line `ready`.
const START: Duration = Duration::from_secs(20);

impl Linerate {
    /// Serves volumes (`NAME=SPEC`, where `{state}` is the server's own folder) on as many ports of the loopback as asked for.
    pub(crate) fn start(
        binary: &Path,
        volumes: &[String],
        listeners: usize,
        placement: &Placement,
    ) -> Result<Linerate> {
        Linerate::start_with(&[], binary, volumes, listeners, placement)
    }

    /// The same, with further options of `linerate serve`.
    pub(crate) fn start_with(
        options: &[&str],
        binary: &Path,
        volumes: &[String],
        listeners: usize,
        placement: &Placement,
    ) -> Result<Linerate> {
        let ports = (0..listeners).map(|_| free_port()).collect::<Result<Vec<u16>>>()?;
        let state =
            workspace::target_directory().join(format!("xtask/state-{}-{}", std::process::id(), ports[0]));
        fs::create_dir_all(&state).with_context(|| state.display().to_string())?;
        let mut command = placement.command(binary);
        command
            .args(["--log", "warn", "serve"])
            .arg("--state")
            .arg(&state)
            .arg("--control")
            .arg(state.join("control"))
            .args(options);
        for volume in volumes {
            command.args(["--volume", &volume.replace("{state}", &state.display().to_string())]);
        }
        for port in &ports {
            command.args(["--listen", &format!("127.0.0.1:{port}")]);
        }
        let mut server = Background::start(command.stdout(Stdio::piped()))?;
        let stdout = server.child.stdout.take().context("the server's standard output")?;
        await_ready(stdout)?;
        Ok(Linerate { server, ports, state })
    }

    /// The URL of LUN 0 of a volume's target, by the listener of that number.
    pub(crate) fn url(&self, volume: &str, listener: usize) -> String {
        format!("iscsi://127.0.0.1:{}/iqn.2026-01.io.linerate:{volume}/0", self.ports[listener])
    }

    /// Its process.
    pub(crate) fn process(&self) -> &Background {
        &self.server
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }
}

impl Drop for Linerate {
    fn drop(&mut self) {
        self.server.stop();
        let _ = fs::remove_dir_all(&self.state); // it lies under target/, and a leftover harms nobody
    }
}

/// Reads until the line `ready`; what comes after it is read and dropped, so that the server never blocks on us.
pub(crate) fn await_ready(stdout: ChildStdout) -> Result<()> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line); // nobody listens any more once it was ready
        }
    });
    loop {
        match lines.recv_timeout(START) {
            Ok(line) if line == "ready" => return Ok(()),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => bail!("the server did not say `ready` within {START:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the server ended before it was ready"),
        }
    }
}
