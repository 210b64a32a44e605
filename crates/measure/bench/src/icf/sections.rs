//! Parses the sections TEST SETUP, ACCESS SPECIFICATIONS and MANAGER LIST (machines and their workers), and
//! the lines of a configuration file.

use derive_more::{Display, Error};

use crate::plan::{Access, Align, Percent, Span};

/// A machine with workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Manager {
    /// The name.
    pub name: String,
    /// The workers that use disks.
    pub workers: Vec<Worker>,
}

/// A worker: a thread of Iometer that uses disks.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// The name.
    pub name: String,
    /// The queue depth on each of its disks.
    pub depth: u32,
    /// The number of requests (Iometer's transactions) per connection, if the connection rate is tested.
    pub drain_after: Option<u32>,
    /// The seed of the worker's random numbers, if it is fixed.
    pub seed: Option<u64>,
    /// The part of each disk that the worker uses.
    pub span: Span,
    /// The access specification of each test, as an index; `None` is Iometer's Idle.
    pub specs: Vec<Option<usize>>,
    /// The disks that the worker uses.
    pub targets: Vec<String>,
}

const MANAGERS_MAX: usize = 256;
const WORKERS_MAX: usize = 1024;
const SPECS_OF_WORKER_MAX: usize = 4096;
const TARGETS_MAX: usize = 1024;

/// The parts of the file that have been parsed so far.
pub(super) struct Known<'a> {
    pub(super) specs: &'a [AccessSpec],
    pub(super) notes: &'a mut Vec<String>,
}

pub(super) fn read_managers(
    lines: &mut Lines<'_>,
    known: &mut Known<'_>,
) -> Result<Vec<Manager>, IcfError> {
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
        let (_, name) = heading.text.split_once(',').ok_or_else(|| {
            heading.error("expected the number of a manager, a comma and its name")
        })?;
        let name = checked_name(heading, name.trim())?;
        managers.push(Manager {
            name,
            workers: workers(lines, known)?,
        });
        let workers = managers
            .iter()
            .map(|manager| manager.workers.len())
            .sum::<usize>();
        if managers.len() > MANAGERS_MAX || workers > WORKERS_MAX {
            return Err(heading.error(format!(
                "more than {MANAGERS_MAX} managers or {WORKERS_MAX} workers"
            )));
        }
    }
}

