//! A network namespace: separate interfaces, addresses, routes and TCP settings for threads and processes
//! that enter it.
//!
//! The namespace has no name and no file. It exists as long as there is a handle to it, a thread or process
//! in it, or an open descriptor of one of its interfaces. The kernel removes it with the last of these, even
//! after `kill -9`, so no cleanup is needed.

// SAFETY of this file: unshare(2) without CLONE_FILES, by threads that do nothing else; between fork and
// exec, only system calls that allocate nothing.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags};

/// A network namespace of this process.
#[derive(Clone, Debug)]
pub struct Namespace {
    network: Arc<OwnedFd>,
}

impl Namespace {
    /// Creates a namespace in which there is only a loopback interface, which is down, and in which all
    /// settings have the machine's defaults. Needs `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Namespace> {
        let network = on_a_thread(|| {
            // SAFETY: no CLONE_FILES; and this thread ends here.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            File::open("/proc/thread-self/ns/net")
        })??;
        Ok(Namespace {
            network: Arc::new(network.into()),
        })
    }

    /// The namespace's descriptor, for system calls.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// Runs `work` on a thread that is in this namespace and sees its `/sys`, and waits for the result.
    /// `/proc/net` still belongs to the namespace of the process: use `/proc/thread-self/net`.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            enter(self.network.as_fd())?;
            Ok(work())
        })?
    }

    /// Returns a command that will run in this namespace and see its `/sys`. If the command cannot enter the
    /// namespace, starting it fails.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let network = Arc::clone(&self.network);
        let mut command = Command::new(program);
        // SAFETY: `enter` makes system calls with constant strings and allocates nothing.
        unsafe { command.pre_exec(move || enter(network.as_fd())) };
        command
    }
}

/// Makes an unprivileged process root in a new user namespace, in which it may create network namespaces.
/// This succeeds only if the kernel allows it to all users. Changes nothing if the process already has the
/// privileges. Call it while the process has only one thread.
pub fn become_root() -> io::Result<()> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if rustix::thread::capabilities(None)?
        .effective
        .contains(needed)
    {
        return Ok(());
    }
    let (user, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    // SAFETY: no CLONE_FILES.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // Supplementary groups can deny access to files, so a process that could drop them may not map groups
    // (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// Runs `work` on a separate thread, because `work` changes its thread in a way that cannot be undone.
pub(crate) fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("namespace".to_owned())
            .spawn_scoped(scope, work)?;
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Moves the calling thread permanently into a network namespace. The thread also enters a new mount
/// namespace, with a new mount of `/sys`: a mount of `/sys` shows the interfaces of the network namespace in
/// which it was made. Later mounts and unmounts on the machine also take effect in the new mount namespace,
/// as with `ip netns exec`.
fn enter(network: BorrowedFd<'_>) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(network, Some(LinkNameSpaceType::Network))?;
    // SAFETY: no CLONE_FILES. The thread gets separate mounts and a separate working directory.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Make all mounts slaves: mounts made here are not visible outside, and unmounts on the machine also take
    // effect here. With private mounts, a file system unmounted on the machine would stay mounted here, on a
    // device that another host may already be using.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave)?;
    // Keep /sys/fs/cgroup mounted: programs read the number of available CPUs from it. The machine may not
    // have it.
    let keep = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let groups = rustix::mount::open_tree(rustix::fs::CWD, c"/sys/fs/cgroup", keep);
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(c"sysfs", c"/sys", c"sysfs", flags, None)?;
    if let Ok(groups) = groups {
        let from_fd = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(groups, c"", rustix::fs::CWD, c"/sys/fs/cgroup", from_fd)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;
    use std::process::Stdio;

    use rustix::mount::UnmountFlags;

    use super::*;

    /// Whether a file system is mounted on `folder`, in the calling thread's mount namespace.
    fn is_mounted(folder: &Path) -> bool {
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").expect("/proc");
        mounts
            .lines()
            .any(|line| line.split(' ').nth(4) == folder.to_str())
    }

    #[test]
    fn a_process_in_a_namespace_keeps_no_mount_that_the_machine_has_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let mount_point = folder.path().join("disk");
        fs::create_dir(&mount_point).expect("room");
        let seen = on_a_thread(|| -> io::Result<(bool, String)> {
            // Sets up shared mounts, as systemd does, but separate from the machine's real mounts. SAFETY: no
            // CLONE_FILES; and this thread ends here.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
            let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
            rustix::mount::mount_change(c"/", slave)?;
            let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
            rustix::mount::mount_change(c"/", shared)?;
            rustix::mount::mount(c"tmpfs", &mount_point, c"tmpfs", MountFlags::empty(), None)?;
            let network = Namespace::new()?;
            // One process prints its mounts twice: when it starts, and when its input ends.
            let mut command = network.command("sh");
            command.args([
                "-c",
                "cat /proc/self/mountinfo; echo; read line; cat /proc/self/mountinfo",
            ]);
            // The process copies the mounts when it starts.
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            rustix::mount::unmount(&mount_point, UnmountFlags::empty())?;
            child.stdin.take().expect("piped").write_all(b"\n")?;
            let output = child.wait_with_output()?;
            Ok((
                is_mounted(&mount_point),
                String::from_utf8_lossy(&output.stdout).into_owned(),
            ))
        });
        let (is_mounted_outside, lists) = match seen.expect("a thread") {
            Err(error) => return eprintln!("skipped: no namespaces here ({error})"),
            Ok(seen) => seen,
        };
        assert!(!is_mounted_outside);
        let (_, after) = lists.split_once("\n\n").expect("two lists");
        assert!(after.contains(" /sys "), "{after}");
        assert!(
            !after.contains(mount_point.to_str().expect("text")),
            "{after}"
        );
    }
}
