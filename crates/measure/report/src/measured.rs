//! The main numbers of one run, for users and for programs. The names and units of the JSON are stable
//! (`docs/bench.md`).

use bench::plan::Cell;
use bench::record::{CellRun, ClientRun, Histogram, Record};
use readable::figures::{grouped, significant};
use readable::table::{hanging, wrapped};
use serde::Serialize;
use stats::jain;
use volume::spec::Bytes;

use crate::summary::{self, CellSummary, Flag, Latencies};
use crate::terminal;

/// The results of a run, for all its clients combined.
#[derive(Serialize)]
pub struct Measured<'a> {
    version: u32,
    /// The cell, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
    iops: f64,
    mb_per_s: f64,
    latency_us: Latency,
    client_cpu_us_per_io: Option<f64>,
    /// Like `client_cpu_us_per_io`, but without unsuccessful polls.
    client_busy_us_per_io: Option<f64>,
    /// CPU utilisation of the clients' machine and of the server's machine, in percent of all their CPUs;
    /// `null` if unknown.
    client_cpu_percent: Option<f64>,
    server_cpu_percent: Option<f64>,
    ios: u64,
    reads: u64,
    errors: u64,
    mismatches: u64,
    first_failure: Option<&'a str>,
    seconds: f64,
    /// The congestion control algorithm; `null` if the storage is not accessed over a network.
    congestion: Option<&'a str>,
    device_bytes: u64,
    /// Warnings about the cell over all its runs, as in a report, and the notes of the record.
    warnings: Vec<Warning<'a>>,
    /// The results of each client, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clients: Vec<Share<'a>>,
    /// The statistics of each session during the run, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    sessions: Option<Vec<&'a serde_json::Value>>,
}

/// The version of the JSON format. It changes if a name is removed or changes its meaning.
const VERSION: u32 = 1;

/// A warning, with its sentence.
#[derive(Serialize)]
#[serde(untagged)]
enum Warning<'a> {
    /// A warning about the cell.
    Cell {
        #[serde(flatten)]
        flag: &'a Flag,
        sentence: String,
    },
    /// A note on the whole record, such as on blocks that were never written. On a terminal, notes are shown
    /// before the first run.
    Note {
        kind: &'static str,
        sentence: &'a str,
    },
}

/// The results of one client in a run.
#[derive(Serialize)]
struct Share<'a> {
    /// The role in the cell.
    role: &'a str,
    /// The client: a thread of this program, or an agent.
    client: &'a str,
    iops: f64,
    mb_per_s: f64,
    ios: u64,
}

/// The latency of requests in microseconds; in an open loop, from their due times. If no request completed,
/// the values are NaN, which becomes `null` in JSON.
#[derive(Serialize)]
struct Latency {
    p50: f64,
    p99: f64,
    p999: f64,
    mean: f64,
    max: f64,
}

/// Data that is shown together with a run.
pub struct Beside<'a> {
    record: &'a Record,
    congestion: Option<&'a str>,
    statistics: bool,
    summaries: Vec<CellSummary>,
}

impl<'a> Beside<'a> {
    /// Creates the data for the runs of this record: the congestion control of our sockets, if there are any,
    /// and the statistics of the sessions, if `statistics` is set.
    pub fn new(record: &'a Record, congestion: Option<&'a str>, statistics: bool) -> Beside<'a> {
        Beside {
            record,
            congestion,
            statistics,
            summaries: summary::of(record),
        }
    }

    fn flags(&self, run: &CellRun) -> &[Flag] {
        let summary = self
            .summaries
            .iter()
            .find(|summary| summary.cell.name == run.cell);
        summary.map_or(&[], |summary| &summary.flags)
    }
}

