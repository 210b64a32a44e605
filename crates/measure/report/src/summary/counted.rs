//! Selects the runs of each cell that count.

use std::ops::Range;

use bench::plan::{Cell, Order, Role, Step, Stop, Workload};
use bench::record::{CellRun, ClientRun, Ended, Record, ServerMachine};
use stats::steady::Window;
use stats::{Scalability, drained_mean, median, scalability, steady};

use crate::summary::{CellSummary, CpuCost, CpuLoad, Flag};

/// A cell, with the runs that count.
pub(super) struct Counted<'a> {
    pub(super) cell: &'a Cell,
    /// The condition that ends a run of the cell.
    pub(super) stop: Stop,
    /// The order of the cell's step.
    pub(super) order: &'a Order,
    /// The runs in the order of their rounds; at least one.
    pub(super) runs: Vec<&'a CellRun>,
    /// Whether the step became steady; `None` if it does not have steady rounds.
    pub(super) steady: Option<bool>,
}

impl<'a> Counted<'a> {
    /// Returns the cells that have been run, in the order of the suite.
    pub(super) fn of(record: &'a Record) -> Vec<Counted<'a>> {
        let steps = record.suite.steps.iter().filter_map(|step| match step {
            Step::Purge | Step::Fill { .. } => None,
            Step::Measure { stop, order, cells } => Some((stop, order, cells)),
        });
        let counted = steps.flat_map(|(stop, order, cells)| {
            let rounds = Rounds::of(record, order);
            cells.iter().map(move |cell| Counted {
                cell,
                stop: cell.stop(*stop),
                order,
                runs: rounds.counted(ended(record, &cell.name)),
                steady: rounds.steady,
            })
        });
        counted.filter(|counted| !counted.runs.is_empty()).collect()
    }

    /// Returns the results of each client in each run.
    pub(super) fn clients(&self) -> impl Iterator<Item = &'a ClientRun> {
        self.runs.iter().flat_map(|run| &run.clients)
    }

    /// Returns the configured number of outstanding requests.
    pub(super) fn depth(&self) -> u32 {
        let roles = self.cell.roles.iter();
        roles.fold(0, |sum, role| {
            sum.saturating_add(role.workload.depth.saturating_mul(u32::from(role.sessions)))
        })
    }

    /// Returns the expected average number of outstanding requests. It is lower than the depth if the
    /// workload drains.
    pub(super) fn depth_mean(&self) -> f64 {
        let of = |role: &bench::plan::Role| {
            let workload = &role.workload;
            let depth = workload
                .drain_after
                .map(|transactions| drained_mean(workload.depth, transactions));
            f64::from(role.sessions) * depth.unwrap_or(f64::from(workload.depth))
        };
        self.cell.roles.iter().map(of).sum()
    }
}

/// Returns the runs of a cell, one for each round. An interrupted run counts only if the cell has no other.
pub(super) fn ended<'a>(record: &'a Record, cell: &str) -> Vec<&'a CellRun> {
    let mut runs: Vec<&CellRun> = record.runs.iter().filter(|run| run.cell == cell).collect();
    if runs.iter().any(|run| run.ended != Ended::Interrupted) {
        runs.retain(|run| run.ended != Ended::Interrupted);
    }
    runs.sort_by_key(|run| run.round);
    runs.dedup_by_key(|run| run.round);
    runs
}

/// The rounds of a step that count.
struct Rounds {
    first: u32,
    steady: Option<bool>,
}

impl Rounds {
    fn of(record: &Record, order: &Order) -> Rounds {
        let Order::SteadyRounds { tracked, .. } = order else {
            return Rounds {
                first: 0,
                steady: None,
            };
        };
        let runs = ended(record, tracked);
        let window = tracked_window(&runs);
        let first = runs.len().saturating_sub(steady::WINDOW);
        Rounds {
            first: runs.get(first).map_or(0, |run| run.round),
            steady: Some(window.is_some_and(|window| window.is_steady())),
        }
    }

    fn counted<'a>(&self, mut runs: Vec<&'a CellRun>) -> Vec<&'a CellRun> {
        runs.retain(|run| run.round >= self.first);
        runs
    }
}

fn tracked_window(runs: &[&CellRun]) -> Option<Window> {
    let rates: Vec<f64> = runs.iter().map(|run| run.iops()).collect();
    steady::window(&rates)
}

// The CPU time of requests.

/// Returns the CPU cost of the clients: the time of the threads that sent the requests.
pub(super) fn of_clients(runs: &[&CellRun]) -> Option<CpuCost> {
    let clients = runs.iter().flat_map(|run| &run.clients);
    Work::of(runs).cost(clients.map(|client| client.cpu.seconds).sum())
}

/// Returns the CPU cost of the server.
pub(super) fn of_server(runs: &[&CellRun]) -> Option<CpuCost> {
    let known: Vec<&CellRun> = runs
        .iter()
        .copied()
        .filter(|run| run.server_cpu.is_some())
        .collect();
    let seconds = known
        .iter()
        .filter_map(|run| run.server_cpu.as_ref())
        .map(|cpu| cpu.seconds)
        .sum();
    Work::of(&known).cost(seconds)
}

