//! TEST SETUP: how long each test takes, and what is stepped through from test to test.

use super::lines::{IcfError, Line, Lines};

/// What TEST SETUP says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TestSetup {
    /// Its description.
    pub description: String,
    /// How long each test takes, in seconds.
    pub run_s: u32,
    /// How long it runs before anything is counted, in seconds.
    pub ramp_up_s: u32,
    /// What is stepped through.
    pub cycling: Cycling,
    /// Numbers of workers, if they are stepped through.
    pub workers: Steps,
    /// Requests at once, if they are stepped through.
    pub depths: Steps,
}

/// What is stepped through from test to test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cycling {
    /// Nothing.
    #[default]
    Normal,
    /// The number of workers of each manager.
    Workers,
    /// The requests at once of each worker.
    OutstandingIos,
    /// The number of disks, by one of Iometer's rules; which disks there are is not said here.
    Targets(Option<&'static Cycling>),
}

/// Numbers to step through: a first, a last (where there is one), and how to come from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The first.
    pub start: u32,
    /// None is above this.
    pub end: u32,
    /// What is added, or multiplied with.
    pub step: u32,
    /// Whether it is multiplied.
    pub exponential: bool,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps { start: 1, end: 32, step: 2, exponential: true }
    }
}

impl Steps {
    /// The numbers, up to `most` as well. A step of 1 is always added: multiplied, it would never end.
    pub fn numbers(&self, most: u32) -> Vec<u32> {
        let end = self.end.min(most);
        let exponential = self.exponential && self.step > 1;
        let next = |number: &u32| match exponential {
            true => number.checked_mul(self.step),
            false => number.checked_add(self.step),
        };
        std::iter::successors(Some(self.start), next).take_while(|number| *number <= end).collect()
    }
}

pub(super) fn read(lines: &mut Lines<'_>, notes: &mut Vec<String>) -> Result<TestSetup, IcfError> {
    let mut setup = TestSetup::default();
    let mut run_time = None;
    loop {
        let key = lines.expect("a key of TEST SETUP, or 'END test setup,")?;
        let value = match key {
            end if end.is_key("END test setup") => break,
            value if value.key().is_none() => {
                return Err(value.error(format!("expected a key of TEST SETUP, found `{}`", value.text)));
            }
            _ => lines.value(),
        };
        match key {
            key if key.is_key("Test Description") => setup.description = value.text.to_owned(),
            key if key.is_key("Run Time") => {
                setup.run_s = run_s(value)?;
                run_time = Some(value);
            }
            key if key.is_key_like("Ramp Up Time") => {
                setup.ramp_up_s = value.whole("the ramp-up time", 0..=86_400)? as u32;
            }
            key if key.is_key("Worker Cycling") => setup.workers = steps(value, false)?,
            key if key.is_key("Queue Depth Cycling") => setup.depths = steps(value, true)?,
            key if key.is_key("Test Type") => setup.cycling = cycling(value)?,
            // How many workers a manager begins with, before MANAGER LIST says which there are.
            key if key.is_key_like("Default Disk Workers") || key.is_key("Default Workers to Spawn") => {
                workers_to_spawn(value, notes);
            }
            key if key.is_key_like("Default Network Workers") => {
                if !["", "0"].contains(&value.text) {
                    notes.push("Network workers measure no storage, and are left out.".to_owned());
                }
            }
            // Which disks are added next, where disks are stepped through, which `cycling` refuses; and what is stored.
            key if key.is_key("Disk Cycling") || key.is_key("Target Cycling") => {
                steps(value, false)?;
            }
            key if key.is_key("Record Results") => {}
            key => return Err(unknown(key, "TEST SETUP")),
        }
    }
    match (setup.run_s, run_time) {
        (0, Some(value)) => {
            Err(value.error("a run time of 0 is \"until somebody stops it\"; write how long each test takes"))
        }
        (0, None) => Ok(TestSetup { run_s: RUN_S, ..setup }),
        _ => Ok(setup),
    }
}

