//! Processes in a PID namespace, which are killed together with all their descendants.
//!
//! The first process of the namespace is a fork of this process that only waits for this process to end. When
//! the first process ends or is killed, the kernel kills every process in the namespace (pid_namespaces(7)),
//! including daemons that have left their session and parent. This works even if this process is killed with
//! `kill -9`. The started programs are direct children of this process, which can signal them and receives
//! their exit codes.

// SAFETY of this file: fork(2), and a new process that only makes system calls and allocates nothing.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, pidfd_open, pidfd_send_signal,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::namespace::{Namespace, on_a_thread};

/// A PID namespace. Dropping it kills its processes.
#[derive(Debug)]
pub struct Processes {
    namespace: File,
    /// Children that may not have been waited for. The namespace ends only after all of them have been waited
    /// for.
    children: Mutex<Vec<OwnedFd>>,
    first: First,
}

impl Processes {
    /// Creates a namespace that contains only its first process. Needs `CAP_SYS_ADMIN`. The first process is
    /// a fork of this one, and keeps a copy of all memory that this process changes later, so create the
    /// namespace early.
    pub fn new() -> io::Result<Processes> {
        let this = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        // Children of the thread, and not the thread itself, are in the new namespace.
        on_a_thread(|| {
            // SAFETY: no CLONE_FILES; and this thread ends here.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }?;
            let first = fork_first(this.as_fd())?;
            let namespace = File::open("/proc/thread-self/ns/pid_for_children")?;
            Ok(Processes {
                namespace,
                first,
                children: Mutex::default(),
            })
        })?
    }

    /// Returns a command that will run in this network namespace. Once it is [started](Processes::start), it
    /// sees the `/sys` of the network and the `/proc` of these processes.
    pub fn command(&self, network: &Namespace, program: impl AsRef<OsStr>) -> Command {
        let mut command = network.command(program);
        // SAFETY: one system call with constant strings. Mounts are separate for the command, which has
        // already entered the network.
        unsafe {
            command.pre_exec(|| {
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                Ok(rustix::mount::mount(
                    c"proc", c"/proc", c"proc", flags, None,
                )?)
            })
        };
        command
    }

    /// Starts a command as one of these processes.
    pub fn start(&self, command: &mut Command) -> io::Result<Child> {
        let mut child = on_a_thread(|| {
            let kind = Some(LinkNameSpaceType::ProcessID);
            rustix::thread::move_into_link_name_space(self.namespace.as_fd(), kind)?;
            command.spawn()
        })??;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(descriptor) => {
                let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
                children.retain(|child| !was_waited_for(child));
                children.push(descriptor);
                Ok(child)
            }
            Err(error) => {
                child.kill().and_then(|()| child.wait())?;
                Err(error.into())
            }
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.first.kill();
        let children = std::mem::take(
            self.children
                .get_mut()
                .unwrap_or_else(PoisonError::into_inner),
        );
        // Waiting fails with ECHILD for children that have already been waited for.
        children.iter().for_each(wait_for);
    }
}

/// The first process of a namespace. The namespace ends with this process.
#[derive(Debug)]
struct First(OwnedFd);

impl First {
    fn kill(&self) {
        // This fails only if the process has already ended.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.kill();
        wait_for(&self.0);
    }
}

fn was_waited_for(process: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    rustix::process::waitid(WaitId::PidFd(process.as_fd()), options).err() == Some(Errno::CHILD)
}

fn wait_for(process: &OwnedFd) {
    let wait = || rustix::process::waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    while wait().err() == Some(Errno::INTR) {}
}

/// Forks the first process of the PID namespace that this thread's children are in. That process exits when
/// the process `this` ends.
fn fork_first(this: BorrowedFd<'_>) -> io::Result<First> {
    // SAFETY: the child calls no function that takes a lock: another thread may have held the lock during the fork.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the child never returns.
        0 => unsafe { wait_for_the_end(this.as_raw_fd()) },
        number => {
            // The process number stays valid until the process is waited for.
            let first = Pid::from_raw(number).ok_or(io::ErrorKind::InvalidData)?;
            match pidfd_open(first, PidfdFlags::empty()) {
                Ok(descriptor) => Ok(First(descriptor)),
                Err(error) => {
                    rustix::process::kill_process(first, Signal::KILL)?;
                    while rustix::process::waitpid(Some(first), WaitOptions::empty()).err()
                        == Some(Errno::INTR)
                    {}
                    Err(error.into())
                }
            }
        }
    }
}

/// # Safety
/// Call it only in a process that was just forked and has one thread.
unsafe fn wait_for_the_end(this: i32) -> ! {
    // SAFETY: system calls on descriptors and memory of this process.
    unsafe {
        // In a separate session, the process receives no signals from the terminal.
        libc::setsid();
        // Orphaned processes become children of this one, and are reaped automatically.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        // Inherited descriptors would keep pipes and interfaces open after their owners close them.
        libc::dup2(this, 0);
        libc::close_range(1, u32::MAX, 0);
        let mut ended = libc::pollfd {
            fd: 0,
            events: libc::POLLIN,
            revents: 0,
        };
        while libc::poll(&raw mut ended, 1, -1) < 0 && *libc::__errno_location() == libc::EINTR {}
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::Stdio;

    use super::*;

    /// Returns `None` if namespaces are not allowed.
    fn made() -> Option<Processes> {
        Processes::new()
            .inspect_err(|error| eprintln!("skipped: no PID namespace here: {error}"))
            .ok()
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    #[test]
    fn a_process_is_a_child_like_others() {
        let Some(processes) = made() else { return };
        let mut child = processes.start(&mut shell("exit 7")).expect("a shell");
        assert_eq!(child.wait().expect("an end").code(), Some(7));
    }

    #[test]
    fn a_process_that_was_waited_for_keeps_no_descriptor() {
        let Some(processes) = made() else { return };
        let mut running = processes
            .start(&mut shell("exec sleep 1000"))
            .expect("a shell");
        for _ in 0..3 {
            assert!(
                processes
                    .start(&mut shell("exit"))
                    .expect("a shell")
                    .wait()
                    .expect("an end")
                    .success()
            );
        }
        let descriptors = processes.children.lock().expect("no panic").len();
        assert_eq!(descriptors, 2, "of the one that runs, and of the last");
        running
            .kill()
            .and_then(|()| running.wait())
            .expect("its end");
    }

    #[test]
    fn what_was_left_behind_is_gone_when_the_namespace_is() {
        let Some(processes) = made() else { return };
        let mut command = shell("setsid sleep 1000 & echo started");
        let mut child = processes
            .start(command.stdout(Stdio::piped()))
            .expect("a shell");
        let mut stdout = child.stdout.take().expect("a pipe");
        assert!(child.wait().expect("an end").success());
        drop(processes);
        // The sleeping process held the other end, so this read ends only if that process was killed.
        let mut said = String::new();
        stdout.read_to_string(&mut said).expect("text");
        assert_eq!(said, "started\n");
    }

    #[test]
    fn a_child_that_nobody_waited_for_holds_nothing_up() {
        let Some(processes) = made() else { return };
        let mut child = processes
            .start(&mut shell("exec sleep 1000"))
            .expect("a shell");
        drop(processes);
        assert!(child.wait().is_err(), "it has been waited for");
    }
}
