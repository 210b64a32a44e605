//! A network namespace with a loopback of its own.

use anyhow::{Context, Result, ensure};

use crate::process;

/// Removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    /// The name that `ip netns` gives it.
    pub name: String,
    /// The congestion control that its connections use, and how it was set.
    pub congestion: String,
}

/// What the loopback's connections use. With the bbr that is some systems' default a loopback is several times slower,
/// for every server alike, and the comparison would be one of pacing.
const CONGESTION: &str = "cubic";

impl Namespace {
    /// Makes one and brings its loopback up, with [`CONGESTION`] on it.
    pub fn create() -> Result<Namespace> {
        Namespace::named("")
    }

    /// The same, for one of several.
    pub fn named(suffix: &str) -> Result<Namespace> {
        ensure!(rustix::process::geteuid().is_root(), "a network namespace needs root: run this with sudo");
        let name = format!("linerate-{}{suffix}", std::process::id());
        process::run("ip", &["netns", "add", &name]).context("making a network namespace")?;
        let mut namespace = Namespace { name, congestion: String::new() }; // dropped, and so removed, on any error
        process::run("ip", &["-n", &namespace.name, "link", "set", "lo", "up"])?;
        namespace.congestion = namespace.set_congestion()?;
        Ok(namespace)
    }

    /// Sets it as the namespace's default; where the kernel allows that only to the whole machine, on its routes.
    /// Both ends of a connection obey either.
    fn set_congestion(&self) -> Result<String> {
        let sysctl = format!("net.ipv4.tcp_congestion_control={CONGESTION}");
        if self.within(&["sysctl", "-q", "-w", &sysctl]).is_ok() {
            return Ok(sysctl);
        }
        let route = |to| {
            ["ip", "route", "replace", "table", "local", "local", to, "dev", "lo", "congctl", CONGESTION]
        };
        self.within(&route("127.0.0.0/8"))?;
        self.within(&route("127.0.0.1"))?;
        Ok(format!("congctl {CONGESTION} on the loopback's routes"))
    }

    /// Runs a program there to its end.
    pub fn within(&self, words: &[&str]) -> Result<String> {
        process::run("ip", &[&["netns", "exec", &self.name], words].concat())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = process::run("ip", &["netns", "delete", &self.name]); // an empty one left behind is harmless
    }
}
