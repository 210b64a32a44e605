//! The rest of the protocol: timeouts, pings, logout, text requests and asynchronous messages.
//!
//! Text in full feature phase (RFC 7143 sections 6.3 and 11.10) is SendTargets, and the one key that a
//! connection may still declare, MaxRecvDataSegmentLength.
//!
//! A text may need several PDUs in either direction. The target answers each part of the initiator's text (C
//! set) with an empty response. The initiator requests each further part of the target's text with an empty
//! request that contains the target's tag.
//!
//! ```text
//!   initiator                                   target
//!   SendTargets=All        F  ttt=none  ───▶
//!                                       ◀───    TargetName=… (as much as fits)   C  ttt=1
//!   (empty)                F  ttt=1     ───▶
//!                                       ◀───    …the rest                        F  ttt=none
//! ```
//!
//! A list of targets can be long, and the initiator can be slow to receive it. The driver therefore replies
//! in parts, and a connection stores one part at a time: it requests the next part from the driver only after
//! it has sent the previous one.

use std::time::{Duration, Instant};

use super::connection::{CloseAfter, Connection, PreparedPdu, nop_in};
use super::session::{Logout, Session};
use super::{CloseReason, ConnectionId, Event, LogoutId, TextQuery};
use crate::keepalive::Due;
use crate::keys::{Key, answer};
use crate::negotiate::SessionType;
use crate::pdu::{
    AsyncEvent, AsyncMessage, Itt, LogoutReason, LogoutRequest, LogoutResponse, LogoutResult, Lun,
    NopIn, NopOut, RejectReason, TargetNumbers, TextRequest, TextResponse,
};
use crate::text::{self, Pieces};

impl Session {
    /// Processes expired timeouts.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.fences_timeout(now);
        self.tmfs_timeout(now);
        let policy = self.config.nop;
        for connection in self.connections.iter_mut() {
            let id = connection.id;
            if connection.logout_by.is_some_and(|by| now >= by) {
                connection.logout_by = None;
                self.events.push_back(Event::Close {
                    connection: id,
                    reason: CloseReason::LogoutOverdue,
                });
            }
            match connection.keepalive.due(now, &policy) {
                Due::Nothing => {}
                Due::Ping => {
                    let ttt = connection.next_ping();
                    connection.queue_without_status(nop_in(ttt).emit());
                    self.events
                        .push_back(Event::TransmitReady { connection: id });
                }
                Due::Close => {
                    self.events.push_back(Event::Close {
                        connection: id,
                        reason: CloseReason::Silent,
                    });
                }
            }
        }
    }

    /// The next time to call [`Session::handle_timeout`]. Any other call may change it.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let connections = self.connections.iter();
        let passed = connections
            .clone()
            .map(|connection| connection.keepalive.last_received())
            .max()?;
        connections
            .flat_map(|connection| {
                [
                    connection.keepalive.deadline(&self.config.nop),
                    connection.logout_by,
                ]
            })
            .chain([self.fences.deadline(passed), self.tmfs_deadline(passed)])
            .flatten()
            .min()
    }

    /// Answers a ping with the ping's data. The response to our ping needs no action: its arrival has already
    /// restarted the keepalive.
    pub(super) fn handle_nop(&mut self, id: ConnectionId, pdu: &NopOut, mut data: Vec<u8>) {
        let (Some(connection), Some(itt)) = (self.connection_mut(id), pdu.itt) else {
            return;
        };
        data.truncate(connection.peer_segment_max as usize);
        let answer = NopIn {
            itt: Some(itt),
            data_segment_length: data.len() as u32,
            ..nop_in(None)
        };
        connection.queue_status(answer.emit(), data);
    }
}

/// Maximum number of pending logouts: one for each connection of a large session.
const LOGOUTS_MAX: usize = 64;

