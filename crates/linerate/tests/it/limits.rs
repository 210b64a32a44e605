//! `linerate diagnose limits` compared with document 003's Appendix B: the real binary prints each of its
//! derived numbers exactly.

use published::{Row, rows};

use crate::program::{Ended, linerate};

fn limits(arguments: &[&str]) -> Ended {
    linerate(&[&["diagnose", "limits"], arguments].concat())
}

/// A cell of a table in the output: in the row with this prefix, in the column with this heading.
fn cell(page: &str, table: &str, row: &str, column: &str) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let head = lines
        .iter()
        .position(|line| line.starts_with(table))
        .unwrap_or_else(|| panic!("no {table}: {page}"));
    let line = lines[head..]
        .iter()
        .take_while(|line| !line.is_empty())
        .find(|line| line.trim_start().starts_with(row))
        .unwrap_or_else(|| panic!("no {row} in {table}: {page}"));
    // Numbers are aligned with the end of their heading.
    let end = lines[head]
        .find(column)
        .unwrap_or_else(|| panic!("no {column}: {}", lines[head]))
        + column.len();
    let cell = &line[..end.min(line.len())];
    cell.rsplit("  ").next().unwrap_or(cell).trim().to_owned()
}

/// The position of a number of the appendix in the tables: table, row, column. `None` if nothing is derived
/// from it.
fn place(row: &Row) -> (&'static str, &'static str, &'static str) {
    const FRAME: &str = "bytes";
    const TCP: &str = "TCP payload";
    match (row.table.as_str(), row.metric.as_str()) {
        (_, "raw_link_bandwidth") => ("link", "on the line", "Gbit/s"),
        (_, "net_rate_8b10b") => ("link", "net", "Gbit/s"),
        (_, "net_rate_mbit") => ("link", "net", "Mbit/s"),
        (_, "net_rate_bits") => ("link", "net", " bit/s"),
        (_, "net_rate_bytes") => ("link", "net", " B/s"),
        (_, "net_rate") => ("link", "net", "MiB/s"),
        (_, "total_bytes_per_frame" | "frame_total") => (FRAME, "on the wire", "full frame"),
        (_, "iscsi_overhead_per_frame" | "tcp_overhead_total") => (FRAME, "overhead", "full frame"),
        (_, "data_payload_per_frame") => (FRAME, "payload", "full frame"),
        (_, "payload_percentage") => (TCP, "one way", "of the link"),
        (_, "data_rate_without_acks") => (TCP, "one way", "MiB/s"),
        (_, "frames_per_second_no_acks") => (TCP, "one way", "frames/s"),
        (_, "frames_per_ack") => (FRAME, "frames per ACK", "ACK"),
        (_, "frames_per_second_with_acks") => (TCP, "each direction", "frames/s"),
        (_, "data_rate_2_frames_per_ack") => (TCP, "each direction", "MiB/s"),
        (_, "bidirectional_rate") => (TCP, "both directions", "MiB/s"),
        (_, "eth_mtu") => (FRAME, "IP packet", "full frame"),
        (_, "eth_header" | "tcp_overhead_ethernet") => (FRAME, "Ethernet header", "full frame"),
        (_, "eth_crc" | "tcp_overhead_crc") => (FRAME, "check sequence", "full frame"),
        (_, "eth_ifg_preamble" | "tcp_overhead_ifg") => (FRAME, "preamble and gap", "full frame"),
        (_, "tcp_overhead_ip") => (FRAME, "IP header", "full frame"),
        (_, "tcp_overhead_tcp") => (FRAME, "TCP header", "full frame"),
        (_, "ack_ethernet") => (FRAME, "Ethernet header", "ACK"),
        (_, "ack_ip") => (FRAME, "IP header", "ACK"),
        (_, "ack_tcp") => (FRAME, "TCP header", "ACK"),
        (_, "ack_pad") => (FRAME, "padding", "ACK"),
        (_, "ack_crc") => (FRAME, "check sequence", "ACK"),
        (_, "ack_total") => (FRAME, "frame", "ACK"),
        (_, "ack_ifg") => (FRAME, "preamble and gap", "ACK"),
        (_, "ack_total_on_wire") => (FRAME, "on the wire", "ACK"),
        ("Appendix B summary", "payload_bandwidth") => match row.direction {
            Some(published::Direction::Bidirectional) => (TCP, "both directions", "MiB/s"),
            _ => (TCP, "one way", "MiB/s"),
        },
        (table, metric) => panic!("{table} has a figure {metric} that is never checked"),
    }
}

