//! Suites as data. A TOML file describes the measurements, and [`parse`] converts it to a [`Suite`]. The
//! presets are also such files, in the directory `suites/` of this crate.
//!
//! ```toml
//! name = "sweep"
//! title = "Reads of all lengths"
//! about = "How throughput grows with the length of requests."
//!
//! [each]                                  # defaults of all cells
//! depth = 8
//! random = 0
//!
//! [[step]]                                # or purge = true, or fill = { block = "128KiB", depth = 32 }
//! stop = { warm-up = "1s", least = "2s", most = "20s", confidence = 2 }
//! repeats = [3, 5]
//!
//! [[step.cell]]
//! name = "read-{block}"                   # its series is `read`
//! block = ["4KiB", "64KiB", "1MiB"]       # a list creates one cell for each value
//! read = 100
//! ```
//!
//! An invalid file is rejected at the first error, with its line and column. The number of cells, the memory
//! of requests, and all times are limited.

use std::ops::Range;
use std::sync::LazyLock;

use toml::de::{DeTable, DeValue};
use volume::spec::Bytes;

use crate::plan::{
    Access, Align, Cell, Distribution, Order, Pace, Percent, Role, Rule, Span, Step, Stop, Suite,
    Workload,
};
use crate::suite::keys::{Keys, Mistake, Value, bytes, fraction, list, text};

mod keys;
pub mod wan;

pub use keys::SuiteError;

const SUITE: &[&str] = &[
    "name", "title", "about", "document", "assumed", "each", "step",
];

/// Maximum length of a file. A suite is about a page of text; a longer file is not a suite.
const TEXT_BYTES_MAX: usize = 1 << 20;

const STEPS_MAX: usize = 32;

/// Parses a suite.
pub fn parse(text: &str) -> Result<Suite, SuiteError> {
    suite(text).map_err(|mistake| mistake.within(text))
}

fn suite(text: &str) -> Result<Suite, Mistake> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Mistake::new(0..0, "the suite is larger than 1 MiB"));
    }
    let table = DeTable::parse(text).map_err(|error| {
        Mistake::new(
            error.span().unwrap_or(0..0),
            format!("the file is not valid TOML: {}", error.message()),
        )
    })?;
    let keys = Keys::of("a suite", 0..0, table.get_ref(), &[SUITE])?;
    let each = match keys.table("each", "`each`", &[ROLE, WORKLOAD].concat())? {
        Some(each) => each,
        None => Keys::of("`each`", 0..0, &NOTHING, &[])?,
    };
    let name = keys.text("name")?;
    let title = keys.text("title")?;
    let about = keys.text("about")?;
    let suite = Suite {
        name: keys.required("name", name)?.to_owned(),
        title: keys.required("title", title)?.to_owned(),
        about: keys
            .required("about", about)?
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
        document: keys.text("document")?.map(str::to_owned),
        assumed: assumed(&keys)?,
        steps: steps(&keys, &each)?,
    };
    let good =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    match suite.name.len() {
        1..=40 if suite.name.chars().all(good) => Ok(suite),
        _ => {
            let at = keys.value("name").map_or(0..0, Value::span);
            Err(Mistake::new(
                at,
                "a suite name must have 1 to 40 lower-case letters, digits or dashes",
            ))
        }
    }
}

fn assumed(keys: &Keys<'_>) -> Result<Vec<String>, Mistake> {
    let list = keys.read("assumed", |value| {
        let list = value
            .as_array()
            .ok_or_else(|| "write a list of sentences".to_owned())?;
        list.iter()
            .map(|sentence| keys::text(sentence.get_ref()).map(str::to_owned))
            .collect()
    })?;
    Ok(list.unwrap_or_default())
}

fn steps(keys: &Keys<'_>, each: &Keys<'_>) -> Result<Vec<Step>, Mistake> {
    let tables = keys.tables("step", "this step", &[STEP])?;
    if tables.len() > STEPS_MAX {
        return Err(keys.mistake(format!("a suite has at most {STEPS_MAX} steps")));
    }
    let mut steps = Vec::new();
    let mut names = std::collections::HashSet::new();
    for table in &tables {
        let (step, cells) = step(table, each)?;
        for placed in cells {
            if !names.insert(placed.cell.name.clone()) {
                let why = format!(
                    "two cells have the name `{}`; add the differing value to the name, such as {{block}}",
                    placed.cell.name
                );
                return Err(Mistake::new(placed.at, why));
            }
        }
        steps.push(step);
    }
    match names.len() {
        0 => Err(keys.mistake("a suite needs at least one [[step]] with a [[step.cell]]")),
        _ => Ok(steps),
    }
}

