//! Summarizes each cell of a record: medians over its runs with their errors, and warnings. Reports, tables
//! and the terminal output show these values, and do not compute any values themselves.

mod checks;
mod counted;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bench::plan::{Cell, Order, Role, Step};
use bench::record::{CellRun, ClientRun, Flow, Histogram, Record};
use stats::steady::Window;
use stats::{ALPHA, Interval, jain, median, median_interval, series_mean, steady};

pub use checks::Flag;
pub use counted::Over;
pub use counted::Scaling;
pub use counted::loop_rate;
pub use counted::scaling;
use counted::{Counted, ended};

/// Summarizes every cell that has been run, in the order of the suite.
pub fn of(record: &Record) -> Vec<CellSummary> {
    let counted = Counted::of(record);
    let mut cells: Vec<CellSummary> = counted
        .iter()
        .map(|cell| summarize(cell, &counted))
        .collect();
    counted::flag(&mut cells);
    cells
}

/// Returns the runs that count in the summary of each cell, by the cell's name.
pub(crate) fn counted_runs(record: &Record) -> BTreeMap<&str, Vec<&CellRun>> {
    Counted::of(record)
        .into_iter()
        .map(|counted| (counted.cell.name.as_str(), counted.runs))
        .collect()
}

/// Returns the CPU utilisation of both machines in a run.
pub(crate) fn cpu_load(run: &CellRun) -> CpuLoad {
    counted::load(&[run])
}

fn summarize(counted: &Counted<'_>, all: &[Counted<'_>]) -> CellSummary {
    let over_runs = |value: &dyn Fn(&CellRun) -> f64| {
        let values: Vec<f64> = counted.runs.iter().map(|run| value(run)).collect();
        median(&values)
    };
    let clients = clients_of(counted, all);
    let mut summary = CellSummary {
        cell: counted.cell.clone(),
        runs: counted.runs.len(),
        iops: Estimate::of(&counted.runs, CellRun::iops, CellRun::iops_samples),
        bytes_per_s: Estimate::of(
            &counted.runs,
            CellRun::bytes_per_s,
            CellRun::bytes_per_s_samples,
        ),
        read_bytes_per_s: over_runs(&|run| run.total(|run| run.read_bytes_per_s())),
        written_bytes_per_s: over_runs(&|run| run.total(|run| run.written_bytes_per_s())),
        service: service(counted.clients()),
        response: response(counted.clients()),
        directions: directions(counted.clients()),
        under_way: over_runs(&|run| run.total(|run| run.under_way_mean)),
        depth: counted.depth(),
        client_cpu: counted::of_clients(&counted.runs),
        server_cpu: counted::of_server(&counted.runs),
        cpu_load: counted::load(&counted.runs),
        fairness: fairness(counted.cell, &clients),
        clients,
        errors: counted
            .clients()
            .map(|client| client.run.errors)
            .fold(0, u64::saturating_add),
        mismatches: counted
            .clients()
            .map(|client| client.run.mismatches)
            .fold(0, u64::saturating_add),
        flags: Vec::new(),
    };
    summary.flags = checks::flags(counted, &summary);
    summary
}

/// The results of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct CellSummary {
    /// The cell.
    pub cell: Cell,
    /// The number of runs that count: all runs, or those of the steady rounds.
    pub runs: usize,
    /// Requests per second of all clients combined.
    pub iops: Estimate,
    /// Bytes per second of all clients combined.
    pub bytes_per_s: Estimate,
    /// The median of bytes read per second.
    pub read_bytes_per_s: f64,
    /// The median of bytes written per second.
    pub written_bytes_per_s: f64,
    /// The latency of requests, over all counted runs and both directions.
    pub service: Latencies,
    /// The latency from the due times of the requests; open loop only.
    pub response: Option<Latencies>,
    /// The latency of reads and of writes, if there were both.
    pub directions: Option<[Latencies; 2]>,
    /// The measured average number of outstanding requests of all clients combined.
    pub under_way: f64,
    /// The configured number of outstanding requests of all clients combined.
    pub depth: u32,
    /// CPU time of the clients.
    pub client_cpu: Option<CpuCost>,
    /// CPU time of the server.
    pub server_cpu: Option<CpuCost>,
    /// The CPU utilisation of both machines.
    pub cpu_load: CpuLoad,
    /// The results of each client, in the order of the roles.
    pub clients: Vec<ClientSummary>,
    /// Jain's index of the clients' rates, from 1/n to 1, if several clients have the same workload.
    pub fairness: Option<f64>,
    /// The number of requests that failed.
    pub errors: u64,
    /// The number of requests that returned wrong data.
    pub mismatches: u64,
    /// Warnings about the results.
    pub flags: Vec<Flag>,
}

