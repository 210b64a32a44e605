//! The status of sessions, as plain values that are created on request. Also determines which sessions a
//! configuration change would affect, so that the server can refuse a change that removes something in use.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use front_end_core::{Portal, Traffic};
use iscsi::keys::Key;
use iscsi::negotiate::Parameters;

use crate::config::Config;

/// A session.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The authenticated CHAP name; `None` without authentication.
    pub user: Option<String>,
    /// The initiator's half of the session's identity, in hexadecimal.
    pub isid: String,
    /// The target's half of the session's identity.
    pub tsih: u16,
    /// The target's name; `None` for a discovery session.
    pub target: Option<String>,
    /// Time since its login.
    pub age: Duration,
    /// The reactor thread that runs the session.
    pub core: usize,
    /// Its connections.
    pub connections: Vec<ConnectionStatus>,
    /// The negotiated parameters, as `Key=Value`.
    pub parameters: Vec<String>,
    /// The numbers of the LUNs that the session sees.
    pub luns: Vec<u16>,
    /// Outstanding commands.
    pub in_flight: usize,
    /// Its traffic so far.
    pub traffic: Traffic,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct ConnectionStatus {
    /// The CID.
    pub cid: u16,
    /// The initiator's address.
    pub peer: SocketAddr,
    /// The local address.
    pub local: SocketAddr,
}

/// Returns the negotiated keys as `Key=Value`. Keys that affect performance come first.
pub(crate) fn keys(parameters: &Parameters) -> Vec<String> {
    use Key::*;
    #[rustfmt::skip]
    const FIRST: &[Key] = &[
        HeaderDigest, DataDigest, InitialR2t, ImmediateData, FirstBurstLength, MaxBurstLength, MaxRecvDataSegmentLength,
        MaxOutstandingR2t,
    ];
    #[rustfmt::skip]
    const UNSHOWN: &[Key] = &[
        DefaultTime2Wait, DefaultTime2Retain, DataPduInOrder, DataSequenceInOrder, TaskReporting, IscsiProtocolLevel,
    ];
    let mut lines = Vec::new();
    for (key, value) in parameters.listed(FIRST, UNSHOWN) {
        match value {
            Some(value) => lines.push(format!("{}={value}", key.name())),
            None => lines.extend([
                format!(
                    "MaxRecvDataSegmentLength={}",
                    parameters.local_max_recv_data_segment_length
                ),
                format!(
                    "InitiatorMaxRecvDataSegmentLength={}",
                    parameters.peer_max_recv_data_segment_length
                ),
            ]),
        }
    }
    lines
}

/// The loss that a configuration change would cause for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The session's initiator.
    pub initiator: String,
    /// The session's target.
    pub target: String,
    /// The resource that the session would lose.
    pub what: Lost,
}

/// The kinds of losses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The target, or access to it.
    Target,
    /// These LUNs: removed, or mapped to other volumes.
    Luns(Vec<u16>),
    /// The portal through which the session is connected.
    Portal,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss {
            initiator,
            target,
            what,
        } = self;
        match what {
            Lost::Target => write!(f, "{initiator} uses the target {target}"),
            Lost::Luns(luns) => {
                let luns: Vec<String> = luns.iter().map(u16::to_string).collect();
                write!(f, "{initiator} uses LUN {} of {target}", luns.join(", "))
            }
            Lost::Portal => write!(
                f,
                "{initiator} uses {target} through a portal that would be removed"
            ),
        }
    }
}

/// Returns the losses of these sessions if `wanted` were served instead of `now`, on `wanted_portals` instead
/// of `portals`.
pub(crate) fn losses(
    sessions: &[SessionStatus],
    now: &Config,
    portals: &[Portal],
    wanted: &Config,
    wanted_portals: &[Portal],
) -> Vec<Loss> {
    let of = |session: &SessionStatus| {
        let target = session.target.clone()?;
        let what = lost(session, &target, now, portals, wanted, wanted_portals)?;
        Some(Loss {
            initiator: session.initiator.clone(),
            target,
            what,
        })
    };
    sessions.iter().filter_map(of).collect()
}

fn lost(
    session: &SessionStatus,
    name: &str,
    now: &Config,
    portals: &[Portal],
    wanted: &Config,
    wanted_portals: &[Portal],
) -> Option<Lost> {
    let user = session.user.as_deref();
    let came_by = |portal: &Portal| {
        session
            .connections
            .iter()
            .any(|link| portal.took_in(link.local))
    };
    let tag = portals
        .iter()
        .find(|portal| came_by(portal))
        .map_or(0, |portal| portal.tag);
    let admits = |peer| {
        move |target: &&Arc<crate::Target>| target.keeps(&session.initiator, peer, user, tag)
    };
    let mut peers = session.connections.iter().map(|link| link.peer.ip());
    let target = wanted.target(name);
    let Some(target) = target.filter(|target| peers.all(|peer| admits(peer)(target))) else {
        return Some(Lost::Target);
    };
    let unit_now = |lun: u16| {
        let exports = &now.target(name)?.exports;
        exports
            .iter()
            .find(|export| export.lun == lun)
            .map(|export| &export.unit)
    };
    let stays = |lun: u16| {
        let export = target.exports.iter().find(|export| export.lun == lun)?;
        let is_same = Arc::ptr_eq(&export.unit, unit_now(lun)?);
        (is_same && export.is_seen_by(&session.initiator)).then_some(())
    };
    let luns: Vec<u16> = session
        .luns
        .iter()
        .copied()
        .filter(|lun| stays(*lun).is_none())
        .collect();
    if !luns.is_empty() {
        return Some(Lost::Luns(luns));
    }
    // Match a portal with port 0 by its address only, because the configuration does not contain its actual
    // port.
    let is_there = |portal: &Portal| {
        wanted_portals.iter().any(|other| {
            let (Some(wanted), Some(now)) = (other.listen.inet(), portal.listen.inet()) else {
                return false;
            };
            let is_same_port = wanted.port() == 0 || wanted.port() == now.port();
            let is_alike = other.front_end == portal.front_end && other.tag == portal.tag;
            is_alike && is_same_port && wanted.ip() == now.ip()
        })
    };
    let goes = portals
        .iter()
        .any(|portal| came_by(portal) && !is_there(portal));
    goes.then_some(Lost::Portal)
}
