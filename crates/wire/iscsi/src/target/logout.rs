//! Logout (RFC 7143 sections 11.14 and 11.15): a connection, another one, or all of them.
//!
//! Commands with a response keep it; the others end without one. The logout response is the last PDU on its
//! connection, which is then closed. The logout of another connection is answered when none of that
//! connection's commands can reach the medium any more.

use super::Session;
use super::connection::CloseAfter;
use super::event::{CloseReason, ConnectionId, Event, LogoutId};
use crate::pdu::{Cid, Itt, LogoutReason, LogoutRequest, LogoutResponse, LogoutResult, TargetNumbers};
use crate::slab::Key;

/// A logout of another connection.
#[derive(Debug)]
pub(super) struct Logout {
    by: ConnectionId,
    itt: Itt,
    result: LogoutResult,
}

/// Maximum number of pending logouts: one for each connection of a large session.
const LOGOUTS_MAX: usize = 64;

impl Session {
    pub(super) fn handle_logout(&mut self, id: ConnectionId, pdu: &LogoutRequest) {
        match (pdu.reason, self.with_cid(pdu.cid)) {
            (LogoutReason::CloseSession, _) => self.log_out_session(id, pdu.itt),
            (LogoutReason::CloseConnection, Some(closed)) if closed == id => self.log_out_own(id, pdu.itt),
            (LogoutReason::CloseConnection, Some(closed)) => self.log_out_other(id, closed, pdu.itt),
            // Its commands may still be executing: the requester needs to know when they are not.
            (LogoutReason::CloseConnection, None) => self.hold_logout(id, pdu.itt, LogoutResult::CidNotFound),
            // Tasks change their connection at ErrorRecoveryLevel 2 only.
            (LogoutReason::RemoveForRecovery, _) => {
                self.answer_logout(id, pdu.itt, LogoutResult::RecoveryNotSupported, None);
            }
        }
    }

    fn with_cid(&self, cid: Cid) -> Option<ConnectionId> {
        self.connections().find(|&(_, known)| known == cid).map(|(id, _)| id)
    }

    fn log_out_session(&mut self, id: ConnectionId, itt: Itt) {
        let others: Vec<ConnectionId> =
            self.connections().map(|(other, _)| other).filter(|&other| other != id).collect();
        for other in others {
            self.stop_receiving(other);
            self.drop_connection_tasks(other);
        }
        self.end_own_tasks(id);
        self.answer_logout(id, itt, LogoutResult::Success, Some(CloseAfter::All(CloseReason::Logout)));
    }

    fn log_out_own(&mut self, id: ConnectionId, itt: Itt) {
        self.end_own_tasks(id);
        let close = CloseAfter::One(id, CloseReason::Logout);
        self.answer_logout(id, itt, LogoutResult::Success, Some(close));
    }

    fn log_out_other(&mut self, id: ConnectionId, closed: ConnectionId, itt: Itt) {
        self.stop_receiving(closed);
        self.drop_connection_tasks(closed);
        self.events.push_back(Event::Close { connection: closed, reason: CloseReason::Logout });
        self.hold_logout(id, itt, LogoutResult::Success);
    }

    /// Delays a response until the driver calls [`Session::logout_done`].
    fn hold_logout(&mut self, by: ConnectionId, itt: Itt, result: LogoutResult) {
        if self.logouts.len() >= LOGOUTS_MAX {
            return self.answer_logout(by, itt, LogoutResult::CleanupFailed, None);
        }
        let logout = LogoutId(self.logouts.insert(Logout { by, itt, result }));
        self.events.push_back(Event::LogoutPending { logout });
    }

    /// The commands of a logged out connection can no longer reach the medium.
    pub fn logout_done(&mut self, logout: LogoutId) {
        let Some(Logout { by, itt, result }) = self.logouts.remove(logout.0) else { return };
        if self.connection(by).is_some() {
            self.answer_logout(by, itt, result, None);
        }
    }

    /// Ends the tasks of a connection without a response.
    fn end_own_tasks(&mut self, id: ConnectionId) {
        self.stop_receiving(id);
        let doomed: Vec<Key> = self
            .tasks
            .iter()
            .filter(|(_, task)| task.connection == id && !task.queued)
            .map(|(key, _)| key)
            .collect();
        doomed.into_iter().for_each(|key| self.drop_task(key));
    }

    fn stop_receiving(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connection_mut(id) {
            connection.logged_out = true;
            connection.logout_by = None;
        }
    }

    fn answer_logout(&mut self, id: ConnectionId, itt: Itt, result: LogoutResult, then: Option<CloseAfter>) {
        let pdu = LogoutResponse {
            result,
            itt,
            numbers: TargetNumbers::default(),
            time2wait_s: self.config.parameters.default_time2wait_s,
            time2retain_s: self.config.parameters.default_time2retain_s,
        };
        self.queue_after_responses(id, pdu.emit(), then);
    }
}
