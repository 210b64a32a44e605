//! The shared state of a connection, through which other parts of its session wake or end the connection.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use iscsi::pdu::Cid;
use iscsi::target::CloseReason;

/// Transfers of a peer that has been late for this time are moved from the volume's memory to a buffer, if
/// other commands wait for their blocks.
pub(crate) const SLOW: Duration = Duration::from_secs(1);

/// The shared state of a connection. Its task is in `connection`.
pub(crate) struct Link {
    pub(crate) cid: Cid,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    woken: Cell<bool>,
    /// Whether the connection's task is waiting. Only then does a wake queue the task.
    is_waiting: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    closing: Cell<Option<Closing>>,
    /// Whether the socket is full: the outbox was not empty when the task last started to wait.
    blocked: Cell<bool>,
    /// Whether other commands wait for blocks that this connection sends from the volume's memory.
    to_withdraw: Cell<bool>,
    /// The time since which copies of blocks have waited for the socket. The value is not reset when the
    /// socket accepts data again: [`Link::copies_since`] checks whether the socket is still full.
    copies: Cell<Option<Instant>>,
    /// The progress number of outstanding Data-Out ([`Link::observe_owed`]), and the time of the check that
    /// first found it.
    owed: Cell<Option<(u64, Instant)>>,
}

/// The ways of ending a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// After all queued PDUs have been sent.
    Polite(CloseReason),
    /// Immediately, for one of these reasons:
    ///
    /// - another connection or session replaces it;
    /// - an administrator ends its session immediately;
    /// - its portal was removed;
    /// - its target was reset (TARGET COLD RESET);
    /// - the server shuts down.
    Abrupt,
    /// Immediately: the peer has sent none of its outstanding data for too long, or other commands wait for
    /// resources that it holds.
    TooSlow,
    /// Immediately: its discovery session has lasted longer than `discovery-time`.
    TooLong,
}

impl Link {
    pub(crate) fn new(cid: Cid, peer: SocketAddr, local: SocketAddr) -> Link {
        Link {
            cid,
            peer,
            local,
            woken: Cell::new(false),
            is_waiting: Cell::new(false),
            waker: RefCell::default(),
            closing: Cell::new(None),
            blocked: Cell::new(false),
            to_withdraw: Cell::new(false),
            copies: Cell::new(None),
            owed: Cell::new(None),
        }
    }

    /// Wakes the task of the connection.
    pub(crate) fn wake(&self) {
        self.woken.set(true);
        if self.is_waiting.replace(false)
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Notes that the connection's task has begun a round.
    pub(crate) fn begin_round(&self) {
        self.is_waiting.set(false);
    }

    /// Discards all wakes so far, because the connection's task is about to handle their causes.
    pub(crate) fn forget_wakes(&self) {
        debug_assert!(!self.is_waiting.get(), "the task runs");
        self.woken.set(false);
    }

    /// Ready if the connection was woken since the last call.
    pub(crate) fn poll_woken(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.woken.take() {
            return Poll::Ready(());
        }
        self.is_waiting.set(true);
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(known) => known.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Closes the connection once all queued PDUs are sent.
    pub(crate) fn close(&self, reason: CloseReason) {
        if self.closing.get().is_none() {
            self.closing.set(Some(Closing::Polite(reason)));
        }
        self.wake();
    }

    /// Whether the initiator has logged out.
    pub(crate) fn is_logged_out(&self) -> bool {
        matches!(
            self.closing.get(),
            Some(Closing::Polite(CloseReason::Logout))
        )
    }

    /// Ends the connection immediately.
    pub(crate) fn cut(&self) {
        self.closing.set(Some(Closing::Abrupt));
        self.wake();
    }

    /// Cuts the connection because its peer is slow.
    pub(crate) fn cut_slow(&self) {
        self.closing.set(Some(Closing::TooSlow));
        self.wake();
    }

    /// Cuts the connection because its discovery session has lasted longer than `discovery-time`.
    pub(crate) fn cut_late(&self) {
        self.closing.set(Some(Closing::TooLong));
        self.wake();
    }

    /// Requests that the connection copies the blocks that it sends from the volume's memory.
    pub(crate) fn withdraw(&self) {
        self.to_withdraw.set(true);
        self.wake();
    }

    /// Whether [`Link::withdraw`] was called; resets the request.
    pub(crate) fn take_withdrawal(&self) -> bool {
        self.to_withdraw.take()
    }

    /// Records whether copies are queued while its socket is full.
    pub(crate) fn note_copies(&self, now: Instant, are_there: bool) {
        self.copies
            .set(are_there.then(|| self.copies.get().unwrap_or(now)));
    }

    /// The time since which copies of blocks have held memory because the socket accepts no data.
    pub(crate) fn copies_since(&self) -> Option<Instant> {
        self.copies.get().filter(|_| self.is_blocked())
    }

    /// Records the progress of outstanding Data-Out at a check. Progress is a number that changes when data
    /// arrives, and when a command starts or stops waiting for data; it is `None` if no command waits.
    /// Returns the time of the check that first found this number.
    pub(crate) fn observe_owed(&self, now: Instant, received: Option<u64>) -> Option<Instant> {
        let owed = received.map(|received| match self.owed.get() {
            Some((before, since)) if before == received => (before, since),
            _ => (received, now),
        });
        self.owed.set(owed);
        owed.map(|(_, since)| since)
    }

    pub(crate) fn set_blocked(&self, blocked: bool) {
        self.blocked.set(blocked);
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.get()
    }

    pub(crate) fn closing(&self) -> Option<Closing> {
        self.closing.get()
    }
}
