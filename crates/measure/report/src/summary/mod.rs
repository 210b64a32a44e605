//! What a record says of each cell: medians over its runs with what is known of their error, and what is to be thought of
//! them. Reports, tables and the terminal show these values and compute none of their own.

mod checks;
mod clients;
mod convergence;
mod counted;
mod cpu;
mod estimate;
mod flag;
mod latencies;
mod loop_rate;
mod scaling;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bench::plan::Cell;
use bench::record::{CellRun, Record};
use stats::{Interval, median};

pub use convergence::{Convergence, convergence};
pub use flag::Flag;
pub use loop_rate::loop_rate;
pub use scaling::{Over, Scaling, scaling};

use counted::Counted;

/// Summarizes every cell that has been run, in the order of the suite.
pub fn of(record: &Record) -> Vec<CellSummary> {
    let counted = Counted::of(record);
    let mut cells: Vec<CellSummary> = counted.iter().map(|cell| summarize(cell, &counted)).collect();
    loop_rate::flag(&mut cells);
    cells
}

/// The runs that the summary of each cell counts, by its name.
pub(crate) fn counted_runs(record: &Record) -> BTreeMap<&str, Vec<&CellRun>> {
    Counted::of(record).into_iter().map(|counted| (counted.cell.name.as_str(), counted.runs)).collect()
}

/// How busy both machines were in a run.
pub(crate) fn cpu_load(run: &CellRun) -> CpuLoad {
    cpu::load(&[run])
}

fn summarize(counted: &Counted<'_>, all: &[Counted<'_>]) -> CellSummary {
    let over_runs = |value: &dyn Fn(&CellRun) -> f64| {
        let values: Vec<f64> = counted.runs.iter().map(|run| value(run)).collect();
        median(&values)
    };
    let clients = clients::of(counted, all);
    let mut summary = CellSummary {
        cell: counted.cell.clone(),
        runs: counted.runs.len(),
        iops: Estimate::of(&counted.runs, CellRun::iops, CellRun::iops_samples),
        bytes_per_s: Estimate::of(&counted.runs, CellRun::bytes_per_s, CellRun::bytes_per_s_samples),
        read_bytes_per_s: over_runs(&|run| run.total(|run| run.read_bytes_per_s())),
        written_bytes_per_s: over_runs(&|run| run.total(|run| run.written_bytes_per_s())),
        service: latencies::service(counted.clients()),
        response: latencies::response(counted.clients()),
        under_way: over_runs(&|run| run.total(|run| run.under_way_mean)),
        depth: counted.depth(),
        client_cpu: cpu::of_clients(&counted.runs),
        server_cpu: cpu::of_server(&counted.runs),
        cpu_load: cpu::load(&counted.runs),
        fairness: clients::fairness(counted.cell, &clients),
        clients,
        errors: counted.clients().map(|client| client.run.errors).fold(0, u64::saturating_add),
        mismatches: counted.clients().map(|client| client.run.mismatches).fold(0, u64::saturating_add),
        flags: Vec::new(),
    };
    summary.flags = checks::flags(counted, &summary);
    summary
}

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
    /// How busy both machines were.
    pub cpu_load: CpuLoad,
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

/// CPU load in percent of all CPUs of a machine, as vmstat tells it; medians of the runs. Where the server is a process on the
/// machine of the clients, what each of both used of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuLoad {
    /// Of the clients' machines, on average.
    pub client: Option<f64>,
    /// Of the server's machine.
    pub server: Option<f64>,
    /// Whether both are one machine.
    pub is_shared: bool,
}

/// A median over runs, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The 95 % interval that it lies in: of several runs by how they differ ([`stats::median_interval`]), of
    /// a single one by how its samples do ([`stats::series_mean`]), which cannot tell how another run would
    /// differ. `None` where there was too little to tell.
    pub interval: Option<Interval>,
}

/// Latencies in microseconds; not a number where no request completed.
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
    /// Iometer's "CPU effectiveness": requests a second for each percent of the whole machine's CPUs, whoever uses them; of
    /// one CPU where the machine's are not known (a server).
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
