//! Into the background: the command starts itself again and returns when that one is ready, or fails as it fails.
//!
//! The second process keeps the terminal until it is ready, so that it can ask for a secret and say what is wrong. It
//! leaves then: a session of its own, standard error to its log, the rest to nowhere.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::failure::Failure;
use crate::output::say;

/// Set for the second process.
const MARK: &str = "LINERATE_ATTACH_IN_BACKGROUND";

/// What it says last on standard output, when it is ready.
const READY: &str = "ready\n";

/// Whether this is the second process.
pub(super) fn is_this() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts it, and waits until it is ready or has failed.
pub(super) fn start() -> Result<ExitCode, Failure> {
    let cannot =
        |error: io::Error| Failure::failed(format!("cannot start the process behind the file: {error}"));
    let mut command = Command::new("/proc/self/exe");
    command.arg0(std::env::args_os().next().unwrap_or_else(|| "linerate".into())); // as `ps` shows it
    command.args(std::env::args_os().skip(1)).env(MARK, "1").env("NO_COLOR", "1").stdout(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut said).map_err(cannot)?;
    }
    if let Some(before) = said.strip_suffix(READY) {
        say(before);
        return Ok(ExitCode::SUCCESS);
    }
    // It has said why. Without a code a signal ended it, as the shell's Ctrl-C does us.
    let status = child.wait().map_err(cannot)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0);
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Leaves the terminal and lets the first process return.
pub(super) fn leave(log: &Path) -> io::Result<()> {
    let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    rustix::process::setsid()?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    say(READY);
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}
