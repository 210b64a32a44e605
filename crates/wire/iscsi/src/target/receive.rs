//! Received PDUs: headers and their data segments, SCSI commands (delivered in CmdSN order, held, or
//! rejected) with their data, and the delivery of other requests.

use std::time::Instant;

use super::connection::{Incoming, QueuedPdu, Request, RequestKind};
use super::session::Session;
use super::task::{ExpectedLengths, HeldCommand, Inbound, NextStep, StagedData, Task, staged_cost};
use super::task_management::exp_stat_sn;
use super::transmit::Response;
use super::window::{CmdSnOrder, Held};
use super::{Command, ConnectionId, DataFault, Event, Fatal, TaskId};
use crate::framing;
use crate::negotiate::SessionType;
use crate::pdu::{
    Ahs, Bhs, DataOut, LogoutRequest, Malformed, NopOut, Opcode, Reject, RejectReason, ScsiCommand,
    Sn, TargetNumbers, TaskManagementRequest, TextRequest,
};
use crate::slab::Key;

/// The data segment that follows a header.
pub type Segment = framing::Segment<TaskId>;

/// The destination of a received data segment.
pub type Destination = framing::Destination<TaskId>;

impl Session {
    /// Processes a header: its 48 bytes and all additional header segments, with digests verified. Returns
    /// the destination of the data segment that follows.
    ///
    /// The driver must poll events before it stores the data segment: the segment may belong to a new
    /// command, for which the driver has no memory yet. When the segment has arrived, the driver calls
    /// [`Session::handle_segment`]. If there is no data segment, this call is not needed.
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
            let arrived = connection
                .receipts
                .extract_if(.., |(stat_sn, _)| stat_sn.next().le(expected));
            let arrived: Vec<Event> = arrived
                .map(|(_, receipt)| Event::Acknowledged(receipt))
                .collect();
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
                Ok(Segment {
                    length,
                    destination: Destination::None,
                })
            }
            length => Ok(Segment {
                length,
                destination: self.destination(id),
            }),
        }
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
        let reserved = std::mem::take(&mut connection.reserved_bytes);
        debug_assert!(
            self.staged_bytes >= reserved,
            "reserved bytes are staged ones"
        );
        self.staged_bytes -= reserved;
        self.staging_limit = self.staging_limit.saturating_add(reserved);
        if !digest_ok {
            self.digest_failed(id, &incoming);
            return Ok(());
        }
        match incoming {
            Incoming::Nothing | Incoming::Dropped => {}
            Incoming::Immediate { key, length } => self.immediate_arrived(key, length, inline),
            Incoming::DataOut {
                key,
                offset,
                length,
                is_final,
            } => {
                self.data_out_arrived(key, offset, length, is_final, inline);
            }
            Incoming::Unwanted {
                key,
                is_final,
                is_solicited,
            } => {
                self.unwanted_arrived(key, is_final, is_solicited);
            }
            Incoming::Request(mut request) => {
                request.data.extend_from_slice(inline);
                self.take_request(request);
            }
        }
        Ok(())
    }

    /// Parses a PDU before its data arrives, and rejects PDUs not allowed in this session.
    fn dispatch(&mut self, id: ConnectionId, bhs: &Bhs, ahs: &[u8]) -> Result<(), Fatal> {
        let is_discovery = self.config.parameters.session_type == SessionType::Discovery;
        let parsed = match bhs.opcode() {
            // "MUST reject any other" (section 4.3): a discovery session allows text, logout and, by
            // convention, NOP.
            Some(Opcode::ScsiCommand | Opcode::DataOut | Opcode::TaskManagementRequest)
                if is_discovery =>
            {
                self.reject(id, RejectReason::CommandNotSupported);
                Ok(())
            }
            Some(Opcode::ScsiCommand) => self.take_command(id, bhs, ahs),
            Some(Opcode::DataOut) => match DataOut::parse(bhs) {
                Ok(pdu) => return self.take_data_out(id, &pdu),
                Err(malformed) => Err(malformed),
            },
            Some(Opcode::NopOut) => NopOut::parse(bhs).map(|pdu| {
                self.await_segment(id, RequestKind::Nop(pdu), pdu.cmd_sn, pdu.immediate)
            }),
            Some(Opcode::TextRequest) => TextRequest::parse(bhs).map(|pdu| {
                self.await_segment(id, RequestKind::Text(pdu), pdu.cmd_sn, pdu.immediate)
            }),
            Some(Opcode::TaskManagementRequest) => TaskManagementRequest::parse(bhs).map(|pdu| {
                self.await_segment(id, RequestKind::Tmf(pdu), pdu.cmd_sn, pdu.immediate)
            }),
            Some(Opcode::LogoutRequest) => LogoutRequest::parse(bhs).map(|pdu| {
                self.await_segment(id, RequestKind::Logout(pdu), pdu.cmd_sn, pdu.immediate)
            }),
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

    /// Maximum number of queued PDUs of a connection: R2Ts and responses of all commands and task management
    /// functions, and `unsent_max` PDUs of other requests. PDUs blocked by a fence count towards this limit.
    fn unsent_max(&self) -> usize {
        let tasks = self.config.window as usize + self.config.immediate_max as usize;
        let owed =
            tasks.saturating_mul(usize::from(self.config.parameters.max_outstanding_r2t) + 1);
        owed.saturating_add(self.config.unsent_max)
            .saturating_sub(self.fences.blocked())
    }

    /// Maximum size of the data of queued PDUs, in bytes. It is lower if there is no staging space.
    fn unsent_bytes_max(&self) -> usize {
        let most = self.config.unsent_bytes_max;
        if self.staging_limit == 0 {
            most.min(UNSENT_BYTES_MIN)
        } else {
            most
        }
    }

    // --- other requests

    /// Stores a request until its data segment has arrived.
    fn await_segment(&mut self, id: ConnectionId, kind: RequestKind, cmd_sn: Sn, immediate: bool) {
        if let Some(connection) = self.connection_mut(id) {
            debug_assert!(
                matches!(connection.incoming, Incoming::Dropped),
                "another segment is awaited"
            );
            let since = connection.header_at;
            let request = Request {
                connection: id,
                since,
                kind,
                data: Vec::new(),
                cmd_sn,
                immediate,
            };
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

    /// Executes a request. If the request was held, its connection may no longer exist.
    pub(super) fn carry_out(&mut self, request: Request) {
        let Request {
            connection,
            kind,
            data,
            ..
        } = request;
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

    /// Rejects the PDU whose header arrived last. Its data segment is dropped.
    pub(super) fn reject(&mut self, id: ConnectionId, reason: RejectReason) {
        self.counters.rejects += 1;
        let Some(connection) = self.connection_mut(id) else {
            return;
        };
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

/// Size of the data that may be queued even without staging space, in bytes: the data of one or two pings.
const UNSENT_BYTES_MIN: usize = 64 << 10;

impl Session {
    pub(super) fn take_command(
        &mut self,
        id: ConnectionId,
        bhs: &Bhs,
        ahs: &[u8],
    ) -> Result<(), Malformed> {
        let pdu = ScsiCommand::parse(bhs)?;
        let ahs = if ahs.is_empty() {
            Ahs::default()
        } else {
            Ahs::parse(ahs)?
        };
        let order = if pdu.immediate {
            CmdSnOrder::Next
        } else {
            self.window.order(pdu.cmd_sn)
        };
        self.observe("SCSI Command of its tag", |session| {
            session.tags.find(pdu.itt)
        });
        if order == CmdSnOrder::Ignored {
            self.counters.commands_ignored += 1;
        } else if !pdu.immediate && self.is_aborted_early(pdu.cmd_sn, pdu.lun) {
            self.skip_aborted(pdu.cmd_sn, order);
        } else if self.tags.find(pdu.itt).is_some() {
            // Section 11.2.1.8 requires unique tags. The initiator would attribute a status with this tag to
            // the other task, so the command is one of the few that get a Reject. Its CmdSN does not count as
            // received (section 7.3).
            self.reject(id, RejectReason::TaskInProgress);
        } else if pdu.immediate && self.immediate >= self.config.immediate_max {
            self.reject(id, RejectReason::ImmediateCommandReject);
        } else {
            self.accept_command(id, &pdu, &ahs, order);
        }
        Ok(())
    }

    /// Skips a command that a task management function aborted before it arrived: its CmdSN counts as
    /// received, and no task is created.
    fn skip_aborted(&mut self, cmd_sn: Sn, order: CmdSnOrder) {
        self.counters.commands_ignored += 1;
        if order == CmdSnOrder::Ahead {
            return self.window.hold(cmd_sn, Held::Received);
        }
        self.window.advance();
        self.release();
    }

    fn accept_command(
        &mut self,
        id: ConnectionId,
        pdu: &ScsiCommand,
        ahs: &Ahs<'_>,
        order: CmdSnOrder,
    ) {
        debug_assert_ne!(order, CmdSnOrder::Ignored, "CmdSN {}", pdu.cmd_sn);
        let inbound = Inbound::new(pdu, &self.config.parameters);
        let key = self.tasks.insert(Task {
            connection: id,
            itt: pdu.itt,
            lun: pdu.lun,
            immediate: pdu.immediate,
            announced: false,
            waiting: None,
            lengths: lengths(pdu, ahs),
            inbound,
            outbound: None,
            queued: false,
        });
        self.tags.insert(pdu.itt, key);
        self.immediate += u32::from(pdu.immediate);
        if pdu.data_segment_length > 0 {
            let wanted = Incoming::Immediate {
                key,
                length: pdu.data_segment_length,
            };
            let unwanted = Incoming::Unwanted {
                key,
                is_final: false,
                is_solicited: false,
            };
            self.set_incoming(
                id,
                if inbound.fault().is_none() {
                    wanted
                } else {
                    unwanted
                },
            );
        }
        let command = command(
            TaskId {
                key,
                connection: id,
            },
            pdu,
            ahs,
        );
        match order {
            CmdSnOrder::Ahead => self.hold_command(key, pdu.cmd_sn, command),
            CmdSnOrder::Next | CmdSnOrder::Ignored => {
                self.announce(command);
                if !pdu.immediate {
                    self.window.advance();
                    self.release();
                }
            }
        }
    }

    fn announce(&mut self, command: Command) {
        debug_assert!(
            self.tasks
                .get(command.task.key)
                .is_some_and(|task| !task.announced),
            "announced twice"
        );
        let task = command.task;
        self.counters.commands += 1;
        self.active += u32::from(!command.immediate);
        self.events.push_back(Event::Command(command));
        let Some(entry) = self.tasks.get_mut(task.key) else {
            return;
        };
        entry.announced = true;
        if let Some(fault) = entry.inbound.fault() {
            self.events.push_back(Event::DataFailed { task, fault });
        }
    }

    fn hold_command(&mut self, key: Key, cmd_sn: Sn, command: Command) {
        if let Some(since) = self
            .connection(command.task.connection)
            .map(|connection| connection.header_at)
            && let Some(task) = self.tasks.get_mut(key)
        {
            task.waiting = Some(Box::new(HeldCommand {
                command,
                since,
                staged: Vec::new(),
                overrun: false,
            }));
        }
        self.window.hold(cmd_sn, Held::Command(key));
    }

    /// Delivers the held entries that are now in order, and starts task management functions that waited for
    /// them.
    pub(super) fn release(&mut self) {
        while let Some(held) = self.window.take_next() {
            match held {
                Held::Command(key) => self.release_command(key),
                Held::Request(request) => {
                    self.staged_bytes -= staged_cost(request.data.len());
                    self.carry_out(*request);
                }
                Held::Received => {}
            }
        }
        self.release_tmfs();
    }

    fn release_command(&mut self, key: Key) {
        let Some(waiting) = self.tasks.get_mut(key).and_then(|task| task.waiting.take()) else {
            return;
        };
        debug_assert!(
            !waiting.command.immediate,
            "an immediate command waits for no CmdSN"
        );
        let HeldCommand {
            command,
            staged,
            overrun,
            ..
        } = *waiting;
        let task = command.task;
        if overrun {
            // There was no space for its data: TASK SET FULL, so that the initiator retries (SAM-5 5.3.1).
            self.staged_bytes -= staged
                .iter()
                .map(|staged| staged_cost(staged.bytes.len()))
                .sum::<usize>();
            self.active += 1;
            return self.respond(
                task,
                Response {
                    status: TASK_SET_FULL,
                    ..Response::default()
                },
            );
        }
        self.announce(command);
        for StagedData { offset, bytes } in staged {
            self.staged_bytes -= staged_cost(bytes.len());
            self.events.push_back(Event::StagedData {
                task,
                offset,
                bytes,
            });
        }
    }
}

fn command(task: TaskId, pdu: &ScsiCommand, ahs: &Ahs<'_>) -> Command {
    Command {
        task,
        lun: pdu.lun,
        attribute: pdu.attribute,
        immediate: pdu.immediate,
        read: pdu.read,
        write: pdu.write,
        edtl: pdu.expected_data_transfer_length,
        bidirectional_read_edtl: (pdu.read && pdu.write)
            .then(|| ahs.expected_read_length.unwrap_or(0)),
        immediate_data: pdu.data_segment_length,
        cdb: pdu.cdb,
        long_cdb: ahs
            .extended_cdb
            .map(|rest| [&pdu.cdb, rest].concat().into_boxed_slice()),
    }
}

fn lengths(pdu: &ScsiCommand, ahs: &Ahs<'_>) -> ExpectedLengths {
    let edtl = pdu.expected_data_transfer_length;
    let read = match (pdu.read, pdu.write) {
        (true, true) => ahs.expected_read_length.unwrap_or(0),
        (true, false) => edtl,
        (false, _) => 0,
    };
    ExpectedLengths {
        write: if pdu.write { edtl } else { 0 },
        read,
        bidirectional: pdu.read && pdu.write,
    }
}

/// SAM-5 5.3.1.
const TASK_SET_FULL: u8 = 0x28;

impl Session {
    /// Bytes of a command's data received so far, from its start.
    pub fn data_received(&self, task: TaskId) -> u32 {
        self.tasks
            .get(task.key)
            .map_or(0, |task| task.inbound.received())
    }

    pub(super) fn take_data_out(&mut self, id: ConnectionId, pdu: &DataOut) -> Result<(), Fatal> {
        self.observe("Data-Out", |session| session.tags.find(pdu.itt));
        let Some((key, task)) = self
            .tags
            .find(pdu.itt)
            .and_then(|key| Some((key, self.tasks.get_mut(key)?)))
        else {
            // After an abort or a reset, an initiator may or may not continue to answer R2Ts (FastAbort in
            // iscsid.conf), so late data is silently dropped.
            self.counters.data_out_late += 1;
            return Ok(());
        };
        if task.connection != id {
            return Err(Fatal::ForeignTask);
        }
        task.inbound.begin_segment();
        let (is_final, is_solicited) = (pdu.is_final, pdu.ttt.is_some());
        let unwanted = Incoming::Unwanted {
            key,
            is_final,
            is_solicited,
        };
        if task.refuses_data() {
            self.set_incoming(id, unwanted);
            return Ok(());
        }
        let checked = match is_solicited && pdu.lun != task.lun {
            true => Err(DataFault::Sequence),
            false => task
                .inbound
                .check(pdu, key, &self.config.parameters, task.lengths.write),
        };
        match checked {
            Ok(offset) => {
                let length = pdu.data_segment_length;
                self.set_incoming(
                    id,
                    Incoming::DataOut {
                        key,
                        offset,
                        length,
                        is_final,
                    },
                );
            }
            Err(fault) => {
                self.set_incoming(id, unwanted);
                self.fail(key, fault);
            }
        }
        Ok(())
    }

    /// The destination of the data segment being received.
    pub(super) fn destination(&mut self, id: ConnectionId) -> Destination {
        let Some(connection) = self.connection(id) else {
            return Destination::Discard;
        };
        let (key, offset, length) = match &connection.incoming {
            Incoming::Nothing | Incoming::Dropped | Incoming::Unwanted { .. } => {
                return Destination::Discard;
            }
            Incoming::Request(_) => return self.request_destination(id),
            Incoming::Immediate { key, length } => (*key, 0, *length),
            Incoming::DataOut {
                key,
                offset,
                length,
                ..
            } => (*key, *offset, *length),
        };
        let has_room = self.has_staging_room(length as usize);
        let Some(task) = self.tasks.get_mut(key) else {
            return Destination::Discard;
        };
        let Some(waiting) = &mut task.waiting else {
            return match task.inbound.takes_from(offset) {
                true => Destination::Task {
                    task: TaskId {
                        key,
                        connection: id,
                    },
                    offset,
                },
                false => Destination::Discard,
            };
        };
        waiting.overrun |= !has_room;
        if waiting.overrun {
            Destination::Discard
        } else {
            self.reserve(id, length as usize)
        }
    }

    /// The destination of the data of a request. Up to [`UNCOUNTED_BYTES_MAX`] bytes are accepted even
    /// without staging space, so that short pings are always answered: a connection receives only one such
    /// segment at a time.
    fn request_destination(&mut self, id: ConnectionId) -> Destination {
        let length = self
            .connection(id)
            .map_or(0, |connection| connection.header.data_segment_length())
            as usize;
        if length <= UNCOUNTED_BYTES_MAX {
            return Destination::Inline;
        }
        if !self.has_staging_room(length) {
            self.reject(id, RejectReason::LongOperationReject);
            self.set_incoming(id, Incoming::Dropped);
            return Destination::Discard;
        }
        self.reserve(id, length)
    }

    /// Reserves staging space for a data segment that the state machine will hold. The space is charged as
    /// soon as the header has arrived, because the peer may take any time to send the data.
    fn reserve(&mut self, id: ConnectionId, length: usize) -> Destination {
        debug_assert!(
            self.connection(id)
                .is_some_and(|connection| connection.reserved_bytes == 0),
            "two concurrent segments"
        );
        self.count_staged(length);
        if let Some(connection) = self.connection_mut(id) {
            connection.reserved_bytes = staged_cost(length);
        }
        Destination::Inline
    }

    pub(super) fn has_staging_room(&self, length: usize) -> bool {
        let bytes = staged_cost(length);
        bytes <= self.staging_limit && self.staged_bytes + bytes <= self.config.staged_bytes_max
    }

    pub(super) fn count_staged(&mut self, length: usize) {
        debug_assert!(
            self.has_staging_room(length),
            "{length} bytes beyond the staging room"
        );
        self.staged_bytes += staged_cost(length);
        self.staging_limit = self.staging_limit.saturating_sub(staged_cost(length));
    }

    pub(super) fn immediate_arrived(&mut self, key: Key, length: u32, inline: &[u8]) {
        self.stage(key, 0, length, inline);
        self.advance_data(key, |inbound| inbound.immediate_arrived(length));
    }

    fn unwanted_arrived(&mut self, key: Key, is_final: bool, is_solicited: bool) {
        self.advance_data(key, |inbound| inbound.dropped(is_final, is_solicited));
    }

    pub(super) fn data_out_arrived(
        &mut self,
        key: Key,
        offset: u32,
        length: u32,
        is_final: bool,
        inline: &[u8],
    ) {
        self.observe("its data are there", |_| Some(key));
        self.stage(key, offset, length, inline);
        self.advance_data(key, |inbound| inbound.arrived(length, is_final));
    }

    /// Stores the data of a held command; other data is already at its destination.
    fn stage(&mut self, key: Key, offset: u32, length: u32, inline: &[u8]) {
        if length == 0 {
            return;
        }
        let has_room = self.has_staging_room(inline.len());
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        let (task_id, connection) = (key, task.connection);
        let Some(waiting) = &mut task.waiting else {
            // The command was delivered after this header and before its data: the data now goes to the
            // driver.
            if !inline.is_empty() {
                let task = TaskId {
                    key: task_id,
                    connection,
                };
                self.events.push_back(Event::StagedData {
                    task,
                    offset,
                    bytes: inline.to_vec(),
                });
            }
            return;
        };
        if inline.len() == length as usize && has_room && !waiting.overrun {
            waiting.staged.push(StagedData {
                offset,
                bytes: inline.to_vec(),
            });
            self.count_staged(inline.len());
        } else {
            waiting.overrun = true;
        }
    }

    /// Updates the state of a task's data with `step`. Then requests more data, reports that the data is
    /// complete, or queues the response that waited for the end of the data.
    pub(super) fn advance_data(&mut self, key: Key, step: impl FnOnce(&mut Inbound)) {
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        step(&mut task.inbound);
        if task.outbound.is_some() {
            return self.respond_if_drained(key);
        }
        let id = task.connection;
        match task.inbound.next(&self.config.parameters) {
            NextStep::Wait => {}
            NextStep::Complete => {
                self.events.push_back(Event::DataComplete {
                    task: TaskId {
                        key,
                        connection: id,
                    },
                });
            }
            NextStep::SendR2ts(count) => {
                if let Some(connection) = self.connection_mut(id) {
                    connection
                        .urgent
                        .extend((0..count).map(|_| QueuedPdu::R2t(key)));
                }
            }
        }
    }

    /// Records an error in a task's data.
    fn fail(&mut self, key: Key, fault: DataFault) {
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        task.inbound.fail(fault);
        if !task.is_held() && task.outbound.is_none() {
            let task = TaskId {
                key,
                connection: task.connection,
            };
            self.events.push_back(Event::DataFailed { task, fault });
        }
    }

    /// Handles a data digest error. Section 7.8: "it MUST answer with a Reject PDU with a reason code of
    /// Data-Digest-Error and discard the PDU". The task that owns the data also gets its CHECK CONDITION,
    /// "after … it receives all the data".
    pub(super) fn digest_failed(&mut self, id: ConnectionId, incoming: &Incoming) {
        self.counters.digest_errors += 1;
        self.reject(id, RejectReason::DataDigestError);
        match incoming {
            Incoming::Immediate { key, .. } => {
                self.fail(*key, DataFault::Digest);
                self.unwanted_arrived(*key, false, false);
            }
            Incoming::DataOut {
                key,
                is_final,
                length,
                ..
            } => {
                self.fail(*key, DataFault::Digest);
                self.advance_data(*key, |inbound| inbound.arrived(*length, *is_final));
            }
            Incoming::Unwanted {
                key,
                is_final,
                is_solicited,
            } => {
                self.unwanted_arrived(*key, *is_final, *is_solicited);
            }
            Incoming::Nothing | Incoming::Dropped | Incoming::Request(_) => {}
        }
    }
}

/// Maximum size of a data segment that is accepted without staging space: the MaxRecvDataSegmentLength of a
/// discovery session.
const UNCOUNTED_BYTES_MAX: usize = 8 << 10;
