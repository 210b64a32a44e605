//! One connection of NBD gives less than several would: which was tried, in rounds beside its own.

use super::Found;
use crate::case::Case;
use crate::{Cause, Gain, Otherwise, Where, words};

/// On a shorter way it is the ends that take the time, and what is on the way at once says nothing.
const FAR_S: f64 = 0.000_5;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let (beside, tried) = case.run.tried(Otherwise::is_connections)?;
    let Otherwise::Connections(count) = beside.otherwise else { return None };
    let now = case.evidence.paths.len().max(1);
    let (without, with) = beside.medians();
    let mut because = vec![format!(
        "In rounds that took turns there were {} by {}, and {} by {count}: several connections are faster by {}.",
        words::rate(without),
        if now == 1 { "one connection".to_owned() } else { format!("{now} connections") },
        words::rate(with),
        words::share(tried.ratio - 1.0),
    )];
    if case.layers.round_trip_s >= FAR_S {
        because.push(format!(
            "A connection moved {} in each round trip of {}. That is its TCP window, or what the server does for one \
             connection: which of the two is not to be seen from here.",
            words::size((case.rate.value * case.layers.round_trip_s / now as f64).round()),
            words::time(case.layers.round_trip_s),
        ));
    }
    if let Some(busy) = case.run.server_busy {
        because.push(format!(
            "The server's busiest thread ran for {} of the time, and the one of this machine for {}.",
            words::share(busy),
            words::share(case.run.client_busy),
        ));
    }
    let remedies = vec![
        Where::Url.remedy(format!("connections={count}")),
        Where::NbdClient.remedy(format!("nbd-client -C {count} -N EXPORT HOST /dev/nbd0")),
        Where::Nbdcopy.remedy(format!("nbdcopy --connections={count}")),
        Where::Server.remedy(
            "what it does for one connection: threads (nbdkit -t), a limit (nbdkit's rate filter: connection-rate), TCP \
             buffers (net.ipv4.tcp_wmem for reads, tcp_rmem for writes)",
        ),
    ];
    let gain = Gain { predicted: Some(tried.ratio), low: tried.low, high: tried.high, confirmed: None };
    let trial = Some(beside.otherwise.change());
    Some(Found { cause: Cause::Connections, because, gain, remedies, trial })
}