/// Returns the CPU utilisation of a client's machine in percent of all its CPUs, if this client recorded it.
pub(super) fn machine_percent(client: &ClientRun) -> Option<f64> {
    let time = client.run.seconds * f64::from(client.cpu.cpus);
    // The kernel counts this time in ticks of 10 ms, so it may exceed the time of a short run.
    client
        .cpu
        .machine_s
        .filter(|_| time > 0.0)
        .map(|busy| (100.0 * busy / time).min(100.0))
}

/// Returns the CPU utilisation of the machines of both sides.
pub(super) fn load(runs: &[&CellRun]) -> CpuLoad {
    let is_shared = runs.iter().any(|run| {
        run.server_cpu
            .as_ref()
            .is_some_and(|cpu| cpu.machine.is_none())
    });
    let middle = |of: &dyn Fn(&CellRun) -> Option<f64>| {
        let known: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
        (!known.is_empty()).then(|| median(&known))
    };
    let share = |seconds: f64, elapsed_s: f64, cpus: u32| {
        let time = elapsed_s * f64::from(cpus);
        (time > 0.0).then(|| (100.0 * seconds / time).min(100.0))
    };
    let here = |run: &CellRun, seconds: f64| {
        let longest = run
            .clients
            .iter()
            .map(|client| client.run.seconds)
            .fold(0.0, f64::max);
        share(seconds, longest, run.clients.first()?.cpu.cpus)
    };
    let client = |run: &CellRun| {
        if is_shared {
            return here(
                run,
                run.clients.iter().map(|client| client.cpu.seconds).sum(),
            );
        }
        let machines: Vec<f64> = run.clients.iter().filter_map(machine_percent).collect();
        (!machines.is_empty()).then(|| machines.iter().sum::<f64>() / machines.len() as f64)
    };
    let server = |run: &CellRun| {
        let cpu = run.server_cpu.as_ref()?;
        match cpu.machine {
            Some(ServerMachine { elapsed_s, cpus }) => share(cpu.seconds, elapsed_s, cpus),
            None => here(run, cpu.seconds),
        }
    };
    CpuLoad {
        client: middle(&client),
        server: middle(&server),
        is_shared,
    }
}

/// The requests and bytes for which the CPU time was used.
struct Work {
    ios: f64,
    bytes: f64,
}

impl Work {
    fn of(runs: &[&CellRun]) -> Work {
        let total = |of: fn(&ClientRun) -> u64| {
            runs.iter()
                .flat_map(|run| &run.clients)
                .map(|c| of(c) as f64)
                .sum()
        };
        Work {
            ios: total(|client| client.run.ios()),
            bytes: total(|client| client.run.bytes()),
        }
    }

    fn cost(&self, cpu_s: f64) -> Option<CpuCost> {
        const MIB: f64 = 1_048_576.0;
        (self.ios > 0.0 && cpu_s > 0.0).then(|| CpuCost {
            us_per_io: 1e6 * cpu_s / self.ios,
            us_per_mib: if self.bytes > 0.0 {
                1e6 * cpu_s / (self.bytes / MIB)
            } else {
                0.0
            },
        })
    }
}

// Rates that do not depend on the length of requests.
//
// DPMETER on a RAM drive made 4,933 to 4,986 requests per second, with 4 KiB as well as with 512 KiB
// (document 000, table 4). The loop of the program took 202 µs per request, so the numbers do not show the
// speed of the RAM. It takes longer to copy a hundred times as much data, so such a row can be recognised
// without further information.

/// Returns the points of a curve, sorted by length, whose rates agree within a tenth. The lengths must differ
/// by a factor of 32 or more, and reach 64 KiB. For shorter requests, equal rates are normal: the fixed cost
/// of a request exceeds the cost of transferring a few KiB.
pub fn loop_rate(points: &[(u32, f64)]) -> Option<Range<usize>> {
    const LENGTHS_MIN: f64 = 32.0;
    const LONGEST_MIN: u32 = 65_536;
    const APART_MAX: f64 = 1.1;
    let flat = |range: &Range<usize>| {
        let rates = points[range.clone()].iter().map(|(_, iops)| *iops);
        let (low, high) = rates.fold((f64::INFINITY, 0.0), |(low, high), rate| {
            (low.min(rate), f64::max(high, rate))
        });
        low > 0.0 && high <= APART_MAX * low
    };
    let wide = |range: &Range<usize>| {
        let (shortest, longest) = (points[range.start].0, points[range.end - 1].0);
        longest >= LONGEST_MIN && f64::from(longest) >= LENGTHS_MIN * f64::from(shortest)
    };
    let ranges =
        (0..points.len()).flat_map(|start| (start + 1..=points.len()).map(move |end| start..end));
    ranges
        .filter(|range| wide(range) && flat(range))
        .max_by_key(ExactSizeIterator::len)
}

