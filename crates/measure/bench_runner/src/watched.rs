//! What a whole screen shows of a measurement.

use std::collections::VecDeque;
use std::time::Instant;

use bench::record::{CellRun, Histogram, Record, Sample};

use super::crew::Purged;
use super::now::{Now, Rates};
use super::view::{RunStart, View};

/// Everything that is shown. It is told as a view is.
pub struct Watched {
    /// The suite and the place.
    pub title: String,
    begun: Instant,
    /// `[3/24] read-4KiB`.
    pub what: String,
    /// As `RunStart::time_left` says it.
    pub time_left: String,
    /// How far this run is, from 0 to 1.
    pub done_share: f64,
    run_seconds: f64,
    /// Names of the clients.
    pub roles: Vec<String>,
    /// What each client does now.
    pub now: Now,
    /// What all clients did, over the last while.
    pub history: VecDeque<Moment>,
    /// The newest last.
    pub ended: Vec<EndedRun>,
    /// The last remark.
    pub note: Option<String>,
}

/// A point of the curves.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds since the measurement began.
    pub at_s: f64,
    /// What all clients did then.
    pub rates: Rates,
}

/// A run that is done.
pub struct EndedRun {
    /// The cell.
    pub name: String,
    /// Requests a second, of all clients.
    pub iops: f64,
    /// Bytes a second, both ways.
    pub bytes_per_s: f64,
    /// Half of the requests took no longer.
    pub p50_us: f64,
    /// Of a hundred, 99 took no longer.
    pub p99_us: f64,
    /// Requests that failed or gave wrong data.
    pub failed: u64,
}

/// Two minutes of a sample every tenth of a second.
const MOMENTS: usize = 1200;

impl Watched {
    /// Before anything is done.
    pub fn new(record: &Record) -> Watched {
        Watched {
            title: format!("{} on {}", record.suite.name, record.subject.place),
            begun: Instant::now(),
            what: "preparing".to_owned(),
            time_left: String::new(),
            done_share: 0.0,
            run_seconds: 0.0,
            roles: Vec::new(),
            now: Now::default(),
            history: VecDeque::new(),
            ended: record.runs.iter().map(EndedRun::of).collect(),
            note: record.notes.last().cloned(),
        }
    }
}

impl View for Watched {
    fn begins(&mut self, doing: &RunStart<'_>) {
        self.what = format!("[{}/{}] {}", doing.number, doing.runs_max(), doing.name);
        self.time_left = doing.time_left();
        self.done_share = 0.0;
        self.run_seconds = doing.stop.max_s;
        self.roles.clone_from(&doing.roles);
        self.now = Now::of(doing.roles.len());
    }

    fn sample(&mut self, role: usize, sample: &Sample) {
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

    fn purged(&mut self, purged: Purged) {
        self.done_share = purged.done_bytes as f64 / purged.of_bytes.max(1) as f64;
    }

    fn ended(&mut self, run: &CellRun) {
        self.ended.push(EndedRun::of(run));
    }

    fn note(&mut self, sentence: &str) {
        self.note = Some(sentence.to_owned());
    }
}

impl EndedRun {
    fn of(run: &CellRun) -> EndedRun {
        let runs = || run.clients.iter().map(|client| &client.run);
        let flows = runs().flat_map(|run| [&run.reads.service, &run.writes.service]);
        let latencies = flows.fold(Histogram::default(), |all, one| all.merged(one));
        let us = |share| latencies.quantile_ns(share) as f64 / 1e3;
        EndedRun {
            name: run.cell.clone(),
            iops: run.iops(),
            bytes_per_s: run.bytes_per_s(),
            p50_us: us(0.5),
            p99_us: us(0.99),
            failed: runs().map(|run| run.errors + run.mismatches).sum(),
        }
    }
}