static NOTHING: LazyLock<DeTable<'static>> = LazyLock::new(DeTable::new);

/// Keys of a step.
const STEP: &[&str] = &[
    "purge", "fill", "cell", "stop", "repeats", "steady", "rounds",
];

/// Keys of a stop.
const STOP: &[&str] = &[
    "warm-up",
    "time",
    "least",
    "most",
    "confidence",
    "bytes",
    "requests",
];

/// Parses a step. Also returns the positions of its cells' names.
fn step(step: &Keys<'_>, each: &Keys<'_>) -> Result<(Step, Vec<Placed>), Mistake> {
    let purge = step.flag("purge")?.unwrap_or(false);
    let fill = step.table("fill", "`fill`", &["block", "depth", "passes"])?;
    let cells = step.tables("cell", "this cell", &[CELL, ROLE, WORKLOAD])?;
    let kinds = usize::from(purge) + usize::from(fill.is_some()) + usize::from(!cells.is_empty());
    match fill {
        _ if kinds != 1 => {
            Err(step.mistake("a step must have exactly one of `purge`, `fill` and `cell`"))
        }
        Some(fill) => Ok((self::fill(&fill)?, Vec::new())),
        None if purge => Ok((Step::Purge, Vec::new())),
        None => measure(step, each, &cells),
    }
}

fn fill(fill: &Keys<'_>) -> Result<Step, Mistake> {
    let block = fill.bytes("block", 512..=64 << 20)?;
    let depth = fill.number("depth", 1..=1024)?;
    Ok(Step::Fill {
        // The ranges fit in a `u32`.
        block_bytes: fill.required("block", block)? as u32,
        depth: fill.required("depth", depth)? as u32,
        passes: fill.number("passes", 1..=100)?.unwrap_or(1) as u32,
    })
}

