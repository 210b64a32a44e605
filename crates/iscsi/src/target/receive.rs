//! The wire spoke: headers, data segments, and which of them are acted on when.

use std::time::Instant;

use super::event::{Command, ConnectionId, DataFault, Event, TaskId};
use super::fatal::Fatal;
use super::inbound::{Inbound, Next};
use super::respond::Response;
use super::task::{Lengths, Staged, Task, Waiting};
use super::window::{Held, Turn};
use super::{Session, connection::Say};
use crate::negotiate::SessionType;
use crate::pdu::{
    Ahs, Bhs, DataOut, LogoutRequest, Malformed, NopOut, Opcode, Reject, RejectReason, ScsiCommand,
    TaskManagementRequest, TextRequest,
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
    /// With a task's data. It begins within what the driver takes for the task, and may reach beyond, but never
    /// beyond the EDTL: the driver drops what lies beyond, and all of it if it has answered the task.
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
    /// It came with a command.
    Immediate { key: Key, length: u32 },
    /// It is a Data-Out's.
    DataOut { key: Key, offset: u32, length: u32, is_final: bool },
    /// It completes a request.
    Request(Box<Request>),
}

/// Anything with a CmdSN that is no SCSI command.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) connection: ConnectionId,
    pub(super) kind: Kind,
    /// Text or ping data.
    pub(super) data: Vec<u8>,
    pub(super) cmd_sn: Sn,
    pub(super) immediate: bool,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Nop(NopOut),
    Text(TextRequest),
    Management(TaskManagementRequest),
    Logout(LogoutRequest),
}

