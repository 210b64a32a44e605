//! The programs that a plan starts in its hosts before the command, and that end after it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{Host, Lab, LabError, ReadyCheck};

/// Programs that are running. Dropped, they are asked to end, and after a while made to.
pub struct Background(Vec<Program>);

struct Program {
    child: Child,
    /// A number may be another process's after its end; this is not.
    descriptor: OwnedFd,
}

impl Background {
    /// Starts all, one after the other, each when the one before is ready.
    ///
    /// # Errors
    /// One cannot be run, ends before it is ready, or is not ready in time.
    pub fn start(lab: &Lab) -> Result<Background, LabError> {
        let mut background = Background(Vec::new());
        for host in lab.hosts() {
            if let [program, arguments @ ..] = &host.plan().run[..] {
                let started =
                    spawn(host, program, arguments).map_err(|error| cannot_run(host, program, &error))?;
                background.0.push(started);
                let started = background.0.last_mut();
                started.map_or(Ok(()), |started| wait_until_ready(host, program, &mut started.child))?;
            }
        }
        Ok(background)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        for program in &self.0 {
            // Fails only for one that has ended.
            let _ = pidfd_send_signal(&program.descriptor, Signal::TERM);
        }
        let until = Instant::now() + ENDING_MAX;
        for program in &mut self.0 {
            wait_until(&mut program.child, until);
        }
    }
}

fn spawn(host: &Host, program: &str, arguments: &[String]) -> io::Result<Program> {
    let mut child = host.start(program, |command| {
        // Standard output is the command's alone. A group of its own: an interrupt from the keyboard is for the command.
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::from(io::stderr())).process_group(0);
    })?;
    match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(descriptor) => Ok(Program { child, descriptor }),
        Err(error) => {
            child.kill().and_then(|()| child.wait())?;
            Err(error.into())
        }
    }
}

/// The sentence of a program that cannot be started.
fn cannot_run(host: &Host, program: &str, error: &io::Error) -> LabError {
    LabError::Missing(format!("cannot run {program} in {}: {error}", host.name()))
}

fn wait_until_ready(host: &Host, program: &str, child: &mut Child) -> Result<(), LabError> {
    let Some(ready) = &host.plan().ready else { return Ok(()) };
    let (name, within) = (host.name(), host.plan().ready_within);
    let until = Instant::now() + within;
    loop {
        let why_not = match ready {
            ReadyCheck::Port(port) if listens(host, *port)? => return Ok(()),
            ReadyCheck::Port(port) => format!("{program} in {name} does not listen on port {port}"),
            ReadyCheck::Command(words) => match succeeds(host, words, until)? {
                None => return Ok(()),
                Some(why_not) => format!("{program} in {name} is not ready: {why_not}"),
            },
        };
        if let Some(status) = child.try_wait().map_err(LabError::system(format!("wait for {program}")))? {
            let sentence = format!("{program} in {name} ended before it was ready: {status}");
            return Err(LabError::NotReady(sentence));
        }
        if Instant::now() > until {
            return Err(LabError::NotReady(format!("{why_not} after {} s", within.as_secs_f64())));
        }
        thread::sleep(match ready {
            ReadyCheck::Port(_) => LOOK_EVERY,
            ReadyCheck::Command(_) => RUN_EVERY,
        });
    }
}

/// Runs a command once, in silence and no longer than until then; says what is wrong unless it succeeds.
fn succeeds(host: &Host, words: &[String], until: Instant) -> Result<Option<String>, LabError> {
    let [program, arguments @ ..] = words else { return Ok(None) };
    let quiet = |command: &mut Command| {
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0);
    };
    let mut child = host.start(program, quiet).map_err(|error| cannot_run(host, program, &error))?;
    Ok(match wait_until(&mut child, until) {
        Some(status) if status.success() => None,
        Some(status) => Some(format!("{} fails ({status})", words.join(" "))),
        None => Some(format!("{} has not ended", words.join(" "))),
    })
}

/// Waits for a child's end until then, and kills it at that time.
fn wait_until(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    let mut ended = child.try_wait().ok().flatten();
    while ended.is_none() && Instant::now() < until {
        thread::sleep(LOOK_EVERY);
        ended = child.try_wait().ok().flatten();
    }
    if ended.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    ended
}

/// Whether somebody listens on this port in the host. Looked up in the kernel's lists: connecting would be noticed.
fn listens(host: &Host, port: u16) -> Result<bool, LabError> {
    let lists = || ["tcp", "tcp6"].map(|list| fs::read_to_string(format!("/proc/thread-self/net/{list}")));
    let lists = host.run(lists)?;
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
/// Then a program that was asked to end is killed.
const ENDING_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A command takes more than a look: a process, its exec and its answer.
const RUN_EVERY: Duration = Duration::from_millis(100);

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
