//! When a closed loop does not ask at once: pauses between bursts, and draining.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// One slot after the other, in the order in which they came. Whoever has the turn may keep it for a while, and all
/// others wait behind it: that is what a pause is.
#[derive(Default)]
pub(super) struct Turnstile {
    taken: Cell<bool>,
    waiting: RefCell<VecDeque<Waker>>,
}

/// The turn; dropped, it is the next one's.
pub(super) struct Turn<'a>(&'a Turnstile);

impl Turnstile {
    pub(super) async fn enter(&self) -> Turn<'_> {
        poll_fn(|cx| {
            if self.taken.replace(true) {
                self.waiting.borrow_mut().push_back(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Turn(self))
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.taken.set(false);
        let next = self.0.waiting.borrow_mut().pop_front();
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
