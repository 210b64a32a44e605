//! Tests of `linerate lab run`: a command in a lab, and its effects outside of the lab. Skipped if no lab can
//! be built.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Ended, LINERATE, PATIENCE, run_command, says};

const PAIR: &str =
    "[host.client]\n[host.server]\n[link.wire]\nbetween = [\"client\", \"server\"]\n";

/// The command `linerate lab run` with this plan.
fn lab_run(plan: &str, arguments: &[&str]) -> (tempfile::TempDir, Command) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.toml");
    fs::write(&path, plan).expect("writes");
    let mut command = Command::new(LINERATE);
    command.args(["lab", "run"]).arg(path).args(arguments);
    (folder, command)
}

fn ended(plan: &str, arguments: &[&str]) -> Ended {
    let (_folder, mut command) = lab_run(plan, arguments);
    run_command(&mut command)
}

/// Whether labs can be built here. If not, prints the reason.
pub(crate) fn can_build() -> bool {
    let trial = ended("[host.only]", &["--", "true"]);
    if !trial.status.success() {
        eprintln!("skipped: {}", trial.said);
    }
    trial.status.success()
}

#[test]
fn a_plan_that_is_wrong_is_refused_with_its_place() {
    let refused = ended("[host.client]\ncolour = 1", &["--", "true"]);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.said);
    says(&refused.said, &["plan.toml:2:1: unknown key `colour`"]);
    let nowhere = ended("[host.client]", &["--host", "server", "--", "true"]);
    if can_build() {
        assert_eq!(nowhere.status.code(), Some(2), "{}", nowhere.said);
        says(&nowhere.said, &["the lab has no host or link named server"]);
    }
}

