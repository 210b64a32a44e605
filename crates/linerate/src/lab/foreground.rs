//! The command of `linerate lab run`: it gets the signals that were meant for it, and its end is ours.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitCode, ExitStatus};
use std::thread;

use lab::Host;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Runs the command to its end. Its exit code becomes ours; as a shell has it, 128 and the signal's number if a signal
/// ended it.
pub(super) fn run(host: &Host, command: &[String]) -> Result<ExitCode, Failure> {
    let [program, arguments @ ..] = command else { return Ok(ExitCode::SUCCESS) };
    // Before it starts: a signal that comes in between is passed on as soon as there is somebody to get it.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).map_err(Failure::failed)?;
    let child = host.start(program, |command| {
        command.args(arguments);
    });
    let mut child = child.map_err(|error| {
        Failure::refused(format_args!("cannot run {program} in {}: {error}", host.name()))
    })?;
    let handle = signals.handle();
    let pid = Pid::from_child(&child);
    thread::scope(|scope| {
        scope.spawn(move || signals.forever().for_each(|signal| pass_on(signal, pid)));
        wait_for_end(&child);
        handle.close();
    });
    child.wait().map(exit_code).map_err(Failure::failed)
}

/// Until it has ended, but its number is not yet anybody else's: signals may still be on their way to it.
fn wait_for_end(child: &Child) {
    let pid = Pid::from_child(child);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let interrupted =
        || rustix::process::waitid(WaitId::Pid(pid), options).err() == Some(rustix::io::Errno::INTR);
    while interrupted() {}
}

fn pass_on(signal: i32, pid: Pid) {
    // The terminal has sent these to all of its foreground, the command included: once is enough.
    if [SIGINT, SIGQUIT].contains(&signal) && is_in_foreground() {
        return;
    }
    if let Some(signal) = Signal::from_named_raw(signal) {
        // It may have ended just now.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn is_in_foreground() -> bool {
    let foreground =
        File::open("/dev/tty").ok().and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok());
    foreground == Some(rustix::process::getpgrp())
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    // Exit codes have eight bits, and signals are fewer than 65.
    ExitCode::from(code.unwrap_or(1) as u8)
}
