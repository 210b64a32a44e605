//! Interfaces and helpers for layers that need tasks or time. This crate contains neither an executor nor a
//! clock; it defines a trait for each ([`Spawner`], [`Sleeper`]). The helpers handle changes that outlive their
//! requests ([`Operations`]), aborted requests ([`Aborted`]), and a limit on outstanding requests
//! ([`Permits`]).

use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::device::DeviceError;
use crate::lock::Lock;

/// Spawns tasks on the calling thread. The program implements this trait with the reactor's executor.
pub trait Spawner: Send + Sync {
    /// Runs `task` to completion, or drops it together with the thread's other tasks.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>);
}

/// A clock with a timer. The program implements this trait with the reactor's clock, tests with a virtual
/// clock.
pub trait Sleeper: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Instant;

    /// Resolves after `duration`.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Resolves at `end`, or immediately if `end` has passed.
    fn sleep_until(&self, end: Instant) -> Pin<Box<dyn Future<Output = ()>>> {
        self.sleep(end.saturating_duration_since(self.now()))
    }
}

/// Returns `start` plus `duration`, or a year after `start` if the sum exceeds the clock's range.
pub(crate) fn later(start: Instant, duration: Duration) -> Instant {
    start
        .checked_add(duration)
        .unwrap_or_else(|| start + Duration::from_secs(365 * 86_400))
}

/// Operations of a device that run to completion, even if their requests are dropped.
///
/// A write that reaches only one of two copies, or data but not parity, is worse than a write that never
/// started. So an operation that does not complete in its first poll runs as a separate task, and the request
/// waits for its result.
pub struct Operations {
    spawner: Arc<dyn Spawner>,
    state: Arc<Lock<Running>>,
}

#[derive(Default)]
struct Running {
    /// Number of operations started.
    begun: u64,
    numbers: BTreeSet<u64>,
    waiting: Vec<Waker>,
    /// Whether new operations are prevented.
    have_ended: bool,
}

struct Outcome<T> {
    result: Option<Result<T, DeviceError>>,
    waiting: Option<Waker>,
}

impl Operations {
    /// Creates an empty set of operations. `spawner` runs operations that do not complete in their first
    /// poll.
    pub fn new(spawner: Arc<dyn Spawner>) -> Operations {
        Operations {
            spawner,
            state: Arc::default(),
        }
    }