fn workers(lines: &mut Lines<'_>, known: &mut Known<'_>) -> Result<Vec<Worker>, IcfError> {
    let mut workers = Vec::new();
    loop {
        let key = lines.expect("a worker, or 'End manager,")?;
        match key {
            key if key.is_key("End manager") => return Ok(workers),
            // The machine's address is not used. Here, agents determine where measurements run.
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

/// Parses a worker. Returns `None` for a network worker.
fn worker(
    lines: &mut Lines<'_>,
    name: String,
    known: &mut Known<'_>,
) -> Result<Option<Worker>, IcfError> {
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
            key if key.is_key("Default target settings for worker") => {
                settings(lines, &mut worker, known)?
            }
            key if key.is_key("Assigned access specs") => worker.specs = assigned(lines, known)?,
            key if key.is_key("Target assignments") => worker.targets = targets(lines)?,
            key => return Err(unknown(key, "a worker")),
        }
    }
    if !is_disk {
        known.notes.push(format!(
            "{} is a network worker, which measures no storage, and is ignored.",
            worker.name
        ));
    }
    Ok(is_disk.then_some(worker))
}

fn is_disk_worker(value: Line<'_>) -> Result<bool, IcfError> {
    let first = value.words().next().unwrap_or(value);
    match first.text.to_ascii_uppercase().as_str() {
        "DISK" => Ok(true),
        "NETWORK" => Ok(false),
        other => Err(first.error(format!(
            "the worker type: expected DISK or NETWORK, found `{other}`"
        ))),
    }
}

fn settings(
    lines: &mut Lines<'_>,
    worker: &mut Worker,
    known: &mut Known<'_>,
) -> Result<(), IcfError> {
    loop {
        let key = lines.expect("a setting, or 'End default target settings for worker,")?;
        match key {
            key if key.is_key("End default target settings for worker") => return Ok(()),
            key if key.is_key_like("Number of outstanding IOs") => {
                queue(lines.value(), worker, known.notes)?
            }
            key if key.is_key_like("Disk maximum size") => {
                disk(lines.value(), worker, known.notes)?
            }
            // Keys of network workers. The worker is skipped with a note.
            key if key.is_key("Local network interface") || key.is_key("VI outstanding IOs") => {
                lines.value();
            }
            key => return Err(unknown(key, "the settings of a worker")),
        }
    }
}

/// Parses a worker's queue settings: outstanding I/Os, test connection rate, transactions per connection, and
/// in newer files a fixed seed.
fn queue(value: Line<'_>, worker: &mut Worker, notes: &mut Vec<String>) -> Result<(), IcfError> {
    let words: Vec<Line<'_>> = value.words().collect();
    let [depth, rate, transactions, seed @ ..] = words.as_slice() else {
        return Err(value.error(
            "expected outstanding I/Os, ENABLED or DISABLED, and transactions per connection",
        ));
    };
    // The ranges fit in a `u32`.
    worker.depth = depth.whole("outstanding I/Os", 1..=65_536)? as u32;
    let transactions = transactions.whole("transactions per connection", 0..=1_000_000)? as u32;
    worker.drain_after = match (rate.enabled("test connection rate")?, transactions) {
        (true, 0) => {
            notes.push(format!(
                "{} only opens and closes its disk (0 transactions); here it sends requests.",
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
        _ => {
            return Err(value.error("expected ENABLED or DISABLED and a number for the fixed seed"));
        }
    };
    Ok(())
}

/// Parses a worker's disk settings: the number of sectors (0: all), the first sector, and in newer files the
/// content of writes.
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
            0 => "the same bytes repeatedly",
            1 => "pseudo-random bytes",
            _ => return Ok(()),
        };
        let note =
            format!("Iometer writes {what}; here the data is random and cannot be compressed.");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok(())
}

fn assigned(lines: &mut Lines<'_>, known: &Known<'_>) -> Result<Vec<Option<usize>>, IcfError> {
    let mut assigned = Vec::new();
    loop {
        let line =
            lines.expect("an access specification's name, or 'End assigned access specs,")?;
        if line.is_key("End assigned access specs") {
            return Ok(assigned);
        }
        let index = known
            .specs
            .iter()
            .position(|spec| spec.name.eq_ignore_ascii_case(line.text));
        match index {
            Some(index) => assigned.push(Some(index)),
            None if line.text.eq_ignore_ascii_case("Idle") => assigned.push(None),
            None => {
                return Err(line.error(format!(
                    "there is no access specification `{}` in this file",
                    line.text
                )));
            }
        }
        if assigned.len() > SPECS_OF_WORKER_MAX {
            return Err(line.error(format!(
                "more than {SPECS_OF_WORKER_MAX} access specifications for one worker"
            )));
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
                    return Err(
                        name.error(format!("more than {TARGETS_MAX} targets for one worker"))
                    );
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

/// The content of TEST SETUP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TestSetup {
    /// The description.
    pub description: String,
    /// The duration of each test, in seconds.
    pub run_s: u32,
    /// The warm-up time of each test, in seconds; not counted.
    pub ramp_up_s: u32,
    /// The values that the tests step through.
    pub cycling: Cycling,
    /// The numbers of workers, if the tests step through them.
    pub workers: Steps,
    /// The queue depths, if the tests step through them.
    pub depths: Steps,
}

/// The parameter that changes from test to test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cycling {
    /// No parameter changes.
    #[default]
    Normal,
    /// The number of workers of each manager.
    Workers,
    /// The queue depth of each worker.
    OutstandingIos,
    /// The number of disks, possibly with another parameter. The disks themselves are listed in MANAGER LIST.
    Targets(Option<&'static Cycling>),
}

/// A series of numbers, linear or exponential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The first number.
    pub start: u32,
    /// The maximum; the series may end below it.
    pub end: u32,
    /// The difference between successive numbers, or their ratio.
    pub step: u32,
    /// Whether `step` is a ratio.
    pub exponential: bool,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps {
            start: 1,
            end: 32,
            step: 2,
            exponential: true,
        }
    }
}

impl Steps {
    /// Returns the numbers of the series up to `most`. A step of 1 is always a difference, because a series
    /// with the ratio 1 would never end.
    pub fn numbers(&self, most: u32) -> Vec<u32> {
        let end = self.end.min(most);
        let exponential = self.exponential && self.step > 1;
        let next = |number: &u32| match exponential {
            true => number.checked_mul(self.step),
            false => number.checked_add(self.step),
        };
        std::iter::successors(Some(self.start), next)
            .take_while(|number| *number <= end)
            .collect()
    }
}

pub(super) fn read_setup(
    lines: &mut Lines<'_>,
    notes: &mut Vec<String>,
) -> Result<TestSetup, IcfError> {
    let mut setup = TestSetup::default();
    let mut run_time = None;
    loop {
        let key = lines.expect("a key of TEST SETUP, or 'END test setup,")?;
        let value = match key {
            end if end.is_key("END test setup") => break,
            value if value.key().is_none() => {
                return Err(value.error(format!(
                    "expected a key of TEST SETUP, found `{}`",
                    value.text
                )));
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
            // The default number of workers of a manager; MANAGER LIST specifies the actual ones.
            key if key.is_key_like("Default Disk Workers")
                || key.is_key("Default Workers to Spawn") =>
            {
                workers_to_spawn(value, notes);
            }
            key if key.is_key_like("Default Network Workers") => {
                if !["", "0"].contains(&value.text) {
                    notes.push(
                        "Network workers do not measure storage, and are ignored.".to_owned(),
                    );
                }
            }
            // The series of disks, needed only if the tests step through disks, which `cycling` handles; and
            // stored results.
            key if key.is_key("Disk Cycling") || key.is_key("Target Cycling") => {
                steps(value, false)?;
            }
            key if key.is_key("Record Results") => {}
            key => return Err(unknown(key, "TEST SETUP")),
        }
    }
    match (setup.run_s, run_time) {
        (0, Some(value)) => {
            Err(value
                .error("a run time of 0 means \"until stopped\"; specify the time of each test"))
        }
        (0, None) => Ok(TestSetup {
            run_s: RUN_S,
            ..setup
        }),
        _ => Ok(setup),
    }
}

/// The default run time in seconds, as in document 001.
pub(super) const RUN_S: u32 = 120;

pub(super) fn unknown(key: Line<'_>, section: &str) -> IcfError {
    key.error(format!(
        "{section} has no key `{}`",
        key.key().unwrap_or(key.text)
    ))
}

fn run_s(value: Line<'_>) -> Result<u32, IcfError> {
    let parts: Vec<Line<'_>> = value.words().collect();
    let [hours, minutes, seconds] = parts.as_slice() else {
        return Err(value.error("the run time: expected hours, minutes and seconds, such as 0 2 0"));
    };
    let seconds = hours.whole("hours", 0..=168)? * 3600
        + minutes.whole("minutes", 0..=10_000)? * 60
        + seconds.whole("seconds", 0..=604_800)?;
    // Each term is at most a week, so the sum is far below 2^32.
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
            return Err(value
                .error("expected a start, a step and LINEAR or EXPONENTIAL, such as 1 1 LINEAR"));
        }
    };
    let exponential = match kind.text {
        kind if kind.eq_ignore_ascii_case("LINEAR") || kind == "0" => false,
        kind if kind.eq_ignore_ascii_case("EXPONENTIAL") || kind == "1" => true,
        other => return Err(kind.error(format!("expected LINEAR or EXPONENTIAL, found `{other}`"))),
    };
    let end = end.map_or(Ok(u64::from(u32::MAX)), |end| end.whole("the end", NUMBERS))?;
    // The ranges fit in a `u32`.
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
        (
            "CYCLE_WORKERS_AND_TARGETS",
            Cycling::Targets(Some(&Cycling::Workers)),
        ),
        ("CYCLE_OUTSTANDING_IOS", Cycling::OutstandingIos),
        (
            "CYCLE_OUTSTANDING_IOS_AND_TARGETS",
            Cycling::Targets(Some(&Cycling::OutstandingIos)),
        ),
    ];
    let known = TYPES
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(value.text));
    known.map(|(_, cycling)| *cycling).ok_or_else(|| {
        let names = TYPES.map(|(name, _)| name).join(", ");
        value.error(format!(
            "the test type: expected one of {names}, found `{}`",
            value.text
        ))
    })
}