impl Session {
    /// A header has arrived: its 48 bytes, and all additional header segments, both intact. Says where the data
    /// segment belongs that follows.
    ///
    /// The driver looks at events before it places that data: the command may be one it has yet to make a place
    /// for. When the data are there it calls [`Session::handle_segment`]; if there are none it need not.
    pub fn handle_header(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bhs: &Bhs,
        ahs: &[u8],
    ) -> Result<Segment, Fatal> {
        let (backlog, fenced) = (self.backlog_max(), self.fences.behind());
        let connection = self.connection_mut(id).ok_or(Fatal::NotConnected)?;
        let length = bhs.data_segment_length();
        if length > connection.local_segment_max {
            return Err(Fatal::SegmentTooLong { length });
        }
        if connection.is_deaf(backlog, fenced) {
            return Err(Fatal::TooManyUnanswered);
        }
        connection.keepalive.heard(now);
        connection.header = *bhs;
        connection.incoming = Incoming::Dropped;
        let is_listened_to = !connection.logged_out;
        if self.fences.is_standing() {
            self.note_acknowledgement(id, bhs);
        }
        if is_listened_to {
            self.dispatch(id, bhs, ahs)?;
        }
        match length {
            0 => {
                self.handle_segment(now, id, true, &[])?;
                Ok(Segment { length, place: Place::None })
            }
            length => Ok(Segment { length, place: self.place(id) }),
        }
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
            self.segment_damaged(id, &incoming);
            return Ok(());
        }
        match incoming {
            Incoming::Nothing | Incoming::Dropped => {}
            Incoming::Immediate { key, length } => self.immediate_landed(key, length, inline),
            Incoming::DataOut { key, offset, length, is_final } => {
                self.data_out_landed(key, offset, length, is_final, inline);
            }
            Incoming::Request(mut request) => {
                request.data.extend_from_slice(inline);
                self.take_request(request);
            }
        }
        Ok(())
    }

    /// Takes a request whose data has not come, and refuses what has no place in this session.
    fn dispatch(&mut self, id: ConnectionId, bhs: &Bhs, ahs: &[u8]) -> Result<(), Fatal> {
        let is_discovery = self.config.parameters.session_type == SessionType::Discovery;
        let parsed = match bhs.opcode() {
            // "MUST reject any other" (section 4.3): a discovery session knows text, logout and, by custom, NOP.
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
                .map(|pdu| self.await_segment(id, Kind::Nop(pdu), pdu.cmd_sn, pdu.immediate)),
            Some(Opcode::TextRequest) => TextRequest::parse(bhs)
                .map(|pdu| self.await_segment(id, Kind::Text(pdu), pdu.cmd_sn, pdu.immediate)),
            Some(Opcode::TaskManagementRequest) => TaskManagementRequest::parse(bhs)
                .map(|pdu| self.await_segment(id, Kind::Management(pdu), pdu.cmd_sn, pdu.immediate)),
            Some(Opcode::LogoutRequest) => LogoutRequest::parse(bhs)
                .map(|pdu| self.await_segment(id, Kind::Logout(pdu), pdu.cmd_sn, pdu.immediate)),
            // ErrorRecoveryLevel 0: there is nothing to send again (section 11.16).
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

    // --- commands

    fn take_command(&mut self, id: ConnectionId, bhs: &Bhs, ahs: &[u8]) -> Result<(), Malformed> {
        let pdu = ScsiCommand::parse(bhs)?;
        let ahs = if ahs.is_empty() { Ahs::default() } else { Ahs::parse(ahs)? };
        let turn = if pdu.immediate { Turn::Now } else { self.window.turn(pdu.cmd_sn) };
        if turn == Turn::Never {
            self.counters.commands_ignored += 1;
        } else if self.tags.find(pdu.itt).is_some() {
            // Section 11.2.1.8 wants tags unique. A status would be taken for the other task's, so this is one of
            // the few cases for a Reject; its CmdSN does not count as received (section 7.3).
            self.reject(id, RejectReason::TaskInProgress);
        } else if pdu.immediate && self.immediate >= self.config.immediate_max {
            self.reject(id, RejectReason::ImmediateCommandReject);
        } else {
            self.accept_command(id, &pdu, &ahs, turn);
        }
        Ok(())
    }

    fn accept_command(&mut self, id: ConnectionId, pdu: &ScsiCommand, ahs: &Ahs<'_>, turn: Turn) {
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
            answer: None,
            queued: false,
        });
        self.tags.insert(pdu.itt, key);
        self.immediate += u32::from(pdu.immediate);
        if pdu.data_segment_length > 0 && inbound.fault().is_none() {
            self.set_incoming(id, Incoming::Immediate { key, length: pdu.data_segment_length });
        }
        let command = command(TaskId { key, connection: id }, pdu, ahs);
        match turn {
            Turn::Early => self.hold_command(key, pdu.cmd_sn, command),
            Turn::Now | Turn::Never => self.announce_next(command),
        }
    }

    fn announce_next(&mut self, command: Command) {
        let immediate = command.immediate;
        self.announce(command);
        if !immediate {
            self.window.advance();
            self.release();
        }
    }

    fn announce(&mut self, command: Command) {
        let task = command.task;
        self.counters.commands += 1;
        self.active += u32::from(!command.immediate);
        self.events.push_back(Event::Command(command));
        let Some(entry) = self.tasks.get_mut(task.key) else { return };
        entry.announced = true;
        if let Some(fault) = entry.inbound.fault() {
            self.events.push_back(Event::DataFailed { task, fault });
        }
    }

    fn hold_command(&mut self, key: Key, cmd_sn: Sn, command: Command) {
        if let Some(task) = self.tasks.get_mut(key) {
            task.waiting = Some(Box::new(Waiting { command, staged: Vec::new(), overrun: false }));
        }
        self.window.hold(cmd_sn, Held::Command(key));
    }

    /// Delivers what has waited for the number that is next now, and the numbers after it.
    pub(super) fn release(&mut self) {
        while let Some(held) = self.window.take_next() {
            match held {
                Held::Command(key) => self.release_command(key),
                Held::Request(request) => {
                    self.staged_bytes -= request.data.len();
                    self.carry_out(*request);
                }
                Held::Nothing => {}
            }
        }
        self.release_managements();
    }

    fn release_command(&mut self, key: Key) {
        let Some(waiting) = self.tasks.get_mut(key).and_then(|task| task.waiting.take()) else { return };
        let Waiting { command, staged, overrun } = *waiting;
        let task = command.task;
        if overrun {
            return self.refuse_overrun(task, &staged);
        }
        self.announce(command);
        for Staged { offset, bytes } in staged {
            self.staged_bytes -= bytes.len();
            self.events.push_back(Event::StagedData { task, offset, bytes });
        }
    }

    /// There was no room for a command's data while it waited: the answer that asks for another try (SAM-5 5.3.1).
    fn refuse_overrun(&mut self, task: TaskId, staged: &[Staged]) {
        self.staged_bytes -= staged.iter().map(|staged| staged.bytes.len()).sum::<usize>();
        self.active += 1;
        self.respond(task, Response { status: TASK_SET_FULL, ..Response::default() });
    }

    // --- data

    fn take_data_out(&mut self, id: ConnectionId, pdu: &DataOut) -> Result<(), Fatal> {
        let Some((key, task)) = self.tags.find(pdu.itt).and_then(|key| Some((key, self.tasks.get_mut(key)?)))
        else {
            // After an ABORT or a reset an initiator may go on answering R2Ts, or may not (FastAbort in
            // iscsid.conf): late data are dropped without a word.
            self.counters.data_out_late += 1;
            return Ok(());
        };
        if task.connection != id {
            return Err(Fatal::ForeignTask);
        }
        if task.refuses_data() {
            task.inbound.dropped(pdu);
            self.answer_if_drained(key);
            return Ok(());
        }
        let foreign_lun = pdu.ttt.is_some() && pdu.lun != task.lun;
        let checked = task.inbound.check(pdu, key, &self.config.parameters, task.lengths.write);
        match checked {
            Ok(_) if foreign_lun => self.fail(key, DataFault::Sequence),
            Ok(offset) => {
                let (length, is_final) = (pdu.data_segment_length, pdu.is_final);
                self.set_incoming(id, Incoming::DataOut { key, offset, length, is_final });
            }
            Err(fault) => {
                task.inbound.dropped(pdu);
                self.fail(key, fault);
            }
        }
        Ok(())
    }

    /// Where the segment that is on its way belongs.
    fn place(&mut self, id: ConnectionId) -> Place {
        let Some(connection) = self.connection(id) else { return Place::Discard };
        let (key, offset, length) = match &connection.incoming {
            Incoming::Nothing | Incoming::Dropped => return Place::Discard,
            Incoming::Request(_) => return Place::Inline,
            Incoming::Immediate { key, length } => (*key, 0, *length),
            Incoming::DataOut { key, offset, length, .. } => (*key, *offset, *length),
        };
        let has_room = self.has_staging_room(length);
        let Some(task) = self.tasks.get_mut(key) else { return Place::Discard };
        let Some(waiting) = &mut task.waiting else {
            return match task.inbound.takes_from(offset) {
                true => Place::Task { task: TaskId { key, connection: id }, offset },
                false => Place::Discard,
            };
        };
        waiting.overrun |= !has_room;
        if waiting.overrun { Place::Discard } else { Place::Inline }
    }

    /// PDUs for commands and functions that may wait to be sent at most: their R2Ts and their answers.
    fn backlog_max(&self) -> usize {
        let tasks = self.config.window as usize + self.config.immediate_max as usize;
        tasks.saturating_mul(usize::from(self.config.parameters.max_outstanding_r2t) + 1)
    }

    fn has_staging_room(&self, length: u32) -> bool {
        self.staged_bytes + length as usize <= self.config.staged_bytes_max
    }

    fn immediate_landed(&mut self, key: Key, length: u32, inline: &[u8]) {
        self.stage(key, 0, length, inline);
        if let Some(task) = self.tasks.get_mut(key) {
            task.inbound.immediate_landed(length);
            self.go_on(key);
        }
    }

    fn data_out_landed(&mut self, key: Key, offset: u32, length: u32, is_final: bool, inline: &[u8]) {
        self.stage(key, offset, length, inline);
        if let Some(task) = self.tasks.get_mut(key) {
            task.inbound.landed(length, is_final);
            self.go_on(key);
            self.answer_if_drained(key);
        }
    }

    /// Keeps data of a command that waits; of others it is where it belongs already.
    fn stage(&mut self, key: Key, offset: u32, length: u32, inline: &[u8]) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let (task_id, connection) = (key, task.connection);
        let Some(waiting) = &mut task.waiting else {
            // It was released between its header and its data: the driver knows it now.
            if !inline.is_empty() {
                let task = TaskId { key: task_id, connection };
                self.events.push_back(Event::StagedData { task, offset, bytes: inline.to_vec() });
            }
            return;
        };
        if inline.len() == length as usize {
            self.staged_bytes += inline.len();
            waiting.staged.push(Staged { offset, bytes: inline.to_vec() });
        } else {
            waiting.overrun = true;
        }
    }

    /// Asks for more data, or tells that it is complete.
    pub(super) fn go_on(&mut self, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let id = task.connection;
        match task.inbound.next(&self.config.parameters) {
            Next::Wait => {}
            Next::Complete => {
                self.events.push_back(Event::DataComplete { task: TaskId { key, connection: id } });
            }
            Next::Ask(count) => {
                if let Some(connection) = self.connection_mut(id) {
                    connection.urgent.extend((0..count).map(|_| Say::R2t(key)));
                }
            }
        }
    }

    /// Something is wrong with a task's data.
    fn fail(&mut self, key: Key, fault: DataFault) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        task.inbound.fail(fault);
        if !task.is_held() {
            let task = TaskId { key, connection: task.connection };
            self.events.push_back(Event::DataFailed { task, fault });
        }
    }

    /// Section 7.8: "it MUST answer with a Reject PDU with a reason code of Data-Digest-Error and discard the PDU".
    /// A task whose data it was also gets its CHECK CONDITION, "after … it receives all the data".
    fn segment_damaged(&mut self, id: ConnectionId, incoming: &Incoming) {
        self.counters.digest_errors += 1;
        self.reject(id, RejectReason::DataDigestError);
        match incoming {
            Incoming::Immediate { key, .. } => self.fail(*key, DataFault::Digest),
            Incoming::DataOut { key, is_final, length, .. } => {
                if let Some(task) = self.tasks.get_mut(*key) {
                    task.inbound.landed(*length, *is_final);
                }
                self.fail(*key, DataFault::Digest);
            }
            Incoming::Nothing | Incoming::Dropped | Incoming::Request(_) => {}
        }
    }

    // --- other requests

    /// Keeps a request until its data segment is there, which may be at once.
    fn await_segment(&mut self, id: ConnectionId, kind: Kind, cmd_sn: Sn, immediate: bool) {
        let request = Request { connection: id, kind, data: Vec::new(), cmd_sn, immediate };
        self.set_incoming(id, Incoming::Request(Box::new(request)));
    }

    fn take_request(&mut self, request: Box<Request>) {
        if request.immediate {
            self.carry_out(*request);
            return self.release(); // an abort may have filled a gap
        }
        match self.window.turn(request.cmd_sn) {
            Turn::Never => self.counters.commands_ignored += 1,
            Turn::Early if !self.has_staging_room(request.data.len() as u32) => {
                self.reject(request.connection, RejectReason::LongOperationReject);
            }
            Turn::Early => {
                self.staged_bytes += request.data.len();
                self.window.hold(request.cmd_sn, Held::Request(request));
            }
            Turn::Now => {
                self.window.advance();
                self.carry_out(*request);
                self.release();
            }
        }
    }

    /// Does what a request asks for. Its connection may be gone if it had to wait.
    fn carry_out(&mut self, request: Request) {
        let Request { connection, kind, data, .. } = request;
        if self.connection(connection).is_none() {
            return;
        }
        match kind {
            Kind::Nop(pdu) => self.handle_nop(connection, &pdu, data),
            Kind::Text(pdu) => self.handle_text(connection, &pdu, &data),
            Kind::Management(pdu) => self.handle_management(connection, pdu),
            Kind::Logout(pdu) => self.handle_logout(connection, &pdu),
        }
    }

    // --- small things

    /// Refuses the PDU whose header came last. Its data segment is dropped.
    pub(super) fn reject(&mut self, id: ConnectionId, reason: RejectReason) {
        self.counters.rejects += 1;
        let Some(connection) = self.connection_mut(id) else { return };
        let header = connection.header.0.to_vec();
        let pdu = Reject {
            reason,
            stat_sn: Sn(0),
            exp_cmd_sn: Sn(0),
            max_cmd_sn: Sn(0),
            data_sn: Sn(0),
            data_segment_length: header.len() as u32,
        };
        connection.say_status(pdu.emit(), header);
    }

    fn set_incoming(&mut self, id: ConnectionId, incoming: Incoming) {
        if let Some(connection) = self.connection_mut(id) {
            connection.incoming = incoming;
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
        bidirectional_read_edtl: (pdu.read && pdu.write).then(|| ahs.expected_read_length.unwrap_or(0)),
        immediate_data: pdu.data_segment_length,
        cdb: pdu.cdb,
        long_cdb: ahs.extended_cdb.map(|rest| [&pdu.cdb, rest].concat().into_boxed_slice()),
    }
}

fn lengths(pdu: &ScsiCommand, ahs: &Ahs<'_>) -> Lengths {
    let edtl = pdu.expected_data_transfer_length;
    let read = match (pdu.read, pdu.write) {
        (true, true) => ahs.expected_read_length.unwrap_or(0),
        (true, false) => edtl,
        (false, _) => 0,
    };
    Lengths { write: if pdu.write { edtl } else { 0 }, read, bidirectional: pdu.read && pdu.write }
}

/// SAM-5 5.3.1.
const TASK_SET_FULL: u8 = 0x28;
