//! Adapts findings to an NBD export: replaces the remedies for iSCSI by those for NBD servers and clients.
//! Also finds the causes that only NBD has.

use super::words;
use crate::case::Case;
use crate::causes::Found;
use crate::{Cause, Gain, NbdSession, Otherwise, Remedy, Where};

/// The usual number of connections of a client configured for several.
pub(crate) const CONNECTIONS: u16 = 4;

pub(super) fn told(found: Found, session: &NbdSession) -> Found {
    let Found {
        cause,
        because,
        gain,
        remedies,
        trial,
    } = found;
    let more = more(cause, session);
    let kept = remedies
        .into_iter()
        .filter_map(|remedy| kept(cause, remedy));
    let trial = match cause {
        Cause::TcpWindow => {
            may_have_more(session).then(|| Otherwise::Connections(CONNECTIONS).change())
        }
        _ => trial,
    };
    Found {
        cause,
        because,
        gain,
        remedies: more.into_iter().chain(kept).collect(),
        trial,
    }
}

fn may_have_more(session: &NbdSession) -> bool {
    session.multi_conn && session.connections < CONNECTIONS
}

/// Returns a remedy that exists only for NBD.
fn more(cause: Cause, session: &NbdSession) -> Option<Remedy> {
    match cause {
        Cause::TcpWindow if may_have_more(session) => {
            Some(Where::Url.remedy(format!("connections={CONNECTIONS}: each one has its own TCP window")))
        }
        Cause::DelayedAck => Some(Where::Server.remedy(
            "set TCP_NODELAY on its sockets, and send a reply's header and data in one write (writev, \
             MSG_MORE); look for a proxy or tunnel on the path that does neither",
        )),
        _ => None,
    }
}

/// Returns the remedy if it also applies to NBD.
fn kept(cause: Cause, remedy: Remedy) -> Option<Remedy> {
    let at = match (remedy.at, cause) {
        (Where::OpenIscsi | Where::Windows | Where::Esxi | Where::Lio, _) => return None,
        // This remedy changes the buffers of a host, and applies to any server.
        (Where::Tgt, Cause::TcpWindow) => Where::Server,
        (Where::Tgt, _) => return None,
        // These remedies change settings that only iSCSI has: the buffers of sockets and portals.
        (Where::Url | Where::Linerate, Cause::TcpWindow) | (Where::Linerate, Cause::Loss) => {
            return None;
        }
        (Where::Target, Cause::DelayedAck) | (Where::Kernel, Cause::SlowPath) => return None,
        (Where::Target, _) => {
            return Some(Remedy {
                at: Where::Server,
                change: remedy.change.replace("target", "server"),
            });
        }
        (at, _) => at,
    };
    Some(Remedy { at, ..remedy })
}

// One NBD connection is slower than several. This is measured, in rounds that alternate with the load's own.

/// The minimum round trip for a statement about data in transit. On a shorter path, the two ends take most of
/// the time, so the amount of data in transit proves nothing.
const FAR_S: f64 = 0.000_5;

pub(crate) fn connections(case: &Case<'_>) -> Option<Found> {
    let (beside, tried) = case.run.tried(Otherwise::is_connections)?;
    let Otherwise::Connections(count) = beside.otherwise else {
        return None;
    };
    let now = case.evidence.paths.len().max(1);
    let (without, with) = beside.medians();
    let mut because = vec![format!(
        "In alternating rounds, the throughput was {} over {} and {} over {count}: several connections are \
         faster by {}.",
        words::rate(without),
        if now == 1 {
            "one connection".to_owned()
        } else {
            format!("{now} connections")
        },
        words::rate(with),
        words::share(tried.ratio - 1.0),
    )];
    if case.layers.round_trip_s >= FAR_S {
        because.push(format!(
            "A connection transferred {} per round trip of {}. This amount is either its TCP window or the \
             server's limit per connection; the client cannot determine which.",
            words::size((case.rate.value * case.layers.round_trip_s / now as f64).round()),
            words::time(case.layers.round_trip_s),
        ));
    }
    if let Some(busy) = case.run.server_busy {
        because.push(format!(
            "The server's busiest thread ran {} of the time, and this machine's busiest thread {} of the \
             time.",
            words::share(busy),
            words::share(case.run.client_busy),
        ));
    }
    let remedies = vec![
        Where::Url.remedy(format!("connections={count}")),
        Where::NbdClient.remedy(format!("nbd-client -C {count} -N EXPORT HOST /dev/nbd0")),
        Where::Nbdcopy.remedy(format!("nbdcopy --connections={count}")),
        Where::Server.remedy(
            "raise its limits per connection: threads (nbdkit -t), a rate limit (nbdkit's rate filter: \
             connection-rate), TCP buffers (net.ipv4.tcp_wmem for reads, tcp_rmem for writes)",
        ),
    ];
    let gain = Gain {
        predicted: Some(tried.ratio),
        low: tried.low,
        high: tried.high,
        confirmed: None,
    };
    let trial = Some(beside.otherwise.change());
    Some(Found {
        cause: Cause::Connections,
        because,
        gain,
        remedies,
        trial,
    })
}

/// Encryption takes time that the same load does not need without TLS. This is measured, in rounds that
/// alternate with the load's own.
pub(crate) fn tls(case: &Case<'_>) -> Option<Found> {
    let (beside, tried) = case.run.tried(Otherwise::is_plain)?;
    let (without, with) = beside.medians();
    let busy = match case.run.server_busy {
        Some(busy) => format!(
            ", and the server's busiest thread {} of the time",
            words::share(busy)
        ),
        None => String::new(),
    };
    let because = vec![
        format!(
            "In alternating rounds, the throughput was {} over TLS and {} without TLS.",
            words::rate(without),
            words::rate(with),
        ),
        format!(
            "Over TLS, the thread that sends the requests ran {} of the time{busy}: each byte is encrypted, \
             decrypted and copied.",
            words::share(case.run.client_busy),
        ),
    ];
    let remedies = vec![
        Where::Url.remedy("use nbd:// instead of nbds://, but only on an isolated network"),
        Where::Linerate.remedy("[nbd] tls = \"allowed\", for hosts on an isolated network"),
        Where::Network.remedy(
            "encrypt at a lower layer: WireGuard or IPsec in the kernel, or MACsec in the network card",
        ),
        Where::Server.remedy("use CPUs with AES instructions at both ends (grep aes /proc/cpuinfo)"),
    ];
    let gain = Gain {
        predicted: Some(tried.ratio),
        low: tried.low,
        high: tried.high,
        confirmed: None,
    };
    let trial = Some(beside.otherwise.change());
    Some(Found {
        cause: Cause::Tls,
        because,
        gain,
        remedies,
        trial,
    })
}
