//! Transmission and keepalive: queued PDUs, which get their sequence numbers here.
//!
//! A command takes its CmdSN when it is sent, not when it is submitted: a command that is never sent leaves
//! no gap.
//!
//! A connection is pinged when it is idle, and at the same interval when it is busy: under load, the
//! round-trip time of a NOP distinguishes the time spent in queues before the target from the time spent in
//! the target. A connection is closed only if no data arrives at all.

use std::time::Instant;

use super::connection::{PreparedPdu, QueuedPdu};
use super::exchange::{Exchange, Run};
use super::session::{Session, tag};
use super::{CloseReason, ConnectionId, Event, TaskId};
use crate::framing;
use crate::keepalive::Due;
use crate::pdu::{Bhs, DataOut, ScsiCommand, Sn, Ttt};
use crate::slab::Key;

/// A PDU to send. The driver adds padding and digests ([`crate::framing::Framing`]).
#[expect(missing_docs, reason = "the names are self-explanatory")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    pub header: Bhs,
    /// The additional header segments, which are sent between the header and its digest. Nearly all PDUs have
    /// none.
    pub ahs: Box<[u8]>,
    pub payload: Payload,
}

/// The data of a PDU to send.
pub type Payload = framing::Payload<TaskId>;

impl Session {
    /// The next PDU to send on a connection. `now` counts as its time of transmission.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, id: ConnectionId) -> Option<Transmit> {
        // The driver calls this until it returns `None`, so the idle case must be cheap.
        if self.connection(id)?.is_idle() {
            None
        } else {
            self.emit_next(now, id)
        }
    }

    fn emit_next(&mut self, now: Instant, id: ConnectionId) -> Option<Transmit> {
        loop {
            let connection = self.connection_mut(id)?;
            let emitted = match connection.urgent.pop_front() {
                Some(ready) => Some(self.emit_prepared(now, id, ready)),
                None => match connection.queue.pop_front()? {
                    QueuedPdu::Command(key) => self.emit_command(now, id, key),
                    QueuedPdu::Data { key, ttt, run } => self.emit_data_out(now, id, key, ttt, run),
                    QueuedPdu::Prepared(ready) => Some(self.emit_prepared(now, id, ready)),
                },
            };
            // Entries of ended exchanges are skipped.
            if emitted.is_some() {
                self.counters.pdus_out += 1;
                return emitted;
            }
        }
    }

    fn emit_command(&mut self, now: Instant, id: ConnectionId, key: Key) -> Option<Transmit> {
        let exp_stat_sn = self.connection(id)?.exp_stat_sn;
        let cmd_sn = self.window.cmd_sn();
        let task = self.task_mut(key)?;
        debug_assert!(task.cmd_sn.is_none(), "a command is sent once");
        task.cmd_sn = Some(cmd_sn);
        task.outbound.hand_out(task.outbound.immediate);
        task.clock.sent(now, &task.outbound);
        let (out, read_bytes) = (task.outbound, task.inbound.length);
        let header = ScsiCommand {
            immediate: false,
            is_final: !out.has_unsolicited(),
            read: read_bytes > 0,
            write: out.length > 0,
            attribute: task.attribute,
            total_ahs_length: task.ahs.len(),
            data_segment_length: out.immediate,
            lun: task.lun,
            itt: tag(key),
            expected_data_transfer_length: if out.length > 0 {
                out.length
            } else {
                read_bytes
            },
            cmd_sn,
            exp_stat_sn,
            cdb: task.cdb,
        }
        .emit();
        let ahs = std::mem::take(&mut task.ahs);
        self.window.take();
        self.counters.commands += 1;
        self.counters.immediate_bytes += u64::from(out.immediate);
        self.unsent -= 1;
        if out.has_unsolicited() {
            // The unsolicited data is sent next: "unsolicited data PDUs MUST be sent in the same order as the
            // commands" (section 4.2.5.2).
            let connection = self.connection_mut(id)?;
            connection.queue.push_front(QueuedPdu::Data {
                key,
                ttt: None,
                run: out.unsolicited(),
            });
        }
        Some(Transmit {
            header,
            ahs,
            payload: payload(key, 0, out.immediate),
        })
    }

    fn emit_data_out(
        &mut self,
        now: Instant,
        id: ConnectionId,
        key: Key,
        ttt: Option<Ttt>,
        mut run: Run,
    ) -> Option<Transmit> {
        let connection = self.connection(id)?;
        let (exp_stat_sn, segment_max) = (connection.exp_stat_sn, connection.peer_segment_max);
        let task = self.task_mut(key)?;
        let (offset, length, data_sn, is_final) = run.take(segment_max);
        if is_final && ttt.is_some() {
            task.outbound.fulfilled();
        }
        task.outbound.hand_out(length);
        task.clock.sent(now, &task.outbound);
        let pdu = DataOut {
            is_final,
            lun: task.lun,
            itt: tag(key),
            ttt,
            exp_stat_sn,
            data_sn,
            buffer_offset: offset,
            data_segment_length: length,
        };
        match ttt {
            Some(_) => self.counters.solicited_bytes += u64::from(length),
            None => self.counters.unsolicited_bytes += u64::from(length),
        }
        if !is_final {
            self.connection_mut(id)?
                .queue
                .push_front(QueuedPdu::Data { key, ttt, run });
        }
        Some(Transmit {
            header: pdu.emit(),
            ahs: Box::default(),
            payload: payload(key, offset, length),
        })
    }

    fn emit_prepared(&mut self, now: Instant, id: ConnectionId, ready: PreparedPdu) -> Transmit {
        let PreparedPdu {
            mut bhs,
            data,
            exchange,
        } = ready;
        debug_assert_eq!(
            bhs.data_segment_length() as usize,
            data.len(),
            "the length of its data"
        );
        let cmd_sn = self.window.cmd_sn();
        let exp_stat_sn = self
            .connection(id)
            .map_or(Sn(0), |connection| connection.exp_stat_sn);
        bhs.set_u32(CMD_SN, cmd_sn.0);
        bhs.set_u32(EXP_STAT_SN, exp_stat_sn.0);
        match exchange.and_then(|key| self.exchanges.get_mut(key)) {
            // The function affects commands before this number.
            Some(Exchange::Tmf(tmf)) => tmf.cmd_sn = Some(cmd_sn),
            Some(Exchange::Ping { sent, .. }) => *sent = Some(now),
            Some(Exchange::Task(_) | Exchange::Text(_) | Exchange::Logout { .. }) | None => {}
        }
        Transmit {
            header: *bhs,
            ahs: Box::default(),
            payload: Payload::inline(data),
        }
    }
}

