//! Received PDUs: headers, their data segments, and requests other than SCSI commands.

use std::time::Instant;

use super::Session;
use super::event::{ConnectionId, Event, TaskId};
use super::fatal::Fatal;
use super::fence::exp_stat_sn;
use super::incoming::{Incoming, Request, RequestKind};
use super::window::{CmdSnOrder, Held};
use crate::data;
use crate::negotiate::SessionType;
use crate::pdu::{
    Bhs, DataOut, LogoutRequest, Malformed, NopOut, Opcode, Reject, RejectReason, TargetNumbers,
    TaskManagementRequest, TextRequest,
};
use crate::serial::Sn;

/// The data segment that follows a header.
pub type Segment = data::Segment<TaskId>;

/// Where a received data segment belongs.
pub type Destination = data::Destination<TaskId>;

impl Session {
    /// Processes a header: its 48 bytes and all additional header segments, with digests verified. Returns
    /// the destination of the data segment that follows.
    ///
    /// The driver polls events before it stores that data: the command may be a new one that has no memory
    /// yet. After the data it calls [`Session::handle_segment`]; without data it need not.
    pub fn handle_header(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bhs: &Bhs,
        ahs: &[u8],
    ) -> Result<Segment, Fatal> {
        let (unsent, unsent_bytes) = (self.unsent_max(), self.unsent_bytes_max());
        let connection = self.connection_mut(id).ok_or(Fatal::NotConnected)?;
        let length = bhs.data_segment_length();
        if length > connection.local_segment_max {
            return Err(Fatal::SegmentTooLong { length });
        }
        if connection.exceeds_backlog(unsent, unsent_bytes) {
            return Err(Fatal::TooManyUnanswered);
        }
        connection.keepalive.note_received(now);
        connection.header = *bhs;
        connection.header_at = now;
        connection.incoming = Incoming::Dropped;
        let is_receiving = !connection.logged_out;
        if !connection.receipts.is_empty() {
            let expected = exp_stat_sn(bhs);
            let arrived = connection.receipts.extract_if(.., |(stat_sn, _)| stat_sn.next().le(expected));
            let arrived: Vec<Event> = arrived.map(|(_, receipt)| Event::Acknowledged(receipt)).collect();
            self.events.extend(arrived);
        }
        if self.fences.is_active() {
            self.handle_acknowledgement(id, bhs);
        }
        if is_receiving {
            self.dispatch(id, bhs, ahs)?;
        }
        match length {
            0 => {
                self.handle_segment(now, id, true, &[])?;
                Ok(Segment { length, destination: Destination::None })
            }
            length => Ok(Segment { length, destination: self.destination(id) }),
        }
    }

