//! Calls of the driver: commands, pings, text requests and logout.

use std::time::Instant;

use derive_more::{Display, Error};

use super::connection::{Connection, PreparedPdu, QueuedPdu};
use super::exchange::{Exchange, Inbound, Outbound, PhaseClock, Task, Text};
use super::session::{INDEX_MASK, Session, tag};
use super::{CloseReason, ConnectionId, Event, LogoutScope, PingId, TaskId};
use crate::pdu::ahs::CDB_BYTES_MAX;
use crate::pdu::{
    Ahs, Bhs, Cid, LogoutReason, LogoutRequest, Lun, NopOut, Sn, TaskAttribute, TextRequest,
};
use crate::slab::Key;
use crate::text::Assembly;

/// A SCSI command. One that reads and writes is bidirectional.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    pub lun: Lun,
    /// The CDB: 1 to 260 bytes.
    pub cdb: &'a [u8],
    /// The task attribute (SAM-5).
    pub attribute: TaskAttribute,
    /// Size of the read buffer.
    pub read_bytes: u32,
    /// Size of the write data.
    pub write_bytes: u32,
}

/// Why a command was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum SubmitError {
    /// The command window is full, or our own limit on outstanding commands is reached.
    #[display("the target has no room for another command")]
    NoRoom,
    /// The connection is not part of the session, or is logging out.
    #[display("the connection is gone, or logging out")]
    NotConnected,
    /// The CDB is empty, or longer than 260 bytes.
    #[display("a CDB has 1 to 260 bytes")]
    CdbLength,
}

impl Session {
    /// Accepts a command, to be sent on this connection. [`super::Event::Done`] or [`super::Event::Failed`]
    /// ends it. Until then, the driver keeps the command's data.
    pub fn submit(
        &mut self,
        now: Instant,
        id: ConnectionId,
        command: &Command<'_>,
    ) -> Result<TaskId, SubmitError> {
        if command.cdb.is_empty() || command.cdb.len() > CDB_BYTES_MAX {
            return Err(SubmitError::CdbLength);
        }
        if !self.can_submit() {
            self.stall.begin(now, &mut self.counters);
            return Err(SubmitError::NoRoom);
        }
        let connection = self
            .connections
            .get_mut(id)
            .filter(|connection| !connection.is_leaving);
        let connection = connection.ok_or(SubmitError::NotConnected)?;
        let outbound = Outbound::new(
            command.write_bytes,
            connection.peer_segment_max,
            &self.config.parameters,
        );
        let task = task(id, command, outbound, PhaseClock::new(now));
        let key = self.exchanges.insert(Exchange::Task(task));
        connection.queue.push_back(QueuedPdu::Command(key));
        self.unsent += 1;
        debug_assert!(
            self.unsent <= self.window.room(),
            "a command without a CmdSN in the window"
        );
        Ok(TaskId(key))
    }

    /// Pings the target with `data`, truncated to the size that the target accepts in one PDU;
    /// [`super::Event::Pong`] follows. `None` if no ping can be sent now.
    pub fn ping(&mut self, id: ConnectionId, data: &[u8]) -> Option<PingId> {
        self.send_ping(id, data, false)
    }

    pub(super) fn send_ping(
        &mut self,
        id: ConnectionId,
        data: &[u8],
        is_keepalive: bool,
    ) -> Option<PingId> {
        let key = self.open_exchange(
            id,
            Exchange::Ping {
                connection: id,
                is_keepalive,
                sent: None,
            },
        )?;
        let connection = self.connection_mut(id)?;
        let data = data[..data.len().min(connection.peer_segment_max as usize)].to_vec();
        let pdu = NopOut {
            immediate: true,
            lun: Lun(0),
            itt: Some(tag(key)),
            ttt: None,
            cmd_sn: Sn(0),
            exp_stat_sn: Sn(0),
            data_segment_length: data.len() as u32,
        };
        connection.urgent.push_back(PreparedPdu {
            bhs: Box::new(pdu.emit()),
            data,
            exchange: Some(key),
        });
        Some(PingId(key))
    }

    /// Requests a list of targets ([`super::Event::Text`] follows): `All`, a target's name, or an empty
    /// string for the session's own. `false` if no request can be sent now.
    pub fn send_targets(&mut self, id: ConnectionId, which: &str) -> bool {
        let mut text = Vec::new();
        crate::text::append(&mut text, crate::keys::Key::SendTargets.name(), which);
        let answer = Assembly::new(self.config.text_bytes_max);
        let Some(key) = self.open_exchange(
            id,
            Exchange::Text(Text {
                connection: id,
                answer,
            }),
        ) else {
            return false;
        };
        self.queue_text(id, key, None, text);
        true
    }

    pub(super) fn queue_text(
        &mut self,
        id: ConnectionId,
        key: Key,
        ttt: Option<crate::pdu::Ttt>,
        text: Vec<u8>,
    ) {
        let pdu = TextRequest {
            immediate: true,
            is_final: true,
            continues: false,
            lun: Lun(0),
            itt: tag(key),
            ttt,
            cmd_sn: Sn(0),
            exp_stat_sn: Sn(0),
            data_segment_length: text.len() as u32,
        };
        if let Some(connection) = self.connection_mut(id) {
            connection.queue_immediate(pdu.emit(), text);
        }
    }

