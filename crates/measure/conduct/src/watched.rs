//! What the screen shows.

use std::collections::VecDeque;
use std::time::Instant;

use bench::record::{CellRun, Histogram, Record, Sample};

use super::super::{Now, Rates, RunStart};
use crate::bench::crew::Purged;

/// Everything that is shown.
pub(super) struct State {
    pub(super) title: String,
    pub(super) begun: Instant,
    /// `[3/24] read-4KiB`.
    pub(super) what: String,
    pub(super) time_left: String,
    /// How far this run is, from 0 to 1.
    pub(super) done_share: f64,
    run_seconds: f64,
    pub(super) roles: Vec<String>,
    pub(super) now: Now,
    /// What all clients did, over the last while.
    pub(super) history: VecDeque<Moment>,
    /// The newest last.
    pub(super) ended: Vec<Row>,
    pub(super) note: Option<String>,
}

/// A point of the curves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Seconds since the measurement began.
    pub(super) at_s: f64,
    pub(super) rates: Rates,
}

/// A run that is done.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) iops: f64,
    pub(super) bytes_per_s: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) failed: u64,
}

/// Two minutes of a sample every tenth of a second.
const MOMENTS: usize = 1200;

impl State {
    pub(super) fn of(record: &Record) -> State {
        State {
            title: format!("{} on {}", record.suite.name, record.subject.place),
            begun: Instant::now(),
            what: "preparing".to_owned(),
            time_left: String::new(),
            done_share: 0.0,
            run_seconds: 0.0,
            roles: Vec::new(),
            now: Now::default(),
            history: VecDeque::new(),
            ended: record.runs.iter().map(Row::of).collect(),
            note: record.notes.last().cloned(),
        }
    }

    pub(super) fn begins(&mut self, doing: &RunStart<'_>) {
        self.what = format!("[{}/{}] {}", doing.number, doing.runs_max(), doing.name);
        self.time_left = doing.time_left();
        self.done_share = 0.0;
        self.run_seconds = doing.stop.max_s;
        self.roles.clone_from(&doing.roles);
        self.now = Now::of(doing.roles.len());
    }

    pub(super) fn sample(&mut self, role: usize, sample: &Sample) {
        self.now.add(role, sample);
        if role > 0 {
            return;
        }
        self.done_share =
            if self.run_seconds > 0.0 { (sample.at_s / self.run_seconds).min(1.0) } else { 0.0 };
        self.history.push_back(Moment { at_s: self.begun.elapsed().as_secs_f64(), rates: self.now.all() });
        while self.history.len() > MOMENTS {
            self.history.pop_front();
        }
    }

    pub(super) fn purged(&mut self, purged: Purged) {
        self.done_share = purged.done_bytes as f64 / purged.of_bytes.max(1) as f64;
    }

    pub(super) fn ended(&mut self, run: &CellRun) {
        self.ended.push(Row::of(run));
    }

    pub(super) fn note(&mut self, sentence: &str) {
        self.note = Some(sentence.to_owned());
    }
}

impl Row {
    fn of(run: &CellRun) -> Row {
        let runs = || run.clients.iter().map(|client| &client.run);
        let flows = runs().flat_map(|run| [&run.reads.service, &run.writes.service]);
        let latencies = flows.fold(Histogram::default(), |all, one| all.merged(one));
        let us = |share| latencies.quantile_ns(share) as f64 / 1e3;
        Row {
            name: run.cell.clone(),
            iops: runs().map(|run| run.iops()).sum(),
            bytes_per_s: runs().map(|run| run.bytes_per_s()).sum(),
            p50_us: us(0.5),
            p99_us: us(0.99),
            failed: runs().map(|run| run.errors + run.mismatches).sum(),
        }
    }
}
