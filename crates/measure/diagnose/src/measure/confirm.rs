//! Tests predicted gains (`--confirm`). The second part of the file runs loads over sessions with a change
//! while the evidence is collected.
//!
//! Each finding with a change on the client is tested: its load runs in a session with the change and in one
//! without it, in pairs of rounds with alternating order, so that drift affects both. Remedies that cannot be
//! tested from the client (a target's cache, a switch) have no trial, and the report lists them as untested.

use std::time::Duration;

use backends::Failure;
use block::Random;
use disk_contents::Consent;
use environment::server::Server;
use model::{Direction, Load};

use crate::causes::CONNECTIONS;
use crate::measure::ladder::shuffle;
use crate::measure::load::{Running, Times};
use crate::measure::places::Part;
use crate::measure::way::Way;
use crate::measure::{Options, Pace, Progress, Subject, places};
use crate::{
    Beside, Cause, Change, Diagnosis, Evidence, Finding, Known, LoadRun, NbdSession, Otherwise,
    Timed, confirmed,
};

/// Number of pairs of rounds. With seven values, their range contains the true median in 98 of 100 cases.
const PAIRS: u32 = 7;
/// Number of initial pairs after which a trial ends if nothing has completed without the change, since no
/// ratio can then be computed.
const SILENT_PAIRS: u32 = 2;

/// Tests every testable finding. A failed test is reported with its finding, and does not affect the others.
/// Findings whose change has no effect are moved to the end.
pub async fn confirm(
    diagnosis: &mut Diagnosis,
    subject: &Subject,
    options: &Options,
    progress: &dyn Progress,
) {
    let Diagnosis {
        evidence, findings, ..
    } = diagnosis;
    for finding in &mut *findings {
        let Some(trial) = Trial::of(finding, evidence, subject, options) else {
            continue;
        };
        progress.begins(&format!("trying {}", trial.named));
        match trial.run(options).await {
            Ok(pairs) => judge(finding, &trial, &pairs),
            Err(why) => finding
                .because
                .push(format!("The trial with {} failed: {why}.", trial.named)),
        }
    }
    // Remedies without an effect should not be applied first.
    findings.sort_by_key(|finding| {
        finding
            .gain
            .confirmed
            .is_some_and(|tried| tried.brings_nothing())
    });
}

/// The test of a change.
struct Trial {
    /// The change, in the syntax that users write.
    named: String,
    without: Side,
    with: Side,
    times: Times,
}

/// A session with the load to run in it.
struct Side {
    subject: Result<Subject, String>,
    load: Load,
}

/// The rates of a pair of rounds, without and with the change, in bytes per second; 0 if nothing completed.
type Pair = (f64, f64);

impl Trial {
    /// Returns the trial of a finding, or `None` if it cannot be tested from the client.
    fn of(
        finding: &Finding,
        evidence: &Evidence,
        subject: &Subject,
        options: &Options,
    ) -> Option<Trial> {
        let change = finding.trial.as_ref()?;
        let load = evidence.loads.get(finding.load)?.load;
        let base = base(finding.cause, evidence, subject);
        let depth = change.depth.unwrap_or(load.depth);
        let block_bytes = change.block_bytes.unwrap_or(load.block_bytes);
        Some(Trial {
            named: named(change),
            with: Side {
                subject: base
                    .as_ref()
                    .map_err(Clone::clone)
                    .and_then(|base| set(base, &change.settings)),
                load: Load {
                    depth,
                    block_bytes,
                    ..load
                },
            },
            without: Side {
                subject: base,
                load,
            },
            times: times(evidence, options),
        })
    }

    /// Runs the pairs of rounds. Stops early if nothing completes without the change. Both rounds of a pair
    /// use the same seed and the same part of the volume.
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
                    0 => {
                        old = self
                            .without
                            .round(&mut without, part, self.times, seed)
                            .await
                    }
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
        Way::open(subject)
            .await
            .map_err(|failure| failure.to_string())
    }

    /// Runs one round, and returns its rate in bytes per second.
    async fn round(&self, way: &mut Way, part: Part, times: Times, seed: u64) -> f64 {
        let mut running = Running::new(&self.load, true);
        running.round(way, part, None, times, seed).await;
        let rates = running.finish().await.bytes_per_s;
        rates
            .first()
            .copied()
            .filter(|rate| rate.is_finite())
            .unwrap_or(0.0)
    }
}

