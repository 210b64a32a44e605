//! What no request can get past, however many there are: the link, and what a load itself shows to be at its end.

use super::estimate::Estimate;
use super::layers::Layers;
use super::signs::Signs;
use super::{Evidence, Known, LinkLayer, LoadRun};
use crate::link::Link;
use crate::model::{Keys, Load, Path, Term, predict};

/// The link: what it is built for, and what it carried when it was full.
pub(super) struct Roof {
    /// The rate that it is built for, and who says so.
    pub(super) built_for: Option<BuiltFor>,
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

impl Roof {
    pub(super) fn of(evidence: &Evidence, layers: &Layers) -> Roof {
        let fastest =
            evidence.loads.iter().filter_map(|run| payload_per_s(run, &evidence.got)).fold(0.0, f64::max);
        let built_for =
            built_for(evidence).filter(|built| built.said || built.payload_per_s > fastest * CARRIED_MAX);
        Roof { full_per_s: full_per_s(evidence, layers, built_for), built_for }
    }

    /// Limits a path by what holds for this load.
    pub(super) fn limit(&self, path: &mut Path, run: &LoadRun, rate: Estimate, signs: &Signs) {
        path.payload_per_s = self.full_per_s.or(self.built_for.map(|built| built.payload_per_s));
        path.window_bytes = signs.window.map(|window| window.bytes);
        path.commands_at_once = (signs.waiting >= WAITING_MIN).then_some(signs.at_once.max(1.0));
        path.exchanges_per_s = at_its_end(run).map(|share| {
            let requests_per_s = rate.value / f64::from(run.load.block_bytes.max(1));
            requests_per_s / share
        });
    }
}

/// A command that waits a tenth of its time for the window is kept back by it.
const WAITING_MIN: f64 = 0.1;
/// A link does not carry more than it is built for: an interface that says 10 Mbit/s and carries ten times that is no
/// real one.
const CARRIED_MAX: f64 = 0.95;

/// How far the busier end's thread is at its end, if it is so nearly.
fn at_its_end(run: &LoadRun) -> Option<f64> {
    let busiest = run.client_busy.max(run.server_busy.unwrap_or(0.0)).min(1.0);
    (busiest >= BUSY_MIN).then_some(busiest)
}

/// A thread that spins before it sleeps is at 80 % without doing much.
const BUSY_MIN: f64 = 0.9;

fn built_for(evidence: &Evidence) -> Option<BuiltFor> {
    let layer = match &evidence.link {
        Known::Measured(layer) => Some(layer),
        Known::Unknown(_) => None,
    };
    if layer.is_some_and(|layer| layer.loopback) {
        return None;
    }
    let said = evidence.expected_link_bits_per_s;
    let bits_per_s =
        said.or(layer.and_then(|layer| layer.bits_per_s)).filter(|bits| *bits > 0.0 && bits.is_finite())?;
    let payload_per_s = link(bits_per_s, layer).payload_per_s();
    Some(BuiltFor { bits_per_s, payload_per_s, said: said.is_some() })
}

/// A link of this rate with the interface's MTU, and TCP as Linux does it.
pub(super) fn link(bits_per_s: f64, layer: Option<&LinkLayer>) -> Link {
    let mtu = layer.map_or(1500, |layer| layer.mtu.clamp(MTU_MIN, MTU_MAX));
    Link { timestamps: true, ..Link::ethernet(bits_per_s, mtu) }
}

/// IPv4 promises no less; Ethernet carries no more.
const MTU_MIN: u32 = 576;
const MTU_MAX: u32 = 9216;

/// What the link carried when it was full: when packets queued up before it, or when what went through is what it is
/// built for.
fn full_per_s(evidence: &Evidence, layers: &Layers, built_for: Option<BuiltFor>) -> Option<f64> {
    if matches!(&evidence.link, Known::Measured(layer) if layer.loopback) {
        return None;
    }
    let full = |run: &&LoadRun| {
        let Some(rate) = Estimate::of_rounds(&run.bytes_per_s) else { return false };
        let signs = Signs::of(evidence, layers, run, rate);
        let filled = built_for.zip(payload_per_s(run, &evidence.got));
        signs.queued(layers) && !signs.starved()
            || filled.is_some_and(|(built, per_s)| per_s >= built.payload_per_s * FULL_MIN)
    };
    let carried = evidence.loads.iter().filter(full).filter_map(|run| payload_per_s(run, &evidence.got));
    carried.max_by(f64::total_cmp)
}

/// Of a full link's payload TCP leaves some percent to acknowledgements and to its own swings.
const FULL_MIN: f64 = 0.9;

/// What a load's data were of TCP payload, in bytes a second.
pub(super) fn payload_per_s(run: &LoadRun, keys: &Keys) -> Option<f64> {
    Some(Estimate::of_rounds(&run.bytes_per_s)?.value / data_share(&run.load, keys))
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
