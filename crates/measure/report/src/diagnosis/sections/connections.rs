//! The way: the interface, and every connection at rest and under load.

use crate::diagnosis::gain::percent;
use crate::diagnosis::words;
use crate::document::{Block, Section, Table};
use diagnose::{Evidence, Known, LinkLayer, LoadRun, PathUnderLoad};
use readable::figures::{grouped, latency, megabytes, size};

pub(super) fn section(evidence: &Evidence) -> Option<Section> {
    let mut blocks = vec![Block::Text(link(&evidence.link))];
    blocks.extend(words::long_packets(evidence).map(Block::Text));
    if !evidence.paths.is_empty() {
        blocks.push(Block::Table(at_rest(evidence)));
    }
    let under_load = [traffic(&evidence.loads), windows(&evidence.loads)];
    blocks.extend(under_load.into_iter().filter(|table| !table.rows.is_empty()).map(Block::Table));
    Some(Section { id: "connections", title: "The way and its connections", blocks })
}

fn link(link: &Known<LinkLayer>) -> String {
    match link {
        Known::Measured(link) => {
            let faults = match link.faults {
                0 => "no packet was dropped or damaged in it meanwhile".to_owned(),
                faults => format!("{} packets were dropped or damaged in it meanwhile", grouped(faults)),
            };
            format!("It begins with {}; {faults}.", words::link(link))
        }
        Known::Unknown(why) => format!("The interface that it begins with is not known: {why}."),
    }
}

/// A request of NBD goes by any connection: none has a time of its own for it.
fn at_rest(evidence: &Evidence) -> Table {
    let has_nop = evidence.nbd.is_none();
    let columns = [
        "#connection",
        "peer",
        "congestion control",
        "#shortest round trip",
        "#round trip",
        "#segment",
        "#path MTU",
        "#NOP",
    ];
    let shown = if has_nop { columns.len() } else { columns.len() - 1 };
    let mut table = Table::of("At rest", &columns[..shown]);
    for path in &evidence.paths {
        let cells = [
            path.cid.to_string(),
            path.peer.clone(),
            path.congestion.clone(),
            path.round_trip_min_us.map_or_else(not_told, latency),
            latency(path.round_trip_us),
            grouped(u64::from(path.segment_bytes)),
            grouped(u64::from(path.path_mtu_bytes)),
            words::median(&path.nop),
        ];
        table.row(cells.into_iter().take(shown));
    }
    table
}

/// More rows than these are shown only if they are asked for.
const ROWS: usize = 12;

/// What went over them, and what of it was lost or overtaken.
fn traffic(loads: &[LoadRun]) -> Table {
    let columns =
        ["load", "#connection", "#sent, MB", "#came, MB", "#sent again", "#out of order", "#round trip"];
    let mut table = Table::of("Under load", &columns);
    for (run, path) in under_load(loads) {
        let disorder = path.out_of_order_segments;
        let marked = path.retransmitted_segments > 0 || disorder.is_some_and(|segments| segments > 0);
        let cells = [
            words::load(&run.load),
            path.cid.to_string(),
            megabytes(path.sent_bytes as f64),
            megabytes(path.received_bytes as f64),
            of(path.retransmitted_segments, path.segments_out),
            disorder.map_or_else(not_told, |segments| of(segments, path.segments_in)),
            latency(path.round_trip_us),
        ];
        table.marked_row(marked, cells);
    }
    let many = table.rows.len() > ROWS;
    table.folded(many)
}

/// What held them back.
fn windows(loads: &[LoadRun]) -> Table {
    let columns = [
        "load",
        "#connection",
        "#congestion window",
        "#peer's window",
        "#our window",
        "#held by the peer",
        "#by our buffer",
    ];
    let window = |bytes: Option<u64>| bytes.map_or_else(not_told, |bytes| size(bytes as f64));
    let mut table = Table::of("Windows under load", &columns);
    for (run, path) in under_load(loads) {
        table.row([
            words::load(&run.load),
            path.cid.to_string(),
            size(path.congestion_window_bytes as f64),
            window(path.peer_window_bytes),
            window(path.own_window_bytes),
            percent(path.limited_by_receiver),
            percent(path.limited_by_send_buffer),
        ]);
    }
    let many = table.rows.len() > ROWS;
    table.folded(many)
}

fn under_load(loads: &[LoadRun]) -> impl Iterator<Item = (&LoadRun, &PathUnderLoad)> {
    loads.iter().flat_map(|run| run.paths.iter().map(move |path| (run, path)))
}

/// `12 (0.31 %)`.
fn of(part: u64, all: Option<u64>) -> String {
    match all {
        Some(all) if all > 0 && part > 0 => {
            format!("{} ({})", grouped(part), percent(part as f64 / all as f64))
        }
        _ => grouped(part),
    }
}

fn not_told() -> String {
    "?".to_owned()
}
