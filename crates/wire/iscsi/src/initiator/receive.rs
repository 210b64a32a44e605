//! The wire spoke: what a target's PDUs mean, and where the data behind them belong.

use std::time::Instant;

use super::connection::Say;
use super::event::{ConnectionId, Event, Failure, PingId, TaskId};
use super::exchange::{Exchange, Task};
use super::fatal::Fatal;
use super::{INDEX_MASK, Session, tag};
use crate::pdu::{
    AsyncMessage, BHS_BYTES, Bhs, DataIn, Itt, LogoutResponse, Malformed, NopIn, NopOut, Opcode, R2t, Reject,
    RejectReason, Residual, Response, ScsiResponse, TaskManagementResponse, TextResponse,
};
use crate::serial::Sn;
use crate::slab::Key;

/// The data segment that follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bytes of data, without padding.
    pub length: u32,
    /// Where they belong.
    pub place: Place,
}

/// Where a data segment belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is no data.
    None,
    /// With the machine: the driver hands it to [`Session::handle_segment`] as a whole. At most our
    /// MaxRecvDataSegmentLength.
    Inline,
    /// With a task's data, all of it within the command's `read_bytes`. The driver drops it if the command has ended
    /// since: a function answered on another connection may have aborted it.
    Task {
        /// The task.
        task: TaskId,
        /// Bytes from the start of the command's data.
        offset: u32,
    },
    /// Nowhere.
    Discard,
}

/// What becomes of a data segment when it is there.
#[derive(Debug, Default)]
pub(super) enum Incoming {
    /// There is none.
    #[default]
    Nothing,
    /// It is dropped.
    Dropped,
    /// It is a Data-In's; the status, if it brought one.
    Data { key: Key, length: u32, done: Option<Done> },
    /// It is sense data, perhaps.
    Response(Done),
    /// It is text.
    Text(TextResponse, Key),
    /// It is a ping's data that came back.
    Pong(Key),
    /// It is an asynchronous message's.
    Message(Box<AsyncMessage>),
    /// It is the header that was refused.
    Reject(Reject),
}

/// A command's status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    key: Key,
    response: Response,
    status: u8,
    residual: Residual,
    read_residual: Residual,
}

impl Session {
    /// A header has arrived: its 48 bytes, and all additional header segments, both intact. Says where the data
    /// segment belongs that follows. When the data are there the driver calls [`Session::handle_segment`]; if there
    /// are none it need not.
    pub fn handle_header(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bhs: &Bhs,
        _ahs: &[u8],
    ) -> Result<Segment, Fatal> {
        let connection = self.connection_mut(id).ok_or(Fatal::NotConnected)?;
        let length = bhs.data_segment_length();
        if length > connection.local_segment_max {
            return Err(Fatal::SegmentTooLong { length });
        }
        connection.keepalive.heard(now);
        self.counters.pdus_in += 1;
        let (incoming, place) = self.dispatch(now, id, bhs)?;
        let segment = match length {
            0 => {
                self.take_segment(now, id, incoming, &[])?;
                Segment { length, place: Place::None }
            }
            length => {
                if let Some(connection) = self.connection_mut(id) {
                    connection.incoming = incoming;
                }
                Segment { length, place }
            }
        };
        if self.stall.is_on() && self.can_submit() {
            self.stall.end(now, &mut self.counters);
        }
        Ok(segment)
    }

    /// A data segment has arrived and is where it belongs. `digest_ok` is true where there are no digests; `inline`
    /// is the data of [`Place::Inline`], else empty.
    pub fn handle_segment(
        &mut self,
        now: Instant,
        id: ConnectionId,
        digest_ok: bool,
        inline: &[u8],
    ) -> Result<(), Fatal> {
        let connection = self.connection_mut(id).ok_or(Fatal::NotConnected)?;
        connection.keepalive.heard(now);
        let incoming = std::mem::take(&mut connection.incoming);
        if !digest_ok {
            return Err(Fatal::DataDigest);
        }
        self.take_segment(now, id, incoming, inline)
    }

    /// What a header has announced is there, and `inline` with it.
    fn take_segment(
        &mut self,
        now: Instant,
        id: ConnectionId,
        incoming: Incoming,
        inline: &[u8],
    ) -> Result<(), Fatal> {
        if let Some(connection) = self.connection_mut(id) {
            connection.arrived();
        }
        match incoming {
            Incoming::Nothing | Incoming::Dropped => Ok(()),
            Incoming::Data { key, length, done } => {
                self.land(now, key, length);
                done.map_or(Ok(()), |done| self.end(now, done, Box::default()))
            }
            Incoming::Response(done) => self.end(now, done, sense(inline)?),
            Incoming::Text(pdu, key) => self.take_text(id, &pdu, key, inline),
            Incoming::Pong(key) => {
                self.take_pong(now, id, key, inline);
                Ok(())
            }
            Incoming::Message(message) => {
                let sense = sense(inline)?;
                self.events.push_back(Event::Message { connection: id, message: *message, sense });
                Ok(())
            }
            Incoming::Reject(pdu) => self.take_reject(id, &pdu, inline),
        }
    }

