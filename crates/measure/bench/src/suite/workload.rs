//! What a role asks of the device, read from its keys.

use toml::de::DeValue;

use super::error::Mistake;
use super::keys::{Keys, bytes, fraction, list, percent, text};
use crate::plan::{Access, Align, Data, Distribution, Pace, Percent, Span, Workload};

/// Keys of a workload.
pub(super) const WORKLOAD: &[&str] = &[
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
    "drain-after",
    "seed",
];

const MIX: &[&str] = &["share", "block", "read", "random", "align", "burst", "delay"];

/// One for each percent.
const MIX_MAX: usize = 100;

/// The longest request: 64 MiB is four times what any initiator here sends as one command.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

pub(super) fn read(keys: &Keys<'_>) -> Result<Workload, Mistake> {
    let depth = keys.number("depth", 1..=65_536)?;
    Ok(Workload {
        accesses: accesses(keys)?,
        // The range ends at 65,536.
        depth: keys.required("depth", depth)? as u32,
        pace: pace(keys)?,
        span: span(keys)?,
        distribution: keys.read("distribution", distribution)?.unwrap_or_default(),
        data: keys.read("data", data)?.unwrap_or_default(),
        drain_after: keys.number("drain-after", 1..=1_000_000)?.map(|requests| requests as u32),
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
    let sum: u32 = accesses.iter().map(|access| u32::from(access.share.get())).sum();
    match sum {
        100 => Ok(accesses),
        _ => Err(keys.mistake(format!("the shares of this mix make {sum} %, not 100 %"))),
    }
}

fn access(keys: &Keys<'_>, share: Percent) -> Result<Access, Mistake> {
    let block = keys.bytes("block", 512..=BLOCK_BYTES_MAX)?;
    let (read, random) = (keys.percent("read")?, keys.percent("random")?);
    Ok(Access {
        // Within the range above.
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
            _ => Err("write `natural`, `block` or a size from 512B to 64MiB".to_owned()),
        },
    }
}

fn pace(keys: &Keys<'_>) -> Result<Pace, Mistake> {
    let poisson = keys.flag("poisson")?.unwrap_or(false);
    match (keys.fraction("rate", 0.0, 1e9)?, poisson) {
        (None, false) => Ok(Pace::Closed),
        (None, true) => Err(keys.mistake("`poisson` says how a `rate` is kept, and there is none")),
        (Some(per_second), false) => Ok(Pace::Constant { per_second }),
        (Some(per_second), true) => Ok(Pace::Poisson { per_second }),
    }
}

fn span(keys: &Keys<'_>) -> Result<Span, Mistake> {
    const LENGTHS: std::ops::RangeInclusive<u64> = 4096..=1 << 53;
    let Some(value) = keys.value("span") else { return Ok(Span::default()) };
    if value.get_ref().as_str().is_some() {
        return Ok(Span { start_bytes: 0, bytes: keys.bytes("span", LENGTHS)? });
    }
    let span = keys.table("span", "`span`", &["start", "length"])?;
    let span = keys.required("span", span)?;
    let start = span.bytes("start", 0..=1 << 53)?.unwrap_or(0);
    Ok(Span { start_bytes: start, bytes: span.bytes("length", LENGTHS)? })
}

fn distribution(value: &DeValue<'_>) -> Result<Distribution, String> {
    const EXAMPLE: &str = "write \"uniform\", { zipf = 1.2 }, { pareto = 0.2 } or { hot = [90, 10] }";
    if value.as_str() == Some("uniform") {
        return Ok(Distribution::Uniform);
    }
    let table = value.as_table().filter(|table| table.len() == 1).ok_or(EXAMPLE)?;
    let (name, value) = table.iter().next().ok_or(EXAMPLE)?;
    let value = value.get_ref();
    match name.get_ref().as_ref() {
        "zipf" => match fraction(value, 0.0, 10.0)? {
            1.0 => Err("zipf has no value at exactly 1; write 0.99 or 1.01".to_owned()),
            theta => Ok(Distribution::Zipf { theta }),
        },
        "pareto" => match fraction(value, 0.0, 1.0)? {
            1.0 => Err("pareto wants a share below 1".to_owned()),
            h => Ok(Distribution::Pareto { h }),
        },
        "hot" => {
            let shares = value.as_array().map(|shares| shares.iter().map(|share| percent(share.get_ref())));
            match shares.ok_or(EXAMPLE)?.collect::<Result<Vec<_>, _>>()?.as_slice() {
                [requests, span] if *span > Percent::NONE => {
                    Ok(Distribution::Hot { requests: *requests, span: *span })
                }
                _ => Err(EXAMPLE.to_owned()),
            }
        }
        _ => Err(EXAMPLE.to_owned()),
    }
}

fn data(value: &DeValue<'_>) -> Result<Data, String> {
    match text(value)? {
        "random" => Ok(Data::Random),
        "zeros" => Ok(Data::Zeros),
        "stamped" => Ok(Data::Stamped),
        other => Err(format!("`{other}` is unknown; write {}", list(&["random", "zeros", "stamped"]))),
    }
}