/// Flags the measured cells that form such curves.
pub(super) fn flag(cells: &mut [CellSummary]) {
    let mut left: Vec<usize> = (0..cells.len())
        .filter(|&index| length(&cells[index].cell).is_some())
        .collect();
    while let Some(first) = left.first().copied() {
        let (mut curve, others) = left.into_iter().partition::<Vec<usize>, _>(|&index| {
            differ_in_length(&cells[first].cell, &cells[index].cell)
        });
        left = others;
        curve.sort_by_key(|&index| length(&cells[index].cell));
        let points: Vec<(u32, f64)> = curve
            .iter()
            .filter_map(|&index| Some((length(&cells[index].cell)?, cells[index].iops.median)))
            .collect();
        for index in loop_rate(&points).map_or(&[][..], |range| &curve[range]) {
            let iops = cells[*index].iops.median;
            cells[*index].flags.push(Flag::LoopRate { iops });
        }
    }
}

/// Returns the request length of a cell. Returns `None` unless the cell has one role, one length, and a
/// closed loop without pauses or network delay. In other cells, equal rates do not indicate a limit of the
/// loop.
fn length(cell: &Cell) -> Option<u32> {
    let [Role { workload, .. }] = cell.roles.as_slice() else {
        return None;
    };
    let [access] = workload.accesses.as_slice() else {
        return None;
    };
    // With a network delay, a constant time per request is expected.
    let near = cell
        .setting
        .as_ref()
        .is_none_or(|setting| setting.rtt_ms <= 0.0);
    let free = !workload.pace.is_open() && access.delay_ms == 0 && near;
    free.then_some(access.block_bytes)
}

fn differ_in_length(one: &Cell, other: &Cell) -> bool {
    let rest = |cell: &Cell| {
        let mut requests = cell.roles.first()?.requests();
        requests
            .workload
            .accesses
            .iter_mut()
            .for_each(|access| access.block_bytes = 0);
        Some(requests)
    };
    one.series == other.series && rest(one) == rest(other)
}

// The growth of a workload's rate with the number of clients or the depth, and where it ends.

/// A curve of cells that differ only in one number.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// The names of the cells, in ascending order of the number.
    pub cells: Vec<String>,
    /// The number that varies: clients or queue depth.
    pub over: Over,
    /// The points: the number, and requests per second.
    pub points: Vec<(f64, f64)>,
    /// The fitted universal scalability law.
    pub law: Scalability,
}

/// The number that varies along a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The number of clients that run the same workload concurrently.
    Clients,
    /// The number of outstanding requests of a single client, over all its sessions.
    Depth,
}

/// Returns the curves among these cells that have three or more different numbers.
pub fn scaling(cells: &[CellSummary]) -> Vec<Scaling> {
    let of = |over: Over, key: fn(&Cell) -> Option<Role>, number: fn(&CellSummary) -> f64| {
        let keyed = cells
            .iter()
            .filter_map(|cell| Some((key(&cell.cell)?, cell)));
        let mut curves: Vec<(Role, Vec<&CellSummary>)> = Vec::new();
        for (key, cell) in keyed {
            match curves.iter_mut().find(|(known, _)| *known == key) {
                Some((_, curve)) => curve.push(cell),
                None => curves.push((key, vec![cell])),
            }
        }
        curves
            .into_iter()
            .filter_map(move |(_, curve)| fit(over, curve, number))
    };
    let over_clients = of(Over::Clients, same_of_all, |cell| {
        cell.cell.roles.len() as f64
    });
    let over_depth = of(Over::Depth, without_depth, |cell| f64::from(cell.depth));
    over_clients.chain(over_depth).collect()
}

fn fit(
    over: Over,
    mut cells: Vec<&CellSummary>,
    number: fn(&CellSummary) -> f64,
) -> Option<Scaling> {
    cells.sort_by(|one, other| number(one).total_cmp(&number(other)));
    let points: Vec<(f64, f64)> = cells
        .iter()
        .map(|cell| (number(cell), cell.iops.median))
        .collect();
    let law = scalability(&points)?;
    Some(Scaling {
        cells: cells.iter().map(|cell| cell.cell.name.clone()).collect(),
        over,
        points,
        law,
    })
}

/// Returns the role of every client of a cell, if all run the same closed loop.
fn same_of_all(cell: &Cell) -> Option<Role> {
    let (first, others) = cell.roles.split_first()?;
    let what = plain(first)?;
    others
        .iter()
        .all(|other| plain(other).as_ref() == Some(&what))
        .then_some(what)
}

/// Returns the role of a single client, without its depth.
fn without_depth(cell: &Cell) -> Option<Role> {
    let [only] = cell.roles.as_slice() else {
        return None;
    };
    let role = plain(only)?;
    Some(Role {
        sessions: 1,
        workload: Workload {
            depth: 0,
            ..role.workload
        },
        ..role
    })
}

/// Returns the requests of a role in a closed loop.
fn plain(role: &Role) -> Option<Role> {
    (!role.workload.pace.is_open()).then(|| role.requests())
}
