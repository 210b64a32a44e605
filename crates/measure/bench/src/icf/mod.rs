//! Iometer's configuration files (`.icf`): what they say, and the suite that is the same here.
//!
//! ```text
//!   Version 1.1.0
//!   'TEST SETUP ====                    run time, ramp-up, what is stepped through
//!   'RESULTS DISPLAY ====               Iometer's meters: left out
//!   'ACCESS SPECIFICATIONS ====         what is asked of the disks
//!   'MANAGER LIST ====                  machines, their workers, and what each is assigned
//! ```
//!
//! The grammar is that of Iometer's manual and of its own reader, which accepts files of all versions since 1998.05.21.
//! Sections may come in this order only, and any may be missing. A key that is not known is refused with its line;
//! a setting that cannot be the same here is said in [`Setup::notes`], and so in the suite's assumptions.

mod lines;
mod managers;
mod setup;
mod specs;
#[cfg(test)]
mod stream;
mod suite;

#[cfg(test)]
mod tests;

pub use lines::IcfError;
pub use managers::{Manager, Worker};
pub use setup::{Cycling, Steps, TestSetup};
pub use specs::AccessSpec;

use lines::{Line, Lines};
use managers::Known;

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// How long each test takes, and what is stepped through.
    pub test: TestSetup,
    /// What can be asked of the disks.
    pub specs: Vec<AccessSpec>,
    /// Machines with workers. At least one, with at least one worker.
    pub managers: Vec<Manager>,
    /// What is not, or not quite, the same here; one sentence each.
    pub notes: Vec<String>,
}

/// A configuration is some pages of text; longer ones are something else.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Reads a file.
pub fn parse(text: &str) -> Result<Setup, IcfError> {
    if text.len() > TEXT_BYTES_MAX {
        let why = "this has more than 1 MiB, which no Iometer configuration file has".to_owned();
        return Err(IcfError { line: 1, column: 1, why });
    }
    let mut lines = Lines::of(text);
    let mut setup = Setup {
        test: TestSetup { run_s: setup::RUN_S, ..TestSetup::default() },
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
        setup.notes.push(format!("There is no TEST SETUP: {} s for each test.", setup::RUN_S));
    }
    if setup.specs.is_empty() {
        let why = "there are no ACCESS SPECIFICATIONS in this; it is no Iometer configuration file, or an empty one";
        return Err(IcfError { line: 1, column: 1, why: why.to_owned() });
    }
    setup.managers.retain(|manager| !manager.workers.is_empty());
    if setup.managers.is_empty() {
        setup.begin_with_one_worker();
    }
    setup.check().map_err(|why| IcfError { line: 1, column: 1, why })?;
    Ok(setup)
}

fn section(setup: &mut Setup, line: Line<'_>, lines: &mut Lines<'_>) -> Result<(), IcfError> {
    let notes = &mut setup.notes;
    match line {
        line if is_version(line) => version(line)?,
        line if line.is_key_like("TEST SETUP") => setup.test = setup::read(lines, notes)?,
        line if line.is_key_like("RESULTS DISPLAY") => display(lines)?,
        line if line.is_key_like("ACCESS SPECIFICATIONS") => setup.specs = specs::read(lines, notes)?,
        line if line.is_key_like("MANAGER LIST") => {
            setup.managers = managers::read(lines, &mut Known { specs: &setup.specs, notes })?;
        }
        line => {
            let known = "'TEST SETUP, 'RESULTS DISPLAY, 'ACCESS SPECIFICATIONS or 'MANAGER LIST";
            return Err(line.error(format!("expected Version, {known}, found `{}`", line.text)));
        }
    }
    Ok(())
}

fn is_version(line: Line<'_>) -> bool {
    line.text.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("Version"))
}

/// Since 1998.05.21 specifications have names and belong to workers; Iometer's own numbers begin again with 1.1.0.
fn version(line: Line<'_>) -> Result<(), IcfError> {
    let numbers = line.text[7..].split(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
    match numbers.as_slice() {
        [year, month, day, ..] if (1990..3000).contains(year) && (*year, *month, *day) < (1998, 5, 21) => {
            Err(line.error(
                "files older than version 1998.05.21 are of another form; save it again with a newer Iometer",
            ))
        }
        [_, _, _, ..] => Ok(()),
        _ => Err(line.error("expected a version of three numbers, such as Version 1.1.0")),
    }
}

/// How Iometer shows results has nothing to do with the test.
fn display(lines: &mut Lines<'_>) -> Result<(), IcfError> {
    while !lines.expect("'END results display")?.is_key("END results display") {}
    Ok(())
}

impl Setup {
    /// What Iometer does with a file that names no workers: one begins, with what is assigned by default.
    fn begin_with_one_worker(&mut self) {
        let by_default = |index: &usize| self.specs[*index].by_default;
        let mut specs: Vec<usize> = (0..self.specs.len()).filter(by_default).collect();
        let mut what = "with the specifications that are assigned by default";
        if specs.is_empty() {
            specs = (0..self.specs.len()).collect();
            what = "with every specification";
        }
        self.notes.push(format!("There are no disk workers in this: one, with 1 request at once, {what}."));
        let worker = Worker {
            name: "Worker 1".to_owned(),
            depth: 1,
            drain_after: None,
            seed: None,
            span: crate::plan::Span::default(),
            specs: specs.into_iter().map(Some).collect(),
            targets: Vec::new(),
        };
        self.managers = vec![Manager { name: "Manager 1".to_owned(), workers: vec![worker] }];
    }
}
