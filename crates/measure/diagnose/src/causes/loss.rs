//! Packets are lost, and TCP halves what it lets be on the way each time.

use super::Found;
use crate::case::{Case, Setting};
use crate::{Cause, Known, Where, words};
use model::{Direction, Term};

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    // Before a full link packets are dropped too: that is how TCP learns of it. And nothing is lost within a machine.
    let full = case.roof.full_per_s.is_some() && case.modelled.binding() == Some(Term::Link);
    if !case.signs.lossy() || full || case.roof.loopback {
        return None;
    }
    let gain = case.gain_without(Setting::open_windows);
    let how = match case.load().direction {
        Direction::Write => "of the segments that this machine sent had to be sent again",
        Direction::Read => "of the segments that came were out of order, behind one that was missing",
    };
    let mut because = vec![
        format!("{} {how}.", words::share(case.signs.lost)),
        format!(
            "Without losses, {} requests of {} at a round trip of {} would come to {} instead of {}.",
            case.load().depth,
            words::size(f64::from(case.load().block_bytes)),
            words::time(case.layers.round_trip_s),
            words::rate(case.rate.value * gain.predicted.unwrap_or(1.0)),
            words::rate(case.rate.value),
        ),
    ];
    if let Known::Measured(link) = &case.evidence.link
        && link.faults > 0
    {
        because.push(format!(
            "The interface {} counted {} packets dropped or damaged meanwhile.",
            link.interface, link.faults
        ));
    }
    let remedies = vec![
        Where::Network.remedy(
            "error and drop counters of every switch port on the way; a cable, a plug or an optic that is \
             going bad, a duplex mismatch, a port buffer that overflows (flow control, fewer hosts at \
             once)",
        ),
        Where::Kernel.remedy(
            "ip -s link show INTERFACE and ethtool -S INTERFACE for errors; ethtool -g and -G for a longer \
             receive ring",
        ),
        Where::Kernel.remedy(
            "until it is found: sysctl -w net.ipv4.tcp_congestion_control=bbr on the side that sends, which \
             does not slow down for single losses",
        ),
        Where::Url.remedy("congestion=bbr, for writes"),
        Where::Linerate.remedy("[[portal]] congestion = \"bbr\", for reads"),
    ];
    Some(Found { cause: Cause::Loss, because, gain, remedies, trial: None })
}
