//! Formats the maximum throughput of a link ([`LinkLimits`](model::limits::LinkLimits)) for users and for
//! programs.

use model::limits::{Block, DirectionLimits, DistanceLimits, DistantBlock, LinkLimits};
use model::link::{FRAMES_PER_ACK, Goodput, Layers, Link};
use model::{Keys, Term};
use readable::figures::{grouped, significant};
use readable::table::{Align, Column, hanging, rows_within};
use serde_json::{Value, json};
use volume::spec::Bytes;

// The numbers as tables for a terminal. Numbers that correspond to document 003's Appendix B have the digits
// printed there.

/// The maximum width of sentences, on any terminal.
const PROSE: usize = 80;
const MB: f64 = 1e6;
const MIB: f64 = 1_048_576.0;

/// Returns the page, in lines of up to `width` letters.
pub fn terminal(answer: &LinkLimits, width: usize) -> String {
    let link = answer.link;
    let mut page = format!(
        "{link}, {}, {}, {}\n\n",
        if link.ipv6 { "IPv6" } else { "IPv4" },
        if link.vlan {
            "with VLAN tag"
        } else {
            "no VLAN tag"
        },
        if link.timestamps {
            "TCP timestamps"
        } else {
            "no TCP timestamps"
        },
    );
    page += &section(&rates(link), width);
    page += &section(&frames(link), width);
    page += &section(&payload(link), width);
    page += &iscsi(answer, width);
    if let Some(far) = &answer.distance {
        page += &print_distance(answer, far, width);
    }
    page
}