    fn dispatch(&mut self, now: Instant, id: ConnectionId, bhs: &Bhs) -> Result<(Incoming, Place), Fatal> {
        match bhs.opcode().ok_or(Malformed::UnknownOpcode)? {
            Opcode::DataIn => {
                self.met_tag("Data-In", bhs);
                self.take_data_in(now, id, &DataIn::parse(bhs)?)
            }
            Opcode::ScsiResponse => {
                self.met_tag("SCSI Response", bhs);
                self.take_response(id, &ScsiResponse::parse(bhs)?)
            }
            Opcode::R2t => {
                self.met_tag("R2T", bhs);
                self.take_r2t(now, id, &R2t::parse(bhs)?)
            }
            Opcode::NopIn => self.take_nop_in(id, &NopIn::parse(bhs)?),
            Opcode::TaskManagementResponse => self.take_management(id, &TaskManagementResponse::parse(bhs)?),
            Opcode::TextResponse => {
                let pdu = TextResponse::parse(bhs)?;
                self.note(id, Some(pdu.stat_sn), pdu.exp_cmd_sn, pdu.max_cmd_sn);
                let key = self.answered(id, pdu.itt)?;
                Ok((Incoming::Text(pdu, key), Place::Inline))
            }
            Opcode::LogoutResponse => self.take_logout(id, &LogoutResponse::parse(bhs)?),
            Opcode::AsyncMessage => {
                let pdu = AsyncMessage::parse(bhs)?;
                self.note(id, Some(pdu.stat_sn), pdu.exp_cmd_sn, pdu.max_cmd_sn);
                Ok((Incoming::Message(Box::new(pdu)), Place::Inline))
            }
            Opcode::Reject => {
                let pdu = Reject::parse(bhs)?;
                self.note(id, Some(pdu.stat_sn), pdu.exp_cmd_sn, pdu.max_cmd_sn);
                Ok((Incoming::Reject(pdu), Place::Inline))
            }
            Opcode::NopOut
            | Opcode::ScsiCommand
            | Opcode::TaskManagementRequest
            | Opcode::LoginRequest
            | Opcode::LoginResponse
            | Opcode::TextRequest
            | Opcode::DataOut
            | Opcode::LogoutRequest
            | Opcode::SnackRequest => Err(Fatal::Malformed(Malformed::WrongOpcode)),
        }
    }

    fn met_tag(&self, event: &'static str, bhs: &Bhs) {
        self.met(event, |session| Itt::new(bhs.itt_raw()).and_then(|itt| session.find(itt)));
    }

    // --- commands

    fn take_data_in(
        &mut self,
        now: Instant,
        id: ConnectionId,
        pdu: &DataIn,
    ) -> Result<(Incoming, Place), Fatal> {
        self.note(id, pdu.status.map(|status| status.stat_sn), pdu.exp_cmd_sn, pdu.max_cmd_sn);
        let Some((key, task)) = self.answered_task(id, pdu.itt)? else {
            return Ok((Incoming::Dropped, Place::Discard));
        };
        let offset = task.inbound.take(pdu)?;
        task.clock.data(now, &task.outbound);
        let done = pdu.status.map(|status| Done {
            key,
            response: Response::Completed,
            status: status.status,
            residual: status.residual,
            read_residual: Residual::None,
        });
        let incoming = Incoming::Data { key, length: pdu.data_segment_length, done };
        Ok((incoming, Place::Task { task: TaskId(key), offset }))
    }

    /// A Data-In's data are where they belong.
    #[inline]
    fn land(&mut self, now: Instant, key: Key, length: u32) {
        self.counters.data_in_bytes += u64::from(length);
        if let Some(task) = self.task_mut(key).filter(|task| task.inbound.is_complete()) {
            task.clock.data_complete(now);
        }
    }

    fn take_response(&mut self, id: ConnectionId, pdu: &ScsiResponse) -> Result<(Incoming, Place), Fatal> {
        self.note(id, Some(pdu.stat_sn), pdu.exp_cmd_sn, pdu.max_cmd_sn);
        let Some((key, _)) = self.answered_task(id, pdu.itt)? else {
            return Ok((Incoming::Dropped, Place::Discard));
        };
        let done = Done {
            key,
            response: pdu.response,
            status: pdu.status,
            residual: pdu.residual,
            read_residual: pdu.read_residual,
        };
        Ok((Incoming::Response(done), Place::Inline))
    }

