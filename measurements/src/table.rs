//! The tables of measurements, measurements/tables/NAME.toml: cells, servers, clients and goals.
//!
//! A cell is specified by its name: `4 KiB random read, depth 32`. All cells, servers and clients of a table are combined,
//! unless `measure` selects combinations.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use xtask::workspace;

use crate::cell::{Beside, Cell};
use crate::client::Client;
use crate::figures::Figure;
use crate::scene::Scene;
use crate::server::Server;
use crate::steps::Steps;

/// A section of its command's page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Table {
    /// The name of its file, without `.toml`.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) heading: String,
    /// The text before the figures. `{tgt}`, `{istgt}`, `{nbd}`, `{fio}` and `{ceph}` stand for the versions of these programs.
    pub(crate) about: String,
    /// Default duration of each figure in each round.
    pub(crate) seconds: f64,
    /// Start all servers together, and pause all except the one that is measured. By default, each server starts after the
    /// previous one has terminated.
    #[serde(default)]
    pub(crate) together: bool,
    /// Required programs, in addition to those for a namespace.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    /// The part of the storage to use; empty for all of it.
    #[serde(default = "whole_volume")]
    pub(crate) span: String,
    /// Hosts, links and servers for the whole table.
    pub(crate) scene: Option<Scene>,
    /// Events during one verified load of each server, instead of rounds.
    pub(crate) steps: Option<Steps>,
    #[serde(default)]
    pub(crate) columns: Vec<Figure>,
    /// The servers whose figures are listed; empty for all. The others are measured for goals only.
    #[serde(default)]
    pub(crate) listed: Vec<String>,
    #[serde(default)]
    pub(crate) multiples: Vec<Multiples>,
    /// The test name in the published rows, by cell.
    #[serde(default)]
    pub(crate) published: BTreeMap<String, String>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) servers: Vec<Server>,
    #[serde(default = "Client::bench_only")]
    pub(crate) clients: Vec<Client>,
    #[serde(default)]
    measure: Vec<Selection>,
    #[serde(default, rename = "goal")]
    pub(crate) goals: Vec<Goal>,
}

/// A figure of these servers, or of all, that is also shown as a multiple of one server's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Multiples {
    pub(crate) figure: Figure,
    pub(crate) of: String,
    #[serde(default)]
    pub(crate) servers: Vec<String>,
}

fn whole_volume() -> String {
    crate::server::VOLUME_BYTES.to_string()
}

/// Combinations to measure. An empty list means all; a cell can be selected by a part of its name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Selection {
    servers: Vec<String>,
    clients: Vec<String>,
    cells: Vec<String>,
    /// Whether this selection is measured only if one of its clients was selected by name.
    if_named: bool,
}

/// A goal. An empty list means all; a cell can be selected by a part of its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Goal {
    #[serde(default)]
    pub(crate) servers: Vec<String>,
    #[serde(default)]
    pub(crate) clients: Vec<String>,
    #[serde(default)]
    pub(crate) cells: Vec<String>,
    pub(crate) figure: Figure,
    /// Divides the figure by this one of the same run.
    pub(crate) over: Option<Figure>,
    /// Divides the figure by the figure of each of these runs, or by their sum.
    #[serde(default)]
    pub(crate) beside: Vec<Beside>,
    #[serde(default)]
    pub(crate) sum: bool,
    pub(crate) at_least: Option<Limit>,
    pub(crate) at_most: Option<Limit>,
}

/// One limit for all cells, or a limit for each named cell.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Limit {
    Same(f64),
    ByCell(BTreeMap<String, f64>),
}

/// A cell, a server and a client, by their indices in the table. Sorted as on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) cell: usize,
    pub(crate) server: usize,
    pub(crate) client: usize,
}

