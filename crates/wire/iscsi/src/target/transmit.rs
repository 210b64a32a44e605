//! The calls with which the driver accepts a command's data and responds to it, and the transmission of
//! queued PDUs, which get their sequence numbers here.

use std::num::NonZeroU32;

use super::connection::{CloseAfter, Connection, PreparedPdu, QueuedPdu, nop_in};
use super::session::Session;
use super::task::{Chunk, Limits, Outbound, Task, r2t_tag};
use super::{CloseReason, ConnectionId, Event, Receipt, TaskId};
use crate::framing;
use crate::pdu::{
    Bhs, DataIn, DataInStatus, Itt, Lun, R2t, Residual, ScsiResponse, Sn, TargetNumbers,
};
use crate::slab::Key;

/// A PDU to send. The driver adds padding and digests ([`crate::framing::Framing`]).
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Its header. Targets send no additional header segments.
    pub header: Bhs,
    pub payload: Payload,
    /// The task, if this is its last PDU. When the PDU has been sent, the task's data may be freed.
    pub last_of: Option<TaskId>,
}

/// The data of a PDU to send.
pub type Payload = framing::Payload<TaskId>;

impl Session {
    /// The next PDU to send on a connection. The call may cause events, such as [`Event::Close`] after a
    /// logout response.
    pub fn poll_transmit(&mut self, id: ConnectionId) -> Option<Transmit> {
        loop {
            let connection = self.connection_mut(id)?;
            if let Some(pdu) = connection.urgent.pop_front() {
                if let QueuedPdu::Prepared(ready) = &pdu {
                    connection.urgent_bytes -= ready.data.len();
                }
                if let Some(transmit) = self.emit_dequeued(id, pdu) {
                    return Some(transmit);
                }
            } else if let Some(&QueuedPdu::Response(key)) = connection.responses.front() {
                if let Some(transmit) = self.emit_response_part(id, key) {
                    return Some(transmit);
                }
            } else {
                let pdu = connection.responses.pop_front()?;
                if let Some(transmit) = self.emit_dequeued(id, pdu) {
                    return Some(transmit);
                }
            }
        }
    }

    /// Emits a dequeued PDU, unless it has become obsolete.
    fn emit_dequeued(&mut self, id: ConnectionId, pdu: QueuedPdu) -> Option<Transmit> {
        match pdu {
            QueuedPdu::Prepared(ready) => Some(self.emit_prepared(id, *ready)),
            QueuedPdu::R2t(key) => self.emit_r2t(id, key),
            QueuedPdu::FencePing(number) => self.emit_fence_ping(id, number),
            // Responses stay at the front of their queue until their last PDU.
            QueuedPdu::Response(_) => None,
        }
    }

    pub(super) fn emit_prepared(&mut self, id: ConnectionId, ready: PreparedPdu) -> Transmit {
        let PreparedPdu {
            mut bhs,
            data,
            is_status,
            then,
        } = ready;
        self.stamp_stat_sn(id, &mut bhs, is_status);
        self.stamp_window(&mut bhs);
        match then {
            Some(CloseAfter::One(connection, reason)) => {
                self.events.push_back(Event::Close { connection, reason })
            }
            Some(CloseAfter::All(reason)) => self.close_all(reason),
            None => {}
        }
        Transmit {
            header: bhs,
            payload: Payload::inline(data),
            last_of: None,
        }
    }

    pub(super) fn close_all(&mut self, reason: CloseReason) {
        let all = self.connections.iter().map(|connection| connection.id);
        let close = |connection| Event::Close { connection, reason };
        self.events.extend(all.map(close));
    }

    fn emit_r2t(&mut self, id: ConnectionId, key: Key) -> Option<Transmit> {
        let task = self
            .tasks
            .get_mut(key)
            .filter(|task| task.outbound.is_none())?;
        let burst = task.inbound.send_r2t(&self.config.parameters)?;
        let pdu = R2t {
            lun: task.lun,
            itt: task.itt,
            ttt: r2t_tag(key, burst.r2t_sn),
            numbers: TargetNumbers::default(),
            r2t_sn: Sn(burst.r2t_sn),
            buffer_offset: burst.offset,
            desired_data_transfer_length: NonZeroU32::new(burst.length)?,
        };
        let mut header = pdu.emit();
        self.stamp_stat_sn(id, &mut header, false);
        self.stamp_window(&mut header);
        Some(Transmit {
            header,
            payload: Payload::None,
            last_of: None,
        })
    }

