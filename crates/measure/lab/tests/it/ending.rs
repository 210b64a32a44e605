//! Tests the end of a lab, and its complete removal.

use std::fs;

use lab::Conditions;

use crate::scene::{host, pair};

#[test]
fn nothing_is_left_of_a_lab_and_the_machines_own_network_is_untouched() {
    let interfaces = || {
        fs::read_to_string("/proc/thread-self/net/dev")
            .expect("reads")
            .contains("ending:")
    };
    let threads = || {
        let names = fs::read_dir("/proc/self/task")
            .expect("reads")
            .filter_map(|task| fs::read_to_string(task.expect("listed").path().join("comm")).ok());
        names.filter(|name| name.trim() == "wire ending").count()
    };
    let mut plan = lab::Plan::pair(Conditions::default());
    plan.links[0].name = "ending".to_owned();
    let Some(lab) = crate::scene::build(&plan) else {
        return;
    };
    while threads() == 0 {
        std::thread::yield_now(); // it takes its name once it runs
    }
    assert!(!interfaces(), "hosts have the interfaces, not the machine");
    drop(lab);
    assert_eq!(threads(), 0);
}

#[test]
fn a_command_says_how_it_ended() {
    let Some(lab) = pair(Conditions::default()) else {
        return;
    };
    let status = host(&lab, "client")
        .command("sh")
        .args(["-c", "exit 7"])
        .status()
        .expect("runs");
    assert_eq!(status.code(), Some(7));
}

#[test]
fn a_host_sees_its_own_interfaces_only() {
    let Some(lab) = pair(Conditions::default()) else {
        return;
    };
    let output = host(&lab, "client")
        .command("ls")
        .arg("/sys/class/net")
        .output()
        .expect("runs");
    let mut names: Vec<_> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|name| !name.is_empty())
        .collect();
    names.sort_unstable();
    assert_eq!(names, [&b"lo"[..], b"wire"]);
}