impl Session {
    pub(super) fn handle_logout(&mut self, id: ConnectionId, pdu: &LogoutRequest) {
        let named = self
            .connections()
            .find(|&(_, cid)| cid == pdu.cid)
            .map(|(id, _)| id);
        match (pdu.reason, named) {
            (LogoutReason::CloseSession, _) => self.log_out_session(id, pdu.itt),
            (LogoutReason::CloseConnection, Some(closed)) if closed == id => {
                self.end_own_tasks(id);
                let close = Some(CloseAfter::One(id, CloseReason::Logout));
                self.answer_logout(id, pdu.itt, LogoutResult::Success, close);
            }
            (LogoutReason::CloseConnection, Some(closed)) => {
                self.log_out_other(id, closed, pdu.itt)
            }
            // The connection is gone, but its commands may still be executing. The response is sent only when
            // they have ended, because the initiator then retries them.
            (LogoutReason::CloseConnection, None) => {
                self.hold_logout(id, pdu.itt, LogoutResult::CidNotFound)
            }
            // Only ErrorRecoveryLevel 2 allows tasks to be reassigned to another connection.
            (LogoutReason::RemoveForRecovery, _) => {
                self.answer_logout(id, pdu.itt, LogoutResult::RecoveryNotSupported, None);
            }
        }
    }

    fn log_out_session(&mut self, id: ConnectionId, itt: Itt) {
        let others: Vec<ConnectionId> = self
            .connections()
            .map(|(other, _)| other)
            .filter(|&other| other != id)
            .collect();
        for other in others {
            self.stop_receiving(other);
            self.drop_connection_tasks(other);
        }
        self.end_own_tasks(id);
        self.answer_logout(
            id,
            itt,
            LogoutResult::Success,
            Some(CloseAfter::All(CloseReason::Logout)),
        );
    }

    fn log_out_other(&mut self, id: ConnectionId, closed: ConnectionId, itt: Itt) {
        self.stop_receiving(closed);
        self.drop_connection_tasks(closed);
        self.events.push_back(Event::Close {
            connection: closed,
            reason: CloseReason::Logout,
        });
        self.hold_logout(id, itt, LogoutResult::Success);
    }

    /// Delays a response until the driver calls [`Session::logout_done`].
    fn hold_logout(&mut self, by: ConnectionId, itt: Itt, result: LogoutResult) {
        if self.logouts.len() >= LOGOUTS_MAX {
            return self.answer_logout(by, itt, LogoutResult::CleanupFailed, None);
        }
        let logout = LogoutId(self.logouts.insert(Logout { by, itt, result }));
        debug_assert!(
            self.logouts.len() <= LOGOUTS_MAX,
            "too many logouts are pending"
        );
        self.events.push_back(Event::LogoutPending { logout });
    }

    /// Answers a pending logout. The driver calls this when the commands of the logged-out connection can no
    /// longer reach the medium.
    pub fn logout_done(&mut self, logout: LogoutId) {
        let Some(Logout { by, itt, result }) = self.logouts.remove(logout.0) else {
            return;
        };
        if self.connection(by).is_some() {
            self.answer_logout(by, itt, result, None);
        }
    }

    /// Stops receiving on a connection, and ends those of its tasks that have no queued response.
    fn end_own_tasks(&mut self, id: ConnectionId) {
        self.stop_receiving(id);
        self.drop_tasks(|task| task.connection == id && !task.queued);
    }

    fn stop_receiving(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connection_mut(id) {
            connection.logged_out = true;
            connection.logout_by = None;
        }
    }

