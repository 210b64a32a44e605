//! The measurements of a server without faults.

use serde_json::Value;

use super::{diagnose, diagnose_for, evidence, median_us, parsed, why_not};
use crate::server::Server;

const RUNGS: [&str; 4] = ["nop", "test_unit_ready", "cached_read", "medium_read"];
const WRITES: [&str; 4] = ["write", "durable_write", "flush", "short_write"];

#[test]
fn every_layer_is_measured() {
    let server = Server::serving(&["disk=ram:256MiB"]);
    let found = evidence(&server.url("disk"), &["--allow-write", "--link", "1Gbit/s"]);
    let ladder = &found["ladder"];
    for rung in RUNGS.iter().chain(&WRITES).filter(|_| server.is_ours()) {
        let (timed, median) = (&ladder[rung]["measured"], median_us(&ladder[rung]));
        assert!(median > 0.0, "{rung}");
        assert!(
            timed["low_us"].as_f64() <= Some(median) && timed["high_us"].as_f64() >= Some(median),
            "{timed}"
        );
        assert!(
            timed["times"]
                .as_array()
                .is_some_and(|times| times.len() > 1),
            "{rung}: {timed}"
        );
    }
    let lengths = |rungs: &Value| -> Vec<u64> {
        let rungs = rungs.as_array().expect("rungs").iter();
        rungs
            .filter(|rung| median_us(&rung[1]) > 0.0)
            .filter_map(|rung| rung[0].as_u64())
            .collect()
    };
    assert_eq!(lengths(&ladder["nop_with_data"]), [512, 4096, 8192]);
    assert_eq!(
        lengths(&ladder["cached_reads"]),
        [4096, 16_384, 65_536, 262_144]
    );
    assert_eq!(lengths(&ladder["writes"]), [4096, 16_384, 65_536, 262_144]);
    assert!(median_us(&found["connect"]) > 0.0);
    assert_eq!(found["expected_link_bits_per_s"], 1e9);
    assert_eq!(found["link"]["measured"]["interface"], "lo");
    assert_eq!(found["link"]["measured"]["loopback"], true);
    let path = &found["paths"][0];
    assert!(
        path["round_trip_us"].as_f64() > Some(0.0) && median_us(&path["nop"]) > 0.0,
        "{path}"
    );
    assert_eq!(found["storage"]["bytes"], 256 << 20);
    assert_eq!(found["storage"]["physical_block_bytes"], 4096);
    assert_eq!(found["long_packets"], Value::Null);
    assert!(!found["place"].as_str().expect("a place").contains('?'));
}

#[test]
fn loads_tell_where_their_time_went_and_whose_cpu_it_was() {
    let server = Server::serving(&["disk=ram:64MiB"]);
    let own = [
        "--block",
        "128KiB",
        "--depth",
        "8",
        "--write",
        "--sequential",
        "--allow-write",
        "--yes",
    ];
    let url = format!("{}?immediate-data=no&initial-r2t=yes", server.url("disk"));
    // On a busy machine, a short round can end before its first completion. Measure longer until every load
    // has completed requests.
    let mut lengths = (0..7).map(|doublings| parsed(diagnose_for(1 << doublings, &url, &own)));
    let found = lengths
        .find(every_load_has_run)
        .expect("answers in each of the rounds of two seconds");
    let loads = found["loads"].as_array().expect("loads");
    assert_eq!(
        (loads.len(), &loads[0]["named"], &loads[1]["named"]),
        (7, &true.into(), &false.into())
    );
    let own = &loads[0];
    assert_eq!(own["load"]["block_bytes"], 128 << 10);
    assert!(
        own["r2ts_per_command"].as_f64() > Some(0.5),
        "all of it was asked for: {own}"
    );
    assert!(own["parts"]["r2t_us"].as_f64() > Some(0.0), "{own}");
    assert_eq!(found["got"]["immediate_data"], false);
    for load in loads {
        assert_eq!(
            (&load["errors"], &load["first_failure"]),
            (&0.into(), &Value::Null),
            "{load}"
        );
        let depth = load["load"]["depth"].as_f64().expect("a depth");
        let under_way = load["under_way"].as_f64().expect("a mean");
        assert!(
            under_way > 0.0 && under_way <= depth,
            "{under_way} of {depth}"
        );
        let path = &load["paths"][0];
        let moved = path["sent_bytes"]
            .as_u64()
            .zip(path["received_bytes"].as_u64())
            .expect("bytes");
        let reads = load["load"]["direction"] == "read";
        assert!(
            if reads {
                moved.1 > moved.0
            } else {
                moved.0 > moved.1
            },
            "{path}"
        );
        assert!(load["client_busy"].as_f64() > Some(0.0));
        assert!(
            load["server_busy"].is_number(),
            "the server is a process of this machine: {load}"
        );
    }
}

fn every_load_has_run(found: &Value) -> bool {
    let loads = found["loads"].as_array().expect("loads");
    loads.iter().all(|load| {
        let rounds = load["bytes_per_s"].as_array().expect("rounds");
        rounds.len() >= 3 && rounds.iter().all(|rate| rate.as_f64() > Some(0.0))
    })
}

#[test]
fn several_connections_are_told_apart() {
    let server = Server::serving(&["disk=ram:64MiB"]);
    let found = evidence(&format!("{}?connections=3", server.url("disk")), &[]);
    let paths = found["paths"].as_array().expect("paths");
    let cids: Vec<_> = paths
        .iter()
        .filter_map(|path| path["cid"].as_u64())
        .collect();
    assert_eq!(
        cids,
        if server.is_ours() {
            vec![0, 1, 2]
        } else {
            vec![0]
        }
    );
    assert!(paths.iter().all(|path| median_us(&path["nop"]) > 0.0));
    assert_eq!(
        found["loads"][0]["paths"].as_array().map(Vec::len),
        Some(paths.len())
    );
}

#[test]
fn a_lun_that_is_too_small_for_a_layer_says_so() {
    let server = Server::serving(&["disk=ram:32KiB?physical=512"]);
    let found = evidence(&server.url("disk"), &["--allow-write"]);
    let ladder = &found["ladder"];
    assert!(
        why_not(&ladder["medium_read"]).contains("no unread blocks left"),
        "{ladder}"
    );
    assert!(
        why_not(&ladder["short_write"]).contains("physical block"),
        "{ladder}"
    );
    assert!(
        why_not(&ladder["cached_reads"][3][1]).contains("smaller"),
        "{ladder}"
    );
    assert!(median_us(&ladder["write"]) > 0.0);
    assert!(
        found["loads"]
            .as_array()
            .is_some_and(|loads| loads.len() == 4),
        "those that fit: {found}"
    );
}

#[test]
fn what_cannot_be_asked_is_refused_before_anything_is() {
    let server = Server::serving(&["disk=ram:1MiB", "kept=ram:1MiB?read-only"]);
    let refused =
        |volume: &str, options: &[&str]| diagnose(&server.url(volume), options).expect_failure();
    assert!(refused("disk", &["--write"]).contains("--allow-write"));
    assert!(refused("disk", &["--block", "2MiB"]).contains("are not possible on the storage"));
    assert!(refused("disk", &["--block", "1000B"]).contains("blocks of 512"));
    assert!(refused("disk", &["--allow-write=512KiB..2MiB"]).contains("beyond the end"));
    assert!(refused("disk", &["--link", "fast"]).contains("2.5Gbit/s"));
    if server.is_ours() {
        assert!(refused("kept", &["--allow-write"]).contains("write-protected"));
    }
    assert!(
        diagnose("ram:1MiB", &[])
            .expect_failure()
            .contains("iscsi://")
    );
}
