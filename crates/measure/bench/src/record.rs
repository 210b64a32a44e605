//! The record of a measurement, as written to `result.json`: every sample, every latency, and the facts
//! needed to trust them. All other forms of a result (report, tables, comparison) are made from it.
//!
//! The format has a version, [`FORMAT`]; within a version, names are only ever added. Times are in seconds,
//! latencies in nanoseconds (histograms) or microseconds (`_us`), sizes in bytes: the unit is in the name.

use serde::{Deserialize, Serialize};

use crate::plan::Suite;

pub use model::link::Limit;
pub use stats::Histogram;

/// The version of the format that this program writes.
pub const FORMAT: u32 = 1;

/// All of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`] at the time of writing.
    pub format: u32,
    /// The version of the program that wrote it.
    pub version: String,
    /// The arguments to repeat it, without secrets.
    pub command: Vec<String>,
    /// The start time: RFC 3339, UTC.
    pub begun: String,
    /// The end time; `None` if the record is incomplete and can be resumed.
    pub ended: Option<String>,
    /// The measured storage.
    pub subject: Subject,
    /// The environment and settings.
    pub environment: Facts,
    /// The planned suite.
    pub suite: Suite,
    /// The runs, in chronological order.
    pub runs: Vec<CellRun>,
    /// Known ceilings: of the link, or measured on this machine.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Problems outside the runs, one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The storage that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Its name on the command line, without user and secret.
    pub place: String,
    /// `iscsi`, `file`, `block device`, `ram`, …
    pub kind: String,
    /// Its capacity.
    pub bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// Vendor and product, as reported by the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Distinguishes it from other storage of the same name, so that a measurement can be resumed; `None` if
    /// the storage ends with the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// One run of a cell, by all its clients concurrently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRun {
    /// The name of the cell.
    pub cell: String,
    /// The round of the step, from 0.
    pub round: u32,
    /// The start of counting, in seconds since the start of the record.
    pub begun_s: f64,
    /// The reason for the end of the run.
    pub ended: Ended,
    /// The participants, in the order of the cell's roles.
    pub clients: Vec<ClientRun>,
    /// CPU time of the server, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<ServerCpu>,
}

/// The reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It took its fixed time.
    Time,
    /// The rate was known well enough.
    Confidence,
    /// The maximum time passed before the rate was known well enough.
    OutOfTime,
    /// All of the work was done.
    Work,
    /// Too many requests failed.
    Failures,
    /// It was interrupted: its data is good, but incomplete.
    Interrupted,
}

/// One client's part in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientRun {
    /// The role in the cell.
    pub role: String,
    /// Its identity: `client 1`, or the address of an agent.
    pub client: String,
    /// The client's result.
    pub run: Run,
    /// CPU time of this client.
    pub cpu: Cpu,
    /// Its start after the first client of this run, in microseconds.
    #[serde(default)]
    pub late_us: f64,
    /// The uncertainty of `late_us`, in microseconds: the clocks of several machines are never compared
    /// exactly. 0 on one machine.
    #[serde(default)]
    pub late_error_us: f64,
    /// The statistics of its sessions, as printed by `linerate bench --statistics --json`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<serde_json::Value>,
}

/// The results of a client's requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The time for which requests were counted, in seconds.
    pub seconds: f64,
    /// Outstanding requests on average: measured, not configured.
    pub under_way_mean: f64,
    /// The reads.
    pub reads: Flow,
    /// The writes.
    pub writes: Flow,
    /// In an open loop: the largest number of due requests that waited for a slot.
    #[serde(default)]
    pub backlog_max: u64,
    /// Requests that failed or never ended.
    pub errors: u64,
    /// Requests that succeeded, according to the device, and returned wrong data.
    pub mismatches: u64,
    /// The first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// The run over time, at equal intervals. The last sample may be shorter; one shorter than half an
    /// interval is omitted.
    pub samples: Vec<Sample>,
}

/// The requests completed in a short interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The end of the interval, in seconds since counting started.
    pub at_s: f64,
    /// The length of the interval, in seconds.
    pub seconds: f64,
    /// Reads that ended in it.
    pub reads: u64,
    /// Writes that ended in it.
    pub writes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// The median latency in it, in microseconds (response time in an open loop); 0 if nothing completed.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Requests under way, on average.
    pub under_way: f64,
}

/// CPU time of a client during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Of the threads that made the requests, user and system, in seconds.
    pub seconds: f64,
    /// Of the busiest of those threads.
    pub busiest_thread_s: f64,
    /// The part spent on unsuccessful polls, in seconds: a busy-polling thread could have done more in this
    /// time.
    #[serde(default)]
    pub looked_in_vain_s: f64,
    /// Of the whole machine, all programs and interrupts, if known. Where several clients share a machine,
    /// only the first has it and the others have `None`, so that it is counted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_s: Option<f64>,
    /// CPUs of the machine.
    pub cpus: u32,
}

