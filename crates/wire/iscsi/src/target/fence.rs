//! The response fence (RFC 7143 sections 4.2.2.3.3 and 4.2.2.3.4): no response may be seen to pass a fenced
//! one, although they travel on different connections.
//!
//! ```text
//!   connection 0    responses      │ping                      ┌─ TMF response │ping
//!   connection 1    responses      │ping                      │
//!                                  └── both acknowledged? ────┘      acknowledged? ── end of the fence
//!   blocked                                            responses queued since ────────► sent
//! ```
//!
//! The response to a function that ended many tasks is sent when all responses queued before it on the other
//! connections have been acknowledged; responses queued after it wait until it has been acknowledged itself.
//! A ping at the end of each queue requests the acknowledgement: the ExpStatSN of any PDU of the initiator
//! serves, and so does the response to the ping. A lost connection is not waited for, and no wait exceeds its
//! timeout.
//!
//! With one connection the order of its queue suffices, and this module is not used. The standard's fence
//! applies to one I_T_L nexus: responses of other logical units pass.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::connection::{CloseAfter, PreparedPdu, QueuedPdu};
use super::event::{ConnectionId, Event};
use super::timeout::Timeout;
use super::{Session, Transmit};
use crate::pdu::{Bhs, Lun, Opcode, Ttt};
use crate::serial::Sn;

/// The active fence, and the PDUs it blocks.
#[derive(Debug, Default)]
pub(super) struct Fences {
    active: Option<Fence>,
    /// In the order of transmission.
    blocked: VecDeque<Blocked>,
    /// Number of fences so far, so that a ping of a fence that timed out does not count for the next.
    begun: u32,
}

/// The responses that a fence blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FenceScope {
    LogicalUnit(Lun),
    Target,
}

#[derive(Debug)]
struct Fence {
    number: u32,
    scope: FenceScope,
    /// The connection of the fenced response.
    requester: ConnectionId,
    /// The fenced response, until it is sent.
    answer: Option<Box<PreparedPdu>>,
    /// Connections with unacknowledged responses.
    unacknowledged: Vec<Unacknowledged>,
    timeout: Timeout,
}

#[derive(Debug)]
struct Unacknowledged {
    connection: ConnectionId,
    /// `None` until it is sent.
    ping: Option<Ping>,
}

#[derive(Clone, Copy, Debug)]
struct Ping {
    /// The first StatSN that need not be acknowledged.
    stat_sn: Sn,
    ttt: Option<Ttt>,
}

#[derive(Debug)]
struct Blocked {
    connection: ConnectionId,
    say: BlockedPdu,
}

#[derive(Debug)]
enum BlockedPdu {
    Plain(QueuedPdu),
    /// A response that begins another fence.
    Fenced(FenceScope, Box<PreparedPdu>),
}

impl Fences {
    pub(super) fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Whether responses of a logical unit have to wait.
    pub(super) fn holds(&self, lun: Lun) -> bool {
        self.active.as_ref().is_some_and(|fence| fence.scope.covers(lun) || self.will_block(lun))
    }

    fn will_block(&self, lun: Lun) -> bool {
        self.blocked.iter().any(|blocked| match &blocked.say {
            BlockedPdu::Fenced(scope, _) => scope.covers(lun),
            BlockedPdu::Plain(_) => false,
        })
    }

    /// Blocks a PDU until the end of the fence.
    pub(super) fn hold(&mut self, connection: ConnectionId, say: QueuedPdu) {
        self.blocked.push_back(Blocked { connection, say: BlockedPdu::Plain(say) });
    }

    /// Number of blocked PDUs.
    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    pub(super) fn deadline(&self, passed: Instant) -> Option<Instant> {
        self.active.as_ref().map(|fence| fence.timeout.deadline(passed))
    }

