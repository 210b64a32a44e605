//! The reports of a session: SendTargets responses to its initiator, log lines, its status, and statistics
//! for monitoring.

use std::net::SocketAddr;

use iscsi::target::{ConnectionId, Fatal, TextQuery};
use scsi_session::ScsiSession as _;

use crate::connection::ConnectionEnd;
use crate::context::ISCSI;
use crate::directory::{self, SendTargetsRequester};
use crate::link::Link;
use crate::session::Session;
use crate::status::{self, ConnectionStatus, SessionStatus};
use front_end_core::{AUDIT, Counted, SessionInfo, Traffic};

/// Maximum number of keys in one log line, so that the line does not become too long.
const KEYS_OF_A_LINE: usize = 3;

impl Session {
    pub(crate) fn send_targets(
        &mut self,
        id: ConnectionId,
        which: &TextQuery,
        from: Option<&str>,
        segment_max: usize,
    ) {
        let Some((address, local)) = self.link(id).map(|link| (link.peer.ip(), link.local)) else {
            return;
        };
        let config = self.context.config();
        let requester = SendTargetsRequester {
            initiator: &self.identity.initiator,
            address,
            local,
        };
        let own = self.target();
        // A session with a target "MUST NOT return targets other than the one to which the session is logged
        // in" (appendix C), whatever is requested.
        let wanted = directory::visible(&config, &requester, from)
            .filter(|target| own.is_none_or(|own| target.name == own))
            .filter(|target| match which {
                TextQuery::All | TextQuery::Own => true,
                TextQuery::One(name) => target.name.eq_ignore_ascii_case(name),
            });
        let (text, next) =
            directory::describe(wanted, &self.context.portals(), &requester, segment_max);
        self.machine.text_reply(id, text, next);
        self.wake(id);
    }

    /// Logs a login and the negotiated keys.
    pub(crate) fn log_in(&self, link: &Link) {
        let identity = &self.identity;
        let (initiator, user, session) =
            (&identity.initiator, &identity.user, identity.slot.tsih.0);
        let (peer, cid) = (link.peer, link.cid.0);
        match &identity.target {
            Some(target) => {
                let target = &target.name;
                tracing::info!(target: AUDIT, %peer, session, initiator, user, target, cid, "logged in");
            }
            // The level is debug, because every host may cause such a line every few seconds.
            None => tracing::debug!(target: AUDIT, %peer, session, initiator, user, "discovery"),
        }
        for keys in status::keys(self.machine.parameters()).chunks(KEYS_OF_A_LINE) {
            tracing::debug!(session, cid, keys = keys.join(" "), "negotiated");
        }
    }

    /// Logs that the session ends because a login from this address replaces it.
    pub(crate) fn log_replaced(&self, by: SocketAddr) {
        let identity = &self.identity;
        let (initiator, user, session) =
            (&identity.initiator, &identity.user, identity.slot.tsih.0);
        match identity.target.as_ref().map(|target| &target.name) {
            Some(target) => {
                tracing::info!(target: AUDIT, %by, session, initiator, user, target, "replaced by another login");
            }
            None => {
                tracing::debug!(target: AUDIT, %by, session, initiator, user, "discovery replaced")
            }
        }
    }

    /// Logs the end of a connection, and the traffic of its session.
    pub(crate) fn log_out(&self, link: &Link, end: &ConnectionEnd) {
        let (
            identity,
            Traffic {
                commands,
                read_bytes,
                written_bytes,
                ..
            },
        ) = (&self.identity, self.commands.traffic);
        let (initiator, user, session) =
            (&identity.initiator, &identity.user, identity.slot.tsih.0);
        let (peer, cid) = (link.peer, link.cid.0);
        let Some(target) = identity.target.as_ref().map(|target| &target.name) else {
            return tracing::debug!(target: AUDIT, why = %end, %peer, session, initiator, user, "discovery ended");
        };
        tracing::info!(target: AUDIT, why = %end, %peer, session, initiator, user, target, cid, "connection ended");
        tracing::info!(target: AUDIT, %peer, session, cid, commands, read_bytes, written_bytes, "moved by its session");
    }

    /// The description of the session for an observer of the server.
    pub(crate) fn info(&self) -> SessionInfo<'_> {
        SessionInfo {
            initiator: &self.identity.initiator,
            user: self.identity.user.as_deref(),
            target: self.target(),
            front_end: ISCSI,
            handle: Some(self.identity.slot.tsih.0),
        }
    }

    /// Returns the status of the session for monitoring.
    pub(crate) fn status(&self, core: usize) -> SessionStatus {
        let identity = &self.identity;
        let target = identity.target.as_ref().map(|target| target.name.clone());
        SessionStatus {
            initiator: identity.initiator.clone(),
            user: identity.user.clone(),
            isid: identity
                .isid
                .0
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            tsih: identity.slot.tsih.0,
            target,
            age: reactor::now().duration_since(identity.started),
            core,
            connections: self
                .links()
                .map(|link| ConnectionStatus {
                    cid: link.cid.0,
                    peer: link.peer,
                    local: link.local,
                })
                .collect(),
            parameters: status::keys(self.machine.parameters()),
            luns: self.commands.luns.iter().map(|slot| slot.lun).collect(),
            in_flight: self.commands.in_flight(),
            traffic: self.commands.traffic,
        }
    }

    /// Counts the end of one of the session's connections.
    pub(crate) fn count_end_of_connection(&self, end: &ConnectionEnd) {
        self.tally
            .note(Counted::ConnectionClosed, self.target(), end.name());
        if matches!(end, ConnectionEnd::Violation(Fatal::HeaderDigest)) {
            self.tally
                .note(Counted::DigestError, self.target(), "header");
        }
    }

    /// The traffic of the session so far.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            window_full: self.machine.window_closings(),
            ..self.commands.traffic
        }
    }

    /// Adds the traffic of the session to the statistics when the session ends.
    pub(crate) fn count_end(&self) {
        if let Some(target) = self.target() {
            self.tally
                .session_ended(target, &self.identity.counted_as, self.traffic());
        }
    }
}
