//! State of a connection: reception, transmit queues, and its text exchange.

use std::collections::VecDeque;
use std::time::Instant;

use super::{CloseReason, ConnectionId, ConnectionStart, Receipt, TextQuery};
use crate::keepalive::Keepalive;
use crate::negotiate::ReceivedKeys;
use crate::pdu::{
    Bhs, Cid, LogoutRequest, Lun, NopIn, NopOut, Opcode, Sn, TargetNumbers, TaskManagementRequest,
    TextRequest, Ttt,
};
use crate::slab::{Identified, Key};
use crate::text::{Assembly, Pieces};

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) cid: Cid,
    /// StatSN of the next status.
    pub(super) stat_sn: Sn,
    pub(super) local_segment_max: u32,
    pub(super) peer_segment_max: u32,
    /// The header whose data segment is being received.
    pub(super) header: Bhs,
    /// Time at which `header` arrived.
    pub(super) header_at: Instant,
    pub(super) incoming: Incoming,
    /// Staging space reserved for the data segment being received, in bytes.
    pub(super) reserved_bytes: usize,
    /// Transmit queue for small PDUs that the initiator waits for (NOP-In, R2T, Reject, text). It is sent
    /// before `responses`.
    pub(super) urgent: VecDeque<QueuedPdu>,
    /// Size of the data in `urgent`.
    pub(super) urgent_bytes: usize,
    /// Transmit queue for responses, and for PDUs that must follow them; in order.
    pub(super) responses: VecDeque<QueuedPdu>,
    pub(super) keepalive: Keepalive,
    /// Number of our pings so far.
    pub(super) pings: u32,
    pub(super) text: TextExchange,
    /// Receipts of sent but unacknowledged statuses, by StatSN.
    pub(super) receipts: Vec<(Sn, Receipt)>,
    /// A logout was accepted: received PDUs are ignored (state S6, IN_LOGOUT).
    pub(super) logged_out: bool,
    /// Deadline for the logout requested from the initiator (state S7, LOGOUT_REQUESTED).
    pub(super) logout_by: Option<Instant>,
}

/// An entry of a transmit queue. Sequence numbers are assigned at transmission.
#[derive(Debug)]
pub(super) enum QueuedPdu {
    /// Data-In and status of a task.
    Response(Key),
    /// The next R2T of a task.
    R2t(Key),
    /// A PDU without its sequence numbers.
    Prepared(Box<PreparedPdu>),
    /// The ping of the fence with this number.
    FencePing(u32),
}

/// A PDU without its sequence numbers.
#[derive(Debug)]
pub(super) struct PreparedPdu {
    pub(super) bhs: Bhs,
    pub(super) data: Vec<u8>,
    /// It consumes a StatSN.
    pub(super) is_status: bool,
    /// Connections to close after it is sent.
    pub(super) then: Option<CloseAfter>,
}

/// Connections to close after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseAfter {
    /// This connection, and why.
    One(ConnectionId, CloseReason),
    /// All connections, and why.
    All(CloseReason),
}

impl PreparedPdu {
    /// If all connections are closed after this PDU: the reason.
    pub(super) fn closes_all(&self) -> Option<CloseReason> {
        match self.then {
            Some(CloseAfter::All(reason)) => Some(reason),
            Some(CloseAfter::One(..)) | None => None,
        }
    }
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

    /// Queues a PDU that consumes a StatSN.
    pub(super) fn queue_status(&mut self, bhs: Bhs, data: Vec<u8>) {
        self.queue(PreparedPdu {
            bhs,
            data,
            is_status: true,
            then: None,
        });
    }

    /// Queues a PDU that consumes no StatSN.
    pub(super) fn queue_without_status(&mut self, bhs: Bhs) {
        self.queue(PreparedPdu {
            bhs,
            data: Vec::new(),
            is_status: false,
            then: None,
        });
    }

    pub(super) fn queue(&mut self, ready: PreparedPdu) {
        debug_assert_eq!(
            ready.bhs.data_segment_length() as usize,
            ready.data.len(),
            "the length of its data"
        );
        self.urgent_bytes += ready.data.len();
        self.urgent.push_back(QueuedPdu::Prepared(Box::new(ready)));
    }

    /// Dequeues the response in front.
    pub(super) fn dequeue_response(&mut self) {
        let first = self.responses.pop_front();
        debug_assert!(
            matches!(first, Some(QueuedPdu::Response(_))),
            "a response stays in front until its last PDU"
        );
    }

    /// Dequeues the response in front, whose last PDU is sent now. Returns the StatSN of that PDU.
    pub(super) fn end_response(&mut self) -> Sn {
        self.dequeue_response();
        self.take_stat_sn()
    }

    /// The StatSN that a status consumes.
    pub(super) fn take_stat_sn(&mut self) -> Sn {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.next();
        stat_sn
    }

