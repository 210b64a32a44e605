//! State of a connection: reception, transmit queues, and keepalive.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::exchange::Run;
use super::{ConnectionId, ConnectionStart};
use crate::keepalive::Keepalive;
use crate::pdu::{AsyncMessage, Bhs, Cid, Reject, Residual, Response, Sn, TextResponse, Ttt};
use crate::slab::{Identified, Key};

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) cid: Cid,
    /// ExpStatSN: the StatSN of the next status.
    pub(super) exp_stat_sn: Sn,
    /// StatSN of a status whose data segment has yet to arrive.
    pub(super) incoming_stat_sn: Option<Sn>,
    pub(super) local_segment_max: u32,
    pub(super) peer_segment_max: u32,
    pub(super) incoming: Incoming,
    /// Transmit queue for PDUs with a waiting caller (NOP-Out, task management, text). It is sent before
    /// `queue`.
    pub(super) urgent: VecDeque<PreparedPdu>,
    /// Transmit queue for commands, their data, and a logout; in order.
    pub(super) queue: VecDeque<QueuedPdu>,
    pub(super) keepalive: Keepalive,
    pub(super) probe: Probe,
    /// A logout is queued or sent: nothing is sent after it (state S6, IN_LOGOUT).
    pub(super) is_leaving: bool,
}

/// An entry of the transmit queue. Sequence numbers are assigned at transmission.
#[derive(Debug)]
pub(super) enum QueuedPdu {
    Command(Key),
    /// Data-Out PDUs.
    Data {
        key: Key,
        ttt: Option<Ttt>,
        run: Run,
    },
    /// A logout.
    Prepared(PreparedPdu),
}

/// A PDU without its sequence numbers. All of these are immediate: they carry a CmdSN and do not consume it.
#[derive(Debug)]
pub(super) struct PreparedPdu {
    pub(super) bhs: Box<Bhs>,
    pub(super) data: Vec<u8>,
    /// The exchange to update when the PDU is sent: a function, or a ping.
    pub(super) exchange: Option<Key>,
}

impl Identified for Connection {
    fn id(&self) -> ConnectionId {
        self.id
    }
}

impl Connection {
    pub(super) fn new(
        id: ConnectionId,
        cid: Cid,
        start: ConnectionStart,
        now: Instant,
    ) -> Connection {
        Connection {
            id,
            cid,
            exp_stat_sn: start.exp_stat_sn,
            incoming_stat_sn: None,
            local_segment_max: start.local_max_recv_data_segment_length,
            peer_segment_max: start.peer_max_recv_data_segment_length.max(1),
            incoming: Incoming::Nothing,
            urgent: VecDeque::new(),
            queue: VecDeque::new(),
            keepalive: Keepalive::new(now),
            probe: Probe::new(now),
            is_leaving: false,
        }
    }

    /// Whether nothing is queued.
    pub(super) fn is_idle(&self) -> bool {
        self.urgent.is_empty() && self.queue.is_empty()
    }

    /// Queues an immediate PDU.
    pub(super) fn queue_immediate(&mut self, bhs: Bhs, data: Vec<u8>) {
        self.urgent.push_back(PreparedPdu {
            bhs: Box::new(bhs),
            data,
            exchange: None,
        });
    }

    /// Completes the reception of a PDU with its data segment. From now on, its status, if any, is
    /// acknowledged. An earlier acknowledgement would lose the status if the connection broke. A status that
    /// a target skips is permanently lost at ErrorRecoveryLevel 0, and its command will time out, but the
    /// session continues.
    pub(super) fn segment_arrived(&mut self) {
        if let Some(stat_sn) = self.incoming_stat_sn.take()
            && self.exp_stat_sn.le(stat_sn)
        {
            self.exp_stat_sn = stat_sn.next();
        }
    }
}

/// The keepalive pings of a connection.
#[derive(Debug)]
pub(super) struct Probe {
    /// Time of the last ping.
    asked: Instant,
    /// Number of pings without a response. A rejected ping remains counted, so the next one is sent only when
    /// the connection is idle.
    unanswered: u32,
}

impl Probe {
    pub(super) fn new(now: Instant) -> Probe {
        Probe {
            asked: now,
            unanswered: 0,
        }
    }

    /// Records an attempt to ping. No ping is sent if the connection is logging out, but the interval starts
    /// again in any case.
    pub(super) fn ask(&mut self, now: Instant, is_sent: bool) {
        self.asked = now;
        self.unanswered = self.unanswered.saturating_add(u32::from(is_sent));
    }

    pub(super) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Time of the next ping. Only one ping is outstanding at a time, and two pings are at least the interval
    /// apart.
    pub(super) fn deadline(&self, interval: Duration) -> Option<Instant> {
        if self.unanswered == 0 {
            self.asked.checked_add(interval)
        } else {
            None
        }
    }
}

/// Action when a data segment has been received.
#[derive(Debug, Default)]
pub(super) enum Incoming {
    /// None.
    #[default]
    Nothing,
    /// Drop it.
    Dropped,
    /// It belongs to a Data-In, which may also contain the status.
    Data {
        key: Key,
        length: u32,
        status: Option<CommandStatus>,
    },
    /// It is sense data, or empty.
    Response(CommandStatus),
    Text(TextResponse, Key),
    /// It is the data of a ping response.
    PingResponse(Key),
    /// It belongs to an asynchronous message.
    Message(Box<AsyncMessage>),
    /// It is the rejected header.
    Reject(Reject),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CommandStatus {
    pub(super) key: Key,
    pub(super) response: Response,
    pub(super) status: u8,
    pub(super) residual: Residual,
    pub(super) read_residual: Residual,
}
