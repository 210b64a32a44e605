//! The Debian packages that tests and comparisons use, each with its reason, and their installation.
//!
//! None is needed to build or run linerate. If a program is missing and apt is unavailable or needs root, the tests that use
//! the program are skipped, and report it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context, Result};

use crate::process;

/// The packages of all commands, each with a program that shows whether it is installed, and its purpose.
pub const ALL: &str = "\
libiscsi-bin | iscsi-test-cu | the conformance suite and small clients
tgt | tgtd | the target to compare conformance and speed with
istgt | istgt | another target, to test our initiator with
fio | fio | load with verification on attached volumes
bonnie++ | bonnie++ | a file system under load on an attached volume
xfsprogs | mkfs.xfs | a second file system on attached volumes
e2fsprogs | mkfs.ext4 | the first file system
fuse3 | fusermount3 | attaches volumes without root
ethtool | ethtool | disables segmentation offload to compare HyperSCSI with iSCSI
tshark | tshark | decodes every PDU of the interop tests
qemu-utils | qemu-img | qemu-img and qemu-io as initiators
qemu-block-extra |  | QEMU's iscsi:// driver, a module of qemu-utils
libnbd-bin | nbdcopy | another NBD client: nbdinfo, nbdcopy, nbdfuse
python3-libnbd | nbdsh | sends single NBD requests, including illegal ones
nbd-client | nbd-client | sets up the kernel's NBD client in the guest
sg3-utils | sg_persist | SCSI commands by the guest's kernel
dmsetup | dmsetup | several paths to one LUN in the guest
qemu-system-x86 | qemu-system-x86_64 | the emulated machine for the guest's kernel
nbdkit | nbdkit | an NBD server with filters that delay, fail and restrict
vblade | vblade | an AoE server, to test our client with
aoetools | aoeping | AoE probes and configuration by third-party programs
open-iscsi | iscsiadm | discovery by the Linux initiator's tool
ceph-mon | ceph-mon | a Ceph cluster of one node, for RBD volumes: its monitor
ceph-mgr | ceph-mgr | its manager
ceph-osd | ceph-osd | its object server
ceph-common | rbd | its commands, and librbd
g++ | g++ | compiles libFuzzer for the fuzz targets
iproute2 | ip | network namespaces for speed and captures
util-linux | taskset | pins server and client to their cores, enters namespaces, makes loop devices
prometheus | promtool | reads metrics as Prometheus does
strace | strace | shows that a flush issues the kernel's sync calls
valgrind | valgrind | counts the instructions of a command
chromium | chromium | renders reports, to check that nothing overlaps
lintian | lintian | checks the Debian package
dpkg-dev | dpkg-shlibdeps | finds the libraries that the Debian package depends on
binutils | strip | strips symbols from the packaged program
procps | sysctl | sets the namespace's congestion control
";

/// A package, its program (empty if it has none), and its purpose.
type Package<'a> = [&'a str; 3];

fn each(packages: &str) -> impl Iterator<Item = Package<'_>> {
    packages.lines().map(|row| {
        let mut cells = row.splitn(3, " | ");
        [(); 3].map(|()| cells.next().unwrap_or_default()) // a test checks that each has three
    })
}

/// Installs those of these packages (a list like [`ALL`]) that are missing with apt-get, without starting their daemons. If installation is not possible,
/// prints instructions and succeeds.
///
/// # Errors
/// apt-get was run and failed.
pub fn ensure(packages: &str) -> Result<()> {
    let missing: Vec<Package<'_>> = each(packages).filter(|package| !present(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|[name, ..]| *name).collect();
    for [name, _, reason] in &missing {
        println!("missing: {name:18} {reason}");
    }
    let obstacle = match (
        process::installed("apt-get"),
        rustix::process::geteuid().is_root(),
    ) {
        (true, true) => return install(&names),
        (false, _) => "this system has no apt-get: install the programs with its package manager",
        (true, false) => "not root: run `sudo apt-get install` with the names above",
    };
    println!("{obstacle}; tests that need them are skipped");
    Ok(())
}

