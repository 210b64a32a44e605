//! Reads fio's job files, and converts them to suites.
//!
//! ```text
//!   [global] ─► job ─┐                           jobs that run at the same time are the clients of a cell,
//!   [job]    ────────┴─► phases, by `stonewall`  and phases are cells, one after the other
//! ```
//!
//! The parser recognises every option of fio. Some options are read; others have no meaning here and are
//! listed in [`Jobs::notes`]; the rest would change the measurement in an unsupported way. A file with an
//! unsupported option is rejected. All its errors are reported together, each with its line and column. To
//! ignore unsupported options, pass their names to [`parse`]. The notes also list differences from fio.

use std::collections::{BTreeMap, HashSet};

use self::keys::{KbBase, Key, Options, Section, Use, Written, directions, latest, sections};
use crate::plan::{Access, Align, Cell, Order, Role, Rule, Span, Step, Stop, Suite};

mod job;
mod keys;

pub use crate::suite::SuiteError as Mistake;
pub use job::Job;
pub use keys::Amount;

/// The content of a job file.
#[derive(Clone, Debug, PartialEq)]
pub struct Jobs {
    /// The phases run one after the other; the jobs of a phase run concurrently. There is at least one phase,
    /// and no phase is empty.
    pub phases: Vec<Vec<Job>>,
    /// Options without a meaning here, and differences from fio; one sentence each.
    pub notes: Vec<String>,
}

/// Maximum length of a job file. Job files are a few pages of text; a longer file is not a job file.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of jobs. It limits the memory that a file can request.
const JOBS_MAX: usize = 1024;

/// The maximum number of errors reported.
const MISTAKES_MAX: usize = 50;

/// Options with separate values for reads and for writes. If only one of them is given, the other keeps its
/// previous value.
const DIRECTED: [&str; 7] = [
    "bs",
    "ba",
    "bsrange",
    "bssplit",
    "percentage_random",
    "rate",
    "rate_iops",
];

/// Parses a job file. `without` lists options to ignore although they change the measurement.
///
/// # Errors
/// Returns all errors of the file, in order.
pub fn parse(text: &str, without: &[String]) -> Result<Jobs, Vec<Mistake>> {
    let first = |why: String| {
        vec![Mistake {
            line: 1,
            column: 1,
            why,
        }]
    };
    if text.len() > TEXT_BYTES_MAX {
        return Err(first("the job file is larger than 1 MiB".to_owned()));
    }
    if let Some(unknown) = without.iter().find(|name| keys::key(name).is_none()) {
        return Err(first(format!(
            "fio has no option `{unknown}`, so it cannot be ignored"
        )));
    }
    let mut reading = Reading {
        without,
        mistakes: Vec::new(),
        notes: Vec::new(),
        left_out: BTreeMap::new(),
    };
    let sections = sections(text, &mut reading.mistakes);
    let phases = match sections
        .iter()
        .filter(|section| !section.is_global())
        .count()
    {
        0 => {
            reading.mistakes.push(Mistake {
                line: 1,
                column: 1,
                why: "the file has no job section, such as [job]".to_owned(),
            });
            Vec::new()
        }
        1..=JOBS_MAX => reading.phases(&sections),
        _ => return Err(first(format!("the file has more than {JOBS_MAX} jobs"))),
    };
    let Reading {
        mut mistakes,
        mut notes,
        left_out,
        ..
    } = reading;
    if mistakes.is_empty() {
        notes.extend(named(&left_out));
        return Ok(Jobs { phases, notes });
    }
    mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    mistakes.dedup();
    mistakes.truncate(MISTAKES_MAX);
    Err(mistakes)
}

/// The state of parsing a file.
struct Reading<'t> {
    without: &'t [String],
    mistakes: Vec<Mistake>,
    /// The notes, without duplicates.
    notes: Vec<String>,
    /// Options without a meaning here, with their lines.
    left_out: BTreeMap<&'static str, Vec<usize>>,
}