/// Where a file says nothing: as long as document 001 measured.
pub(super) const RUN_S: u32 = 120;

pub(super) fn unknown(key: Line<'_>, section: &str) -> IcfError {
    key.error(format!("{section} has no key `{}`", key.key().unwrap_or(key.text)))
}

fn run_s(value: Line<'_>) -> Result<u32, IcfError> {
    let parts: Vec<Line<'_>> = value.words().collect();
    let [hours, minutes, seconds] = parts.as_slice() else {
        return Err(value.error("the run time: expected hours, minutes and seconds, such as 0 2 0"));
    };
    let seconds = hours.whole("hours", 0..=168)? * 3600
        + minutes.whole("minutes", 0..=10_000)? * 60
        + seconds.whole("seconds", 0..=604_800)?;
    // At most a week, two and a week's seconds: far below 2^32.
    Ok(seconds as u32)
}

fn steps(value: Line<'_>, has_end: bool) -> Result<Steps, IcfError> {
    const NUMBERS: std::ops::RangeInclusive<u64> = 1..=65_536;
    let words: Vec<Line<'_>> = value.words().collect();
    let (start, end, step, kind) = match (words.as_slice(), has_end) {
        ([start, end, step, kind], true) => (start, Some(end), step, kind),
        ([start, step, kind], false) => (start, None, step, kind),
        (_, true) => {
            return Err(value.error(
                "expected a start, an end, a step and LINEAR or EXPONENTIAL, such as 1 32 2 EXPONENTIAL",
            ));
        }
        (_, false) => {
            return Err(value.error("expected a start, a step and LINEAR or EXPONENTIAL, such as 1 1 LINEAR"));
        }
    };
    let exponential = match kind.text {
        kind if kind.eq_ignore_ascii_case("LINEAR") || kind == "0" => false,
        kind if kind.eq_ignore_ascii_case("EXPONENTIAL") || kind == "1" => true,
        other => return Err(kind.error(format!("expected LINEAR or EXPONENTIAL, found `{other}`"))),
    };
    let end = end.map_or(Ok(u64::from(u32::MAX)), |end| end.whole("the end", NUMBERS))?;
    // Within these ranges.
    Ok(Steps {
        start: start.whole("the start", NUMBERS)? as u32,
        end: end as u32,
        step: step.whole("the step", NUMBERS)? as u32,
        exponential,
    })
}

fn cycling(value: Line<'_>) -> Result<Cycling, IcfError> {
    const TYPES: [(&str, Cycling); 8] = [
        ("NORMAL", Cycling::Normal),
        ("CYCLE_TARGETS", Cycling::Targets(None)),
        ("CYCLE_WORKERS", Cycling::Workers),
        ("INCREMENT_TARGETS_PARALLEL", Cycling::Targets(None)),
        ("INCREMENT_TARGETS_SERIAL", Cycling::Targets(None)),
        ("CYCLE_WORKERS_AND_TARGETS", Cycling::Targets(Some(&Cycling::Workers))),
        ("CYCLE_OUTSTANDING_IOS", Cycling::OutstandingIos),
        ("CYCLE_OUTSTANDING_IOS_AND_TARGETS", Cycling::Targets(Some(&Cycling::OutstandingIos))),
    ];
    let known = TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(value.text));
    known.map(|(_, cycling)| *cycling).ok_or_else(|| {
        let names = TYPES.map(|(name, _)| name).join(", ");
        value.error(format!("the test type: expected one of {names}, found `{}`", value.text))
    })
}

fn workers_to_spawn(value: Line<'_>, notes: &mut Vec<String>) {
    if !["", "0", "1"].contains(&value.text) {
        let why = "only those of MANAGER LIST are used";
        notes.push(format!("{} workers begin by default in Iometer; {why}.", value.text));
    }
}
