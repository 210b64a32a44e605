//! Runs other programs: to completion, with a time limit, or in the background until dropped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::workspace;

/// Returns a cargo command in the workspace's root, with the cargo that runs this program.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    command
}

/// The environment variable in which `cargo clippy` passes `--deny warnings` to `clippy-driver`, and its value.
pub const CLIPPY_ARGS: (&str, &str) = ("CLIPPY_ARGS", "--deny__CLIPPY_HACKERY__warnings");

/// Whether a program of this name is on the PATH or in Debian's directories for system programs.
pub fn installed(program: &str) -> bool {
    found(program).is_some()
}

/// Returns the path of a program, if it is [`installed`].
pub fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let everywhere = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    everywhere
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// Runs a program with our own input and output; an exit code other than 0 is an error.
pub fn succeed(mut command: Command) -> Result<()> {
    let shown = shown(&command);
    let status = command
        .status()
        .with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs a program and returns its standard output; an exit code other than 0 is an error with its standard error.
pub fn capture(mut command: Command) -> Result<String> {
    let shown = shown(&command);
    let output = command
        .output()
        .with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        bail!(
            "{shown}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Like [`capture`], with a name and arguments.
pub fn run(program: impl AsRef<OsStr>, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments);
    capture(command)
}

/// Fails unless all of these programs are installed.
pub fn require(programs: &[impl AsRef<str>]) -> Result<()> {
    let missing: Vec<&str> = programs
        .iter()
        .map(AsRef::as_ref)
        .filter(|program| !installed(program))
        .collect();
    ensure!(
        missing.is_empty(),
        "missing: {}; run `cargo xtask packages`",
        missing.join(", ")
    );
    Ok(())
}

/// How a program with a time limit ended.
#[derive(Debug)]
pub enum Ended {
    /// The program exited.
    Exited(ExitStatus),
    /// The program was terminated by a signal.
    Crashed(i32),
    /// The program was killed at its time limit.
    OutOfTime,
}

/// Runs a program, and kills it at its time limit. Returns both of its outputs as one text.
pub fn within(limit: Duration, mut command: Command) -> Result<(Ended, String)> {
    let shown = shown(&command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {shown}"))?;
    let collectors = [
        child.stdout.take().map(collect),
        child.stderr.take().map(collect),
    ];
    let ended = end_within(limit, &mut child)?;
    let text = collectors
        .into_iter()
        .flatten()
        .filter_map(|thread| thread.join().ok())
        .collect::<Vec<_>>();
    Ok((ended, text.concat()))
}

/// Waits for a child until its time limit, and then kills it.
fn end_within(limit: Duration, child: &mut Child) -> Result<Ended> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status
                .signal()
                .map_or(Ended::Exited(status), Ended::Crashed));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::OutOfTime);
        }
        thread::sleep(Duration::from_millis(2)); // finer than the shortest test of the suite, 4 ms
    }
}

/// Kills the children of a process, and returns their number.
pub fn kill_children(parent: u32) -> Result<usize> {
    let mut killed = 0;
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // `PID (NAME) STATE PARENT …`, where a name can contain any character.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        if fields.split(' ').nth(1) == Some(&parent.to_string())
            && let Some(pid) = Pid::from_raw(pid)
        {
            killed += usize::from(kill_process(pid, Signal::KILL).is_ok());
        }
    }
    Ok(killed)
}

/// Reads a pipe to its end on a separate thread, so that a program with much output never blocks.
fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes); // after an error, the data read so far is used
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A program in the background. When this is dropped, it is terminated, and killed if it does not exit in time.
#[derive(Debug)]
pub struct Background {
    /// The process, terminated when this value is dropped.
    pub child: Child,
}

impl Background {
    /// Time limit for a server to shut down: Linerate's limit of 10 s, with a margin.
    const GRACE: Duration = Duration::from_secs(12);

    /// Starts a program.
    pub fn start(command: &mut Command) -> Result<Background> {
        let shown = shown(command);
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {shown}"))?;
        Ok(Background { child })
    }

