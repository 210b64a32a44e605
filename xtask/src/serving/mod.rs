//! Servers for tests and measurements: ours, tgt, istgt, NBD servers and a Ceph cluster.

pub mod attached;
pub mod ceph;
pub mod image;
pub mod istgt;
pub mod linerate;
pub mod nbd;
pub mod tgt;

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::Background;

/// A server with a LUN, stopped when dropped.
pub trait Serving {
    /// Returns the URL of the server's LUN.
    fn url(&self) -> String;

    /// Returns the process of the server.
    fn process(&self) -> &Background;
}

/// Where a program runs: in a network namespace, on one core, or without restriction.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The network namespace; by default, that of this process.
    pub namespace: Option<String>,
    /// The core that it is bound to.
    pub core: Option<usize>,
}

impl Placement {
    /// Returns a command that runs the program at this placement. Each wrapper executes the next command in
    /// its own process, so the process ID is the program's.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut words: Vec<std::ffi::OsString> = Vec::new();
        if let Some(namespace) = &self.namespace {
            // Do not use `ip netns exec`, which hides the program's mounts from other processes.
            words.extend([
                "nsenter".into(),
                format!("--net=/run/netns/{namespace}").into(),
            ]);
        }
        if let Some(core) = self.core {
            words.extend([
                "taskset".into(),
                "--cpu-list".into(),
                core.to_string().into(),
            ]);
        }
        words.push(program.as_ref().to_owned());
        let mut command = Command::new(&words[0]); // never empty: the program itself was pushed last
        command.args(&words[1..]);
        command
    }
}

/// Returns a port on the loopback that is currently unused.
pub fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on the loopback")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_wraps_the_program() {
        let placement = Placement {
            namespace: Some("lab".to_owned()),
            core: Some(1),
        };
        let command = placement.command("tgtd");
        let words: Vec<_> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .collect();
        assert_eq!(
            words,
            [
                "nsenter",
                "--net=/run/netns/lab",
                "taskset",
                "--cpu-list",
                "1",
                "tgtd"
            ]
        );
        assert_eq!(Placement::default().command("tgtd").get_program(), "tgtd");
    }
}