    fn answer_logout(
        &mut self,
        id: ConnectionId,
        itt: Itt,
        result: LogoutResult,
        then: Option<CloseAfter>,
    ) {
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

impl Session {
    /// Takes the driver's reply to [`Event::SendTargets`]: TargetName and TargetAddress pairs, each
    /// terminated by a NUL, or nothing if there are no such targets. If the list continues, `next` is the
    /// name of the first target of the next part. It is not a position, because a configuration change can
    /// move targets.
    pub fn text_reply(&mut self, id: ConnectionId, mut text: Vec<u8>, next: Option<String>) {
        let Some(connection) = self.connection_mut(id) else {
            return;
        };
        if let Some((request, mut said, which)) = connection.text.asked.take() {
            said.append(&mut text);
            connection.text.rest = next.map(|next| (which, next));
            connection.reply(&request, said);
        }
    }

    pub(super) fn handle_text(&mut self, id: ConnectionId, request: &TextRequest, data: &[u8]) {
        let Some(connection) = self.connection_mut(id) else {
            return;
        };
        let exchange = &mut connection.text;
        // "An initiator MUST have at most one outstanding Text Request on a connection" (section 11.10).
        if exchange.asked.is_some() {
            return self.reject(id, RejectReason::ProtocolError);
        }
        match request.ttt {
            None => exchange.restart(),
            ttt if ttt == exchange.ttt => {}
            Some(_) => return self.reject(id, RejectReason::InvalidPduField),
        }
        let has_more = !exchange.outgoing.is_empty() || exchange.rest.is_some();
        if has_more && !data.is_empty() {
            return self.reject(id, RejectReason::ProtocolError);
        }
        if !exchange.outgoing.is_empty() {
            return connection.say_piece(request);
        }
        if let Some((which, from)) = exchange.rest.take() {
            let from = Some(from);
            exchange.asked = Some((*request, Vec::new(), which.clone()));
            let segment_max = connection.peer_segment_max as usize;
            return self.events.push_back(Event::SendTargets {
                connection: id,
                which,
                from,
                segment_max,
            });
        }
        match exchange.incoming.add(data, request.continues) {
            Ok(None) => connection.say_text(request, Vec::new(), false, false), // requests the rest
            Ok(Some(text)) => self.answer_text(id, request, &text),
            Err(_) => self.reject(id, RejectReason::ProtocolError),
        }
    }

    fn answer_text(&mut self, id: ConnectionId, request: &TextRequest, text: &[u8]) {
        let Ok(pairs) = text::parse(text) else {
            return self.reject(id, RejectReason::InvalidPduField);
        };
        let is_discovery = self.config.parameters.session_type == SessionType::Discovery;
        let mut query = None;
        let mut reply = Vec::new();
        let Some(connection) = self.connection_mut(id) else {
            return;
        };
        if connection.text.received_keys.take(&pairs).is_err() {
            // Section 6.4: a Reject PDU with a reason of "Protocol Error", and the negotiation is reset.
            connection.text.restart();
            return self.reject(id, RejectReason::ProtocolError);
        }
        for pair in pairs {
            match Key::find(pair.key) {
                Some(Key::SendTargets) => query = send_targets(pair.value, is_discovery),
                // Section 13.12: a declaration, of 512 to 2^24-1 bytes. It applies to PDUs sent from now on.
                Some(Key::MaxRecvDataSegmentLength) => match text::number(pair.value) {
                    Some(bytes @ 512..=0xff_ffff) => connection.peer_segment_max = bytes,
                    Some(_) | None => text::append(&mut reply, pair.key, answer::REJECT),
                },
                // Declared, not negotiated: no response.
                Some(Key::InitiatorAlias) => {}
                // All other keys are restricted to the login ("IO" and "LO" in section 13), including
                // InitiatorName.
                Some(_) => text::append(&mut reply, pair.key, answer::REJECT),
                None => text::append(&mut reply, pair.key, answer::NOT_UNDERSTOOD),
            }
            if query.is_none() && Key::find(pair.key) == Some(Key::SendTargets) {
                text::append(&mut reply, pair.key, answer::REJECT);
            }
        }
        match query {
            Some(which) => {
                let segment_max =
                    (connection.peer_segment_max as usize).saturating_sub(reply.len());
                connection.text.asked = Some((*request, reply, which.clone()));
                self.events.push_back(Event::SendTargets {
                    connection: id,
                    which,
                    from: None,
                    segment_max,
                });
            }
            None => connection.reply(request, reply),
        }
    }
}

impl Connection {
    fn reply(&mut self, request: &TextRequest, text: Vec<u8>) {
        self.text.outgoing = Pieces::new(text);
        self.say_piece(request);
    }

    fn say_piece(&mut self, request: &TextRequest) {
        let (data, is_cut) = self.text.outgoing.next(self.peer_segment_max as usize);
        let continues = is_cut || self.text.rest.is_some();
        let is_final = request.is_final && !continues;
        self.say_text(request, data, is_final, continues);
    }

    fn say_text(&mut self, request: &TextRequest, data: Vec<u8>, is_final: bool, continues: bool) {
        debug_assert!(!(is_final && continues), "text continues after its end");
        let ttt = if is_final { None } else { self.text.next_tag() };
        self.text.ttt = ttt;
        let pdu = TextResponse {
            is_final,
            continues,
            lun: Lun(0),
            itt: request.itt,
            ttt,
            numbers: TargetNumbers::default(),
            data_segment_length: data.len() as u32,
        };
        self.queue_status(pdu.emit(), data);
    }
}

/// The targets that a value of SendTargets requests (appendix C). "All … MUST NOT be supported" in normal
/// sessions, and an empty value is meaningless in discovery sessions.
fn send_targets(value: &str, is_discovery: bool) -> Option<TextQuery> {
    match value {
        "All" if is_discovery => Some(TextQuery::All),
        "All" => None,
        "" if is_discovery => None,
        "" => Some(TextQuery::Own),
        name => Some(TextQuery::One(name.to_owned())),
    }
}

/// An asynchronous message to an initiator.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A SCSI event, with its sense data.
    Scsi {
        /// The logical unit concerned.
        lun: Lun,
        /// Sense data, at most 65,533 bytes.
        sense: &'a [u8],
    },
    /// The initiator must log out this connection within this time (whole seconds, up to 65,535); otherwise
    /// it is closed.
    LogoutRequested { within: Duration },
    /// This connection is dropped, and closed after the message.
    ConnectionDropped,
    /// All connections of the session are dropped; this one is closed after the message.
    SessionDropped,
    /// The initiator must renegotiate parameters within this time.
    NegotiationRequested { within: Duration },
    /// The session's tasks on this logical unit are being terminated.
    TasksTerminated { lun: Lun },
}

impl Session {
    /// Requests a logout on every connection. A connection that is not logged out by the deadline is closed
    /// with [`super::Event::Close`]. Until then, commands are still executed: QEMU and other initiators have
    /// commands outstanding when they get the request.
    pub fn request_logout(&mut self, now: Instant, within: Duration) {
        let all: Vec<ConnectionId> = self.connections().map(|(id, _)| id).collect();
        for id in all {
            self.notify(now, id, Notice::LogoutRequested { within });
        }
    }

