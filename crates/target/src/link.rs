//! What the rest of a session knows of one of its connections: how to wake it, and whether it is to end.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};

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
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// After what is queued has been sent.
    Polite(CloseReason),
    /// At once: another connection or session takes its place, or the server ends.
    Abrupt,
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
