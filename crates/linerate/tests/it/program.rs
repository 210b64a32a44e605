//! Running a program to its end, with a timeout.

use std::fmt::Debug;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::recorder;

pub(crate) use testkit::says;

/// The program under test.
pub(crate) const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

/// Whether all of these programs are installed; prints the missing one once, as the reason for skipping a
/// test.
pub(crate) fn installed(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<_> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    let missing = |program: &&&str| !places.iter().any(|place| place.join(program).is_file());
    let Some(program) = programs.iter().find(missing) else {
        return true;
    };
    eprintln!("skipped: {program} is not installed");
    false
}

/// A program that has ended, and its output on both streams.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
}

impl Ended {
    /// Its output, after a check that it succeeded.
    pub(crate) fn expect_success(self) -> String {
        assert!(self.status.success(), "{}: {}", self.status, self.said);
        self.said
    }

    /// The line of JSON that it printed, after a check that it succeeded; notes are on standard error.
    pub(crate) fn expect_json_line(self) -> serde_json::Value {
        let said = self.expect_success();
        let line = said.lines().find(|line| line.starts_with('{'));
        let line = line.unwrap_or_else(|| panic!("no line of JSON: {said}"));
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Its output, after a check that it failed.
    pub(crate) fn expect_failure(self) -> String {
        assert!(!self.status.success(), "succeeded: {}", self.said);
        self.said
    }
}

/// Time limit of all waits of these tests. No wait takes this long, even on a busy machine, unless something
/// hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// Runs a program with these arguments.
pub(crate) fn run<A: AsRef<std::ffi::OsStr> + Debug>(program: &str, arguments: &[A]) -> Ended {
    let mut command = Command::new(program);
    command.args(arguments);
    run_command(&mut command)
}

/// Runs the program under test with these arguments.
pub(crate) fn linerate(arguments: &[&str]) -> Ended {
    run(LINERATE, arguments)
}

/// Runs a command. Both outputs go to one file, so that they are in order and never fill a pipe. If it is
/// Linerate and connects to a target, its sessions are recorded, and must be decoded by tshark.
pub(crate) fn run_command(command: &mut Command) -> Ended {
    let recording = recorder::begin(command);
    let ended = run_as_it_is(command);
    recording
        .iter()
        .for_each(|file| recorder::look_at(file.path()));
    ended
}

fn run_as_it_is(command: &mut Command) -> Ended {
    let mut output = tempfile::tempfile().expect("a temporary file");
    let for_child = |output: &File| Stdio::from(output.try_clone().expect("another handle of it"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(for_child(&output))
        .stderr(for_child(&output))
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let status = ended_within(&mut child, PATIENCE);
    let mut said = Vec::new();
    output
        .rewind()
        .and_then(|()| output.read_to_end(&mut said))
        .expect("what was just written");
    let said = String::from_utf8_lossy(&said).into_owned();
    match status {
        Some(status) => Ended { status, said },
        None => panic!("{command:?} did not end within {PATIENCE:?}: {said}"),
    }
}

/// Polls for a condition that another process or thread causes.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a child. Fails if it does not end.
pub(crate) fn end_of(child: &mut Child) -> ExitStatus {
    ended_within(child, PATIENCE).expect("an end")
}

/// Waits for the end of a child. After the time limit, kills it and returns `None`.
pub(crate) fn ended_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child to wait for") {
            return Some(status);
        }
        if Instant::now() >= deadline {
            child
                .kill()
                .and_then(|()| child.wait())
                .expect("a child to kill");
            return None;
        }
        std::thread::sleep(Duration::from_millis(5)); // polling for another process
    }
}

/// Sends a child a signal by its name.
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "cannot send SIG{name}"
    );
}

/// A file of this length, whose bytes do not repeat within a block and differ between blocks.
pub(crate) fn write_patterned_file(path: &Path, size_bytes: usize) {
    let words = (0..size_bytes as u64 / 8)
        .flat_map(|word| (word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
    std::fs::write(path, words.collect::<Vec<u8>>()).expect("a temporary file");
}