impl Reading<'_> {
    fn phases(&mut self, sections: &[Section<'_>]) -> Vec<Vec<Job>> {
        let mut phases: Vec<Vec<Job>> = Vec::new();
        let mut global = Options::new();
        for section in sections {
            if section.is_global() {
                self.add(&section.options, &mut global);
                continue;
            }
            let mut options = global.clone();
            self.add(&section.options, &mut options);
            let mut notes = Vec::new();
            match job::read(section, &options, &mut notes) {
                Ok(job) if phases.is_empty() || job.stonewall => phases.push(vec![job]),
                // `phases` is not empty here.
                Ok(job) => phases
                    .last_mut()
                    .into_iter()
                    .for_each(|phase| phase.push(job.clone())),
                Err(mistake) => self.mistakes.push(mistake),
            }
            for note in notes {
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
            }
        }
        phases
    }

    /// Adds the options of a section to the options in force. A later option replaces an earlier one.
    fn add<'a>(&mut self, written: &[Written<'a>], options: &mut Options<'a>) {
        // fio evaluates `kb_base` before the other options of a section. Inherited values keep the meaning
        // that they have in their own section.
        let inherited = latest(options, "kb_base");
        let base = written
            .iter()
            .rfind(|option| option.name == "kb_base")
            .copied()
            .or(inherited);
        let base = base
            .and_then(|option| KbBase::named(option.value?).ok())
            .unwrap_or_default();
        for option in written {
            let option = &Written { base, ..*option };
            let Some(Key { name, becomes, .. }) = keys::key(option.name) else {
                let hint = volume::spec::nearest(option.name, &keys::names());
                let hint = hint
                    .map(|name| format!("; did you mean `{name}`?"))
                    .unwrap_or_default();
                self.mistakes
                    .push(option.unusable(format!("fio has no option `{}`{hint}", option.name)));
                continue;
            };
            let is_unwanted = self
                .without
                .iter()
                .any(|unwanted| unwanted == option.name || unwanted == name);
            match becomes {
                _ if is_unwanted => self.left_out.entry(name).or_default().push(option.line),
                Use::Read => hold(options, name, option),
                Use::Ignored => {
                    hold(options, name, option);
                    self.left_out.entry(name).or_default().push(option.line);
                }
                Use::Refused(neutral)
                    if option
                        .value
                        .is_some_and(|value| neutral.contains(&value.trim())) => {}
                Use::Refused(_) => self.mistakes.push(option.unusable(format!(
                    "`{}` is not supported here, and changes the measured result",
                    option.name
                ))),
            }
        }
    }
}

/// Puts an option into force for the following jobs.
fn hold<'a>(options: &mut Options<'a>, name: &'static str, option: &Written<'a>) {
    let said = option
        .value
        .filter(|_| DIRECTED.contains(&name))
        .and_then(|text| directions(text).ok());
    let said = said
        .map(|said| said.map(|one| one.is_some()))
        .filter(|said| said.contains(&true));
    let slots = options.entry(name).or_default();
    for (slot, _) in slots
        .iter_mut()
        .zip(said.unwrap_or([true; 2]))
        .filter(|(_, is_said)| *is_said)
    {
        *slot = Some(*option);
    }
}

/// Formats the options without a meaning here, with their lines.
fn named(left_out: &BTreeMap<&'static str, Vec<usize>>) -> Option<String> {
    const LINES_NAMED: usize = 3;
    let one = |(name, lines): (&&str, &Vec<usize>)| {
        let named: Vec<String> = lines
            .iter()
            .take(LINES_NAMED)
            .map(usize::to_string)
            .collect();
        let more = if lines.len() > LINES_NAMED {
            ", …"
        } else {
            ""
        };
        let word = if lines.len() == 1 { "line" } else { "lines" };
        format!("`{name}` ({word} {}{more})", named.join(", "))
    };
    let all: Vec<String> = left_out.iter().map(one).collect();
    (!all.is_empty()).then(|| {
        format!(
            "These options of the job file are ignored: {}.",
            all.join(", ")
        )
    })
}

