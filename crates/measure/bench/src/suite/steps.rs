//! Steps, and when and how often what is in them is run.

use super::cells::{self, CELL, CELLS_MAX, Placed, ROLE, ROLES_MAX};
use super::error::Mistake;
use super::keys::{Keys, list};
use super::workload::WORKLOAD;
use crate::plan::{Order, Rule, Step, Stop};

/// Keys of a step.
pub(super) const STEP: &[&str] = &["purge", "fill", "cell", "stop", "repeats", "steady", "rounds"];

/// Keys of a stop.
pub(super) const STOP: &[&str] = &["warm-up", "time", "least", "most", "confidence", "bytes", "requests"];

/// A step, and where the names of its cells stand.
pub(super) fn read(step: &Keys<'_>, each: &Keys<'_>) -> Result<(Step, Vec<Placed>), Mistake> {
    let purge = step.flag("purge")?.unwrap_or(false);
    let fill = step.table("fill", "`fill`", &["block", "depth", "passes"])?;
    let cells = step.tables("cell", "this cell", &[CELL, ROLE, WORKLOAD])?;
    let kinds = usize::from(purge) + usize::from(fill.is_some()) + usize::from(!cells.is_empty());
    match fill {
        _ if kinds != 1 => Err(step.mistake("a step has either `purge`, or `fill`, or a `cell`")),
        Some(fill) => Ok((self::fill(&fill)?, Vec::new())),
        None if purge => Ok((Step::Purge, Vec::new())),
        None => measure(step, each, &cells),
    }
}

fn fill(fill: &Keys<'_>) -> Result<Step, Mistake> {
    let block = fill.bytes("block", 512..=64 << 20)?;
    let depth = fill.number("depth", 1..=1024)?;
    Ok(Step::Fill {
        // Within these ranges.
        block_bytes: fill.required("block", block)? as u32,
        depth: fill.required("depth", depth)? as u32,
        passes: fill.number("passes", 1..=100)?.unwrap_or(1) as u32,
    })
}

fn measure(step: &Keys<'_>, each: &Keys<'_>, tables: &[Keys<'_>]) -> Result<(Step, Vec<Placed>), Mistake> {
    let stop = step.table("stop", "this stop", STOP)?;
    let stop = self::stop(&step.required("stop", stop)?)?;
    let mut placed = Vec::new();
    for table in tables {
        placed.extend(cells::read(&table.clone().within(each))?);
        let roles: usize = placed.iter().map(|placed| placed.cell.roles.len()).sum();
        if placed.len() > CELLS_MAX || roles > ROLES_MAX {
            let why =
                format!("a step has at most {CELLS_MAX} cells, with at most {ROLES_MAX} roles together");
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
        (None, None, Some((least, most))) => Ok(Order::Interleaved { repeats_min: least, repeats_max: most }),
        (Some(tracked), rounds, None) if cells.iter().any(|placed| placed.cell.name == tracked) => {
            let rounds_max = step.required("rounds", rounds)? as u32;
            Ok(Order::SteadyRounds { tracked: tracked.to_owned(), rounds_max })
        }
        (Some(tracked), _, None) => {
            Err(step
                .mistake(format!("no cell of this step is called `{tracked}`, which is to become steady")))
        }
        _ => Err(step.mistake("a step has either `repeats`, or `steady` and `rounds`, or none of them")),
    }
}

/// `3`, or `[3, 5]`.
fn repeats(step: &Keys<'_>) -> Result<Option<(u32, u32)>, Mistake> {
    use super::keys::whole;
    const RANGE: std::ops::RangeInclusive<u64> = 1..=1000;
    step.read("repeats", |value| {
        let count = |value| whole(value, &RANGE).map(|count| count as u32);
        let Some(two) = value.as_array() else { return count(value).map(|count| (count, count)) };
        match two.iter().map(|one| count(one.get_ref())).collect::<Result<Vec<_>, _>>()?.as_slice() {
            [least, most] if least <= most => Ok((*least, *most)),
            _ => Err("write how often, such as 3, or at least and at most, such as [3, 5]".to_owned()),
        }
    })
}

/// When a run ends: after a `time`; or between `least` and `most`, by `confidence`, `bytes` or `requests`.
pub(super) fn stop(keys: &Keys<'_>) -> Result<Stop, Mistake> {
    let warm_up_s = keys.seconds("warm-up")?.unwrap_or(0.0);
    let (least, most) = (keys.seconds("least")?, keys.seconds("most")?);
    let rules: Vec<Rule> = [
        keys.fraction("confidence", 0.0, 100.0)?.map(|percent| Rule::Confidence { percent }),
        keys.bytes("bytes", 512..=1 << 53)?.map(|bytes| Rule::Bytes { bytes }),
        keys.number("requests", 1..=u64::MAX)?.map(|requests| Rule::Requests { requests }),
    ]
    .into_iter()
    .flatten()
    .collect();
    match (keys.seconds("time")?, least, most, rules.as_slice()) {
        (Some(time), None, None, []) if time > 0.0 => Ok(Stop { warm_up_s, ..Stop::after(time) }),
        (None, least, Some(most), [rule]) if most > 0.0 && least.unwrap_or(0.0) <= most => {
            Ok(Stop { warm_up_s, min_s: least.unwrap_or(0.0), max_s: most, rule: *rule })
        }
        _ => {
            let rules = list(&["confidence", "bytes", "requests"]);
            Err(keys.mistake(format!(
                "write either a `time`, or a `most` (and a `least` below it) and one of {rules}"
            )))
        }
    }
}