impl Cpu {
    /// The cost of the requests in seconds: CPU time without idle polls. Polls are timed by the clock, so a
    /// thread that was preempted while polling may have polled for longer than it computed; the result is
    /// never below zero.
    pub fn busy_s(&self) -> f64 {
        (self.seconds - self.looked_in_vain_s).max(0.0)
    }
}

/// CPU time of a server during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerCpu {
    /// Whose: `linerate (process 4711)`.
    pub of: String,
    /// User and system, in seconds.
    pub seconds: f64,
    /// Of the busiest of its threads, if known: a single-threaded server is saturated when this thread is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_thread_s: Option<f64>,
    /// The machine, if it is not the clients'; `seconds` then covers all its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<ServerMachine>,
}

/// The machine of a server, observed by an agent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerMachine {
    /// The time between the two observations, in seconds, by its own clock.
    pub elapsed_s: f64,
    /// Its CPUs.
    pub cpus: u32,
}

impl CellRun {
    /// Whether requests completed, and none failed or returned wrong data.
    pub fn went_well(&self) -> bool {
        let runs = || self.clients.iter().map(|client| &client.run);
        runs().all(|run| run.first_failure.is_none()) && runs().any(|run| run.ios() > 0)
    }

    /// A sum over all clients.
    pub fn total(&self, of: impl Fn(&Run) -> f64) -> f64 {
        self.clients.iter().map(|client| of(&client.run)).sum()
    }

    /// Requests a second, all clients together.
    pub fn iops(&self) -> f64 {
        self.total(Run::iops)
    }

    /// Bytes a second, all clients together.
    pub fn bytes_per_s(&self) -> f64 {
        self.total(Run::bytes_per_s)
    }

    /// Requests a second over time, all clients together.
    pub fn iops_samples(&self) -> Vec<f64> {
        self.sample_by_sample(Sample::iops)
    }

    /// Bytes a second over time, all clients together.
    pub fn bytes_per_s_samples(&self) -> Vec<f64> {
        self.sample_by_sample(Sample::bytes_per_s)
    }

    /// A series over time, for as long as all clients have samples: they start together and use the same
    /// interval.
    pub fn sample_by_sample(&self, of: fn(&Sample) -> f64) -> Vec<f64> {
        let shortest = self.clients.iter().map(|client| client.run.samples.len()).min().unwrap_or(0);
        let at = |index| self.clients.iter().map(|client| of(&client.run.samples[index])).sum();
        (0..shortest).map(at).collect()
    }
}

impl Run {
    /// Requests of both directions that ended well.
    pub fn ios(&self) -> u64 {
        self.reads.ios.saturating_add(self.writes.ios)
    }

    /// Bytes of both directions that were moved.
    pub fn bytes(&self) -> u64 {
        self.reads.bytes.saturating_add(self.writes.bytes)
    }

    /// Requests a second.
    pub fn iops(&self) -> f64 {
        rate(self.ios(), self.seconds)
    }

    /// Bytes a second.
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.bytes(), self.seconds)
    }

    /// Bytes a second of reads.
    pub fn read_bytes_per_s(&self) -> f64 {
        rate(self.reads.bytes, self.seconds)
    }

    /// Bytes a second of writes.
    pub fn written_bytes_per_s(&self) -> f64 {
        rate(self.writes.bytes, self.seconds)
    }
}

impl Sample {
    /// Requests a second.
    pub fn iops(&self) -> f64 {
        rate(self.reads.saturating_add(self.writes), self.seconds)
    }

    /// Bytes a second.
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.read_bytes.saturating_add(self.written_bytes), self.seconds)
    }
}

fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Requests in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The number of successful requests.
    pub ios: u64,
    /// Data they moved.
    pub bytes: u64,
    /// From submission to the device to completion.
    pub service: Histogram,
    /// From the due time to completion; in an open loop only. It includes the wait for earlier requests,
    /// which a closed loop cannot measure ("coordinated omission").
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub response: Histogram,
}

/// The known facts, in reading order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(pub Vec<Fact>);

/// One known fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// The group of the fact.
    pub group: Group,
    /// Its name: `kernel`, `MTU`, `FirstBurstLength`.
    pub name: String,
    /// Its value, with its unit.
    pub value: String,
    /// The recommended value and the reason, if the value is below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<String>,
}

/// The subject of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// This machine: kernel, CPUs, memory, clock source.
    Client,
    /// The path: interface, link speed, MTU, congestion control, round trip.
    Network,
    /// The parameters negotiated by initiator and target.
    Negotiated,
    /// The storage: vendor, capacity, write cache, provisioning.
    Storage,
    /// The measuring program.
    Tool,
}

impl Facts {
    /// Adds a fact that needs no improvement.
    pub fn add(&mut self, group: Group, name: impl Into<String>, value: impl Into<String>) {
        self.0.push(Fact { group, name: name.into(), value: value.into(), better: None });
    }

    /// The value of a fact, if known.
    pub fn value(&self, group: Group, name: &str) -> Option<&str> {
        let fact = self.0.iter().find(|fact| fact.group == group && fact.name == name);
        fact.map(|fact| fact.value.as_str())
    }
}
