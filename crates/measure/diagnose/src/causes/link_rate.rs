//! The link runs at less than it is built for: a bad cable, a port that was set by hand, a switch between.

use super::Found;
use crate::case::Case;
use crate::roof;
use crate::{Cause, Where, words};
use model::Term;

/// One step down Ethernet's ladder is half the rate or less. TCP that has not filled a long way yet is not that far from it.
const FALLEN_MIN: f64 = 1.8;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
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
    let mut because = vec![match case.signs.queued(case.layers) {
        true => format!(
            "{} went through, and the round trip grew from {} to {}: packets waited for a link that was full.",
            words::rate(case.rate.value),
            words::time(case.layers.round_trip_s),
            words::time(case.layers.round_trip_s + case.signs.queue_s),
        ),
        false => format!("{} went through, in every round the same.", words::rate(case.rate.value)),
    }];
    because.push(match roof::step(case.evidence, carried_per_s) {
        Some(bits_per_s) => format!(
            "That is {} of what Ethernet carries at {}, and {says} {}.",
            words::share(carried_per_s / roof::link_payload_per_s(case.evidence, bits_per_s)),
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
        Where::Network.remedy(
            "look at the speed of every port on the way, on both ends of every cable: a pair that is broken \
             makes Gigabit fall back to 100 Mbit/s; replace the cable",
        ),
        Where::Kernel.remedy(
            "ethtool INTERFACE (speed, duplex, link partner), then ethtool -s INTERFACE autoneg on; tc -s \
             qdisc show dev INTERFACE for a shaper",
        ),
        Where::Windows
            .remedy("Get-NetAdapter | Select Name, LinkSpeed; set Speed & Duplex to Auto Negotiation"),
        Where::Esxi.remedy("esxcli network nic list, then esxcli network nic set -n VMNIC -a"),
        Where::Target.remedy("the speed of its port, and a limit for this host"),
    ];
    Some(Found { cause: Cause::LinkRate, because, gain, remedies, trial: None })
}
