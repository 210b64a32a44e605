//! What the model was given, how well it does, and the published numbers that cannot be reached over this way.

use super::numbers::rate;
use crate::document::{Block, Column, Table};
use crate::wan::{Constants, Met, Off, Row, Wan};
use model::Direction;
use readable::figures::{counted, grouped, latency, megabytes, round, significant, size};

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

/// A line for each constant, a column for each link and direction.
fn constants(wan: &Wan) -> Table {
    let found: Vec<&Constants> = wan.constants.iter().filter(|one| !one.small_window).collect();
    let mut table = Table::of("Constants", &[""]);
    table.columns.extend(found.iter().map(|one| Column { title: head(one), numbers: true }));
    let mut line = |name: &str, value: &dyn Fn(&Constants) -> String| {
        table.row([name.to_owned()].into_iter().chain(found.iter().map(|one| value(one))));
    };
    line("link carries", &|one| with_unit(one.path.payload_per_s.map(megabytes), "MB/s"));
    line("exchange, r", &|one| time(one.path.exchange_s));
    line("command, a", &|one| time(one.path.command_s));
    line("data, b", &|one| with_unit(one.path.copy_per_s.map(megabytes), "MB/s"));
    line("exchanges", &|one| {
        with_unit(one.path.exchanges_per_s.map(|rate| grouped(rate.round() as u64)), "/s")
    });
    line("writes under way", &|one| with_unit(one.path.writes_under_way_bytes.map(size), ""));
    let small = |one: &Constants| {
        let same = |other: &&Constants| {
            other.small_window
                && other.direction == one.direction
                && other.link_bits_per_s == one.link_bits_per_s
        };
        wan.constants.iter().find(same)
    };
    line("small window", &|one| with_unit(small(one).and_then(|one| one.path.window_bytes).map(size), ""));
    line("its delay", &|one| time(small(one).map_or(0.0, |one| one.path.window_delay_s)));
    line("found in", &|one| counted(one.cells + small(one).map_or(0, |one| one.cells), "cell"));
    line("median error", &|one| format!("{} %", significant(one.median_off * 100.0)));
    table
}

/// `reads, 160 Mbit/s`
fn head(found: &Constants) -> String {
    let direction = match found.direction {
        Direction::Read => "reads",
        Direction::Write => "writes",
    };
    let rate = match found.link_bits_per_s {
        bits if bits >= 1e9 => format!("{} Gbit/s", round(bits / 1e9)),
        bits => format!("{} Mbit/s", round(bits / 1e6)),
    };
    format!("{direction}, {rate}")
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
        &["why", "cells: measured of published, in MB/s (in percent of what can be)"],
    );
    for (why, rows) in reasons {
        let cells: Vec<String> = rows.iter().map(|row| cell(row)).collect();
        table.row([why.to_owned(), cells.join("; ")]);
    }
    table
}

/// Less than this of what can be is said.
const NEAR: f64 = 0.9;

fn cell(row: &Row) -> String {
    let published = row.published.as_ref().map_or("", |published| published.printed.as_str());
    let share = row.share_of_most().filter(|share| *share < NEAR);
    let share = share.map(|share| format!(" ({} %)", significant(share * 100.0)));
    format!("{}: {} of {published}{}", row.cell, rate(row.measured), share.unwrap_or_default())
}