fn measure(
    step: &Keys<'_>,
    each: &Keys<'_>,
    tables: &[Keys<'_>],
) -> Result<(Step, Vec<Placed>), Mistake> {
    let stop = step.table("stop", "this stop", STOP)?;
    let stop = self::stop(&step.required("stop", stop)?)?;
    let mut placed = Vec::new();
    for table in tables {
        placed.extend(cells(&table.clone().within(each))?);
        let roles: usize = placed.iter().map(|placed| placed.cell.roles.len()).sum();
        if placed.len() > CELLS_MAX || roles > ROLES_MAX {
            let why = format!(
                "a step has at most {CELLS_MAX} cells, with at most {ROLES_MAX} roles together"
            );
            return Err(table.mistake(why));
        }
    }
    let order = order(step, &placed)?;
    let cells = placed.iter().map(|placed| placed.cell.clone()).collect();
    Ok((Step::Measure { stop, order, cells }, placed))
}

fn order(step: &Keys<'_>, cells: &[Placed]) -> Result<Order, Mistake> {
    let steady = step.text("steady")?;
    let rounds = step.number("rounds", 5..=1000)?;
    let repeats = repeats(step)?;
    match (steady, rounds, repeats) {
        (None, None, None) => Ok(Order::Once),
        (None, None, Some((least, most))) => Ok(Order::Interleaved {
            repeats_min: least,
            repeats_max: most,
        }),
        (Some(tracked), rounds, None) if cells.iter().any(|placed| placed.cell.name == tracked) => {
            let rounds_max = step.required("rounds", rounds)? as u32;
            Ok(Order::SteadyRounds {
                tracked: tracked.to_owned(),
                rounds_max,
            })
        }
        (Some(tracked), _, None) => Err(step.mistake(format!(
            "this step has no cell with the name `{tracked}`, which `steady` names"
        ))),
        _ => Err(step.mistake("a step can have either `repeats`, or both `steady` and `rounds`")),
    }
}

/// Parses the number of repeats, such as `3` or `[3, 5]`.
fn repeats(step: &Keys<'_>) -> Result<Option<(u32, u32)>, Mistake> {
    use keys::whole;
    const RANGE: std::ops::RangeInclusive<u64> = 1..=1000;
    step.read("repeats", |value| {
        let count = |value| whole(value, &RANGE).map(|count| count as u32);
        let Some(two) = value.as_array() else {
            return count(value).map(|count| (count, count));
        };
        match two
            .iter()
            .map(|one| count(one.get_ref()))
            .collect::<Result<Vec<_>, _>>()?
            .as_slice()
        {
            [least, most] if least <= most => Ok((*least, *most)),
            _ => Err(
                "use a number, such as 3, or a minimum and a maximum, such as [3, 5]".to_owned(),
            ),
        }
    })
}

/// Parses the condition that ends a run: a `time`, or between `least` and `most` one of `confidence`, `bytes`
/// and `requests`.
fn stop(keys: &Keys<'_>) -> Result<Stop, Mistake> {
    let warm_up_s = keys.seconds("warm-up")?.unwrap_or(0.0);
    let (least, most) = (keys.seconds("least")?, keys.seconds("most")?);
    let rules: Vec<Rule> = [
        keys.fraction("confidence", 0.0, 100.0)?
            .map(|percent| Rule::Confidence { percent }),
        keys.bytes("bytes", 512..=1 << 53)?
            .map(|bytes| Rule::Bytes { bytes }),
        keys.number("requests", 1..=u64::MAX)?
            .map(|requests| Rule::Requests { requests }),
    ]
    .into_iter()
    .flatten()
    .collect();
    match (keys.seconds("time")?, least, most, rules.as_slice()) {
        (Some(time), None, None, []) if time > 0.0 => Ok(Stop {
            warm_up_s,
            ..Stop::after(time)
        }),
        (None, least, Some(most), [rule]) if most > 0.0 && least.unwrap_or(0.0) <= most => {
            Ok(Stop {
                warm_up_s,
                min_s: least.unwrap_or(0.0),
                max_s: most,
                rule: *rule,
            })
        }
        _ => {
            let rules = list(&["confidence", "bytes", "requests"]);
            Err(keys.mistake(format!(
                "use either a `time`, or a `most` (and a `least` below it) and one of {rules}"
            )))
        }
    }
}

/// Keys of a cell, in addition to those of its workload.
const CELL: &[&str] = &["name", "series", "stop", "clients", "role"];

/// Keys of a role. A cell without roles is itself a role.
const ROLE: &[&str] = &["sessions", "read-ahead", "apart"];

const ROLE_ONLY: &[&str] = &["name", "client"];

/// Keys that accept lists, and the placeholders for their values in names.
const LISTS: [(&str, &str); 6] = [
    ("block", "{block}"),
    ("depth", "{depth}"),
    ("read", "{read}"),
    ("random", "{random}"),
    ("rate", "{rate}"),
    ("clients", "{clients}"),
];

/// Maximum number of cells. The largest preset has 69.
const CELLS_MAX: usize = 4096;

/// Maximum number of roles in all cells of a suite. It limits the memory that a file can request.
const ROLES_MAX: usize = 16_384;

/// Maximum memory for the requests of a cell.
const MEMORY_MAX: u64 = 4 << 30;

/// A cell and the position of its name.
struct Placed {
    cell: Cell,
    at: Range<usize>,
}

/// Creates the cells that a table describes: one for each combination of its lists' values.
fn cells(keys: &Keys<'_>) -> Result<Vec<Placed>, Mistake> {
    let mut points = vec![keys.clone()];
    for (key, values) in lists(keys)? {
        if points.len() * values.len() > CELLS_MAX {
            return Err(keys.mistake(format!(
                "the lists of this cell expand to more than {CELLS_MAX} cells"
            )));
        }
        let with_each = points.iter().flat_map(|point| {
            values
                .iter()
                .map(|value| point.clone().choosing(key, value))
        });
        points = with_each.collect();
    }
    points.iter().map(cell).collect()
}

/// Returns the lists of a cell, in the order in which the file contains them. The value of the first list
/// changes slowest.
fn lists<'a>(keys: &Keys<'a>) -> Result<Vec<(&'static str, Vec<&'a Value<'a>>)>, Mistake> {
    let mut lists = Vec::new();
    for (key, _) in LISTS {
        let Some(value) = keys.value(key) else {
            continue;
        };
        let Some(values) = value.get_ref().as_array() else {
            continue;
        };
        if values.is_empty() {
            return Err(Mistake::new(
                value.span(),
                format!("`{key}`: an empty list"),
            ));
        }
        lists.push((value.span().start, key, values.iter().collect()));
    }
    lists.sort_by_key(|(at, ..)| *at);
    Ok(lists
        .into_iter()
        .map(|(_, key, values)| (key, values))
        .collect())
}