    /// Processes a data segment stored at its destination. `digest_ok` is true without digests; `inline` is
    /// the data of [`Destination::Inline`], else empty.
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
        let reserved = std::mem::take(&mut connection.reserved_bytes);
        self.staged_bytes -= reserved;
        self.staging_limit = self.staging_limit.saturating_add(reserved);
        if !digest_ok {
            self.digest_failed(id, &incoming);
            return Ok(());
        }
        match incoming {
            Incoming::Nothing | Incoming::Dropped => {}
            Incoming::Immediate { key, length } => self.immediate_arrived(key, length, inline),
            Incoming::DataOut { key, offset, length, is_final } => {
                self.data_out_arrived(key, offset, length, is_final, inline);
            }
            Incoming::Request(mut request) => {
                request.data.extend_from_slice(inline);
                self.take_request(request);
            }
        }
        Ok(())
    }

    /// Parses a PDU before its data arrive, and rejects what is not allowed in this session.
    fn dispatch(&mut self, id: ConnectionId, bhs: &Bhs, ahs: &[u8]) -> Result<(), Fatal> {
        let is_discovery = self.config.parameters.session_type == SessionType::Discovery;
        let parsed = match bhs.opcode() {
            // "MUST reject any other" (section 4.3): a discovery session has text, logout and, by convention,
            // NOP.
            Some(Opcode::ScsiCommand | Opcode::DataOut | Opcode::TaskManagementRequest) if is_discovery => {
                self.reject(id, RejectReason::CommandNotSupported);
                Ok(())
            }
            Some(Opcode::ScsiCommand) => self.take_command(id, bhs, ahs),
            Some(Opcode::DataOut) => match DataOut::parse(bhs) {
                Ok(pdu) => return self.take_data_out(id, &pdu),
                Err(malformed) => Err(malformed),
            },
            Some(Opcode::NopOut) => NopOut::parse(bhs)
                .map(|pdu| self.await_segment(id, RequestKind::Nop(pdu), pdu.cmd_sn, pdu.immediate)),
            Some(Opcode::TextRequest) => TextRequest::parse(bhs)
                .map(|pdu| self.await_segment(id, RequestKind::Text(pdu), pdu.cmd_sn, pdu.immediate)),
            Some(Opcode::TaskManagementRequest) => TaskManagementRequest::parse(bhs)
                .map(|pdu| self.await_segment(id, RequestKind::Tmf(pdu), pdu.cmd_sn, pdu.immediate)),
            Some(Opcode::LogoutRequest) => LogoutRequest::parse(bhs)
                .map(|pdu| self.await_segment(id, RequestKind::Logout(pdu), pdu.cmd_sn, pdu.immediate)),
            // ErrorRecoveryLevel 0: no retransmission (section 11.16).
            Some(Opcode::SnackRequest) => {
                self.reject(id, RejectReason::SnackReject);
                Ok(())
            }
            Some(Opcode::LoginRequest) => return Err(Fatal::LoginInFullFeaturePhase),
            Some(
                Opcode::NopIn
                | Opcode::ScsiResponse
                | Opcode::TaskManagementResponse
                | Opcode::LoginResponse
                | Opcode::TextResponse
                | Opcode::DataIn
                | Opcode::LogoutResponse
                | Opcode::R2t
                | Opcode::AsyncMessage
                | Opcode::Reject,
            ) => Err(Malformed::WrongOpcode),
            None => Err(Malformed::UnknownOpcode),
        };
        if let Err(malformed) = parsed {
            self.reject(id, malformed.reject_reason());
        }
        Ok(())
    }

    /// Maximum number of queued PDUs of a connection: R2Ts and responses of all commands and functions, and
    /// some of other requests, except those blocked by a fence.
    fn unsent_max(&self) -> usize {
        let tasks = self.config.window as usize + self.config.immediate_max as usize;
        let owed = tasks.saturating_mul(usize::from(self.config.parameters.max_outstanding_r2t) + 1);
        owed.saturating_add(self.config.unsent_max).saturating_sub(self.fences.blocked())
    }

    /// Maximum size of their data: less if there is no staging room.
    fn unsent_bytes_max(&self) -> usize {
        let most = self.config.unsent_bytes_max;
        if self.staging_limit == 0 { most.min(UNSENT_BYTES_MIN) } else { most }
    }

    // --- other requests

    /// Keeps a request until its data segment has arrived, which may be immediately.
    fn await_segment(&mut self, id: ConnectionId, kind: RequestKind, cmd_sn: Sn, immediate: bool) {
        if let Some(connection) = self.connection_mut(id) {
            let since = connection.header_at;
            let request = Request { connection: id, since, kind, data: Vec::new(), cmd_sn, immediate };
            connection.incoming = Incoming::Request(Box::new(request));
        }
    }

    fn take_request(&mut self, request: Box<Request>) {
        if request.immediate {
            self.carry_out(*request);
            return self.release(); // an abort may have filled a gap
        }
        match self.window.order(request.cmd_sn) {
            CmdSnOrder::Ignored => self.counters.commands_ignored += 1,
            CmdSnOrder::Ahead if !self.has_staging_room(request.data.len()) => {
                self.reject(request.connection, RejectReason::LongOperationReject);
            }
            CmdSnOrder::Ahead => {
                self.count_staged(request.data.len());
                self.window.hold(request.cmd_sn, Held::Request(request));
            }
            CmdSnOrder::Next => {
                self.window.advance();
                self.carry_out(*request);
                self.release();
            }
        }
    }

    /// Executes a request. Its connection may be gone if it was held.
    pub(super) fn carry_out(&mut self, request: Request) {
        let Request { connection, kind, data, .. } = request;
        if self.connection(connection).is_none() {
            return;
        }
        match kind {
            RequestKind::Nop(pdu) => self.handle_nop(connection, &pdu, data),
            RequestKind::Text(pdu) => self.handle_text(connection, &pdu, &data),
            RequestKind::Tmf(pdu) => self.handle_tmf(connection, pdu),
            RequestKind::Logout(pdu) => self.handle_logout(connection, &pdu),
        }
    }

    // --- helpers

    /// Rejects the PDU whose header came last. Its data segment is dropped.
    pub(super) fn reject(&mut self, id: ConnectionId, reason: RejectReason) {
        self.counters.rejects += 1;
        let Some(connection) = self.connection_mut(id) else { return };
        let header = connection.header.0.to_vec();
        let pdu = Reject {
            reason,
            numbers: TargetNumbers::default(),
            data_sn: Sn(0),
            data_segment_length: header.len() as u32,
        };
        connection.queue_status(pdu.emit(), header);
    }

    pub(super) fn set_incoming(&mut self, id: ConnectionId, incoming: Incoming) {
        if let Some(connection) = self.connection_mut(id) {
            connection.incoming = incoming;
        }
    }
}

/// Data that may be queued even without staging room: that of one or two pings.
const UNSENT_BYTES_MIN: usize = 64 << 10;