    fn end(&mut self, now: Instant, done: Done, sense: Box<[u8]>) -> Result<(), Fatal> {
        match done.response {
            Response::Completed => {
                // It may have been aborted between header and data.
                let ended = self.end_task(done.key, |task| (task.inbound.bytes(), task.clock.stop(now)));
                let Some((data_in_bytes, times)) = ended else { return Ok(()) };
                self.events.push_back(Event::Done {
                    task: TaskId(done.key),
                    status: done.status,
                    sense,
                    residual: done.residual,
                    read_residual: done.read_residual,
                    data_in_bytes,
                    times,
                });
            }
            Response::TargetFailure | Response::VendorSpecific(_) => {
                self.fail(done.key, Failure::TargetFailure);
            }
        }
        Ok(())
    }

    fn take_r2t(&mut self, now: Instant, id: ConnectionId, pdu: &R2t) -> Result<(Incoming, Place), Fatal> {
        self.note(id, None, pdu.exp_cmd_sn, pdu.max_cmd_sn);
        self.counters.r2ts += 1;
        let Some((key, _)) = self.answered_task(id, pdu.itt)? else {
            return Ok((Incoming::Dropped, Place::Discard));
        };
        let Some(Exchange::Task(task)) = self.exchanges.get_mut(key) else { return Err(Fatal::WrongAnswer) };
        let run = task.outbound.take_r2t(pdu, &self.config.parameters)?;
        task.clock.sent(now, &task.outbound);
        if let Some(connection) = self.connection_mut(id) {
            connection.queue.push_back(Say::Data { key, ttt: Some(pdu.ttt), run });
        }
        Ok((Incoming::Dropped, Place::Discard))
    }

    /// A target refuses a PDU of ours, whose header is the data.
    fn take_reject(&mut self, id: ConnectionId, pdu: &Reject, header: &[u8]) -> Result<(), Fatal> {
        self.counters.rejects += 1;
        let refused = Bhs(*header.first_chunk::<BHS_BYTES>().ok_or(Fatal::Truncated)?);
        // Data that were damaged on the way get their command a CHECK CONDITION (section 7.8): it will come.
        if refused.opcode() == Some(Opcode::DataOut) && pdu.reason == RejectReason::DataDigestError {
            return Ok(());
        }
        let Some(key) = Itt::new(refused.itt_raw()).and_then(|itt| self.find(itt)) else { return Ok(()) };
        match self.exchanges.get(key) {
            Some(entry) if entry.connection() != id => Err(Fatal::ForeignTask),
            Some(Exchange::Task(_)) => {
                self.remember(tag(key));
                self.fail(key, Failure::Rejected(pdu.reason));
                Ok(())
            }
            Some(Exchange::Management(_)) => {
                let result = crate::pdu::TaskManagementResult::FunctionRejected;
                let none = Sn(0);
                let itt = tag(key);
                let answer =
                    TaskManagementResponse { result, itt, stat_sn: none, exp_cmd_sn: none, max_cmd_sn: none };
                self.managed(key, &answer);
                Ok(())
            }
            Some(Exchange::Text(_)) => {
                self.exchanges.remove(key);
                self.events.push_back(Event::Text { connection: id, text: Vec::new() });
                Ok(())
            }
            Some(&Exchange::Logout { connection, leaving }) => {
                self.exchanges.remove(key);
                self.logout_lost(connection, leaving);
                Ok(())
            }
            Some(Exchange::Ping { .. }) => {
                self.lose_ping(key);
                Ok(())
            }
            None => Ok(()),
        }
    }

    // --- everything else

    fn take_nop_in(&mut self, id: ConnectionId, pdu: &NopIn) -> Result<(Incoming, Place), Fatal> {
        self.note(id, pdu.itt.map(|_| pdu.stat_sn), pdu.exp_cmd_sn, pdu.max_cmd_sn);
        if let Some(itt) = pdu.itt {
            let key = self.answered(id, itt)?;
            return match self.exchanges.get(key) {
                Some(Exchange::Ping { .. }) => Ok((Incoming::Pong(key), Place::Inline)),
                Some(_) | None => Err(Fatal::WrongAnswer),
            };
        }
        let Some(connection) = self.connection_mut(id) else { return Err(Fatal::NotConnected) };
        if pdu.ttt.is_some() {
            if connection.urgent.len() > UNANSWERED_MAX {
                return Err(Fatal::TooManyUnanswered);
            }
            let answer = NopOut {
                immediate: true,
                lun: pdu.lun,
                itt: None,
                ttt: pdu.ttt,
                cmd_sn: Sn(0),
                exp_stat_sn: Sn(0),
                data_segment_length: 0,
            };
            connection.say(answer.emit(), Vec::new());
        }
        Ok((Incoming::Dropped, Place::Discard))
    }