/// Whether a package is installed. A package without a program is looked up by name.
fn present(&[name, program, _]: &Package<'_>) -> bool {
    if !program.is_empty() {
        return process::installed(program);
    }
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", name])
        .output();
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
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

// A policy that keeps newly installed packages from starting daemons.
//
// Debian's packages start their daemons on installation, unless `/usr/sbin/policy-rc.d` forbids it with exit code 101 (Debian
// policy manual, section 9.3.3, and invoke-rc.d(8)). Tests start the daemons that they need.

const PATH: &str = "/usr/sbin/policy-rc.d";

/// The policy. Its second line identifies the file, in case a run is killed before it restores the previous one.
const SCRIPT: &str = "#!/bin/sh\n# Temporary file of `cargo xtask packages`: keeps new packages from starting daemons.\nexit 101\n";

/// A guard: the policy is in force until the guard is dropped, which restores the previous policy.
#[derive(Debug)]
pub(crate) struct StartNothing {
    path: PathBuf,
    /// The path of the previous file, if there was one.
    before: PathBuf,
}

impl StartNothing {
    /// Sets the policy of this machine.
    pub(crate) fn in_force() -> Result<StartNothing> {
        StartNothing::at(Path::new(PATH))
            .with_context(|| format!("writing {PATH}, which keeps daemons from starting"))
    }

    fn at(path: &Path) -> io::Result<StartNothing> {
        let before = path.with_extension("d-before-linerate");
        // If the file is ours, an earlier run was killed, and had already moved the previous file.
        if path.exists() && fs::read(path)? != SCRIPT.as_bytes() {
            fs::rename(path, &before)?;
        }
        let policy = StartNothing {
            path: path.to_owned(),
            before,
        };
        fs::write(path, SCRIPT)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        Ok(policy)
    }
}

impl Drop for StartNothing {
    fn drop(&mut self) {
        let restored = match fs::rename(&self.before, &self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::remove_file(&self.path),
            renamed => renamed,
        };
        if let Err(error) = restored {
            println!("cannot restore {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn every_package_says_what_it_is_for() {
        for [name, _, reason] in each(ALL) {
            assert!(reason.len() > 10, "{name}");
        }
    }

    /// A directory for a policy, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path =
                std::env::temp_dir().join(format!("linerate-policy-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a folder");
            Folder(path)
        }

        fn policy(&self) -> PathBuf {
            self.0.join("policy-rc.d")
        }

        fn names(&self) -> usize {
            fs::read_dir(&self.0).expect("the folder").count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0); // a leftover in /tmp is harmless
        }
    }

    #[test]
    fn nothing_is_started_while_it_is_in_force_and_no_file_is_left() {
        let folder = Folder::new("none");
        let policy = StartNothing::at(&folder.policy()).expect("set");
        let status = Command::new(folder.policy())
            .args(["tgt", "start"])
            .status()
            .expect("it runs");
        assert_eq!(status.code(), Some(101));
        drop(policy);
        assert_eq!(folder.names(), 0);
    }

    #[test]
    fn a_policy_of_before_is_restored_with_its_mode() {
        let folder = Folder::new("before");
        fs::write(folder.policy(), "#!/bin/sh\nexit 104\n").expect("room");
        fs::set_permissions(folder.policy(), fs::Permissions::from_mode(0o750)).expect("ours");
        drop(StartNothing::at(&folder.policy()).expect("set"));
        assert_eq!(
            fs::read_to_string(folder.policy()).expect("there"),
            "#!/bin/sh\nexit 104\n"
        );
        assert_eq!(
            fs::metadata(folder.policy())
                .expect("there")
                .permissions()
                .mode()
                & 0o777,
            0o750
        );
        assert_eq!(folder.names(), 1);
    }

    #[test]
    fn a_run_that_was_killed_does_not_cost_the_policy_of_before() {
        let folder = Folder::new("killed");
        fs::write(folder.policy(), "#!/bin/sh\nexit 104\n").expect("room");
        std::mem::forget(StartNothing::at(&folder.policy()).expect("set"));
        drop(StartNothing::at(&folder.policy()).expect("set again"));
        assert_eq!(
            fs::read_to_string(folder.policy()).expect("there"),
            "#!/bin/sh\nexit 104\n"
        );
        assert_eq!(folder.names(), 1);
    }
}
