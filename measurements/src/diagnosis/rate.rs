//! The rate of a load on a path, with the cause and without it.

use anyhow::{Context, Result};
use diagnose::{Diagnosis, Finding};
use model::{Direction, Load};
use serde::Deserialize;

use crate::diagnosis::world::World;
use crate::figures::middle;

/// Measured rates with the cause and after its removal.
pub(super) struct Rates {
    /// Bytes per second with the cause, by round.
    pub(super) planted: Vec<f64>,
    /// Bytes per second without the cause.
    pub(super) cured: Vec<f64>,
}

impl Rates {
    /// Returns a line for the terminal.
    pub(super) fn line(&self, load: &Load) -> String {
        let mb = |rates: &[f64]| middle(rates.to_vec()).unwrap_or(0.0) / 1e6;
        let gain = self.gain().unwrap_or(f64::INFINITY);
        format!(
            "{:?} {} x {}: {:.3} MB/s, without the cause {:.3}, {gain:.2} times as much",
            load.direction,
            load.block_bytes,
            load.depth,
            mb(&self.planted),
            mb(&self.cured)
        )
    }

    /// Returns the new rate divided by the old one, or `None` if the old rate was zero.
    pub(super) fn gain(&self) -> Option<f64> {
        let (planted, cured) = (middle(self.planted.clone())?, middle(self.cured.clone())?);
        (planted > 0.0).then(|| cured / planted)
    }
}

/// Loads that reveal most causes.
pub(super) const LOADS: &[Load] = &[
    load(Direction::Read, 64 << 10, 32),
    load(Direction::Read, 4 << 10, 1),
    load(Direction::Write, 64 << 10, 32),
    load(Direction::Write, 4 << 10, 1),
    load(Direction::Write, 512, 1),
];

const fn load(direction: Direction, block_bytes: u32, depth: u32) -> Load {
    Load {
        direction,
        block_bytes,
        depth,
        sessions: 1,
        random: depth == 1,
        durable: false,
    }
}

/// Measures the load of a finding in both environments, alternately.
pub(super) fn confirm(
    planted: &World,
    cured: &World,
    load: &Load,
    other: &Load,
    rounds: u32,
    seconds: f64,
) -> Result<Rates> {
    let mut rates = Rates {
        planted: Vec::new(),
        cured: Vec::new(),
    };
    for round in 0..rounds {
        // The order alternates, so that a machine that becomes slower affects both environments equally.
        for cured_now in [round % 2 == 1, round % 2 == 0] {
            match cured_now {
                true => rates.cured.push(rate(cured, other, seconds)?),
                // If no data gets through, the rate is zero.
                false => rates
                    .planted
                    .push(rate(planted, load, seconds).unwrap_or(0.0)),
            }
        }
    }
    Ok(rates)
}

/// Returns the load, with the changes that the finding proposes.
pub(super) fn changed(load: &Load, finding: &Finding) -> Load {
    let change = finding.trial.clone().unwrap_or_default();
    Load {
        depth: change.depth.unwrap_or(load.depth),
        block_bytes: change.block_bytes.unwrap_or(load.block_bytes),
        ..*load
    }
}

/// Returns the rates of a diagnosis' own rounds of the same load.
pub(super) fn of_diagnosis(diagnosis: &Diagnosis, load: &Load) -> Vec<f64> {
    let run = diagnosis
        .evidence
        .loads
        .iter()
        .find(|run| run.load == *load);
    run.map(|run| run.bytes_per_s.clone()).unwrap_or_default()
}

/// Measures a load, in bytes per second.
fn rate(world: &World, load: &Load, seconds: f64) -> Result<f64> {
    let percent = |yes: bool| if yes { "100" } else { "0" };
    let is_read = load.direction == Direction::Read;
    let (block, depth) = (load.block_bytes.to_string(), load.depth.to_string());
    let seconds = format!("{seconds:.1}");
    let mut arguments: Vec<String> = [
        ["--block", &block],
        ["--depth", &depth],
        ["--read", percent(is_read)],
        ["--random", percent(load.random)],
        ["--seconds", &seconds],
        ["--warm-up", WARM_UP],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect();
    if !is_read {
        arguments.extend(["--allow-write", "--yes"].map(str::to_owned));
    }
    if load.durable {
        arguments.extend(["--durable", "fua"].map(str::to_owned));
    }
    let said = world.bench(&arguments)?;
    let mut values = serde_json::Deserializer::from_str(&said).into_iter::<Measured>();
    let measured = values
        .next()
        .with_context(|| format!("bench printed nothing: {said}"))??;
    Ok(measured.mb_per_s * 1e6)
}

/// A line of `linerate bench --json`.
#[derive(Deserialize)]
struct Measured {
    mb_per_s: f64,
}

/// Returns the time to measure a load at this rate: long enough for a hundred requests of a slow medium, and
/// for all outstanding requests to complete several times if each waits for many round trips.
pub(super) fn seconds(load: &Load, bytes_per_s: f64) -> f64 {
    let all_s = f64::from(load.depth) * f64::from(load.block_bytes) / bytes_per_s;
    (TURNS * all_s).clamp(SECONDS_MIN, SECONDS_MAX)
}

const TURNS: f64 = 6.0;
pub(super) const SECONDS_MIN: f64 = 0.8;
/// Upper limit on the measured time, for loads that make no progress.
const SECONDS_MAX: f64 = 4.0;
/// Duration of the warm-up, in seconds, in which TCP windows grow.
const WARM_UP: &str = "1.0";
