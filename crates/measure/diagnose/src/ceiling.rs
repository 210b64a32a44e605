//! What no request can get past, however many there are: the link, and what a load itself shows to be at its end; and the rate that
//! a load achieved.

use model::link::Link;
use model::{Direction, Keys, Load, Path, Term, predict};

use crate::layers::Layers;
use crate::patterns::Estimate;
use crate::symptoms::Symptoms;
use crate::{Evidence, Known, LinkLayer, LoadRun, PathUnderLoad};

/// The link: what it is built for, and what it carried when it was full.
pub(super) struct Ceiling {
    /// The rate that it is built for, and who says so.
    pub(super) built_for: Option<BuiltFor>,
    /// The way does not leave this machine.
    pub(super) loopback: bool,
    /// TCP payload in bytes a second that it carried at its end, if a load brought it there.
    pub(super) full_per_s: Option<f64>,
}

/// What a link is built for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BuiltFor {
    pub(super) bits_per_s: f64,
    /// TCP payload in bytes a second.
    pub(super) payload_per_s: f64,
    /// The person said so; the interface did, if not.
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

    /// Limits a path by what holds for this load.
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

/// How many commands were under way at once: by what they waited for, and by what they came to (Little's law), of which
/// the larger is nearer to the truth: requests also wait for their turn behind others of this end.
fn at_once(path: &Path, run: &LoadRun, rate: Estimate, symptoms: &Symptoms) -> f64 {
    let alone_s = path.round_trip_s + path.exchange_s + path.command_s;
    let by_rate = rate.value * alone_s / f64::from(run.load.block_bytes.max(1));
    by_rate.min(run.under_way).max(symptoms.at_once).max(1.0)
}

/// A command that waits a tenth of its time for the window is kept back by it.
const WAITING_MIN: f64 = 0.1;
/// A link does not carry more than it is built for: an interface that says 10 Mbit/s and carries ten times that is no
/// real one.
const CARRIED_MAX: f64 = 0.95;

/// How far the ends are at their end, if they are so nearly: a thread of theirs works, or waits for its CPU, all the time.
/// Where both are on one machine they wake each other, and it is the two together.
pub(super) fn at_its_end(run: &LoadRun) -> Option<f64> {
    let busiest = (run.client_busy + run.client_waited + run.server_busy.unwrap_or(0.0)).min(1.0);
    (busiest >= BUSY_MIN).then_some(busiest)
}

/// A thread that sleeps for less than a seventh of the time gives no more than that much more.
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

/// What a link of this rate carries with the interface's MTU, and TCP as Linux does it.
pub(super) fn link_payload_per_s(evidence: &Evidence, bits_per_s: f64) -> f64 {
    let mtu = layer(evidence).map_or(1500, |layer| layer.mtu.clamp(MTU_MIN, MTU_MAX));
    Link { timestamps: true, ..Link::ethernet(bits_per_s, mtu) }.payload_per_s()
}

/// IPv4 promises no less; Ethernet carries no more.
const MTU_MIN: u32 = 576;
const MTU_MAX: u32 = 9216;

/// The rates of Ethernet, in bits a second.
const LADDER: [f64; 11] = [10e6, 100e6, 1e9, 2.5e9, 5e9, 10e9, 25e9, 40e9, 50e9, 100e9, 200e9];
/// What TCP gets of a rate: the best implementations all, the others nine tenths.
const REACHED: std::ops::Range<f64> = 0.9..1.02;

/// The rate of Ethernet that a link ran at which carried so much payload at its end, if it is one.
pub(super) fn step(evidence: &Evidence, carried_per_s: f64) -> Option<f64> {
    LADDER
        .into_iter()
        .find(|bits_per_s| REACHED.contains(&(carried_per_s / link_payload_per_s(evidence, *bits_per_s))))
}

/// What the link carried when it was full. No load can have carried more then.
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

/// A link is full if as much goes through as it is built for; or if packets queue up before it and are not lost, or are
/// lost at one of Ethernet's rates, where the queue is short; or if it carries the same in every round, and that is one of
/// Ethernet's rates, where TCP keeps the queue short.
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

/// A link gives the same rate in every round, to the percent.
const STEADY_MAX: f64 = 0.02;

/// Of a full link's payload TCP leaves some percent to acknowledgements and to its own swings.
const FULL_MIN: f64 = 0.9;

/// What a load's data were of TCP payload, in bytes a second.
fn payload_per_s(evidence: &Evidence, run: &LoadRun) -> Option<f64> {
    Some(achieved_rate(evidence, run)?.value / data_share(&run.load, &evidence.keys()))
}

/// What of TCP's payload is data.
pub(super) fn data_share(load: &Load, keys: &Keys) -> f64 {
    let path = Path { payload_per_s: Some(1.0), ..Path::of_round_trip(1.0) };
    let share = predict(&path, keys, load)
        .terms
        .iter()
        .find(|(term, _)| *term == Term::Link)
        .map(|(_, share)| *share);
    share.unwrap_or(1.0)
}

// What a load came to, in bytes a second.

/// Requests one after the other in each place of the queue, from which a batch more or less no longer counts.
const REQUESTS_MIN: f64 = 4.0;
/// What acknowledgements that are late, and segments sent twice, make of TCP's counters.
const MOVED_ERROR: f64 = 0.05;

/// The median of the rounds; or, where requests take so long that a round has one or two of each place of the queue, and
/// so whole batches of them or none, what TCP moved meanwhile. `None` if that is nothing.
pub(super) fn achieved_rate(evidence: &Evidence, run: &LoadRun) -> Option<Estimate> {
    let rounds = Estimate::of_rounds(&run.bytes_per_s);
    match requests_of_a_place(run) >= REQUESTS_MIN {
        true => rounds,
        false => moved(evidence, run).or(rounds),
    }
}

/// How many requests a place of the queue had in a round.
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
    // Less than a request a round is the chatter of NOPs.
    let is_load = data >= block * run.bytes_per_s.len() as f64;
    (is_load && value.is_finite()).then_some(Estimate {
        value,
        low: value * (1.0 - MOVED_ERROR),
        high: value * (1.0 + MOVED_ERROR),
    })
}

/// What the median of the rounds is more than their mean: one in which windows had to open first counts less then.
fn without_a_slow_round(rates: &[f64]) -> f64 {
    let ratio = stats::median(rates) / stats::mean(rates);
    if ratio.is_finite() { ratio.clamp(1.0, SLOW_ROUND_MAX) } else { 1.0 }
}

/// Of six rounds one, of which nearly nothing counts.
const SLOW_ROUND_MAX: f64 = 1.15;

/// How long a round is counted: for all loads the same time, which follows from one that made many requests in it.
fn round_s(evidence: &Evidence) -> Option<f64> {
    let many = evidence.loads.iter().filter(|run| requests_of_a_place(run) >= REQUESTS_MIN);
    let busiest = many.max_by_key(|run| run.service.count())?;
    let bytes = busiest.service.count() as f64 * f64::from(busiest.load.block_bytes);
    let per_s: f64 = busiest.bytes_per_s.iter().sum();
    Some(bytes / per_s).filter(|seconds| *seconds > 0.0 && seconds.is_finite())
}