/// Reads all tables of a command: NAME.toml, and NAME-PART.toml for each of its parts.
pub(crate) fn tables(command: &str) -> Result<Vec<Table>> {
    let folder = workspace::root().join("measurements/tables");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .filter_map(|entry| {
            Some(
                entry
                    .ok()?
                    .file_name()
                    .to_str()?
                    .strip_suffix(".toml")?
                    .to_owned(),
            )
        })
        .filter(|name| name.split('-').next() == Some(command))
        .collect();
    names.sort();
    let read = |name: String| {
        let path = folder.join(format!("{name}.toml"));
        let text = fs::read_to_string(&path)?;
        Table::parse(&name, &text).with_context(|| path.display().to_string())
    };
    names.into_iter().map(read).collect()
}

impl Table {
    pub(crate) fn parse(name: &str, text: &str) -> Result<Table> {
        let table = Table {
            name: name.to_owned(),
            ..toml::from_str(text)?
        };
        table.check()?;
        Ok(table)
    }

    /// Checks that every name that is used is defined.
    fn check(&self) -> Result<()> {
        let servers = self
            .measure
            .iter()
            .flat_map(|it| &it.servers)
            .chain(self.goals.iter().flat_map(|it| &it.servers))
            .chain(self.others().filter_map(|it| it.server.as_ref()))
            .chain(&self.listed)
            .chain(
                self.multiples
                    .iter()
                    .flat_map(|it| it.servers.iter().chain([&it.of])),
            );
        for name in servers {
            self.server(name)
                .with_context(|| format!("there is no server {name}"))?;
        }
        let clients = self
            .measure
            .iter()
            .flat_map(|it| &it.clients)
            .chain(self.goals.iter().flat_map(|it| &it.clients))
            .chain(self.others().filter_map(|it| it.client.as_ref()));
        for name in clients {
            self.client(name)
                .with_context(|| format!("there is no client {name}"))?;
        }
        let limits = self
            .goals
            .iter()
            .flat_map(|goal| [&goal.at_least, &goal.at_most])
            .flatten();
        let by_cell = limits.filter_map(|limit| match limit {
            Limit::Same(_) => None,
            Limit::ByCell(cells) => Some(cells.keys()),
        });
        let published = self.published.keys();
        for name in self
            .others()
            .filter_map(|it| it.cell.as_ref())
            .chain(by_cell.flatten())
            .chain(published)
        {
            self.cell(name)
                .with_context(|| format!("there is no cell {name}"))?;
        }
        let parts = self.measure.iter().flat_map(|it| &it.cells);
        for part in parts.chain(self.goals.iter().flat_map(|goal| &goal.cells)) {
            ensure!(
                self.cells
                    .iter()
                    .any(|cell| has_part(std::slice::from_ref(part), &cell.name)),
                "no cell's name contains {part}"
            );
        }
        let servers = self.servers.iter().map(|server| &server.name);
        for name in servers.chain(self.clients.iter().map(|client| &client.name)) {
            ensure!(
                !name.contains(','),
                "{name} contains a comma, which separates names on command lines"
            );
        }
        for goal in &self.goals {
            ensure!(
                goal.at_least.is_some() != goal.at_most.is_some(),
                "a goal needs either at-least or at-most"
            );
        }
        Ok(())
    }

    /// Returns all runs with which other runs are compared.
    fn others(&self) -> impl Iterator<Item = &Beside> {
        let rates = self
            .clients
            .iter()
            .filter_map(|client| Some(&client.rate.as_ref()?.of));
        self.goals.iter().flat_map(|goal| &goal.beside).chain(rates)
    }

    pub(crate) fn server(&self, name: &str) -> Option<usize> {
        self.servers.iter().position(|server| server.name == name)
    }

    pub(crate) fn client(&self, name: &str) -> Option<usize> {
        self.clients.iter().position(|client| client.name == name)
    }

    pub(crate) fn cell(&self, name: &str) -> Option<usize> {
        self.cells.iter().position(|cell| cell.name == name)
    }

