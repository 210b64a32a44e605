//! The tests that a setup makes, as a suite.
//!
//! Iometer's test number n has every worker run the n-th specification that it is assigned; workers that have fewer are
//! idle. Where something is stepped through, each of these tests is run once for every step.

use std::collections::HashMap;

use super::{Cycling, Setup, Worker};
use crate::plan::{Cell, Data, Distribution, Order, Pace, Role, Rule, Step, Stop, Suite, Workload};

/// More are a mistake.
const CELLS_MAX: usize = 4096;

/// More are a mistake too: this bounds the memory that a file can ask for.
const ROLES_MAX: usize = 16_384;

/// As a suite may have at most, for the requests of all roles of a cell.
const MEMORY_MAX: u64 = 4 << 30;

/// A step: how many workers of each manager run, and with how many requests at once instead of their own.
#[derive(Clone, Copy)]
struct Point {
    workers: usize,
    depth: Option<u32>,
}

impl Setup {
    /// The suite that runs the same tests, under a name of the caller's.
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
            description => description.chars().filter(|letter| !letter.is_control()).take(100).collect(),
        };
        let mut assumed = self.notes.clone();
        assumed.push("Sectors have 512 bytes.".to_owned());
        if self.workers().any(|worker| worker.targets.len() > 1) {
            assumed.push(
                "A worker with several disks has as many sessions with the one storage here.".to_owned(),
            );
        }
        Suite {
            name: name.to_owned(),
            title,
            about: "Imported from an Iometer configuration file.".to_owned(),
            document: None,
            assumed,
            steps: vec![Step::Measure { stop, order: Order::Once, cells: self.cells() }],
        }
    }

    /// What cannot be run here.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.tests() == 0 {
            return Err("no worker is assigned an access specification".to_owned());
        }
        if matches!(self.test.cycling, Cycling::Targets(_))
            && self.workers().any(|worker| worker.targets.len() > 1)
        {
            return Err("this steps through several disks, and there is one storage here".to_owned());
        }
        let points = self.points();
        if points.is_empty() {
            return Err("what is to be stepped through ends before it starts".to_owned());
        }
        if points.len() * self.tests() > CELLS_MAX {
            return Err(format!("this makes more than {CELLS_MAX} tests"));
        }
        if points.len() * self.tests() * self.workers().count() > ROLES_MAX {
            return Err(format!("the workers of all tests together are more than {ROLES_MAX}"));
        }
        match self.cells() {
            cells if cells.is_empty() => Err("every worker is idle in every test".to_owned()),
            cells if cells.iter().any(|cell| memory(cell) > MEMORY_MAX) => {
                Err("the requests that are under way at once in a test have more than 4 GiB of data"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }

    fn workers(&self) -> impl Iterator<Item = &Worker> {
        self.managers.iter().flat_map(|manager| &manager.workers)
    }

    /// The longest list of specifications that a worker has.
    fn tests(&self) -> usize {
        self.workers().map(|worker| worker.specs.len()).max().unwrap_or(0)
    }

    fn points(&self) -> Vec<Point> {
        let most = self.managers.iter().map(|manager| manager.workers.len()).max().unwrap_or(1);
        let all = Point { workers: most, depth: None };
        // With one disk for each worker, stepping through disks leaves what else is stepped through.
        let cycling = match self.test.cycling {
            Cycling::Targets(Some(other)) => *other,
            Cycling::Targets(None) => Cycling::Normal,
            other => other,
        };
        match cycling {
            Cycling::Workers => {
                let counts = self.test.workers.numbers(most as u32);
                counts.into_iter().map(|workers| Point { workers: workers as usize, depth: None }).collect()
            }
            Cycling::OutstandingIos => {
                let depths = self.test.depths.numbers(u32::MAX);
                depths.into_iter().map(|depth| Point { depth: Some(depth), ..all }).collect()
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
                // The same specification may be assigned twice, to see whether it is the same again.
                let name = names.unique(name);
                cells.push(Cell::new(name, series, roles));
            }
        }
        cells
    }

    /// The names of what is run in a test, each once.
    fn name_of_test(&self, test: usize) -> String {
        let mut names: Vec<&str> = Vec::new();
        for spec in self.workers().filter_map(|worker| *worker.specs.get(test)?) {
            if !names.contains(&self.specs[spec].name.as_str()) {
                names.push(&self.specs[spec].name);
            }
        }
        match names.as_slice() {
            [one] => (*one).to_owned(),
            several => format!("test {}: {} specifications at once", test + 1, several.len()),
        }
    }

    fn roles(&self, test: usize, point: Point) -> Vec<Role> {
        let mut roles = Vec::new();
        let mut names = Names::default();
        for (client, manager) in self.managers.iter().enumerate() {
            let busy =
                manager.workers.iter().filter_map(|worker| Some((worker, (*worker.specs.get(test)?)?)));
            for (worker, spec) in busy.take(point.workers) {
                let name = match self.managers.len() {
                    1 => worker.name.clone(),
                    _ => format!("{}, {}", manager.name, worker.name),
                };
                let workload = self.workload(worker, spec, point.depth, roles.len() as u64);
                // The file has at most 256 managers and 1024 targets for a worker.
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
            // Each worker has numbers of its own, as Iometer's have by the clock.
            seed: worker.seed.unwrap_or(1 + number),
        }
    }
}

/// Names that were given, and how often each was asked for.
#[derive(Default)]
struct Names(HashMap<String, usize>);

impl Names {
    /// The name, with a number behind it if it was given before.
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