    /// Emits the next PDU of the response at the front of the queue. Dequeues the response with its last PDU.
    fn emit_response_part(&mut self, id: ConnectionId, key: Key) -> Option<Transmit> {
        let limits = self.limits(id);
        let Some(task) = self.tasks.get_mut(key) else {
            self.connection_mut(id)?.dequeue_response();
            return None;
        };
        let (lengths, itt) = (task.lengths, task.itt);
        match task.outbound.as_mut()?.next_chunk(limits, lengths) {
            Some(chunk) => Some(self.emit_data_in(id, key, itt, chunk)),
            None => self.emit_scsi_response(id, key),
        }
    }

    fn emit_data_in(&mut self, id: ConnectionId, key: Key, itt: Itt, chunk: Chunk) -> Transmit {
        let task = TaskId {
            key,
            connection: id,
        };
        let status = chunk.with_status.then(|| self.take_status(id, key));
        debug_assert!(
            chunk.length > 0 && (chunk.is_final || status.is_none()),
            "a status before the last data"
        );
        let mut header = DataIn {
            is_final: chunk.is_final,
            acknowledge: false,
            status,
            lun: Lun(0),
            itt,
            ttt: None,
            exp_cmd_sn: Sn(0),
            max_cmd_sn: Sn(0),
            data_sn: Sn(chunk.data_sn),
            buffer_offset: chunk.offset,
            data_segment_length: chunk.length,
        }
        .emit();
        self.stamp_window(&mut header);
        Transmit {
            header,
            payload: Payload::Task {
                task,
                offset: chunk.offset,
                length: chunk.length,
            },
            last_of: chunk.with_status.then_some(task),
        }
    }

    /// Returns the status for a task's last Data-In, and ends the task.
    fn take_status(&mut self, id: ConnectionId, key: Key) -> DataInStatus {
        let stat_sn = self
            .connection_mut(id)
            .map_or(Sn(0), Connection::end_response);
        let answer = self.tasks.get(key).and_then(|task| {
            let answer = task.outbound.as_ref()?;
            Some((answer.status, answer.residual(task.lengths)))
        });
        let (status, residual) = answer.unwrap_or((0, Residual::None));
        self.remove_task(key);
        DataInStatus {
            status,
            stat_sn,
            residual,
        }
    }

    fn emit_scsi_response(&mut self, id: ConnectionId, key: Key) -> Option<Transmit> {
        let task = self.tasks.get_mut(key)?;
        let (answer, itt, lengths) = (task.outbound.take()?, task.itt, task.lengths);
        let r2ts = if lengths.bidirectional {
            task.inbound.r2ts_sent()
        } else {
            0
        };
        self.remove_task(key);
        let data = sense_segment(&answer.sense);
        let connection = self.connection_mut(id)?;
        if let Some(receipt) = answer.receipt.as_deref() {
            connection.await_receipt(*receipt);
        }
        let stat_sn = connection.end_response();
        let mut header = ScsiResponse {
            response: crate::pdu::Response::Completed,
            status: answer.status,
            itt,
            snack_tag: 0,
            numbers: TargetNumbers {
                stat_sn,
                exp_cmd_sn: Sn(0),
                max_cmd_sn: Sn(0),
            },
            exp_data_sn: Sn(answer.data_sn().wrapping_add(r2ts)),
            residual: answer.residual(lengths),
            read_residual: answer.read_residual(lengths),
            data_segment_length: data.len() as u32,
        }
        .emit();
        self.stamp_window(&mut header);
        let last_of = Some(TaskId {
            key,
            connection: id,
        });
        Some(Transmit {
            header,
            payload: Payload::inline(data),
            last_of,
        })
    }

    fn limits(&self, id: ConnectionId) -> Limits {
        Limits {
            segment: self
                .connection(id)
                .map_or(1, |connection| connection.peer_segment_max.max(1)),
            burst: self.config.parameters.max_burst_length.max(1),
        }
    }

    // --- sequence numbers

    /// All PDUs except Data-In without status carry the next StatSN; statuses consume it.
    fn stamp_stat_sn(&mut self, id: ConnectionId, header: &mut Bhs, is_status: bool) {
        let stat_sn = match is_status {
            true => self
                .connection_mut(id)
                .map_or(Sn(0), Connection::take_stat_sn),
            false => self
                .connection(id)
                .map_or(Sn(0), |connection| connection.stat_sn),
        };
        header.set_u32(STAT_SN, stat_sn.0);
    }

    /// Every PDU of a target carries the current command window.
    fn stamp_window(&mut self, header: &mut Bhs) {
        let max_cmd_sn = self.window.open(self.active);
        debug_assert!(
            self.window.exp_cmd_sn().le(max_cmd_sn.next()),
            "MaxCmdSN below ExpCmdSN - 1"
        );
        header.set_u32(EXP_CMD_SN, self.window.exp_cmd_sn().0);
        header.set_u32(MAX_CMD_SN, max_cmd_sn.0);
    }
}