    /// Starts a program from a thread that lives as long as this process. For programs that the kernel signals when the thread
    /// that started them ends (`setpriv --pdeathsig`).
    pub fn start_from_lasting_thread(command: Command) -> Result<Background> {
        type Order = (Command, mpsc::Sender<Result<Background>>);
        static STARTER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
        let starter = STARTER.get_or_init(|| {
            let (sender, orders) = mpsc::channel::<Order>();
            thread::spawn(move || {
                for (mut command, started) in orders {
                    let _ = started.send(Background::start(&mut command)); // the caller waits for it
                }
            });
            sender
        });
        let (sender, started) = mpsc::channel();
        starter.send((command, sender))?;
        started.recv()?
    }

    /// Starts a program with its standard input and output connected to the caller.
    pub fn start_piped(command: &mut Command) -> Result<Background> {
        let shown = shown(command);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Ok(Background {
            child: child.with_context(|| format!("cannot run {shown}"))?,
        })
    }

    /// Starts our server, and waits for its line `ready`. Later output is read and discarded, so that the server never blocks.
    pub fn start_ready(command: &mut Command) -> Result<Background> {
        let mut background = Background::start(command.stdout(Stdio::piped()))?;
        await_ready(
            background
                .child
                .stdout
                .take()
                .context("the server's standard output")?,
        )?;
        Ok(background)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process (SIGSTOP) until [`Background::resume`]. An error is ignored: it means that the process has exited,
    /// which the next use of it reveals.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the process (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal); // see `pause`
        }
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill(); // an error means that it has already exited
        let _ = self.child.wait();
    }

    /// Terminates the process (SIGTERM), and kills it if it does not exit in time.
    pub fn stop(&mut self) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        if matches!(self.child.try_wait(), Ok(None)) && kill_process(pid, Signal::TERM).is_ok() {
            self.resume(); // a stopped process would not handle SIGTERM
            let _ = end_within(Self::GRACE, &mut self.child); // an error cannot be handled here
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Time limit for a server to print the line `ready`.
const START: Duration = Duration::from_secs(20);

fn await_ready(stdout: ChildStdout) -> Result<()> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line); // fails after `ready`, when the receiver is gone
        }
    });
    loop {
        match lines.recv_timeout(START) {
            Ok(line) if line == "ready" => return Ok(()),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => {
                bail!("the server did not print `ready` within {START:?}")
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the server exited before it was ready"),
        }
    }
}

/// Returns a command line as typed in a shell, for messages.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    command.get_args().fold(program, |line, argument| {
        line + " " + &argument.to_string_lossy()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_hangs_is_ended_when_its_time_is_up() {
        let (ended, text) = within(
            Duration::from_millis(200),
            shell("echo begun; exec sleep 1000"),
        )
        .expect("sh runs");
        assert!(matches!(ended, Ended::OutOfTime), "{ended:?}");
        assert_eq!(text, "begun\n");
    }

    #[test]
    fn a_crash_is_told_from_an_exit_code() {
        let (ended, _) = within(Duration::from_secs(10), shell("kill -SEGV $$")).expect("sh runs");
        assert!(matches!(ended, Ended::Crashed(11)), "{ended:?}");
        let (ended, _) = within(Duration::from_secs(10), shell("exit 3")).expect("sh runs");
        assert!(matches!(ended, Ended::Exited(status) if status.code() == Some(3)));
    }

    #[test]
    fn both_outputs_are_kept() {
        let (_, text) =
            within(Duration::from_secs(10), shell("echo out; echo err >&2")).expect("sh runs");
        assert!(text.contains("out\n") && text.contains("err\n"));
    }

    #[test]
    fn children_are_killed_and_their_parent_goes_on() {
        let mut parent = shell("sleep 1000 & sleep 1000 & echo begun; wait; echo alone");
        let mut parent = parent.stdout(Stdio::piped()).spawn().expect("sh runs");
        let mut lines = BufReader::new(parent.stdout.take().expect("piped")).lines();
        assert_eq!(lines.next().expect("a line").expect("UTF-8"), "begun");
        assert_eq!(kill_children(parent.id()).expect("/proc"), 2);
        assert_eq!(lines.next().expect("a line").expect("UTF-8"), "alone");
        assert!(parent.wait().expect("it ends").success());
    }

    #[test]
    fn what_is_in_the_background_ends_with_its_owner() {
        let background = Background::start(&mut shell("exec sleep 1000")).expect("sh runs");
        let proc = format!("/proc/{}", background.pid());
        drop(background);
        assert!(!Path::new(&proc).exists());
    }
}
