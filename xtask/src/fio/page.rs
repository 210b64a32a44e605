//! The figures as tables, a section of the page and JSON.

use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use super::Results;
use super::storage::Kind;
use super::tools::{Measured, Tool};
use crate::measuring::cell::Cell;
use crate::measuring::figures::middle;

/// What two programs may differ by before there must be a reason, in percent.
const TOLERANCE_PERCENT: f64 = 3.0;

/// A cell's medians by both.
struct Pair {
    ours: Measured,
    fio: Measured,
}

impl Pair {
    fn of(kind: Kind, cell: &Cell, results: &Results) -> Option<Pair> {
        let median = |tool| results.measured.get(&(kind, cell.name, tool)).and_then(|rounds| median(rounds));
        Some(Pair { ours: median(Tool::Linerate)?, fio: median(Tool::Fio)? })
    }

    /// By how much our rate is above fio's, in percent.
    fn above_percent(&self) -> f64 {
        (self.ours.iops / self.fio.iops - 1.0) * 100.0
    }
}

fn median(rounds: &[Measured]) -> Option<Measured> {
    let of = |figure: fn(&Measured) -> f64| middle(rounds.iter().map(figure).collect());
    Some(Measured {
        iops: of(|round| round.iops)?,
        p50_us: of(|round| round.p50_us)?,
        p99_us: of(|round| round.p99_us)?,
        mean_us: of(|round| round.mean_us)?,
        cpu_us_per_io: of(|round| round.cpu_us_per_io)?,
    })
}

fn spread(rounds: &[Measured]) -> String {
    let slowest = rounds.iter().map(|round| round.iops).fold(f64::INFINITY, f64::min);
    let fastest = rounds.iter().map(|round| round.iops).fold(0.0, f64::max);
    format!("{slowest:.0} – {fastest:.0}")
}

/// Whether no rate of ours is lower than fio's by more than the tolerance. Being faster where the program is the limit
/// is no fault; where the device is, the rates are equal.
pub(super) fn all_agree(cells: &[&'static Cell], results: &Results) -> bool {
    let pairs = Kind::ALL.iter().flat_map(|kind| cells.iter().map(|cell| Pair::of(*kind, cell, results)));
    pairs.flatten().all(|pair| pair.above_percent() >= -TOLERANCE_PERCENT)
}

/// A table for each kind of storage, a row for each cell.
pub(super) fn tables(cells: &[&'static Cell], results: &Results) -> String {
    let measured = |kind: &Kind| results.measured.keys().any(|(of, ..)| of == kind);
    Kind::ALL.into_iter().filter(measured).map(|kind| table(kind, cells, results)).collect()
}

fn table(kind: Kind, cells: &[&'static Cell], results: &Results) -> String {
    let mut text = format!("{}:\n\n", kind.in_words());
    text.push_str(
        "| cell | linerate IOPS | fio IOPS | difference | p50 µs: linerate, fio | p99 µs: linerate, fio | \
         CPU µs/IO: linerate, fio | spread: linerate | fio |\n|---|---:|---:|---:|---:|---:|---:|---|---|\n",
    );
    for cell in cells {
        let Some(pair) = Pair::of(kind, cell, results) else { continue };
        let Pair { ours, fio } = &pair;
        let spread =
            |tool| results.measured.get(&(kind, cell.name, tool)).map_or_else(String::new, |all| spread(all));
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.0} | {:+.1} % | {:.1}, {:.1} | {:.1}, {:.1} | {:.2}, {:.2} | {} | {} |",
            cell.name,
            ours.iops,
            fio.iops,
            pair.above_percent(),
            ours.p50_us,
            fio.p50_us,
            ours.p99_us,
            fio.p99_us,
            ours.cpu_us_per_io,
            fio.cpu_us_per_io,
            spread(Tool::Linerate),
            spread(Tool::Fio),
        );
    }
    text + "\n"
}

/// The section of the page.
pub(super) fn section(cells: &[&'static Cell], results: &Results) -> String {
    let setting = &results.setting;
    let mut page = format!(
        "`cargo xtask fio` measures this and writes this section: `linerate bench` and {} with the same requests on the \
         same storage: `O_DIRECT` by io_uring, a span of 1 GiB that was written before, places that may come twice, \
         incompressible data of which a little is new in each request. Both pinned to core 1, servers to core 0, alternating; medians of {} \
         rounds of {} s each, and the slowest and the fastest. Latency is from the submission of a request to its \
         completion (fio's `lat`). The CPU time is the kernel's, of the whole process.\n\n",
        results.fio, setting.rounds, setting.seconds,
    );
    page.push_str(&setting.line());
    page.push_str(&tables(cells, results));
    page
}

/// Every round's figures.
pub(super) fn json(results: &Results) -> Result<String> {
    let runs: Vec<_> = results
        .measured
        .iter()
        .map(|((kind, cell, tool), rounds)| json!({"storage": kind, "cell": cell, "tool": tool, "rounds": rounds}))
        .collect();
    Ok(serde_json::to_string_pretty(&json!({"setting": results.setting, "fio": results.fio, "runs": runs}))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(iops: f64) -> Measured {
        Measured { iops, p50_us: 1.0, p99_us: 2.0, mean_us: 1.0, cpu_us_per_io: 1.0 }
    }

    #[test]
    fn the_difference_is_in_percent_of_fio() {
        let pair = Pair { ours: measured(97.0), fio: measured(100.0) };
        assert!((pair.above_percent() + 3.0).abs() < 1e-9);
    }

    #[test]
    fn one_slow_round_does_not_count() {
        let rounds = [measured(100.0), measured(3.0), measured(110.0)];
        assert_eq!(median(&rounds).map(|median| median.iops), Some(100.0));
    }
}