    /// Logs out the session or this connection, after everything queued on this connection.
    /// [`super::Event::LoggedOut`] follows. `false` if no logout can be sent any more.
    pub fn log_out(&mut self, _now: Instant, id: ConnectionId, reason: LogoutReason) -> bool {
        let Some(cid) = self.open_connection(id).map(|connection| connection.cid) else {
            return false;
        };
        let closes_session = reason == LogoutReason::CloseSession;
        let leaving = if closes_session {
            LogoutScope::Session
        } else {
            LogoutScope::Connection
        };
        let Some(key) = self.open_exchange(
            id,
            Exchange::Logout {
                connection: id,
                leaving,
            },
        ) else {
            return false;
        };
        let bhs = logout(key, cid, reason);
        for connection in self.connections.iter_mut() {
            connection.is_leaving |= connection.id == id || closes_session;
        }
        if let Some(connection) = self.connection_mut(id) {
            connection.queue.push_back(QueuedPdu::Prepared(PreparedPdu {
                bhs: Box::new(bhs),
                data: Vec::new(),
                exchange: None,
            }));
        }
        true
    }

    /// Logs out a lost connection through another one (sections 7.2 and 11.14). The request is sent before
    /// everything that is queued on the other connection. [`super::Event::LoggedOut`] follows: from then on
    /// no command of the lost connection can have an effect. `false` if no logout can be sent any more.
    pub fn log_out_other(&mut self, _now: Instant, via: ConnectionId, cid: Cid) -> bool {
        let leaving = LogoutScope::OtherConnection(cid);
        let Some(key) = self.open_exchange(
            via,
            Exchange::Logout {
                connection: via,
                leaving,
            },
        ) else {
            return false;
        };
        if let Some(connection) = self.connection_mut(via) {
            connection.queue_immediate(logout(key, cid, LogoutReason::CloseConnection), Vec::new());
        }
        true
    }

    /// Ends a logout that will not be answered. Its connections are closed, because nothing more can be sent
    /// on them. If it was the logout of a lost connection, the outcome of that connection's commands remains
    /// unknown.
    pub(super) fn logout_lost(&mut self, by: ConnectionId, leaving: LogoutScope) {
        let close = |connection| Event::Close {
            connection,
            reason: CloseReason::LogoutLost,
        };
        match leaving {
            LogoutScope::Session => {
                let all = self.connections.iter().map(|connection| connection.id);
                self.events.extend(all.map(close));
            }
            LogoutScope::Connection if self.connection(by).is_some() => {
                self.events.push_back(close(by))
            }
            LogoutScope::Connection => {}
            LogoutScope::OtherConnection(_) => {
                self.events.push_back(Event::LoggedOut {
                    connection: by,
                    leaving,
                    result: None,
                });
            }
        }
    }

    /// The connection, unless it is logging out.
    pub(super) fn open_connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.connection(id)
            .filter(|connection| !connection.is_leaving)
    }

    /// Starts an exchange other than a command, if its connection and the number of tags allow it.
    pub(super) fn open_exchange(&mut self, id: ConnectionId, exchange: Exchange) -> Option<Key> {
        self.open_connection(id)?;
        // The limit is a quarter higher than for commands, so that pings, aborts and logouts are possible in
        // a full session.
        let most = self
            .config
            .tasks_max
            .saturating_add(self.config.tasks_max / 4 + 16)
            .min(0xffff);
        if self.exchanges.len() >= most as usize {
            return None;
        }
        debug_assert!(
            self.exchanges.len() < INDEX_MASK as usize,
            "more exchanges than tags"
        );
        Some(self.exchanges.insert(exchange))
    }
}

#[inline]
fn task(
    connection: ConnectionId,
    command: &Command<'_>,
    outbound: Outbound,
    clock: PhaseClock,
) -> Task {
    let (first, rest) = command.cdb.split_at(command.cdb.len().min(16));
    let mut cdb = [0; 16];
    cdb[..first.len()].copy_from_slice(first);
    let is_bidirectional = command.read_bytes > 0 && command.write_bytes > 0;
    Task {
        connection,
        lun: command.lun,
        attribute: command.attribute,
        cdb,
        ahs: additional_headers(rest, is_bidirectional.then_some(command.read_bytes)),
        cmd_sn: None,
        outbound,
        inbound: Inbound::new(command.read_bytes),
        clock,
    }
}

fn additional_headers(long_cdb: &[u8], expected_read_length: Option<u32>) -> Box<[u8]> {
    if long_cdb.is_empty() && expected_read_length.is_none() {
        return Box::default();
    }
    let mut bytes = Vec::new();
    let extended_cdb = Some(long_cdb).filter(|rest| !rest.is_empty());
    Ahs {
        extended_cdb,
        expected_read_length,
    }
    .emit(&mut bytes);
    bytes.into_boxed_slice()
}

fn logout(key: Key, cid: Cid, reason: LogoutReason) -> Bhs {
    let pdu = LogoutRequest {
        immediate: true,
        reason,
        itt: tag(key),
        cid,
        cmd_sn: Sn(0),
        exp_stat_sn: Sn(0),
    };
    pdu.emit()
}
