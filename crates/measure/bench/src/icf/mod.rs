//! Reads Iometer's configuration files (`.icf`), and converts them to suites.
//!
//! ```text
//!   Version 1.1.0
//!   'TEST SETUP ====                    run time, ramp-up, parameters to step through
//!   'RESULTS DISPLAY ====               Iometer's meters: ignored
//!   'ACCESS SPECIFICATIONS ====         kinds of requests
//!   'MANAGER LIST ====                  machines, their workers, and each worker's specifications
//! ```
//!
//! The grammar follows Iometer's manual and its parser, which accepts files of all versions since 1998.05.21.
//! Sections must be in this order, and any may be missing. An unknown key is rejected with its line. A
//! setting without an equivalent here is listed in [`Setup::notes`], and therefore in the suite's
//! assumptions.

use std::collections::HashMap;

use self::sections::{Known, Line, Lines, RUN_S, read_managers, read_setup, read_specs};
use crate::plan::{
    Cell, Data, Distribution, Durable, Order, Pace, Role, Rule, Step, Stop, Suite, Workload,
};

mod sections;

pub use sections::{AccessSpec, Cycling, IcfError, Manager, Steps, TestSetup, Worker};

/// The content of a configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The duration of each test, and the parameters that the tests step through.
    pub test: TestSetup,
    /// The access specifications.
    pub specs: Vec<AccessSpec>,
    /// Machines with workers. There is at least one, and at least one of them has a worker.
    pub managers: Vec<Manager>,
    /// Settings without an exact equivalent here; one sentence each.
    pub notes: Vec<String>,
}

/// Maximum length of a file. Configurations are a few pages of text; a longer file is not a configuration.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Parses a configuration file.
pub fn parse(text: &str) -> Result<Setup, IcfError> {
    if text.len() > TEXT_BYTES_MAX {
        let why = "the Iometer configuration file is larger than 1 MiB".to_owned();
        return Err(IcfError {
            line: 1,
            column: 1,
            why,
        });
    }
    let mut lines = Lines::of(text);
    let mut setup = Setup {
        test: TestSetup {
            run_s: RUN_S,
            ..TestSetup::default()
        },
        specs: Vec::new(),
        managers: Vec::new(),
        notes: Vec::new(),
    };
    let mut has_setup = false;
    while let Some(line) = lines.next() {
        section(&mut setup, line, &mut lines)?;
        has_setup |= line.is_key_like("TEST SETUP");
    }
    if !has_setup {
        setup.notes.push(format!(
            "The file has no TEST SETUP: each test runs for {} s.",
            RUN_S
        ));
    }
    if setup.specs.is_empty() {
        let why = "the file has no ACCESS SPECIFICATIONS; it is empty or not an Iometer configuration file";
        return Err(IcfError {
            line: 1,
            column: 1,
            why: why.to_owned(),
        });
    }
    setup.managers.retain(|manager| !manager.workers.is_empty());
    if setup.managers.is_empty() {
        setup.begin_with_one_worker();
    }
    setup.check().map_err(|why| IcfError {
        line: 1,
        column: 1,
        why,
    })?;
    Ok(setup)
}

fn section(setup: &mut Setup, line: Line<'_>, lines: &mut Lines<'_>) -> Result<(), IcfError> {
    let notes = &mut setup.notes;
    match line {
        line if line
            .text
            .get(..7)
            .is_some_and(|start| start.eq_ignore_ascii_case("Version")) =>
        {
            version(line)?
        }
        line if line.is_key_like("TEST SETUP") => setup.test = read_setup(lines, notes)?,
        line if line.is_key_like("RESULTS DISPLAY") => display(lines)?,
        line if line.is_key_like("ACCESS SPECIFICATIONS") => {
            setup.specs = read_specs(lines, notes)?
        }
        line if line.is_key_like("MANAGER LIST") => {
            setup.managers = read_managers(
                lines,
                &mut Known {
                    specs: &setup.specs,
                    notes,
                },
            )?;
        }
        line => {
            let known = "'TEST SETUP, 'RESULTS DISPLAY, 'ACCESS SPECIFICATIONS or 'MANAGER LIST";
            return Err(line.error(format!("expected Version, {known}, found `{}`", line.text)));
        }
    }
    Ok(())
}