    /// Returns the runs to measure, restricted to these cells (by a part of their names), servers and
    /// clients.
    pub(crate) fn runs(
        &self,
        cells: &[String],
        servers: &[String],
        clients: &[String],
    ) -> BTreeSet<Run> {
        let everything = [Selection::default()];
        let selections = if self.measure.is_empty() {
            &everything[..]
        } else {
            &self.measure
        };
        let mut runs = BTreeSet::new();
        for selection in selections {
            if selection.if_named && clients.is_empty() {
                continue;
            }
            for run in self.all().filter(|run| self.can(run)) {
                let (cell, server, client) = (
                    &self.cells[run.cell],
                    &self.servers[run.server],
                    &self.clients[run.client],
                );
                let is_meant = has_part(&selection.cells, &cell.name)
                    && has(&selection.servers, &server.name)
                    && has(&selection.clients, &client.name);
                let is_wanted = has_part(cells, &cell.name)
                    && has(servers, &server.name)
                    && has(clients, &client.name);
                if is_meant && is_wanted {
                    runs.insert(run);
                }
            }
        }
        runs
    }

    fn all(&self) -> impl Iterator<Item = Run> {
        let [cells, servers, clients] = [self.cells.len(), self.servers.len(), self.clients.len()];
        (0..cells * servers * clients).map(move |at| Run {
            cell: at / (servers * clients),
            server: at / clients % servers,
            client: at % clients,
        })
    }

    fn can(&self, run: &Run) -> bool {
        self.clients[run.client].can(&self.cells[run.cell])
    }
}

/// Whether `names` contains this name; an empty list means all.
pub(crate) fn has(names: &[String], name: &str) -> bool {
    names.is_empty() || names.iter().any(|one| one == name)
}

/// Whether this name contains one of `parts`; an empty list means all. Numbers match only as a whole: `4 KiB` does not match
/// `64 KiB`.
pub(crate) fn has_part(parts: &[String], name: &str) -> bool {
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    let is_whole = |at: usize, part: &str| {
        let (before, after) = (
            name[..at].chars().last(),
            name[at + part.len()..].chars().next(),
        );
        let cut = (is_digit(before) && is_digit(part.chars().next()))
            || (is_digit(part.chars().last()) && is_digit(after));
        !cut
    };
    parts.is_empty()
        || parts.iter().any(|part| {
            name.match_indices(part.as_str())
                .any(|(at, _)| is_whole(at, part))
        })
}

impl Limit {
    pub(crate) fn of(&self, cell: &Cell) -> Option<f64> {
        match self {
            Limit::Same(limit) => Some(*limit),
            Limit::ByCell(cells) => cells.get(&cell.name).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_understood() {
        let commands = [
            "peers",
            "nbd",
            "clients",
            "digests",
            "fio",
            "scale",
            "volumes",
            "raid",
            "rbd",
            "cern",
            "hyperscsi",
            "gateway",
            "failover",
        ];
        for command in commands {
            let tables = tables(command).unwrap_or_else(|error| panic!("{error:#}"));
            assert!(!tables.is_empty(), "{command} has none");
            for table in tables {
                assert!(
                    !table.runs(&[], &[], &[]).is_empty(),
                    "{} measures nothing",
                    table.name
                );
            }
        }
    }

    #[test]
    fn a_number_in_a_part_of_a_name_is_taken_whole() {
        let has = |part: &str| has_part(&[part.to_owned()], "64 KiB random read, depth 16");
        assert!(has("64 KiB") && has("depth 16") && has("random") && has(""));
        assert!(!has("4 KiB") && !has("depth 1") && !has("depth 6"));
    }

    #[test]
    fn a_name_that_is_missing_is_told() {
        let text = |of: &str| {
            format!(
                "heading = ''\nabout = ''\nseconds = 1.0\ncolumns = ['iops']\ncells = ['4 KiB random read, depth 1']\n\
                 multiples = [{{ figure = 'iops', of = '{of}' }}]\n\
                 [[servers]]\nname = 'a'\nprogram = 'null'\n[[clients]]\nname = 'b'\nprogram = 'bench'\n"
            )
        };
        assert_eq!(
            Table::parse("x", &text("a"))
                .expect("a table")
                .runs(&[], &[], &[])
                .len(),
            1
        );
        let error = Table::parse("x", &text("c"))
            .expect_err("there is no c")
            .to_string();
        assert_eq!(error, "there is no server c");
    }
}
