//! The session: between whom, by which connections, on what terms.

use std::net::SocketAddr;
use std::time::Duration;

use iscsi_client::{ConnectionStatistics, Nexus, RemoteTarget, Url};
use serde::Serialize;

use crate::negotiation::{self, Negotiated};
use crate::pages::hex;
use stats::figures::significant;
use stats::printable;
use stats::table::pairs;

/// The names of the JSON are promised.
#[derive(Debug, Serialize)]
pub(crate) struct Session {
    target: String,
    /// What the target calls itself, for people.
    target_alias: Option<String>,
    address: SocketAddr,
    /// Who was asked, if the target sent us from there to `address`.
    redirected_from: Option<String>,
    target_portal_group: Option<u16>,
    initiator: String,
    isid: String,
    tsih: u16,
    connections: Vec<Connection>,
    negotiated: Vec<Negotiated>,
}

/// A connection, and what TCP knows of its path by now.
#[derive(Debug, Serialize)]
struct Connection {
    cid: u16,
    local: SocketAddr,
    peer: SocketAddr,
    congestion: Option<String>,
    /// The smoothed round-trip time, and the shortest of late.
    round_trip_us: Option<f64>,
    round_trip_min_us: Option<f64>,
    /// The largest segment, and the largest packet on the way.
    segment_bytes: Option<u32>,
    path_mtu_bytes: Option<u32>,
    retransmissions: Option<u32>,
}

impl Connection {
    fn new(connection: ConnectionStatistics) -> Connection {
        let ConnectionStatistics { cid, local, peer, path } = connection;
        let path = path.as_ref();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        Connection {
            cid: cid.0,
            local,
            peer,
            congestion: path.map(|path| path.congestion.clone()),
            round_trip_us: path.map(|path| us(path.round_trip)),
            round_trip_min_us: path.and_then(|path| path.round_trip_min).map(us),
            segment_bytes: path.map(|path| path.segment_bytes),
            path_mtu_bytes: path.map(|path| path.path_mtu_bytes),
            retransmissions: path.map(|path| path.retransmissions),
        }
    }

    /// Its ends, and what is known of its path.
    fn text(&self) -> [String; 2] {
        let times = self.round_trip_us.zip(self.round_trip_min_us);
        let ends = [Some(format!("from {}", self.local)), self.congestion.clone()];
        let path = [
            times.map(|(now, least)| {
                format!("round trip {} µs (shortest {})", significant(now), significant(least))
            }),
            self.segment_bytes.map(|bytes| format!("MSS {bytes}")),
            self.path_mtu_bytes.map(|bytes| format!("MTU {bytes}")),
            self.retransmissions.filter(|times| *times > 0).map(|times| format!("{times} retransmissions")),
        ];
        let joined = |facts: Vec<Option<String>>| facts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        [joined(ends.into()), joined(path.into())]
    }
}

impl Session {
    pub(crate) async fn look(target: &RemoteTarget, url: &Url) -> Session {
        let statistics = target.statistics().await;
        let connections = statistics.map(|all| all.connections).unwrap_or_default();
        let (nexus, parameters) = (target.nexus(), target.parameters());
        let redirected = url.portal.resolve().await.is_ok_and(|asked| !asked.contains(&nexus.address));
        let Nexus { initiator, isid, target, target_portal_group_tag, tsih, address } = nexus;
        Session {
            target,
            target_alias: parameters.target_alias.as_deref().map(printable),
            address,
            redirected_from: redirected.then(|| url.portal.to_string()),
            target_portal_group: target_portal_group_tag,
            initiator,
            isid: hex(&isid.0),
            tsih: tsih.0,
            connections: connections.into_iter().map(Connection::new).collect(),
            negotiated: negotiation::negotiated(&url.settings.offers(), &parameters),
        }
    }

    pub(crate) fn text(&self) -> String {
        let group = self.target_portal_group.map_or_else(String::new, |tag| format!(", portal group {tag}"));
        let from = self.redirected_from.as_ref().map(|asked| format!(", redirected from {asked}"));
        let rows = [
            Some(("alias", self.target_alias.clone().unwrap_or_default()))
                .filter(|(_, alias)| !alias.is_empty()),
            Some(("portal", format!("{}{group}{}", self.address, from.unwrap_or_default()))),
            Some(("initiator", self.initiator.clone())),
            Some(("session", format!("ISID {}, TSIH {}", self.isid, self.tsih))),
        ];
        format!(
            "{}\n{}\n{}",
            self.target,
            pairs("  ", rows.into_iter().flatten().map(owned).chain(self.paths())),
            negotiation::table(&self.negotiated),
        )
    }

    /// Two lines for each connection: its ends, and its path.
    fn paths(&self) -> impl Iterator<Item = (String, String)> {
        self.connections.iter().flat_map(|one| {
            let [ends, path] = one.text();
            let path = (!path.is_empty()).then(|| (String::new(), path));
            [(format!("connection {}", one.cid), ends)].into_iter().chain(path)
        })
    }
}

fn owned((name, value): (&str, String)) -> (String, String) {
    (name.to_owned(), value)
}
