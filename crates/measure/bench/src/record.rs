//! The record of a measurement, as written to `result.json`: every sample, every latency, and the information
//! that is needed to judge them. All other forms of a result (report, tables, comparison) are created from
//! the record.
//!
//! The format has a version, [`FORMAT`]. Within a version, names may be added, but not changed or removed.
//! Times are in seconds, latencies in nanoseconds (histograms) or microseconds (`_us`), and sizes in bytes.
//! Each name ends with the unit.

use serde::{Deserialize, Serialize};

use crate::plan::Suite;

pub use model::link::Limit;
pub use stats::Histogram;

/// The version of the format that this program writes.
pub const FORMAT: u32 = 1;

/// The complete result of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The value of [`FORMAT`] at the time of writing.
    pub format: u32,
    /// The version of the program that wrote the record.
    pub version: String,
    /// The arguments that repeat the measurement, without secrets.
    pub command: Vec<String>,
    /// The start time (RFC 3339, UTC).
    pub begun: String,
    /// The end time; `None` if the record is incomplete, so that the measurement can be resumed.
    pub ended: Option<String>,
    /// The measured storage.
    pub subject: Subject,
    /// Facts about the environment and its settings.
    pub environment: Facts,
    /// The planned suite.
    pub suite: Suite,
    /// The runs, in chronological order.
    pub runs: Vec<CellRun>,
    /// Known limits: the link rate, or a limit measured on this machine.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// Problems outside the runs, one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The storage that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The storage as named on the command line, without user name and secret.
    pub place: String,
    /// The kind of storage: `iscsi`, `file`, `block device`, `ram`, …
    pub kind: String,
    /// The capacity, in bytes.
    pub bytes: u64,
    /// The length of a logical block, in bytes.
    pub block_bytes: u32,
    /// Vendor and product, as reported by the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Distinguishes this storage from other storage with the same name, so that a measurement can be
    /// resumed; `None` if the storage exists only while the program runs.
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
    /// The participating clients, in the order of the cell's roles.
    pub clients: Vec<ClientRun>,
    /// CPU time of the server, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<ServerCpu>,
}

/// The reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The run reached its fixed time.
    Time,
    /// The rate was precise enough.
    Confidence,
    /// The maximum time passed before the rate was precise enough.
    OutOfTime,
    /// The run completed its number of bytes or requests.
    Work,
    /// Too many requests failed.
    Failures,
    /// The run was interrupted. Its data is valid, but incomplete.
    Interrupted,
}

/// One client's part in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientRun {
    /// The name of the role in the cell.
    pub role: String,
    /// The identity of the client: `client 1`, or the address of an agent.
    pub client: String,
    /// The client's result.
    pub run: Run,
    /// CPU time of this client.
    pub cpu: Cpu,
    /// The delay of this client's start relative to the first client of the run, in microseconds.
    #[serde(default)]
    pub late_us: f64,
    /// The uncertainty of `late_us`, in microseconds, since the clocks of different machines cannot be
    /// compared exactly; 0 on one machine.
    #[serde(default)]
    pub late_error_us: f64,
    /// The statistics of the client's sessions, as printed by `linerate bench --statistics --json`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<serde_json::Value>,
}

/// The results of a client's requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The counted time, in seconds.
    pub seconds: f64,
    /// The measured average number of outstanding requests; it may differ from the configured queue depth.
    pub under_way_mean: f64,
    /// The reads.
    pub reads: Flow,
    /// The writes.
    pub writes: Flow,
    /// The maximum number of due requests that waited for a slot; open loop only.
    #[serde(default)]
    pub backlog_max: u64,
    /// The number of requests that failed or never completed.
    pub errors: u64,
    /// The number of requests that the device reported as successful, but that returned wrong data.
    pub mismatches: u64,
    /// The first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// The run over time, at equal intervals. The last sample may be shorter; it is omitted if it is shorter
    /// than half an interval.
    pub samples: Vec<Sample>,
}

/// The requests completed in a short interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The end of the interval, in seconds since counting started.
    pub at_s: f64,
    /// The length of the interval, in seconds.
    pub seconds: f64,
    /// The number of reads that completed.
    pub reads: u64,
    /// The number of writes that completed.
    pub writes: u64,
    /// The number of bytes read.
    pub read_bytes: u64,
    /// The number of bytes written.
    pub written_bytes: u64,
    /// The median latency, in microseconds (in an open loop, the response time); 0 if nothing completed.
    pub p50_us: f64,
    /// The 99th percentile of the latency.
    pub p99_us: f64,
    /// The maximum latency.
    pub max_us: f64,
    /// The average number of outstanding requests.
    pub under_way: f64,
}

/// CPU time of a client during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// User and system time of the threads that made the requests, in seconds.
    pub seconds: f64,
    /// Time of the busiest of these threads, in seconds.
    pub busiest_thread_s: f64,
    /// The part of `seconds` spent on unsuccessful polls. A thread that polls could have done other work in
    /// this time.
    #[serde(default)]
    pub looked_in_vain_s: f64,
    /// CPU time of the whole machine, including all programs and interrupts, if known. If several clients
    /// share a machine, only the first client has this value, so that the machine is counted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_s: Option<f64>,
    /// Number of CPUs of the machine.
    pub cpus: u32,
}

