//! Negotiated keys, with their offered, agreed and recommended values.
//!
//! All recommendations are in [`advice`]. If a key's value reduces performance, the key is marked, and the
//! reason explains why. Most costs are round trips: a write of B bytes, U of which are unsolicited, needs
//! `ceil((B - U) / (MaxBurstLength * MaxOutstandingR2T))` round trips in addition to its own.

use std::net::SocketAddr;
use std::time::Duration;

use backends::{Failure, remote};
use derive_more::Display;
use foreign::printable;
use iscsi::keys::Key;
use iscsi::login::Authenticated;
use iscsi::negotiate::{Offers, Parameters};
use iscsi::rules::Setting;
use iscsi_client::verbs::Identity;
use iscsi_client::{ConnectionStatistics, Nexus, RemoteTarget, Url};
use readable::figures::significant;
use readable::table::{Align, lines, pairs};
use serde::Serialize;

use crate::pages::hex;

/// A key, as printed; the JSON names are stable.
#[derive(Debug, Serialize)]
pub struct Negotiated {
    key: &'static str,
    /// `null` for a key that only the target declares.
    asked: Option<Value>,
    got: Value,
    /// `null` if the negotiated value is good.
    recommended: Option<Value>,
    reason: Option<&'static str>,
}

/// A key's value, as RFC 7143 writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display)]
#[serde(untagged)]
enum Value {
    Number(u32),
    Word(&'static str),
}

enum Advice {
    /// No recommendation: every value costs nothing, or is worth its cost.
    None,
    /// The recommended value, and the reason.
    Be(Value, &'static str),
    /// The recommended minimum, which may depend on other keys, and the reason.
    AtLeast(fn(&Parameters) -> u32, &'static str),
}

/// The longest write that an operating system is likely to send as one command. On Linux, max_sectors_kb is
/// at most 1280 by default; Windows and ESXi send 1 MiB or less.
const LONG_WRITE_BYTES: u32 = 1 << 20;
/// The values of open-iscsi (FirstBurstLength, MaxRecvDataSegmentLength), for which most targets are
/// therefore tuned.
const USUAL_BYTES: u32 = 256 << 10;

/// The keys that a table lists first.
#[rustfmt::skip]
const FIRST: &[Key] = &[
    Key::HeaderDigest, Key::DataDigest, Key::MaxConnections, Key::InitialR2t, Key::ImmediateData, Key::FirstBurstLength,
    Key::MaxBurstLength, Key::MaxOutstandingR2t, Key::MaxRecvDataSegmentLength,
];
/// Keys that are not shown, because in practice they always have their defaults.
const UNSHOWN: &[Key] = &[Key::DataPduInOrder, Key::DataSequenceInOrder];

impl From<Setting> for Value {
    fn from(setting: Setting) -> Value {
        match setting {
            Setting::Number(number) => Value::Number(number),
            Setting::Flag(true) => YES,
            Setting::Flag(false) => NO,
            Setting::Choice(word) => Value::Word(word),
        }
    }
}

const YES: Value = Value::Word("Yes");
const NO: Value = Value::Word("No");

fn advice(key: Key) -> Advice {
    match key {
        Key::InitialR2t => Advice::Be(
            NO,
            "a write longer than its immediate data waits a round trip before its first R2T",
        ),
        Key::ImmediateData => Advice::Be(
            YES,
            "a write's command carries no data: one more PDU, or a round trip",
        ),
        Key::FirstBurstLength => Advice::AtLeast(
            |_| USUAL_BYTES,
            "a longer write waits for an R2T for the rest",
        ),
        Key::MaxBurstLength => Advice::AtLeast(
            |got| LONG_WRITE_BYTES.div_ceil(got.max_outstanding_r2t.max(1).into()),
            "a write of 1 MiB waits a round trip for each burst, unless several R2Ts are outstanding",
        ),
        Key::MaxOutstandingR2t => Advice::AtLeast(
            |got| LONG_WRITE_BYTES.div_ceil(got.max_burst_length.max(1)),
            "a write of 1 MiB waits a round trip for each burst, unless the bursts are longer",
        ),
        _ => Advice::None,
    }
}

/// Returns every key, in the order of tables. Both MaxRecvDataSegmentLengths are declared, not negotiated.
pub fn negotiated(offers: &Offers, got: &Parameters) -> Vec<Negotiated> {
    let row = |key, asked, value, advice: Advice| {
        let (recommended, reason) = advice.on(value, got).unzip();
        Negotiated {
            key,
            asked,
            got: value,
            recommended,
            reason,
        }
    };
    let segment = |key, asked: Option<u32>, bytes, reason| {
        let advice = Advice::AtLeast(|_| USUAL_BYTES, reason);
        row(key, asked.map(Value::Number), Value::Number(bytes), advice)
    };
    let mut rows = Vec::new();
    for (key, value) in got.listed(FIRST, UNSHOWN) {
        match value {
            Some(value) => {
                let asked = offers
                    .settings(key)
                    .and_then(|settings| settings.first().copied());
                rows.push(row(
                    key.name(),
                    asked.map(Value::from),
                    value.into(),
                    advice(key),
                ));
            }
            None => rows.extend([
                segment(
                    "MaxRecvDataSegmentLength, ours",
                    Some(offers.max_recv_data_segment_length),
                    got.local_max_recv_data_segment_length,
                    "reads use shorter PDUs, each of which takes time",
                ),
                segment(
                    "MaxRecvDataSegmentLength, target's",
                    None,
                    got.peer_max_recv_data_segment_length,
                    "writes use shorter PDUs, each of which takes time",
                ),
            ]),
        }
    }
    debug_assert!(
        (1..rows.len()).all(|at| rows[..at].iter().all(|row| row.key != rows[at].key)),
        "each key has one row"
    );
    rows
}

impl Advice {
    /// The value to recommend instead of `got`, and the reason, if there is a recommendation.
    fn on(&self, got: Value, parameters: &Parameters) -> Option<(Value, &'static str)> {
        match (self, got) {
            (Advice::Be(value, reason), _) => (got != *value).then_some((*value, *reason)),
            (Advice::AtLeast(least, reason), Value::Number(number)) => {
                let least = least(parameters);
                (number < least).then_some((Value::Number(least), *reason))
            }
            (Advice::None, _) | (Advice::AtLeast(..), Value::Word(_)) => None,
        }
    }
}

/// A table with a line for each key. Keys with a recommendation are marked, and show the recommended value
/// and the reason.
pub fn table(keys: &[Negotiated]) -> String {
    let headings = [" ", "key", "asked", "got", "better"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(headings)
        .chain(keys.iter().map(Negotiated::row))
        .collect();
    let below = std::iter::once(None).chain(keys.iter().map(|key| key.reason));
    let lines = lines(
        [
            Align::Left,
            Align::Left,
            Align::Right,
            Align::Right,
            Align::Right,
        ],
        &rows,
    );
    debug_assert_eq!(
        lines.len(),
        keys.len() + 1,
        "the headings and each key have a line"
    );
    let with_reason = |(line, reason): (String, Option<&str>)| match reason {
        Some(reason) => format!("{line}\n     {reason}\n"),
        None => line + "\n",
    };
    lines.into_iter().zip(below).map(with_reason).collect()
}

impl Negotiated {
    /// The key.
    pub fn name(&self) -> &'static str {
        self.key
    }

    /// The negotiated value.
    pub fn value(&self) -> String {
        self.got.to_string()
    }

    /// The recommended value and the reason, if there is a recommendation.
    pub fn better(&self) -> Option<String> {
        let (value, reason) = self.recommended.zip(self.reason)?;
        Some(format!("{value}: {reason}"))
    }

    fn row(&self) -> [String; 5] {
        let mark = if self.recommended.is_some() { "!" } else { "" };
        let or_nothing =
            |value: Option<Value>| value.map_or_else(String::new, |value| value.to_string());
        [
            mark.to_owned(),
            self.key.to_owned(),
            or_nothing(self.asked),
            self.got.to_string(),
            or_nothing(self.recommended),
        ]
    }
}

// The session: its initiator and target, its connections, and its parameters.

/// The description of a session. The JSON names are stable.
#[derive(Debug, Serialize)]
pub(crate) struct Session {
    target: String,
    /// The target's alias.
    target_alias: Option<String>,
    address: SocketAddr,
    /// The portal that redirected the login to `address`.
    redirected_from: Option<String>,
    target_portal_group: Option<u16>,
    initiator: String,
    /// The parties that CHAP has authenticated: `none`, `initiator` or `both`.
    authentication: &'static str,
    /// The CHAP name of the initiator, if it was authenticated.
    user: Option<String>,
    isid: String,
    tsih: u16,
    connections: Vec<Connection>,
    negotiated: Vec<Negotiated>,
}

/// A connection, and TCP's current data about its path.
#[derive(Debug, Serialize)]
struct Connection {
    cid: u16,
    local: SocketAddr,
    peer: SocketAddr,
    congestion: Option<String>,
    /// The smoothed round-trip time, and the recent minimum.
    round_trip_us: Option<f64>,
    round_trip_min_us: Option<f64>,
    /// The maximum segment size, and the path MTU.
    segment_bytes: Option<u32>,
    path_mtu_bytes: Option<u32>,
    retransmissions: Option<u32>,
}

impl Connection {
    fn new(connection: ConnectionStatistics) -> Connection {
        let ConnectionStatistics {
            cid,
            local,
            peer,
            path,
        } = connection;
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

    /// The connection's addresses, and the known properties of its path.
    fn text(&self) -> [String; 2] {
        let times = self.round_trip_us.zip(self.round_trip_min_us);
        let ends = [
            Some(format!("from {}", self.local)),
            self.congestion.clone(),
        ];
        let path = [
            times.map(|(now, least)| {
                format!(
                    "round trip {} µs (shortest {})",
                    significant(now),
                    significant(least)
                )
            }),
            self.segment_bytes.map(|bytes| format!("MSS {bytes}")),
            self.path_mtu_bytes.map(|bytes| format!("MTU {bytes}")),
            self.retransmissions
                .filter(|times| *times > 0)
                .map(|times| format!("{times} retransmissions")),
        ];
        let joined =
            |facts: Vec<Option<String>>| facts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        [joined(ends.into()), joined(path.into())]
    }
}

impl Session {
    pub(crate) async fn look(target: &RemoteTarget, url: &Url) -> Session {
        let statistics = target.statistics().await;
        let connections = statistics.map(|all| all.connections).unwrap_or_default();
        let (nexus, parameters) = (target.nexus(), target.parameters());
        let redirected = url
            .portal
            .resolve()
            .await
            .is_ok_and(|asked| !asked.contains(&nexus.address));
        let Nexus {
            initiator,
            isid,
            target,
            target_portal_group_tag,
            tsih,
            address,
            authentication,
        } = nexus;
        let user = url
            .settings
            .account
            .as_ref()
            .map(|account| printable(&account.name));
        Session {
            target,
            target_alias: parameters.target_alias.as_deref().map(printable),
            address,
            redirected_from: redirected.then(|| url.portal.to_string()),
            target_portal_group: target_portal_group_tag,
            initiator,
            authentication: match authentication {
                Authenticated::Neither => "none",
                Authenticated::Initiator => "initiator",
                Authenticated::Both => "both",
            },
            user: user.filter(|_| authentication != Authenticated::Neither),
            isid: hex(&isid.0),
            tsih: tsih.0,
            connections: connections.into_iter().map(Connection::new).collect(),
            negotiated: negotiated(&url.settings.offers, &parameters),
        }
    }

    pub(crate) fn text(&self) -> String {
        let group = self
            .target_portal_group
            .map_or_else(String::new, |tag| format!(", portal group {tag}"));
        let from = self
            .redirected_from
            .as_ref()
            .map(|asked| format!(", redirected from {asked}"));
        let rows = [
            Some(("alias", self.target_alias.clone().unwrap_or_default()))
                .filter(|(_, alias)| !alias.is_empty()),
            Some((
                "portal",
                format!("{}{group}{}", self.address, from.unwrap_or_default()),
            )),
            Some(("initiator", self.initiator.clone())),
            Some(("authentication", self.authentication_text())),
            Some(("session", format!("ISID {}, TSIH {}", self.isid, self.tsih))),
        ];
        format!(
            "{}\n{}\n{}",
            self.target,
            pairs(
                "  ",
                rows.into_iter().flatten().map(owned).chain(self.paths())
            ),
            table(&self.negotiated),
        )
    }

    fn authentication_text(&self) -> String {
        match (&self.user, self.authentication) {
            (None, _) => "none".to_owned(),
            (Some(user), "both") => format!("CHAP as {user}, and of the target (mutual CHAP)"),
            (Some(user), _) => format!("CHAP as {user}"),
        }
    }

    /// Two lines for each connection: its addresses and its path.
    fn paths(&self) -> impl Iterator<Item = (String, String)> {
        self.connections.iter().flat_map(|one| {
            let [ends, path] = one.text();
            let path = (!path.is_empty()).then(|| (String::new(), path));
            [(format!("connection {}", one.cid), ends)]
                .into_iter()
                .chain(path)
        })
    }
}

fn owned((name, value): (&str, String)) -> (String, String) {
    (name.to_owned(), value)
}

// The paths of a LUN over several sessions (multipath): whether each path reaches the LUN, and its access
// state.

/// The current state of a path. The JSON names are stable.
#[derive(Debug, Serialize)]
pub(crate) struct PathInfo {
    /// The portal, and the local address if the URL specifies one.
    path: String,
    /// Whether a login has succeeded and the LUN is reachable.
    usable: bool,
    /// The target port group and its access state (ALUA), if the target reports them.
    port_group: Option<u16>,
    state: Option<String>,
    /// Why the path is not usable.
    problem: Option<String>,
}

/// Checks each path of a URL with a separate session. A path is usable only if it leads to the same unit as
/// the first path that works.
pub(crate) async fn look(url: &Url) -> Vec<PathInfo> {
    let (mut paths, mut unit) = (Vec::new(), None);
    for one in url.paths() {
        let source = one
            .settings
            .stream
            .source
            .map(|source| format!(" from {}", source.ip()));
        let path = format!("{}{}", one.portal, source.unwrap_or_default());
        let (access, problem) = match reached(&one).await {
            Ok((identity, access)) => {
                let first = unit.get_or_insert_with(|| identity.clone());
                let problem = match identity {
                    Identity::Unknown => Some("the LUN has no identifier".to_owned()),
                    other if other != *first => {
                        Some(format!("it leads to {other} instead of {first}"))
                    }
                    _ => None,
                };
                (access, problem)
            }
            Err(failure) => (None, Some(failure.to_string())),
        };
        let (port_group, state) = access.unzip();
        paths.push(PathInfo {
            path,
            usable: problem.is_none(),
            port_group,
            state: state.flatten(),
            problem,
        });
    }
    paths
}

type Access = (u16, Option<String>);

async fn reached(url: &Url) -> Result<(Identity, Option<Access>), Failure> {
    let target = remote::open_target(url).await?;
    let unit = target.unit(url.lun);
    let looked = async {
        let identity = unit.identity().await?;
        let access = unit.own_port_group().await?.map(|(own, groups)| {
            let state = groups
                .iter()
                .find(|group| group.group == own)
                .map(|group| group.state.to_string());
            (own, state)
        });
        Ok((identity, access))
    };
    let looked = looked.await;
    target.close().await;
    looked
}

impl PathInfo {
    /// The path's human-readable description.
    pub(crate) fn row(&self) -> (String, String) {
        let group = self.port_group.map(|group| format!("port group {group}"));
        let problem = self
            .problem
            .as_ref()
            .map(|problem| format!("not usable: {problem}"));
        let facts = [Some(self.path.clone()), group, self.state.clone(), problem];
        (
            "path".to_owned(),
            facts.into_iter().flatten().collect::<Vec<_>>().join(", "),
        )
    }
}

#[cfg(test)]
mod tests {
    use iscsi::negotiate::SessionType;
    use iscsi_client::Settings;

    use super::*;

    fn marked(change: impl FnOnce(&mut Parameters)) -> Vec<&'static str> {
        let mut got = Parameters {
            initial_r2t: false,
            first_burst_length: 256 << 10,
            max_burst_length: 1 << 20,
            local_max_recv_data_segment_length: 256 << 10,
            peer_max_recv_data_segment_length: 256 << 10,
            ..Parameters::defaults(SessionType::Normal)
        };
        change(&mut got);
        let keys = negotiated(&Settings::default().offers, &got);
        keys.iter()
            .filter(|key| key.recommended.is_some())
            .map(|key| key.key)
            .collect()
    }

    #[test]
    fn what_costs_nothing_is_not_marked() {
        assert!(marked(|_| {}).is_empty());
    }

    #[test]
    fn what_costs_round_trips_is_marked() {
        assert_eq!(marked(|got| got.initial_r2t = true), ["InitialR2T"]);
        assert_eq!(marked(|got| got.immediate_data = false), ["ImmediateData"]);
        assert_eq!(
            marked(|got| got.first_burst_length = 65_536),
            ["FirstBurstLength"]
        );
    }

    #[test]
    fn short_bursts_are_as_good_as_long_ones_if_several_are_asked_for_at_once() {
        let bursts = ["MaxBurstLength", "MaxOutstandingR2T"];
        assert_eq!(marked(|got| got.max_burst_length = 256 << 10), bursts);
        let several =
            |got: &mut Parameters| (got.max_burst_length, got.max_outstanding_r2t) = (256 << 10, 4);
        assert!(marked(several).is_empty());
    }

    #[test]
    fn a_mark_comes_with_its_reason() {
        let got = Parameters::defaults(SessionType::Normal);
        let keys = negotiated(&Settings::default().offers, &got);
        assert!(
            keys.iter()
                .all(|key| key.reason.is_some() == key.recommended.is_some())
        );
        let table = table(&keys);
        assert!(table.contains("!  InitialR2T "), "{table}");
    }
}
