//! State of a connection.

use std::collections::VecDeque;
use std::time::Instant;

use super::config::ConnectionStart;
use super::event::ConnectionId;
use super::incoming::Incoming;
use super::keepalive::Probe;
use super::transfer::Run;
use crate::connections::Identified;
use crate::keepalive::Keepalive;
use crate::pdu::{Bhs, Cid, Ttt};
use crate::serial::Sn;
use crate::slab::Key;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) cid: Cid,
    /// ExpStatSN: the next status.
    pub(super) exp_stat_sn: Sn,
    /// StatSN of a status whose data segment has yet to arrive.
    pub(super) incoming_stat_sn: Option<Sn>,
    pub(super) local_segment_max: u32,
    pub(super) peer_segment_max: u32,
    pub(super) incoming: Incoming,
    /// Transmit queue for PDUs with a waiting caller (NOP-Out, task management, text); goes first.
    pub(super) urgent: VecDeque<PreparedPdu>,
    /// Transmit queue in order.
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
    /// The exchange to notify when it is sent: a function, or a ping.
    pub(super) exchange: Option<Key>,
}

impl Identified for Connection {
    fn id(&self) -> ConnectionId {
        self.id
    }
}

impl Connection {
    pub(super) fn new(id: ConnectionId, cid: Cid, start: ConnectionStart, now: Instant) -> Connection {
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
        self.urgent.push_back(PreparedPdu { bhs: Box::new(bhs), data, exchange: None });
    }

    /// A PDU is there, with its data segment. The status that it may have brought is acknowledged from now on; before,
    /// it would be lost with the connection, and the target would take it for told. A target that skips one has lost it
    /// for good at ErrorRecoveryLevel 0, and what it was the status of will time out; that is no reason to lose the rest.
    pub(super) fn segment_arrived(&mut self) {
        if let Some(stat_sn) = self.incoming_stat_sn.take()
            && self.exp_stat_sn.le(stat_sn)
        {
            self.exp_stat_sn = stat_sn.next();
        }
    }
}
