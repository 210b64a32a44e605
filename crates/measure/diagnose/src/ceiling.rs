//! Limits that no queue depth can exceed: the link, and components that a load saturates. Also computes the
//! achieved rate of a load.

use model::link::Link;
use model::{Direction, Keys, Load, Path, Term, predict};

use crate::layers::Layers;
use crate::patterns::Estimate;
use crate::symptoms::Symptoms;
use crate::{Evidence, Known, LinkLayer, LoadRun, PathUnderLoad};

/// The limits of the link: its rated speed, and its measured throughput when it is full.
#[derive(Clone, Copy)]
pub(super) struct Ceiling {
    /// The rated speed and its source, if known.
    pub(super) built_for: Option<BuiltFor>,
    /// Whether the path stays within this machine.
    pub(super) loopback: bool,
    /// The TCP payload rate of the full link in the direction of reads and of writes, in bytes per second, if a load
    /// filled it.
    full_per_s: [Option<f64>; 2],
}

/// The rated speed of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BuiltFor {
    pub(super) bits_per_s: f64,
    /// The TCP payload rate, in bytes per second.
    pub(super) payload_per_s: f64,
    /// Whether the user specified the speed. Otherwise, the interface reported it.
    pub(super) said: bool,
}

impl Ceiling {
    pub(super) fn of(evidence: &Evidence, layers: &Layers) -> Ceiling {
        let fastest = evidence
            .loads
            .iter()
            .filter_map(|run| payload_per_s(evidence, run))
            .fold(0.0, f64::max);
        let built_for = built_for(evidence)
            .filter(|built| built.said || built.payload_per_s > fastest * CARRIED_MAX);
        let [reads, writes] = [Direction::Read, Direction::Write].map(|direction| {
            full_per_s(evidence, layers, built_for, direction)
                .or(slow_per_s(layers, built_for, direction))
        });
        // A link that only loads in the other direction filled is assumed to have the same speed both ways, unless a
        // load was faster.
        let other = |full: Option<f64>, direction| {
            full.filter(|full| *full >= fastest_per_s(evidence, direction) * FULL_MIN)
        };
        Ceiling {
            full_per_s: [
                reads.or(other(writes, Direction::Read)),
                writes.or(other(reads, Direction::Write)),
            ],
            built_for,
            loopback: loopback(evidence),
        }
    }

    /// Returns the TCP payload rate of the full link in this direction, in bytes per second.
    pub(super) fn full_per_s(&self, direction: Direction) -> Option<f64> {
        let [reads, writes] = self.full_per_s;
        match direction {
            Direction::Read => reads,
            Direction::Write => writes,
        }
    }

    /// Adds the limits that this load shows to a path.
    pub(super) fn limit(
        &self,
        path: &mut Path,
        run: &LoadRun,
        rate: Estimate,
        symptoms: &Symptoms,
    ) {
        path.payload_per_s = self
            .full_per_s(run.load.direction)
            .or(self.built_for.map(|built| built.payload_per_s));
        path.window_bytes = symptoms.window.map(|window| window.bytes);
        let is_short = symptoms.waiting >= WAITING_MIN
            || run.window_stalled >= STALLED_MIN && run.under_way <= run.places() * SHORT_MAX;
        path.commands_at_once = is_short.then(|| at_once(path, run, rate, symptoms));
        path.exchanges_per_s = at_its_end(run).map(|share| {
            let requests_per_s = rate.value / f64::from(run.load.block_bytes.max(1));
            requests_per_s / share
        });
    }
}

/// Returns the number of concurrent commands of a session: the larger of two estimates, one from their waiting times, the
/// other from the achieved rate (Little's law). The larger one is more accurate, because requests also wait
/// for each other at this end.
fn at_once(path: &Path, run: &LoadRun, rate: Estimate, symptoms: &Symptoms) -> f64 {
    let alone_s = path.round_trip_s + path.exchange_s + path.command_s;
    let by_rate = rate.value * alone_s / f64::from(run.load.block_bytes.max(1));
    let sessions = f64::from(run.load.sessions.max(1));
    (by_rate.min(run.under_way).max(symptoms.at_once) / sessions).max(1.0)
}

