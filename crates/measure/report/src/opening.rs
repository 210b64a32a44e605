//! The opening of a report, before all numbers: the measured storage and its speed, an assessment of the
//! result, and possible improvements.
//!
//! Each answer uses only data of the record, or states that the data is not sufficient. [`judgements`] uses
//! the limits in the record or, without any, published results of the same class. [`helps`] uses a
//! diagnosis of the same storage or, without one, the last step of each sweep. The answers are first computed
//! as values; the functions at the end formulate them.

#[cfg(test)]
mod tests;

use super::Report;
use super::diagnosis::{at, verdict};
use super::document::Lead;
use super::summary::{CellSummary, Estimate};
use super::views::{
    Direction, Series, asked_rate, block_bytes, latencies, lowest_limit, over_load, over_size,
};
use crate::beside::Counterpart;
use crate::sections::fastest;
use bench::record::Limit;
use diagnose::Diagnosis;
use published::Row;
use readable::figures::{grouped, latency, megabytes, significant, size};

/// The fastest cell of a direction, compared with a reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Judgement<'a> {
    /// The cell reached this share of its lowest limit, at most 1.
    OfCeiling {
        cell: &'a CellSummary,
        ceiling: &'a str,
        share: f64,
    },
    /// The cell exceeded the limit in the record, so the limit is wrong.
    AboveCeiling {
        cell: &'a CellSummary,
        ceiling: &'a str,
    },
    /// The cell reached this multiple of the published result of the same class.
    OfPublished {
        cell: &'a CellSummary,
        row: &'a Row,
        times: f64,
    },
}

/// A change that would improve the result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Help<'a> {
    /// The remedies of a diagnosis of the same storage.
    Diagnosed(&'a Diagnosis),
    /// A queue depth higher than the highest measured one.
    Depth(Step),
    /// Requests longer than the longest measured ones.
    Length(Step),
    /// A higher queue depth would not help: the last step gained less than [`RISE`].
    NotDepth(Step),
    /// The record shows no change that would help.
    Unknown,
}

/// The last step of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// The name of the curve.
    pub(super) series: String,
    /// The queue depth or the request length in bytes, before and after the step.
    pub(super) from: f64,
    pub(super) to: f64,
    /// The ratio of the rate after the step to the rate before it.
    pub(super) times: f64,
}

/// The minimum ratio of a step at which a rate still rises. The increase must also exceed the 95 % intervals.
const RISE: f64 = 1.1;
/// Shares of a limit: from `FULL`, the limit counts as reached; below `HALF`, the result is not good.
const FULL: f64 = 0.9;
const HALF: f64 = 0.5;

/// Returns the answers, in the order of the questions.
pub(super) fn leads(report: &Report<'_>) -> Vec<Lead> {
    let lead = |about, says| Lead { about, says };
    if report
        .summaries
        .iter()
        .any(|summary| summary.mismatches > 0)
    {
        let says = "No: wrong data was read. Find the cause, then measure again.".to_owned();
        return vec![lead("Can it be used?", says)];
    }
    if report.record.runs.is_empty() {
        return vec![lead("What was measured?", "Nothing yet.".to_owned())];
    }
    let documents = report.documents();
    let counterparts: Vec<Counterpart<'_>> = documents
        .iter()
        .flat_map(|document| report.counterparts(document))
        .collect();
    let judged = judgements(&report.summaries, &report.record.limits, &counterparts);
    let good = match &report.wan {
        Some(wan) => beside_document(&wan.verdict()),
        None => good(&judged, &documents),
    };
    let helps = helps(&report.summaries, &judged, report.diagnosis.as_ref());
    let helps: Vec<String> = helps.iter().map(|help| self::help(help)).collect();
    vec![
        lead("What was measured?", measured(report)),
        lead("Is it good?", good),
        lead("What would help?", helps.join(" ")),
    ]
}

/// Returns one judgement for each direction with a reference: for the fastest cell with a limit or, without
/// one, for the fastest cell with a published result of the same class, compared with the highest such result.
pub(super) fn judgements<'a>(
    summaries: &'a [CellSummary],
    limits: &'a [Limit],
    counterparts: &[Counterpart<'a>],
) -> Vec<Judgement<'a>> {
    let judge = |direction| {
        let cell = fastest(summaries.iter(), direction)?;
        if let Some((ceiling, most)) = lowest_limit(limits, cell) {
            let share = cell.bytes_per_s.median / most;
            return Some(match share {
                share if share <= 1.0 => Judgement::OfCeiling {
                    cell,
                    ceiling,
                    share,
                },
                _ => Judgement::AboveCeiling { cell, ceiling },
            });
        }
        let of_cells = || {
            counterparts
                .iter()
                .filter(|counterpart| counterpart.client.is_none())
        };
        let cell = fastest(of_cells().map(|counterpart| counterpart.summary), direction)?;
        let those =
            of_cells().filter(|counterpart| counterpart.summary.cell.name == cell.cell.name);
        let most = those.max_by(|one, other| one.published.total_cmp(&other.published))?;
        Some(Judgement::OfPublished {
            cell,
            row: most.row,
            times: most.times(),
        })
    };
    [Direction::Read, Direction::Write, Direction::Both]
        .into_iter()
        .filter_map(judge)
        .collect()
}

