//! `linerate raw serve`: an iSCSI server without storage, the ceiling of all others.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};

use super::linerate::await_ready;
use super::{Placement, free_port};
use crate::process::Background;

/// A raw server, ready to be logged in to.
#[derive(Debug)]
pub(crate) struct Raw {
    server: Background,
    port: u16,
}

impl Raw {
    /// Answers as a disk of this size; `poll` is how it waits (`never` or `always`).
    pub(crate) fn start(binary: &Path, size_bytes: u64, poll: &str, placement: &Placement) -> Result<Raw> {
        let port = free_port()?;
        let mut command = placement.command(binary);
        command.args(["raw", "serve", "--poll", poll, "--size", &size_bytes.to_string()]);
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        let mut server = Background::start(command.stdout(Stdio::piped()))?;
        let stdout = server.child.stdout.take().context("the server's standard output")?;
        await_ready(stdout)?;
        Ok(Raw { server, port })
    }

    /// The URL of its LUN; any target's name would do.
    pub(crate) fn url(&self) -> String {
        format!("iscsi://127.0.0.1:{}/iqn.2026-01.io.linerate:raw/0", self.port)
    }

    /// Its process.
    pub(crate) fn process(&self) -> &Background {
        &self.server
    }
}
