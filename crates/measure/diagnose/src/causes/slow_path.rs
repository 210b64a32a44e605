//! One of several connections has a slower way than the others, and the commands that take it come back late.

use super::Found;
use crate::case::Case;
use crate::layers::median;
use crate::{Cause, PathLayer, PathUnderLoad, Where, words};
use model::{Direction, Prediction};

/// A way that takes half as long again as the best one is another way.
const SLOWER_MIN: f64 = 1.5;
/// Less than that, on ways of a tenth of a millisecond, is which CPU answers.
const GAP_MIN_S: f64 = 0.000_3;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let ways: Vec<(&PathLayer, f64)> =
        case.evidence.paths.iter().filter_map(|path| Some((path, way_s(path)?))).collect();
    let (best, best_s) = ways.iter().copied().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let (worst, worst_s) = ways.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))?;
    if worst_s < best_s * SLOWER_MIN || worst_s - best_s < GAP_MIN_S {
        return None;
    }
    let gain = case.gain_to(mended_per_s(case, best, best_s, ways.len()));
    let because = vec![
        format!(
            "{} takes {} on connection {} ({}), and {} on connection {} ({}).",
            if case.evidence.nbd.is_some() { "The round trip" } else { "A NOP" },
            words::time(worst_s),
            worst.cid,
            worst.peer,
            words::time(best_s),
            best.cid,
            best.peer,
        ),
        format!(
            "Connection {} carried {} of the data of all {}.",
            worst.cid,
            words::share(carried(case, worst.cid)),
            ways.len(),
        ),
    ];
    let remedies = vec![
        Where::Network.remedy(format!(
            "compare the ways of the connections: traceroute, port speeds, the switch or the subnet that \
                 connection {} goes through",
            worst.cid
        )),
        Where::Url.remedy("until it is mended, connections=1 by the better way"),
        Where::Kernel.remedy(
            "with multipath: path_selector \"service-time 0\" in /etc/multipath.conf, which gives the slower \
             path less",
        ),
        Where::Esxi.remedy("esxcli storage nmp psp roundrobin deviceconfig set -d DEVICE --type latency"),
        Where::Windows.remedy("Set-MSDSMGlobalDefaultLoadBalancePolicy -Policy LQD (least queue depth)"),
    ];
    // The first connection of a new session may be the slow one: one connection less is no trial of the cause.
    Some(Found { cause: Cause::SlowPath, because, gain, remedies, trial: None })
}

/// What all connections would give if they were like the best. If that one is full, all of them would be; otherwise
/// requests would take what they take there.
fn mended_per_s(case: &Case<'_>, best: &PathLayer, best_s: f64, connections: usize) -> f64 {
    let under_load_s =
        case.run.paths.iter().find(|path| path.cid == best.cid).map(|path| path.round_trip_us / 1e6);
    let queued = under_load_s.is_some_and(|under_load_s| under_load_s > best_s * FULL_MIN + QUEUE_MIN_S);
    let share = carried(case, best.cid);
    let all_like_it = case.rate.value * share * connections as f64;
    if queued && case.load().depth > 1 {
        return all_like_it.max(case.rate.value);
    }
    if carried(case, best.cid) >= ALONE_MIN {
        return case.rate.value;
    }
    let mut setting = case.setting.clone();
    // Half of the requests that are late look like a full medium or a full window.
    setting.path.medium_per_s = None;
    setting.path.window_bytes = None;
    setting.path.round_trip_s = setting.path.round_trip_s.min(best_s);
    setting.path.exchange_s = best_s - setting.path.round_trip_s;
    setting.path.payload_per_s = setting.path.payload_per_s.map(|payload| payload * connections as f64);
    softly(&setting.predict())
}

/// Requests that take their ways by chance do not fill all of them alike: where depth and link limit to nearly the same,
/// neither is reached. The power is that of the lab: of 56 and 55 MB/s, 45 were measured.
fn softly(prediction: &Prediction) -> f64 {
    const POWER: f64 = 3.0;
    prediction.terms.iter().map(|(_, per_s)| per_s.powf(-POWER)).sum::<f64>().powf(-1.0 / POWER)
}

/// What a connection had of all data.
fn carried(case: &Case<'_>, cid: u16) -> f64 {
    let bytes = |path: &PathUnderLoad| match case.load().direction {
        Direction::Read => path.received_bytes as f64,
        Direction::Write => path.sent_bytes as f64,
    };
    let all: f64 = case.run.paths.iter().map(bytes).sum();
    let own: f64 = case.run.paths.iter().filter(|path| path.cid == cid).map(bytes).sum();
    if all > 0.0 { own / all } else { 1.0 }
}

/// A round trip that is twice as long under the load: the connection has a queue in the network.
const FULL_MIN: f64 = 2.0;
const QUEUE_MIN_S: f64 = 0.001;
/// A load all of whose commands take the best connection anyway.
const ALONE_MIN: f64 = 0.95;

/// What a NOP takes on a connection, in seconds, or TCP's round trip.
fn way_s(path: &PathLayer) -> Option<f64> {
    let told_s = path.round_trip_us / 1e6;
    let way_s = median(&path.nop).map_or(told_s, |nop| nop.value);
    (way_s > 0.0 && way_s.is_finite()).then_some(way_s)
}