/// The window limits a command that waits for it for at least this share of its time.
const WAITING_MIN: f64 = 0.1;
/// The share of the time with a full command window from which the window is the limit, if the target then has at most
/// `SHORT_MAX` of the requests.
pub(super) const STALLED_MIN: f64 = 0.2;
const SHORT_MAX: f64 = 0.8;
/// A speed that the interface reports is ignored if its payload rate is not above this share of the fastest
/// load. A real link cannot exceed its rated speed: an interface that reports 10 Mbit/s but carries ten times
/// as much is a virtual one.
const CARRIED_MAX: f64 = 0.95;

/// Returns the utilisation of the two ends, if one of their threads is nearly always running or waiting for a
/// CPU. If both ends are on one machine, they wake each other, so their times are added.
pub(super) fn at_its_end(run: &LoadRun) -> Option<f64> {
    let busiest = (run.client_busy + run.client_waited + run.server_busy.unwrap_or(0.0)).min(1.0);
    (busiest >= BUSY_MIN).then_some(busiest)
}

/// A thread is nearly saturated if it sleeps for less than a seventh of the time.
const BUSY_MIN: f64 = 0.85;

fn layer(evidence: &Evidence) -> Option<&LinkLayer> {
    match &evidence.link {
        Known::Measured(layer) => Some(layer),
        Known::Unknown(_) => None,
    }
}

fn loopback(evidence: &Evidence) -> bool {
    let is_local = evidence
        .nbd
        .as_ref()
        .is_some_and(|session| session.unix_socket);
    is_local || layer(evidence).is_some_and(|layer| layer.loopback)
}

fn built_for(evidence: &Evidence) -> Option<BuiltFor> {
    if loopback(evidence) {
        return None;
    }
    let said = evidence.expected_link_bits_per_s;
    let told = layer(evidence).and_then(|layer| layer.bits_per_s);
    let bits_per_s = said
        .or(told)
        .filter(|bits| *bits > 0.0 && bits.is_finite())?;
    let payload_per_s = link_payload_per_s(evidence, bits_per_s);
    Some(BuiltFor {
        bits_per_s,
        payload_per_s,
        said: said.is_some(),
    })
}

/// Returns the payload rate of a link with this speed, with the interface's MTU and Linux's TCP headers.
pub(super) fn link_payload_per_s(evidence: &Evidence, bits_per_s: f64) -> f64 {
    let mtu = layer(evidence).map_or(1500, |layer| layer.mtu.clamp(MTU_MIN, MTU_MAX));
    Link {
        timestamps: true,
        ..Link::ethernet(bits_per_s, mtu)
    }
    .payload_per_s()
}

/// The range of valid MTUs: the minimum that IPv4 guarantees, and the maximum of Ethernet.
const MTU_MIN: u32 = 576;
const MTU_MAX: u32 = 9216;

/// The speeds of Ethernet, in bits per second.
const LADDER: [f64; 11] = [
    10e6, 100e6, 1e9, 2.5e9, 5e9, 10e9, 25e9, 40e9, 50e9, 100e9, 200e9,
];
/// The share of the link's payload rate that TCP achieves: all of it with the best implementations, nine
/// tenths with others.
const REACHED: std::ops::Range<f64> = 0.9..1.02;

/// Returns the Ethernet speed whose full link has this payload rate, if there is one.
pub(super) fn step(evidence: &Evidence, carried_per_s: f64) -> Option<f64> {
    LADDER.into_iter().find(|bits_per_s| {
        REACHED.contains(&(carried_per_s / link_payload_per_s(evidence, *bits_per_s)))
    })
}

