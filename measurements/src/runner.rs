//! Runs all comparisons: tables of cells, servers and clients (`table`, measurements/tables/NAME.toml), and
//! parts written in Rust, which measure without comparing. To add a measurement, add it to a table.
//!
//! Without a scene, everything runs in a separate network namespace with its own loopback and cubic congestion control, since
//! the machine's default is not a property of a program. By default, the server is pinned to core 0 and the client to core 1.
//! In each round, each server is started and its volume filled. It is measured while all other servers are terminated or
//! paused. The order changes with every round.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xtask::tally::Verdict;
use xtask::{document, process, workspace};

use crate::client::{Measurement, Program};
use crate::figures::{Figure, Figures, Judged, rows};
use crate::machine;
use crate::page::{self, Results, Setting};
use crate::scene::World;
use crate::server::{Site, Started};
use crate::steps;
use crate::table::{self, Run, Table};

/// A part of a command that is not a table, with its name.
pub(crate) type Part = (&'static str, fn(&Site, &Options) -> Result<Found>);

/// The results of such a part.
pub(crate) struct Found {
    /// The heading of its section.
    pub(crate) heading: &'static str,
    /// The description of the measurement, and its table.
    pub(crate) text: String,
    pub(crate) goals: Vec<Judged>,
    pub(crate) figures: Value,
}

/// Minimum number of rounds for a page.
const ROUNDS: usize = 5;

/// Options of all measurements.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Measure only cells whose name contains TEXT; can be repeated
    #[arg(long, value_name = "TEXT")]
    cells: Vec<String>,
    /// Measure only these servers or kinds of storage
    #[arg(long, value_name = "NAME", value_delimiter = ',', visible_aliases = ["storage", "served"])]
    servers: Vec<String>,
    /// Measure only with these clients
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        visible_alias = "client"
    )]
    clients: Vec<String>,
    /// Measure only these parts of the command
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    part: Vec<String>,
    /// Number of rounds; figures are medians
    #[arg(long, default_value_t = ROUNDS)]
    rounds: usize,
    /// Seconds for each figure in each round [default: 0.5 to 3, depending on the table]
    #[arg(long)]
    seconds: Option<f64>,
    /// Do not write the page in docs
    #[arg(long)]
    dry: bool,
    /// Run one short round with a debug build, as a test; its figures are meaningless, and the page is not written
    #[arg(long)]
    pub(crate) quick: bool,
    /// Use this linerate binary instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The fio program; Debian's has no libiscsi engine
    #[arg(long, value_name = "PROGRAM", default_value = "fio")]
    fio: PathBuf,
}

impl Options {
    /// Prepares the namespace and the programs to measure with.
    fn site(&self) -> Result<Site> {
        let build = if self.quick {
            workspace::test_binary
        } else {
            workspace::release_binary
        };
        Site::new(
            self.binary.clone().map_or_else(build, Ok)?,
            self.fio.clone(),
        )
    }

    /// Whether a part is selected.
    fn has_part(&self, name: &str) -> bool {
        table::has(&self.part, name)
    }

    /// Whether to write the page: everything was measured, with enough rounds, and no option forbids it.
    fn is_for_the_page(&self) -> bool {
        let is_all = self.cells.is_empty() && self.servers.is_empty() && self.clients.is_empty();
        is_all && self.rounds >= ROUNDS && !self.dry && !self.quick
    }

    fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds.max(1) }
    }

    fn seconds(&self, table: &Table) -> f64 {
        let quick = if table.scene.is_some() { 1.0 } else { 0.2 };
        self.seconds
            .unwrap_or(if self.quick { quick } else { table.seconds })
    }
}

/// Measures the tables and other parts of a command, prints them, and writes their sections and the numbers
/// of all rounds. Passes if every goal is reached.
pub(crate) fn run(command: &str, options: &Options, parts: &[Part]) -> Result<Verdict> {
    let tables = table::tables(command)?;
    let part = |table: &Table| {
        table
            .name
            .split_once('-')
            .map_or(String::new(), |(_, part)| part.to_owned())
    };
    let is_known = |name: &String| {
        parts.iter().any(|(part, _)| part == name) || tables.iter().any(|it| part(it) == *name)
    };
    let unknown = options.part.iter().find(|name| !is_known(name));
    ensure!(
        unknown.is_none(),
        "{command} has no part {}",
        unknown.map_or("", String::as_str)
    );
    let mut site = options.site()?;
    let mut verdict = Verdict::Holds;
    for table in tables.iter().filter(|table| options.has_part(&part(table))) {
        site.world = None; // the previous table's scene ends before the next one starts
        site.world = table
            .scene
            .as_ref()
            .map(|scene| World::build(scene, &site.binary))
            .transpose()?;
        let goals = one(command, table, &mut site, options).with_context(|| table.name.clone())?;
        verdict = verdict.and(Verdict::of(goals.iter().all(Judged::is_reached)));
    }
    site.world = None;
    for (name, measure) in parts.iter().filter(|(name, _)| options.has_part(name)) {
        let Found {
            heading,
            text,
            goals,
            figures,
        } = measure(&site, options)?;
        let machine = format!(
            "Machine: {}, Linux {}.",
            machine::machine(),
            machine::kernel()
        );
        let section = format!("{}\n\n{}{machine}\n", text.trim_end(), rows(&goals));
        let all = json!({"machine": machine, "congestion": site.namespace.congestion, "figures": figures});
        let json = serde_json::to_string_pretty(&all)?;
        publish(
            command,
            &format!("{command}-{name}"),
            heading,
            &section,
            &json,
            options,
        )?;
        verdict = verdict.and(Verdict::of(goals.iter().all(Judged::is_reached)));
    }
    Ok(verdict)
}