fn cell(keys: &Keys<'_>) -> Result<Placed, Mistake> {
    let template = keys.text("name")?;
    let template = keys.required("name", template)?;
    let at = keys.value("name").map_or(0..0, Value::span);
    let name = filled_in(template, keys)
        .and_then(checked)
        .map_err(|why| Mistake::new(at.clone(), why))?;
    let series = match keys.text("series")? {
        Some(series) => filled_in(series, keys)
            .and_then(checked)
            .map_err(|why| keys.mistake(why))?,
        // For example, `read-{block}` belongs to the series `read`.
        None => match template
            .split('{')
            .next()
            .map(|start| start.trim_end_matches('-'))
        {
            Some(start) if start.len() < template.len() && !start.is_empty() => start.to_owned(),
            _ => name.clone(),
        },
    };
    let roles = roles(keys)?;
    let stop = keys
        .table("stop", "this stop", STOP)?
        .map(|stop| self::stop(&stop))
        .transpose()?;
    Ok(Placed {
        cell: Cell {
            stop,
            ..Cell::new(name, series, roles)
        },
        at,
    })
}

fn roles(keys: &Keys<'_>) -> Result<Vec<Role>, Mistake> {
    let known = [WORKLOAD, ROLE, ROLE_ONLY];
    let tables = keys.tables("role", "this role", &known)?;
    let clients = keys.number("clients", 1..=256)?;
    let roles = match (tables.as_slice(), clients) {
        ([], clients) => {
            let alike = |client| role(keys, client, format!("client {}", client + 1));
            (0..clients.unwrap_or(1) as u16)
                .map(alike)
                .collect::<Result<Vec<_>, _>>()?
        }
        (tables, None) => tables
            .iter()
            .map(|table| named_role(table, keys))
            .collect::<Result<Vec<_>, _>>()?,
        (_, Some(_)) => {
            return Err(keys
                .mistake("a cell with roles must not have `clients`: specify them in each role"));
        }
    };
    if let Some(twice) = roles
        .iter()
        .enumerate()
        .find(|(at, role)| roles[..*at].iter().any(|r| r.name == role.name))
    {
        return Err(keys.mistake(format!(
            "two roles of this cell have the name `{}`",
            twice.1.name
        )));
    }
    let memory = roles.iter().map(memory).fold(0u64, u64::saturating_add);
    match memory {
        0..=MEMORY_MAX => Ok(roles),
        _ => Err(keys.mistake(
            "the outstanding requests of this cell have more than 4 GiB of data in total",
        )),
    }
}

fn memory(role: &Role) -> u64 {
    let of_session = u64::from(role.workload.depth) * u64::from(role.workload.block_bytes_max());
    of_session.saturating_mul(u64::from(role.sessions))
}

fn named_role(table: &Keys<'_>, cell: &Keys<'_>) -> Result<Role, Mistake> {
    let name = table.text("name")?;
    let name =
        checked(table.required("name", name)?.to_owned()).map_err(|why| table.mistake(why))?;
    let client = table.number("client", 0..=255)?.unwrap_or(0);
    role(&table.clone().within(cell), client as u16, name)
}

fn role(keys: &Keys<'_>, client: u16, name: String) -> Result<Role, Mistake> {
    Ok(Role {
        name,
        client,
        sessions: keys.number("sessions", 1..=1024)?.unwrap_or(1) as u16,
        read_ahead_bytes: keys
            .bytes("read-ahead", 4096..=64 << 20)?
            .map(|bytes| bytes as u32),
        apart: keys.flag("apart")?.unwrap_or(false),
        workload: workload(keys)?,
    })
}

