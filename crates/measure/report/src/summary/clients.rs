//! Each client's part in a cell, beside what it would have had alone.

use super::counted::Counted;
use super::{ClientSummary, latencies};
use bench::plan::{Cell, Role, Span, Workload};
use bench::record::{CellRun, ClientRun};
use stats::{jain, median};

/// The clients of a cell, in the order of its roles.
pub(super) fn of(counted: &Counted<'_>, all: &[Counted<'_>]) -> Vec<ClientSummary> {
    let present = counted.runs.iter().map(|run| run.clients.len()).min().unwrap_or(0);
    let roles = counted.cell.roles.iter().enumerate().take(present);
    roles.map(|(index, role)| summarize(counted, index, alone(role, counted.cell, all))).collect()
}

/// Jain's index, where several do the same.
pub(super) fn fairness(cell: &Cell, clients: &[ClientSummary]) -> Option<f64> {
    let (first, others) = cell.roles.split_first()?;
    let alike = !others.is_empty() && others.iter().all(|other| do_the_same(first, other));
    let rates: Vec<f64> = clients.iter().map(|client| client.iops).collect();
    if alike { jain(&rates) } else { None }
}

fn summarize(counted: &Counted<'_>, index: usize, alone: Option<f64>) -> ClientSummary {
    // There are as many clients in every run: the caller has counted them.
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
        service: latencies::service(clients.into_iter()),
    }
}

/// What a role's workload gave in a cell where nobody else was at work.
fn alone(role: &Role, cell: &Cell, all: &[Counted<'_>]) -> Option<f64> {
    let single = |other: &&Counted<'_>| match other.cell.roles.as_slice() {
        [only] => do_the_same(only, role),
        _ => false,
    };
    let others = cell.roles.len() > 1;
    let found = all.iter().find(single).filter(|_| others)?;
    let rates: Vec<f64> = found.runs.iter().map(|run| CellRun::iops(run)).collect();
    Some(median(&rates))
}

/// Whether two ask the same of the storage, each in its own place and with its own numbers.
fn do_the_same(one: &Role, other: &Role) -> bool {
    let what = |role: &Role| Workload { seed: 0, span: Span::default(), ..role.workload.clone() };
    one.sessions == other.sessions
        && one.read_ahead_bytes == other.read_ahead_bytes
        && what(one) == what(other)
}