/// Adds the result to the finding: a confirmed gain or, if there are too few pairs, a sentence.
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
            format!(
                "Trial: with {named}, the rate was {mb:.1} MB/s; without, no request completed."
            )
        }
        (_, false) => format!("Trial: no request completed with {named}."),
        (true, true) => format!("Trial: too few rounds with and without {named} were completed."),
    });
}

/// Returns the storage with the settings of the measured evidence: with shorter segments, if the path drops
/// long packets. A finding about the long packets themselves is tested on the unmodified path.
fn base(cause: Cause, evidence: &Evidence, subject: &Subject) -> Result<Subject, String> {
    let works = evidence
        .long_packets
        .as_ref()
        .and_then(|seen| seen.works_bytes);
    match works {
        Some(bytes) if cause != Cause::PathMtu => {
            set(subject, &[("tcp-segment".to_owned(), bytes.to_string())])
        }
        _ => Ok(subject.clone()),
    }
}

/// Returns the storage with changed keys.
pub(super) fn set(subject: &Subject, settings: &[(String, String)]) -> Result<Subject, String> {
    settings
        .iter()
        .try_fold(subject.clone(), |subject, (key, value)| {
            subject.with(key, value)
        })
}

/// Returns the part to read or write. The user consented to overwriting it when the load was measured.
async fn part(way: &mut Way, side: &Side, options: &Options) -> Result<Part, String> {
    let device = way.device().await?;
    if side.load.direction == Direction::Read {
        return Ok(Part::whole(device.geometry()));
    }
    let agreed = Options {
        consent: Consent::Given,
        ..*options
    };
    let part = places::part(&device, way.subject(), &agreed)
        .await
        .map_err(|failure: Failure| failure.to_string())?;
    part.ok_or_else(|| crate::measure::probe::NOT_ALLOWED.to_owned())
}

/// Returns the duration of rounds, the same as for the evidence.
fn times(evidence: &Evidence, options: &Options) -> Times {
    let us = |known: &Known<Timed>| match known {
        Known::Measured(timed) if timed.median_us.is_finite() => timed.median_us.max(0.0),
        _ => 0.0,
    };
    let ladder = &evidence.ladder;
    let rungs = [
        &ladder.cached_read,
        &ladder.medium_read,
        &ladder.write,
        &ladder.durable_write,
    ];
    let request = rungs.map(us).into_iter().fold(0.0, f64::max);
    let round_trip = evidence
        .paths
        .iter()
        .map(|path| path.round_trip_us)
        .fold(0.0, f64::max);
    let [round_trip, request] =
        [round_trip, request].map(|us| Duration::from_secs_f64((us / 1e6).min(60.0)));
    let (_, times) =
        Pace::new(options.quick, options.seconds).rounds(evidence.loads.len(), round_trip, request);
    times
}

/// Describes a change in the syntax that users write.
fn named(change: &Change) -> String {
    let settings = change
        .settings
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let depth = change.depth.map(|depth| format!("queue depth {depth}"));
    let block = change
        .block_bytes
        .map(|bytes| format!("requests of {bytes} bytes"));
    settings
        .chain(depth)
        .chain(block)
        .collect::<Vec<_>>()
        .join(", ")
}

// Runs the same load over sessions with a change, in rounds that alternate with the load's own. The effect of
// more connections, or of no TLS, is thus measured and not predicted.

/// Sessions with a change. Each is open, or has the reason why it is not.
pub(super) struct Others(Vec<(Otherwise, Result<Way, String>)>);

/// A load with its runs over the changed sessions, in the order of [`Others`].
pub(super) struct Compared {
    pub(super) own: Running,
    others: Vec<(Running, Beside)>,
}

