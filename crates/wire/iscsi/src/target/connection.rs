//! What the session keeps of each of its connections.

use std::collections::VecDeque;
use std::time::Instant;

use super::config::ConnectionStart;
use super::event::{ConnectionId, Receipt};
use super::receive::Incoming;
use super::text::TextExchange;
use crate::keepalive::Keepalive;
use crate::pdu::{Bhs, Cid, Opcode, Ttt};
use crate::serial::Sn;
use crate::slab::Key;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) cid: Cid,
    /// The next status's number.
    pub(super) stat_sn: Sn,
    pub(super) local_segment_max: u32,
    pub(super) peer_segment_max: u32,
    /// The header whose data segment is on its way.
    pub(super) header: Bhs,
    /// When it came.
    pub(super) header_at: Instant,
    pub(super) incoming: Incoming,
    /// What its data segment takes of the bytes staged, from its header on.
    pub(super) reserved_bytes: usize,
    /// To be sent first: it is small, and somebody waits for it (NOP-In, R2T, Reject, text).
    pub(super) urgent: VecDeque<QueuedPdu>,
    /// Data in `urgent`.
    pub(super) urgent_bytes: usize,
    /// To be sent in this order: answers to commands, and what must not overtake them.
    pub(super) responses: VecDeque<QueuedPdu>,
    pub(super) keepalive: Keepalive,
    /// Numbers our pings.
    pub(super) pings: u32,
    pub(super) text: TextExchange,
    /// Receipts of answers that were sent and are not acknowledged, in the order of their StatSN.
    pub(super) receipts: Vec<(Sn, Receipt)>,
    /// A logout has been accepted: nothing more is listened to.
    pub(super) logged_out: bool,
    /// The initiator was asked to log out, and has until then.
    pub(super) logout_by: Option<Instant>,
}

/// Something to say. Numbers are put in when it is said.
#[derive(Debug)]
pub(super) enum QueuedPdu {
    /// A task's data and status.
    Response(Key),
    /// A task's next R2T.
    R2t(Key),
    /// A PDU that is ready but for its numbers.
    Prepared(Box<PreparedPdu>),
    /// The ping that a fence of this number waits for.
    FencePing(u32),
}

/// A PDU that is ready but for its numbers.
#[derive(Debug)]
pub(super) struct PreparedPdu {
    pub(super) bhs: Bhs,
    pub(super) data: Vec<u8>,
    /// It uses a StatSN up.
    pub(super) is_status: bool,
    /// Once it is out, connections are to be closed.
    pub(super) then: Option<CloseAfter>,
}

/// Which connections end behind an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseAfter {
    /// One, for this reason.
    One(ConnectionId, super::CloseReason),
    /// All, for this reason.
    All(super::CloseReason),
}

impl PreparedPdu {
    /// Why all connections are to be closed behind it, if they are.
    pub(super) fn closes_all(&self) -> Option<super::CloseReason> {
        match self.then {
            Some(CloseAfter::All(reason)) => Some(reason),
            Some(CloseAfter::One(..)) | None => None,
        }
    }
}

impl Connection {
    pub(super) fn new(
        id: ConnectionId,
        cid: Cid,
        start: ConnectionStart,
        now: Instant,
        text_bytes_max: usize,
    ) -> Connection {
        Connection {
            id,
            cid,
            stat_sn: start.stat_sn,
            local_segment_max: start.local_max_recv_data_segment_length,
            peer_segment_max: start.peer_max_recv_data_segment_length,
            header: Bhs::new(Opcode::NopOut),
            header_at: now,
            incoming: Incoming::Nothing,
            reserved_bytes: 0,
            urgent: VecDeque::new(),
            urgent_bytes: 0,
            responses: VecDeque::new(),
            keepalive: Keepalive::new(now),
            pings: 0,
            text: TextExchange::new(text_bytes_max),
            receipts: Vec::new(),
            logged_out: false,
            logout_by: None,
        }
    }

    /// Says something soon, that uses a StatSN up.
    pub(super) fn queue_status(&mut self, bhs: Bhs, data: Vec<u8>) {
        self.queue(PreparedPdu { bhs, data, is_status: true, then: None });
    }

    /// Says something soon, that uses no StatSN up.
    pub(super) fn queue_without_status(&mut self, bhs: Bhs) {
        self.queue(PreparedPdu { bhs, data: Vec::new(), is_status: false, then: None });
    }

    pub(super) fn queue(&mut self, ready: PreparedPdu) {
        self.urgent_bytes += ready.data.len();
        self.urgent.push_back(QueuedPdu::Prepared(Box::new(ready)));
    }

    /// The next status is about to be sent, and has this receipt. One that says what an earlier one says as well waits
    /// with that, so that a queue of flushes does not put its end off.
    pub(super) fn await_receipt(&mut self, receipt: Receipt) {
        if !self.receipts.iter().any(|(_, earlier)| *earlier == receipt) {
            if self.receipts.len() == RECEIPTS_MAX {
                self.receipts.remove(0);
            }
            self.receipts.push((self.stat_sn, receipt));
        }
    }

    /// The tag of the target's next ping. It wraps before it meets the reserved tag.
    pub(super) fn next_ping(&mut self) -> Option<Ttt> {
        self.pings = (self.pings + 1) & 0x7fff_ffff;
        Ttt::new(self.pings)
    }

    /// Why all connections were to be closed behind something that waits to be said.
    pub(super) fn closes_all(&self) -> Option<super::CloseReason> {
        self.responses.iter().find_map(|say| match say {
            QueuedPdu::Prepared(ready) => ready.closes_all(),
            QueuedPdu::Response(_) | QueuedPdu::R2t(_) | QueuedPdu::FencePing(_) => None,
        })
    }

    /// Whether the peer sends and does not listen: so much waits to be sent.
    pub(super) fn exceeds_backlog(&self, pdus_max: usize, bytes_max: usize) -> bool {
        self.urgent.len() + self.responses.len() > pdus_max || self.urgent_bytes > bytes_max
    }
}

/// An initiator that acknowledges nothing has no more than that noted. What is not noted counts as not heard.
const RECEIPTS_MAX: usize = 64;