/// Formats a table, followed by an empty line. The first row contains the names of the columns, and the first
/// column the names of the rows.
///
/// If there is not enough space, the columns that explain the previous column (`limit`, `waits`) are omitted
/// first.
fn section(rows: &[Vec<String>], width: usize) -> String {
    let heads = rows.first().map_or(&[][..], Vec::as_slice);
    let is_about = |head: &str| ["limit", "waits"].contains(&head);
    let column = |(at, head): (usize, &String)| match at {
        0 => Column {
            align: Align::Left,
            rank: 0,
        },
        _ => Column {
            align: Align::Right,
            rank: if is_about(head) { 2 } else { 1 },
        },
    };
    let columns: Vec<Column> = heads.iter().enumerate().map(column).collect();
    let name = |at: usize| match is_about(&heads[at]) && at > 0 {
        true => format!("{} of {}", heads[at], heads[at - 1]),
        false => heads[at].clone(),
    };
    let names: Vec<String> = (0..heads.len()).map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    rows_within(&columns, rows, &names, width)
        .iter()
        .map(|line| format!("{line}\n"))
        .collect::<String>()
        + "\n"
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn rates(link: Link) -> Vec<Vec<String>> {
    let mut rows = vec![row(["link", "Gbit/s", "Mbit/s", "bit/s", "B/s", "MiB/s"])];
    if let Some(code) = link.line_code() {
        let name = format!("  on the line, {}", code.name);
        rows.push(row([&name, &gigabits(code.bits_per_s), "", "", "", ""]));
    }
    rows.push(row([
        "  net",
        &gigabits(link.bits_per_s),
        &(link.bits_per_s / MB).to_string(),
        &link.bits_per_s.to_string(),
        &link.bytes_per_s().to_string(),
        &format!("{:.2}", link.bytes_per_s() / MIB),
    ]));
    rows
}

/// Formats gigabits with two decimal places, or more if the rate of a line code needs them.
fn gigabits(bits_per_s: f64) -> String {
    let two = format!("{:.2}", bits_per_s / 1e9);
    let all = (bits_per_s / 1e9).to_string();
    if all.len() > two.len() && all.len() <= "10.3125".len() + 2 {
        all
    } else {
        two
    }
}

fn frames(link: Link) -> Vec<Vec<String>> {
    let (data, ack) = (link.data_layers(), link.ack_layers());
    let line = |name: &str, of: fn(&Layers) -> u32| {
        row([name, &of(&data).to_string(), &of(&ack).to_string()])
    };
    let mut rows = vec![
        row(["bytes", "full frame", "ACK"]),
        line("  Ethernet header", |layers| layers.ethernet),
    ];
    if link.vlan {
        rows.push(line("  VLAN tag", |layers| layers.vlan_tag));
    }
    rows.extend([
        line("  IP header", |layers| layers.ip),
        line("  TCP header", |layers| layers.tcp),
        line("  payload", |layers| layers.payload),
        line("  IP packet", |layers| {
            layers.ip + layers.tcp + layers.payload
        }),
        line("  padding", |layers| layers.padding),
        line("  check sequence", |layers| layers.check),
        line("  frame", |layers| layers.frame()),
        line("  preamble and gap", |layers| layers.gap),
        line("  on the wire", |layers| layers.on_the_wire()),
        line("  overhead", |layers| layers.overhead()),
        row(["  frames per ACK", "", &FRAMES_PER_ACK.to_string()]),
    ]);
    rows
}

fn payload(link: Link) -> Vec<Vec<String>> {
    let one = link.payload_per_s();
    let both = link.payload_per_s_both_ways();
    let share = 100.0 * one / link.bytes_per_s();
    let share_both = 100.0 * both / 2.0 / link.bytes_per_s();
    let line = |name: &str, frames: String, bytes_per_s: f64, mib: String, share: Option<f64>| {
        let share = share.map_or_else(String::new, |share| format!("{share:.2} %"));
        row([
            name,
            &frames,
            &format!("{:.2}", bytes_per_s / MB),
            &mib,
            &share,
        ])
    };
    vec![
        row(["TCP payload", "frames/s", "MB/s", "MiB/s", "of the link"]),
        line(
            "  one way",
            format!("{:.1}", link.frames_per_s()),
            one,
            format!("{:.2}", one / MIB),
            Some(share),
        ),
        line(
            "  each direction",
            format!("{:.1}", link.frames_per_s_both_ways()),
            both / 2.0,
            format!("{:.1}", both / 2.0 / MIB),
            Some(share_both),
        ),
        line(
            "  both directions",
            String::new(),
            both,
            format!("{:.2}", both / MIB),
            None,
        ),
    ]
}

fn iscsi(answer: &LinkLimits, width: usize) -> String {
    let mut rows = vec![
        row([
            "iSCSI data",
            "reads",
            "",
            "",
            "writes",
            "",
            "",
            "both ways",
            "",
        ]),
        row([
            "  block", "MB/s", "IOPS", "back", "MB/s", "IOPS", "back", "MB/s", "IOPS",
        ]),
    ];
    rows.extend(answer.blocks.iter().map(print_goodput));
    let status = if answer.status_apart {
        "in a separate PDU"
    } else {
        "with its last data"
    };
    let order = format!(
        "Commands are sent without gaps, and the status of a read is sent {status}. \"back\" is the \
         utilisation of the opposite direction, including acknowledgements."
    );
    let below = [keys(&answer.keys) + ".", order];
    let below = below
        .iter()
        .flat_map(|text| hanging("  ", text, width.min(PROSE)));
    let below: String = below.map(|line| line + "\n").collect();
    section(&rows, width).trim_end().to_owned() + "\n" + &below + "\n"
}

fn print_goodput(block: &Block) -> Vec<String> {
    let rate = |bytes_per_s: f64| format!("{:.2}", bytes_per_s / MB);
    let number = |per_s: f64| grouped(per_s.round() as u64);
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mut cells = vec![format!("  {}", Bytes(block.bytes.into()))];
    for one_way in [&block.reads, &block.writes] {
        cells.extend([
            rate(one_way.bytes_per_s),
            number(one_way.requests_per_s),
            percent(one_way.back),
        ]);
    }
    cells.extend([
        rate(block.both.bytes_per_s),
        number(block.both.requests_per_s),
    ]);
    cells
}

fn keys(keys: &Keys) -> String {
    let digests = match (keys.header_digest, keys.data_digest) {
        (false, false) => "no digests",
        (true, false) => "header digests",
        (false, true) => "data digests",
        (true, true) => "header and data digests",
    };
    let yes_no = |is: bool| if is { "Yes" } else { "No" };
    let size = |bytes: u32| Bytes(bytes.into());
    format!(
        "MaxRecvDataSegmentLength {}, ImmediateData={}, InitialR2T={}, FirstBurstLength {}, MaxBurstLength {}, MaxOutstandingR2T {}, {digests}",
        size(keys.target_segment_bytes),
        yes_no(keys.immediate_data),
        yes_no(keys.initial_r2t),
        size(keys.first_burst_bytes),
        size(keys.max_burst_bytes),
        keys.outstanding_r2ts,
    )
}

fn print_distance(answer: &LinkLimits, far: &DistanceLimits, width: usize) -> String {
    let asked = &far.asked;
    let mut page = format!(
        "At a round trip of {} ms, a TCP window of {} MB ({} MiB) fills the link.\n",
        milliseconds(asked.round_trip_s),
        significant(far.window_bytes / MB),
        significant(far.window_bytes / MIB)
    );
    if let Some(window) = asked.window_bytes {
        let window = Bytes(window.into());
        let who = match asked.connections {
            1 => format!("A window of {window} carries"),
            more => format!("{more} connections with windows of {window} carry"),
        };
        page += &format!(
            "{who} {} MB/s of TCP payload, {:.1} % of the link's maximum.\n",
            significant(far.tcp_per_s / MB),
            100.0 * far.tcp_per_s / answer.link.payload_per_s(),
        );
    }
    let prose = page
        .lines()
        .flat_map(|line| hanging("", line, width.min(PROSE)));
    let mut page = prose.map(|line| line + "\n").collect::<String>() + "\n";
    let names = std::iter::once("reads").chain(answer.write_modes.iter().copied());
    page += &section(&to_fill(names.clone(), &far.blocks), width);
    if asked.is_limited() {
        page += &section(&what_comes(names, far), width);
    }
    page
}

fn milliseconds(seconds: f64) -> String {
    // Times are specified in whole nanoseconds, so show no further digits.
    ((seconds * 1e9).round() / 1e6).to_string()
}

/// Returns the number of outstanding requests that fills the link, and the number of times that each request
/// waits for the peer.
fn to_fill<'a>(names: impl Iterator<Item = &'a str>, blocks: &[DistantBlock]) -> Vec<Vec<String>> {
    let mut head = vec!["depth to fill it".to_owned()];
    names.for_each(|name| head.extend([name.to_owned(), "waits".to_owned()]));
    let cells = |way: &DirectionLimits| {
        let depth = way
            .depth
            .map_or_else(|| "never".to_owned(), |depth| grouped(depth.into()));
        [depth, way.exchanges.to_string()]
    };
    let row = |block: &DistantBlock| {
        let name = format!("  {}", Bytes(block.bytes.into()));
        std::iter::once(name)
            .chain(block.ways.iter().flat_map(cells))
            .collect()
    };
    std::iter::once(head)
        .chain(blocks.iter().map(row))
        .collect()
}