#[test]
fn every_figure_of_appendix_b_is_printed_as_it_stands_there() {
    // The link of the document: a gigabit without tags and timestamps.
    let page = limits(&["--link", "1G", "--mtu", "1500"]).expect_success();
    let appendix: Vec<&Row> = rows()
        .iter()
        .filter(|row| row.document == "003" && row.table.starts_with("Appendix B"))
        .collect();
    assert_eq!(appendix.len(), 37);
    for row in appendix {
        let (table, line, column) = place(row);
        assert_eq!(
            cell(&page, table, line, column).trim_end_matches(" %"),
            row.printed,
            "{}: {page}",
            row.metric
        );
    }
}

#[test]
fn the_same_figures_are_in_the_json_with_their_units() {
    let said = limits(&[
        "--link", "1Gbit/s", "--rtt", "50ms", "--block", "64KiB", "--json",
    ])
    .expect_success();
    let value: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(value["link_bits_per_s"], 1e9);
    assert_eq!(value["frame"]["on_the_wire_bytes"], 1538);
    assert_eq!(value["ack"]["on_the_wire_bytes"], 84);
    let frames = value["both_ways"]["frames_per_s_each_way"]
        .as_f64()
        .expect("a number");
    assert_eq!(format!("{frames:.1}"), "79113.9");
    let ways = &value["distance"]["blocks"][0]["ways"];
    assert_eq!(
        (&ways["reads"]["exchanges"], &ways["solicited"]["exchanges"]),
        (&1.into(), &2.into())
    );
    let depth = |way: &str| {
        ways[way]["depth_to_fill_requests"]
            .as_u64()
            .expect("a depth")
    };
    assert!(depth("solicited") > depth("unsolicited") && depth("unsolicited") >= depth("reads"));
}

#[test]
fn a_status_of_its_own_costs_short_reads_most() {
    let iops = |more: &[&str]| {
        let said = limits(&[&["--block", "512", "--json"], more].concat()).expect_success();
        let value: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let of = |way: &str| {
            value["blocks"][0][way]["requests_per_s"]
                .as_f64()
                .expect("a number")
        };
        (of("reads"), of("writes"))
    };
    let (together, apart) = (iops(&[]), iops(&["--status-apart"]));
    assert_eq!(together.1, apart.1);
    // A separate response takes 48 more bytes for each 560.
    assert!(
        (together.0 / apart.0 - 608.0 / 560.0).abs() < 1e-9,
        "{together:?} {apart:?}"
    );
}

#[test]
fn from_10_megabits_to_800_gigabits_there_is_an_answer() {
    for link in [
        "10M", "100M", "1G", "2.5G", "10G", "25G", "40G", "100G", "400G", "800G",
    ] {
        let page = limits(&[
            "--link",
            link,
            "--timestamps",
            "--vlan",
            "--ipv6",
            "--mtu",
            "9000",
            "--rtt",
            "1ms",
        ]);
        let page = page.expect_success();
        assert_eq!(
            cell(&page, "TCP payload", "one way", "of the link"),
            "98.74 %",
            "{link}: {page}"
        );
    }
}

#[test]
fn what_cannot_be_is_refused_in_a_sentence() {
    for (arguments, sentence) in [
        (&["--segment", "64X"][..], "unknown unit `X`"),
        (
            &["--link", "125MB/s"],
            "is in bytes; specify the rate of a link in bits per second",
        ),
        (
            &["--link", "0"],
            "is out of range; use 10kbit/s to 10Tbit/s",
        ),
        (&["--mtu", "40"], "40 is not in 68..=65535"),
        (
            &["--ipv6", "--mtu", "576"],
            "IPv6 needs an MTU of at least 1280 bytes, and --mtu is 576",
        ),
        (
            &["--first-burst", "1MiB"],
            "FirstBurstLength of 1MiB exceeds the MaxBurstLength of 256KiB",
        ),
        (
            &["--block", "4KiB,0"],
            "the block size ranges from 1B to 1GiB",
        ),
        (&["--window", "64KiB"], "--rtt"),
        (&["--rtt", "50m"], "write a number and a unit"),
        (&["--initial-r2t", "perhaps"], "possible values: yes, no"),
    ] {
        let Ended { status, said } = limits(arguments);
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains(sentence), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}