impl<'a> Measured<'a> {
    /// Returns the main numbers of a run.
    pub fn of(run: &'a CellRun, beside: &'a Beside<'a>) -> Measured<'a> {
        let runs = || run.clients.iter().map(|client| &client.run);
        let ios: u64 = runs().map(|run| run.ios()).sum();
        let cpu_s: f64 = run.clients.iter().map(|client| client.cpu.seconds).sum();
        let busy_s: f64 = run.clients.iter().map(|client| client.cpu.busy_s()).sum();
        let is_only = beside.record.suite.cells().count() == 1;
        let sessions = || {
            run.clients
                .iter()
                .flat_map(|client| &client.sessions)
                .collect()
        };
        let load = summary::cpu_load(run);
        let of_cell = |flag: &'a Flag| Warning::Cell {
            flag,
            sentence: flag.to_string(),
        };
        let note = |sentence: &'a String| Warning::Note {
            kind: "note",
            sentence,
        };
        Measured {
            version: VERSION,
            cell: (!is_only).then_some(run.cell.as_str()),
            round: (!is_only).then_some(run.round),
            iops: runs().map(|run| run.iops()).sum(),
            mb_per_s: runs().map(|run| run.bytes_per_s()).sum::<f64>() / 1e6,
            latency_us: Latency::of(run),
            client_cpu_us_per_io: (ios > 0).then(|| cpu_s * 1e6 / ios as f64),
            client_busy_us_per_io: (ios > 0).then(|| busy_s * 1e6 / ios as f64),
            client_cpu_percent: load.client,
            server_cpu_percent: load.server,
            ios,
            reads: runs().map(|run| run.reads.ios).sum(),
            errors: runs().map(|run| run.errors).sum(),
            mismatches: runs().map(|run| run.mismatches).sum(),
            first_failure: runs().find_map(|run| run.first_failure.as_deref()),
            seconds: runs().map(|run| run.seconds).fold(0.0, f64::max),
            congestion: beside.congestion,
            device_bytes: beside.record.subject.bytes,
            warnings: beside
                .flags(run)
                .iter()
                .map(of_cell)
                .chain(beside.record.notes.iter().map(note))
                .collect(),
            clients: Share::all(run),
            sessions: beside.statistics.then(sessions),
        }
    }

    /// Returns a line of JSON.
    ///
    /// # Errors
    /// Fails if the statistics of the sessions cannot be written as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self).map(|line| line + "\n")
    }

    /// Returns a few lines about the only cell of a record, for a terminal with this number of columns.
    pub fn text(&self, cell: &Cell, record: &Record, width: usize) -> String {
        let width = terminal::used(width);
        let us = |time: f64| {
            if time.is_nan() {
                "-".to_owned()
            } else {
                format!("{} µs", significant(time))
            }
        };
        let network = self
            .congestion
            .map(|name| format!(", congestion control {name}"))
            .unwrap_or_default();
        let place = format!(
            "{}: {}{network}",
            record.subject.place,
            Bytes(self.device_bytes)
        );
        let rates = [
            ("IOPS", grouped(self.iops.round() as u64)),
            ("MB/s", significant(self.mb_per_s)),
        ];
        let Latency {
            p50,
            p99,
            p999,
            mean,
            max,
        } = self.latency_us;
        let times = [
            ("p50", p50),
            ("p99", p99),
            ("p99.9", p999),
            ("mean", mean),
            ("longest", max),
        ];
        let cpu = [self.client_cpu_us_per_io, self.client_busy_us_per_io];
        let [cpu, busy] = cpu.map(|us_per_io| us_per_io.map_or_else(|| "-".to_owned(), us));
        let requests = format!(
            "{} in {:.1} s, {}",
            grouped(self.ios),
            self.seconds,
            self.failures()
        );
        let mut lines = wrapped(&place, width);
        lines.extend(wrapped(&cell.words(), width));
        lines.push(String::new());
        lines.extend(row(
            "  ",
            &rates.map(|(unit, rate)| format!("{rate} {unit}")),
            width,
        ));
        lines.extend(row(
            "  latency   ",
            &times.map(|(name, time)| format!("{name} {}", us(time))),
            width,
        ));
        let cpu = format!("{cpu} per request on this side, {busy} of it active");
        lines.extend(hanging("  CPU       ", &cpu, width));
        lines.extend(hanging("  requests  ", &requests, width));
        lines.extend(self.parts().lines().map(str::to_owned));
        lines.extend(self.warnings.iter().flat_map(|warning| match warning {
            Warning::Cell { sentence, .. } => hanging("! ", sentence, width),
            Warning::Note { .. } => Vec::new(),
        }));
        terminal::printed(&lines)
    }

    /// Returns a line for each client, and the fairness.
    fn parts(&self) -> String {
        let Some(longest) = self.clients.iter().map(|share| share.client.len()).max() else {
            return String::new();
        };
        let lines = self
            .clients
            .iter()
            .zip(std::iter::once("clients").chain(std::iter::repeat("")))
            .map(
                |(
                    Share {
                        client,
                        iops,
                        mb_per_s,
                        ..
                    },
                    label,
                )| {
                    let (iops, mb_per_s) = (grouped(iops.round() as u64), significant(*mb_per_s));
                    format!(
                        "  {label:<8}  {client:longest$}   {iops:>9} IOPS   {mb_per_s:>6} MB/s\n"
                    )
                },
            );
        let rates: Vec<f64> = self.clients.iter().map(|share| share.mb_per_s).collect();
        let fairness =
            jain(&rates).map(|index| format!("  fairness  {index:.3} (Jain's index; 1 is even)\n"));
        lines.chain(fairness).collect()
    }

    fn failures(&self) -> String {
        match (self.first_failure, self.errors + self.mismatches) {
            (None, _) if self.ios == 0 => "none completed".to_owned(),
            (None, _) => "none failed".to_owned(),
            (Some(first), count) => format!("{} FAILED; the first: {first}", grouped(count)),
        }
    }
}

