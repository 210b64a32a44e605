//! Data of commands as they arrive: their destination, and the next step.

use super::Session;
use super::connection::QueuedPdu;
use super::event::{ConnectionId, DataFault, Event, TaskId};
use super::fatal::Fatal;
use super::inbound::NextStep;
use super::incoming::Incoming;
use super::receive::Destination;
use super::task::{StagedData, staged_cost};
use crate::pdu::{DataOut, RejectReason};
use crate::slab::Key;

impl Session {
    /// Bytes of a command's data received so far, from its start.
    pub fn data_received(&self, task: TaskId) -> u32 {
        self.tasks.get(task.key).map_or(0, |task| task.inbound.received())
    }

    pub(super) fn take_data_out(&mut self, id: ConnectionId, pdu: &DataOut) -> Result<(), Fatal> {
        self.observe("Data-Out", |session| session.tags.find(pdu.itt));
        let Some((key, task)) = self.tags.find(pdu.itt).and_then(|key| Some((key, self.tasks.get_mut(key)?)))
        else {
            // After an ABORT or a reset an initiator may or may not continue to answer R2Ts (FastAbort in
            // iscsid.conf): late data are dropped silently.
            self.counters.data_out_late += 1;
            return Ok(());
        };
        if task.connection != id {
            return Err(Fatal::ForeignTask);
        }
        if task.refuses_data() {
            task.inbound.dropped(pdu);
            self.respond_if_drained(key);
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

    /// The destination of the data segment being received.
    pub(super) fn destination(&mut self, id: ConnectionId) -> Destination {
        let Some(connection) = self.connection(id) else { return Destination::Discard };
        let (key, offset, length) = match &connection.incoming {
            Incoming::Nothing | Incoming::Dropped => return Destination::Discard,
            Incoming::Request(_) => return self.request_destination(id),
            Incoming::Immediate { key, length } => (*key, 0, *length),
            Incoming::DataOut { key, offset, length, .. } => (*key, *offset, *length),
        };
        let has_room = self.has_staging_room(length as usize);
        let Some(task) = self.tasks.get_mut(key) else { return Destination::Discard };
        let Some(waiting) = &mut task.waiting else {
            return match task.inbound.takes_from(offset) {
                true => Destination::Task { task: TaskId { key, connection: id }, offset },
                false => Destination::Discard,
            };
        };
        waiting.overrun |= !has_room;
        if waiting.overrun { Destination::Discard } else { self.reserve(id, length as usize) }
    }

    /// A short ping is answered even without staging room; its size is small for each connection.
    fn request_destination(&mut self, id: ConnectionId) -> Destination {
        let length =
            self.connection(id).map_or(0, |connection| connection.header.data_segment_length()) as usize;
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

    /// A segment held by the machine is charged from its header on: the peer may take any time to send it.
    fn reserve(&mut self, id: ConnectionId, length: usize) -> Destination {
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
        self.staged_bytes += staged_cost(length);
        self.staging_limit = self.staging_limit.saturating_sub(staged_cost(length));
    }

    pub(super) fn immediate_arrived(&mut self, key: Key, length: u32, inline: &[u8]) {
        self.stage(key, 0, length, inline);
        if let Some(task) = self.tasks.get_mut(key) {
            task.inbound.immediate_arrived(length);
            self.advance_data(key);
        }
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
        if let Some(task) = self.tasks.get_mut(key) {
            task.inbound.arrived(length, is_final);
            self.advance_data(key);
            self.respond_if_drained(key);
        }
    }

    /// Holds the data of a held command; other data are at their destination already.
    fn stage(&mut self, key: Key, offset: u32, length: u32, inline: &[u8]) {
        if length == 0 {
            return;
        }
        let has_room = self.has_staging_room(inline.len());
        let Some(task) = self.tasks.get_mut(key) else { return };
        let (task_id, connection) = (key, task.connection);
        let Some(waiting) = &mut task.waiting else {
            // The command was delivered between this header and its data: the driver knows the task.
            if !inline.is_empty() {
                let task = TaskId { key: task_id, connection };
                self.events.push_back(Event::StagedData { task, offset, bytes: inline.to_vec() });
            }
            return;
        };
        if inline.len() == length as usize && has_room && !waiting.overrun {
            waiting.staged.push(StagedData { offset, bytes: inline.to_vec() });
            self.count_staged(inline.len());
        } else {
            waiting.overrun = true;
        }
    }

    /// Requests more data, or reports that it is complete.
    pub(super) fn advance_data(&mut self, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        let id = task.connection;
        match task.inbound.next(&self.config.parameters) {
            NextStep::Wait => {}
            NextStep::Complete => {
                self.events.push_back(Event::DataComplete { task: TaskId { key, connection: id } });
            }
            NextStep::SendR2ts(count) => {
                if let Some(connection) = self.connection_mut(id) {
                    connection.urgent.extend((0..count).map(|_| QueuedPdu::R2t(key)));
                }
            }
        }
    }

    /// Records an error in a task's data.
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
    pub(super) fn digest_failed(&mut self, id: ConnectionId, incoming: &Incoming) {
        self.counters.digest_errors += 1;
        self.reject(id, RejectReason::DataDigestError);
        match incoming {
            Incoming::Immediate { key, .. } => self.fail(*key, DataFault::Digest),
            Incoming::DataOut { key, is_final, length, .. } => {
                if let Some(task) = self.tasks.get_mut(*key) {
                    task.inbound.arrived(*length, *is_final);
                }
                self.fail(*key, DataFault::Digest);
            }
            Incoming::Nothing | Incoming::Dropped | Incoming::Request(_) => {}
        }
    }
}

/// The MaxRecvDataSegmentLength of a discovery session.
const UNCOUNTED_BYTES_MAX: usize = 8 << 10;
