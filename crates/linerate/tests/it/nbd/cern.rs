//! Document 004's tests over NBD: rates and the CPU load of both sides, compared with the printed ENBD
//! results.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::Both;
use crate::agents::{Agent, folder, record};
use crate::nbd_client::Foreign;
use crate::program::{LINERATE, installed, linerate, run, says};

/// Runs these suites for a short time, and returns the output.
fn measured(url: &str, suites: &[&str], out: &Path, more: &[&str]) -> String {
    let out = out.to_str().expect("text");
    let mut arguments = vec![
        "bench",
        url,
        "--seconds",
        "0.5",
        "--allow-write",
        "--yes",
        "--out",
        out,
    ];
    suites
        .iter()
        .for_each(|suite| arguments.extend(["--suite", suite]));
    run(LINERATE, &[&arguments, more].concat()).expect_success()
}

/// The values of the first row with this prefix, and of the rows below it.
fn rows<'a>(said: &'a str, name: &str) -> Vec<Vec<&'a str>> {
    let columns = |line: &'a str| {
        line.split("  ")
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .skip(1)
            .collect()
    };
    let lines = said
        .lines()
        .skip_while(|line| !line.trim_start().starts_with(name));
    lines.take(3).map(columns).collect()
}

fn expect_loads(loads: &[&str], cells: usize, said: &str) {
    assert_eq!(loads.len(), cells, "{said}");
    for load in loads {
        let percent = load
            .strip_suffix(" %")
            .and_then(|load| load.parse::<f64>().ok());
        assert!(
            percent.is_some_and(|percent| (0.0..=100.0).contains(&percent)),
            "{load}: {said}"
        );
    }
}

fn expect_both_sides(said: &str, cells: usize) {
    let here = rows(said, "measured here, MB/s");
    assert_eq!(here[0].len(), cells, "{said}");
    here[1..]
        .iter()
        .for_each(|loads| expect_loads(loads, cells, said));
}

#[test]
fn the_load_of_both_sides_stands_beside_that_of_enbd() {
    let both = or_skip!(Both::serving(&["disk=ram:32MiB"], ""));
    let out = TempDir::new().expect("a temporary folder");
    let said = measured(&both.url("disk"), &["cern", "bonnie"], out.path(), &[]);
    let (cern, bonnie) = said.split_at(
        said.rfind("vs document 004")
            .expect("the table of the second suite"),
    );
    expect_both_sides(cern, 3);
    expect_both_sides(bonnie, 2);
    let enbd = rows(cern, "3.2 ENBD one server, MB/s");
    assert_eq!(
        enbd[..2],
        [["19", "28", "19"], ["21 %", "46 %", "30 %"]],
        "{said}"
    );
    let enbd = rows(bonnie, "3.2 ENBD one server, MB/s");
    assert_eq!(enbd[..2], [["27", "28"], ["22 %", "42 %"]], "{said}");
    assert!(
        !said.contains("RAID"),
        "RAID sets are not reached over a network: {said}"
    );
    for suite in ["cern", "bonnie"] {
        let text = |file| fs::read_to_string(out.path().join(suite).join(file)).expect("a report");
        for page in [text("report.md"), text("report.html")] {
            says(
                &page,
                &["3.2 ENBD three servers, MB/s", "CPU load of the server"],
            );
        }
        let cells = text("cells.csv");
        let mut lines = cells
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>());
        let heads = lines.next().expect("a head");
        let at = heads
            .iter()
            .position(|head| *head == "server_cpu_percent")
            .expect("a column");
        lines.for_each(|line| {
            assert!(
                line[at - 1..=at]
                    .iter()
                    .all(|load| load.parse::<f64>().is_ok()),
                "{cells}"
            )
        });
        let record = record(&out.path().join(suite));
        let server = record["runs"][0]["server_cpu"]["of"]
            .as_str()
            .expect("a server");
        assert_eq!(server, format!("linerate (process {})", both.server.pid()));
    }
}

#[test]
fn a_server_of_others_is_found_by_its_socket() {
    needs!(installed(&["nbdkit"]));
    let out = TempDir::new().expect("a temporary folder");
    let by_tcp = Foreign::nbdkit(&["memory", "32M"]);
    expect_both_sides(
        &measured(&by_tcp.url(), &["cern"], &out.path().join("tcp"), &[]),
        3,
    );
    let socket = out.path().join("socket");
    let socket = socket.to_str().expect("text");
    let _by_unix = Foreign::nbdkit_on(socket, &["memory", "32M"]);
    let url = format!("nbd+unix:///?socket={socket}");
    expect_both_sides(&measured(&url, &["cern"], &out.path().join("unix"), &[]), 3);
}

#[test]
fn an_agent_tells_the_load_of_the_machine_that_serves() {
    let both = or_skip!(Both::serving(&["disk=ram:32MiB"], ""));
    let (out, secret) = folder();
    let agent = Agent::start(&secret, &[]);
    let asked = [
        "--server-agent",
        &agent.address,
        "--agent-secret-file",
        secret.to_str().expect("text"),
    ];
    let said = measured(
        &both.url("disk"),
        &["cern"],
        &out.path().join("out"),
        &asked,
    );
    expect_both_sides(&said, 3);
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(
        words.join(" ").contains("Our loads include all programs"),
        "{said}"
    );
    let record = record(&out.path().join("out"));
    for run in record["runs"].as_array().expect("runs") {
        let server = &run["server_cpu"];
        assert_eq!(server["of"], format!("machine {}", agent.address));
        assert!(
            server["machine"]["elapsed_s"].as_f64() > Some(0.0)
                && server["machine"]["cpus"].as_u64() > Some(0),
            "{run}"
        );
    }
    let twice = [&asked[..], &["--agents", &agent.address]].concat();
    let refused = linerate(&[&["bench", "ram:1MiB"], &twice[..]].concat()).expect_failure();
    assert!(refused.contains("accepts only one connection"), "{refused}");
    let for_nobody = linerate(&[&["bench", "ram:1MiB"], &asked[2..]].concat()).expect_failure();
    assert!(for_nobody.contains("--server-agent"), "{for_nobody}");
}
