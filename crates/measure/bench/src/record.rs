//! What was measured, as it is written to `result.json`: every sample, every latency, and everything that has to be known
//! to believe them. All other forms of a result (report, tables, comparison) are made of this one.
//!
//! The format has a version, [`FORMAT`]; names are only ever added within one. Times are in seconds, latencies in
//! nanoseconds (histograms) or microseconds (`_us`), sizes in bytes: the unit is in the name.

use serde::{Deserialize, Serialize};

use crate::plan::Suite;

pub use model::link::Limit;
pub use stats::Histogram;

/// The version of the format that this program writes.
pub const FORMAT: u32 = 1;

/// All of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`], when it was written.
    pub format: u32,
    /// The version of the program that wrote it.
    pub version: String,
    /// The arguments that make it again, without secrets.
    pub command: Vec<String>,
    /// When it began: RFC 3339, UTC.
    pub begun: String,
    /// When it ended; `None` if it did not come to its end, and can be resumed.
    pub ended: Option<String>,
    /// What was measured.
    pub subject: Subject,
    /// On what, with what settings.
    pub environment: Facts,
    /// What was to be run.
    pub suite: Suite,
    /// What was run, in that order.
    pub runs: Vec<CellRun>,
    /// Ceilings that are known: of the link, or measured on this machine.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// What went wrong beside the runs, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The storage that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// As it was named on the command line, without user and secret.
    pub place: String,
    /// `iscsi`, `file`, `block device`, `ram`, …
    pub kind: String,
    /// Its capacity.
    pub bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// Vendor and product, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// What tells it from other storage of the same name, so that a measurement can be gone on with; `None` if it ends
    /// with the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
}

/// One run of a cell, by all its clients at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellRun {
    /// The name of the cell.
    pub cell: String,
    /// Which round of the step it was, from 0.
    pub round: u32,
    /// When counting began, in seconds since the record did.
    pub begun_s: f64,
    /// What ended it.
    pub ended: Ended,
    /// Who took part, in the order of the cell's roles.
    pub clients: Vec<ClientRun>,
    /// CPU time of the server, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<ServerCpu>,
}

/// What ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It took its fixed time.
    Time,
    /// The rate was known well enough.
    Confidence,
    /// It should have gone on until the rate was known well enough, and its longest time was over.
    OutOfTime,
    /// All of the work was done.
    Work,
    /// Too many requests failed.
    Failures,
    /// Somebody or something interrupted it: what is there is good, and short.
    Interrupted,
}

/// One client's part in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientRun {
    /// The role in the cell.
    pub role: String,
    /// Who it was: `client 1`, or the address of an agent.
    pub client: String,
    /// What came of it.
    pub run: Run,
    /// CPU time of this client.
    pub cpu: Cpu,
    /// How much later than the first client of this run it began, in microseconds.
    #[serde(default)]
    pub late_us: f64,
    /// By which that may be wrong, in microseconds: clocks of several machines are never quite compared. 0 on one
    /// machine.
    #[serde(default)]
    pub late_error_us: f64,
    /// What its sessions told of themselves, as `linerate bench --statistics --json` prints it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<serde_json::Value>,
}

/// What a client's requests came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// How long requests were counted, in seconds.
    pub seconds: f64,
    /// Requests under way, on average over that time: measured, not configured.
    pub under_way_mean: f64,
    /// Those that read.
    pub reads: Flow,
    /// Those that write.
    pub writes: Flow,
    /// In an open loop: the most requests that were due and waited for room.
    #[serde(default)]
    pub backlog_max: u64,
    /// Requests that failed or never ended.
    pub errors: u64,
    /// Requests that ended well, as the device said, and returned wrong data.
    pub mismatches: u64,
    /// What was wrong first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
    /// How it went over time, at equal distances. The last may be shorter; what is shorter than half of the others is
    /// in no sample.
    pub samples: Vec<Sample>,
}

/// What happened in a short time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When it ended, in seconds since counting began.
    pub at_s: f64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// Reads that ended in it.
    pub reads: u64,
    /// Writes that ended in it.
    pub writes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// The median latency in it, in microseconds (response time in an open loop); 0 if nothing ended.
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
    /// The busiest of those threads.
    pub busiest_thread_s: f64,
    /// Of that, what it took to look for answers that were not there yet, in seconds: a thread that waits awake could have
    /// done more in this time.
    #[serde(default)]
    pub looked_in_vain_s: f64,
    /// Of the whole machine, all programs and interrupts, if it is known. Where several clients share a machine the first
    /// of them has it, and the others `None`, so that it is counted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_s: Option<f64>,
    /// CPUs of the machine.
    pub cpus: u32,
}

impl Cpu {
    /// The cost of the requests in seconds: CPU time without idle polls. Their time is measured by the clock, and a thread
    /// that was preempted meanwhile has polled for longer than it computed; the result is never below zero.
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
    /// The busiest of its threads, if it is known: a server with one thread is at its end when that one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_thread_s: Option<f64>,
    /// The machine, if it is another one than the clients': all that it did is `seconds` then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<ServerMachine>,
}

/// The machine of a server, on which an agent looked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerMachine {
    /// The time between both looks, in seconds, by its own clock.
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

    /// Something of all clients together.
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

    /// As far as all clients have samples: they began together, and at equal distances each has one.
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
    /// Those that ended well.
    pub ios: u64,
    /// Data they moved.
    pub bytes: u64,
    /// From when a request was handed to the device to its end.
    pub service: Histogram,
    /// From when it was meant to be made to its end; in an open loop only. What a request waits for those before it
    /// counts here, and a closed loop cannot see it ("coordinated omission").
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub response: Histogram,
}

/// What is known, in the order in which people read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Facts(pub Vec<Fact>);

/// One thing that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Where it belongs.
    pub group: Group,
    /// What it is: `kernel`, `MTU`, `FirstBurstLength`.
    pub name: String,
    /// Its value, with its unit.
    pub value: String,
    /// What would be better, if it is below what is recommended, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub better: Option<String>,
}

/// What a fact is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// This machine: kernel, CPUs, memory, clock source.
    Client,
    /// The way: interface, link speed, MTU, congestion control, round trip.
    Network,
    /// What initiator and target agreed on.
    Negotiated,
    /// The storage: vendor, capacity, write cache, provisioning.
    Storage,
    /// What measured.
    Tool,
}

impl Facts {
    /// Adds one that is as it should be.
    pub fn add(&mut self, group: Group, name: impl Into<String>, value: impl Into<String>) {
        self.0.push(Fact { group, name: name.into(), value: value.into(), better: None });
    }

    /// The value of one, if it is known.
    pub fn value(&self, group: Group, name: &str) -> Option<&str> {
        let fact = self.0.iter().find(|fact| fact.group == group && fact.name == name);
        fact.map(|fact| fact.value.as_str())
    }
}
