//! `--confirm`: whether a change brings what is predicted.
//!
//! Each finding that names a change on our side is tried: rounds of its load in a session with the change and in one
//! without it, in pairs, which of them first taking turns, so that what drifts meanwhile counts for both. What cannot be
//! tried from here (a target's cache, a switch) has no trial, and the report says so.

use std::time::Duration;

use crate::{Cause, Change, Diagnosis, Evidence, Finding, Known, Timed, confirmed};
use block::Random;
use disk_contents::Consent;
use model::{Direction, Load};

use super::load::{Running, Times};
use super::pace::Pace;
use super::places::Part;
use super::subject::Subject;
use super::way::Way;
use super::{Options, Progress, writing};
use backends::Failure;

/// Pairs of rounds. The median of seven lies between the smallest and the largest of them in 98 of 100 cases.
const PAIRS: u32 = 7;
/// After so many pairs in which nothing got through without the change, nothing more will.
const SILENT_PAIRS: u32 = 2;

/// Tries every finding that can be tried. What goes wrong is told with the finding, and ends nothing else.
pub async fn confirm(
    diagnosis: &mut Diagnosis,
    subject: &Subject,
    options: &Options,
    progress: &dyn Progress,
) {
    let Diagnosis { evidence, findings, .. } = diagnosis;
    for finding in &mut *findings {
        let Some(trial) = Trial::of(finding, evidence, subject, options) else { continue };
        progress.begins(&format!("trying {}", trial.named));
        match trial.run(options).await {
            Ok(pairs) => judge(finding, &trial, &pairs),
            Err(why) => finding.because.push(format!("Trying {} failed: {why}.", trial.named)),
        }
    }
    // What was tried in vain is not what to begin with.
    findings.sort_by_key(|finding| finding.gain.confirmed.is_some_and(|tried| tried.brings_nothing()));
}

/// What is tried.
struct Trial {
    /// The change, as a person writes it.
    named: String,
    without: Side,
    with: Side,
    times: Times,
}

/// A session, and what is put on it.
struct Side {
    subject: Result<Subject, String>,
    load: Load,
}

/// Rates of the rounds of a pair, in bytes a second; 0 if nothing got through.
type Pair = (f64, f64);

impl Trial {
    fn of(finding: &Finding, evidence: &Evidence, subject: &Subject, options: &Options) -> Option<Trial> {
        let change = finding.trial.as_ref()?;
        let load = evidence.loads.get(finding.load)?.load;
        let base = base(finding.cause, evidence, subject);
        let depth = change.depth.unwrap_or(load.depth);
        let block_bytes = change.block_bytes.unwrap_or(load.block_bytes);
        Some(Trial {
            named: named(change),
            with: Side {
                subject: base.as_ref().map_err(Clone::clone).and_then(|base| set(base, &change.settings)),
                load: Load { depth, block_bytes, ..load },
            },
            without: Side { subject: base, load },
            times: times(evidence, options),
        })
    }

    /// The pairs of rounds, as many as say something.
    async fn run(&self, options: &Options) -> Result<Vec<Pair>, String> {
        let (mut without, mut with) = (self.without.open().await?, self.with.open().await?);
        let part = part(&mut without, &self.without, options).await?;
        let mut random = Random::new(options.seed);
        let mut pairs = Vec::new();
        for pair in 0..PAIRS {
            let seed = random.next();
            let [mut old, mut new] = [0.0; 2];
            for turn in 0..2 {
                match (pair + turn) % 2 {
                    0 => old = self.without.round(&mut without, part, self.times, seed).await,
                    _ => new = self.with.round(&mut with, part, self.times, seed).await,
                }
            }
            pairs.push((old, new));
            if pair + 1 == SILENT_PAIRS && pairs.iter().all(|(old, _)| *old == 0.0) {
                break;
            }
        }
        without.close().await;
        with.close().await;
        Ok(pairs)
    }
}

