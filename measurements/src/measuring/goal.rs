//! What is asked for, and whether it was found.

use super::Results;
use super::figures::{Figure, Figures, middle};
use super::table::{Beside, Goal, Limit, Run, Table, has, has_part};

/// A goal and what was measured.
#[derive(Debug)]
pub(crate) struct Judged {
    what: String,
    found: f64,
    bound: Bound,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Judged {
    pub(crate) fn at_most(what: impl Into<String>, found: f64, limit: f64) -> Judged {
        Judged { what: what.into(), found, bound: Bound::AtMost(limit) }
    }

    pub(crate) fn at_least(what: impl Into<String>, found: f64, limit: f64) -> Judged {
        Judged { what: what.into(), found, bound: Bound::AtLeast(limit) }
    }

    /// Whether it was found.
    pub(crate) fn is_reached(&self) -> bool {
        match self.bound {
            Bound::AtMost(limit) => self.found <= limit,
            Bound::AtLeast(limit) => self.found >= limit,
        }
    }

    fn row(&self) -> String {
        let asked = match self.bound {
            Bound::AtMost(limit) => format!("≤ {limit}"),
            Bound::AtLeast(limit) => format!("≥ {limit}"),
        };
        let verdict = if self.is_reached() { "reached" } else { "**missed**" };
        format!("| {} | {asked} | {:.3} | {verdict} |\n", self.what, self.found)
    }
}

/// A row for each; nothing for none.
pub(crate) fn rows(goals: &[Judged]) -> String {
    if goals.is_empty() {
        return String::new();
    }
    let head = "| goal | asked | found | |\n|---|---|---:|---|\n";
    goals.iter().fold(head.to_owned(), |text, goal| text + &goal.row()) + "\n"
}

/// All goals of a table in all runs that they are about, as far as these were measured.
pub(crate) fn judge(table: &Table, results: &Results) -> Vec<Judged> {
    table
        .goals
        .iter()
        .flat_map(|goal| results.runs.keys().flat_map(|run| of_run(goal, *run, table, results)))
        .collect()
}

fn of_run(goal: &Goal, run: Run, table: &Table, results: &Results) -> Vec<Judged> {
    let cell = &table.cells[run.cell];
    let is_meant = has(&goal.servers, &table.servers[run.server].name)
        && has(&goal.clients, &table.clients[run.client].name)
        && has_part(&goal.cells, &cell.name);
    let limit = |limit: &Option<Limit>| limit.as_ref().and_then(|limit| limit.of(cell));
    let bound = limit(&goal.at_least).map(Bound::AtLeast).or(limit(&goal.at_most).map(Bound::AtMost));
    let Some(bound) = bound.filter(|_| is_meant) else { return Vec::new() };
    let itself = [Beside::default()];
    let others = if goal.beside.is_empty() { &itself[..] } else { &goal.beside };
    let judged = |beside: &Beside| {
        let other = (!goal.beside.is_empty()).then(|| beside.run(run, table)).flatten();
        if other == Some(run) {
            return None; // nothing is beside itself
        }
        let found = results.ratio(run, other, goal)?;
        let figure = goal.figure.column().0;
        let over = goal.over.map_or_else(String::new, |over| format!(" over {}", over.column().0));
        let other = other.map_or_else(String::new, |other| format!(" beside {}", table.other(run, other)));
        let what = format!("{}: {figure}{over} of {}{other}", cell.name, table.name_of(run));
        Some(Judged { what, found, bound })
    };
    others.iter().filter_map(judged).collect()
}

impl Beside {
    pub(crate) fn run(&self, run: Run, table: &Table) -> Option<Run> {
        let or = |name: &Option<String>, find: &dyn Fn(&str) -> Option<usize>, same: usize| {
            name.as_ref().map_or(Some(same), |name| find(name))
        };
        Some(Run {
            cell: or(&self.cell, &|name| table.cell(name), run.cell)?,
            server: or(&self.server, &|name| table.server(name), run.server)?,
            client: or(&self.client, &|name| table.client(name), run.client)?,
        })
    }
}

impl Table {
    /// Server and client, where there are several.
    pub(crate) fn name_of(&self, run: Run) -> String {
        let (server, client) = (&self.servers[run.server].name, &self.clients[run.client].name);
        match (self.servers.len() > 1, self.clients.len() > 1) {
            (true, true) => format!("{server} by {client}"),
            (false, true) => client.clone(),
            _ => server.clone(),
        }
    }

