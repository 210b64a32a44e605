//! A network namespace: separate interfaces, addresses, routes and TCP settings for threads and processes
//! that enter it.
//!
//! It has no name and no file: it lives as long as a handle to it, a thread or a process in it, or an
//! interface's file descriptor, and ends with the last of them, `kill -9` included. No cleanup is needed.

// SAFETY of this file: unshare(2) without CLONE_FILES, by threads that do nothing else; system calls between
// fork and exec that allocate nothing.
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
    /// An empty one: a loopback interface that is down, and the machine's defaults. Needs `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Namespace> {
        let network = on_a_thread(|| {
            // SAFETY: no CLONE_FILES; and this thread ends here.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
            File::open("/proc/thread-self/ns/net")
        })??;
        Ok(Namespace { network: Arc::new(network.into()) })
    }

    /// The namespace, as system calls take it.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// Does `work` on a thread in this namespace, which sees its `/sys`, and waits for it. `/proc/net` is
    /// still that of the process: use `/proc/thread-self/net`.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            enter(self.network.as_fd())?;
            Ok(work())
        })?
    }

    /// A command that will run in this namespace and see its `/sys`. Failing to enter is an error of its
    /// start.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let network = Arc::clone(&self.network);
        let mut command = Command::new(program);
        // SAFETY: `enter` makes system calls with constant strings and allocates nothing.
        unsafe { command.pre_exec(move || enter(network.as_fd())) };
        command
    }
}

/// Without privileges: makes this process the root of a user namespace of its own, in which it may make
/// network namespaces, where the kernel lets everybody do so. Nothing changes if it has the privileges. To be
/// called while the process has one thread.
pub fn become_root() -> io::Result<()> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if rustix::thread::capabilities(None)?.effective.contains(needed) {
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: no CLONE_FILES.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // Supplementary groups could keep files from somebody; who may not give them up may map no group
    // (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}

/// A thread for what cannot be undone on a thread that has other things to do.
pub(crate) fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Moves the calling thread into a network namespace for good, with mounts of its own, since `/sys` shows the
/// interfaces of the namespace in which it was mounted. Later mounts and unmounts of the machine arrive here
/// as well, as with `ip netns exec`.
fn enter(network: BorrowedFd<'_>) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(network, Some(LinkNameSpaceType::Network))?;
    // SAFETY: no CLONE_FILES. Mounts and the working directory become this thread's own.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Slaves: nothing that is mounted here shows outside, and what the machine unmounts goes away here too. As private copies
    // they would keep a file system busy on a device that another host may use by now.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave)?;
    // Kept, since programs ask there how many CPUs they may use; a machine without it has nothing to keep.
    let keep =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
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

    /// What is mounted on `folder`, as the calling thread sees it.
    fn is_mounted(folder: &Path) -> bool {
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").expect("/proc");
        mounts.lines().any(|line| line.split(' ').nth(4) == folder.to_str())
    }

    #[test]
    fn a_process_in_a_namespace_keeps_no_mount_that_the_machine_has_given_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let mount_point = folder.path().join("disk");
        fs::create_dir(&mount_point).expect("room");
        let seen = on_a_thread(|| -> io::Result<(bool, String)> {
            // The machine's mounts, as systemd shares them, and without touching the real ones.
            // SAFETY: no CLONE_FILES; and this thread ends here.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
            let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
            rustix::mount::mount_change(c"/", slave)?;
            let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
            rustix::mount::mount_change(c"/", shared)?;
            rustix::mount::mount(c"tmpfs", &mount_point, c"tmpfs", MountFlags::empty(), None)?;
            let network = Namespace::new()?;
            // Both lists are printed by one process: the first when it begins, the second when its input ends.
            let mut command = network.command("sh");
            command.args(["-c", "cat /proc/self/mountinfo; echo; read line; cat /proc/self/mountinfo"]);
            // Its copies of the mounts are those of the time of its start.
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            rustix::mount::unmount(&mount_point, UnmountFlags::empty())?;
            child.stdin.take().expect("piped").write_all(b"\n")?;
            let output = child.wait_with_output()?;
            Ok((is_mounted(&mount_point), String::from_utf8_lossy(&output.stdout).into_owned()))
        });
        let (is_mounted_outside, lists) = match seen.expect("a thread") {
            Err(error) => return eprintln!("skipped: no namespaces here ({error})"),
            Ok(seen) => seen,
        };
        assert!(!is_mounted_outside);
        let (_, after) = lists.split_once("\n\n").expect("two lists");
        assert!(after.contains(" /sys "), "{after}");
        assert!(!after.contains(mount_point.to_str().expect("text")), "{after}");
    }
}
