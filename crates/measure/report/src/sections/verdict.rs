//! Determines the best numbers, and whether the results can be trusted.

use crate::Report;
use crate::document::{Headline, Tone, Verdict};
use crate::opening;
use crate::summary::{CellSummary, Flag};
use crate::views::{Direction, latencies, listed, load, lowest_limit, percent_of_limit};
use readable::figures::{counted, grouped, latency, megabytes, significant};

/// Returns the summary at the start of the report.
pub(crate) fn verdict(report: &Report<'_>) -> Verdict {
    let mut concerns = concerns(report);
    concerns.sort_by_key(|(trust, _)| std::cmp::Reverse(*trust));
    let trust = concerns.first().map_or(Tone::Good, |(trust, _)| *trust);
    Verdict {
        lead: opening::leads(report),
        tone: trust,
        says: says(trust).to_owned(),
        headlines: headlines(report),
        reservations: concerns.into_iter().map(|(_, sentence)| sentence).collect(),
    }
}

/// Returns a phrase about whether the numbers can be trusted.
pub(crate) fn says(trust: Tone) -> &'static str {
    match trust {
        Tone::Good => "every check passed",
        Tone::Care => "see the warnings",
        Tone::Incomplete => "incomplete",
        Tone::Bad => "do not use: wrong data was read",
    }
}

fn headlines(report: &Report<'_>) -> Vec<Headline> {
    if let Some(wan) = &report.wan {
        return crate::sections::wan::headlines(wan);
    }
    let measured = || report.summaries.iter().filter(|summary| summary.runs > 0);
    let mut headlines = Vec::new();
    for (direction, what) in [
        (Direction::Read, "read"),
        (Direction::Write, "write"),
        (Direction::Both, "read and write"),
    ] {
        let fastest = fastest(report.summaries.iter(), direction);
        headlines.extend(fastest.map(|summary| throughput(report, what, summary)));
    }
    let most = measured().max_by(|a, b| a.iops.median.total_cmp(&b.iops.median));
    headlines.extend(
        most.filter(|summary| summary.iops.median > 0.0)
            .map(|summary| Headline {
                what: "most requests".to_owned(),
                value: format!("{} IOPS", grouped(summary.iops.median.round() as u64)),
                note: place(summary),
            }),
    );
    headlines.extend(quickest(measured()));
    headlines
}

/// Returns the cell with the highest throughput in this direction, if any.
pub(crate) fn fastest<'a>(
    summaries: impl Iterator<Item = &'a CellSummary>,
    direction: Direction,
) -> Option<&'a CellSummary> {
    let rate = |summary: &&CellSummary| summary.bytes_per_s.median;
    let those =
        summaries.filter(|summary| summary.runs > 0 && Direction::of(&summary.cell) == direction);
    those
        .filter(|summary| rate(summary) > 0.0)
        .max_by(|a, b| rate(a).total_cmp(&rate(b)))
}

fn throughput(report: &Report<'_>, what: &str, summary: &CellSummary) -> Headline {
    let rate = summary.bytes_per_s.median;
    let limit = lowest_limit(&report.record.limits, summary);
    let of_limit = limit.map(|(name, most)| match percent_of_limit(rate, most) {
        Some(percent) => format!("; {} % of {name}", significant(percent)),
        None => format!("; faster than {name}, so the measured ceiling is too low"),
    });
    Headline {
        what: what.to_owned(),
        value: format!("{} MB/s", megabytes(rate)),
        note: place(summary) + &of_limit.unwrap_or_default(),
    }
}

/// Returns the shortest latency at the lowest queue depth. At a higher depth, the latency mainly reflects the
/// load.
fn quickest<'a>(summaries: impl Iterator<Item = &'a CellSummary>) -> Option<Headline> {
    let seen = summaries.filter(|summary| latencies(summary).p50_us > 0.0);
    let key = |summary: &CellSummary| (summary.depth, latencies(summary).p50_us);
    let quickest = seen.min_by(|one, other| {
        let ((depth, p50), (other_depth, other_p50)) = (key(one), key(other));
        depth.cmp(&other_depth).then(p50.total_cmp(&other_p50))
    })?;
    let times = latencies(quickest);
    Some(Headline {
        what: "latency, p50".to_owned(),
        value: latency(times.p50_us),
        note: format!("p99 {}; {}", latency(times.p99_us), place(quickest)),
    })
}

/// Returns the cell of a number, with its load if that is not part of the name.
fn place(summary: &CellSummary) -> String {
    let (name, load) = (&summary.cell.name, load(summary));
    if name.replace('-', " ").ends_with(&load) {
        name.clone()
    } else {
        format!("{name}, {load}")
    }
}

fn concerns(report: &Report<'_>) -> Vec<(Tone, String)> {
    let record = report.record;
    let mut concerns = grouped_flags(&report.summaries);
    let is_missing = |name: &&str| !record.runs.iter().any(|run| run.cell == **name);
    let missing: Vec<&str> = record
        .suite
        .cells()
        .map(|cell| cell.name.as_str())
        .filter(is_missing)
        .collect();
    if record.runs.is_empty() {
        concerns.push((Tone::Incomplete, "Nothing was run.".to_owned()));
    } else if record.ended.is_none() {
        concerns.push((
            Tone::Incomplete,
            "The suite is incomplete; it can be resumed.".to_owned(),
        ));
    }
    if !missing.is_empty() {
        let cells = counted(missing.len(), "cell");
        concerns.push((
            Tone::Incomplete,
            format!("No measurements for {cells}: {}.", listed(&missing)),
        ));
    }
    concerns.extend(
        report
            .wan
            .as_ref()
            .and_then(crate::sections::wan::missed)
            .map(|missed| (Tone::Care, missed)),
    );
    concerns.extend(record.notes.iter().map(|note| (Tone::Care, note.clone())));
    concerns
}

/// Returns one sentence for each kind of flag: the sentence for the first cell, with the names of the other
/// cells that have the same flag.
fn grouped_flags(summaries: &[CellSummary]) -> Vec<(Tone, String)> {
    let mut kinds: Vec<(&Flag, Vec<&str>)> = Vec::new();
    for (summary, flag) in summaries
        .iter()
        .flat_map(|s| s.flags.iter().map(move |flag| (s, flag)))
    {
        let same = |known: &Flag| std::mem::discriminant(known) == std::mem::discriminant(flag);
        match kinds.iter_mut().find(|(known, _)| same(known)) {
            Some((_, cells)) => cells.push(&summary.cell.name),
            None => kinds.push((flag, vec![&summary.cell.name])),
        }
    }
    let sentence = |(flag, cells): (&Flag, Vec<&str>)| {
        let first = format!("{}: {flag}", cells[0]);
        let others = &cells[1..];
        let also = match others.len() {
            0 => String::new(),
            _ => format!(" (likewise {})", listed(others)),
        };
        (gravity(flag), format!("{first}{also}"))
    };
    kinds.into_iter().map(sentence).collect()
}

/// Returns the severity of a flag for the use of a number.
fn gravity(flag: &Flag) -> Tone {
    match flag {
        Flag::WrongData { .. } => Tone::Bad,
        Flag::Interrupted => Tone::Incomplete,
        Flag::Little { .. }
        | Flag::DepthNotReached { .. }
        | Flag::ClientCpu { .. }
        | Flag::MachineBusy { .. }
        | Flag::LoopRate { .. }
        | Flag::Overload { .. }
        | Flag::NotConfident { .. }
        | Flag::NotSteady
        | Flag::Drifts { .. }
        | Flag::NothingCompleted
        | Flag::Failed { .. } => Tone::Care,
    }
}
