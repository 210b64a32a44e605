//! A network namespace with its own loopback.

use anyhow::{Context, Result, ensure};

use crate::process;

/// A network namespace, removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    /// The namespace's name for `ip netns`.
    pub name: String,
    /// The congestion control of its connections, and how it was set.
    pub congestion: String,
}

/// Congestion control on the loopback. Some systems default to bbr, which makes a loopback several times slower for every
/// server: the comparison would measure pacing.
const CONGESTION: &str = "cubic";

impl Namespace {
    /// Creates a namespace and brings its loopback up, with [`CONGESTION`].
    pub fn create() -> Result<Namespace> {
        Namespace::named("")
    }

    /// Like [`Namespace::create`], for one of several namespaces.
    pub fn named(suffix: &str) -> Result<Namespace> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "a network namespace needs root: run this with sudo"
        );
        let name = format!("linerate-{}{suffix}", std::process::id());
        process::run("ip", &["netns", "add", &name]).context("creating a network namespace")?;
        let mut namespace = Namespace {
            name,
            congestion: String::new(),
        }; // dropped, and so removed, on any error
        process::run("ip", &["-n", &namespace.name, "link", "set", "lo", "up"])?;
        namespace.congestion = namespace.set_congestion()?;
        Ok(namespace)
    }

    /// Sets the congestion control as the namespace's default, or on its routes if the kernel allows the default only for
    /// the whole machine. Either way, it applies to both ends of a connection.
    fn set_congestion(&self) -> Result<String> {
        let sysctl = format!("net.ipv4.tcp_congestion_control={CONGESTION}");
        if self.within(&["sysctl", "-q", "-w", &sysctl]).is_ok() {
            return Ok(sysctl);
        }
        let route = |to| {
            [
                "ip", "route", "replace", "table", "local", "local", to, "dev", "lo", "congctl",
                CONGESTION,
            ]
        };
        self.within(&route("127.0.0.0/8"))?;
        self.within(&route("127.0.0.1"))?;
        Ok(format!("congctl {CONGESTION} on the loopback's routes"))
    }

    /// Runs a program in the namespace, and waits for it.
    pub fn within(&self, words: &[&str]) -> Result<String> {
        process::run("ip", &[&["netns", "exec", &self.name], words].concat())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = process::run("ip", &["netns", "delete", &self.name]); // an empty leftover is harmless
    }
}