/// Maximum number of clients of a cell.
const CLIENTS_MAX: usize = 256;

/// Maximum number of roles in all cells combined. It limits the memory that a file can request.
const ROLES_MAX: usize = 16_384;

/// Maximum memory for the requests of all roles of a cell, the same as in suites.
const MEMORY_MAX: u64 = 4 << 30;

/// The time limit of a job that ends only when its work is complete.
const DAY_S: f64 = 86_400.0;

impl Jobs {
    /// Returns whether any job writes.
    pub fn writes(&self) -> bool {
        self.phases
            .iter()
            .flatten()
            .any(|job| job.workload.writes())
    }

    /// Converts the jobs to a suite with this name, for storage of this capacity.
    ///
    /// # Errors
    /// Returns the reason if the jobs cannot run concurrently here, or cannot run on this storage.
    pub fn suite(&self, name: &str, device_bytes: u64) -> Result<Suite, String> {
        let mut names = HashSet::new();
        let mut cells = Vec::new();
        let mut roles = 0;
        for phase in &self.phases {
            let cell = cell(phase, device_bytes, &mut names)?;
            roles += cell.roles.len();
            if roles > ROLES_MAX {
                return Err(format!(
                    "the jobs have more than {ROLES_MAX} clients in total"
                ));
            }
            cells.push(cell);
        }
        Ok(Suite {
            name: name.to_owned(),
            title: "fio's jobs".to_owned(),
            about: "Imported from a fio job file.".to_owned(),
            document: None,
            assumed: Vec::new(),
            // Each cell overrides this stop.
            steps: vec![Step::Measure {
                stop: Stop::after(DAY_S),
                order: Order::Once,
                cells,
            }],
        })
    }
}

fn cell(phase: &[Job], device_bytes: u64, names: &mut HashSet<String>) -> Result<Cell, String> {
    let all = phase
        .iter()
        .map(|job| job.name.as_str())
        .collect::<Vec<_>>()
        .join(" + ");
    let short: String = match all.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &all[..end]),
        None => all,
    };
    let name = unique(short, names);
    let mut roles: Vec<Role> = Vec::new();
    let mut role_names = HashSet::new();
    let mut stop: Option<(&Job, Stop)> = None;
    for job in phase {
        let own = job.stop(device_bytes)?;
        match stop {
            Some((first, known)) if known != own => {
                return Err(format!(
                    "concurrent jobs must end at the same time here, but {} {} and {} {}: use `time_based` \
                     and the same `runtime` for both, or `stonewall` for the second",
                    first.name,
                    ends(known),
                    job.name,
                    ends(own)
                ));
            }
            _ => stop = Some((job, own)),
        }
        for clone in 0..job.clients {
            let number = roles.len();
            let mut workload = job.workload.clone();
            workload.span = job.span(u64::from(clone), device_bytes)?;
            workload.seed = workload.seed.wrapping_add(number as u64);
            let named = if job.clients == 1 {
                job.name.clone()
            } else {
                format!("{} {}", job.name, clone + 1)
            };
            roles.push(Role::new(
                unique(named, &mut role_names),
                number as u16,
                workload,
            ));
        }
        if roles.len() > CLIENTS_MAX {
            return Err(format!(
                "{name}: more than {CLIENTS_MAX} concurrent clients"
            ));
        }
    }
    let memory = roles
        .iter()
        .map(|role| u64::from(role.workload.depth) * u64::from(role.workload.block_bytes_max()));
    if memory.fold(0, u64::saturating_add) > MEMORY_MAX {
        return Err(format!(
            "{name}: the outstanding requests have more than 4 GiB of data in total"
        ));
    }
    Ok(Cell {
        stop: stop.map(|(_, stop)| stop),
        ..Cell::new(name.clone(), name, roles)
    })
}