fn workers_to_spawn(value: Line<'_>, notes: &mut Vec<String>) {
    if !["", "0", "1"].contains(&value.text) {
        let why = "only the workers in MANAGER LIST are used";
        notes.push(format!(
            "Iometer starts {} workers by default; {why}.",
            value.text
        ));
    }
}

/// An access specification.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessSpec {
    /// The name.
    pub name: String,
    /// Whether disk workers use this specification by default.
    pub by_default: bool,
    /// The access lines, whose shares add up to 100 %.
    pub lines: Vec<Access>,
}

/// Iometer itself allows 100 lines in a specification, and 80 letters in its name.
const LINES_MAX: usize = 100;
const SPECS_MAX: usize = 4096;
const NAME_LETTERS_MAX: usize = 100;

/// Maximum request length: 64 MiB is four times the largest command of any initiator here.
const BYTES_MAX: u64 = 64 << 20;

/// The sector length of the disks of Iometer's time.
pub(super) const SECTOR_BYTES: u64 = 512;

pub(super) fn read_specs(
    lines: &mut Lines<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<AccessSpec>, IcfError> {
    let mut specs: Vec<AccessSpec> = Vec::new();
    loop {
        let key = lines.expect("an access specification, or 'END access specifications,")?;
        if key.is_key("END access specifications") {
            return Ok(specs);
        }
        if !key.is_key_like("Access specification name") {
            return Err(unknown(key, "ACCESS SPECIFICATIONS"));
        }
        let heading = lines.value();
        let (name, by_default) = named(heading)?;
        let lines = access_lines(lines, heading, notes)?;
        // As in Iometer, a specification replaces an earlier one with the same name.
        specs.retain(|spec| spec.name != name);
        specs.push(AccessSpec {
            name,
            by_default,
            lines,
        });
        if specs.len() > SPECS_MAX {
            return Err(heading.error(format!("more than {SPECS_MAX} access specifications")));
        }
    }
}

/// Parses a specification's name, which may contain commas, and whether disk workers use the specification by
/// default.
fn named(heading: Line<'_>) -> Result<(String, bool), IcfError> {
    let wrong = || heading.error("expected a name, a comma, and NONE, ALL, DISK or NET");
    let (name, assignment) = heading.text.rsplit_once(',').ok_or_else(wrong)?;
    let by_default = match assignment.trim().to_ascii_uppercase().as_str() {
        "NONE" | "0" | "NET" | "3" => false,
        "ALL" | "1" | "DISK" | "2" => true,
        _ => return Err(wrong()),
    };
    Ok((checked_name(heading, name.trim())?, by_default))
}

/// Returns the name if it is safe in tables and on terminals.
pub(super) fn checked_name(line: Line<'_>, name: &str) -> Result<String, IcfError> {
    let good = !name.is_empty()
        && name.chars().count() <= NAME_LETTERS_MAX
        && !name.chars().any(char::is_control);
    match good {
        true => Ok(name.to_owned()),
        false => Err(line.error(format!(
            "expected a name of 1 to {NAME_LETTERS_MAX} printable letters"
        ))),
    }
}

fn access_lines(
    lines: &mut Lines<'_>,
    heading: Line<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<Access>, IcfError> {
    if lines.peek().is_some_and(|line| line.is_key_like("size")) {
        lines.next();
    }
    let mut accesses = Vec::new();
    while let Some(line) = lines.peek().filter(|line| line.key().is_none()) {
        lines.next();
        accesses.push(access(line, notes)?);
        if accesses.len() > LINES_MAX {
            return Err(line.error(format!(
                "an access specification has at most {LINES_MAX} lines"
            )));
        }
    }
    let sum: u32 = accesses
        .iter()
        .map(|access| u32::from(access.share.get()))
        .sum();
    match (accesses.len(), sum) {
        (0, _) => Err(heading.error("this access specification has no lines")),
        (_, 100) => Ok(accesses),
        _ => Err(heading.error(format!(
            "the shares (% of size) of this access specification add up to {sum} %, not 100 %"
        ))),
    }
}

fn access(line: Line<'_>, notes: &mut Vec<String>) -> Result<Access, IcfError> {
    let numbers: Vec<Line<'_>> = line.words().collect();
    let [size, share, read, random, delay, burst, align, reply] = numbers.as_slice() else {
        let found = numbers.len();
        return Err(line.error(format!(
            "expected 8 numbers (size, % of size, % reads, % random, delay, burst, align, reply), found {found}"
        )));
    };
    let block_bytes = size.whole("the size", SECTOR_BYTES..=BYTES_MAX)?;
    if !block_bytes.is_multiple_of(SECTOR_BYTES) {
        return Err(size.error(format!(
            "the size: expected whole sectors of {SECTOR_BYTES} bytes, found {block_bytes}"
        )));
    }
    let align = match align.whole("the alignment", 0..=BYTES_MAX)? {
        0 => Align::Block,
        bytes if bytes.is_multiple_of(SECTOR_BYTES) => Align::Bytes(bytes as u32),
        bytes => {
            return Err(align.error(format!(
                "the alignment: expected whole sectors of {SECTOR_BYTES} bytes, found {bytes}"
            )));
        }
    };
    if reply.whole("the reply", 0..=u64::from(u32::MAX))? > 0 {
        let note = "Replies apply only to network workers, and are ignored.".to_owned();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok(Access {
        // The range fits in a `u32`.
        block_bytes: block_bytes as u32,
        share: percent(share, "% of size")?,
        read: percent(read, "% reads")?,
        random: percent(random, "% random")?,
        align,
        burst: burst.whole("the burst", 1..=1_000_000)? as u32,
        delay_ms: delay.whole("the delay", 0..=3_600_000)? as u32,
    })
}

fn percent(word: &Line<'_>, what: &str) -> Result<Percent, IcfError> {
    let percent = word.whole(what, 0..=100)?;
    // The range ends at 100.
    Ok(u8::try_from(percent)
        .ok()
        .and_then(Percent::new)
        .unwrap_or(Percent::ALL))
}

// The lines of an Iometer configuration file.
//
// A line with an apostrophe is a *key*, which names the following lines. If blanks follow the apostrophe, the
// key only describes columns. Every other line is a *value*. Case and surrounding blanks do not matter.

/// An error in a configuration file, or an unsupported setting, with its position.
#[derive(Clone, Debug, PartialEq, Eq, Display, Error)]
#[display("line {line}, column {column}: {why}")]
pub struct IcfError {
    /// The line number, counted from 1.
    pub line: usize,
    /// The column, counted in characters from 1.
    pub column: usize,
    /// The error, and the expected text.
    pub why: String,
}

/// A line of the file, without leading and trailing blanks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub(super) text: &'a str,
    pub(super) number: usize,
    /// The column of the first letter of `text`.
    pub(super) column: usize,
}

impl<'a> Line<'a> {
    pub(super) fn error(&self, why: impl Into<String>) -> IcfError {
        IcfError {
            line: self.number,
            column: self.column,
            why: why.into(),
        }
    }

    /// Returns the key's name without its apostrophe, or `None` for a value.
    pub(super) fn key(&self) -> Option<&'a str> {
        self.text.strip_prefix('\'').map(str::trim)
    }

    /// Returns whether the line is a key that only describes the columns of the value after it.
    fn describes(&self) -> bool {
        self.text
            .strip_prefix('\'')
            .is_some_and(|rest| rest.starts_with([' ', '\t']))
    }

    pub(super) fn is_key(&self, name: &str) -> bool {
        self.key().is_some_and(|key| key.eq_ignore_ascii_case(name))
    }

    /// Returns whether the line is a key with this prefix: some names have become longer in later versions.
    pub(super) fn is_key_like(&self, beginning: &str) -> bool {
        let start = self.key().and_then(|key| key.get(..beginning.len()));
        start.is_some_and(|start| start.eq_ignore_ascii_case(beginning))
    }

    /// Returns the words of the line, which are separated by commas or blanks, each with its position.
    pub(super) fn words(&self) -> impl Iterator<Item = Line<'a>> + use<'a> {
        let Line {
            text,
            number,
            column,
        } = *self;
        let words = text.split(|letter: char| letter == ',' || letter.is_whitespace());
        words.filter(|word| !word.is_empty()).map(move |word| {
            // The words are slices of the text, in order.
            let before = &text[..word.as_ptr() as usize - text.as_ptr() as usize];
            Line {
                text: word,
                number,
                column: column + before.chars().count(),
            }
        })
    }

    /// Parses a whole number within a range.
    pub(super) fn whole(
        &self,
        what: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, IcfError> {
        let (least, most) = (range.start(), range.end());
        let number = self
            .text
            .parse()
            .ok()
            .filter(|number| range.contains(number));
        let found = if self.text.is_empty() {
            "nothing".to_owned()
        } else {
            format!("`{}`", self.text)
        };
        number.ok_or_else(|| {
            self.error(format!(
                "{what}: expected a whole number from {least} to {most}, found {found}"
            ))
        })
    }

    /// Parses ENABLED or DISABLED.
    pub(super) fn enabled(&self, what: &str) -> Result<bool, IcfError> {
        match self.text {
            text if text.eq_ignore_ascii_case("ENABLED") => Ok(true),
            text if text.eq_ignore_ascii_case("DISABLED") => Ok(false),
            text => Err(self.error(format!(
                "{what}: expected ENABLED or DISABLED, found `{text}`"
            ))),
        }
    }
}

/// The lines of a file, in order. Empty lines are skipped, except where a value is expected.
pub(super) struct Lines<'a> {
    lines: Vec<Line<'a>>,
    next: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Lines<'a> {
        let line = |(index, line): (usize, &'a str)| {
            let start = line.trim_start();
            let column = 1 + line[..line.len() - start.len()].chars().count();
            Line {
                text: start.trim_end(),
                number: index + 1,
                column,
            }
        };
        Lines {
            lines: text.lines().enumerate().map(line).collect(),
            next: 0,
        }
    }

    /// Returns the next line that is not empty.
    pub(super) fn next(&mut self) -> Option<Line<'a>> {
        loop {
            let line = *self.lines.get(self.next)?;
            self.next += 1;
            if !line.text.is_empty() {
                return Some(line);
            }
        }
    }

    /// Returns the next line that is not empty, without advancing.
    pub(super) fn peek(&self) -> Option<Line<'a>> {
        self.lines[self.next..]
            .iter()
            .find(|line| !line.text.is_empty())
            .copied()
    }

    /// Returns the next line that is not empty. If there is none, the error names what was `expected`.
    pub(super) fn expect(&mut self, expected: &str) -> Result<Line<'a>, IcfError> {
        let end = self.end();
        self.next()
            .ok_or_else(|| end.error(format!("the file ends, but {expected} was expected")))
    }

    /// Returns the value of the preceding key: the next line that does not describe columns. If another key
    /// follows immediately, the value is empty, and has the position of that key.
    pub(super) fn value(&mut self) -> Line<'a> {
        while self.lines.get(self.next).is_some_and(Line::describes) {
            self.next += 1;
        }
        match self.lines.get(self.next) {
            Some(line) if line.key().is_none() => {
                self.next += 1;
                *line
            }
            Some(key) => Line { text: "", ..*key },
            None => self.end(),
        }
    }

    fn end(&self) -> Line<'a> {
        Line {
            text: "",
            number: self.lines.len() + 1,
            column: 1,
        }
    }
}
