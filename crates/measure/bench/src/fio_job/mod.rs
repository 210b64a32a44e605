//! fio's job files: what they say, and the suite that asks the same of a storage here.
//!
//! ```text
//!   [global] ─► job ─┐                           jobs that run at the same time are the clients of a cell,
//!   [job]    ────────┴─► phases, by `stonewall`  and phases are cells, one after the other
//! ```
//!
//! Every option of fio is known by name: it is read, or has no meaning here and is named in [`Jobs::notes`], or it changes
//! what is measured in a way that does not exist here. Such a file is refused, with all of its mistakes at once, each with
//! its line and column; who can do without an option names it to [`parse`]. What is not quite the same as in fio is
//! a note too.

mod access;
mod job;
mod keys;
mod lines;
mod suite;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use crate::suite::SuiteError as Mistake;
pub use job::Job;
pub use values::Amount;

use keys::{Key, Use};
use lines::{Section, Written};
use values::KbBase;

/// What a file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Jobs {
    /// Jobs that run at the same time, one phase after the other. None is empty, and there is at least one.
    pub phases: Vec<Vec<Job>>,
    /// What has no meaning here, or is not quite the same; one sentence each.
    pub notes: Vec<String>,
}

/// A job file is some pages of text; longer ones are something else.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// More are a mistake: this bounds the memory that a file can ask for.
const JOBS_MAX: usize = 1024;

/// More are not told: the first ones are to be corrected first.
const MISTAKES_MAX: usize = 50;

/// The options that hold for a job, by fio's names: what is said for reads, and for writes. They are the same where an option does
/// not tell these apart ([`DIRECTED`]).
type Options<'a> = BTreeMap<&'static str, [Option<Written<'a>>; 2]>;

/// Options with values for reads and for writes; where only one is said, the other stays as it was before.
const DIRECTED: [&str; 7] = ["bs", "ba", "bsrange", "bssplit", "percentage_random", "rate", "rate_iops"];

/// Reads a file. `without` are options that are left out although they change what is measured.
///
/// # Errors
/// All mistakes, in their order; at least one.
pub fn parse(text: &str, without: &[String]) -> Result<Jobs, Vec<Mistake>> {
    let first = |why: String| vec![Mistake { line: 1, column: 1, why }];
    if text.len() > TEXT_BYTES_MAX {
        return Err(first("this has more than 1 MiB, which no job file has".to_owned()));
    }
    if let Some(unknown) = without.iter().find(|name| keys::key(name).is_none()) {
        return Err(first(format!("fio has no option `{unknown}` that could be left out")));
    }
    let mut reading = Reading { without, mistakes: Vec::new(), notes: Vec::new(), left_out: BTreeMap::new() };
    let sections = lines::sections(text, &mut reading.mistakes);
    let phases = match sections.iter().filter(|section| !section.is_global()).count() {
        0 => {
            reading.mistakes.push(Mistake {
                line: 1,
                column: 1,
                why: "this has no job, such as [job]".to_owned(),
            });
            Vec::new()
        }
        1..=JOBS_MAX => reading.phases(&sections),
        _ => return Err(first(format!("this has more than {JOBS_MAX} jobs"))),
    };
    let Reading { mut mistakes, mut notes, left_out, .. } = reading;
    if mistakes.is_empty() {
        notes.extend(named(&left_out));
        return Ok(Jobs { phases, notes });
    }
    mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    mistakes.dedup();
    mistakes.truncate(MISTAKES_MAX);
    Err(mistakes)
}

/// What is found while a file is read.
struct Reading<'t> {
    without: &'t [String],
    mistakes: Vec<Mistake>,
    /// Each once.
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
                // There is a last one.
                Ok(job) => phases.last_mut().into_iter().for_each(|phase| phase.push(job.clone())),
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

    /// Adds options to those that hold: later ones replace earlier ones.
    fn add<'a>(&mut self, written: &[Written<'a>], options: &mut Options<'a>) {
        // fio reads it first, and values of other sections stay as they were read there.
        let inherited = latest(options, "kb_base");
        let base = written.iter().rfind(|option| option.name == "kb_base").copied().or(inherited);
        let base = base.and_then(|option| KbBase::named(option.value?).ok()).unwrap_or_default();
        for option in written {
            let option = &Written { base, ..*option };
            let Some(Key { name, becomes, .. }) = keys::key(option.name) else {
                let hint = volume::nearest::nearest(option.name, &keys::names());
                let hint = hint.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
                self.mistakes.push(option.unusable(format!("fio has no option `{}`{hint}", option.name)));
                continue;
            };
            let is_unwanted = self.without.iter().any(|unwanted| unwanted == option.name || unwanted == name);
            match becomes {
                _ if is_unwanted => self.left_out.entry(name).or_default().push(option.line),
                Use::Read => hold(options, name, option),
                Use::Ignored => {
                    hold(options, name, option);
                    self.left_out.entry(name).or_default().push(option.line);
                }
                Use::Refused(neutral)
                    if option.value.is_some_and(|value| neutral.contains(&value.trim())) => {}
                Use::Refused(_) => self.mistakes.push(option.unusable(format!(
                    "`{}` changes what fio measures, and there is no such workload here",
                    option.name
                ))),
            }
        }
    }
}

/// Has an option hold from here on.
fn hold<'a>(options: &mut Options<'a>, name: &'static str, option: &Written<'a>) {
    let said =
        option.value.filter(|_| DIRECTED.contains(&name)).and_then(|text| values::directions(text).ok());
    let said = said.map(|said| said.map(|one| one.is_some())).filter(|said| said.contains(&true));
    let slots = options.entry(name).or_default();
    for (slot, _) in slots.iter_mut().zip(said.unwrap_or([true; 2])).filter(|(_, is_said)| *is_said) {
        *slot = Some(*option);
    }
}

/// The option of this name that was written last.
fn latest<'a>(options: &Options<'a>, name: &str) -> Option<Written<'a>> {
    options.get(name)?.iter().flatten().max_by_key(|option| option.line).copied()
}

/// Which options have no meaning, and where they stand.
fn named(left_out: &BTreeMap<&'static str, Vec<usize>>) -> Option<String> {
    const LINES_NAMED: usize = 3;
    let one = |(name, lines): (&&str, &Vec<usize>)| {
        let named: Vec<String> = lines.iter().take(LINES_NAMED).map(usize::to_string).collect();
        let more = if lines.len() > LINES_NAMED { ", …" } else { "" };
        let word = if lines.len() == 1 { "line" } else { "lines" };
        format!("`{name}` ({word} {}{more})", named.join(", "))
    };
    let all: Vec<String> = left_out.iter().map(one).collect();
    (!all.is_empty()).then(|| format!("These options of the job file are not used: {}.", all.join(", ")))
}