/// CPU utilisation in percent of all CPUs of a machine, as in vmstat; medians of the runs. If the server is a
/// process on the clients' machine, the values are the shares of the clients and of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuLoad {
    /// The utilisation of the clients' machines, on average.
    pub client: Option<f64>,
    /// The utilisation of the server's machine.
    pub server: Option<f64>,
    /// Whether both are the same machine.
    pub is_shared: bool,
}

impl CellSummary {
    /// Returns requests per second for each percent of the CPU utilisation of one end: Iometer's "CPU
    /// effectiveness", and document 003's "IOPs/%CPU". `load` is a value of [`CpuLoad`], so the definition is
    /// the same for both ends. Returns `None` if the load is unknown or 0.
    pub fn iops_per_percent(&self, load: Option<f64>) -> Option<f64> {
        load.filter(|percent| *percent > 0.0)
            .map(|percent| self.iops.median / percent)
    }
}

/// A median over runs, with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The 95 % interval; `None` if there is not enough data. With several runs, it follows from their
    /// variation ([`stats::median_interval`]). With a single run, it follows from the run's samples
    /// ([`stats::series_mean`]), and does not include the variation between runs.
    pub interval: Option<Interval>,
}

/// Latencies in microseconds; NaN if no request completed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The 99.99th percentile.
    pub p9999_us: f64,
    /// The maximum.
    pub max_us: f64,
}

/// The CPU time of requests: of the threads that sent them, or of the server. If an agent measured the server,
/// its time includes all programs of its machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuCost {
    /// CPU time per request, in microseconds.
    pub us_per_io: f64,
    /// CPU time per MiB, in microseconds.
    pub us_per_mib: f64,
}

/// The results of one client in a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSummary {
    /// The role of the client.
    pub role: String,
    /// The identity of the client.
    pub client: String,
    /// The median of requests per second.
    pub iops: f64,
    /// The median of bytes per second.
    pub bytes_per_s: f64,
    /// The client's share of the rate that the same workload had without other clients, if that was measured.
    pub of_single: Option<f64>,
    /// The latency of the client's requests.
    pub service: Latencies,
}

/// Estimates from several runs.
impl Estimate {
    /// Returns the median of a rate over runs. The interval of a single run follows from its samples.
    fn of(
        runs: &[&CellRun],
        rate: fn(&CellRun) -> f64,
        samples: fn(&CellRun) -> Vec<f64>,
    ) -> Estimate {
        let rates: Vec<f64> = runs.iter().map(|run| rate(run)).collect();
        let median = median(&rates);
        let interval = match runs {
            // Centre the interval at the rate of the whole run, which includes requests that a short last
            // sample may omit.
            [run] => series_mean(&samples(run))
                .filter(|mean| mean.freedom > 0.0)
                .map(|mean| {
                    let mut interval = mean.interval(ALPHA);
                    interval.low += median - mean.mean;
                    interval.high += median - mean.mean;
                    interval
                }),
            _ => median_interval(&rates),
        };
        // Rates are never negative, but Student's distribution does not exclude that.
        let possible = interval.map(|interval| Interval {
            low: interval.low.max(0.0),
            ..interval
        });
        Estimate {
            median,
            interval: possible.filter(|interval| interval.half().is_finite()),
        }
    }

    /// Returns the distance of the farther end of the interval from the median, in percent of the median, if
    /// there is an interval.
    pub fn percent(&self) -> Option<f64> {
        let Interval { low, high } = self.interval?;
        let farther = (self.median - low).max(high - self.median);
        (self.median > 0.0).then(|| 100.0 * farther / self.median)
    }
}

// Latencies from histograms.

/// Returns the service times of requests, over all clients and both directions.
fn service<'a>(clients: impl Iterator<Item = &'a ClientRun>) -> Latencies {
    Latencies::of(&merged(clients, |flow| &flow.service))
}

/// Returns the response times of requests, or `None` in a closed loop.
fn response<'a>(clients: impl Iterator<Item = &'a ClientRun>) -> Option<Latencies> {
    let all = merged(clients, |flow| &flow.response);
    (!all.is_empty()).then(|| Latencies::of(&all))
}

/// Returns the service times of reads and of writes, or `None` if there were only reads or only writes.
fn directions<'a>(clients: impl Iterator<Item = &'a ClientRun>) -> Option<[Latencies; 2]> {
    let mut both = [Histogram::default(), Histogram::default()];
    for client in clients {
        for (sum, flow) in both.iter_mut().zip([&client.run.reads, &client.run.writes]) {
            *sum = std::mem::take(sum).merged(&flow.service);
        }
    }
    let is_mixed = both.iter().all(|histogram| !histogram.is_empty());
    is_mixed.then(|| both.each_ref().map(Latencies::of))
}

