//! What the model was given, how well it does, and the published numbers that cannot be reached over this way.

use super::numbers::rate;
use crate::model::{Direction, Path};
use crate::report::document::{Block, Table};
use crate::report::figures::{counted, grouped, latency, megabytes, significant, size};
use crate::wan::{Constants, Met, Off, Row, Wan};

pub(super) fn blocks(wan: &Wan) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !wan.constants.is_empty() {
        blocks.push(Block::Text(WHAT.to_owned()));
        blocks.push(Block::List(how_well(wan)));
        blocks.push(Block::Table(constants(wan)));
    }
    let impossible = impossible(wan);
    if !impossible.rows.is_empty() {
        blocks.push(Block::Table(impossible));
    }
    blocks
}

const WHAT: &str = "A request that is alone takes n (RTT + r) + a + B / b: n exchanges, what the ends take for each, for the \
                    command, and for its B bytes. So many at once give so many times that, unless something is used up \
                    before: the link, a TCP window each round trip, exchanges a second, bytes of writes under way. The \
                    constants are those that explain the document's cells of this record best; the other axes were \
                    predicted with them.";

fn how_well(wan: &Wan) -> Vec<String> {
    let verdict = wan.verdict();
    let sentence = |what: &str, off: &Off| {
        format!(
            "{what} ({}): the median error is {} %, the largest {} % ({}).",
            counted(off.cells, "cell"),
            significant(off.median * 100.0),
            significant(off.worst * 100.0),
            off.worst_cell
        )
    };
    let fitted =
        verdict.fitted.as_ref().map(|off| sentence("In the cells that the constants were found in", off));
    let predicted = verdict.predicted.as_ref().map(|off| sentence("In those that it had to predict", off));
    fitted.into_iter().chain(predicted).collect()
}

fn constants(wan: &Wan) -> Table {
    let columns = [
        "link",
        "direction",
        "#cells",
        "#link carries",
        "#exchange r",
        "#command a",
        "#data b",
        "#exchanges",
        "#writes under way",
        "#window",
        "#median error",
    ];
    let mut table = Table::of("Constants", &columns);
    for found in &wan.constants {
        let Path { payload_per_s, copy_per_s, exchanges_per_s, writes_under_way_bytes, window_bytes, .. } =
            found.path;
        table.row([
            format!("{} Mbit/s{}", significant(found.link_bits_per_s / 1e6), window_note(found)),
            match found.direction {
                Direction::Read => "from the target".to_owned(),
                Direction::Write => "to the target".to_owned(),
            },
            found.cells.to_string(),
            with_unit(payload_per_s.map(megabytes), "MB/s"),
            time(found.path.exchange_s),
            time(found.path.command_s),
            with_unit(copy_per_s.map(megabytes), "MB/s"),
            with_unit(exchanges_per_s.map(|rate| grouped(rate.round() as u64)), "/s"),
            with_unit(writes_under_way_bytes.map(size), ""),
            with_unit(window_bytes.map(size), ""),
            format!("{} %", significant(found.median_off * 100.0)),
        ]);
    }
    table
}

fn window_note(found: &Constants) -> &'static str {
    if found.small_window { ", small window" } else { "" }
}

/// What was not found limits nothing.
fn with_unit(value: Option<String>, unit: &str) -> String {
    value.map_or_else(
        || super::numbers::NOTHING.to_owned(),
        |value| format!("{value} {unit}").trim_end().to_owned(),
    )
}

fn time(seconds: f64) -> String {
    with_unit((seconds > 0.0).then(|| latency(seconds * 1e6)), "")
}

/// What was published and cannot be here, by the reason: the same reason often holds for many cells.
fn impossible(wan: &Wan) -> Table {
    let mut reasons: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &wan.rows {
        let Some(Met::CannotBe(why)) = &row.met else { continue };
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, rows)) => rows.push(row),
            None => reasons.push((why, vec![row])),
        }
    }
    // What holds for most first.
    reasons.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    let mut table = Table::of(
        "Published, and more than this way allows",
        &["why", "cells: measured of published, in MB/s"],
    );
    for (why, rows) in reasons {
        let cells: Vec<String> = rows.iter().map(|row| cell(row)).collect();
        table.row([why.to_owned(), cells.join("; ")]);
    }
    table
}

fn cell(row: &Row) -> String {
    let published = row.published.as_ref().map_or("", |published| published.printed.as_str());
    format!("{}: {} of {published}", row.cell, rate(row.measured))
}
