//! One waits, others tell it to look again.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Instant;

/// Wakes the one task that waits for it, if there is one.
#[derive(Default)]
pub(super) struct Signal(RefCell<Option<Waker>>);

impl Signal {
    pub(super) fn give(&self) {
        let waiting = self.0.borrow_mut().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Waits for a point in time or the next signal, whichever comes first.
pub(super) async fn before(deadline: Instant, signal: &Signal) {
    let mut sleep = pin!(reactor::sleep_until(deadline));
    let mut waits = false;
    poll_fn(|cx| {
        let given = waits && signal.0.borrow().is_none();
        waits = true;
        if given || sleep.as_mut().poll(cx).is_ready() {
            signal.0.borrow_mut().take();
            return Poll::Ready(());
        }
        *signal.0.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}
