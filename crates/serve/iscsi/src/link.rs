//! What the rest of a session knows of one of its connections: how to wake it, and whether it is to end.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use iscsi::pdu::Cid;
use iscsi::target::CloseReason;

/// A connection as others see it. Its own task runs in `connection`.
pub(crate) struct Link {
    pub(crate) cid: Cid,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    woken: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    closing: Cell<Option<Closing>>,
    /// The socket does not take what is to be sent.
    blocked: Cell<bool>,
    /// What it sends from the medium is in the way of others.
    to_withdraw: Cell<bool>,
    /// Since when copies of what was on the medium have waited for its socket. It is looked after while that is full.
    copies: Cell<Option<Instant>>,
    /// How much of what its peer owes had come, and since when.
    owed: Cell<Option<(u64, Instant)>>,
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// After what is queued has been sent.
    Polite(CloseReason),
    /// At once: another connection or session takes its place, or the server ends.
    Abrupt,
    /// At once: others wait for what its peer is too slow to let go of.
    TooSlow,
    /// At once: its time is up.
    TooLong,
}

impl Link {
    pub(crate) fn new(cid: Cid, peer: SocketAddr, local: SocketAddr) -> Link {
        Link {
            cid,
            peer,
            local,
            woken: Cell::new(false),
            waker: RefCell::default(),
            closing: Cell::new(None),
            blocked: Cell::new(false),
            to_withdraw: Cell::new(false),
            copies: Cell::new(None),
            owed: Cell::new(None),
        }
    }

    /// Lets its task look at the session again.
    pub(crate) fn wake(&self) {
        if !self.woken.replace(true)
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Ready if it was woken since the last time.
    pub(crate) fn poll_woken(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.woken.take() {
            return Poll::Ready(());
        }
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(known) => known.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Ends it once it has said everything.
    pub(crate) fn close(&self, reason: CloseReason) {
        if self.closing.get().is_none() {
            self.closing.set(Some(Closing::Polite(reason)));
        }
        self.wake();
    }

    /// Ends it now.
    pub(crate) fn cut(&self) {
        self.closing.set(Some(Closing::Abrupt));
        self.wake();
    }

    /// The same, because its peer is slow.
    pub(crate) fn cut_slow(&self) {
        self.closing.set(Some(Closing::TooSlow));
        self.wake();
    }

    /// Ends it now: its time is up.
    pub(crate) fn cut_late(&self) {
        self.closing.set(Some(Closing::TooLong));
        self.wake();
    }

    /// Has it copy what it sends from the medium.
    pub(crate) fn withdraw(&self) {
        self.to_withdraw.set(true);
        self.wake();
    }

    /// Whether it is to do that.
    pub(crate) fn take_withdrawal(&self) -> bool {
        self.to_withdraw.take()
    }

    /// Its socket is full, and there are copies to be sent, or none.
    pub(crate) fn note_copies(&self, now: Instant, are_there: bool) {
        self.copies.set(are_there.then(|| self.copies.get().unwrap_or(now)));
    }

    /// Since when copies of what was on the medium have held memory because its socket takes nothing.
    pub(crate) fn copies_since(&self) -> Option<Instant> {
        self.copies.get().filter(|_| self.is_blocked())
    }

    /// Its peer owes data of which `received` bytes have come, or none at all: since when it has sent nothing of it.
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
