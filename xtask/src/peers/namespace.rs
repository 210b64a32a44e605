//! A network namespace with a loopback of its own.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;

/// Removed when dropped.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) name: String,
    /// The congestion control that its sockets start with.
    pub(super) congestion: String,
}

impl Namespace {
    /// Makes one, brings its loopback up, and sets cubic: with the bbr of some kernels a loopback is several times
    /// slower, for every server alike, and the comparison would be one of pacing.
    pub(super) fn create() -> Result<Namespace> {
        ensure!(rustix::process::geteuid().is_root(), "a network namespace needs root: run this with sudo");
        let name = format!("linerate-{}", std::process::id());
        process::capture(command("ip", &["netns", "add", &name])).context("making a network namespace")?;
        let mut namespace = Namespace { name, congestion: String::new() }; // dropped, and so removed, on any error
        process::capture(command("ip", &["-n", &namespace.name, "link", "set", "lo", "up"]))?;
        namespace.within(&["sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=cubic"])?;
        let set = namespace.within(&["sysctl", "-n", "net.ipv4.tcp_congestion_control"])?;
        namespace.congestion = set.trim().to_owned();
        Ok(namespace)
    }

    fn within(&self, words: &[&str]) -> Result<String> {
        process::capture(command("ip", &[&["netns", "exec", &self.name], words].concat()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = process::capture(command("ip", &["netns", "delete", &self.name])); // an empty one left behind is harmless
    }
}

fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}
