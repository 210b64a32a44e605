//! What is read of a `result.json`. These are types of our own, and all figures are computed here anew: a mistake of the
//! program's own summary would be no help in finding it.

use std::fs;
use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Record {
    pub(super) ended: Option<String>,
    pub(super) suite: Suite,
    pub(super) runs: Vec<CellRun>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Suite {
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Purge,
    Fill {},
    Measure { cells: Vec<Cell> },
}

#[derive(Debug, Deserialize)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) roles: Vec<Role>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Role {
    pub(super) name: String,
    pub(super) sessions: u16,
    pub(super) workload: Workload,
}

#[derive(Debug, Deserialize)]
pub(super) struct Workload {
    pub(super) accesses: Vec<Access>,
    pub(super) depth: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct Access {
    pub(super) block_bytes: u32,
    pub(super) read: u8,
}

#[derive(Debug, Deserialize)]
pub(super) struct CellRun {
    pub(super) cell: String,
    pub(super) ended: String,
    pub(super) clients: Vec<ClientRun>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ClientRun {
    pub(super) role: String,
    pub(super) run: Run,
    pub(super) cpu: Cpu,
}

#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) seconds: f64,
    pub(super) under_way_mean: f64,
    pub(super) reads: Flow,
    pub(super) writes: Flow,
    pub(super) errors: u64,
    pub(super) mismatches: u64,
    pub(super) samples: Vec<Sample>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Flow {
    pub(super) ios: u64,
    pub(super) bytes: u64,
    /// (nanoseconds, times).
    pub(super) service: Vec<(u64, u64)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Sample {
    pub(super) at_s: f64,
    pub(super) seconds: f64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Cpu {
    pub(super) seconds: f64,
    pub(super) cpus: u32,
}

impl Record {
    pub(super) fn read(path: &Path) -> Result<Record> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    }

    /// All cells that were to be run.
    pub(super) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.suite.steps.iter().flat_map(|step| match step {
            Step::Measure { cells } => cells.as_slice(),
            Step::Purge | Step::Fill {} => &[],
        })
    }
}

impl Run {
    pub(super) fn ios(&self) -> u64 {
        self.reads.ios + self.writes.ios
    }

    /// The mean of all latencies, in seconds.
    pub(super) fn latency_mean_s(&self) -> f64 {
        let all = || self.reads.service.iter().chain(&self.writes.service);
        let sum_ns: f64 = all().map(|(ns, times)| *ns as f64 * *times as f64).sum();
        let count: u64 = all().map(|(_, times)| times).sum();
        sum_ns / 1e9 / count.max(1) as f64
    }
}

impl Run {
    /// The longest latency, in seconds.
    pub(super) fn latency_max_s(&self) -> f64 {
        let last = |flow: &Flow| flow.service.last().map_or(0, |(ns, _)| *ns);
        last(&self.reads).max(last(&self.writes)) as f64 / 1e9
    }
}

impl CellRun {
    /// Requests a second and bytes a second read and written, of all clients together.
    pub(super) fn rates(&self) -> Rates {
        let sum = |of: fn(&Run) -> u64| -> f64 {
            let rate =
                |client: &ClientRun| of(&client.run) as f64 / client.run.seconds.max(f64::MIN_POSITIVE);
            self.clients.iter().map(rate).sum()
        };
        Rates {
            iops: sum(Run::ios),
            read_bytes: sum(|run| run.reads.bytes),
            written_bytes: sum(|run| run.writes.bytes),
        }
    }
}

/// All per second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) iops: f64,
    pub(super) read_bytes: f64,
    pub(super) written_bytes: f64,
}
