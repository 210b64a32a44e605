//! A limit of requests that are under way at once.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::Lock;

/// A limit of requests, first come, first served.
pub struct Permits {
    state: Lock<Waiting>,
}

struct Waiting {
    free: usize,
    next: u64,
    queue: VecDeque<(u64, Option<Waker>)>,
}

impl Permits {
    /// For `count` requests at once, at least one.
    pub fn new(count: usize) -> Permits {
        Permits { state: Lock::new(Waiting { free: count.max(1), next: 0, queue: VecDeque::new() }) }
    }

    /// Waits for a permit.
    pub async fn take(self: &Arc<Self>) -> Permit {
        let ticket = {
            let mut state = self.state.lock();
            let ticket = state.next;
            state.next += 1;
            state.queue.push_back((ticket, None));
            ticket
        };
        let mut permit = Permit { permits: Arc::clone(self), ticket, granted: false };
        poll_fn(|cx| {
            let mut state = self.state.lock();
            let is_first = state.queue.front().is_some_and(|(first, _)| *first == ticket);
            if is_first && state.free > 0 {
                state.free -= 1;
                state.queue.pop_front();
                return Poll::Ready(());
            }
            if let Some((_, waker)) = state.queue.iter_mut().find(|(other, _)| *other == ticket) {
                *waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
        permit.granted = true;
        self.wake_first();
        permit
    }

    fn wake_first(&self) {
        let mut state = self.state.lock();
        let first =
            if state.free > 0 { state.queue.front_mut().and_then(|(_, waker)| waker.take()) } else { None };
        drop(state);
        first.into_iter().for_each(Waker::wake);
    }
}

/// A permit, until it is dropped.
pub struct Permit {
    permits: Arc<Permits>,
    ticket: u64,
    granted: bool,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.permits.state.lock();
        if self.granted {
            state.free += 1;
        } else {
            state.queue.retain(|(ticket, _)| *ticket != self.ticket);
        }
        drop(state);
        self.permits.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::Context;

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn permits_are_granted_in_order() {
        let permits = Arc::new(Permits::new(1));
        let first = poll(pin!(permits.take())).expect("free");
        let (mut second, mut third) = (Box::pin(permits.take()), Box::pin(permits.take()));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        drop(first);
        assert!(poll(third.as_mut()).is_none());
        drop(second);
        assert!(poll(third.as_mut()).is_some());
    }
}