/// Returns the throughput of the full link in one direction. If any load was faster, the link was not full.
fn full_per_s(
    evidence: &Evidence,
    layers: &Layers,
    built_for: Option<BuiltFor>,
    direction: Direction,
) -> Option<f64> {
    if loopback(evidence) {
        return None;
    }
    let full = of_direction(evidence, direction)
        .filter(|(run, per_s)| is_full(evidence, layers, built_for, run, *per_s))
        .map(|(_, per_s)| per_s);
    let carried = full.max_by(f64::total_cmp)?;
    (carried >= fastest_per_s(evidence, direction) * FULL_MIN).then_some(carried)
}

/// Returns the loads of a direction, with their TCP payload rates.
fn of_direction(
    evidence: &Evidence,
    direction: Direction,
) -> impl Iterator<Item = (&LoadRun, f64)> {
    let loads = evidence
        .loads
        .iter()
        .filter(move |run| run.load.direction == direction);
    loads.filter_map(|run| Some((run, payload_per_s(evidence, run)?)))
}

/// Returns the TCP payload rate of the fastest load of a direction, or 0 without a load.
fn fastest_per_s(evidence: &Evidence, direction: Direction) -> f64 {
    of_direction(evidence, direction)
        .map(|(_, per_s)| per_s)
        .fold(0.0, f64::max)
}

/// Returns the rate at which the data of single requests crosses a link far below its rated speed, even if no load
/// fills the link. NOPs with data confirm that the link takes this time: neither a TCP window nor the storage delays
/// them.
fn slow_per_s(layers: &Layers, built_for: Option<BuiltFor>, direction: Direction) -> Option<f64> {
    let built = built_for?;
    let single_per_s = layers.data_per_s(direction)?;
    let ping_s = layers.ping_s?;
    (single_per_s * SLOW_MIN <= built.payload_per_s && ping_s * single_per_s >= PING_MIN)
        .then_some(single_per_s)
}

/// The minimum ratio of the rated speed to the rate of single requests. The ends also take time for data.
const SLOW_MIN: f64 = 3.0;
/// The minimum time of a byte of a NOP's data, which crosses the link both ways, as a share of the time of a byte of a
/// request.
const PING_MIN: f64 = 0.75;

/// Whether the link is full. One of these conditions is sufficient:
///
/// - The link carries its rated speed.
/// - Packets queue in front of the link. Either none is lost, or the rate matches a speed of Ethernet or is the same
///   in every round: there, a short queue also drops packets, as a policer does. After random losses, TCP's rate
///   varies.
/// - The rate is the same in every round and matches a speed of Ethernet, and no packet is lost. TCP then
///   keeps the queue short. A NOP waits behind the data that the target could not send yet; without this wait, the
///   storage happens to have this rate.
fn is_full(
    evidence: &Evidence,
    layers: &Layers,
    built_for: Option<BuiltFor>,
    run: &LoadRun,
    per_s: f64,
) -> bool {
    let Some(rate) = achieved_rate(evidence, run) else {
        return false;
    };
    let symptoms = Symptoms::of(evidence, layers, run, rate);
    let at_step = step(evidence, per_s).is_some();
    let same = rate.relative_error() <= STEADY_MAX && run.load.depth > 1;
    let steady = same && symptoms.window.is_none();
    built_for.is_some_and(|built| per_s >= built.payload_per_s * FULL_MIN)
        || symptoms.queued(layers) && (!symptoms.lossy() || at_step || same)
        || steady && at_step && !symptoms.lossy() && !passes(evidence, run, rate, &symptoms)
}

/// Whether a NOP on the connection of the requests passes them. Over NBD, the probe has its own connection.
fn passes(evidence: &Evidence, run: &LoadRun, rate: Estimate, symptoms: &Symptoms) -> bool {
    let service_s = run.under_way * f64::from(run.load.block_bytes) / rate.value;
    let waits_s = symptoms.nop_queue_s.filter(|_| evidence.nbd.is_none());
    waits_s.is_some_and(|waits_s| waits_s <= service_s * PASSES_MAX)
}

/// The maximum wait of a NOP, as a share of the requests' time, that is no wait behind their data.
const PASSES_MAX: f64 = 0.1;

/// The maximum relative error of the rate of a full link, which is the same in every round.
const STEADY_MAX: f64 = 0.02;