    /// What of the other run is not the same.
    fn other(&self, run: Run, other: Run) -> String {
        let names = [
            (run.server != other.server).then(|| self.servers[other.server].name.clone()),
            (run.client != other.client).then(|| self.clients[other.client].name.clone()),
            (run.cell != other.cell).then(|| self.cells[other.cell].name.clone()),
        ];
        names.into_iter().flatten().collect::<Vec<_>>().join(" by ")
    }
}

impl Results {
    /// The median of the rounds' ratios: both sides of each were measured within seconds of each other.
    fn ratio(&self, run: Run, other: Option<Run>, goal: &Goal) -> Option<f64> {
        self.ratios(run, other, |figures| {
            let over = goal.over.map_or(Some(1.0), |over| figures.get(&over).copied());
            Some(figures.get(&goal.figure)? / over?)
        })
    }

    /// How many times one run's figure another's is.
    pub(crate) fn times(&self, run: Run, other: Run, figure: Figure) -> Option<f64> {
        self.ratios(run, Some(other), |figures| figures.get(&figure).copied())
    }

    fn ratios(&self, run: Run, other: Option<Run>, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        let ours = self.runs.get(&run)?.iter().map(&of);
        let Some(other) = other else { return middle(ours.flatten().collect()) };
        let theirs = self.runs.get(&other)?.iter().map(&of);
        middle(ours.zip(theirs).filter_map(|(ours, theirs)| Some(ours? / theirs?)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::measuring::machine::Setting;

    const TABLE: &str = "
        heading = 'x'
        about = 'x'
        seconds = 1.0
        columns = ['iops']
        cells = ['4 KiB random read, depth 32', '4 KiB random read, depth 1']
        [[servers]]
        name = 'tgt'
        program = 'tgt'
        [[servers]]
        name = 'ours'
        program = 'linerate'
        [[clients]]
        name = 'bench'
        program = 'bench'
        [[goal]]
        servers = ['ours']
        figure = 'iops'
        beside = [{ server = 'tgt' }]
        at-least = { '4 KiB random read, depth 32' = 6.9 }
        [[goal]]
        servers = ['ours']
        cells = ['depth 1']
        figure = 'p999_us'
        over = 'p50_us'
        at-most = 3.0";

    fn judged(runs: &[(usize, usize, &[Figures])]) -> Vec<Judged> {
        let table = Table::parse("x", TABLE).expect("a table");
        let runs: BTreeMap<_, _> = runs
            .iter()
            .map(|(cell, server, rounds)| (Run { cell: *cell, server: *server, client: 0 }, rounds.to_vec()))
            .collect();
        // The second goal's part of a name is in the first cell's too.
        judge(&table, &Results { setting: Setting::default(), runs })
    }

    fn rates(rates: &[f64]) -> Vec<Figures> {
        rates.iter().map(|iops| Figures::from([(Figure::Iops, *iops)])).collect()
    }

    #[test]
    fn what_slows_a_round_down_for_all_changes_no_ratio() {
        let goals = judged(&[(0, 0, &rates(&[100.0, 50.0, 100.0])), (0, 1, &rates(&[700.0, 350.0, 700.0]))]);
        assert_eq!(goals.len(), 1, "a goal that was not measured is none");
        assert!(goals[0].is_reached());
        let row = "| 4 KiB random read, depth 32: IOPS of ours beside tgt | ≥ 6.9 | 7.000 | reached |\n";
        assert_eq!(goals[0].row(), row);
        let missed = judged(&[(0, 0, &rates(&[100.0])), (0, 1, &rates(&[600.0]))]);
        assert!(!missed[0].is_reached());
    }

    #[test]
    fn a_figure_may_be_judged_by_another_of_its_run() {
        let slow = Figures::from([(Figure::P50Us, 10.0), (Figure::P999Us, 31.0)]);
        let goals = judged(&[(1, 1, &[slow])]);
        assert_eq!(goals.len(), 1);
        assert!(!goals[0].is_reached());
    }

    #[test]
    fn a_goal_can_be_missed() {
        assert!(Judged::at_most("seconds", 2.0, 2.0).is_reached());
        assert!(!Judged::at_most("seconds", 2.1, 2.0).is_reached());
        assert!(!Judged::at_least("Jain's index", 0.94, 0.95).is_reached());
    }
}
