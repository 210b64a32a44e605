//! The Debian packages that tests and comparisons use, each with its reason, and their installation.
//!
//! None is needed to build or run linerate. If a program is missing and apt is unavailable or needs root, the tests that use
//! the program are skipped, and report it.

use std::process::Command;

use anyhow::{Context, Result};

use crate::policy::StartNothing;
use crate::process;

/// A package, a program that shows whether it is installed, and its purpose.
#[derive(Clone, Copy, Debug)]
pub struct Package(&'static str, &'static str, &'static str);

/// The packages of all commands.
pub const ALL: &[Package] = &[
    Package("libiscsi-bin", "iscsi-test-cu", "the conformance suite and small clients"),
    Package("tgt", "tgtd", "the target to compare conformance and speed with"),
    Package("istgt", "istgt", "another target, to test our initiator with"),
    Package("fio", "fio", "load with verification on attached volumes"),
    Package("bonnie++", "bonnie++", "a file system under load on an attached volume"),
    Package("xfsprogs", "mkfs.xfs", "a second file system on attached volumes"),
    Package("e2fsprogs", "mkfs.ext4", "the first file system"),
    Package("fuse3", "fusermount3", "attaches volumes without root"),
    Package("ethtool", "ethtool", "disables segmentation offload to compare HyperSCSI with iSCSI"),
    Package("tshark", "tshark", "decodes every PDU of the interop tests"),
    Package("qemu-utils", "qemu-img", "qemu-img and qemu-io as initiators"),
    Package("qemu-block-extra", "", "QEMU's iscsi:// driver, a module of qemu-utils"),
    Package("libnbd-bin", "nbdcopy", "another NBD client: nbdinfo, nbdcopy, nbdfuse"),
    Package("python3-libnbd", "nbdsh", "sends single NBD requests, including illegal ones"),
    Package("nbd-client", "nbd-client", "sets up the kernel's NBD client in the guest"),
    Package("sg3-utils", "sg_persist", "SCSI commands by the guest's kernel"),
    Package("dmsetup", "dmsetup", "several paths to one LUN in the guest"),
    Package("qemu-system-x86", "qemu-system-x86_64", "the emulated machine for the guest's kernel"),
    Package("nbdkit", "nbdkit", "an NBD server with filters that delay, fail and restrict"),
    Package("vblade", "vblade", "an AoE server, to test our client with"),
    Package("aoetools", "aoeping", "AoE probes and configuration by third-party programs"),
    Package("open-iscsi", "iscsiadm", "discovery by the Linux initiator's tool"),
    Package("ceph-mon", "ceph-mon", "a Ceph cluster of one node, for RBD volumes: its monitor"),
    Package("ceph-mgr", "ceph-mgr", "its manager"),
    Package("ceph-osd", "ceph-osd", "its object server"),
    Package("ceph-common", "rbd", "its commands, and librbd"),
    Package("g++", "g++", "compiles libFuzzer for the fuzz targets"),
    Package("iproute2", "ip", "network namespaces for speed and captures"),
    Package(
        "util-linux",
        "taskset",
        "pins server and client to their cores, enters namespaces, makes loop devices",
    ),
    Package("prometheus", "promtool", "reads metrics as Prometheus does"),
    Package("strace", "strace", "shows that a flush issues the kernel's sync calls"),
    Package("valgrind", "valgrind", "counts the instructions of a command"),
    Package("chromium", "chromium", "renders reports, to check that nothing overlaps"),
    Package("lintian", "lintian", "checks the Debian package"),
    Package("dpkg-dev", "dpkg-shlibdeps", "finds the libraries that the Debian package depends on"),
    Package("binutils", "strip", "strips symbols from the packaged program"),
    Package("procps", "sysctl", "sets the namespace's congestion control"),
];

/// Installs missing packages with apt-get, without starting their daemons. If that is not possible, prints what to do, and
/// succeeds.
///
/// # Errors
/// apt-get was run and failed.
pub fn ensure(packages: &[Package]) -> Result<()> {
    let missing: Vec<&Package> = packages.iter().filter(|package| !present(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|Package(name, ..)| *name).collect();
    for Package(name, _, reason) in &missing {
        println!("missing: {name:18} {reason}");
    }
    let obstacle = match (process::installed("apt-get"), rustix::process::geteuid().is_root()) {
        (true, true) => return install(&names),
        (false, _) => "this system has no apt-get: install the programs with its package manager",
        (true, false) => "not root: run `sudo apt-get install` with the names above",
    };
    println!("{obstacle}; tests that need them are skipped");
    Ok(())
}

/// A package without a program is looked up by name.
fn present(&Package(name, program, _): &Package) -> bool {
    if !program.is_empty() {
        return process::installed(program);
    }
    let query =
        Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", name]).output();
    query.is_ok_and(|output| output.stdout == b"installed")
}

fn install(names: &[&str]) -> Result<()> {
    process::succeed(apt_get(&["update", "--quiet"])).context("refreshing apt's lists")?;
    let _policy = StartNothing::in_force()?;
    let mut command = apt_get(&["install", "--yes", "--quiet", "--no-install-recommends"]);
    command.args(names);
    process::succeed(command).context("installing the packages for tests")
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    // tshark's installation asks whether users other than root may capture; this keeps the default, no.
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_says_what_it_is_for() {
        for Package(name, _, reason) in ALL {
            assert!(reason.len() > 10, "{name}");
        }
    }
}