/// Replaces the placeholders in a name by the values of this cell.
fn filled_in(template: &str, keys: &Keys<'_>) -> Result<String, String> {
    let mut name = template.to_owned();
    for (key, place) in LISTS {
        if name.contains(place) {
            let value = keys
                .value(key)
                .ok_or_else(|| format!("the name contains {place}, but there is no `{key}`"))?;
            name = name.replace(place, &shown(key, value)?);
        }
    }
    match name.contains(['{', '}']) {
        true => Err(format!(
            "`{template}` contains braces with a name that is not the key of a list"
        )),
        false => Ok(name),
    }
}

fn shown(key: &str, value: &Value<'_>) -> Result<String, String> {
    match (key, value.get_ref()) {
        ("block", value) => bytes(keys::text(value)?).map(|bytes| Bytes(bytes).to_string()),
        (_, toml::de::DeValue::Integer(integer)) => Ok(integer.as_str().to_owned()),
        (_, toml::de::DeValue::Float(float)) => Ok(float.as_str().to_owned()),
        (_, value) => Err(format!(
            "`{key}`: write a number, not a value of type {}",
            value.type_str()
        )),
    }
}

/// Returns the name if it is safe in tables, in file names and on terminals.
fn checked(name: String) -> Result<String, String> {
    let good = !name.is_empty()
        && name.chars().count() <= 100
        && name.trim() == name
        && !name.chars().any(char::is_control);
    if good {
        Ok(name)
    } else {
        Err(
            "a name must have 1 to 100 letters, no line breaks, and no blanks at the start or end"
                .to_owned(),
        )
    }
}

/// Keys of a workload.
const WORKLOAD: &[&str] = &[
    "block",
    "mix",
    "depth",
    "read",
    "random",
    "align",
    "burst",
    "delay",
    "rate",
    "poisson",
    "span",
    "distribution",
    "data",
    "durable",
    "drain-after",
    "seed",
];

const MIX: &[&str] = &[
    "share", "block", "read", "random", "align", "burst", "delay",
];

/// Maximum number of lines of a mix: each has a share of at least one percent.
const MIX_MAX: usize = 100;

/// Maximum request length: 64 MiB is four times the largest command of any initiator here.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

fn workload(keys: &Keys<'_>) -> Result<Workload, Mistake> {
    let depth = keys.number("depth", 1..=65_536)?;
    Ok(Workload {
        accesses: accesses(keys)?,
        // The range ends at 65,536.
        depth: keys.required("depth", depth)? as u32,
        pace: pace(keys)?,
        span: span(keys)?,
        distribution: keys.read("distribution", distribution)?.unwrap_or_default(),
        data: keys
            .read("data", |value| text(value)?.parse())?
            .unwrap_or_default(),
        drain_after: keys
            .number("drain-after", 1..=1_000_000)?
            .map(|requests| requests as u32),
        durable: keys
            .read("durable", |value| text(value)?.parse())?
            .unwrap_or_default(),
        seed: keys.number("seed", 0..=u64::MAX)?.unwrap_or(1),
    })
}

fn accesses(keys: &Keys<'_>) -> Result<Vec<Access>, Mistake> {
    let mix = keys.tables("mix", "this line of the mix", &[MIX])?;
    if mix.is_empty() {
        return Ok(vec![access(keys, Percent::ALL)?]);
    }
    if mix.len() > MIX_MAX {
        return Err(keys.mistake(format!("a mix has at most {MIX_MAX} lines")));
    }
    let line = |line: Keys<'_>| {
        let share = line.percent("share")?;
        let share = line.required("share", share)?;
        access(&line.within(keys), share)
    };
    let accesses: Vec<Access> = mix.into_iter().map(line).collect::<Result<_, _>>()?;
    let sum: u32 = accesses
        .iter()
        .map(|access| u32::from(access.share.get()))
        .sum();
    match sum {
        100 => Ok(accesses),
        _ => Err(keys.mistake(format!(
            "the shares of this mix add up to {sum} %, not 100 %"
        ))),
    }
}

fn access(keys: &Keys<'_>, share: Percent) -> Result<Access, Mistake> {
    let block = keys.bytes("block", 512..=BLOCK_BYTES_MAX)?;
    let (read, random) = (keys.percent("read")?, keys.percent("random")?);
    Ok(Access {
        // The range fits in a `u32`.
        block_bytes: keys.required("block", block)? as u32,
        share,
        read: keys.required("read", read)?,
        random: keys.required("random", random)?,
        align: keys.read("align", align)?.unwrap_or_default(),
        burst: keys.number("burst", 1..=1_000_000)?.unwrap_or(1) as u32,
        delay_ms: keys.number("delay", 0..=3_600_000)?.unwrap_or(0) as u32,
    })
}