impl Cpu {
    /// Returns the CPU time without unsuccessful polls, in seconds: the cost of the requests. Polls are timed
    /// by the clock, so the time of a thread that was preempted while polling can exceed its CPU time. The
    /// result is never negative.
    pub fn busy_s(&self) -> f64 {
        (self.seconds - self.looked_in_vain_s).max(0.0)
    }
}

/// CPU time of a server during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerCpu {
    /// The name of the server: `linerate (process 4711)`.
    pub of: String,
    /// User and system time, in seconds.
    pub seconds: f64,
    /// Time of the busiest thread, if known. A single-threaded server is saturated if this thread is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_thread_s: Option<f64>,
    /// The server's machine, if the server does not share a machine with a client. `seconds` then covers all
    /// programs on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<ServerMachine>,
}

/// The machine of a server, observed by an agent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerMachine {
    /// The time between the two observations, in seconds, by the machine's own clock.
    pub elapsed_s: f64,
    /// Number of CPUs of the machine.
    pub cpus: u32,
}

impl CellRun {
    /// Returns whether any requests completed, and no request failed or returned wrong data.
    pub fn went_well(&self) -> bool {
        let runs = || self.clients.iter().map(|client| &client.run);
        runs().all(|run| run.first_failure.is_none()) && runs().any(|run| run.ios() > 0)
    }

    /// Returns the sum of a value over all clients.
    pub fn total(&self, of: impl Fn(&Run) -> f64) -> f64 {
        self.clients.iter().map(|client| of(&client.run)).sum()
    }

    /// Returns requests per second of all clients combined.
    pub fn iops(&self) -> f64 {
        self.total(Run::iops)
    }

    /// Returns bytes per second of all clients combined.
    pub fn bytes_per_s(&self) -> f64 {
        self.total(Run::bytes_per_s)
    }

    /// Returns requests per second of all clients together, for each sample.
    pub fn iops_samples(&self) -> Vec<f64> {
        self.sample_by_sample(Sample::iops)
    }

    /// Returns bytes per second of all clients together, for each sample.
    pub fn bytes_per_s_samples(&self) -> Vec<f64> {
        self.sample_by_sample(Sample::bytes_per_s)
    }

    /// Returns the sum of a value over all clients, for each sample that all clients have. The clients start
    /// together and use the same interval.
    pub fn sample_by_sample(&self, of: fn(&Sample) -> f64) -> Vec<f64> {
        let shortest = self
            .clients
            .iter()
            .map(|client| client.run.samples.len())
            .min()
            .unwrap_or(0);
        let at = |index| {
            self.clients
                .iter()
                .map(|client| of(&client.run.samples[index]))
                .sum()
        };
        (0..shortest).map(at).collect()
    }
}

impl Run {
    /// Returns the number of successful requests of both directions.
    pub fn ios(&self) -> u64 {
        self.reads.ios.saturating_add(self.writes.ios)
    }

    /// Returns the number of bytes transferred in both directions.
    pub fn bytes(&self) -> u64 {
        self.reads.bytes.saturating_add(self.writes.bytes)
    }

    /// Returns requests per second.
    pub fn iops(&self) -> f64 {
        rate(self.ios(), self.seconds)
    }

    /// Returns bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        rate(self.bytes(), self.seconds)
    }

    /// Returns bytes read per second.
    pub fn read_bytes_per_s(&self) -> f64 {
        rate(self.reads.bytes, self.seconds)
    }

    /// Returns bytes written per second.
    pub fn written_bytes_per_s(&self) -> f64 {
        rate(self.writes.bytes, self.seconds)
    }
}

impl Sample {
    /// Returns requests per second.
    pub fn iops(&self) -> f64 {
        rate(self.reads.saturating_add(self.writes), self.seconds)
    }

    /// Returns bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        rate(
            self.read_bytes.saturating_add(self.written_bytes),
            self.seconds,
        )
    }
}

fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// Requests in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The number of successful requests.
    pub ios: u64,
    /// The bytes that they transferred.
    pub bytes: u64,
    /// Latency from submission to the device to completion.
    pub service: Histogram,
    /// Latency from the due time to completion; open loop only. It includes the wait for earlier requests,
    /// which a closed loop cannot measure ("coordinated omission").
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub response: Histogram,
}

/// The known facts, in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(pub Vec<Fact>);

/// One known fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// The group to which the fact belongs.
    pub group: Group,
    /// The name: `kernel`, `MTU`, `FirstBurstLength`.
    pub name: String,
    /// The value, with its unit.
    pub value: String,
    /// A recommended value and the reason for it, if the current value is not recommended.
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
    /// Adds a fact without a recommendation.
    pub fn add(&mut self, group: Group, name: impl Into<String>, value: impl Into<String>) {
        self.0.push(Fact {
            group,
            name: name.into(),
            value: value.into(),
            better: None,
        });
    }

    /// Returns the value of a fact, if known.
    pub fn value(&self, group: Group, name: &str) -> Option<&str> {
        let fact = self
            .0
            .iter()
            .find(|fact| fact.group == group && fact.name == name);
        fact.map(|fact| fact.value.as_str())
    }
}
