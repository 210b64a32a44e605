//! Calls of the driver: data accepted for a command, and its response.

use super::Session;
use super::connection::QueuedPdu;
use super::event::{ConnectionId, DataFault, Receipt, TaskId};
use super::nop::nop_in;
use super::outbound::Outbound;
use crate::slab::Key;

/// The response to a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response<'a> {
    /// SAM-5 status.
    pub status: u8,
    /// Sense data; empty for none. Bytes beyond 65,535 are not sent.
    pub sense: &'a [u8],
    /// Size of the Data-In held by the driver. Bytes beyond the EDTL are not sent.
    pub data_in: u32,
    /// Bytes requested by the CDB, in the command's direction (of a bidirectional command: to write). The
    /// difference to the EDTL is reported as residual.
    pub expected: u64,
    /// Requests [`Event::Acknowledged`] when the initiator has acknowledged the status; for statuses without
    /// data only. Usually `None`.
    ///
    /// [`Event::Acknowledged`]: super::Event::Acknowledged
    pub receipt: Option<Receipt>,
}

impl Session {
    /// The driver takes this many bytes of a write's data, from its start; at most the EDTL. When they are there,
    /// [`super::Event::DataComplete`] follows. See [`super::Event::Command`] for when to call this.
    pub fn expect_data(&mut self, task: TaskId, wanted: u32) {
        self.observe("the driver takes data", |_| Some(task.key));
        let Some(entry) = self.tasks.get_mut(task.key) else { return };
        if entry.outbound.is_none() {
            entry.inbound.expect(wanted.min(entry.lengths.write));
            self.advance_data(task.key);
        }
    }

    /// Ends a command. Only the first response counts; one for an ended task has no effect.
    ///
    /// The driver keeps the data to be sent until [`super::Transmit::last_of`] names the task.
    pub fn respond(&mut self, task: TaskId, response: Response<'_>) {
        self.observe("the driver answers", |_| Some(task.key));
        let Some(entry) = self.tasks.get_mut(task.key) else { return };
        if entry.outbound.is_none() {
            let Response { status, sense, data_in, expected, receipt } = response;
            let mut answer = Outbound::new(status, sense, data_in, expected, entry.lengths);
            answer.receipt = receipt.map(Box::new);
            entry.outbound = Some(answer);
            // Data with a digest error: "it MUST wait to receive all the data (signaled by a data PDU with
            // the Final bit set for all outstanding R2Ts) before sending the SCSI Response" (section 7.8).
            if entry.inbound.fault() != Some(DataFault::Digest) || entry.inbound.is_drained() {
                self.queue_response(task.key);
            }
        }
    }

    /// Aborts a command that the driver has fenced: there is no response, and later data for it are dropped.
    pub fn abort(&mut self, task: TaskId) {
        self.observe("the driver gives it up", |_| Some(task.key));
        if self.remove_task(task.key).is_some() {
            self.announce_window(task.connection);
        }
    }

    /// Queues a response that waited for the last of its command's data.
    pub(super) fn respond_if_drained(&mut self, key: Key) {
        let waits =
            |task: &&super::Task| task.outbound.is_some() && !task.queued && task.inbound.is_drained();
        if self.tasks.get(key).as_ref().is_some_and(waits) {
            self.queue_response(key);
        }
    }

    fn queue_response(&mut self, key: Key) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        task.queued = true;
        let (id, lun) = (task.connection, task.lun);
        if self.fences.holds(lun) {
            self.fences.hold(id, QueuedPdu::Response(key));
        } else if let Some(connection) = self.connection_mut(id) {
            connection.responses.push_back(QueuedPdu::Response(key));
        }
    }

    /// If the command window was closed and no response is queued that would announce its reopening, sends a
    /// NOP-In.
    fn announce_window(&mut self, id: ConnectionId) {
        if !self.window.is_closed() {
            return;
        }
        let Some(connection) = self.connection_mut(id) else { return };
        if connection.urgent.is_empty() && connection.responses.is_empty() {
            connection.queue_without_status(nop_in(None).emit());
        }
    }
}