/// The sense data, preceded by its length in two bytes (section 11.4.7).
fn sense_segment(sense: &[u8]) -> Vec<u8> {
    let Ok(length) = u16::try_from(sense.len()) else {
        return sense_segment(&sense[..usize::from(u16::MAX)]);
    };
    match length {
        0 => Vec::new(),
        length => [&length.to_be_bytes(), sense].concat(),
    }
}

/// Offsets of sequence numbers in all PDUs of a target (section 11).
const STAT_SN: usize = 24;
const EXP_CMD_SN: usize = 28;
const MAX_CMD_SN: usize = 32;

/// The response to a command.
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response<'a> {
    pub status: u8,
    /// Sense data; empty for none. Bytes beyond 65,535 are not sent.
    pub sense: &'a [u8],
    /// Size of the Data-In held by the driver. Bytes beyond the EDTL are not sent.
    pub data_in: u32,
    /// Bytes requested by the CDB, in the command's direction (for a bidirectional command: to write). The
    /// difference from the EDTL is reported as residual.
    pub expected: u64,
    /// Requests [`Event::Acknowledged`] when the initiator has acknowledged the status; for statuses without
    /// data only. Usually `None`.
    ///
    /// [`Event::Acknowledged`]: super::Event::Acknowledged
    pub receipt: Option<Receipt>,
}

impl Session {
    /// Accepts the first `wanted` bytes of a write's data, up to the EDTL. When they have arrived,
    /// [`super::Event::DataComplete`] follows. See [`super::Event::Command`] for when to call this.
    pub fn expect_data(&mut self, task: TaskId, wanted: u32) {
        self.observe("the driver takes data", |_| Some(task.key));
        let Some(entry) = self
            .tasks
            .get(task.key)
            .filter(|entry| entry.outbound.is_none())
        else {
            return;
        };
        let wanted = wanted.min(entry.lengths.write);
        self.advance_data(task.key, |inbound| inbound.expect(wanted));
    }

    /// Ends a command with a response. Only the first response to a command has an effect.
    ///
    /// The driver keeps the data to send until [`super::Transmit::last_of`] names the task.
    pub fn respond(&mut self, task: TaskId, response: Response<'_>) {
        self.observe("the driver answers", |_| Some(task.key));
        let Some(entry) = self.tasks.get_mut(task.key) else {
            return;
        };
        if entry.outbound.is_none() {
            let Response {
                status,
                sense,
                data_in,
                expected,
                receipt,
            } = response;
            let mut answer = Outbound::new(status, sense, data_in, expected, entry.lengths);
            answer.receipt = receipt.map(Box::new);
            entry.outbound = Some(answer);
            if entry.inbound.is_drained() {
                self.queue_response(task.key);
            }
        }
    }

    /// Aborts a command that the driver has fenced: there is no response, and later data for it is dropped.
    pub fn abort(&mut self, task: TaskId) {
        self.observe("the driver gives it up", |_| Some(task.key));
        if self.remove_task(task.key) {
            self.announce_window(task.connection);
        }
    }

    /// Queues a task's response once no more data of its command will arrive. An earlier status would corrupt
    /// data: libiscsi frees a command when its status arrives, and then sends other bytes as the rest of its
    /// data.
    pub(super) fn respond_if_drained(&mut self, key: Key) {
        let waits =
            |task: &&Task| task.outbound.is_some() && !task.queued && task.inbound.is_drained();
        if self.tasks.get(key).as_ref().is_some_and(waits) {
            self.queue_response(key);
        }
    }

    #[inline]
    fn queue_response(&mut self, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else {
            return;
        };
        debug_assert!(
            task.outbound.is_some() && !task.queued,
            "no response, or one that is queued"
        );
        debug_assert!(
            task.inbound.is_drained(),
            "a response overtakes its command's data"
        );
        task.queued = true;
        let (id, lun) = (task.connection, task.lun);
        if self.fences.holds(lun) {
            self.fences.hold(id, QueuedPdu::Response(key));
        } else if let Some(connection) = self.connection_mut(id) {
            connection.responses.push_back(QueuedPdu::Response(key));
        }
    }

    /// Sends a NOP-In if the command window was closed and no queued response would announce its reopening.
    fn announce_window(&mut self, id: ConnectionId) {
        if !self.window.is_closed() {
            return;
        }
        let Some(connection) = self.connection_mut(id) else {
            return;
        };
        if connection.urgent.is_empty() && connection.responses.is_empty() {
            connection.queue_without_status(nop_in(None).emit());
        }
    }
}
