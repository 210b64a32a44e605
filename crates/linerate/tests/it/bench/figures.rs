//! Tests that compare results with independent values: the kernel's counters, the target's counters, and
//! arithmetic.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Scene, bench, number, record, runs};
use crate::attach_disk::{Loop, loops_possible};
use crate::server::Server;

/// Requests and bytes read from and written to a block device, as counted by the kernel
/// (Documentation/admin-guide/iostats.rst).
fn diskstats(device: &str) -> [u64; 4] {
    let name = device.trim_start_matches("/dev/");
    let stat = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("a block device");
    let fields: Vec<u64> = stat
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    [fields[0], fields[2] * 512, fields[4], fields[6] * 512]
}

fn counted(run: &Value) -> [u64; 4] {
    let sum = |direction: &str, what: &str| {
        let clients = run["clients"].as_array().expect("clients");
        clients
            .iter()
            .map(|client| client["run"][direction][what].as_u64().expect("a number"))
            .sum()
    };
    [
        sum("reads", "ios"),
        sum("reads", "bytes"),
        sum("writes", "ios"),
        sum("writes", "bytes"),
    ]
}

/// The kernel also counts requests that had not completed at the end of the time: at most the queue depth.
/// udev reads from a device that was written, and Linerate reads from a device before it writes. Reads are
/// therefore counted on a read-only device.
#[test]
fn a_block_device_has_seen_the_requests_that_are_told() {
    const DEPTH: u64 = 4;
    const BLOCK: u64 = 8192;
    if !loops_possible(&[]) {
        return;
    }
    let scene = Scene::new();
    let image = scene.image("disk.img", 64);
    let device = Loop::over(Path::new(&image), &[]);
    let arguments = [
        device.name(),
        "--block",
        "8KiB",
        "--depth",
        "4",
        "--seconds",
        "0.5",
    ];
    for (name, more, direction) in [
        ("reads", &[][..], [0, 1]),
        ("writes", &["--read", "0", "--allow-write", "--yes"], [2, 3]),
    ] {
        let out = scene.text(name);
        let before = diskstats(device.name());
        bench(&[&arguments[..], more, &["--out", &out]].concat()).expect_success();
        let after = diskstats(device.name());
        let told = counted(&runs(&record(Path::new(&out)))[0]);
        for (index, unit) in direction.into_iter().zip([1, BLOCK]) {
            let seen = after[index] - before[index];
            let possible = told[index]..=told[index] + DEPTH * unit;
            assert!(
                told[index] > 0 && possible.contains(&seen),
                "{name}: {seen} seen, {} told",
                told[index]
            );
        }
    }
}

/// The rate times the latency is the number of outstanding requests (Little's law). This number includes the
/// requests outstanding at the end of the time, whose latency is unknown. If the machine stalls at that
/// moment, the result is wrong by the length of the stall, which is short compared with the four seconds of
/// the test.
#[test]
fn littles_law_holds_and_no_more_is_under_way_than_asked_for() {
    let server = Server::serving(&["disk=ram:64MiB"]);
    let scene = Scene::new();
    for depth in [1_u32, 8, 32] {
        let out = scene.text(&format!("out-{depth}"));
        bench(&[
            &server.url("disk"),
            "--depth",
            &depth.to_string(),
            "--seconds",
            "4",
            "--out",
            &out,
        ])
        .expect_success();
        let record = record(Path::new(&out));
        let run = &runs(&record)[0]["clients"][0]["run"];
        let (seconds, under_way) = (number(&run["seconds"]), number(&run["under_way_mean"]));
        let latencies = run["reads"]["service"].as_array().expect("a histogram");
        let sum_s: f64 = latencies
            .iter()
            .map(|pair| number(&pair[0]) * number(&pair[1]) / 1e9)
            .sum();
        let count: f64 = latencies.iter().map(|pair| number(&pair[1])).sum();
        assert_eq!(count, number(&run["reads"]["ios"]));
        assert!(
            under_way <= f64::from(depth) * 1.001,
            "{under_way} of {depth}"
        );
        let expected = sum_s / seconds; // (count / seconds) × (sum / count)
        assert!(
            (expected / under_way - 1.0).abs() < 0.05,
            "{expected} by Little's law, {under_way} measured"
        );
    }
}

#[test]
fn clients_and_sessions_add_up_to_what_their_target_counted() {
    let server = Server::serving(&["disk=ram:64MiB"]);
    let scene = Scene::new();
    let out = scene.text("out");
    let arguments = [
        "--clients",
        "3",
        "--sessions",
        "2",
        "--depth",
        "4",
        "--seconds",
        "0.5",
        "--statistics",
    ];
    bench(
        &[
            &[server.url("disk").as_str()],
            &arguments[..],
            &["--out", &out],
        ]
        .concat(),
    )
    .expect_success();
    let record = record(Path::new(&out));
    let clients = runs(&record)[0]["clients"].as_array().expect("clients");
    assert_eq!(clients.len(), 3);
    for client in clients {
        let ios = client["run"]["reads"]["ios"].as_u64().expect("a number");
        let sessions = client["sessions"].as_array().expect("sessions");
        assert_eq!(sessions.len(), 2);
        let commands: u64 = sessions
            .iter()
            .filter_map(|session| session["read"]["commands"].as_u64())
            .sum();
        // Each of two sessions has up to four outstanding requests at each end of the counted time.
        assert!(
            (ios..=ios + 2 * 2 * 4).contains(&commands),
            "{ios} requests, {commands} commands"
        );
    }
}

#[test]
fn samples_are_the_run_in_pieces() {
    let scene = Scene::new();
    let out = scene.text("out");
    bench(&[
        "ram:64MiB",
        "--read",
        "70",
        "--allow-write",
        "--seconds",
        "1",
        "--out",
        &out,
    ])
    .expect_success();
    let record = record(Path::new(&out));
    let run = &runs(&record)[0]["clients"][0]["run"];
    let samples = run["samples"].as_array().expect("samples");
    assert!(samples.len() >= 5, "{}", samples.len());
    for (of_samples, of_run) in [("reads", "reads"), ("writes", "writes")] {
        let sum: u64 = samples
            .iter()
            .filter_map(|sample| sample[of_samples].as_u64())
            .sum();
        assert_eq!(Some(sum), run[of_run]["ios"].as_u64());
    }
    let seconds: f64 = samples
        .iter()
        .map(|sample| number(&sample["seconds"]))
        .sum();
    assert!(
        (seconds / number(&run["seconds"]) - 1.0).abs() < 0.01,
        "{seconds} {}",
        run["seconds"]
    );
}