/// The minimum share of a full link's payload rate that TCP reaches. Acknowledgements and TCP's own
/// oscillations take the rest.
const FULL_MIN: f64 = 0.9;

/// Returns the TCP payload rate of a load's data, in bytes per second.
fn payload_per_s(evidence: &Evidence, run: &LoadRun) -> Option<f64> {
    Some(achieved_rate(evidence, run)?.value / data_share(&run.load, &evidence.keys()))
}

/// Returns the share of data in TCP's payload.
pub(super) fn data_share(load: &Load, keys: &Keys) -> f64 {
    let path = Path {
        payload_per_s: Some(1.0),
        ..Path::of_round_trip(1.0)
    };
    let share = predict(&path, keys, load)
        .terms
        .iter()
        .find(|(term, _)| *term == Term::Link)
        .map(|(_, share)| *share);
    share.unwrap_or(1.0)
}

// The achieved rate of a load.

/// Number of consecutive requests per queue slot in a round from which one request more or less does not
/// matter.
const REQUESTS_MIN: f64 = 4.0;
/// The relative error of TCP's byte counters, due to late acknowledgements and retransmitted segments.
const MOVED_ERROR: f64 = 0.05;

/// Returns the median rate of the rounds. If requests take so long that a round has only one or two per queue
/// slot, rounds differ by whole batches of requests. The rate then follows from the bytes that TCP
/// transferred. Returns `None` if the rate is zero.
pub(super) fn achieved_rate(evidence: &Evidence, run: &LoadRun) -> Option<Estimate> {
    let rounds = Estimate::of_rounds(&run.bytes_per_s);
    match requests_of_a_place(run) >= REQUESTS_MIN {
        true => rounds,
        false => moved(evidence, run).or(rounds),
    }
}

/// Returns the number of requests per queue slot in a round.
fn requests_of_a_place(run: &LoadRun) -> f64 {
    run.service.count() as f64 / (run.places() * run.bytes_per_s.len().max(1) as f64)
}

fn moved(evidence: &Evidence, run: &LoadRun) -> Option<Estimate> {
    let bytes = |path: &PathUnderLoad| match run.load.direction {
        Direction::Read => path.received_bytes as f64,
        Direction::Write => path.sent_bytes as f64,
    };
    let data = run.paths.iter().map(bytes).sum::<f64>() * data_share(&run.load, &evidence.keys());
    let value = data / (round_s(evidence)? * run.bytes_per_s.len() as f64)
        * without_a_slow_round(&run.bytes_per_s);
    let block = f64::from(run.load.block_bytes);
    // Less data than one request per round comes from NOPs alone.
    let is_load = data >= block * run.bytes_per_s.len() as f64;
    (is_load && value.is_finite()).then_some(Estimate {
        value,
        low: value * (1.0 - MOVED_ERROR),
        high: value * (1.0 + MOVED_ERROR),
    })
}

/// Returns the ratio of the rounds' median to their mean. It corrects the total for a slow round, in which
/// TCP's windows first had to grow.
fn without_a_slow_round(rates: &[f64]) -> f64 {
    let ratio = stats::median(rates) / stats::mean(rates);
    if ratio.is_finite() {
        ratio.clamp(1.0, SLOW_ROUND_MAX)
    } else {
        1.0
    }
}

/// The maximum correction: one round of six transferred almost nothing.
const SLOW_ROUND_MAX: f64 = 1.15;

/// Returns the counted duration of a round, in seconds. It is the same for all loads, so it is computed from
/// the load with the most requests.
fn round_s(evidence: &Evidence) -> Option<f64> {
    let many = evidence
        .loads
        .iter()
        .filter(|run| requests_of_a_place(run) >= REQUESTS_MIN);
    let busiest = many.max_by_key(|run| run.service.count())?;
    let bytes = busiest.service.count() as f64 * f64::from(busiest.load.block_bytes);
    let per_s: f64 = busiest.bytes_per_s.iter().sum();
    Some(bytes / per_s).filter(|seconds| *seconds > 0.0 && seconds.is_finite())
}
