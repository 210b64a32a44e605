//! The programs that a plan starts in its hosts before the command, and that end after it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Host, Lab};
use rustix::process::{Pid, Signal};

use crate::failure::Failure;

/// Programs that are running. Dropped, they are asked to end, and after a while made to.
pub(super) struct Background(Vec<Child>);

impl Background {
    /// Starts all, one after the other, each when the one before is ready.
    pub(super) fn start(lab: &Lab) -> Result<Background, Failure> {
        let mut background = Background(Vec::new());
        for host in lab.hosts() {
            if let [program, arguments @ ..] = &host.plan().run[..] {
                let child = spawn(host, program, arguments).map_err(|error| {
                    Failure::refused(format_args!("cannot run {program} in {}: {error}", host.name()))
                })?;
                background.0.push(child);
                let child = background.0.last_mut();
                child.map_or(Ok(()), |child| wait_until_ready(host, program, child))?;
            }
        }
        Ok(background)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        for child in &self.0 {
            // One that has ended by itself is not waited for before, so that its number is still its own.
            let _ = rustix::process::kill_process(Pid::from_child(child), Signal::TERM);
        }
        let patience = Instant::now() + ENDING_MAX;
        for child in &mut self.0 {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < patience {
                thread::sleep(LOOK_EVERY);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Standard output is the command's alone.
fn spawn(host: &Host, program: &str, arguments: &[String]) -> io::Result<Child> {
    let mut command = host.command(program);
    // A group of its own: an interrupt from the keyboard is for the command.
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::from(io::stderr())).process_group(0);
    host::namespace::die_with_starter(&mut command).spawn()
}

fn wait_until_ready(host: &Host, program: &str, child: &mut Child) -> Result<(), Failure> {
    let Some(port) = host.plan().ready else { return Ok(()) };
    let name = host.name();
    let patience = Instant::now() + READY_MAX;
    while !listens(host, port)? {
        if let Some(status) = child.try_wait().map_err(Failure::failed)? {
            return Err(Failure::failed(format_args!(
                "{program} in {name} ended before it was ready: {status}"
            )));
        }
        if Instant::now() > patience {
            let seconds = READY_MAX.as_secs();
            let sentence =
                format_args!("{program} in {name} does not listen on port {port} after {seconds} s");
            return Err(Failure::failed(sentence));
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Whether somebody listens on this port in the host. Looked up in the kernel's lists: connecting would be noticed.
fn listens(host: &Host, port: u16) -> Result<bool, Failure> {
    let lists = || ["tcp", "tcp6"].map(|list| fs::read_to_string(format!("/proc/thread-self/net/{list}")));
    let lists = host.run(lists).map_err(super::failure)?;
    Ok(lists.into_iter().flatten().any(|list| list.lines().any(|line| is_listener(line, port))))
}

/// A line of `/proc/net/tcp`: number, local address and port in hexadecimal, the peer's, state.
fn is_listener(line: &str, port: u16) -> bool {
    let mut words = line.split_whitespace();
    let local = words.nth(1).and_then(|local| local.rsplit_once(':'));
    let same = local.is_some_and(|(_, digits)| u16::from_str_radix(digits, 16) == Ok(port));
    same && words.nth(1) == Some(LISTEN)
}

/// TCP_LISTEN (linux/tcp_states.h).
const LISTEN: &str = "0A";
const READY_MAX: Duration = Duration::from_secs(30);
/// Then a program that was asked to end is killed.
const ENDING_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_known_by_its_port_and_state() {
        let line =
            |state: &str| format!("   0: 0100007F:0CBC 00000000:0000 {state} 00000000:00000000 00:00000000");
        assert!(is_listener(&line("0A"), 3260));
        assert!(!is_listener(&line("01"), 3260), "connected");
        assert!(!is_listener(&line("0A"), 3261));
        assert!(!is_listener("  sl  local_address rem_address   st", 3260));
    }
}
