//! A request as its requester and the session's thread have it: a slot for the outcome, with a waker on either side.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::Ended;

/// An outstanding request. It is carried out whether it is polled or not; dropping it cancels it, as dropping a request of
/// a [`block::BlockDevice`] does.
///
/// A future for any executor; [`Request::wait`] blocks a thread instead.
#[must_use = "dropping a request cancels it"]
pub struct Request<T, E> {
    slot: Arc<Slot<T, E>>,
}

struct Slot<T, E> {
    state: Mutex<State<T, E>>,
    has_ended: Condvar,
}

struct State<T, E> {
    outcome: Option<Result<T, E>>,
    /// Who waits for the outcome.
    requester: Option<Waker>,
    /// The task that carries the request out.
    worker: Option<Waker>,
    /// The requester is gone.
    is_abandoned: bool,
}

impl<T, E> Slot<T, E> {
    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // no code of others runs under it
    }
}

/// A request and the end that completes it.
pub(crate) fn request<T, E: From<Ended>>() -> (Request<T, E>, Completer<T, E>) {
    let state = State { outcome: None, requester: None, worker: None, is_abandoned: false };
    let slot = Arc::new(Slot { state: Mutex::new(state), has_ended: Condvar::new() });
    (Request { slot: Arc::clone(&slot) }, Completer { slot })
}

impl<T, E> Request<T, E> {
    /// Blocks this thread until the request ends. Not for the session's own thread, nor for a task of an async runtime,
    /// which awaits it.
    ///
    /// # Errors
    /// Those of the request.
    pub fn wait(self) -> Result<T, E> {
        let mut state = self.slot.lock();
        loop {
            match state.outcome.take() {
                Some(outcome) => return outcome,
                None => state = self.slot.has_ended.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The same for at most `time`; after that the request, still outstanding, comes back.
    ///
    /// # Errors
    /// The request itself, if it has not ended.
    pub fn wait_for(self, time: Duration) -> Result<Result<T, E>, Request<T, E>> {
        let until = Instant::now() + time;
        let mut state = self.slot.lock();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return Ok(outcome);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                return Err(self);
            }
            let waited = self.slot.has_ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<T, E> Future for Request<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let mut state = self.slot.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.requester = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T, E> Drop for Request<T, E> {
    fn drop(&mut self) {
        let mut state = self.slot.lock();
        state.is_abandoned = true;
        let worker = state.worker.take();
        drop(state);
        if let Some(worker) = worker {
            worker.wake();
        }
    }
}

/// Puts the outcome where the requester finds it. Dropped without one, the request fails with [`Ended`].
pub(crate) struct Completer<T, E: From<Ended>> {
    slot: Arc<Slot<T, E>>,
}

impl<T, E: From<Ended>> Completer<T, E> {
    pub(crate) fn complete(&self, outcome: Result<T, E>) {
        let mut state = self.slot.lock();
        if state.outcome.is_none() && !state.is_abandoned {
            state.outcome = Some(outcome);
        }
        state.worker = None;
        let requester = state.requester.take();
        drop(state);
        self.slot.has_ended.notify_all();
        if let Some(requester) = requester {
            requester.wake();
        }
    }

    /// Carries out `work`, unless the requester goes first.
    pub(crate) async fn carry_out(self, work: impl Future<Output = Result<T, E>>) {
        let mut work = std::pin::pin!(work);
        let ended = std::future::poll_fn(|cx| {
            {
                let mut state = self.slot.lock();
                if state.is_abandoned {
                    return Poll::Ready(None);
                }
                state.worker = Some(cx.waker().clone());
            }
            work.as_mut().poll(cx).map(Some)
        });
        if let Some(outcome) = ended.await {
            self.complete(outcome);
        }
    }
}

impl<T, E: From<Ended>> Drop for Completer<T, E> {
    fn drop(&mut self) {
        let is_open = {
            let state = self.slot.lock();
            state.outcome.is_none() && !state.is_abandoned
        };
        if is_open {
            self.complete(Err(E::from(Ended)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use reactor::{Alone, block_on};

    use super::*;

    #[test]
    fn a_thread_without_an_executor_waits_for_the_outcome() {
        let (request, completer) = request::<u32, Ended>();
        let other = thread::spawn(move || completer.complete(Ok(7)));
        assert_eq!(request.wait(), Ok(7));
        other.join().expect("no panic");
    }

    #[test]
    fn a_request_that_is_not_over_in_time_is_still_outstanding() {
        let (request, completer) = request::<u32, Ended>();
        let Err(request) = request.wait_for(Duration::from_millis(1)) else { panic!("it has not ended") };
        completer.complete(Ok(7));
        assert!(matches!(request.wait_for(Duration::ZERO), Ok(Ok(7))));
    }

    #[test]
    fn a_task_of_any_executor_is_woken_by_the_outcome() {
        let (request, completer) = request::<u32, Ended>();
        let other = thread::spawn(move || completer.complete(Ok(7)));
        // `reactor` stands for any executor here: it knows nothing of requests but the waker.
        assert_eq!(block_on(Alone::real_time(), request), Ok(7));
        other.join().expect("no panic");
    }

    #[test]
    fn a_request_whose_thread_ends_fails() {
        let (request, completer) = request::<u32, Ended>();
        drop(completer);
        assert_eq!(request.wait(), Err(Ended));
    }

    #[test]
    fn a_request_that_is_dropped_ends_its_work() {
        let (request, completer) = request::<u32, Ended>();
        let (work, (sender, begun)) = (Arc::new(()), std::sync::mpsc::channel());
        let held = Arc::clone(&work);
        let worker = thread::spawn(move || {
            block_on(
                Alone::real_time(),
                completer.carry_out(async move {
                    let _held = held;
                    let _ = sender.send(()); // the test may have failed before
                    std::future::pending().await
                }),
            );
        });
        assert_eq!(begun.recv(), Ok(()), "the work has begun");
        drop(request);
        worker.join().expect("the work has ended");
        assert!(Arc::into_inner(work).is_some(), "the work was dropped");
    }
}
