//! MANAGER LIST: which machines there are, and what their workers do.

use super::lines::{IcfError, Line, Lines};
use super::setup::unknown;
use super::specs::{AccessSpec, SECTOR_BYTES, checked_name};
use crate::plan::Span;

/// A machine with workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Manager {
    /// Its name.
    pub name: String,
    /// Those that use disks.
    pub workers: Vec<Worker>,
}

/// A thread that uses disks.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// Requests at once on each of its disks.
    pub depth: u32,
    /// Transactions per connection, if the connection rate is tested.
    pub drain_after: Option<u32>,
    /// Where its random numbers come from, if they are to be the same each time.
    pub seed: Option<u64>,
    /// The part of each disk that it uses.
    pub span: Span,
    /// The access specifications that it runs, one test after the other; `None` is Iometer's Idle.
    pub specs: Vec<Option<usize>>,
    /// The disks that it uses.
    pub targets: Vec<String>,
}

const MANAGERS_MAX: usize = 256;
const WORKERS_MAX: usize = 1024;
const SPECS_OF_WORKER_MAX: usize = 4096;
const TARGETS_MAX: usize = 1024;

/// What the file said until here.
pub(super) struct Known<'a> {
    pub(super) specs: &'a [AccessSpec],
    pub(super) notes: &'a mut Vec<String>,
}

pub(super) fn read(lines: &mut Lines<'_>, known: &mut Known<'_>) -> Result<Vec<Manager>, IcfError> {
    let mut managers: Vec<Manager> = Vec::new();
    loop {
        let key = lines.expect("a manager, or 'END manager list,")?;
        if key.is_key("END manager list") {
            return Ok(managers);
        }
        if !key.is_key_like("Manager ID") {
            return Err(unknown(key, "MANAGER LIST"));
        }
        let heading = lines.value();
        let (_, name) = heading
            .text
            .split_once(',')
            .ok_or_else(|| heading.error("expected the number of a manager, a comma and its name"))?;
        let name = checked_name(heading, name.trim())?;
        managers.push(Manager { name, workers: workers(lines, known)? });
        let workers = managers.iter().map(|manager| manager.workers.len()).sum::<usize>();
        if managers.len() > MANAGERS_MAX || workers > WORKERS_MAX {
            return Err(heading.error(format!("more than {MANAGERS_MAX} managers or {WORKERS_MAX} workers")));
        }
    }
}

fn workers(lines: &mut Lines<'_>, known: &mut Known<'_>) -> Result<Vec<Worker>, IcfError> {
    let mut workers = Vec::new();
    loop {
        let key = lines.expect("a worker, or 'End manager,")?;
        match key {
            key if key.is_key("End manager") => return Ok(workers),
            // Where it is: the machine that is measured from is chosen here, by agents.
            key if key.is_key("Manager network address") => {
                lines.value();
            }
            key if key.is_key("Worker") => {
                let heading = lines.value();
                let name = checked_name(heading, heading.text)?;
                workers.extend(worker(lines, name, known)?);
            }
            key => return Err(unknown(key, "a manager")),
        }
    }
}

/// A worker; `None` if it measures a network.
fn worker(lines: &mut Lines<'_>, name: String, known: &mut Known<'_>) -> Result<Option<Worker>, IcfError> {
    let mut worker = Worker {
        name,
        depth: 1,
        drain_after: None,
        seed: None,
        span: Span::default(),
        specs: Vec::new(),
        targets: Vec::new(),
    };
    let mut is_disk = true;
    loop {
        let key = lines.expect("a key of a worker, or 'End worker,")?;
        match key {
            key if key.is_key("End worker") => break,
            key if key.is_key("Worker type") => is_disk = is_disk_worker(lines.value())?,
            key if key.is_key("Default target settings for worker") => settings(lines, &mut worker, known)?,
            key if key.is_key("Assigned access specs") => worker.specs = assigned(lines, known)?,
            key if key.is_key("Target assignments") => worker.targets = targets(lines)?,
            key => return Err(unknown(key, "a worker")),
        }
    }
    if !is_disk {
        known
            .notes
            .push(format!("{} is a network worker, measures no storage, and is left out.", worker.name));
    }
    Ok(is_disk.then_some(worker))
}

fn is_disk_worker(value: Line<'_>) -> Result<bool, IcfError> {
    let first = value.words().next().unwrap_or(value);
    match first.text.to_ascii_uppercase().as_str() {
        "DISK" => Ok(true),
        "NETWORK" => Ok(false),
        other => Err(first.error(format!("the worker type: expected DISK or NETWORK, found `{other}`"))),
    }
}