    /// Registers a receipt for the next status. If an earlier, unacknowledged status has the same receipt,
    /// the receipt stays with the earlier status: if it moved to the next one, a series of flushes could
    /// postpone the acknowledgement indefinitely.
    pub(super) fn await_receipt(&mut self, receipt: Receipt) {
        if !self.receipts.iter().any(|(_, earlier)| *earlier == receipt) {
            if self.receipts.len() == RECEIPTS_MAX {
                self.receipts.remove(0);
            }
            debug_assert!(self.receipts.len() < RECEIPTS_MAX, "receipts are bounded");
            self.receipts.push((self.stat_sn, receipt));
        }
    }

    /// The Target Transfer Tag of the next ping. The counter wraps before it reaches the reserved tag.
    pub(super) fn next_ping(&mut self) -> Option<Ttt> {
        self.pings = (self.pings + 1) & 0x7fff_ffff;
        Ttt::new(self.pings)
    }

    /// If all connections were to be closed after a queued PDU: the reason.
    pub(super) fn closes_all(&self) -> Option<CloseReason> {
        self.responses.iter().find_map(|pdu| match pdu {
            QueuedPdu::Prepared(ready) => ready.closes_all(),
            QueuedPdu::Response(_) | QueuedPdu::R2t(_) | QueuedPdu::FencePing(_) => None,
        })
    }

    /// Whether more is queued than allowed: the peer sends without receiving.
    pub(super) fn exceeds_backlog(&self, pdus_max: usize, bytes_max: usize) -> bool {
        self.urgent.len() + self.responses.len() > pdus_max || self.urgent_bytes > bytes_max
    }
}

/// Maximum number of receipts kept for an initiator that does not acknowledge statuses. If it is reached, the
/// oldest receipt is dropped, and its acknowledgement is never reported.
const RECEIPTS_MAX: usize = 64;

/// The text exchange of a connection; there is at most one.
#[derive(Debug)]
pub(super) struct TextExchange {
    pub(super) incoming: Assembly,
    pub(super) outgoing: Pieces,
    /// The tag of our last response, if the exchange continues.
    pub(super) ttt: Option<Ttt>,
    tags: u32,
    /// The request that waits for the driver's reply, the text that precedes this reply in the response, and
    /// the targets requested.
    pub(super) asked: Option<(TextRequest, Vec<u8>, TextQuery)>,
    /// If the driver has more text after `outgoing`: the targets requested, and the target with which the
    /// next part starts.
    pub(super) rest: Option<(TextQuery, String)>,
    pub(super) received_keys: ReceivedKeys,
}

impl TextExchange {
    pub(super) fn new(text_bytes_max: usize) -> TextExchange {
        TextExchange {
            incoming: Assembly::new(text_bytes_max),
            outgoing: Pieces::default(),
            ttt: None,
            tags: 0,
            asked: None,
            rest: None,
            received_keys: ReceivedKeys::default(),
        }
    }

    /// Starts a new exchange and discards an outstanding one, when a request without our tag arrives (section
    /// 11.10.4).
    pub(super) fn restart(&mut self) {
        self.incoming.clear();
        self.outgoing = Pieces::default();
        self.rest = None;
        self.ttt = None;
        self.received_keys = ReceivedKeys::default();
    }

    pub(super) fn next_tag(&mut self) -> Option<Ttt> {
        self.tags = (self.tags + 1) & 0x7fff_ffff;
        self.ttt = Ttt::new(self.tags);
        self.ttt
    }
}

/// A NOP-In of the target. "If the Target Transfer Tag is valid, the LUN field MUST hold a valid LUN": LUN 0
/// is always valid. Also, libiscsi before 2858cb5 answers with LUN 0 whatever the NOP-In contains.
pub(super) fn nop_in(ttt: Option<Ttt>) -> NopIn {
    NopIn {
        lun: Lun(0),
        itt: None,
        ttt,
        numbers: TargetNumbers::default(),
        data_segment_length: 0,
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
    /// It is immediate data.
    Immediate { key: Key, length: u32 },
    /// It belongs to a Data-Out.
    DataOut {
        key: Key,
        offset: u32,
        length: u32,
        is_final: bool,
    },
    /// Drop it. It is immediate data that the negotiated parameters do not allow, or data of a Data-Out that
    /// is invalid or whose task accepts no more data.
    Unwanted {
        key: Key,
        is_final: bool,
        is_solicited: bool,
    },
    /// It completes a request.
    Request(Box<Request>),
}

/// A request with a CmdSN that is not a SCSI command.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) connection: ConnectionId,
    pub(super) since: Instant,
    pub(super) kind: RequestKind,
    /// Text or ping data.
    pub(super) data: Vec<u8>,
    pub(super) cmd_sn: Sn,
    pub(super) immediate: bool,
}

/// The type of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestKind {
    Nop(NopOut),
    Text(TextRequest),
    Tmf(TaskManagementRequest),
    Logout(LogoutRequest),
}