/// Returns the results for the given window and depth, each with the name of its limit.
fn what_comes<'a>(names: impl Iterator<Item = &'a str>, far: &DistanceLimits) -> Vec<Vec<String>> {
    let with = far.asked.depth.map_or("MB/s".to_owned(), |depth| {
        format!("MB/s at depth {}", grouped(depth.into()))
    });
    let mut head = vec![with];
    names.for_each(|name| head.extend([name.to_owned(), "limit".to_owned()]));
    let cells = |way: &DirectionLimits| {
        let limit = way.prediction.binding().map_or("none", limit);
        [
            significant(way.prediction.bytes_per_s / MB),
            limit.to_owned(),
        ]
    };
    let row = |block: &DistantBlock| {
        let name = format!("  {}", Bytes(block.bytes.into()));
        std::iter::once(name)
            .chain(block.ways.iter().flat_map(cells))
            .collect()
    };
    std::iter::once(head)
        .chain(far.blocks.iter().map(row))
        .collect()
}

/// Returns the name of a limit. Limits of the two ends do not occur here.
fn limit(term: Term) -> &'static str {
    match term {
        Term::Link => "link",
        Term::Window => "window",
        Term::Depth => "depth",
        Term::WritesUnderWay | Term::Exchanges | Term::Medium => "ends",
    }
}

