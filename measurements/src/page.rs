//! A table's figures as a section of its command's page and as JSON, and the results of its goals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use xtask::process;
use xtask::serving::istgt::Istgt;
use xtask::serving::nbd::Nbd;
use xtask::serving::tgt::Tgt;

use crate::cell::Beside;
use crate::figures::{Bound, Figure, Figures, Judged, median, middle, rows, spread};
use crate::machine;
use crate::scene::World;
use crate::server::Site;
use crate::table::{Goal, Limit, Run, Table, has, has_part};

/// The setting of a measurement.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Setting {
    pub(crate) machine: String,
    pub(crate) kernel: String,
    /// Other load on the machine at the start, in runnable processes (the load average of one minute).
    pub(crate) load: f64,
    pub(crate) congestion: String,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) tgt: String,
    pub(crate) istgt: String,
    /// nbdkit and qemu-nbd.
    pub(crate) nbd: String,
    /// The version of fio; empty if it is missing.
    pub(crate) fio: String,
    /// The version of the scene's Ceph cluster, if any.
    pub(crate) ceph: String,
}

impl Setting {
    /// Collects the setting, and warns if the machine is not idle.
    pub(crate) fn look(site: &Site, rounds: usize, seconds: f64) -> Setting {
        let (load, namespace) = (machine::load(), &site.namespace);
        println!(
            "network namespace {}: {}",
            namespace.name, namespace.congestion
        );
        if load > 0.5 {
            println!("note: the machine has other load ({load:.1}); the figures will be too low");
        }
        Setting {
            machine: machine::machine(),
            kernel: machine::kernel(),
            load,
            congestion: namespace.congestion.clone(),
            rounds,
            seconds,
            tgt: Tgt::version(),
            istgt: Istgt::version(),
            nbd: Nbd::versions(),
            fio: process::run(&site.fio, &["--version"])
                .unwrap_or_default()
                .trim()
                .to_owned(),
            ceph: site
                .world
                .as_ref()
                .and_then(World::ceph_version)
                .unwrap_or_default(),
        }
    }

    /// Returns a line for the page.
    pub(crate) fn line(&self) -> String {
        format!(
            "Machine: {}, Linux {}; load before the first round {:.2}.\n\n",
            self.machine, self.kernel, self.load
        )
    }
}

/// The results of a table: a list of rounds for each run.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) setting: Setting,
    pub(crate) runs: BTreeMap<Run, Vec<Figures>>,
}

pub(crate) fn section(table: &Table, results: &Results, goals: &[Judged]) -> String {
    about(table, &results.setting) + &rows(goals) + &figures(table, results)
}

/// Returns the description of the measurement.
pub(crate) fn about(table: &Table, setting: &Setting) -> String {
    let command = table.name.replacen('-', " --part ", 1);
    let versions = [
        ("{tgt}", &setting.tgt),
        ("{istgt}", &setting.istgt),
        ("{nbd}", &setting.nbd),
        ("{fio}", &setting.fio),
        ("{ceph}", &setting.ceph),
    ];
    let own = versions
        .iter()
        .fold(table.about.clone(), |text, (name, version)| {
            text.replace(name, version)
        });
    let Setting {
        rounds,
        seconds,
        congestion,
        ..
    } = setting;
    let others = match table.together {
        true => "All servers are started together, and all except the measured one are paused",
        false => "Each server is started after the previous one has terminated",
    };
    let places = match table.servers.iter().all(|server| server.pinned) {
        true => "Server on core 0, client on core 1",
        false => "Unless stated otherwise, server on core 0, client on core 1",
    };
    let how = match table.scene {
        Some(_) => String::new(),
        None => format!(
            "{places}, in a network namespace ({congestion}). {others}, and its volume is filled before it is measured. "
        ),
    };
    let figures = match table.steps {
        Some(_) => String::new(),
        None => format!(
            "{how}Figures are medians of {rounds} rounds of {seconds} s in changing order, with the range of the rounds in brackets. \
             Ratios are medians of the rounds' ratios. A missed goal is in bold type. MB are 10^6 bytes. CPU time is the user and \
             system time of the whole process per request.\n\n"
        ),
    };
    format!(
        "`cargo measure {command}` writes this section. {}\n\n{figures}{}",
        own.trim(),
        setting.line()
    )
}

