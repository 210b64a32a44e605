//! `linerate bench`, and the statistics of its sessions.

use crate::program::{LINERATE, linerate, run, says};
use crate::server::Server;

#[test]
fn statistics_tell_where_the_time_of_the_commands_went() {
    let server = Server::serving(&["disk=ram:16MiB"]);
    let url = server.url("disk");
    let said = linerate(&["bench", &url, "--seconds", "1", "--statistics"]).expect_success();
    for word in [
        "IOPS",
        "p99.9",
        "read ",
        "  answer",
        "PDUs per read",
        "connection 0  127.0.0.1",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// No request completes during the counted time, and requests wait longer than usual.
#[test]
fn a_run_in_which_nothing_completes_has_failed_and_says_that_requests_wait() {
    let ended = linerate(&[
        "bench",
        "delay:6s:[ram:16MiB]",
        "--seconds",
        "0.5",
        "--json",
    ]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.said);
    let line = ended
        .said
        .lines()
        .find(|line| line.starts_with('{'))
        .expect("a line of JSON");
    let told: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(
        (&told["ios"], &told["latency_us"]["p50"]),
        (&0.into(), &serde_json::Value::Null)
    );
    assert!(line.contains("\"nothing_completed\""), "{line}");
    says(&ended.said, &["requests have been waiting for 3 s"]);
}

#[test]
fn programs_get_the_statistics_of_each_session_if_they_ask() {
    let server = Server::serving(&["disk=ram:16MiB"]);
    let url = server.url("disk");
    let asked = ["bench", &url, "--seconds", "1", "--sessions", "2", "--json"];
    let plain = run(LINERATE, &asked).expect_json_line();
    assert!(plain["sessions"].is_null());
    let asked: Vec<&str> = asked.into_iter().chain(["--statistics"]).collect();
    let told = run(LINERATE, &asked).expect_json_line();
    let sessions = told["sessions"].as_array().expect("a list");
    let reads: u64 = sessions
        .iter()
        .filter_map(|session| session["read"]["commands"].as_u64())
        .sum();
    assert!(
        sessions.len() == 2 && reads >= told["ios"].as_u64().expect("a number"),
        "{told}"
    );
    assert_eq!(
        sessions[0]["connections"][0]["path"]["congestion"],
        told["congestion"]
    );
}
