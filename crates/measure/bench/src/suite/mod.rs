//! Suites as data: a TOML file says what is to be measured, and [`parse`] makes a [`Suite`] of it. The presets are such
//! files too, in `suites/` beside this crate's sources.
//!
//! ```toml
//! name = "sweep"
//! title = "Reads of all lengths"
//! about = "How throughput grows with the length of requests."
//!
//! [each]                                  # what every cell has that does not say otherwise
//! depth = 8
//! random = 0
//!
//! [[step]]                                # or purge = true, or fill = { block = "128KiB", depth = 32 }
//! stop = { warm-up = "1s", least = "2s", most = "20s", confidence = 2 }
//! repeats = [3, 5]
//!
//! [[step.cell]]
//! name = "read-{block}"                   # its series is `read`
//! block = ["4KiB", "64KiB", "1MiB"]       # a list makes a cell of each
//! read = 100
//! ```
//!
//! A file that is not a suite is refused at the first mistake, with its line and column. What a file can ask for is
//! limited: so many cells, so much memory, so much time.

mod cells;
mod error;
mod keys;
mod preset;
mod steps;
pub mod wan;
mod workload;

#[cfg(test)]
mod tests;

use toml::de::DeTable;

pub use error::SuiteError;
pub use preset::{named, names, presets};

use error::Mistake;
use keys::Keys;

use crate::plan::Suite;

const SUITE: &[&str] = &["name", "title", "about", "document", "assumed", "each", "step"];

/// A suite is a page of text; longer ones are something else.
const TEXT_BYTES_MAX: usize = 1 << 20;

const STEPS_MAX: usize = 32;

/// Reads a suite.
pub fn parse(text: &str) -> Result<Suite, SuiteError> {
    suite(text).map_err(|mistake| mistake.within(text))
}

fn suite(text: &str) -> Result<Suite, Mistake> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Mistake::new(0..0, "this has more than 1 MiB, which no suite has"));
    }
    let table = DeTable::parse(text).map_err(|error| {
        Mistake::new(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()))
    })?;
    let keys = Keys::of("a suite", 0..0, table.get_ref(), &[SUITE])?;
    let each = match keys.table("each", "`each`", &[cells::ROLE, workload::WORKLOAD].concat())? {
        Some(each) => each,
        None => Keys::of("`each`", 0..0, &NOTHING, &[])?,
    };
    let name = keys.text("name")?;
    let title = keys.text("title")?;
    let about = keys.text("about")?;
    let suite = Suite {
        name: keys.required("name", name)?.to_owned(),
        title: keys.required("title", title)?.to_owned(),
        about: keys.required("about", about)?.split_whitespace().collect::<Vec<_>>().join(" "),
        document: keys.text("document")?.map(str::to_owned),
        assumed: assumed(&keys)?,
        steps: steps(&keys, &each)?,
    };
    let good = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    match suite.name.len() {
        1..=40 if suite.name.chars().all(good) => Ok(suite),
        _ => {
            let at = keys.value("name").map_or(0..0, keys::Value::span);
            Err(Mistake::new(at, "the name of a suite has 1 to 40 lower-case letters, digits and dashes"))
        }
    }
}

fn assumed(keys: &Keys<'_>) -> Result<Vec<String>, Mistake> {
    let list = keys.read("assumed", |value| {
        let list = value.as_array().ok_or_else(|| "write a list of sentences".to_owned())?;
        list.iter().map(|sentence| keys::text(sentence.get_ref()).map(str::to_owned)).collect()
    })?;
    Ok(list.unwrap_or_default())
}

fn steps(keys: &Keys<'_>, each: &Keys<'_>) -> Result<Vec<crate::plan::Step>, Mistake> {
    let tables = keys.tables("step", "this step", &[steps::STEP])?;
    if tables.len() > STEPS_MAX {
        return Err(keys.mistake(format!("a suite has at most {STEPS_MAX} steps")));
    }
    let mut steps = Vec::new();
    let mut names = std::collections::HashSet::new();
    for table in &tables {
        let (step, cells) = steps::read(table, each)?;
        for placed in cells {
            if !names.insert(placed.cell.name.clone()) {
                let why = format!(
                    "two cells are called `{}`; what differs belongs into the name, such as {{block}}",
                    placed.cell.name
                );
                return Err(Mistake::new(placed.at, why));
            }
        }
        steps.push(step);
    }
    match names.len() {
        0 => Err(keys.mistake("a suite has at least one [[step]] with a [[step.cell]]")),
        _ => Ok(steps),
    }
}

static NOTHING: std::sync::LazyLock<DeTable<'static>> = std::sync::LazyLock::new(DeTable::new);
