//! Limits that no queue depth can exceed: the link, and components that a load shows to be saturated. Also
//! the achieved rate of a load.

use model::link::Link;
use model::{Direction, Keys, Load, Path, Term, predict};

use crate::layers::Layers;
use crate::patterns::Estimate;
use crate::symptoms::Symptoms;
use crate::{Evidence, Known, LinkLayer, LoadRun, PathUnderLoad};

/// The link: its rated speed, and its throughput when full.
pub(super) struct Ceiling {
    /// The rated speed, and its source.
    pub(super) built_for: Option<BuiltFor>,
    /// The path does not leave this machine.
    pub(super) loopback: bool,
    /// TCP payload in bytes a second when full, if a load filled it.
    pub(super) full_per_s: Option<f64>,
}

/// The rated speed of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BuiltFor {
    pub(super) bits_per_s: f64,
    /// TCP payload in bytes a second.
    pub(super) payload_per_s: f64,
    /// True if the user specified it; false if the interface reported it.
    pub(super) said: bool,
}

impl Ceiling {
    pub(super) fn of(evidence: &Evidence, layers: &Layers) -> Ceiling {
        let fastest =
            evidence.loads.iter().filter_map(|run| payload_per_s(evidence, run)).fold(0.0, f64::max);
        let built_for =
            built_for(evidence).filter(|built| built.said || built.payload_per_s > fastest * CARRIED_MAX);
        Ceiling {
            full_per_s: full_per_s(evidence, layers, built_for),
            built_for,
            loopback: loopback(evidence),
        }
    }

    /// Adds this load's limits to a path.
    pub(super) fn limit(&self, path: &mut Path, run: &LoadRun, rate: Estimate, symptoms: &Symptoms) {
        path.payload_per_s = self.full_per_s.or(self.built_for.map(|built| built.payload_per_s));
        path.window_bytes = symptoms.window.map(|window| window.bytes);
        path.commands_at_once = (symptoms.waiting >= WAITING_MIN).then(|| at_once(path, run, rate, symptoms));
        path.exchanges_per_s = at_its_end(run).map(|share| {
            let requests_per_s = rate.value / f64::from(run.load.block_bytes.max(1));
            requests_per_s / share
        });
    }
}

/// The number of concurrent commands, as the larger of two estimates: from their waiting times, and from the
/// achieved rate (Little's law). The larger one is more accurate, because requests also wait for others at
/// this end.
fn at_once(path: &Path, run: &LoadRun, rate: Estimate, symptoms: &Symptoms) -> f64 {
    let alone_s = path.round_trip_s + path.exchange_s + path.command_s;
    let by_rate = rate.value * alone_s / f64::from(run.load.block_bytes.max(1));
    by_rate.min(run.under_way).max(symptoms.at_once).max(1.0)
}

/// A command that waits a tenth of its time for the window is limited by it.
const WAITING_MIN: f64 = 0.1;
/// A link cannot exceed its rated speed: an interface that reports 10 Mbit/s and carries ten times that is
/// not a real one.
const CARRIED_MAX: f64 = 0.95;

/// The utilisation of the two ends, if they are nearly saturated: one of their threads works, or waits for
/// its CPU, all the time. If both are on one machine, they wake each other, and their times are added.
pub(super) fn at_its_end(run: &LoadRun) -> Option<f64> {
    let busiest = (run.client_busy + run.client_waited + run.server_busy.unwrap_or(0.0)).min(1.0);
    (busiest >= BUSY_MIN).then_some(busiest)
}

/// A thread that sleeps for less than a seventh of the time has no more than that to spare.
const BUSY_MIN: f64 = 0.85;

fn layer(evidence: &Evidence) -> Option<&LinkLayer> {
    match &evidence.link {
        Known::Measured(layer) => Some(layer),
        Known::Unknown(_) => None,
    }
}

fn loopback(evidence: &Evidence) -> bool {
    let is_local = evidence.nbd.as_ref().is_some_and(|session| session.unix_socket);
    is_local || layer(evidence).is_some_and(|layer| layer.loopback)
}

fn built_for(evidence: &Evidence) -> Option<BuiltFor> {
    if loopback(evidence) {
        return None;
    }
    let said = evidence.expected_link_bits_per_s;
    let told = layer(evidence).and_then(|layer| layer.bits_per_s);
    let bits_per_s = said.or(told).filter(|bits| *bits > 0.0 && bits.is_finite())?;
    let payload_per_s = link_payload_per_s(evidence, bits_per_s);
    Some(BuiltFor { bits_per_s, payload_per_s, said: said.is_some() })
}

/// The payload rate of a link of this speed, with the interface's MTU and Linux's TCP.
pub(super) fn link_payload_per_s(evidence: &Evidence, bits_per_s: f64) -> f64 {
    let mtu = layer(evidence).map_or(1500, |layer| layer.mtu.clamp(MTU_MIN, MTU_MAX));
    Link { timestamps: true, ..Link::ethernet(bits_per_s, mtu) }.payload_per_s()
}

/// IPv4 guarantees at least the minimum; Ethernet carries at most the maximum.
const MTU_MIN: u32 = 576;
const MTU_MAX: u32 = 9216;

/// The rates of Ethernet, in bits a second.
const LADDER: [f64; 11] = [10e6, 100e6, 1e9, 2.5e9, 5e9, 10e9, 25e9, 40e9, 50e9, 100e9, 200e9];
/// The share of a rate that TCP achieves: all of it with the best implementations, nine tenths with others.
const REACHED: std::ops::Range<f64> = 0.9..1.02;

/// The Ethernet rate of a link with this payload rate when full, if there is one.
pub(super) fn step(evidence: &Evidence, carried_per_s: f64) -> Option<f64> {
    LADDER
        .into_iter()
        .find(|bits_per_s| REACHED.contains(&(carried_per_s / link_payload_per_s(evidence, *bits_per_s))))
}

