//! The status of sessions, as plain values that are created on request. Also determines which sessions a
//! configuration change would affect, so that the server can refuse a change that removes something in use.

use std::sync::Arc;
use std::time::Duration;

use front_end_core::{HostAddress, Traffic};
use hyperscsi::Counters;

use crate::config::Config;

/// A session.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// The initiator's name.
    pub initiator: String,
    /// The number that the initiator assigned: two sessions with the same name, number and target replace
    /// each other.
    pub port: u32,
    /// The session's number, assigned by the server.
    pub handle: u16,
    /// The target's name.
    pub target: String,
    /// Whether frames are encrypted and authenticated, and the initiator has proved that it has its key.
    pub is_encrypted: bool,
    /// The address from which it logged in.
    pub peer: HostAddress,
    /// The portal through which it logged in.
    pub portal: String,
    /// Time since its login.
    pub age: Duration,
    /// The reactor thread that runs the session.
    pub core: usize,
    /// The numbers of the LUNs that the session sees.
    pub luns: Vec<u16>,
    /// Outstanding commands.
    pub in_flight: usize,
    /// Its traffic so far.
    pub traffic: Traffic,
    /// Maximum length of a frame in bytes.
    pub frame_bytes: usize,
    /// The counters of the protocol's state machine.
    pub counters: Counters,
    /// The paths that it has used.
    pub paths: Vec<PathStatus>,
}

/// A path of a session.
#[derive(Clone, Debug)]
pub struct PathStatus {
    /// The initiator's address.
    pub peer: HostAddress,
    /// The portal on which its last authentic frame arrived.
    pub portal: String,
    /// Whether the path can carry frames.
    pub is_up: bool,
    /// Its round-trip time; `None` until it is measured.
    pub round_trip: Option<Duration>,
    /// Its window, in frames.
    pub window_frames: u32,
}

/// Returns the losses of these sessions if `wanted` were served instead of `now`, one sentence each.
pub(crate) fn losses(sessions: &[SessionStatus], now: &Config, wanted: &Config) -> Vec<String> {
    sessions
        .iter()
        .filter_map(|session| lost(session, now, wanted))
        .collect()
}

fn lost(session: &SessionStatus, now: &Config, wanted: &Config) -> Option<String> {
    let SessionStatus {
        initiator,
        target: name,
        ..
    } = session;
    let target = wanted.target(name);
    let Some(target) =
        target.filter(|target| target.keeps(initiator, session.peer, session.is_encrypted))
    else {
        return Some(format!("{initiator} uses the HyperSCSI target {name}"));
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
        (Arc::ptr_eq(&export.unit, unit_now(lun)?) && export.is_seen_by(initiator)).then_some(())
    };
    let gone = session.luns.iter().filter(|lun| stays(**lun).is_none());
    let gone: Vec<String> = gone.map(u16::to_string).collect();
    (!gone.is_empty()).then(|| {
        format!(
            "{initiator} uses LUN {} of the HyperSCSI target {name}",
            gone.join(", ")
        )
    })
}
