//! What a record says of each cell: medians over its runs with what is known of their error, and what is to be thought of
//! them. Reports, tables and the terminal show these values and compute none of their own.

use crate::plan::Cell;
use crate::statistics::Interval;

/// What a cell came to.
#[derive(Clone, Debug, PartialEq)]
pub struct CellSummary {
    /// The cell.
    pub cell: Cell,
    /// Runs that count: all of them, or those of the steady rounds.
    pub runs: usize,
    /// Requests a second, all clients together.
    pub iops: Estimate,
    /// Bytes a second, all clients together.
    pub bytes_per_s: Estimate,
    /// Bytes a second of reads and of writes, medians.
    pub read_bytes_per_s: f64,
    /// See `read_bytes_per_s`.
    pub written_bytes_per_s: f64,
    /// How long requests took, of all counted runs and both directions together.
    pub service: Latencies,
    /// From when they were meant to be made; in an open loop only.
    pub response: Option<Latencies>,
    /// Requests under way on average, all clients together: measured.
    pub under_way: f64,
    /// Requests under way by the configuration, all clients together.
    pub depth: u32,
    /// CPU time of the clients.
    pub client_cpu: Option<CpuCost>,
    /// CPU time of the server.
    pub server_cpu: Option<CpuCost>,
    /// Each client's part, in the order of the roles.
    pub clients: Vec<ClientSummary>,
    /// Jain's index of the clients' rates, 1/n to 1, where there are several with the same workload.
    pub fairness: Option<f64>,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that returned wrong data.
    pub mismatches: u64,
    /// What is to be thought of it.
    pub flags: Vec<Flag>,
}

/// A median over runs, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The 95 % interval that it lies in: of several runs by how they differ ([`crate::statistics::median_interval`]), of
    /// a single one by how its samples do ([`crate::statistics::series_mean`]), which cannot tell how another run would
    /// differ. `None` where there was too little to tell.
    pub interval: Option<Interval>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// On average.
    pub mean_us: f64,
    /// Half took no longer.
    pub p50_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p999_us: f64,
    /// 9999 of 10000.
    pub p9999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// What requests cost in CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuCost {
    /// Microseconds for each request.
    pub us_per_io: f64,
    /// Microseconds for each MiB.
    pub us_per_mib: f64,
    /// CPU time in percent of one CPU.
    pub percent: f64,
    /// Iometer's "CPU effectiveness": requests a second for each percent of the whole machine's CPUs.
    pub iops_per_percent: f64,
}

/// One client's part in a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSummary {
    /// Its role.
    pub role: String,
    /// Who it was.
    pub client: String,
    /// Requests a second, median.
    pub iops: f64,
    /// Bytes a second, median.
    pub bytes_per_s: f64,
    /// Its share of what the same workload gave when it ran alone, if it did.
    pub of_single: Option<f64>,
    /// How long its requests took.
    pub service: Latencies,
}

/// What is to be thought of a result. [`std::fmt::Display`] says it in a sentence.
#[derive(Clone, Debug, PartialEq)]
pub enum Flag {
    /// Rate times latency is not the number of requests under way (Little's law): something was not counted.
    Little {
        /// Rate times mean latency.
        expected: f64,
        /// Requests under way, measured.
        measured: f64,
    },
    /// The depth that was asked for was not reached.
    DepthNotReached {
        /// Requests under way, measured.
        measured: f64,
        /// And asked for.
        asked: u32,
    },
    /// The client's threads were busy all the time: it is the client that was measured.
    ClientCpu {
        /// The busiest thread's CPU time in percent of the time.
        percent: f64,
    },
    /// Requests a second hardly depend on their length, although the bytes a second do (DPMETERM on a RAM drive, document
    /// 000 table 4): it is the loop that makes requests that was measured.
    LoopRate {
        /// Requests a second.
        iops: f64,
    },
    /// The rate of an open loop was not kept.
    Overload {
        /// Asked for, per second.
        asked: f64,
        /// Reached, per second.
        reached: f64,
    },
    /// The interval of confidence is wider than was asked for.
    NotConfident {
        /// Half of it in percent of the median.
        percent: f64,
    },
    /// The rounds did not become steady.
    NotSteady,
    /// The rate rises or falls during the runs.
    Drifts {
        /// From the first to the last quarter, in percent of the mean.
        percent: f64,
    },
    /// Requests failed.
    Failed {
        /// How many.
        errors: u64,
    },
    /// Data came back wrong.
    WrongData {
        /// How often.
        mismatches: u64,
    },
    /// A run was cut short.
    Interrupted,
}