    fn take_pong(&mut self, now: Instant, id: ConnectionId, key: Key, data: &[u8]) {
        let Some(Exchange::Ping { ours, sent, .. }) = self.exchanges.remove(key) else { return };
        if let Some(sent) = sent {
            self.counters.nops.note(now.saturating_duration_since(sent));
        }
        if !ours {
            self.events.push_back(Event::Pong { ping: PingId(key), data: Some(data.to_vec()) });
        } else if let Some(connection) = self.connection_mut(id) {
            connection.probe.answered();
        }
    }

    fn take_management(
        &mut self,
        id: ConnectionId,
        pdu: &TaskManagementResponse,
    ) -> Result<(Incoming, Place), Fatal> {
        self.note(id, Some(pdu.stat_sn), pdu.exp_cmd_sn, pdu.max_cmd_sn);
        let key = self.answered(id, pdu.itt)?;
        match self.exchanges.get(key) {
            Some(Exchange::Management(_)) => self.managed(key, pdu),
            Some(_) | None => return Err(Fatal::WrongAnswer),
        }
        Ok((Incoming::Nothing, Place::None))
    }

    fn take_logout(&mut self, id: ConnectionId, pdu: &LogoutResponse) -> Result<(Incoming, Place), Fatal> {
        self.note(id, Some(pdu.stat_sn), pdu.exp_cmd_sn, pdu.max_cmd_sn);
        let key = self.answered(id, pdu.itt)?;
        let Some(&Exchange::Logout { leaving, .. }) = self.exchanges.get(key) else {
            return Err(Fatal::WrongAnswer);
        };
        self.exchanges.remove(key);
        self.events.push_back(Event::LoggedOut { connection: id, leaving, result: Some(pdu.result) });
        Ok((Incoming::Nothing, Place::None))
    }

    /// Text comes in as many responses as the target likes, until F; each but the last is answered by an empty
    /// request with its tag.
    fn take_text(
        &mut self,
        id: ConnectionId,
        pdu: &TextResponse,
        key: Key,
        piece: &[u8],
    ) -> Result<(), Fatal> {
        let Some(Exchange::Text(text)) = self.exchanges.get_mut(key) else { return Err(Fatal::WrongAnswer) };
        match text.answer.add(piece, !pdu.is_final).map_err(|_| Fatal::TextTooLong)? {
            Some(text) => {
                self.exchanges.remove(key);
                self.events.push_back(Event::Text { connection: id, text });
            }
            None => {
                let ttt = pdu.ttt.ok_or(Fatal::Malformed(Malformed::ReservedTtt))?;
                self.say_text(id, key, Some(ttt), Vec::new());
            }
        }
        Ok(())
    }

    // --- small things

    /// What a tag names that a target answers. It must do so where it was asked.
    fn answered(&self, id: ConnectionId, itt: Itt) -> Result<Key, Fatal> {
        let key = self.find(itt).ok_or(Fatal::UnknownTag)?;
        let entry = self.exchanges.get(key).ok_or(Fatal::UnknownTag)?;
        if entry.connection() == id { Ok(key) } else { Err(Fatal::ForeignTask) }
    }

    /// The same for a command; `None` if it has ended already, and is heard of all the same.
    #[inline]
    fn answered_task(&mut self, id: ConnectionId, itt: Itt) -> Result<Option<(Key, &mut Task)>, Fatal> {
        let found = self.exchanges.at_mut(itt.get() & INDEX_MASK).filter(|&(key, _)| tag(key) == itt);
        match found {
            Some((_, entry)) if entry.connection() != id => Err(Fatal::ForeignTask),
            Some((key, Exchange::Task(task))) => Ok(Some((key, task))),
            Some(_) => Err(Fatal::WrongAnswer),
            None if self.ended.contains(&itt) => Ok(None),
            None => Err(Fatal::UnknownTag),
        }
    }

    /// The numbers that every PDU of a target carries.
    fn note(&mut self, id: ConnectionId, stat_sn: Option<Sn>, exp_cmd_sn: Sn, max_cmd_sn: Sn) {
        self.window.update(exp_cmd_sn, max_cmd_sn);
        if let (Some(_), Some(connection)) = (stat_sn, self.connection_mut(id)) {
            connection.incoming_stat_sn = stat_sn;
        }
    }
}

/// Section 11.4.7: sense data behind their length in two bytes. Response data may follow; nobody defines any.
fn sense(segment: &[u8]) -> Result<Box<[u8]>, Fatal> {
    let Some((length, rest)) = segment.split_first_chunk::<2>() else {
        return if segment.is_empty() { Ok(Box::default()) } else { Err(Fatal::Truncated) };
    };
    let length = usize::from(u16::from_be_bytes(*length));
    rest.get(..length).map(Box::from).ok_or(Fatal::Truncated)
}

/// Answers to the target's pings that may wait to be sent.
const UNANSWERED_MAX: usize = 1024;
