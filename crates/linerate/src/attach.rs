//! `linerate attach` makes a LUN available as a file, ready for `losetup` and `mount`, or for any program
//! that opens files. `linerate detach` removes the file.
//!
//! The library `attach` does the work. This module handles the arguments, the background process, and the
//! signals.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use attach::mount_point::{MountPoint, Terms};
use attach::mounts::{self, UnmountMode};
use attach::record::{self, FoundRecord, Record};
use attach::{NamedVolume, RecordPaths};
use daemon::state;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::output::{say, say_json_list};
use crate::remote;
use crate::spec::Bytes;

// `linerate attach`.

#[derive(Debug, clap::Args)]
pub(crate) struct AttachArguments {
    /// LUN or volume to attach (see `linerate help targets`)
    #[arg(value_name = "TARGET", required_unless_present = "list")]
    volume: Option<String>,
    /// Path for the attached file: an empty file, or a path that does not exist yet
    #[arg(required_unless_present = "list", value_hint = clap::ValueHint::FilePath)]
    path: Option<PathBuf>,
    /// Reject writes
    #[arg(long)]
    read_only: bool,
    /// Also allow root to use the file; needed for losetup if you are not root; requires user_allow_other in
    /// /etc/fuse.conf
    #[arg(long)]
    allow_root: bool,
    /// Stay in the foreground until the file is detached, and log to standard error
    #[arg(long)]
    foreground: bool,
    /// List the attached files
    #[arg(long, conflicts_with_all = ["volume", "path", "read_only", "allow_root", "foreground"])]
    list: bool,
    /// Print the list as JSON
    #[arg(long, requires = "list")]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let (Some(volume), Some(path)) = (&arguments.volume, &arguments.path) else {
        return list(arguments.json).map(|()| ExitCode::SUCCESS);
    };
    if arguments.goes_into_background() {
        return go_into_background();
    }
    let named = NamedVolume::parse(volume)?;
    let records = records()?;
    let at = MountPoint::prepare(path, &records)?;
    attach::be_behind_a_disk();
    let terms = Terms {
        read_only: arguments.read_only,
        allow_root: arguments.allow_root,
    };
    let log = (!arguments.foreground).then(|| records.join(format!("{}.log", std::process::id())));
    remote::run(async {
        let volume = named.open(arguments.read_only).await?;
        attach::attach(
            volume,
            at,
            terms,
            RecordPaths {
                records: &records,
                log,
            },
            ready,
        )
        .await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the attachments on this machine, and their state.
fn list(as_json: bool) -> Result<(), Failure> {
    let records = records()?;
    let all = FoundRecord::all(&records).map_err(Failure::failed)?;
    query(&all);
    let all = FoundRecord::all(&records).map_err(Failure::failed)?;
    match (as_json, all.is_empty()) {
        (true, _) => {
            let records: Vec<&Record> = all.iter().map(|found| &found.record).collect();
            return say_json_list("attached", &records);
        }
        (false, true) => say("no files are attached\n"),
        (false, false) => say(&all
            .iter()
            .map(|found| format!("{found}\n"))
            .collect::<String>()),
    }
    Ok(())
}

/// Makes each attached process query its target and update its record. The wait is limited, because a stopped
/// process never replies.
fn query(all: &[FoundRecord]) {
    const WAIT: Duration = Duration::from_secs(2);
    let (answer, answers) = mpsc::channel();
    for found in all.iter().filter(|found| found.is_alive()) {
        let (path, answer) = (found.record.path.clone(), answer.clone());
        thread::spawn(move || {
            let _ = fs::metadata(path);
            drop(answer);
        });
    }
    drop(answer);
    let _: Result<(), _> = answers.recv_timeout(WAIT); // all have answered, or the time is up
}

/// The directory of the records of attachments.
fn records() -> Result<PathBuf, Failure> {
    let runtime = state::runtime_directory().map_err(Failure::failed)?;
    record::directory(&runtime).map_err(Failure::failed)
}

impl AttachArguments {
    /// Whether this process only starts the background process, which does the work.
    pub(crate) fn goes_into_background(&self) -> bool {
        !self.list && !self.foreground && !is_in_background()
    }
}

/// Reports that the file is usable. Unless the process is in the foreground, also detaches it from the
/// terminal.
fn ready(record: &Record) -> Result<(), Failure> {
    watch(record.path.clone())?;
    let kind = if record.read_only { ", read-only" } else { "" };
    say(&format!(
        "{}: {}{kind}\n",
        record.path.display(),
        Bytes(record.bytes)
    ));
    record
        .log
        .as_deref()
        .map_or(Ok(()), leave_terminal)
        .map_err(Failure::failed)
}

// Running in the background: the command starts itself again as a second process, and returns when that
// process is ready or has failed.
//
// The second process keeps the terminal until it is ready, so that it can prompt for a secret and report
// errors. Then it starts a new session, with standard error to its log, and standard input and output to
// /dev/null.

/// Environment variable that marks the second process.
const MARK: &str = "LINERATE_ATTACH_IN_BACKGROUND";

/// The last line that the second process prints on standard output, when it is ready.
const READY: &str = "ready\n";

/// Whether this is the second process.
fn is_in_background() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts the second process, and waits until it is ready or has failed.
fn go_into_background() -> Result<ExitCode, Failure> {
    let cannot =
        |error: io::Error| Failure::failed(format!("cannot start the background process: {error}"));
    let mut command = Command::new("/proc/self/exe");
    command.arg0(
        std::env::args_os()
            .next()
            .unwrap_or_else(|| "linerate".into()),
    ); // for `ps`
    command
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .env("NO_COLOR", "1")
        .stdout(Stdio::piped());
    let mut child = command.spawn().map_err(cannot)?;
    let mut said = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut said).map_err(cannot)?;
    }
    if let Some(before) = said.strip_suffix(READY) {
        say(before);
        return Ok(ExitCode::SUCCESS);
    }
    // The second process has reported the reason. If it has no exit code, a signal ended it, such as the
    // shell's Ctrl-C, which also ends this process.
    let status = child.wait().map_err(cannot)?;
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .filter(|code| *code > 0);
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Detaches the second process from the terminal, and lets the first process return.
fn leave_terminal(log: &Path) -> io::Result<()> {
    let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    rustix::process::setsid()?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    say(READY);
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}

#[derive(Debug, clap::Args)]
pub(crate) struct DetachArguments {
    /// Path of the attached file
    #[arg(value_hint = clap::ValueHint::FilePath)]
    path: PathBuf,
    /// Unmount the file even if it is in use, and return immediately; its process exits when the last program
    /// closes the file
    #[arg(long, conflicts_with = "force")]
    lazy: bool,
    /// Detach the file even if it is in use or its target is unreachable: programs get I/O
    /// errors, and data not yet written to the target is lost
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub(crate) fn detach(arguments: &DetachArguments) -> Result<(), Failure> {
    let way = match (arguments.force, arguments.lazy) {
        (true, _) => UnmountMode::Force,
        (false, true) => UnmountMode::Lazy,
        (false, false) => UnmountMode::IfUnused,
    };
    attach::detach(&records()?, &arguments.path, way)
}

// SIGTERM and SIGINT to the process of an attached file. The first signal unmounts the file if it is not in
// use, which ends the process cleanly. A second signal removes the file from the directory tree. Programs
// that have the file open can continue to use it: the process exits when the last program closes the file.

/// Waits for signals on a separate thread.
fn watch(path: PathBuf) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(Failure::failed)?;
    let watch = move || {
        for attempt in signals.forever().enumerate().map(|(attempt, _)| attempt) {
            end(
                &path,
                if attempt == 0 {
                    UnmountMode::IfUnused
                } else {
                    UnmountMode::Lazy
                },
            );
        }
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .map(drop)
        .map_err(Failure::failed)
}

fn end(path: &Path, way: UnmountMode) {
    if let Err(error) = mounts::unmount(path, way) {
        let users = mounts::list(path).join(", ");
        tracing::error!(
            "{} stays attached: {error} {users}; the next signal unmounts it lazily",
            path.display()
        );
    }
}