fn payload(key: Key, offset: u32, length: u32) -> Payload {
    match length {
        0 => Payload::None,
        length => Payload::Task {
            task: TaskId(key),
            offset,
            length,
        },
    }
}

/// Offsets of sequence numbers in all requests (section 11).
const CMD_SN: usize = 24;
const EXP_STAT_SN: usize = 28;

impl Session {
    /// Processes expired timeouts.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut to_ask: Vec<ConnectionId> = Vec::new();
        for connection in self.connections.iter_mut() {
            match connection.keepalive.due(now, &self.config.nop) {
                Due::Nothing => {
                    let deadline = connection.probe.deadline(self.config.nop.interval);
                    if deadline.is_some_and(|deadline| now >= deadline) {
                        to_ask.push(connection.id);
                    }
                }
                Due::Ping => to_ask.push(connection.id),
                Due::Close => self.events.push_back(Event::Close {
                    connection: connection.id,
                    reason: CloseReason::Silent,
                }),
            }
        }
        for id in to_ask {
            let is_sent = self.send_ping(id, &[], true).is_some();
            if let Some(connection) = self.connection_mut(id) {
                connection.probe.ask(now, is_sent);
            }
        }
    }

    /// The next time to call [`Session::handle_timeout`]. Any other call may change it.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let nop = &self.config.nop;
        let connections = self.connections.iter();
        connections
            .flat_map(|connection| {
                [
                    connection.keepalive.deadline(nop),
                    connection.probe.deadline(nop.interval),
                ]
            })
            .flatten()
            .min()
    }
}
