//! Processing of received PDUs, and the destination of their data.

use std::time::Instant;

use super::connection::{CommandStatus, Incoming, QueuedPdu};
use super::exchange::{Exchange, Task};
use super::session::{INDEX_MASK, Session, tag};
use super::{ConnectionId, Event, Failure, Fatal, PingId, TaskId};
use crate::framing;
use crate::pdu::{
    AsyncMessage, BHS_BYTES, Bhs, DataIn, Itt, LogoutResponse, Malformed, NopIn, NopOut, Opcode,
    R2t, Reject, RejectReason, Residual, Response, ScsiResponse, Sn, TargetNumbers,
    TaskManagementResponse, TextResponse,
};
use crate::slab::Key;

/// The data segment that follows a header.
pub type Segment = framing::Segment<TaskId>;

/// The destination of a received data segment.
pub type Destination = framing::Destination<TaskId>;

impl Session {
    /// Processes a header: its 48 bytes and all additional header segments, with digests verified. Returns
    /// the destination of the data segment that follows. When the segment has arrived, the driver calls
    /// [`Session::handle_segment`]. If there is no data segment, this call is not needed.
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
        connection.keepalive.note_received(now);
        self.counters.pdus_in += 1;
        let (incoming, destination) = self.dispatch(now, id, bhs)?;
        let segment = match length {
            0 => {
                self.process_segment(now, id, incoming, &[])?;
                Segment {
                    length,
                    destination: Destination::None,
                }
            }
            length => {
                if let Some(connection) = self.connection_mut(id) {
                    connection.incoming = incoming;
                }
                Segment {
                    length,
                    destination,
                }
            }
        };
        if self.stall.is_on() && self.can_submit() {
            self.stall.end(now, &mut self.counters);
        }
        Ok(segment)
    }

    /// Processes a data segment stored at its destination. `digest_ok` is true if no digests are used.
    /// `inline` is the data if the destination is [`Destination::Inline`], and is otherwise empty.
    pub fn handle_segment(
        &mut self,
        now: Instant,
        id: ConnectionId,
        digest_ok: bool,
        inline: &[u8],
    ) -> Result<(), Fatal> {
        let connection = self.connection_mut(id).ok_or(Fatal::NotConnected)?;
        connection.keepalive.note_received(now);
        let incoming = std::mem::take(&mut connection.incoming);
        if !digest_ok {
            return Err(Fatal::DataDigest);
        }
        self.process_segment(now, id, incoming, inline)
    }

    /// Completes a PDU whose data segment has arrived.
    fn process_segment(
        &mut self,
        now: Instant,
        id: ConnectionId,
        incoming: Incoming,
        inline: &[u8],
    ) -> Result<(), Fatal> {
        if let Some(connection) = self.connection_mut(id) {
            connection.segment_arrived();
        }
        match incoming {
            Incoming::Nothing | Incoming::Dropped => Ok(()),
            Incoming::Data {
                key,
                length,
                status,
            } => {
                self.land(now, key, length);
                status.map_or(Ok(()), |status| self.end(now, status, Box::default()))
            }
            Incoming::Response(status) => self.end(now, status, sense(inline)?),
            Incoming::Text(pdu, key) => self.handle_text_response(id, &pdu, key, inline),
            Incoming::PingResponse(key) => {
                self.handle_ping_response(now, id, key, inline);
                Ok(())
            }
            Incoming::Message(message) => {
                let sense = sense(inline)?;
                self.events.push_back(Event::Message {
                    connection: id,
                    message: *message,
                    sense,
                });
                Ok(())
            }
            Incoming::Reject(pdu) => self.handle_reject(id, &pdu, inline),
        }
    }

    fn dispatch(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bhs: &Bhs,
    ) -> Result<(Incoming, Destination), Fatal> {
        match bhs.opcode().ok_or(Malformed::UnknownOpcode)? {
            Opcode::DataIn => {
                self.observe_tag("Data-In", bhs);
                self.handle_data_in(now, id, &DataIn::parse(bhs)?)
            }
            Opcode::ScsiResponse => {
                self.observe_tag("SCSI Response", bhs);
                self.handle_scsi_response(id, &ScsiResponse::parse(bhs)?)
            }
            Opcode::R2t => {
                self.observe_tag("R2T", bhs);
                self.handle_r2t(now, id, &R2t::parse(bhs)?)
            }
            Opcode::NopIn => self.handle_nop_in(id, &NopIn::parse(bhs)?),
            Opcode::TaskManagementResponse => {
                self.handle_tmf_response(id, &TaskManagementResponse::parse(bhs)?)
            }
            Opcode::TextResponse => {
                let pdu = TextResponse::parse(bhs)?;
                self.update_status_numbers(id, pdu.numbers);
                let key = self.match_exchange(id, pdu.itt)?;
                Ok((Incoming::Text(pdu, key), Destination::Inline))
            }
            Opcode::LogoutResponse => self.handle_logout_response(id, &LogoutResponse::parse(bhs)?),
            Opcode::AsyncMessage => {
                let pdu = AsyncMessage::parse(bhs)?;
                self.update_status_numbers(id, pdu.numbers);
                Ok((Incoming::Message(Box::new(pdu)), Destination::Inline))
            }
            Opcode::Reject => {
                let pdu = Reject::parse(bhs)?;
                self.update_status_numbers(id, pdu.numbers);
                Ok((Incoming::Reject(pdu), Destination::Inline))
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

    fn observe_tag(&self, event: &'static str, bhs: &Bhs) {
        self.observe(event, |session| {
            Itt::new(bhs.itt_raw()).and_then(|itt| session.find(itt))
        });
    }

    // --- commands

    fn handle_data_in(
        &mut self,
        now: Instant,
        id: ConnectionId,
        pdu: &DataIn,
    ) -> Result<(Incoming, Destination), Fatal> {
        self.update_numbers(
            id,
            pdu.status.map(|status| status.stat_sn),
            pdu.exp_cmd_sn,
            pdu.max_cmd_sn,
        );
        let Some((key, task)) = self.match_task(id, pdu.itt)? else {
            return Ok((Incoming::Dropped, Destination::Discard));
        };
        let offset = task.inbound.take(pdu)?;
        task.clock.data(now, &task.outbound);
        let status = pdu.status.map(|status| CommandStatus {
            key,
            response: Response::Completed,
            status: status.status,
            residual: status.residual,
            read_residual: Residual::None,
        });
        let incoming = Incoming::Data {
            key,
            length: pdu.data_segment_length,
            status,
        };
        Ok((
            incoming,
            Destination::Task {
                task: TaskId(key),
                offset,
            },
        ))
    }

    /// Notes that Data-In has been stored.
    #[inline]
    fn land(&mut self, now: Instant, key: Key, length: u32) {
        self.counters.data_in_bytes += u64::from(length);
        if let Some(task) = self.task_mut(key).filter(|task| task.inbound.is_complete()) {
            task.clock.data_complete(now);
        }
    }

    fn handle_scsi_response(
        &mut self,
        id: ConnectionId,
        pdu: &ScsiResponse,
    ) -> Result<(Incoming, Destination), Fatal> {
        self.update_status_numbers(id, pdu.numbers);
        let Some((key, _)) = self.match_task(id, pdu.itt)? else {
            return Ok((Incoming::Dropped, Destination::Discard));
        };
        let status = CommandStatus {
            key,
            response: pdu.response,
            status: pdu.status,
            residual: pdu.residual,
            read_residual: pdu.read_residual,
        };
        Ok((Incoming::Response(status), Destination::Inline))
    }

    fn end(&mut self, now: Instant, status: CommandStatus, sense: Box<[u8]>) -> Result<(), Fatal> {
        match status.response {
            Response::Completed => {
                // The command may have been aborted between header and data.
                let ended = self.end_task(status.key, |task| {
                    (task.inbound.bytes(), task.clock.stop(now))
                });
                let Some((data_in_bytes, times)) = ended else {
                    return Ok(());
                };
                self.events.push_back(Event::Done {
                    task: TaskId(status.key),
                    status: status.status,
                    sense,
                    residual: status.residual,
                    read_residual: status.read_residual,
                    data_in_bytes,
                    times,
                });
            }
            Response::TargetFailure | Response::VendorSpecific(_) => {
                self.fail(status.key, Failure::TargetFailure);
            }
        }
        Ok(())
    }

    fn handle_r2t(
        &mut self,
        now: Instant,
        id: ConnectionId,
        pdu: &R2t,
    ) -> Result<(Incoming, Destination), Fatal> {
        self.update_numbers(id, None, pdu.numbers.exp_cmd_sn, pdu.numbers.max_cmd_sn);
        self.counters.r2ts += 1;
        let Some((key, _)) = self.match_task(id, pdu.itt)? else {
            return Ok((Incoming::Dropped, Destination::Discard));
        };
        let Some(Exchange::Task(task)) = self.exchanges.get_mut(key) else {
            return Err(Fatal::WrongAnswer);
        };
        let run = task.outbound.handle_r2t(pdu, &self.config.parameters)?;
        task.clock.sent(now, &task.outbound);
        if let Some(connection) = self.connection_mut(id) {
            connection.queue.push_back(QueuedPdu::Data {
                key,
                ttt: Some(pdu.ttt),
                run,
            });
        }
        Ok((Incoming::Dropped, Destination::Discard))
    }

    /// Processes a Reject of one of our PDUs. Its data is the header of the rejected PDU.
    fn handle_reject(
        &mut self,
        id: ConnectionId,
        pdu: &Reject,
        header: &[u8],
    ) -> Result<(), Fatal> {
        self.counters.rejects += 1;
        let refused = Bhs(*header.first_chunk::<BHS_BYTES>().ok_or(Fatal::Truncated)?);
        // After a data digest error, the target ends the command with CHECK CONDITION (section 7.8).
        if refused.opcode() == Some(Opcode::DataOut) && pdu.reason == RejectReason::DataDigestError
        {
            return Ok(());
        }
        let Some(key) = Itt::new(refused.itt_raw()).and_then(|itt| self.find(itt)) else {
            return Ok(());
        };
        match self.exchanges.get(key) {
            Some(entry) if entry.connection() != id => Err(Fatal::ForeignTask),
            Some(Exchange::Task(_)) => {
                self.remember_ended(tag(key));
                self.fail(key, Failure::Rejected(pdu.reason));
                Ok(())
            }
            Some(Exchange::Tmf(_)) => {
                let result = crate::pdu::TaskManagementResult::FunctionRejected;
                let itt = tag(key);
                let answer = TaskManagementResponse {
                    result,
                    itt,
                    numbers: TargetNumbers::default(),
                };
                self.complete_tmf(key, &answer);
                Ok(())
            }
            Some(Exchange::Text(_)) => {
                self.exchanges.remove(key);
                self.events.push_back(Event::Text {
                    connection: id,
                    text: Vec::new(),
                });
                Ok(())
            }
            Some(&Exchange::Logout {
                connection,
                leaving,
            }) => {
                self.exchanges.remove(key);
                self.logout_lost(connection, leaving);
                Ok(())
            }
            Some(Exchange::Ping { .. }) => {
                self.fail_ping(key);
                Ok(())
            }
            None => Ok(()),
        }
    }

    // --- other responses

    fn handle_nop_in(
        &mut self,
        id: ConnectionId,
        pdu: &NopIn,
    ) -> Result<(Incoming, Destination), Fatal> {
        let TargetNumbers {
            stat_sn,
            exp_cmd_sn,
            max_cmd_sn,
        } = pdu.numbers;
        self.update_numbers(id, pdu.itt.map(|_| stat_sn), exp_cmd_sn, max_cmd_sn);
        if let Some(itt) = pdu.itt {
            let key = self.match_exchange(id, itt)?;
            return match self.exchanges.get(key) {
                Some(Exchange::Ping { .. }) => {
                    Ok((Incoming::PingResponse(key), Destination::Inline))
                }
                Some(_) | None => Err(Fatal::WrongAnswer),
            };
        }
        let Some(connection) = self.connection_mut(id) else {
            return Err(Fatal::NotConnected);
        };
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
            connection.queue_immediate(answer.emit(), Vec::new());
        }
        Ok((Incoming::Dropped, Destination::Discard))
    }

    fn handle_ping_response(&mut self, now: Instant, id: ConnectionId, key: Key, data: &[u8]) {
        let Some(Exchange::Ping {
            is_keepalive, sent, ..
        }) = self.exchanges.remove(key)
        else {
            return;
        };
        if let Some(sent) = sent {
            self.counters.nops.note(now.saturating_duration_since(sent));
        }
        if !is_keepalive {
            self.events.push_back(Event::Pong {
                ping: PingId(key),
                data: Some(data.to_vec()),
            });
        } else if let Some(connection) = self.connection_mut(id) {
            connection.probe.answered();
        }
    }

    fn handle_tmf_response(
        &mut self,
        id: ConnectionId,
        pdu: &TaskManagementResponse,
    ) -> Result<(Incoming, Destination), Fatal> {
        self.update_status_numbers(id, pdu.numbers);
        let key = self.match_exchange(id, pdu.itt)?;
        match self.exchanges.get(key) {
            Some(Exchange::Tmf(_)) => self.complete_tmf(key, pdu),
            Some(_) | None => return Err(Fatal::WrongAnswer),
        }
        Ok((Incoming::Nothing, Destination::None))
    }

    fn handle_logout_response(
        &mut self,
        id: ConnectionId,
        pdu: &LogoutResponse,
    ) -> Result<(Incoming, Destination), Fatal> {
        self.update_status_numbers(id, pdu.numbers);
        let key = self.match_exchange(id, pdu.itt)?;
        let Some(&Exchange::Logout { leaving, .. }) = self.exchanges.get(key) else {
            return Err(Fatal::WrongAnswer);
        };
        self.exchanges.remove(key);
        self.events.push_back(Event::LoggedOut {
            connection: id,
            leaving,
            result: Some(pdu.result),
        });
        Ok((Incoming::Nothing, Destination::None))
    }

    /// Processes a PDU of a text response. A response may take several PDUs, the last of which has F set.
    /// Each of the others is answered with an empty request that contains its tag.
    fn handle_text_response(
        &mut self,
        id: ConnectionId,
        pdu: &TextResponse,
        key: Key,
        piece: &[u8],
    ) -> Result<(), Fatal> {
        let Some(Exchange::Text(text)) = self.exchanges.get_mut(key) else {
            return Err(Fatal::WrongAnswer);
        };
        match text
            .answer
            .add(piece, !pdu.is_final)
            .map_err(|_| Fatal::TextTooLong)?
        {
            Some(text) => {
                self.exchanges.remove(key);
                self.events.push_back(Event::Text {
                    connection: id,
                    text,
                });
            }
            None => {
                let ttt = pdu.ttt.ok_or(Fatal::Malformed(Malformed::ReservedTtt))?;
                self.queue_text(id, key, Some(ttt), Vec::new());
            }
        }
        Ok(())
    }

    // --- helpers

    /// The exchange of a response, which must arrive on the connection of its request.
    fn match_exchange(&self, id: ConnectionId, itt: Itt) -> Result<Key, Fatal> {
        let key = self.find(itt).ok_or(Fatal::UnknownTag)?;
        let entry = self.exchanges.get(key).ok_or(Fatal::UnknownTag)?;
        if entry.connection() == id {
            Ok(key)
        } else {
            Err(Fatal::ForeignTask)
        }
    }

    /// The command of a response; `None` if it has already ended and further PDUs are expected.
    #[inline]
    fn match_task(
        &mut self,
        id: ConnectionId,
        itt: Itt,
    ) -> Result<Option<(Key, &mut Task)>, Fatal> {
        let found = self
            .exchanges
            .at_mut(itt.get() & INDEX_MASK)
            .filter(|&(key, _)| tag(key) == itt);
        match found {
            Some((_, entry)) if entry.connection() != id => Err(Fatal::ForeignTask),
            Some((key, Exchange::Task(task))) => Ok(Some((key, task))),
            Some(_) => Err(Fatal::WrongAnswer),
            None if self.ended.contains(&itt) => Ok(None),
            None => Err(Fatal::UnknownTag),
        }
    }

    fn update_status_numbers(&mut self, id: ConnectionId, numbers: TargetNumbers) {
        self.update_numbers(
            id,
            Some(numbers.stat_sn),
            numbers.exp_cmd_sn,
            numbers.max_cmd_sn,
        );
    }

    /// Processes the sequence numbers of a PDU.
    fn update_numbers(
        &mut self,
        id: ConnectionId,
        stat_sn: Option<Sn>,
        exp_cmd_sn: Sn,
        max_cmd_sn: Sn,
    ) {
        self.window.update(exp_cmd_sn, max_cmd_sn);
        if let (Some(_), Some(connection)) = (stat_sn, self.connection_mut(id)) {
            connection.incoming_stat_sn = stat_sn;
        }
    }
}

/// The sense data of a segment, where it is preceded by its length in two bytes (section 11.4.7). Response
/// data may follow it, but no standard defines any.
fn sense(segment: &[u8]) -> Result<Box<[u8]>, Fatal> {
    let Some((length, rest)) = segment.split_first_chunk::<2>() else {
        return if segment.is_empty() {
            Ok(Box::default())
        } else {
            Err(Fatal::Truncated)
        };
    };
    let length = usize::from(u16::from_be_bytes(*length));
    rest.get(..length).map(Box::from).ok_or(Fatal::Truncated)
}

/// Maximum number of queued responses to the target's pings.
const UNANSWERED_MAX: usize = 1024;