/// Formats the items of a label, separated by three blanks, in as many lines as necessary.
fn row(label: &str, items: &[String], width: usize) -> Vec<String> {
    const BETWEEN: &str = "   ";
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        let letters = BETWEEN.len() + item.chars().count();
        match lines
            .last_mut()
            .filter(|line| line.chars().count() + letters <= width)
        {
            Some(line) => *line += &format!("{BETWEEN}{item}"),
            None => {
                let begin = if lines.is_empty() {
                    label.to_owned()
                } else {
                    " ".repeat(label.len())
                };
                lines.push(begin + item);
            }
        }
    }
    lines
}

impl<'a> Share<'a> {
    /// Returns the results of each client, or nothing if there is only one client, whose results are the same
    /// as the results of the run.
    fn all(run: &'a CellRun) -> Vec<Share<'a>> {
        let share = |one: &'a ClientRun| Share {
            role: &one.role,
            client: &one.client,
            iops: one.run.iops(),
            mb_per_s: one.run.bytes_per_s() / 1e6,
            ios: one.run.ios(),
        };
        if run.clients.len() > 1 {
            run.clients.iter().map(share).collect()
        } else {
            Vec::new()
        }
    }
}

impl Latency {
    fn of(run: &CellRun) -> Latency {
        let flows = run
            .clients
            .iter()
            .flat_map(|client| [&client.run.reads, &client.run.writes]);
        let seen = flows.map(|flow| {
            if flow.response.is_empty() {
                &flow.service
            } else {
                &flow.response
            }
        });
        let all = seen.fold(Histogram::default(), |all, one| all.merged(one));
        let Latencies {
            p50_us,
            p99_us,
            p999_us,
            mean_us,
            max_us,
            ..
        } = Latencies::of(&all);
        Latency {
            p50: p50_us,
            p99: p99_us,
            p999: p999_us,
            mean: mean_us,
            max: max_us,
        }
    }
}
