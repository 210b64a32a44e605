//! What is done by one task at a time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// One after the other.
#[derive(Default)]
pub(crate) struct Turns {
    is_taken: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(crate) async fn take(&self) -> Turn<'_> {
        poll_fn(|cx| {
            if !self.is_taken.replace(true) {
                return Poll::Ready(Turn(self));
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.is_taken.set(false);
        let waiting = std::mem::take(&mut *self.0.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}