impl Others {
    /// Opens the sessions that are worth testing. There are none unless `session` is an NBD session.
    pub(super) async fn open(way: &Way, session: Option<&NbdSession>) -> Others {
        let mut others = Vec::new();
        for otherwise in session.map(worth_a_try).unwrap_or_default() {
            let way = match set(way.subject(), &otherwise.change().settings) {
                Ok(subject) => Way::open(&subject)
                    .await
                    .map_err(|failure| failure.to_string()),
                Err(why) => Err(why),
            };
            others.push((otherwise, has_all(way, otherwise).await));
        }
        Others(others)
    }

    /// Returns the number of runs in a round of these loads, for an estimate of the duration. The boolean of
    /// a load does not matter.
    pub(super) fn runs(&self, loads: &[(Load, bool)]) -> usize {
        let there = self.0.iter().filter(|(_, way)| way.is_ok()).count();
        loads
            .iter()
            .map(|(load, _)| 1 + if is_compared(load) { there } else { 0 })
            .sum()
    }

    /// Returns the load, to be run over all sessions. A load that is not compared runs only over its own
    /// session.
    pub(super) fn compare(&self, own: Running) -> Compared {
        let load = *own.load();
        let one = |(otherwise, way): &(Otherwise, Result<Way, String>)| {
            let first_failure = way.as_ref().err().cloned();
            (
                Running::new(&load, false),
                Beside {
                    otherwise: *otherwise,
                    pairs: Vec::new(),
                    first_failure,
                },
            )
        };
        let others = self
            .0
            .iter()
            .filter(|_| is_compared(&load))
            .map(one)
            .collect();
        Compared { own, others }
    }

    pub(super) async fn close(self) {
        for way in self.0.into_iter().filter_map(|(_, way)| way.ok()) {
            way.close().await;
        }
    }
}

/// Fails if the session has fewer connections than requested, since a server may accept fewer.
async fn has_all(way: Result<Way, String>, otherwise: Otherwise) -> Result<Way, String> {
    let mut way = way?;
    let Otherwise::Connections(wanted) = otherwise else {
        return Ok(way);
    };
    let told = way.device().await?.told().await;
    let there = told.map_or(0, |told| told.connections.len());
    match there >= usize::from(wanted) {
        true => Ok(way),
        false => Err(format!(
            "the server accepted {there} of {wanted} connections"
        )),
    }
}

/// Returns the changes worth testing: more connections, if the server supports them and the session has fewer
/// than [`CONNECTIONS`]; no TLS, if the session uses it.
fn worth_a_try(session: &NbdSession) -> Vec<Otherwise> {
    let more = session.multi_conn && session.connections < CONNECTIONS;
    let connections = more.then_some(Otherwise::Connections(CONNECTIONS));
    connections
        .into_iter()
        .chain(session.encrypted.then_some(Otherwise::Plain))
        .collect()
}

/// Whether a load is compared. A load with a queue depth of one cannot use a second connection; it is not
/// compared without TLS either.
fn is_compared(load: &Load) -> bool {
    load.depth > 1
}

impl Compared {
    /// Runs a round over all sessions, in random order and with the same seed. For each changed session,
    /// records a pair of rates if the round over the load's own session also has a rate.
    pub(super) async fn round(
        &mut self,
        (way, others): (&mut Way, &mut Others),
        part: Part,
        server: Option<&Server>,
        times: Times,
        random: &mut Random,
    ) {
        let seed = random.next();
        let mut order: Vec<usize> = (0..=self.others.len()).collect();
        shuffle(&mut order, random);
        let mut rates = vec![None; order.len()];
        for index in order {
            rates[index] = match index {
                0 => self.own.round(way, part, server, times, seed).await,
                _ => match (&mut others.0[index - 1].1, &mut self.others[index - 1].0) {
                    (Ok(other), running) if running.goes_on() => {
                        running.round(other, part, None, times, seed).await
                    }
                    _ => None,
                },
            };
        }
        for (index, (_, beside)) in self.others.iter_mut().enumerate() {
            beside.pairs.extend(rates[0].zip(rates[index + 1]));
        }
    }

    /// Returns the results of the load, including those over the changed sessions.
    pub(super) async fn finish(self) -> LoadRun {
        let mut run = self.own.finish().await;
        for (other, mut beside) in self.others {
            beside.first_failure = beside.first_failure.or(other.finish().await.first_failure);
            run.beside.push(beside);
        }
        run
    }
}
