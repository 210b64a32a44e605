//! The link runs at less than it is built for: a bad cable, a port that was set by hand, a switch between.

use super::{Found, remedy};
use crate::diagnosis::case::Case;
use crate::diagnosis::roof;
use crate::diagnosis::{Cause, Known, Where, words};
use crate::model::Term;

/// The rates of Ethernet, in bits a second.
const LADDER: [f64; 11] = [10e6, 100e6, 1e9, 2.5e9, 5e9, 10e9, 25e9, 40e9, 50e9, 100e9, 200e9];
/// One step down Ethernet's ladder is half the rate or less. TCP that has not filled a long way yet is not that far from it.
const FALLEN_MIN: f64 = 1.8;
/// What TCP gets of a rate: the best implementations all, the others nine tenths.
const REACHED: std::ops::Range<f64> = 0.9..1.02;

pub(in crate::diagnosis) fn find(case: &Case<'_>) -> Option<Found> {
    let built_for = case.roof.built_for?;
    let carried_per_s = case.roof.full_per_s?;
    if case.modelled.binding() != Some(Term::Link) {
        return None;
    }
    if built_for.payload_per_s < FALLEN_MIN * carried_per_s {
        return None;
    }
    let gain = case.gain_of(|setting| setting.path.payload_per_s = Some(built_for.payload_per_s));
    let says = if built_for.said { "you say" } else { "the interface says" };
    let mut because = vec![format!(
        "{} went through, and the round trip grew from {} to {}: packets waited for a link that was full.",
        words::rate(case.rate.value),
        words::time(case.layers.round_trip_s),
        words::time(case.layers.round_trip_s + case.signs.queue_s),
    )];
    because.push(match step(case, carried_per_s) {
        Some(bits_per_s) => format!(
            "That is {} of what Ethernet carries at {}, and {says} {}.",
            words::share(carried_per_s / payload_per_s(case, bits_per_s)),
            words::bits(bits_per_s),
            words::bits(built_for.bits_per_s),
        ),
        None => format!(
            "{says} {}, which would carry {}.",
            words::bits(built_for.bits_per_s),
            words::rate(built_for.payload_per_s)
        ),
    });
    let remedies = vec![
        remedy(
            Where::Network,
            "look at the speed of every port on the way, on both ends of every cable: a pair that is broken \
             makes Gigabit fall back to 100 Mbit/s; replace the cable",
        ),
        remedy(
            Where::Kernel,
            "ethtool INTERFACE (speed, duplex, link partner), then ethtool -s INTERFACE autoneg on; tc -s \
             qdisc show dev INTERFACE for a shaper",
        ),
        remedy(
            Where::Windows,
            "Get-NetAdapter | Select Name, LinkSpeed; set Speed & Duplex to Auto Negotiation",
        ),
        remedy(Where::Esxi, "esxcli network nic list, then esxcli network nic set -n VMNIC -a"),
        remedy(Where::Target, "the speed of its port, and a limit for this host"),
    ];
    Some(Found { cause: Cause::LinkRate, because, gain, remedies, trial: None })
}

/// The rate of Ethernet that a link ran at, if it is one.
fn step(case: &Case<'_>, carried_per_s: f64) -> Option<f64> {
    LADDER
        .into_iter()
        .find(|bits_per_s| REACHED.contains(&(carried_per_s / payload_per_s(case, *bits_per_s))))
}

fn payload_per_s(case: &Case<'_>, bits_per_s: f64) -> f64 {
    let layer = match &case.evidence.link {
        Known::Measured(layer) => Some(layer),
        Known::Unknown(_) => None,
    };
    roof::link(bits_per_s, layer).payload_per_s()
}
