//! Volumes of known behaviour, and the notes on a measurement. A busy machine may make everything later than
//! expected, but never earlier: the upper bounds are wide. The crate `bench` tests the exact values on a
//! virtual clock.

use std::path::Path;

use serde_json::Value;

use super::{Scene, bench, number, record, runs};
use crate::server::Server;

fn json(arguments: &[&str]) -> Value {
    bench(&[arguments, &["--json"]].concat()).expect_json_line()
}

fn latency_us(told: &Value, percentile: &str) -> f64 {
    number(&told["latency_us"][percentile])
}

#[test]
fn a_limited_volume_gives_its_rate_through_iscsi_and_no_more() {
    let server = Server::serving(&["disk=limit:200iops:[ram:16MiB]"]);
    let told = json(&[&server.url("disk"), "--depth", "4", "--seconds", "2"]);
    let iops = number(&told["iops"]);
    assert!((100.0..=204.0).contains(&iops), "{told}");
    assert!(
        latency_us(&told, "p50") >= 19_900.0,
        "four outstanding, 5 ms each: {told}"
    );
}

#[test]
fn a_tail_is_at_its_percentile() {
    let volume = "delay:2ms:[null:1GiB]?tail=40ms&tail-share=2%";
    let told = json(&[volume, "--depth", "16", "--seconds", "1.5"]);
    assert!(
        (2_000.0..40_000.0).contains(&latency_us(&told, "p50")),
        "{told}"
    );
    assert!(latency_us(&told, "p99") >= 40_000.0, "{told}");
}

#[test]
fn a_stall_shows_in_an_open_loop_and_hides_from_a_closed_one() {
    let volume = "delay:1ms:[null:1GiB]?stall=500ms&stall-every=1s";
    let open = json(&[
        volume,
        "--rate",
        "200",
        "--depth",
        "400",
        "--seconds",
        "1.9",
    ]);
    assert!(latency_us(&open, "p99") > 400_000.0, "{open}");
    let closed = json(&[volume, "--depth", "1", "--seconds", "1.9"]);
    assert!(latency_us(&closed, "p99") < 400_000.0, "{closed}");
    assert!(latency_us(&closed, "max") > 400_000.0, "{closed}");
}

#[test]
fn what_is_written_behind_is_verified_and_counted() {
    let volume = "buffered:64KiB:[ram:16MiB]";
    let told = json(&[
        volume,
        "--read",
        "50",
        "--allow-write",
        "--verify",
        "--depth",
        "8",
        "--seconds",
        "0.5",
    ]);
    assert_eq!(
        [&told["errors"], &told["mismatches"]].map(Value::as_u64),
        [Some(0), Some(0)],
        "{told}"
    );
    assert!(number(&told["ios"]) > 0.0);
}

#[test]
fn a_record_knows_the_way_the_terms_and_who_served() {
    let server = Server::serving(&["disk=ram:16MiB"]);
    let scene = Scene::new();
    let out = scene.text("out");
    bench(&[&server.url("disk"), "--seconds", "0.5", "--out", &out]).expect_success();
    let record = record(Path::new(&out));
    let facts = record["environment"].as_array().expect("facts");
    let fact = |group: &str, name: &str| {
        let fact = facts
            .iter()
            .find(|fact| fact["group"] == group && fact["name"] == name);
        fact.and_then(|fact| fact["value"].as_str())
            .unwrap_or_else(|| panic!("no {name} in {facts:?}"))
    };
    assert!(fact("client", "kernel").starts_with("Linux "));
    assert_eq!(
        fact("network", "interface"),
        "lo: the target is on this machine"
    );
    assert_eq!(fact("network", "target"), server.portal());
    assert_eq!(fact("negotiated", "InitialR2T"), "No");
    assert!(fact("storage", "capacity").starts_with("16MiB"));
    if server.is_ours() {
        let cpu = &runs(&record)[0]["server_cpu"];
        assert!(
            cpu["of"]
                .as_str()
                .is_some_and(|of| of.starts_with("linerate (process ")),
            "{cpu}"
        );
        assert!(number(&cpu["seconds"]) > 0.0, "{cpu}");
    }
}
