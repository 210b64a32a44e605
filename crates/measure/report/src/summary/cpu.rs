//! What requests cost in CPU time.

use super::{CpuCost, CpuLoad};
use bench::record::{CellRun, ClientRun, ServerMachine};
use stats::median;

/// Of the clients: their own threads' time for each request, and the whole machines' for Iometer's effectiveness.
pub(super) fn of_clients(runs: &[&CellRun]) -> Option<CpuCost> {
    let clients = || runs.iter().flat_map(|run| &run.clients);
    let work = Work::of(runs);
    let seconds: f64 = clients().map(|client| client.cpu.seconds).sum();
    let percent_of_machines: f64 =
        clients().filter_map(machine_percent).sum::<f64>() / runs.len().max(1) as f64;
    let own = clients().map(|client| client.cpu.cpus).max().map_or(1, |cpus| cpus.max(1));
    work.cost(seconds).map(|cost| match percent_of_machines > 0.0 {
        true => CpuCost { iops_per_percent: work.iops() / percent_of_machines, ..cost },
        false => CpuCost { iops_per_percent: cost.iops_per_percent * f64::from(own), ..cost },
    })
}

/// Of the server, whose machine is not known.
pub(super) fn of_server(runs: &[&CellRun]) -> Option<CpuCost> {
    let known: Vec<&CellRun> = runs.iter().copied().filter(|run| run.server_cpu.is_some()).collect();
    let seconds = known.iter().filter_map(|run| run.server_cpu.as_ref()).map(|cpu| cpu.seconds).sum();
    Work::of(&known).cost(seconds)
}

/// How busy the machine of a client was, in percent of all its CPUs, if this client is the one that tells.
pub(super) fn machine_percent(client: &ClientRun) -> Option<f64> {
    let time = client.run.seconds * f64::from(client.cpu.cpus);
    // The kernel counts it in ticks of 10 ms, which may be more than the time of a short run.
    client.cpu.machine_s.filter(|_| time > 0.0).map(|busy| (100.0 * busy / time).min(100.0))
}

/// How busy the machines of both sides were.
pub(super) fn load(runs: &[&CellRun]) -> CpuLoad {
    let is_shared = runs.iter().any(|run| run.server_cpu.as_ref().is_some_and(|cpu| cpu.machine.is_none()));
    let middle = |of: &dyn Fn(&CellRun) -> Option<f64>| {
        let known: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
        (!known.is_empty()).then(|| median(&known))
    };
    let share = |seconds: f64, elapsed_s: f64, cpus: u32| {
        let time = elapsed_s * f64::from(cpus);
        (time > 0.0).then(|| (100.0 * seconds / time).min(100.0))
    };
    let here = |run: &CellRun, seconds: f64| {
        let longest = run.clients.iter().map(|client| client.run.seconds).fold(0.0, f64::max);
        share(seconds, longest, run.clients.first()?.cpu.cpus)
    };
    let client = |run: &CellRun| {
        if is_shared {
            return here(run, run.clients.iter().map(|client| client.cpu.seconds).sum());
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
    CpuLoad { client: middle(&client), server: middle(&server), is_shared }
}

/// What the CPU time was spent on.
struct Work {
    ios: f64,
    bytes: f64,
    seconds: f64,
}

impl Work {
    fn of(runs: &[&CellRun]) -> Work {
        let total =
            |of: fn(&ClientRun) -> u64| runs.iter().flat_map(|run| &run.clients).map(|c| of(c) as f64).sum();
        let longest =
            |run: &&CellRun| run.clients.iter().map(|client| client.run.seconds).fold(0.0, f64::max);
        Work {
            ios: total(|client| client.run.ios()),
            bytes: total(|client| client.run.bytes()),
            seconds: runs.iter().map(longest).sum(),
        }
    }

    fn iops(&self) -> f64 {
        self.ios / self.seconds
    }

    fn cost(&self, cpu_s: f64) -> Option<CpuCost> {
        const MIB: f64 = 1_048_576.0;
        if self.ios <= 0.0 || self.seconds <= 0.0 || cpu_s <= 0.0 {
            return None;
        }
        let percent = 100.0 * cpu_s / self.seconds;
        Some(CpuCost {
            us_per_io: 1e6 * cpu_s / self.ios,
            us_per_mib: if self.bytes > 0.0 { 1e6 * cpu_s / (self.bytes / MIB) } else { 0.0 },
            percent,
            iops_per_percent: self.iops() / percent,
        })
    }
}