/// Returns a row for each run. The first figure has its range, and the name of a cell stands in the first of its rows.
fn figures(table: &Table, results: &Results) -> String {
    let (servers, clients) = (table.servers.len() > 1, table.clients.len() > 1);
    let mut head = vec!["cell".to_owned()];
    head.extend(servers.then(|| "server".to_owned()));
    head.extend(clients.then(|| "client".to_owned()));
    let names = head.len();
    head.extend(
        table
            .columns
            .iter()
            .map(|figure| figure.column().0.to_owned()),
    );
    let ratios = ratios(table);
    head.extend(ratios.iter().map(|figure| ratio_heading(table, *figure)));
    let mut text = format!(
        "| {} |\n|{}{}\n",
        head.join(" | "),
        "---|".repeat(names),
        "---:|".repeat(head.len() - names)
    );
    let mut last = None;
    let is_listed = |run: &Run| has(&table.listed, &table.servers[run.server].name);
    for (run, rounds) in results.runs.iter().filter(|(run, _)| is_listed(run)) {
        let median = median(rounds);
        let cell = &table.cells[run.cell].name;
        let mut row = vec![match last.replace(run.cell) == Some(run.cell) {
            true => String::new(),
            false => cell.clone(),
        }];
        row.extend(servers.then(|| table.servers[run.server].name.clone()));
        row.extend(clients.then(|| table.clients[run.client].name.clone()));
        row.extend(table.columns.first().map(|figure| spread(rounds, *figure)));
        let others = table.columns.iter().skip(1);
        row.extend(others.map(|figure| number(median.get(figure).copied(), figure.column().1)));
        row.extend(
            ratios
                .iter()
                .map(|figure| number(relative(table, results, *run, *figure), 2)),
        );
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Returns the figures that are also shown as multiples.
fn ratios(table: &Table) -> Vec<Figure> {
    let mut figures: Vec<Figure> = table.multiples.iter().map(|it| it.figure).collect();
    figures.sort();
    figures.dedup();
    figures
}

fn ratio_heading(table: &Table, figure: Figure) -> String {
    let mut bases = table
        .multiples
        .iter()
        .filter(|it| it.figure == figure)
        .map(|it| &it.of);
    let name = figure.column().0;
    match (bases.next(), bases.next()) {
        (Some(base), None) => format!("{name} / {base}"),
        _ => format!("{name}, ratio"),
    }
}

/// Returns a figure as a multiple of the same figure of the server that it is compared with.
fn relative(table: &Table, results: &Results, run: Run, figure: Figure) -> Option<f64> {
    let name = &table.servers[run.server].name;
    let compared = table
        .multiples
        .iter()
        .find(|it| it.figure == figure && it.of != *name && has(&it.servers, name))?;
    let server = table.server(&compared.of)?;
    results.times(run, Run { server, ..run }, figure)
}

fn number(figure: Option<f64>, places: usize) -> String {
    figure.map_or_else(String::new, |figure| format!("{figure:.places$}"))
}

/// Returns every round's figures as JSON.
pub(crate) fn json(table: &Table, results: &Results) -> Result<String> {
    let runs: Vec<_> = results
        .runs
        .iter()
        .map(|(run, rounds)| {
            let (cell, server, client) = (
                &table.cells[run.cell].name,
                &table.servers[run.server].name,
                &table.clients[run.client].name,
            );
            json!({"cell": cell, "server": server, "client": client, "rounds": rounds})
        })
        .collect();
    Ok(serde_json::to_string_pretty(
        &json!({"setting": results.setting, "runs": runs}),
    )?)
}

/// Returns the names of all cells of these runs, for messages.
pub(crate) fn cells(table: &Table, runs: &BTreeSet<Run>) -> String {
    let cells: BTreeSet<usize> = runs.iter().map(|run| run.cell).collect();
    cells
        .into_iter()
        .map(|cell| table.cells[cell].name.as_str())
        .collect::<Vec<_>>()
        .join("; ")
}

/// Judges all goals of a table in all measured runs to which they apply.
pub(crate) fn judge(table: &Table, results: &Results) -> Vec<Judged> {
    table
        .goals
        .iter()
        .flat_map(|goal| {
            results
                .runs
                .keys()
                .flat_map(|run| of_run(goal, *run, table, results))
        })
        .collect()
}

fn of_run(goal: &Goal, run: Run, table: &Table, results: &Results) -> Vec<Judged> {
    let cell = &table.cells[run.cell];
    let is_meant = has(&goal.servers, &table.servers[run.server].name)
        && has(&goal.clients, &table.clients[run.client].name)
        && has_part(&goal.cells, &cell.name);
    let limit = |limit: &Option<Limit>| limit.as_ref().and_then(|limit| limit.of(cell));
    let bound = limit(&goal.at_least)
        .map(Bound::AtLeast)
        .or(limit(&goal.at_most).map(Bound::AtMost));
    let Some(bound) = bound.filter(|_| is_meant) else {
        return Vec::new();
    };
    // Groups of runs to compare with, and their figures; an empty group means that the run's own figure is judged.
    let groups: Vec<&[Beside]> = match (goal.beside.is_empty(), goal.sum) {
        (true, _) => vec![&[]],
        (false, true) => vec![&goal.beside],
        (false, false) => goal.beside.chunks(1).collect(),
    };
    let judged = |group: &[Beside]| {
        let others: Vec<(Run, Figure)> = group
            .iter()
            .map(|beside| {
                Some((
                    beside.run(run, table)?,
                    beside.figure.unwrap_or(goal.figure),
                ))
            })
            .collect::<Option<_>>()?;
        if others.contains(&(run, goal.figure)) {
            return None; // a run is not compared with itself
        }
        let found = results.ratio(run, &others, goal)?;
        let figure = goal.figure.column().0;
        let over = goal
            .over
            .map_or_else(String::new, |over| format!(" over {}", over.column().0));
        let names: Vec<String> = others
            .iter()
            .map(|(other, _)| table.other(run, *other))
            .collect();
        let beside = if names.is_empty() {
            String::new()
        } else {
            format!(" relative to {}", names.join(" and "))
        };
        Some(Judged {
            what: format!("{figure}{over} of {}{beside}", table.name_of(run)),
            cell: cell.name.clone(),
            found,
            bound,
        })
    };
    groups.into_iter().filter_map(judged).collect()
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
    /// Returns the names of server and client, if there are several.
    pub(crate) fn name_of(&self, run: Run) -> String {
        let (server, client) = (
            &self.servers[run.server].name,
            &self.clients[run.client].name,
        );
        match (self.servers.len() > 1, self.clients.len() > 1) {
            (true, true) => format!("{server} by {client}"),
            (false, true) => client.clone(),
            _ => server.clone(),
        }
    }

    /// Describes how the other run differs.
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
    /// Returns the median of the rounds' ratios. Both sides of each ratio were measured within seconds of
    /// each other.
    fn ratio(&self, run: Run, others: &[(Run, Figure)], goal: &Goal) -> Option<f64> {
        let of = |run: &Run, figure: Figure, round: usize| {
            let figures = self.runs.get(run)?.get(round)?;
            let over = goal
                .over
                .map_or(Some(1.0), |over| figures.get(&over).copied());
            Some(figures.get(&figure)? / over?)
        };
        let ratio = |round: usize| {
            let theirs = others
                .iter()
                .map(|(other, figure)| of(other, *figure, round))
                .sum::<Option<f64>>()?;
            Some(of(&run, goal.figure, round)? / if others.is_empty() { 1.0 } else { theirs })
        };
        middle((0..self.runs.get(&run)?.len()).filter_map(ratio).collect())
    }

    /// Returns the median ratio of one run's figure to another's.
    fn times(&self, run: Run, other: Run, figure: Figure) -> Option<f64> {
        let [ours, theirs] = [self.runs.get(&run)?, self.runs.get(&other)?]
            .map(|rounds| rounds.iter().map(move |round| round.get(&figure)));
        middle(
            ours.zip(theirs)
                .filter_map(|(ours, theirs)| Some(ours? / theirs?))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            .map(|(cell, server, rounds)| {
                (
                    Run {
                        cell: *cell,
                        server: *server,
                        client: 0,
                    },
                    rounds.to_vec(),
                )
            })
            .collect();
        // The second goal selects cells by a part of a name that is also in the first cell's name.
        judge(
            &table,
            &Results {
                setting: Setting::default(),
                runs,
            },
        )
    }

    fn rates(rates: &[f64]) -> Vec<Figures> {
        rates
            .iter()
            .map(|iops| Figures::from([(Figure::Iops, *iops)]))
            .collect()
    }

    #[test]
    fn what_slows_a_round_down_for_all_changes_no_ratio() {
        let goals = judged(&[
            (0, 0, &rates(&[100.0, 50.0, 100.0])),
            (0, 1, &rates(&[700.0, 350.0, 700.0])),
        ]);
        assert_eq!(goals.len(), 1, "unmeasured goals are omitted");
        assert!(goals[0].is_reached());
        assert_eq!(goals[0].what, "IOPS of ours relative to tgt");
        assert_eq!(goals[0].cell, "4 KiB random read, depth 32");
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

    #[test]
    fn a_row_has_the_range_of_its_rounds_and_its_ratio_to_another_server() {
        let mut table = Table::parse("x", TABLE).expect("a table");
        table.multiples = vec![crate::table::Multiples {
            figure: Figure::Iops,
            of: "tgt".to_owned(),
            servers: Vec::new(),
        }];
        let run = |server| Run {
            cell: 0,
            server,
            client: 0,
        };
        let runs = [(0, [50.0, 100.0, 80.0]), (1, [100.0, 300.0, 160.0])];
        let results = Results {
            setting: Setting::default(),
            runs: runs
                .map(|(server, iops)| (run(server), rates(&iops)))
                .into(),
        };
        assert_eq!(
            figures(&table, &results),
            "| cell | server | IOPS | IOPS / tgt |\n|---|---|---:|---:|\n\
             | 4 KiB random read, depth 32 | tgt | 80 (50–100) |  |\n|  | ours | 160 (100–300) | 2.00 |\n"
        );
    }
}