    /// Sends an asynchronous message on a connection.
    pub fn notify(&mut self, now: Instant, id: ConnectionId, notice: Notice<'_>) {
        let times = [
            self.config.parameters.default_time2wait_s,
            self.config.parameters.default_time2retain_s,
        ];
        let Some(connection) = self
            .connection_mut(id)
            .filter(|connection| !connection.logged_out)
        else {
            return;
        };
        if let Notice::LogoutRequested { within } = notice {
            connection.logout_by = now.checked_add(within);
        }
        let data = notice.sense_segment();
        let message = notice.message(connection.cid.0, times, data.len() as u32);
        let closes = matches!(notice, Notice::ConnectionDropped | Notice::SessionDropped);
        let then = closes.then_some(CloseAfter::One(id, CloseReason::Dropped));
        connection.queue(PreparedPdu {
            bhs: message.emit(),
            data,
            is_status: true,
            then,
        });
    }
}

impl Notice<'_> {
    fn message(
        &self,
        cid: u16,
        [wait, retain]: [u16; 2],
        data_segment_length: u32,
    ) -> AsyncMessage {
        let (event, lun, parameters) = match *self {
            Notice::Scsi { lun, .. } => (AsyncEvent::Scsi, lun, [0; 3]),
            Notice::LogoutRequested { within } => {
                (AsyncEvent::LogoutRequested, Lun(0), [0, 0, seconds(within)])
            }
            Notice::ConnectionDropped => {
                (AsyncEvent::ConnectionDropped, Lun(0), [cid, wait, retain])
            }
            Notice::SessionDropped => (AsyncEvent::SessionDropped, Lun(0), [0, wait, retain]),
            Notice::NegotiationRequested { within } => (
                AsyncEvent::NegotiationRequested,
                Lun(0),
                [0, 0, seconds(within)],
            ),
            Notice::TasksTerminated { lun } => (AsyncEvent::TasksTerminated, lun, [0; 3]),
        };
        AsyncMessage {
            lun,
            numbers: TargetNumbers::default(),
            event,
            vendor_code: 0,
            parameters,
            data_segment_length,
        }
    }

    /// The sense data, preceded by its length in two bytes (section 11.9.4).
    fn sense_segment(&self) -> Vec<u8> {
        let Notice::Scsi { sense, .. } = self else {
            return Vec::new();
        };
        let length = u16::try_from(sense.len()).unwrap_or(u16::MAX - 2);
        [&length.to_be_bytes(), &sense[..usize::from(length)]].concat()
    }
}

fn seconds(time: Duration) -> u16 {
    u16::try_from(time.as_secs()).unwrap_or(u16::MAX)
}
