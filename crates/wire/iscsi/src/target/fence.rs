//! The response fence (RFC 7143 sections 4.2.2.3.3 and 4.2.2.3.4): no response may overtake a fenced one,
//! even on a different connection.
//!
//! ```text
//!   connection 0    responses      │ping                      ┌─ TMF response │ping
//!   connection 1    responses      │ping                      │
//!                                  └── both acknowledged? ────┘      acknowledged? ── end of the fence
//!   blocked                                            responses queued since ────────► sent
//! ```
//!
//! The response to a task management function that ended many tasks is sent when all responses queued before
//! it on the other connections have been acknowledged. Responses queued after it wait until the response to
//! the function has been acknowledged. A ping at the end of each queue requests the acknowledgement. The
//! initiator acknowledges with the ExpStatSN of any PDU, such as its response to the ping. The fence does not
//! wait for a lost connection, and no wait exceeds its timeout.
//!
//! If the session has one connection, the order of its queue suffices, and a fence ends immediately. The
//! standard's fence applies to one I_T_L nexus, so it does not block responses of other logical units.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::ConnectionId;
use super::connection::{PreparedPdu, QueuedPdu};
use crate::pdu::{Lun, Sn, Ttt};

/// The active fence, and the PDUs it blocks.
#[derive(Debug, Default)]
pub(super) struct Fences {
    pub(super) active: Option<Fence>,
    /// In the order of transmission.
    pub(super) blocked: VecDeque<Blocked>,
    /// Number of fences so far, which is also the number of the last fence. It distinguishes the pings of a
    /// fence that timed out from those of the next.
    pub(super) begun: u32,
}

/// The responses that a fence blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FenceScope {
    LogicalUnit(Lun),
    Target,
}

#[derive(Debug)]
pub(super) struct Fence {
    pub(super) number: u32,
    pub(super) scope: FenceScope,
    /// The connection of the fenced response.
    pub(super) requester: ConnectionId,
    /// The fenced response, until it is sent.
    pub(super) answer: Option<Box<PreparedPdu>>,
    /// Connections with unacknowledged responses.
    pub(super) unacknowledged: Vec<Unacknowledged>,
    pub(super) timeout: Timeout,
}

#[derive(Debug)]
pub(super) struct Unacknowledged {
    pub(super) connection: ConnectionId,
    /// `None` until the ping is sent.
    pub(super) ping: Option<Ping>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ping {
    /// The first StatSN that need not be acknowledged.
    pub(super) stat_sn: Sn,
    pub(super) ttt: Option<Ttt>,
}

#[derive(Debug)]
pub(super) struct Blocked {
    pub(super) connection: ConnectionId,
    pub(super) pdu: BlockedPdu,
}

#[derive(Debug)]
pub(super) enum BlockedPdu {
    Plain(QueuedPdu),
    /// A response that starts another fence.
    Fenced(FenceScope, Box<PreparedPdu>),
}

impl Fences {
    pub(super) fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Whether responses of a logical unit must wait.
    pub(super) fn holds(&self, lun: Lun) -> bool {
        self.active
            .as_ref()
            .is_some_and(|fence| fence.scope.covers(lun) || self.will_block(lun))
    }

    fn will_block(&self, lun: Lun) -> bool {
        self.blocked.iter().any(|blocked| match &blocked.pdu {
            BlockedPdu::Fenced(scope, _) => scope.covers(lun),
            BlockedPdu::Plain(_) => false,
        })
    }

    /// Blocks a PDU until the end of the fence.
    pub(super) fn hold(&mut self, connection: ConnectionId, pdu: QueuedPdu) {
        self.blocked.push_back(Blocked {
            connection,
            pdu: BlockedPdu::Plain(pdu),
        });
    }

    /// Number of blocked PDUs.
    pub(super) fn blocked(&self) -> usize {
        self.blocked.len()
    }

    pub(super) fn deadline(&self, passed: Instant) -> Option<Instant> {
        self.active
            .as_ref()
            .map(|fence| fence.timeout.deadline(passed))
    }

    /// If all connections were to be closed after a blocked response of this connection: the reason.
    pub(super) fn closing_blocked(&self, id: ConnectionId) -> Option<super::CloseReason> {
        let active = self.active.iter().filter(|fence| fence.requester == id);
        let answers = active.filter_map(|fence| fence.answer.as_deref());
        let blocked = self
            .blocked
            .iter()
            .filter(|blocked| blocked.connection == id);
        let waiting = blocked.filter_map(|blocked| match &blocked.pdu {
            BlockedPdu::Plain(QueuedPdu::Prepared(ready)) | BlockedPdu::Fenced(_, ready) => {
                Some(&**ready)
            }
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

/// A timeout that starts at the first call of [`Timeout::has_expired`]. It cannot start when it is created,
/// because `Session::tmf_done`, which creates it, is not passed the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeout {
    limit: Duration,
    until: Option<Instant>,
}

impl Timeout {
    pub(super) fn new(limit: Duration) -> Timeout {
        Timeout { limit, until: None }
    }

    /// Whether the timeout has expired; the first call starts it. A limit beyond the range of the clock never
    /// expires.
    pub(super) fn has_expired(&mut self, now: Instant) -> bool {
        match self.until {
            Some(until) => now >= until,
            None => {
                self.until = now.checked_add(self.limit);
                false
            }
        }
    }

    /// When to call [`Timeout::has_expired`]. Before the timeout has started, this is `passed`, a time in the
    /// past, so that it is called immediately.
    pub(super) fn deadline(&self, passed: Instant) -> Instant {
        self.until.unwrap_or(passed)
    }
}
