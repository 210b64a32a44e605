//! `linerate lab raw-serve`: an iSCSI server without storage, the ceiling of all others.

use std::path::Path;

use anyhow::Result;

use super::{Placement, Serving, free_port};
use crate::process::Background;

/// A raw server, ready to be logged in to.
#[derive(Debug)]
pub struct Raw {
    server: Background,
    port: u16,
}

impl Raw {
    /// Answers as a disk of this size, with these options (`--poll never`).
    pub fn start(binary: &Path, size_bytes: u64, options: &[String], placement: &Placement) -> Result<Raw> {
        let port = free_port()?;
        let mut command = placement.command(binary);
        command.args(["lab", "raw-serve", "--size", &size_bytes.to_string()]).args(options);
        command.args(["--listen", &format!("127.0.0.1:{port}")]);
        Ok(Raw { server: Background::start_ready(&mut command)?, port })
    }
}

impl Serving for Raw {
    /// Any target's name would do.
    fn url(&self) -> String {
        format!("iscsi://127.0.0.1:{}/iqn.2026-01.io.linerate:raw/0", self.port)
    }

    fn process(&self) -> &Background {
        &self.server
    }
}