/// The throughput of the full link. No load can have exceeded it.
fn full_per_s(evidence: &Evidence, layers: &Layers, built_for: Option<BuiltFor>) -> Option<f64> {
    if loopback(evidence) {
        return None;
    }
    let all = || evidence.loads.iter().filter_map(|run| Some((run, payload_per_s(evidence, run)?)));
    let full = all().filter(|(run, per_s)| is_full(evidence, layers, built_for, run, *per_s));
    let carried = full.map(|(_, per_s)| per_s).max_by(f64::total_cmp)?;
    let most = all().map(|(_, per_s)| per_s).fold(0.0, f64::max);
    (carried >= most * FULL_MIN).then_some(carried)
}

/// Whether the link is full. Any of these suffices:
///
/// - It carries its rated speed.
/// - Packets queue up before it and are not lost, or are lost at one of Ethernet's rates, where the queue is
///   short.
/// - It carries the same in every round, and that is one of Ethernet's rates, where TCP keeps the queue
///   short.
fn is_full(
    evidence: &Evidence,
    layers: &Layers,
    built_for: Option<BuiltFor>,
    run: &LoadRun,
    per_s: f64,
) -> bool {
    let Some(rate) = achieved_rate(evidence, run) else { return false };
    let symptoms = Symptoms::of(evidence, layers, run, rate);
    let at_step = step(evidence, per_s).is_some();
    let steady = rate.relative_error() <= STEADY_MAX && run.load.depth > 1 && symptoms.window.is_none();
    built_for.is_some_and(|built| per_s >= built.payload_per_s * FULL_MIN)
        || symptoms.queued(layers) && (!symptoms.lossy() || at_step)
        || steady && at_step && !symptoms.lossy()
}

/// A link gives the same rate in every round, within this share.
const STEADY_MAX: f64 = 0.02;

/// The share of a full link's payload that TCP leaves, after acknowledgements and its own oscillations.
const FULL_MIN: f64 = 0.9;

/// The TCP payload rate of a load's data, in bytes a second.
fn payload_per_s(evidence: &Evidence, run: &LoadRun) -> Option<f64> {
    Some(achieved_rate(evidence, run)?.value / data_share(&run.load, &evidence.keys()))
}

/// The share of data in TCP's payload.
pub(super) fn data_share(load: &Load, keys: &Keys) -> f64 {
    let path = Path { payload_per_s: Some(1.0), ..Path::of_round_trip(1.0) };
    let share = predict(&path, keys, load)
        .terms
        .iter()
        .find(|(term, _)| *term == Term::Link)
        .map(|(_, share)| *share);
    share.unwrap_or(1.0)
}

// The achieved rate of a load, in bytes a second.

/// Consecutive requests per queue slot, from which one batch more or less no longer matters.
const REQUESTS_MIN: f64 = 4.0;
/// The error of TCP's counters from late acknowledgements and retransmitted segments.
const MOVED_ERROR: f64 = 0.05;

/// The median of the rounds. If requests take so long that a round has only one or two per queue slot, rounds
/// differ by whole batches; then the bytes moved by TCP are used instead. `None` if that is zero.
pub(super) fn achieved_rate(evidence: &Evidence, run: &LoadRun) -> Option<Estimate> {
    let rounds = Estimate::of_rounds(&run.bytes_per_s);
    match requests_of_a_place(run) >= REQUESTS_MIN {
        true => rounds,
        false => moved(evidence, run).or(rounds),
    }
}

/// The number of requests per queue slot in a round.
fn requests_of_a_place(run: &LoadRun) -> f64 {
    let places = f64::from(run.load.depth.max(1)) * run.bytes_per_s.len().max(1) as f64;
    run.service.count() as f64 / places
}

fn moved(evidence: &Evidence, run: &LoadRun) -> Option<Estimate> {
    let bytes = |path: &PathUnderLoad| match run.load.direction {
        Direction::Read => path.received_bytes as f64,
        Direction::Write => path.sent_bytes as f64,
    };
    let data = run.paths.iter().map(bytes).sum::<f64>() * data_share(&run.load, &evidence.keys());
    let value =
        data / (round_s(evidence)? * run.bytes_per_s.len() as f64) * without_a_slow_round(&run.bytes_per_s);
    let block = f64::from(run.load.block_bytes);
    // Less than a request per round comes from NOPs alone.
    let is_load = data >= block * run.bytes_per_s.len() as f64;
    (is_load && value.is_finite()).then_some(Estimate {
        value,
        low: value * (1.0 - MOVED_ERROR),
        high: value * (1.0 + MOVED_ERROR),
    })
}

/// The ratio of the rounds' median to their mean: this reduces the weight of a round in which windows had to
/// open first.
fn without_a_slow_round(rates: &[f64]) -> f64 {
    let ratio = stats::median(rates) / stats::mean(rates);
    if ratio.is_finite() { ratio.clamp(1.0, SLOW_ROUND_MAX) } else { 1.0 }
}

/// One round of six that hardly counts.
const SLOW_ROUND_MAX: f64 = 1.15;

/// The counted duration of a round. It is the same for all loads, and taken from one with many requests.
fn round_s(evidence: &Evidence) -> Option<f64> {
    let many = evidence.loads.iter().filter(|run| requests_of_a_place(run) >= REQUESTS_MIN);
    let busiest = many.max_by_key(|run| run.service.count())?;
    let bytes = busiest.service.count() as f64 * f64::from(busiest.load.block_bytes);
    let per_s: f64 = busiest.bytes_per_s.iter().sum();
    Some(bytes / per_s).filter(|seconds| *seconds > 0.0 && seconds.is_finite())
}
