//! The Debian packages that tests and comparisons use, each with its reason, and their installation.
//!
//! None is needed to build or to run linerate. On a system without apt, or without the right to use it, the tests
//! that need a missing program skip and say so.

use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// A package, the program that shows whether it is there, and what it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Package {
    name: &'static str,
    program: &'static str,
    reason: &'static str,
}

/// All that any command here uses.
pub(crate) const ALL: &[Package] = &[
    Package {
        name: "libiscsi-bin",
        program: "iscsi-test-cu",
        reason: "the conformance suite and small clients",
    },
    Package { name: "tgt", program: "tgtd", reason: "the peer that conformance and speed are compared with" },
    Package {
        name: "istgt",
        program: "istgt",
        reason: "another target that our initiator must get along with",
    },
    Package { name: "fio", program: "fio", reason: "load with verification on attached volumes" },
    Package {
        name: "bonnie++",
        program: "bonnie++",
        reason: "a file system under load on an attached volume",
    },
    Package { name: "xfsprogs", program: "mkfs.xfs", reason: "a second file system on attached volumes" },
    Package { name: "e2fsprogs", program: "mkfs.ext4", reason: "the first one" },
    Package { name: "fuse3", program: "fusermount3", reason: "attaches volumes without being root" },
    Package { name: "tshark", program: "tshark", reason: "decodes every PDU of the interop tests" },
    Package { name: "qemu-utils", program: "qemu-img", reason: "qemu-img and qemu-io as initiators" },
    Package {
        name: "qemu-block-extra",
        program: "",
        reason: "QEMU's iscsi:// driver, a module of qemu-utils",
    },
    Package { name: "open-iscsi", program: "iscsiadm", reason: "discovery by the Linux initiator's tool" },
    Package { name: "g++", program: "g++", reason: "compiles libFuzzer for the fuzz targets" },
    Package { name: "iproute2", program: "ip", reason: "network namespaces for speed and captures" },
    Package {
        name: "util-linux",
        program: "taskset",
        reason: "pins server and client to their cores, enters namespaces, makes loop devices",
    },
    Package {
        name: "strace",
        program: "strace",
        reason: "shows that a flush reaches the system's sync calls",
    },
    Package { name: "valgrind", program: "valgrind", reason: "counts what a command costs in instructions" },
    Package {
        name: "chromium",
        program: "chromium",
        reason: "lays reports out, to see that nothing overlaps",
    },
    Package { name: "procps", program: "sysctl", reason: "sets the namespace's congestion control" },
];

/// Installs what is missing of these with apt-get, or says what to do and carries on without.
///
/// # Errors
/// Only if apt-get could be run and failed.
pub(crate) fn ensure(packages: &[Package]) -> Result<()> {
    let missing: Vec<&Package> = packages.iter().filter(|package| !present(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    for package in &missing {
        println!("missing: {:18} {}", package.name, package.reason);
    }
    let obstacle = match (process::installed("apt-get"), rustix::process::geteuid().is_root()) {
        (true, true) => return install(&names),
        (false, _) => "this system has no apt-get: install the programs by its own means",
        (true, false) => "not root: run `sudo apt-get install` with the names above",
    };
    println!("{obstacle}; what needs them is skipped");
    Ok(())
}

/// A package without a program of its own is asked for by name.
fn present(package: &Package) -> bool {
    if !package.program.is_empty() {
        return process::installed(package.program);
    }
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package.name])
        .output();
    query.is_ok_and(|output| output.stdout == b"installed")
}

fn install(names: &[&str]) -> Result<()> {
    process::succeed(apt_get(&["update", "--quiet"])).context("refreshing apt's lists")?;
    let mut command = apt_get(&["install", "--yes", "--quiet", "--no-install-recommends"]);
    command.args(names);
    process::succeed(command).context("installing the packages that tests use")
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    // tshark's installation asks whether users other than root may capture; the answer stays the default, no.
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_says_what_it_is_for() {
        for package in ALL {
            assert!(package.reason.len() > 10, "{}", package.name);
        }
    }
}