/// Returns the changes that would help; at least one.
pub(super) fn helps<'a>(
    summaries: &[CellSummary],
    judged: &[Judgement<'_>],
    diagnosis: Option<&'a Diagnosis>,
) -> Vec<Help<'a>> {
    if let Some(diagnosis) = diagnosis {
        return vec![Help::Diagnosed(diagnosis)];
    }
    let closed = over_load(summaries)
        .into_iter()
        .filter(|series| asked_rate(&series.cells[0].cell).is_none());
    let steps = |steps: Vec<(Step, Change)>, wanted: Change| {
        let those = steps
            .into_iter()
            .filter(move |(_, change)| *change == wanted);
        those
            .map(|(step, _)| step)
            .reduce(|one, other| if other.times > one.times { other } else { one })
    };
    let depths: Vec<(Step, Change)> = closed
        .filter_map(|series| last_step(&series, |cell| f64::from(cell.depth), |cell| cell.iops))
        .collect();
    let lengths: Vec<(Step, Change)> = over_size(summaries)
        .iter()
        .filter_map(|series| {
            last_step(
                series,
                |cell| block_bytes(&cell.cell),
                |cell| cell.bytes_per_s,
            )
        })
        .collect();
    let is_full = |judgement: &Judgement<'_>| matches!(judgement, Judgement::OfCeiling { share, .. } if *share >= FULL);
    let is_at_ceiling = !judged.is_empty() && judged.iter().all(is_full);
    let mut helps: Vec<Help<'_>> = steps(depths.clone(), Change::Rises)
        .map(Help::Depth)
        .into_iter()
        .collect();
    if !is_at_ceiling {
        helps.extend(steps(lengths, Change::Rises).map(Help::Length));
    }
    if helps.is_empty() {
        helps.extend(steps(depths, Change::Flat).map(Help::NotDepth));
    }
    if helps.is_empty() {
        helps.push(Help::Unknown);
    }
    helps
}

/// The effect of a step on a rate, if the intervals are narrow enough to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Rises,
    Flat,
    Unclear,
}

fn last_step(
    series: &Series<'_>,
    along: fn(&CellSummary) -> f64,
    rate: fn(&CellSummary) -> Estimate,
) -> Option<(Step, Change)> {
    let [.., before, after] = series.cells.as_slice() else {
        return None;
    };
    let (low, high) = (rate(before), rate(after));
    if low.median <= 0.0 {
        return None;
    }
    let times = high.median / low.median;
    let change = match (low.interval, high.interval) {
        (Some(before), Some(after)) if times >= RISE && after.low > before.high => Change::Rises,
        (Some(before), Some(after)) if after.high < RISE * before.low => Change::Flat,
        _ => Change::Unclear,
    };
    let step = Step {
        series: series.name.clone(),
        from: along(before),
        to: along(after),
        times,
    };
    Some((step, change))
}

/// Describes the storage, and the best result of each kind.
fn measured(report: &Report<'_>) -> String {
    let subject = &report.record.subject;
    let kind = if subject.kind == "iscsi" {
        "iSCSI LUN"
    } else {
        &subject.kind
    };
    let what = subject.product.as_deref().unwrap_or(kind).trim();
    let what = format!(
        "{what} of {}, by the suite {}",
        size(subject.bytes as f64),
        report.record.suite.name
    );
    let mut best = Vec::new();
    if let Some(wan) = &report.wan {
        let measured = wan.rows.iter().filter(|row| row.measured.is_some()).count();
        return format!(
            "{what}: {measured} of {} combinations of distance and load.",
            wan.rows.len()
        );
    }
    for (direction, name) in [
        (Direction::Read, "reads"),
        (Direction::Write, "writes"),
        (Direction::Both, "mixed reads and writes"),
    ] {
        let fastest = fastest(report.summaries.iter(), direction);
        best.extend(
            fastest.map(|cell| format!("{name} up to {} MB/s", megabytes(cell.bytes_per_s.median))),
        );
    }
    let measured = || report.summaries.iter().filter(|summary| summary.runs > 0);
    let most = measured()
        .map(|summary| summary.iops.median)
        .fold(0.0, f64::max);
    best.push(format!("up to {} IOPS", grouped(most.round() as u64)));
    let alone = measured()
        .filter(|summary| summary.depth == 1)
        .map(|summary| latencies(summary).p50_us);
    let alone = alone.filter(|us| *us > 0.0).min_by(f64::total_cmp);
    let alone = alone
        .map(|us| format!("; a single request takes {} (p50)", latency(us)))
        .unwrap_or_default();
    format!("{what}: {}{alone}.", best.join(", "))
}

