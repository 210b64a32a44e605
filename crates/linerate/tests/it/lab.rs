//! `linerate lab run`: a command in a lab, and what is seen of it from outside. Skipped where no lab can be built.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Ended, run_command};

const PAIR: &str = "[host.client]\n[host.server]\n[link.wire]\nbetween = [\"client\", \"server\"]\n";

/// `linerate lab run` with this plan.
fn lab_run(plan: &str, arguments: &[&str]) -> (tempfile::TempDir, Command) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.toml");
    fs::write(&path, plan).expect("writes");
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["lab", "run"]).arg(path).args(arguments);
    (folder, command)
}

fn ended(plan: &str, arguments: &[&str]) -> Ended {
    let (_folder, mut command) = lab_run(plan, arguments);
    run_command(&mut command)
}

/// Whether labs can be built here; says why not.
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
    assert!(refused.said.contains("plan.toml:2:1: `colour` means nothing here"), "{}", refused.said);
    let nowhere = ended("[host.client]", &["--host", "server", "--", "true"]);
    if can_build() {
        assert_eq!(nowhere.status.code(), Some(2), "{}", nowhere.said);
        assert!(nowhere.said.contains("the lab has nothing named server"), "{}", nowhere.said);
    }
}

#[test]
fn the_commands_end_is_the_labs() {
    if !can_build() {
        return;
    }
    let code = |script: &str| ended(PAIR, &["--", "sh", "-c", script]).status.code();
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("kill -KILL $$"), Some(128 + 9));
    let missing = ended(PAIR, &["--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(2), "{}", missing.said);
    assert!(missing.said.contains("cannot run no-such-program in client"), "{}", missing.said);
}

#[test]
fn a_signal_reaches_the_command() {
    if !can_build() {
        return;
    }
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
    if !can_build() {
        return;
    }
    let (_folder, mut command) = lab_run(PAIR, &["--", "sh", "-c", "echo ready; exec sleep 1000"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert_eq!(said.next().expect("a line").expect("text"), "ready");
    child.kill().expect("runs");
    assert_eq!(child.wait().expect("ends").signal(), Some(9));
    // The command held the other end of the pipe.
    assert!(said.next().is_none());
}

#[test]
fn a_plans_program_serves_the_command_and_ends_with_it() {
    if !can_build() {
        return;
    }
    let linerate = env!("CARGO_BIN_EXE_linerate");
    let state = tempfile::tempdir().expect("a folder");
    let state_path = state.path().display();
    let plan = PAIR.replace(
        "[host.server]\n",
        &format!(
            "[host.server]\nready = 3260\nrun = [\"{linerate}\", \"serve\", \"--volume\", \"v=ram:1MiB\", \
             \"--listen\", \"10.77.0.2:3260\", \"--state\", \"{state_path}\"]\n"
        ),
    );
    let found =
        ended(&plan, &["--counts", "--show", "--", linerate, "discover", "10.77.0.2"]).expect_success();
    assert!(found.contains("iqn."), "{found}");
    assert!(found.contains("host client, 10.77.0.1 on wire"), "{found}");
    assert!(found.contains("net.ipv4.tcp_congestion_control = cubic"), "{found}");
    assert!(found.contains("link wire, client to server: "), "{found}");
}
