//! `linerate lab run` runs a command in a lab: several hosts on this machine, connected by links with rate,
//! delay and loss (`docs/lab.md`).
//!
//! Reading order: [`run`], `run_in_foreground` (the command, its signals and its exit code). The lab itself is the crate `lab`.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};
use std::thread;

use bench_runner::client::lab_failure;
use clap::Args;
use lab::{Background, Host, Lab, Output, Plan};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::output::remark;

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Plan of the lab, a TOML file
    plan: PathBuf,
    /// Host that the command runs in [default: the first of the plan]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Print the hosts with their addresses and settings, before the command
    #[arg(long)]
    show: bool,
    /// Print the traffic and the losses of each link, after the command
    #[arg(long)]
    counts: bool,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Builds the lab and runs the command.
pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let plan = read(&arguments.plan)?;
    // Without root, a user namespace is sufficient for a lab. If no user namespace is available, `Lab::build`
    // reports it.
    let _ = host::namespace::become_root();
    let lab = Lab::build(&plan).map_err(lab_failure)?;
    let at = match &arguments.host {
        Some(name) => lab.host(name).map_err(lab_failure)?,
        None => &lab.hosts()[0], // a plan without hosts is rejected
    };
    if arguments.show {
        lab.hosts().iter().for_each(remark);
    }
    let background = Background::start(&lab, Output::Shown).map_err(lab_failure)?;
    let outcome = run_in_foreground(at, &arguments.command);
    drop(background);
    if arguments.counts {
        lab.links().iter().for_each(remark);
    }
    outcome
}

fn read(path: &Path) -> Result<Plan, Failure> {
    let shown = path.display();
    let cannot = |error: std::io::Error| {
        Failure::refused(format_args!("cannot read the plan {shown}: {error}"))
    };
    let mut text = String::new();
    // Read up to one byte more than the maximum length of a plan, so that an endless device is detected.
    File::open(path)
        .and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_string(&mut text))
        .map_err(cannot)?;
    Plan::parse(&text)
        .map_err(|error| Failure::refused(format_args!("{shown}:{}", error.shown_in(&text))))
}

const PLAN_BYTES_MAX: u64 = 1 << 20;

/// Runs the command to its end, and returns its exit code. If a signal ended the command, the code is 128
/// plus the signal's number, as in a shell.
fn run_in_foreground(host: &Host, command: &[String]) -> Result<ExitCode, Failure> {
    let [program, arguments @ ..] = command else {
        return Ok(ExitCode::SUCCESS);
    };
    // Listen before the command starts. A signal that arrives in between is passed on as soon as the command
    // is running.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).map_err(Failure::failed)?;
    let child = host.start(program, |command| {
        command.args(arguments);
    });
    let mut child = child.map_err(|error| {
        Failure::refused(format_args!(
            "cannot run {program} in {}: {error}",
            host.name()
        ))
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

/// Waits until the command has ended, without releasing its PID, because signals may still be sent to it.
fn wait_for_end(child: &Child) {
    let pid = Pid::from_child(child);
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let interrupted = || {
        rustix::process::waitid(WaitId::Pid(pid), options).err() == Some(rustix::io::Errno::INTR)
    };
    while interrupted() {}
}

fn pass_on(signal: i32, pid: Pid) {
    // The terminal has already sent these signals to the whole foreground process group, including the
    // command.
    if [SIGINT, SIGQUIT].contains(&signal) && is_in_foreground() {
        return;
    }
    if let Some(signal) = Signal::from_named_raw(signal) {
        // Ignore an error: the command may have just ended.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn is_in_foreground() -> bool {
    let foreground = File::open("/dev/tty")
        .ok()
        .and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok());
    foreground == Some(rustix::process::getpgrp())
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    // The cast is lossless: exit codes have eight bits, and signal numbers are at most 64.
    ExitCode::from(code.unwrap_or(1) as u8)
}
