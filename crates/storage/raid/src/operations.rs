//! Operations that run to their end, even if their requester is dropped.
//!
//! A write that reached one copy and not the other, or data and not parity, is worse than one that never began. So
//! a change runs as a task of its own unless it ends in its first poll, and its requester waits for the result.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::{DeviceError, Lock, Spawner};

/// The operations of a set.
pub(crate) struct Operations {
    spawner: Arc<dyn Spawner>,
    state: Arc<Lock<Running>>,
}

#[derive(Default)]
struct Running {
    next: u64,
    running: BTreeSet<u64>,
    waiting: Vec<Waker>,
    /// No operation begins any more.
    have_ended: bool,
}

struct Outcome<T> {
    result: Option<Result<T, DeviceError>>,
    waiting: Option<Waker>,
}

impl Operations {
    pub(crate) fn new(spawner: Arc<dyn Spawner>) -> Operations {
        Operations { spawner, state: Arc::default() }
    }

    /// Carries out `operation`, to its end even if this future is dropped after its first poll.
    pub(crate) async fn run<T: 'static>(
        &self,
        operation: impl Future<Output = Result<T, DeviceError>> + 'static,
    ) -> Result<T, DeviceError> {
        let Some(running) = self.begin() else { return Err(DeviceError::NotReady) };
        let mut operation = Box::pin(operation);
        let first = poll_fn(|cx| Poll::Ready(operation.as_mut().poll(cx))).await;
        if let Poll::Ready(result) = first {
            drop(running);
            return result;
        }
        let outcome = Arc::new(Lock::new(Outcome { result: None, waiting: None }));
        let completer = Completer { outcome: Arc::clone(&outcome), running: Some(running) };
        self.spawner.spawn(Box::pin(async move {
            let result = operation.await;
            completer.complete(result);
        }));
        poll_fn(|cx| {
            let mut outcome = outcome.lock();
            match outcome.result.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    outcome.waiting = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Begins an operation whose result nobody waits for.
    pub(crate) fn start(&self, operation: impl Future<Output = ()> + 'static) {
        let Some(running) = self.begin() else { return };
        let mut operation = Box::pin(operation);
        // A task polls it again, and is woken then; nothing is lost by this poll's waker.
        if operation.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return drop(running);
        }
        self.spawner.spawn(Box::pin(async move {
            operation.await;
            drop(running);
        }));
    }

    /// No operation begins from now on; those that have begun are seen to their end.
    pub(crate) fn end(&self) {
        self.state.lock().have_ended = true;
    }

    fn begin(&self) -> Option<Started> {
        let mut state = self.state.lock();
        if state.have_ended {
            return None;
        }
        state.next += 1;
        let number = state.next;
        state.running.insert(number);
        Some(Started { state: Arc::clone(&self.state), number })
    }

    /// Ends once all operations that have begun before this call have ended.
    pub(crate) async fn quiesced(&self) {
        let last = self.state.lock().next;
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.running.first().is_none_or(|first| *first > last) {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

/// An operation under way.
struct Started {
    state: Arc<Lock<Running>>,
    number: u64,
}

impl Drop for Started {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.running.remove(&self.number);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

struct Completer<T> {
    outcome: Arc<Lock<Outcome<T>>>,
    running: Option<Started>,
}

impl<T> Completer<T> {
    fn complete(mut self, result: Result<T, DeviceError>) {
        drop(self.running.take());
        self.end(result);
    }

    fn end(&self, result: Result<T, DeviceError>) {
        let mut outcome = self.outcome.lock();
        outcome.result.get_or_insert(result);
        let waiting = outcome.waiting.take();
        drop(outcome);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        // Without effect after `complete`.
        if self.running.take().is_some() {
            self.end(Err(DeviceError::Cancelled));
        }
    }
}

/// Carries out requests beside each other; their results in their order.
pub(crate) async fn all<'a, T>(requests: impl IntoIterator<Item = impl Future<Output = T> + 'a>) -> Vec<T> {
    let mut pending: Vec<Pin<Box<dyn Future<Output = T> + 'a>>> = Vec::new();
    for request in requests {
        pending.push(Box::pin(request));
    }
    let mut results: Vec<Option<T>> = pending.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut is_done = true;
        for (request, result) in pending.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            match request.as_mut().poll(cx) {
                Poll::Ready(output) => *result = Some(output),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// The first error of several requests.
pub(crate) fn first_error<T>(results: Vec<Result<T, DeviceError>>) -> Result<Vec<T>, DeviceError> {
    results.into_iter().collect()
}

/// Carries out requests beside each other, at most so many; the first error after all have ended.
pub(crate) async fn windows<'a, I>(requests: I, at_once: usize) -> Result<(), DeviceError>
where
    I: IntoIterator,
    I::Item: Future<Output = Result<(), DeviceError>> + 'a,
{
    let mut requests = requests.into_iter();
    loop {
        let window: Vec<I::Item> = requests.by_ref().take(at_once).collect();
        if window.is_empty() {
            return Ok(());
        }
        if let [_] = window[..] {
            for only in window {
                pin!(only).await?;
            }
            continue;
        }
        first_error(all(window).await)?;
    }
}
