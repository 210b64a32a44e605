//! One of several connections has a slower way than the others: commands take turns on them, and the slow one holds its
//! share back.

use super::{Found, remedy};
use crate::diagnosis::case::Case;
use crate::diagnosis::layers::median;
use crate::diagnosis::{Cause, PathLayer, Where, words};

/// A way that takes half as long again as the best one is another way.
const SLOWER_MIN: f64 = 1.5;
/// Less than that, on ways of a tenth of a millisecond, is which CPU answers.
const GAP_MIN_S: f64 = 0.000_3;

pub(in crate::diagnosis) fn find(case: &Case<'_>) -> Option<Found> {
    let ways: Vec<(&PathLayer, f64)> =
        case.evidence.paths.iter().filter_map(|path| Some((path, way_s(path)?))).collect();
    let (best, best_s) = ways.iter().copied().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let (worst, worst_s) = ways.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))?;
    if worst_s < best_s * SLOWER_MIN || worst_s - best_s < GAP_MIN_S {
        return None;
    }
    let mean_s = ways.iter().map(|(_, way_s)| way_s).sum::<f64>() / ways.len() as f64;
    let service_s = case.service_s();
    let mended_s = (service_s - (mean_s - best_s)).max(best_s);
    let link_per_s = case.setting.path.payload_per_s.unwrap_or(f64::INFINITY);
    let gain = case.gain_to((case.rate.value * service_s / mended_s).min(link_per_s));
    let because = vec![
        format!(
            "A NOP takes {} on connection {} ({}), and {} on connection {} ({}).",
            words::time(worst_s),
            worst.cid,
            worst.peer,
            words::time(best_s),
            best.cid,
            best.peer,
        ),
        format!(
            "Commands take turns on all {} connections: on average a request has {} more than it would have \
             on the best.",
            ways.len(),
            words::time(mean_s - best_s),
        ),
    ];
    let remedies = vec![
        remedy(
            Where::Network,
            format!(
                "compare the ways of the connections: traceroute, port speeds, the switch or the subnet that \
                 connection {} goes through",
                worst.cid
            ),
        ),
        remedy(Where::Url, "until it is mended, connections=1 by the better way"),
        remedy(
            Where::Kernel,
            "with multipath: path_selector \"service-time 0\" in /etc/multipath.conf, which gives the slower \
             path less",
        ),
        remedy(Where::Esxi, "esxcli storage nmp psp roundrobin deviceconfig set -d DEVICE --type latency"),
        remedy(Where::Windows, "Set-MSDSMGlobalDefaultLoadBalancePolicy -Policy LQD (least queue depth)"),
    ];
    // The first connection of a new session may be the slow one: one connection less is no trial of the cause.
    Some(Found { cause: Cause::SlowPath, because, gain, remedies, trial: None })
}

/// What a NOP takes on a connection, in seconds, or TCP's round trip.
fn way_s(path: &PathLayer) -> Option<f64> {
    let told_s = path.round_trip_us / 1e6;
    let way_s = median(&path.nop).map_or(told_s, |nop| nop.value);
    (way_s > 0.0 && way_s.is_finite()).then_some(way_s)
}