fn name(cell: &CellSummary) -> &'static str {
    match Direction::of(&cell.cell) {
        Direction::Read => "reads",
        Direction::Write => "writes",
        Direction::Both => "mixed requests",
    }
}

fn good(judged: &[Judgement<'_>], documents: &[&str]) -> String {
    let shares = || {
        judged.iter().filter_map(|judgement| match judgement {
            Judgement::OfCeiling { share, .. } => Some(*share),
            _ => None,
        })
    };
    let times = || {
        judged.iter().filter_map(|judgement| match judgement {
            Judgement::OfPublished { times, .. } => Some(*times),
            _ => None,
        })
    };
    let (share, lowest) = (shares().reduce(f64::min), times().reduce(f64::min));
    let verdict = match (share, lowest) {
        (Some(share), _) if share >= FULL => "Yes, close to the limit: ",
        (Some(share), _) if share >= HALF => "Partly; more is possible: ",
        (Some(_), _) => "Less than half of the possible rate: ",
        (None, Some(times)) if times >= 1.0 => "As fast as published results, or faster: ",
        (None, Some(_)) => "Slower than published results: ",
        (None, None) if judged.is_empty() => {
            return format!(
                "There is nothing to compare with: the record has no ceiling, and {}.",
                match documents {
                    [] => "no document to compare with was named".to_owned(),
                    _ => format!(
                        "no result of the same class is in document {}",
                        documents.join(" or ")
                    ),
                }
            );
        }
        (None, None) => "There is nothing to compare with: ",
    };
    let clauses: Vec<String> = judged.iter().map(judgement).collect();
    format!("{verdict}{}.", clauses.join("; "))
}

fn judgement(judgement: &Judgement<'_>) -> String {
    match judgement {
        Judgement::OfCeiling {
            cell,
            ceiling,
            share,
        } => {
            format!("{} reach {} of {ceiling}", name(cell), percent(*share))
        }
        Judgement::AboveCeiling { cell, ceiling } => {
            format!(
                "{} were faster than {ceiling}, so the measured ceiling is too low",
                name(cell)
            )
        }
        Judgement::OfPublished { cell, row, times } => format!(
            "{} of {} reach {} times the rate in {}",
            name(cell),
            size(block_bytes(&cell.cell)),
            significant(*times),
            row.citation()
        ),
    }
}

fn beside_document(verdict: &crate::wan::Verdict) -> String {
    let possible = verdict.published - verdict.cannot_be;
    let reached = verdict.beaten + verdict.met;
    match verdict.published {
        0 => "There is nothing to compare with: no cell of document 002 was measured.".to_owned(),
        _ => format!(
            "{} of the {possible} published numbers that this link permits were met or exceeded.",
            if reached == possible {
                format!("All {reached}")
            } else {
                reached.to_string()
            }
        ),
    }
}

fn help(help: &Help<'_>) -> String {
    match help {
        Help::Diagnosed(diagnosis) => {
            let remedy = diagnosis
                .findings
                .first()
                .and_then(|finding| finding.remedies.first());
            let remedy = remedy
                .map(|remedy| format!(" Change first ({}): {}.", at(remedy.at), remedy.change));
            format!(
                "Diagnosis of this LUN: {}.{}",
                verdict(diagnosis),
                remedy.unwrap_or_default()
            )
        }
        Help::Depth(Step {
            series,
            from,
            to,
            times,
        }) => format!(
            "More outstanding requests: an increase from {from} to {to}, the maximum measured, made {series} \
             {} times as fast.",
            significant(*times)
        ),
        Help::Length(Step {
            series,
            from,
            to,
            times,
        }) => format!(
            "Longer requests: an increase from {} to {}, the maximum measured, made {series} {} times as \
             fast.",
            size(*from),
            size(*to),
            significant(*times)
        ),
        Help::NotDepth(Step {
            series,
            from,
            to,
            times,
        }) => format!(
            "More outstanding requests would not help: an increase from {from} to {to} made {series} {} \
             times as fast. To find the limit of an iSCSI path, run linerate diagnose.",
            significant(*times)
        ),
        Help::Unknown => {
            "Unknown. To find the limit of an iSCSI path, run linerate diagnose.".to_owned()
        }
    }
}

fn percent(share: f64) -> String {
    // Round down, so that 99.7 % of a limit is not shown as 100 %.
    match share * 100.0 {
        percent if percent < 10.0 => format!("{} %", significant(percent)),
        percent => format!("{:.0} %", percent.floor()),
    }
}