/// Checks the version. Since 1998.05.21, specifications have names and are assigned to workers; older files
/// are rejected. Iometer's version numbers restarted with 1.1.0.
fn version(line: Line<'_>) -> Result<(), IcfError> {
    let numbers = line.text[7..].split(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
    match numbers.as_slice() {
        [year, month, day, ..] if (1990..3000).contains(year) && (*year, *month, *day) < (1998, 5, 21) => {
            Err(line.error(
                "versions before 1998.05.21 have a different format; save the file with a newer Iometer",
            ))
        }
        [_, _, _, ..] => Ok(()),
        _ => Err(line.error("expected a version of three numbers, such as Version 1.1.0")),
    }
}

/// Skips Iometer's settings for the display of results, which do not affect the test.
fn display(lines: &mut Lines<'_>) -> Result<(), IcfError> {
    while !lines
        .expect("'END results display")?
        .is_key("END results display")
    {}
    Ok(())
}

impl Setup {
    /// Applies Iometer's default for a file without workers: one worker, with the specifications that are
    /// assigned by default.
    fn begin_with_one_worker(&mut self) {
        let by_default = |index: &usize| self.specs[*index].by_default;
        let mut specs: Vec<usize> = (0..self.specs.len()).filter(by_default).collect();
        let mut what = "with the default specifications";
        if specs.is_empty() {
            specs = (0..self.specs.len()).collect();
            what = "with every specification";
        }
        self.notes.push(format!(
            "The file has no disk workers: one is assumed, with a queue depth of 1, {what}."
        ));
        let worker = Worker {
            name: "Worker 1".to_owned(),
            depth: 1,
            drain_after: None,
            seed: None,
            span: crate::plan::Span::default(),
            specs: specs.into_iter().map(Some).collect(),
            targets: Vec::new(),
        };
        self.managers = vec![Manager {
            name: "Manager 1".to_owned(),
            workers: vec![worker],
        }];
    }
}

/// Maximum number of cells.
const CELLS_MAX: usize = 4096;

/// Maximum number of roles in all cells combined. It limits the memory that a file can request.
const ROLES_MAX: usize = 16_384;

/// Maximum memory for the requests of all roles of a cell, the same as in suites.
const MEMORY_MAX: u64 = 4 << 30;

/// One step of a test: the number of active workers of each manager, and the queue depth, if it overrides the
/// depth of each worker.
#[derive(Clone, Copy)]
struct Point {
    workers: usize,
    depth: Option<u32>,
}

impl Setup {
    /// Converts the setup to a suite with this name that runs the same tests.
    pub fn suite(&self, name: &str) -> Suite {
        let seconds = f64::from(self.test.run_s);
        let stop = Stop {
            warm_up_s: f64::from(self.test.ramp_up_s),
            min_s: seconds,
            max_s: seconds,
            rule: Rule::Time,
        };
        let title = match self.test.description.as_str() {
            "" => "An Iometer configuration".to_owned(),
            description => description
                .chars()
                .filter(|letter| !letter.is_control())
                .take(100)
                .collect(),
        };
        let mut assumed = self.notes.clone();
        assumed.push("Sectors have 512 bytes.".to_owned());
        if self.workers().any(|worker| worker.targets.len() > 1) {
            assumed.push(
                "A worker with several disks uses that number of sessions to the single storage \
                 here."
                    .to_owned(),
            );
        }
        Suite {
            name: name.to_owned(),
            title,
            about: "Imported from an Iometer configuration file.".to_owned(),
            document: None,
            assumed,
            steps: vec![Step::Measure {
                stop,
                order: Order::Once,
                cells: self.cells(),
            }],
        }
    }

    /// Rejects a setup that cannot run here.
    fn check(&self) -> Result<(), String> {
        if self.tests() == 0 {
            return Err("no worker is assigned an access specification".to_owned());
        }
        if matches!(self.test.cycling, Cycling::Targets(_))
            && self.workers().any(|worker| worker.targets.len() > 1)
        {
            return Err(
                "the test varies the number of disks, but there is only one storage here"
                    .to_owned(),
            );
        }
        let points = self.points();
        if points.is_empty() {
            return Err("the end of the range is before its start".to_owned());
        }
        if points.len() * self.tests() > CELLS_MAX {
            return Err(format!("the file has more than {CELLS_MAX} tests"));
        }
        if points.len() * self.tests() * self.workers().count() > ROLES_MAX {
            return Err(format!(
                "the tests have more than {ROLES_MAX} workers in total"
            ));
        }
        match self.cells() {
            cells if cells.is_empty() => Err("every worker is idle in every test".to_owned()),
            cells if cells.iter().any(|cell| memory(cell) > MEMORY_MAX) => Err(
                "the outstanding requests of a test have more than 4 GiB of data in total"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.managers.iter().flat_map(|manager| &manager.workers)
    }

    /// Returns the number of tests: the length of the longest list of specifications of any worker.
    fn tests(&self) -> usize {
        self.workers()
            .map(|worker| worker.specs.len())
            .max()
            .unwrap_or(0)
    }

    fn points(&self) -> Vec<Point> {
        let most = self
            .managers
            .iter()
            .map(|manager| manager.workers.len())
            .max()
            .unwrap_or(1);
        let all = Point {
            workers: most,
            depth: None,
        };
        // Each worker has one disk here, so when a test steps through disks, only the other parameter
        // changes.
        let cycling = match self.test.cycling {
            Cycling::Targets(Some(other)) => *other,
            Cycling::Targets(None) => Cycling::Normal,
            other => other,
        };
        match cycling {
            Cycling::Workers => {
                let counts = self.test.workers.numbers(most as u32);
                counts
                    .into_iter()
                    .map(|workers| Point {
                        workers: workers as usize,
                        depth: None,
                    })
                    .collect()
            }
            Cycling::OutstandingIos => {
                let depths = self.test.depths.numbers(u32::MAX);
                depths
                    .into_iter()
                    .map(|depth| Point {
                        depth: Some(depth),
                        ..all
                    })
                    .collect()
            }
            Cycling::Normal | Cycling::Targets(_) => vec![all],
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let points = self.points();
        let mut cells = Vec::new();
        let mut names = Names::default();
        for test in 0..self.tests() {
            for point in &points {
                let roles = self.roles(test, *point);
                if roles.is_empty() {
                    continue;
                }
                let series = self.name_of_test(test);
                let name = match (point.depth, points.len()) {
                    (_, 1) => series.clone(),
                    (Some(depth), _) => format!("{series}, {depth} outstanding"),
                    (None, _) => format!("{series}, {} workers", point.workers),
                };
                // The same specification may be assigned twice, to check that results are repeatable.
                let name = names.unique(name);
                cells.push(Cell::new(name, series, roles));
            }
        }
        cells
    }

    /// Joins the names of a test's specifications, without duplicates.
    fn name_of_test(&self, test: usize) -> String {
        let mut names: Vec<&str> = Vec::new();
        for spec in self.workers().filter_map(|worker| *worker.specs.get(test)?) {
            if !names.contains(&self.specs[spec].name.as_str()) {
                names.push(&self.specs[spec].name);
            }
        }
        match names.as_slice() {
            [one] => (*one).to_owned(),
            several => format!(
                "test {}: {} concurrent specifications",
                test + 1,
                several.len()
            ),
        }
    }

    fn roles(&self, test: usize, point: Point) -> Vec<Role> {
        let mut roles = Vec::new();
        let mut names = Names::default();
        for (client, manager) in self.managers.iter().enumerate() {
            let busy = manager
                .workers
                .iter()
                .filter_map(|worker| Some((worker, (*worker.specs.get(test)?)?)));
            for (worker, spec) in busy.take(point.workers) {
                let name = match self.managers.len() {
                    1 => worker.name.clone(),
                    _ => format!("{}, {}", manager.name, worker.name),
                };
                let workload = self.workload(worker, spec, point.depth, roles.len() as u64);
                // The file has at most 256 managers, and at most 1,024 targets for each worker.
                let mut role = Role::new(names.unique(name), client as u16, workload);
                role.sessions = worker.targets.len().max(1) as u16;
                roles.push(role);
            }
        }
        roles
    }

    fn workload(&self, worker: &Worker, spec: usize, depth: Option<u32>, number: u64) -> Workload {
        Workload {
            accesses: self.specs[spec].lines.clone(),
            depth: depth.unwrap_or(worker.depth),
            pace: Pace::Closed,
            span: worker.span,
            distribution: Distribution::Uniform,
            data: Data::Random,
            drain_after: worker.drain_after,
            durable: Durable::Cached,
            // Each worker needs a different seed; Iometer takes it from the clock.
            seed: worker.seed.unwrap_or(1 + number),
        }
    }
}

// Converts the tests of a setup to a suite.
//
// In test number n, every worker runs the n-th specification that is assigned to it. Workers with fewer
// specifications are idle. If the setup steps through a parameter, each test runs once for every step.

/// Names in use, each with the number of times it was requested.
#[derive(Default)]
struct Names(HashMap<String, usize>);

impl Names {
    /// Returns the name, with a number appended if the name is already in use.
    fn unique(&mut self, name: String) -> String {
        let mut times = self.0.get(&name).copied().unwrap_or(0);
        let mut unique = name.clone();
        while times > 0 && (unique == name || self.0.contains_key(&unique)) {
            times += 1;
            unique = format!("{name} ({times})");
        }
        self.0.insert(unique.clone(), 1);
        self.0.insert(name, times.max(1));
        unique
    }
}

fn memory(cell: &Cell) -> u64 {
    let of = |role: &Role| {
        let at_once = u64::from(role.workload.depth).saturating_mul(u64::from(role.sessions));
        at_once.saturating_mul(u64::from(role.workload.block_bytes_max()))
    };
    cell.roles.iter().map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