    /// Why all connections were to be closed after a blocked response of this one.
    pub(super) fn closing_blocked(&self, id: ConnectionId) -> Option<super::CloseReason> {
        let active = self.active.iter().filter(|fence| fence.requester == id);
        let answers = active.filter_map(|fence| fence.answer.as_deref());
        let blocked = self.blocked.iter().filter(|blocked| blocked.connection == id);
        let waiting = blocked.filter_map(|blocked| match &blocked.say {
            BlockedPdu::Plain(QueuedPdu::Prepared(ready)) | BlockedPdu::Fenced(_, ready) => Some(&**ready),
            BlockedPdu::Plain(_) => None,
        });
        answers.chain(waiting).find_map(PreparedPdu::closes_all)
    }
}

impl FenceScope {
    pub(super) fn covers(self, lun: Lun) -> bool {
        match self {
            FenceScope::LogicalUnit(of) => of == lun,
            FenceScope::Target => true,
        }
    }
}

impl Session {
    /// Queues a PDU after all responses so far, blocked ones included.
    pub(super) fn queue_after_responses(&mut self, id: ConnectionId, bhs: Bhs, then: Option<CloseAfter>) {
        let say = QueuedPdu::Prepared(Box::new(PreparedPdu { bhs, data: Vec::new(), is_status: true, then }));
        if self.fences.is_active() {
            self.fences.hold(id, say);
        } else if let Some(connection) = self.connection_mut(id) {
            connection.responses.push_back(say);
        }
    }

    /// Queues a response that no response on any connection may pass.
    pub(super) fn queue_fenced(
        &mut self,
        id: ConnectionId,
        bhs: Bhs,
        scope: FenceScope,
        then: Option<CloseAfter>,
    ) {
        let ready = Box::new(PreparedPdu { bhs, data: Vec::new(), is_status: true, then });
        if self.fences.is_active() {
            self.fences.blocked.push_back(Blocked { connection: id, say: BlockedPdu::Fenced(scope, ready) });
        } else {
            self.begin_fence(id, scope, ready);
            self.advance_fence();
        }
    }

    /// Section 4.2.2.3.3: "takes note of last-sent and unacknowledged StatSN on each of the connections", by
    /// a ping behind everything queued there.
    fn begin_fence(&mut self, requester: ConnectionId, scope: FenceScope, answer: Box<PreparedPdu>) {
        let number = self.fences.begun.wrapping_add(1);
        self.fences.begun = number;
        let others: Vec<ConnectionId> =
            self.connections().map(|(id, _)| id).filter(|&other| other != requester).collect();
        let unacknowledged = others.into_iter().map(|other| self.ask(number, other)).collect();
        let answer = Some(answer);
        let timeout = Timeout::new(ACKNOWLEDGE_WITHIN);
        self.fences.active = Some(Fence { number, scope, requester, answer, unacknowledged, timeout });
    }

    /// Queues a ping. On a connection that is logging out nothing follows the logout response: there only its
    /// end is waited for.
    fn ask(&mut self, number: u32, id: ConnectionId) -> Unacknowledged {
        if let Some(connection) = self.connection_mut(id).filter(|connection| !connection.logged_out) {
            connection.responses.push_back(QueuedPdu::FencePing(number));
            self.events.push_back(Event::TransmitReady { connection: id });
        }
        Unacknowledged { connection: id, ping: None }
    }

    /// Sends the ping: everything queued before it has been sent.
    pub(super) fn emit_fence_ping(&mut self, id: ConnectionId, number: u32) -> Option<Transmit> {
        let active = self.fences.active.as_mut().filter(|fence| fence.number == number)?;
        let unacknowledged =
            active.unacknowledged.iter_mut().find(|unacknowledged| unacknowledged.connection == id)?;
        let connection = self.connections.get_mut(id)?;
        let ttt = connection.next_ping();
        unacknowledged.ping = Some(Ping { stat_sn: connection.stat_sn, ttt });
        let ready = PreparedPdu {
            bhs: super::nop::nop_in(ttt).emit(),
            data: Vec::new(),
            is_status: false,
            then: None,
        };
        Some(self.emit_prepared(id, ready))
    }