impl Side {
    async fn open(&self) -> Result<Way, String> {
        let subject = self.subject.as_ref().map_err(Clone::clone)?;
        Way::open(subject).await.map_err(|failure| failure.to_string())
    }

    async fn round(&self, way: &mut Way, part: Part, times: Times, seed: u64) -> f64 {
        let mut running = Running::new(&self.load, true);
        running.round(way, part, None, times, seed).await;
        let rates = running.finish().await.bytes_per_s;
        rates.first().copied().filter(|rate| rate.is_finite()).unwrap_or(0.0)
    }
}

/// What came of it, into the finding.
fn judge(finding: &mut Finding, trial: &Trial, pairs: &[Pair]) {
    finding.gain.confirmed = confirmed(pairs);
    if finding.gain.confirmed.is_some() {
        return;
    }
    let some = |rate: fn(&Pair) -> f64| pairs.iter().map(rate).fold(0.0, f64::max);
    let (without, with) = (some(|pair| pair.0), some(|pair| pair.1));
    let (named, mb) = (&trial.named, with / 1e6);
    finding.because.push(match (without > 0.0, with > 0.0) {
        (false, true) => {
            format!("Tried: with {named} there were {mb:.1} MB/s, and nothing got through without.")
        }
        (_, false) => format!("Tried: nothing got through with {named}."),
        (true, true) => format!("Tried: too few rounds with and without {named} came to an end."),
    });
}

/// The session that the evidence was measured in: where long packets vanish, with segments that do not. What is found
/// about those themselves is tried on the way as it was.
fn base(cause: Cause, evidence: &Evidence, subject: &Subject) -> Result<Subject, String> {
    let works = evidence.long_packets.as_ref().and_then(|seen| seen.works_bytes);
    match works {
        Some(bytes) if cause != Cause::PathMtu => {
            set(subject, &[("tcp-segment".to_owned(), bytes.to_string())])
        }
        _ => Ok(subject.clone()),
    }
}

/// The same with other values of keys.
pub(super) fn set(subject: &Subject, settings: &[(String, String)]) -> Result<Subject, String> {
    settings.iter().try_fold(subject.clone(), |subject, (key, value)| subject.with(key, value))
}

/// Where it reads or writes. Who runs this has agreed to lose what is there when the load was measured.
async fn part(way: &mut Way, side: &Side, options: &Options) -> Result<Part, String> {
    let device = way.device().await?;
    if side.load.direction == Direction::Read {
        return Ok(Part::whole(device.geometry()));
    }
    let agreed = Options { consent: Consent::Given, ..*options };
    let part = writing::part(&device, way.subject(), &agreed)
        .await
        .map_err(|failure: Failure| failure.to_string())?;
    part.ok_or_else(|| super::probe::NOT_ALLOWED.to_owned())
}

/// Rounds as long as those that the evidence is made of.
fn times(evidence: &Evidence, options: &Options) -> Times {
    let us = |known: &Known<Timed>| match known {
        Known::Measured(timed) if timed.median_us.is_finite() => timed.median_us.max(0.0),
        _ => 0.0,
    };
    let ladder = &evidence.ladder;
    let rungs = [&ladder.cached_read, &ladder.medium_read, &ladder.write, &ladder.durable_write];
    let request = rungs.map(us).into_iter().fold(0.0, f64::max);
    let round_trip = evidence.paths.iter().map(|path| path.round_trip_us).fold(0.0, f64::max);
    let [round_trip, request] = [round_trip, request].map(|us| Duration::from_secs_f64((us / 1e6).min(60.0)));
    let (_, times) =
        Pace::new(options.quick, options.seconds).rounds(evidence.loads.len(), round_trip, request);
    times
}

/// A change as a person writes it.
fn named(change: &Change) -> String {
    let settings = change.settings.iter().map(|(key, value)| format!("{key}={value}"));
    let depth = change.depth.map(|depth| format!("{depth} requests at once"));
    let block = change.block_bytes.map(|bytes| format!("requests of {bytes} bytes"));
    settings.chain(depth).chain(block).collect::<Vec<_>>().join(", ")
}
