//! How the rate of a workload grows with the number of those who ask, and where that ends.

use super::CellSummary;
use bench::plan::{Cell, Role, Span, Workload};
use stats::{Scalability, scalability};

/// A curve of cells that differ in one number only.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaling {
    /// The cells, by rising number.
    pub cells: Vec<String>,
    /// What the number counts.
    pub over: Over,
    /// Number and requests a second.
    pub points: Vec<(f64, f64)>,
    /// The universal scalability law, fitted.
    pub law: Scalability,
}

/// What grows along a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Clients that do the same at once.
    Clients,
    /// Requests that a single client has under way, over all its sessions.
    Depth,
}

/// The curves among these cells that have three different numbers or more.
pub fn scaling(cells: &[CellSummary]) -> Vec<Scaling> {
    let of = |over: Over, key: fn(&Cell) -> Option<Role>, number: fn(&CellSummary) -> f64| {
        let keyed = cells.iter().filter_map(|cell| Some((key(&cell.cell)?, cell)));
        let mut curves: Vec<(Role, Vec<&CellSummary>)> = Vec::new();
        for (key, cell) in keyed {
            match curves.iter_mut().find(|(known, _)| *known == key) {
                Some((_, curve)) => curve.push(cell),
                None => curves.push((key, vec![cell])),
            }
        }
        curves.into_iter().filter_map(move |(_, curve)| fit(over, curve, number))
    };
    let over_clients = of(Over::Clients, same_of_all, |cell| cell.cell.roles.len() as f64);
    let over_depth = of(Over::Depth, without_depth, |cell| f64::from(cell.depth));
    over_clients.chain(over_depth).collect()
}

fn fit(over: Over, mut cells: Vec<&CellSummary>, number: fn(&CellSummary) -> f64) -> Option<Scaling> {
    cells.sort_by(|one, other| number(one).total_cmp(&number(other)));
    let points: Vec<(f64, f64)> = cells.iter().map(|cell| (number(cell), cell.iops.median)).collect();
    let law = scalability(&points)?;
    Some(Scaling { cells: cells.iter().map(|cell| cell.cell.name.clone()).collect(), over, points, law })
}

/// What every client of a cell does, if all do the same in a closed loop.
fn same_of_all(cell: &Cell) -> Option<Role> {
    let (first, others) = cell.roles.split_first()?;
    let what = plain(first)?;
    others.iter().all(|other| plain(other).as_ref() == Some(&what)).then_some(what)
}

/// What a single client does, but for its depth.
fn without_depth(cell: &Cell) -> Option<Role> {
    let [only] = cell.roles.as_slice() else { return None };
    let role = plain(only)?;
    Some(Role { sessions: 1, workload: Workload { depth: 0, ..role.workload }, ..role })
}

/// A role without what tells it from others that do the same.
fn plain(role: &Role) -> Option<Role> {
    let workload = Workload { seed: 0, span: Span::default(), ..role.workload.clone() };
    let plain = Role { name: String::new(), client: 0, apart: false, workload, ..role.clone() };
    (!role.workload.pace.is_open()).then_some(plain)
}