    /// Processes ExpStatSN of a received PDU while a fence is active.
    pub(super) fn handle_acknowledgement(&mut self, id: ConnectionId, bhs: &Bhs) {
        let Some(fence) = &mut self.fences.active else { return };
        let exp_stat_sn = exp_stat_sn(bhs);
        let answered = match bhs.opcode() {
            Some(Opcode::NopOut) => Ttt::new(bhs.u32(TTT)),
            _ => None,
        };
        let arrived =
            |ping: Ping| ping.stat_sn.le(exp_stat_sn) || (answered.is_some() && answered == ping.ttt);
        fence.unacknowledged.retain(|unacknowledged| {
            unacknowledged.connection != id || !unacknowledged.ping.is_some_and(arrived)
        });
        self.advance_fence();
    }

    /// A connection is gone, with its responses.
    pub(super) fn fences_connection_lost(&mut self, id: ConnectionId) {
        if let Some(fence) = &mut self.fences.active {
            fence.unacknowledged.retain(|unacknowledged| unacknowledged.connection != id);
            self.advance_fence();
        }
    }

    /// Ends waits that timed out.
    pub(super) fn fences_timeout(&mut self, now: Instant) {
        if let Some(fence) = &mut self.fences.active
            && fence.timeout.has_expired(now)
        {
            fence.unacknowledged.clear();
            self.advance_fence();
        }
    }

    /// Advances fences without missing acknowledgements: sends the response, or ends the fence.
    fn advance_fence(&mut self) {
        while let Some(mut fence) = self.fences.active.take_if(|fence| fence.unacknowledged.is_empty()) {
            match fence.answer.take() {
                Some(answer) => self.fences.active = Some(self.send_fenced(fence, answer)),
                None => self.release_blocked(),
            }
        }
    }

    /// All responses before it have arrived. "The fence … MUST NOT be considered cleared" before it has
    /// arrived too.
    fn send_fenced(&mut self, fence: Fence, answer: Box<PreparedPdu>) -> Fence {
        let is_last = answer.then.is_some();
        if let Some(connection) = self.connection_mut(fence.requester) {
            connection.responses.push_back(QueuedPdu::Prepared(answer));
            self.events.push_back(Event::TransmitReady { connection: fence.requester });
        }
        // A response after which the connections are closed is never acknowledged.
        let is_heard =
            !is_last && self.connections().count() > 1 && self.connection(fence.requester).is_some();
        let unacknowledged =
            if is_heard { vec![self.ask(fence.number, fence.requester)] } else { Vec::new() };
        let timeout = Timeout::new(ACKNOWLEDGE_WITHIN);
        Fence { unacknowledged, timeout, ..fence }
    }

    /// Queues the blocked PDUs, up to the next fenced response.
    fn release_blocked(&mut self) {
        while let Some(Blocked { connection: id, say }) = self.fences.blocked.pop_front() {
            match say {
                BlockedPdu::Fenced(scope, ready) => return self.begin_fence(id, scope, ready),
                BlockedPdu::Plain(say) => {
                    if let Some(connection) = self.connection_mut(id) {
                        connection.responses.push_back(say);
                        self.events.push_back(Event::TransmitReady { connection: id });
                    }
                }
            }
        }
    }
}

/// ExpStatSN: all statuses before it have arrived.
pub(super) fn exp_stat_sn(bhs: &Bhs) -> Sn {
    Sn(bhs.u32(EXP_STAT_SN))
}

/// An initiator on a LAN acknowledges within milliseconds; issue 2 wants resets answered within five seconds.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(1);
/// Offsets in all PDUs of an initiator (section 11).
const EXP_STAT_SN: usize = 28;
const TTT: usize = 20;