fn align(value: &DeValue<'_>) -> Result<Align, String> {
    match text(value)? {
        "natural" => Ok(Align::Natural),
        "block" => Ok(Align::Block),
        size => match bytes(size)? {
            bytes @ 512..=BLOCK_BYTES_MAX => Ok(Align::Bytes(bytes as u32)),
            _ => Err("use `natural`, `block` or a size from 512B to 64MiB".to_owned()),
        },
    }
}

fn pace(keys: &Keys<'_>) -> Result<Pace, Mistake> {
    let poisson = keys.flag("poisson")?.unwrap_or(false);
    match (keys.fraction("rate", 0.0, 1e9)?, poisson) {
        (None, false) => Ok(Pace::Closed),
        (None, true) => Err(keys.mistake("`poisson` requires `rate`")),
        (Some(per_second), false) => Ok(Pace::Constant { per_second }),
        (Some(per_second), true) => Ok(Pace::Poisson { per_second }),
    }
}

fn span(keys: &Keys<'_>) -> Result<Span, Mistake> {
    const LENGTHS: std::ops::RangeInclusive<u64> = 4096..=1 << 53;
    let Some(value) = keys.value("span") else {
        return Ok(Span::default());
    };
    if value.get_ref().as_str().is_some() {
        return Ok(Span {
            start_bytes: 0,
            bytes: keys.bytes("span", LENGTHS)?,
        });
    }
    let span = keys.table("span", "`span`", &["start", "length"])?;
    let span = keys.required("span", span)?;
    let start = span.bytes("start", 0..=1 << 53)?.unwrap_or(0);
    Ok(Span {
        start_bytes: start,
        bytes: span.bytes("length", LENGTHS)?,
    })
}

/// Parses a distribution, in the syntax of the command line, or as a table of a name and its numbers: `{ hot
/// = [90, 10] }`.
fn distribution(value: &DeValue<'_>) -> Result<Distribution, String> {
    let table = value
        .as_table()
        .filter(|table| table.len() == 1)
        .and_then(|table| table.iter().next());
    let Some((name, value)) = table else {
        return value.as_str().unwrap_or("?").parse();
    };
    let number =
        |value: &DeValue<'_>| fraction(value, f64::MIN, f64::MAX).map(|number| number.to_string());
    let numbers: Result<Vec<String>, String> = match value.get_ref().as_array() {
        Some(list) => list.iter().map(|value| number(value.get_ref())).collect(),
        None => number(value.get_ref()).map(|number| vec![number]),
    };
    format!("{}:{}", name.get_ref(), numbers?.join("/")).parse()
}

/// The presets in the order in which they are listed: the default first, then the tests of the documents,
/// then the tests of other sources.
const FILES: [&str; 11] = [
    include_str!("../../suites/quick.toml"),
    include_str!("../../suites/dd-ladder.toml"),
    include_str!("../../suites/dpmeter.toml"),
    include_str!("../../suites/vmware4.toml"),
    include_str!("../../suites/vmware4-aligned.toml"),
    include_str!("../../suites/atto.toml"),
    include_str!("../../suites/clients.toml"),
    include_str!("../../suites/iometer-sweep.toml"),
    include_str!("../../suites/bonnie.toml"),
    include_str!("../../suites/cern.toml"),
    include_str!("../../suites/pts.toml"),
];

static PRESETS: LazyLock<Vec<Suite>> = LazyLock::new(|| {
    // The presets are part of the program, and a test parses each of them.
    FILES
        .iter()
        .map(|text| parse(text).expect("a preset"))
        .collect()
});

/// Returns all presets, the default first.
pub fn presets() -> &'static [Suite] {
    &PRESETS
}

/// Returns the names of the presets, the default first.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|suite| suite.name.as_str())
}

/// Returns the preset with this name.
pub fn named(name: &str) -> Option<Suite> {
    PRESETS.iter().find(|suite| suite.name == name).cloned()
}

#[cfg(test)]
mod tests;
