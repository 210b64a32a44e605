//! Orphans: operations of a file that continue after their futures were dropped.
//!
//! Each operation has two parts: the *ticket* belongs to the work, and is dropped when the work ends; the
//! *claim* belongs to the future. While both exist, no lock is needed. The operation is registered as an
//! orphan only if its claim is dropped before its ticket.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The orphans of one file.
#[derive(Default)]
pub(crate) struct Orphans {
    state: Mutex<OrphanSet>,
}

#[derive(Default)]
struct OrphanSet {
    /// Numbers start at 2: 0 and 1 are states of operations that are not orphans.
    entered: u64,
    running: BTreeSet<u64>,
    waiters: Vec<Waker>,
}

const RUNNING: u64 = 0;
const ENDED: u64 = 1;

struct Shared {
    /// [`RUNNING`], [`ENDED`], or the operation's number if it is an orphan.
    state: AtomicU64,
    orphans: Arc<Orphans>,
}

/// The part of an operation that belongs to the work. It is dropped when the work can no longer access the
/// medium.
pub(crate) struct Ticket(Arc<Shared>);

/// The part of an operation that belongs to the waiting future.
pub(crate) struct Claim(Arc<Shared>);

impl Orphans {
    pub(crate) fn ticket(self: &Arc<Self>) -> (Claim, Ticket) {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(RUNNING),
            orphans: Arc::clone(self),
        });
        (Claim(Arc::clone(&shared)), Ticket(shared))
    }

    pub(crate) fn count(&self) -> usize {
        self.state().running.len()
    }

    /// Waits until the current orphans have ended. Later orphans do not prolong the wait.
    pub(crate) async fn ended(&self) {
        let last = self.state().entered + 1;
        poll_fn(|cx| {
            let mut state = self.state();
            if state.running.first().is_none_or(|&first| first > last) {
                return Poll::Ready(());
            }
            if !state
                .waiters
                .iter()
                .any(|waiter| waiter.will_wake(cx.waker()))
            {
                state.waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn state(&self) -> MutexGuard<'_, OrphanSet> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.0.state.load(Ordering::Acquire) == ENDED {
            return;
        }
        // Register the orphan under the lock, so that the ticket, if it is dropped now, finds the entry.
        let mut state = self.0.orphans.state();
        let number = state.entered + 2;
        let alone =
            self.0
                .state
                .compare_exchange(RUNNING, number, Ordering::AcqRel, Ordering::Acquire);
        if alone.is_ok() {
            state.entered += 1;
            state.running.insert(number);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let number = self.0.state.swap(ENDED, Ordering::AcqRel);
        if number != RUNNING {
            let mut state = self.0.orphans.state();
            state.running.remove(&number);
            let waiters = mem::take(&mut state.waiters);
            drop(state);
            waiters.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::Context;

    use testkit::poll;

    #[test]
    fn an_operation_that_ends_before_its_waiter_is_no_orphan() {
        let orphans = Arc::new(Orphans::default());
        let (claim, ticket) = orphans.ticket();
        drop(ticket);
        drop(claim);
        assert_eq!(orphans.count(), 0);
    }

    #[test]
    fn an_operation_still_waited_for_holds_nobody_up() {
        let orphans = Arc::new(Orphans::default());
        let (_claim, _ticket) = orphans.ticket();
        assert!(poll(pin!(orphans.ended())).is_some());
    }

    #[test]
    fn the_wait_ends_with_the_orphans_of_its_beginning() {
        let orphans = Arc::new(Orphans::default());
        let (claim, first) = orphans.ticket();
        drop(claim);
        let mut wait = pin!(orphans.ended());
        assert!(poll(wait.as_mut()).is_none());
        let (claim, _later) = orphans.ticket();
        drop(claim);
        drop(first);
        assert!(poll(wait).is_some());
        assert_eq!(orphans.count(), 1);
    }

    struct Unheard;

    impl std::task::Wake for Unheard {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_waiter_that_is_polled_often_is_kept_once() {
        let orphans = Arc::new(Orphans::default());
        let (claim, _ticket) = orphans.ticket();
        drop(claim);
        let mut wait = pin!(orphans.ended());
        let waker = Waker::from(Arc::new(Unheard));
        assert!((0..3).all(|_| {
            wait.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        }));
        assert_eq!(orphans.state().waiters.len(), 1);
    }
}