/// Prints a section, and stores it and its figures.
fn publish(
    command: &str,
    name: &str,
    heading: &str,
    section: &str,
    json: &str,
    options: &Options,
) -> Result<()> {
    println!("## {heading}\n\n{section}");
    let path = workspace::target_directory().join(format!("{name}.json"));
    fs::write(&path, json).with_context(|| path.display().to_string())?;
    match options.is_for_the_page() {
        true => document::write_section(command, heading, section),
        false => Ok(()),
    }
}

fn one(command: &str, table: &Table, site: &mut Site, options: &Options) -> Result<Vec<Judged>> {
    process::require(&table.needs)?;
    let setting = Setting::look(site, options.rounds(), options.seconds(table));
    if let Some(steps) = &table.steps {
        let (text, goals) = steps::measure(
            steps,
            &table.servers,
            &table.cells,
            site,
            options.seconds(table).max(1.0),
        )?;
        let section = format!("{}{}{text}", page::about(table, &setting), rows(&goals));
        publish(
            command,
            &table.name,
            &table.heading,
            &section,
            &json!(setting).to_string(),
            options,
        )?;
        return Ok(goals);
    }
    let mut runs = table.runs(&options.cells, &options.servers, &options.clients);
    ensure!(!runs.is_empty(), "the table has no such combination");
    without_engines(table, &mut runs, site, &setting)?;
    println!(
        "{}: {} figures: {}",
        table.name,
        runs.len() * options.rounds(),
        page::cells(table, &runs)
    );
    let mut results = Results {
        setting,
        runs: BTreeMap::new(),
    };
    for number in 0..options.rounds() {
        println!(
            "{}: round {} of {}",
            table.name,
            number + 1,
            options.rounds()
        );
        Round {
            number,
            table,
            runs: &runs,
            seconds: options.seconds(table),
        }
        .measure(site, &mut results)?;
    }
    let goals = page::judge(table, &results);
    let section = page::section(table, &results, &goals);
    publish(
        command,
        &table.name,
        &table.heading,
        &section,
        &page::json(table, &results)?,
        options,
    )?;
    Ok(goals)
}

/// Adds the published figures of document 004 for a run, and our rate as a multiple.
fn add_printed(figures: &mut Figures, run: Run, table: &Table) {
    let printed = |metric: &str| {
        let system = table.servers[run.server].published.as_ref()?;
        let test = table.published.get(&table.cells[run.cell].name)?;
        let row = published::rows().iter().find(|row| {
            row.document == "004"
                && row.system.ends_with(system)
                && row.test == *test
                && row.metric == metric
        })?;
        row.printed.parse::<f64>().ok()
    };
    figures.extend(printed("cpu_load_client").map(|load| (Figure::PrintedClientBusy, load)));
    if let Some(rate) = printed("throughput") {
        figures.insert(Figure::PrintedMbPerS, rate);
        let times = figures.get(&Figure::MbPerS).map(|ours| ours / rate);
        figures.extend(times.map(|times| (Figure::TimesPrinted, times)));
    }
}

/// Removes the runs for which this fio has no engine.
fn without_engines(
    table: &Table,
    runs: &mut BTreeSet<Run>,
    site: &Site,
    setting: &Setting,
) -> Result<()> {
    let is_fio = |run: &Run| table.clients[run.client].program == Program::Fio;
    if runs.iter().any(is_fio) {
        ensure!(
            !setting.fio.is_empty(),
            "{} is missing: run `cargo xtask packages`",
            site.fio.display()
        );
        let engines = process::run(&site.fio, &["--enghelp"])?;
        let has = |run: &Run| {
            engines
                .split_whitespace()
                .any(|one| one == table.servers[run.server].engine())
        };
        let left_out = runs.len();
        runs.retain(|run| !is_fio(run) || has(run));
        if runs.len() < left_out {
            println!(
                "skipped: {} figures for which {} has no engine",
                left_out - runs.len(),
                setting.fio
            );
        }
    }
    Ok(())
}

/// One round of measurements over a table.
struct Round<'a> {
    number: usize,
    table: &'a Table,
    runs: &'a BTreeSet<Run>,
    seconds: f64,
}

