//! The outcomes as a table and a section of the page.

use std::fmt::Write;

use super::record::{CellRun, Rates, Record};
use super::{Options, Outcome};
use crate::measuring::machine::Setting;

/// A row for each suite on each kind of storage.
pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| suite | storage | s | cells | runs | fastest read | fastest write | most IOPS | |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for outcome in outcomes {
        let figures = outcome.record.as_ref().map_or_else(|_| " | | | | ".to_owned(), figures);
        let (suite, storage, wall_s) = (&outcome.suite, outcome.storage, outcome.wall_s);
        let _ = writeln!(text, "| `{suite}` | {storage} | {wall_s:.0} | {figures} | {} |", outcome.verdict());
    }
    text
}

/// Five columns, from the number of cells on.
fn figures(record: &Record) -> String {
    let best = record.runs.iter().map(CellRun::rates).fold(Rates::default(), |best, rates| Rates {
        iops: best.iops.max(rates.iops),
        read_bytes: best.read_bytes.max(rates.read_bytes),
        written_bytes: best.written_bytes.max(rates.written_bytes),
    });
    let mb_per_s =
        |bytes: f64| if bytes > 0.0 { format!("{:.0} MB/s", bytes / 1e6) } else { "–".to_owned() };
    format!(
        "{} | {} | {} | {} | {:.0}",
        record.cells().count(),
        record.runs.len(),
        mb_per_s(best.read_bytes),
        mb_per_s(best.written_bytes),
        best.iops
    )
}

/// The section of the page.
pub(super) fn section(outcomes: &[Outcome], setting: &Setting, options: &Options) -> String {
    format!(
        "`cargo measure suites` runs this and writes this section. Each suite is the one that `linerate bench --suite NAME` \
         runs, with three things reduced by options that everybody has: `--span {}MiB` instead of all of the storage (and \
         of the gigabytes that some suites want), `--seconds {}` for each run of each cell, and `--repeats {}`. So the figures show that \
         every suite comes to its end everywhere and is sane, not what the storage can do. Server on core 0, client on \
         core 1, in a network namespace ({}). linerate has a RAM volume, tgt a file on /dev/shm; the file is on this machine's \
         disk and the ext4 on a loop device over an attached LUN of `linerate serve`, both read and written with \
         `O_DIRECT`.\n\n\
         *Fine* means: exit code 0, the record has its end and every cell; no request failed; as many latencies as \
         requests; samples add up to the run in requests, bytes and seconds; bytes fit the requests' lengths; nobody \
         wrote who should read; no more under way than asked for; and the rate times the mean latency is the \
         measured number under way, but for what the ends of a run make of it (Little's law). All of that is computed from `result.json` by code that shares \
         nothing with the program.\n\n{}{}",
        options.span_mib,
        options.seconds,
        options.repeats,
        setting.congestion,
        setting.line(),
        table(outcomes)
    )
}