fn settings(lines: &mut Lines<'_>, worker: &mut Worker, known: &mut Known<'_>) -> Result<(), IcfError> {
    loop {
        let key = lines.expect("a setting, or 'End default target settings for worker,")?;
        match key {
            key if key.is_key("End default target settings for worker") => return Ok(()),
            key if key.is_key_like("Number of outstanding IOs") => queue(lines.value(), worker, known.notes)?,
            key if key.is_key_like("Disk maximum size") => disk(lines.value(), worker, known.notes)?,
            // Of network workers, which are left out and said to be.
            key if key.is_key("Local network interface") || key.is_key("VI outstanding IOs") => {
                lines.value();
            }
            key => return Err(unknown(key, "the settings of a worker")),
        }
    }
}

/// Outstanding I/Os, test connection rate, transactions per connection, and in newer files a fixed seed.
fn queue(value: Line<'_>, worker: &mut Worker, notes: &mut Vec<String>) -> Result<(), IcfError> {
    let words: Vec<Line<'_>> = value.words().collect();
    let [depth, rate, transactions, seed @ ..] = words.as_slice() else {
        return Err(
            value.error("expected outstanding I/Os, ENABLED or DISABLED, and transactions per connection")
        );
    };
    // Within these ranges.
    worker.depth = depth.whole("outstanding I/Os", 1..=65_536)? as u32;
    let transactions = transactions.whole("transactions per connection", 0..=1_000_000)? as u32;
    worker.drain_after = match (rate.enabled("test connection rate")?, transactions) {
        (true, 0) => {
            notes.push(format!(
                "{} only opens and closes its disk (0 transactions); here it makes requests.",
                worker.name
            ));
            None
        }
        (true, transactions) => Some(transactions),
        (false, _) => None,
    };
    worker.seed = match seed {
        [] => None,
        [fixed, number] => {
            let number = number.whole("the fixed seed", 0..=u64::MAX)?;
            fixed.enabled("use fixed seed")?.then_some(number)
        }
        _ => return Err(value.error("expected ENABLED or DISABLED and a number for the fixed seed")),
    };
    Ok(())
}

/// Sectors that are used (0: all of them), the first of them, and in newer files what is written.
fn disk(value: Line<'_>, worker: &mut Worker, notes: &mut Vec<String>) -> Result<(), IcfError> {
    const SECTORS: std::ops::RangeInclusive<u64> = 0..=1 << 44;
    let words: Vec<Line<'_>> = value.words().collect();
    let (size, start, pattern) = match words.as_slice() {
        [size, start] => (size, start, None),
        [size, start, pattern] => (size, start, Some(pattern)),
        _ => return Err(value.error("expected the disk's maximum size and the starting sector")),
    };
    let sectors = size.whole("the maximum size", SECTORS)?;
    worker.span = Span {
        start_bytes: start.whole("the starting sector", SECTORS)? * SECTOR_BYTES,
        bytes: (sectors > 0).then_some(sectors * SECTOR_BYTES),
    };
    if let Some(pattern) = pattern {
        let what = match pattern.whole("the data pattern", 0..=2)? {
            0 => "the same bytes again and again",
            1 => "pseudo-random bytes",
            _ => return Ok(()),
        };
        let note =
            format!("Iometer wrote {what}; here random numbers are written, which nothing can compress.");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok(())
}

fn assigned(lines: &mut Lines<'_>, known: &Known<'_>) -> Result<Vec<Option<usize>>, IcfError> {
    let mut assigned = Vec::new();
    loop {
        let line = lines.expect("an access specification's name, or 'End assigned access specs,")?;
        if line.is_key("End assigned access specs") {
            return Ok(assigned);
        }
        let index = known.specs.iter().position(|spec| spec.name.eq_ignore_ascii_case(line.text));
        match index {
            Some(index) => assigned.push(Some(index)),
            None if line.text.eq_ignore_ascii_case("Idle") => assigned.push(None),
            None => {
                return Err(
                    line.error(format!("there is no access specification `{}` in this file", line.text))
                );
            }
        }
        if assigned.len() > SPECS_OF_WORKER_MAX {
            return Err(
                line.error(format!("more than {SPECS_OF_WORKER_MAX} access specifications for one worker"))
            );
        }
    }
}

fn targets(lines: &mut Lines<'_>) -> Result<Vec<String>, IcfError> {
    let mut targets = Vec::new();
    loop {
        let key = lines.expect("a target, or 'End target assignments,")?;
        match key {
            key if key.is_key("End target assignments") => return Ok(targets),
            key if key.is_key("Target") => {
                let name = lines.value();
                targets.push(checked_name(name, name.text)?);
                if targets.len() > TARGETS_MAX {
                    return Err(name.error(format!("more than {TARGETS_MAX} targets for one worker")));
                }
            }
            key if key.is_key("Target type") || key.is_key_like("Target manager ID") => {
                lines.value();
            }
            key if key.is_key("End target") => {}
            key => return Err(unknown(key, "the target assignments")),
        }
    }
}