impl Round<'_> {
    fn measure(&self, site: &mut Site, results: &mut Results) -> Result<()> {
        let servers: Vec<usize> = self
            .runs
            .iter()
            .map(|run| run.server)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let turns = in_turn(&servers, self.number);
        match self.table.together {
            true => self.servers(&turns, site, results),
            false => turns
                .chunks(1)
                .try_for_each(|alone| self.servers(alone, site, results)),
        }
    }

    /// Measures each cell with all of these servers and their clients in succession, so that changes of the
    /// machine affect all of them equally.
    fn servers(&self, servers: &[usize], site: &mut Site, results: &mut Results) -> Result<()> {
        let mut started = BTreeMap::new();
        for &server in servers {
            let running = self.table.servers[server].start(site)?;
            if self.table.together {
                running.pause();
            }
            started.insert(server, running);
        }
        for cell in 0..self.table.cells.len() {
            let runs: Vec<Run> = self
                .runs
                .iter()
                .filter(|run| run.cell == cell && started.contains_key(&run.server))
                .copied()
                .collect();
            let mut runs = in_turn(&runs, self.number);
            // Measure runs last whose rate depends on another run.
            runs.sort_by_key(|run| self.table.clients[run.client].rate.is_some());
            for run in runs {
                let Some(running) = started.get(&run.server) else {
                    continue;
                };
                if let Some(figures) = self.one(run, running, site, results)? {
                    results.runs.entry(run).or_default().push(figures);
                }
            }
        }
        Ok(())
    }

    /// Measures the figures of one run. Returns `None` if the run depends on a rate that was not measured.
    fn one(
        &self,
        run: Run,
        server: &Started,
        site: &Site,
        results: &Results,
    ) -> Result<Option<Figures>> {
        let (cell, client) = (&self.table.cells[run.cell], &self.table.clients[run.client]);
        let rate = match &client.rate {
            None => None,
            Some(rate) => {
                let last = rate
                    .of
                    .run(run, self.table)
                    .and_then(|of| results.runs.get(&of)?.last());
                let Some(iops) = last.and_then(|figures| figures.get(&Figure::Iops)) else {
                    return Ok(None);
                };
                Some(iops * rate.share)
            }
        };
        server.resume();
        let (target, span) = (server.target(), self.table.span.as_str());
        let measured = client.measure(Measurement {
            cell,
            target,
            site,
            span,
            rate,
            seconds: self.seconds,
        });
        if self.table.together {
            server.pause();
        }
        let with_printed = |mut figures| {
            add_printed(&mut figures, run, self.table);
            Some(figures)
        };
        measured
            .map(with_printed)
            .with_context(|| format!("{}: {}", cell.name, self.table.name_of(run)))
    }
}

/// Rotates the order by one in each round, so that a machine that becomes slower affects all entries equally.
fn in_turn<T: Copy>(everybody: &[T], round: usize) -> Vec<T> {
    let mut order = everybody.to_vec();
    order.rotate_left(round % everybody.len().max(1));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_goes_first_in_turn() {
        let orders: Vec<_> = (0..3).map(|round| in_turn(&[1, 2, 3], round)).collect();
        assert_eq!(orders, [[1, 2, 3], [2, 3, 1], [3, 1, 2]]);
        assert!(in_turn::<u8>(&[], 4).is_empty());
    }

    #[test]
    fn every_published_row_that_a_table_names_is_found_for_each_of_its_tests() {
        for table in table::tables("cern").expect("readable") {
            for run in table.runs(&[], &[], &[]) {
                let mut figures = Figures::from([(Figure::MbPerS, 1.0)]);
                add_printed(&mut figures, run, &table);
                let is_asked = table.servers[run.server].published.is_some()
                    && table.published.contains_key(&table.cells[run.cell].name);
                assert_eq!(figures.len(), if is_asked { 4 } else { 1 }, "{run:?}");
            }
        }
    }

    #[test]
    fn raid_5_beside_raid_0_is_asked_for_as_much_as_the_document_prints() {
        let table = &table::tables("cern").expect("readable")[0];
        let of_raid_5 = |goal: &&table::Goal| goal.servers == ["RAID 5 of 6 disks"];
        let goal = table.goals.iter().find(of_raid_5).expect("a goal");
        assert_eq!(goal.beside[0].server.as_deref(), Some("RAID 0 of 6 disks"));
        let Some(table::Limit::ByCell(limits)) = &goal.at_least else {
            panic!("a limit for each cell")
        };
        assert_eq!(
            limits.len(),
            table.published.len(),
            "each published test has its limit"
        );
        let printed = |server: &str, cell: &str| {
            let server = table
                .servers
                .iter()
                .position(|one| one.name == server)
                .expect("a server");
            let cell = table
                .cells
                .iter()
                .position(|one| one.name == cell)
                .expect("a cell");
            let mut figures = Figures::new();
            add_printed(
                &mut figures,
                Run {
                    cell,
                    server,
                    client: 0,
                },
                table,
            );
            figures[&Figure::PrintedMbPerS]
        };
        for (cell, limit) in limits {
            let ratio = printed("RAID 5 of 6 disks", cell) / printed("RAID 0 of 6 disks", cell);
            assert_eq!(format!("{ratio:.2}"), format!("{limit:.2}"), "{cell}");
        }
    }
}