fn merged<'a>(
    clients: impl Iterator<Item = &'a ClientRun>,
    of: fn(&Flow) -> &Histogram,
) -> Histogram {
    clients
        .flat_map(|client| [of(&client.run.reads), of(&client.run.writes)])
        .fold(Histogram::default(), |sum, histogram| sum.merged(histogram))
}

impl Latencies {
    /// Returns the quantiles to show; NaN if no request completed.
    pub fn of(histogram: &Histogram) -> Latencies {
        let us = |ns: u64| {
            if histogram.is_empty() {
                f64::NAN
            } else {
                ns as f64 / 1000.0
            }
        };
        let quantile = |share| us(histogram.quantile_ns(share));
        Latencies {
            mean_us: if histogram.is_empty() {
                f64::NAN
            } else {
                histogram.mean_ns() / 1000.0
            },
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            p9999_us: quantile(0.9999),
            max_us: us(histogram.max_ns()),
        }
    }
}

// The convergence of rounds to a steady state, for a report.

/// The rounds of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Convergence {
    /// The number of the step in the suite, from 0.
    pub step: usize,
    /// The name of the cell that is tracked.
    pub tracked: String,
    /// Requests per second of the tracked cell, for each round.
    pub iops: Vec<f64>,
    /// The last five rounds, steady or not; `None` if there are fewer.
    pub window: Option<Window>,
}

/// Returns the steps of a record with steady rounds, and their progress.
pub fn convergence(record: &Record) -> Vec<Convergence> {
    let steps = record.suite.steps.iter().enumerate();
    let rounds = steps.filter_map(|(number, step)| match step {
        Step::Measure {
            order: Order::SteadyRounds { tracked, .. },
            ..
        } => Some((number, tracked)),
        Step::Measure {
            order: Order::Once | Order::Interleaved { .. },
            ..
        }
        | Step::Purge
        | Step::Fill { .. } => None,
    });
    let converged = rounds.map(|(step, tracked)| {
        let iops: Vec<f64> = ended(record, tracked)
            .iter()
            .map(|run| run.iops())
            .collect();
        Convergence {
            step,
            tracked: tracked.clone(),
            window: steady::window(&iops),
            iops,
        }
    });
    converged.filter(|rounds| !rounds.iops.is_empty()).collect()
}

// The results of each client in a cell, compared with its rate without other clients.

/// Returns the clients of a cell, in the order of its roles.
fn clients_of(counted: &Counted<'_>, all: &[Counted<'_>]) -> Vec<ClientSummary> {
    let present = counted
        .runs
        .iter()
        .map(|run| run.clients.len())
        .min()
        .unwrap_or(0);
    let roles = counted.cell.roles.iter().enumerate().take(present);
    roles
        .map(|(index, role)| clients_summarize(counted, index, alone(role, counted.cell, all)))
        .collect()
}

/// Returns Jain's index, if several clients run the same workload.
fn fairness(cell: &Cell, clients: &[ClientSummary]) -> Option<f64> {
    let (first, others) = cell.roles.split_first()?;
    let alike = !others.is_empty()
        && others
            .iter()
            .all(|other| first.requests() == other.requests());
    let rates: Vec<f64> = clients.iter().map(|client| client.iops).collect();
    if alike { jain(&rates) } else { None }
}

fn clients_summarize(counted: &Counted<'_>, index: usize, alone: Option<f64>) -> ClientSummary {
    // Every run has at least this number of clients, to which the caller has limited the index.
    let clients: Vec<&ClientRun> = counted.runs.iter().map(|run| &run.clients[index]).collect();
    let over_runs = |value: fn(&ClientRun) -> f64| {
        let values: Vec<f64> = clients.iter().map(|client| value(client)).collect();
        median(&values)
    };
    let iops = over_runs(|client| client.run.iops());
    ClientSummary {
        role: clients[0].role.clone(),
        client: clients[0].client.clone(),
        iops,
        bytes_per_s: over_runs(|client| client.run.bytes_per_s()),
        of_single: alone.filter(|alone| *alone > 0.0).map(|alone| iops / alone),
        service: service(clients.into_iter()),
    }
}

/// Returns the rate of a role's workload in a cell without other clients.
fn alone(role: &Role, cell: &Cell, all: &[Counted<'_>]) -> Option<f64> {
    let single = |other: &&Counted<'_>| match other.cell.roles.as_slice() {
        [only] => only.requests() == role.requests(),
        _ => false,
    };
    let others = cell.roles.len() > 1;
    let found = all.iter().find(single).filter(|_| others)?;
    let rates: Vec<f64> = found.runs.iter().map(|run| CellRun::iops(run)).collect();
    Some(median(&rates))
}