/// Returns the name, with a number appended if the name is already in use.
fn unique(name: String, names: &mut HashSet<String>) -> String {
    let numbered = (2u32..).map(|number| format!("{name} ({number})"));
    let free = std::iter::once(name.clone())
        .chain(numbered)
        .find(|name| !names.contains(name));
    let free = free.unwrap_or(name);
    names.insert(free.clone());
    free
}

fn ends(stop: Stop) -> String {
    let time = if stop.max_s < DAY_S {
        format!(" or after {} s", stop.max_s)
    } else {
        String::new()
    };
    let ramp = if stop.warm_up_s > 0.0 {
        format!(" after a ramp of {} s", stop.warm_up_s)
    } else {
        String::new()
    };
    match stop.rule {
        Rule::Bytes { bytes } => format!("ends after {bytes} bytes{time}{ramp}"),
        Rule::Requests { requests } => format!("ends after {requests} requests{time}{ramp}"),
        Rule::Time | Rule::Confidence { .. } => format!("ends after {} s{ramp}", stop.max_s),
    }
}

impl Job {
    /// Returns the part of the storage that the job's client number `clone` uses.
    fn span(&self, clone: u64, device_bytes: u64) -> Result<Span, String> {
        // Each part starts and ends at a multiple of the alignment of requests.
        let step = self.workload.accesses.iter().map(step).max().unwrap_or(1);
        let whole = |bytes: u64| bytes - bytes % step;
        let start = match self.offset {
            Amount::Bytes(bytes) => bytes,
            share => whole(share.of(device_bytes)),
        };
        let increment = match self.offset_increment {
            Amount::Bytes(bytes) => bytes,
            share => whole(share.of(device_bytes)),
        };
        let start_bytes = start.saturating_add(increment.saturating_mul(clone));
        let left = device_bytes.checked_sub(start_bytes).filter(|left| *left > 0).ok_or_else(|| {
            format!(
                "{}: offset {start_bytes} is beyond the end of the storage, which has {device_bytes} bytes",
                self.name
            )
        })?;
        let bytes = match self.size {
            None => None,
            Some(Amount::Bytes(bytes)) => Some(bytes),
            Some(share) => Some(whole(share.of(device_bytes))),
        };
        match bytes {
            Some(bytes) if bytes > left => Err(format!(
                "{}: the size {bytes} is larger than the {left} bytes from {start_bytes} to the end",
                self.name
            )),
            Some(0) => Err(format!("{}: its part of the storage is empty", self.name)),
            bytes => Ok(Span {
                start_bytes,
                bytes: bytes.filter(|bytes| *bytes < left || start_bytes > 0),
            }),
        }
    }

    /// Returns the stop condition that all clients of the phase share.
    fn stop(&self, device_bytes: u64) -> Result<Stop, String> {
        let max_s = self.runtime.map_or(DAY_S, |time| time.as_secs_f64());
        let warm_up_s = self.ramp.as_secs_f64();
        let timed = Stop {
            warm_up_s,
            min_s: max_s,
            max_s,
            rule: Rule::Time,
        };
        if self.time_based {
            return Ok(timed);
        }
        let rule = match self.requests {
            Some(requests) => Rule::Requests {
                requests: requests * self.loops,
            },
            None => {
                let span = self.span(0, device_bytes)?;
                let part = span.bytes.unwrap_or(device_bytes - span.start_bytes);
                let bytes = self.io_size.map_or(part, |amount| amount.of(device_bytes));
                Rule::Bytes {
                    bytes: bytes.saturating_mul(self.loops),
                }
            }
        };
        Ok(Stop {
            min_s: 0.0,
            rule,
            ..timed
        })
    }
}

/// Returns the alignment of a line's requests, in bytes.
fn step(access: &Access) -> u64 {
    match access.align {
        Align::Bytes(bytes) => u64::from(bytes),
        Align::Natural | Align::Block => u64::from(access.block_bytes),
    }
}

#[cfg(test)]
mod tests;