#[test]
fn the_commands_end_is_the_labs() {
    needs!(can_build());
    let code = |script: &str| ended(PAIR, &["--", "sh", "-c", script]).status.code();
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("kill -KILL $$"), Some(128 + 9));
    let missing = ended(PAIR, &["--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(2), "{}", missing.said);
    says(&missing.said, &["cannot run no-such-program in client"]);
}

#[test]
fn a_signal_reaches_the_command() {
    needs!(can_build());
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let (_folder, mut command) = lab_run(PAIR, &["--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(said.next().expect("a line").expect("text"), "ready");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("runs");
    assert_eq!(said.next().expect("a line").expect("text"), "asked");
    assert_eq!(child.wait().expect("ends").code(), Some(3));
}

#[test]
fn the_command_does_not_outlive_a_lab_that_is_killed() {
    needs!(can_build());
    let (_folder, mut command) = lab_run(PAIR, &["--", "sh", "-c", "echo ready; exec sleep 1000"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(said.next().expect("a line").expect("text"), "ready");
    child.kill().expect("runs");
    assert_eq!(child.wait().expect("ends").signal(), Some(9));
    // The command was the last holder of the other end of the pipe.
    assert!(said.next().is_none());
}

#[test]
fn programs_end_in_reverse_order() {
    if !can_build() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let program = |name: &str, pause: &str| {
        let script = format!(
            "trap '{pause}; echo {name} >> {log}; exit' TERM; touch {log}.{name}; while :; do sleep 0.01; done",
            log = log.display()
        );
        let ready = format!("ready = [\"test\", \"-e\", \"{}.{name}\"]", log.display());
        format!("[host.{name}]\nrun = [\"sh\", \"-c\", {script:?}]\n{ready}\n")
    };
    // The gateway takes longer to end than its server.
    let plan = program("server", ":") + &program("gateway", "sleep 0.2");
    let ended = ended(&plan, &["--", "true"]);
    assert!(ended.status.success(), "{}", ended.said);
    let order = fs::read_to_string(&log).expect("both ended");
    assert_eq!(order, "gateway\nserver\n");
}

/// A shell command that starts a daemon in a new session, with the outputs of its parent.
const DAEMON: &str = "setsid sleep 1000 & echo started >&2;";

/// Reports the end of a pipe, which occurs when the last process that holds its other end has ended.
fn end_of(pipe: impl Read + Send + 'static) -> Receiver<()> {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(pipe)
            .lines()
            .map_while(Result::ok)
            .for_each(drop);
        let _ = sender.send(()); // fails if the receiver was dropped
    });
    ended
}

/// Waits until a lab has printed this line, and then for the end of the pipe that it and all its processes
/// hold.
fn after(child: &mut Child, line: &str) -> Receiver<()> {
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut first = String::new();
    while first.trim() != line {
        first.clear();
        assert!(
            said.read_line(&mut first).is_ok_and(|bytes| bytes > 0),
            "it ends without saying {line}"
        );
    }
    end_of(said)
}

#[test]
fn what_the_command_has_started_ends_with_the_lab() {
    needs!(can_build());
    let (_folder, mut command) = lab_run(PAIR, &["--", "sh", "-c", &format!("{DAEMON} exit 7")]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("starts");
    let gone = after(&mut child, "started");
    assert_eq!(child.wait().expect("ends").code(), Some(7));
    assert_eq!(
        gone.recv_timeout(PATIENCE),
        Ok(()),
        "a daemon has survived the lab"
    );
}

#[test]
fn what_a_plans_program_has_started_ends_with_the_lab() {
    needs!(can_build());
    let run = format!("[host.server]\nrun = [\"sh\", \"-c\", \"{DAEMON} exec sleep 1000\"]\n");
    let plan = PAIR.replace("[host.server]\n", &run);
    // The command waits for input before it ends. By then, the daemon is running.
    let (_folder, mut command) = lab_run(&plan, &["--", "sh", "-c", "read line; exit 3"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let gone = after(&mut child, "started");
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("ends").code(), Some(3));
    assert_eq!(
        gone.recv_timeout(PATIENCE),
        Ok(()),
        "a daemon has survived the lab"
    );
}

#[test]
fn no_process_outlives_a_lab_that_is_killed() {
    needs!(can_build());
    let daemon = format!("{DAEMON} exec sleep 1000");
    let (_folder, mut command) = lab_run(PAIR, &["--", "sh", "-c", &daemon]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("starts");
    let gone = after(&mut child, "started");
    child.kill().expect("runs");
    assert_eq!(child.wait().expect("ends").signal(), Some(9));
    assert_eq!(
        gone.recv_timeout(PATIENCE),
        Ok(()),
        "a daemon has survived kill -9"
    );
}

#[test]
fn a_labs_processes_find_themselves_in_proc() {
    needs!(can_build());
    let own_number = "read number rest < /proc/self/stat && test $number = $$";
    assert_eq!(
        ended(PAIR, &["--", "sh", "-c", own_number]).expect_success(),
        ""
    );
    // The lab contains only its own processes. The first process is the one that ends them.
    let first = ended(PAIR, &["--", "cat", "/proc/1/cmdline"]).expect_success();
    assert!(first.contains("lab\0run\0"), "{first:?}");
}

#[test]
fn a_command_may_tell_when_a_plans_program_is_ready() {
    needs!(can_build());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ready").display().to_string();
    let plan = |run: &str, ready: &str| {
        let keys = format!("[host.server]\nrun = [\"sh\", \"-c\", \"{run}\"]\nready = {ready}\n");
        PAIR.replace("[host.server]\n", &keys)
    };
    let ready = format!("[\"test\", \"-e\", \"{file}\"]");
    let late = plan(&format!("sleep 0.2; touch {file}; exec sleep 1000"), &ready);
    ended(&late, &["--", "test", "-e", &file]).expect_success();

    let failed = |plan: &str, words: &str| {
        let Ended { status, said } = ended(plan, &["--", "true"]);
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{said}");
    };
    let soon = "\nready-within = \"200ms\"";
    failed(
        &plan("exec sleep 1000", &format!("[\"false\"]{soon}")),
        "sh in server is not ready: false ", // it fails, or has not ended even once on a slow machine
    );
    failed(
        &plan("exec sleep 1000", &format!("[\"sleep\", \"1000\"]{soon}")),
        "sleep 1000 has not exited after 0.2 s",
    );
    failed(
        &plan("exec sleep 1000", &format!("3260{soon}")),
        "is not listening on port 3260 after 0.2 s",
    );
    failed(
        &plan("exit 5", "[\"false\"]"),
        "exited before it was ready: exit status: 5",
    );
    let missing = ended(
        &plan("exec sleep 1000", "[\"no-such-program\"]"),
        &["--", "true"],
    );
    assert_eq!(missing.status.code(), Some(2), "{}", missing.said);
    says(&missing.said, &["cannot run no-such-program in server"]);
}

#[test]
fn a_plans_program_serves_the_command_and_ends_with_it() {
    needs!(can_build());
    let linerate = LINERATE;
    let state = tempfile::tempdir().expect("a folder");
    let state_path = state.path().display();
    let plan = PAIR.replace(
        "[host.server]\n",
        &format!(
            "[host.server]\nready = 3260\nrun = [\"{linerate}\", \"serve\", \"--volume\", \"v=ram:1MiB\", \
             \"--listen\", \"10.77.0.2:3260\", \"--state\", \"{state_path}\"]\n"
        ),
    );
    let found = ended(
        &plan,
        &[
            "--counts",
            "--show",
            "--",
            linerate,
            "discover",
            "10.77.0.2",
        ],
    )
    .expect_success();
    assert!(found.contains("iqn."), "{found}");
    assert!(found.contains("host client, 10.77.0.1 on wire"), "{found}");
    says(&found, &["net.ipv4.tcp_congestion_control = cubic"]);
    assert!(found.contains("link wire, client to server: "), "{found}");
}