    /// Runs `operation` to completion, even if this future is dropped after its first poll.
    pub async fn run<T: 'static>(
        &self,
        operation: impl Future<Output = Result<T, DeviceError>> + 'static,
    ) -> Result<T, DeviceError> {
        let Some(running) = self.begin() else {
            return Err(DeviceError::NotReady);
        };
        let mut operation = Box::pin(operation);
        let first = poll_fn(|cx| Poll::Ready(operation.as_mut().poll(cx))).await;
        if let Poll::Ready(result) = first {
            drop(running);
            return result;
        }
        let outcome = Arc::new(Lock::new(Outcome {
            result: None,
            waiting: None,
        }));
        let completer = Completer {
            outcome: Arc::clone(&outcome),
            running: Some(running),
        };
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

    /// Starts an operation without waiting for its result.
    pub fn start(&self, operation: impl Future<Output = ()> + 'static) {
        let Some(running) = self.begin() else { return };
        let mut operation = Box::pin(operation);
        // This poll needs no waker: if the operation does not complete, a task polls it again with its own
        // waker.
        if operation
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
        {
            return drop(running);
        }
        self.spawner.spawn(Box::pin(async move {
            operation.await;
            drop(running);
        }));
    }

    /// Prevents new operations. Operations that have started run to completion.
    pub fn end(&self) {
        self.state.lock().have_ended = true;
    }

    fn begin(&self) -> Option<Started> {
        let mut state = self.state.lock();
        if state.have_ended {
            return None;
        }
        state.begun += 1;
        let number = state.begun;
        let is_new = state.numbers.insert(number);
        debug_assert!(is_new, "numbers only grow");
        Some(Started {
            state: Arc::clone(&self.state),
            number,
        })
    }

    /// Resolves once all operations started before this call have ended.
    pub async fn quiesced(&self) {
        let last = self.state.lock().begun;
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.numbers.first().is_none_or(|first| *first > last) {
                return Poll::Ready(());
            }
            if !state
                .waiting
                .iter()
                .any(|waker| waker.will_wake(cx.waker()))
            {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

struct Started {
    state: Arc<Lock<Running>>,
    number: u64,
}

impl Drop for Started {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let was_running = state.numbers.remove(&self.number);
        debug_assert!(was_running, "an operation ends once");
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
        // This has no effect after `complete`.
        if self.running.take().is_some() {
            self.end(Err(DeviceError::Cancelled));
        }
    }
}

/// Entries of aborted requests that the device may still execute, in the order of the aborts.
///
/// To remove entries, read [`Aborted::count`], wait for [`BlockDevice::quiesced`], and pass the count to
/// [`Aborted::settle`]. Requests that are aborted after the count was read keep their entries.
///
/// [`BlockDevice::quiesced`]: crate::BlockDevice::quiesced
pub struct Aborted<T> {
    count: u64,
    entries: Vec<(u64, T)>,
}

impl<T> Default for Aborted<T> {
    fn default() -> Aborted<T> {
        Aborted {
            count: 0,
            entries: Vec::new(),
        }
    }
}

impl<T> Aborted<T> {
    /// Adds the entry of an aborted request that may still be outstanding at the device.
    pub fn push(&mut self, entry: T) {
        self.entries.push((self.count, entry));
        self.count += 1;
    }

    /// Returns the number of aborted requests so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Removes and returns the entries of the first `count` aborted requests, which the device has completed
    /// or cancelled. The caller must drop the entries.
    #[must_use]
    pub fn settle(&mut self, count: u64) -> Vec<T> {
        debug_assert!(count <= self.count, "only requests that were aborted");
        self.entries
            .extract_if(.., |(number, _)| *number < count)
            .map(|(_, entry)| entry)
            .collect()
    }

    /// Entries of requests that may still be outstanding at the device.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| entry)
    }
}

/// A limit on concurrent requests, which receive permits in order of arrival.
pub struct Permits {
    state: Lock<Waiting>,
}

struct Waiting {
    free: usize,
    next: u64,
    queue: VecDeque<(u64, Option<Waker>)>,
}

impl Permits {
    /// Creates a limit of `count` concurrent requests, but at least one.
    pub fn new(count: usize) -> Permits {
        Permits {
            state: Lock::new(Waiting {
                free: count.max(1),
                next: 0,
                queue: VecDeque::new(),
            }),
        }
    }

    /// Waits for a permit.
    pub async fn take(self: &Arc<Self>) -> Permit {
        let ticket = {
            let mut state = self.state.lock();
            let ticket = state.next;
            state.next += 1;
            debug_assert!(
                state.queue.back().is_none_or(|(last, _)| *last < ticket),
                "tickets only grow"
            );
            state.queue.push_back((ticket, None));
            ticket
        };
        let mut permit = Permit {
            permits: Arc::clone(self),
            ticket,
            granted: false,
        };
        poll_fn(|cx| {
            let mut state = self.state.lock();
            let is_first = state
                .queue
                .front()
                .is_some_and(|(first, _)| *first == ticket);
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
        let first = if state.free > 0 {
            state.queue.front_mut().and_then(|(_, waker)| waker.take())
        } else {
            None
        };
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

    #[test]
    fn what_is_aborted_while_the_device_is_quiesced_stays() {
        let mut aborted = Aborted::default();
        aborted.push('a');
        let before = aborted.count();
        aborted.push('b');
        assert_eq!(aborted.settle(before), ['a']);
        assert_eq!(aborted.iter().collect::<Vec<_>>(), [&'b']);
        assert_eq!(aborted.settle(before), []);
    }

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