// The numbers as JSON. Every name ends with the unit.

/// Returns all numbers, in bytes, bits and seconds.
///
/// # Errors
/// There are none in practice. JSON cannot represent infinity, which is written as `null`.
pub fn json(answer: &LinkLimits) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&value(answer)).map(|text| text + "\n")
}

fn value(answer: &LinkLimits) -> Value {
    let link = answer.link;
    let code = link.line_code();
    json!({
        "version": 1,
        "link_bits_per_s": link.bits_per_s,
        "link_bytes_per_s": link.bytes_per_s(),
        "line_code": code.map(|code| code.name),
        "line_bits_per_s": code.map(|code| code.bits_per_s),
        "mtu_bytes": link.mtu,
        "vlan": link.vlan,
        "ipv6": link.ipv6,
        "timestamps": link.timestamps,
        "frame": layers(link.data_layers()),
        "ack": layers(link.ack_layers()),
        "frames_per_ack": FRAMES_PER_ACK,
        "one_way": { "frames_per_s": link.frames_per_s(), "payload_bytes_per_s": link.payload_per_s() },
        "both_ways": {
            "frames_per_s_each_way": link.frames_per_s_both_ways(),
            "payload_bytes_per_s": link.payload_per_s_both_ways(),
        },
        "keys": answer.keys,
        "status_apart": answer.status_apart,
        "blocks": answer.blocks.iter().map(block).collect::<Vec<_>>(),
        "distance": answer.distance.as_ref().map(|far| json_distance(answer, far)),
    })
}

fn layers(layers: Layers) -> Value {
    json!({
        "ethernet_bytes": layers.ethernet,
        "vlan_tag_bytes": layers.vlan_tag,
        "ip_bytes": layers.ip,
        "tcp_bytes": layers.tcp,
        "payload_bytes": layers.payload,
        "padding_bytes": layers.padding,
        "check_bytes": layers.check,
        "frame_bytes": layers.frame(),
        "gap_bytes": layers.gap,
        "on_the_wire_bytes": layers.on_the_wire(),
        "overhead_bytes": layers.overhead(),
    })
}

fn block(block: &Block) -> Value {
    json!({
        "block_bytes": block.bytes,
        "reads": json_goodput(block.reads),
        "writes": json_goodput(block.writes),
        "both": json_goodput(block.both),
    })
}

fn json_goodput(goodput: Goodput) -> Value {
    json!({
        "bytes_per_s": goodput.bytes_per_s,
        "requests_per_s": goodput.requests_per_s,
        "back_percent": 100.0 * goodput.back,
    })
}

fn json_distance(answer: &LinkLimits, far: &DistanceLimits) -> Value {
    json!({
        "round_trip_s": far.asked.round_trip_s,
        "window_to_fill_bytes": far.window_bytes,
        "window_bytes": far.asked.window_bytes,
        "connections": far.asked.connections,
        "depth_requests": far.asked.depth,
        "tcp_payload_bytes_per_s": far.tcp_per_s,
        "blocks": far.blocks.iter().map(|block| far_block(answer, block)).collect::<Vec<_>>(),
    })
}

fn far_block(answer: &LinkLimits, block: &DistantBlock) -> Value {
    let names = std::iter::once("reads").chain(answer.write_modes.iter().copied());
    let ways: serde_json::Map<String, Value> = names
        .zip(&block.ways)
        .map(|(name, to)| (name.to_owned(), way(to)))
        .collect();
    json!({ "block_bytes": block.bytes, "ways": ways })
}

fn way(way: &DirectionLimits) -> Value {
    json!({
        "exchanges": way.exchanges,
        "depth_to_fill_requests": way.depth,
        "bytes_per_s": way.prediction.bytes_per_s,
        "latency_alone_s": way.prediction.alone_s,
        "limit": way.prediction.binding(),
    })
}
