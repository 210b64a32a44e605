//! Mutual exclusion of requests for the same blocks, with block granularity.
//!
//! [`block::RangeLocks`] counts requests per zone of 1 MiB, so that plain writes, which share zones, need no
//! queue. In this crate, every write excludes others from its blocks, and writes to different blocks of a
//! zone must not wait for each other. So the list of outstanding requests is searched instead. The list is
//! short, because requests that need more than their own data are limited ([`block::Permits`]).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::{DeviceError, Extent, Lock};

/// Locks on extents, granted in order of arrival: a lock is granted once it does not conflict with any
/// earlier lock, whether that lock is waiting or held.
#[derive(Default)]
pub(crate) struct ExtentLocks {
    state: Lock<Entries>,
}

#[derive(Default)]
struct Entries {
    next: u64,
    /// Waiting and held locks, in the order of arrival.
    entries: Vec<Entry>,
}

struct Entry {
    ticket: u64,
    extent: Extent,
    shared: bool,
    waker: Option<Waker>,
}

impl ExtentLocks {
    /// Locks `extent` exclusively. Waits until no other request holds one of its blocks.
    pub(crate) async fn exclude(self: &Arc<Self>, extent: Extent) -> Locked {
        self.take(extent, false).await
    }

    /// Locks `extent` in shared mode. Waits until no other request has locked one of its blocks exclusively.
    pub(crate) async fn share(self: &Arc<Self>, extent: Extent) -> Locked {
        self.take(extent, true).await
    }

    async fn take(self: &Arc<Self>, extent: Extent, shared: bool) -> Locked {
        let ticket = {
            let mut state = self.state.lock();
            let ticket = state.next;
            state.next += 1;
            debug_assert!(
                state.entries.last().is_none_or(|last| last.ticket < ticket),
                "tickets only grow"
            );
            state.entries.push(Entry {
                ticket,
                extent,
                shared,
                waker: None,
            });
            ticket
        };
        // From here on, dropping this future removes the entry.
        let locked = Locked {
            locks: Arc::clone(self),
            ticket,
        };
        poll_fn(|cx| self.poll(ticket, cx)).await;
        locked
    }

    fn poll(&self, ticket: u64, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let Some(at) = state
            .entries
            .iter()
            .position(|entry| entry.ticket == ticket)
        else {
            return Poll::Ready(());
        };
        let (earlier, rest) = state.entries.split_at_mut(at);
        let mine = &mut rest[0];
        if earlier.iter().any(|other| other.conflicts(mine)) {
            mine.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn release(&self, ticket: u64) {
        let mut state = self.state.lock();
        let at = state
            .entries
            .iter()
            .position(|entry| entry.ticket == ticket);
        debug_assert!(at.is_some(), "a lock is released once");
        let Some(at) = at else { return };
        let gone = state.entries.remove(at);
        let waiting = state
            .entries
            .iter_mut()
            .skip(at)
            .filter(|other| other.conflicts(&gone));
        let wakers: Vec<Waker> = waiting.filter_map(|other| other.waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        !(self.shared && other.shared) && self.extent.overlaps(other.extent)
    }
}

/// A lock on an extent, which is released when this value is dropped.
pub(crate) struct Locked {
    locks: Arc<ExtentLocks>,
    ticket: u64,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.locks.release(self.ticket);
    }
}

/// Runs requests concurrently. Returns their results in the order of the requests.
pub(crate) async fn all<'a, T>(
    requests: impl IntoIterator<Item = impl Future<Output = T> + 'a>,
) -> Vec<T> {
    let mut pending: Vec<Pin<Box<dyn Future<Output = T> + 'a>>> = Vec::new();
    for request in requests {
        pending.push(Box::pin(request));
    }
    let mut results: Vec<Option<T>> = pending.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut is_done = true;
        for (request, result) in pending
            .iter_mut()
            .zip(&mut results)
            .filter(|(_, result)| result.is_none())
        {
            match request.as_mut().poll(cx) {
                Poll::Ready(output) => *result = Some(output),
                Poll::Pending => is_done = false,
            }
        }
        if is_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// Like [`all`], but if requests fail, returns the first error after all requests have completed.
pub(crate) async fn try_all<'a, T>(
    requests: impl IntoIterator<Item = impl Future<Output = Result<T, DeviceError>> + 'a>,
) -> Result<Vec<T>, DeviceError> {
    all(requests).await.into_iter().collect()
}

/// Runs all requests, up to `at_once` of them concurrently. If requests fail, returns the first error after
/// all started requests have completed.
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
        debug_assert!(window.len() <= at_once);
        if let [_] = window[..] {
            for only in window {
                pin!(only).await?;
            }
            continue;
        }
        try_all(window).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn only_overlapping_requests_wait_and_in_their_order() {
        let locks = Arc::new(ExtentLocks::default());
        let first = poll(pin!(locks.exclude(Extent::new(0, 8)))).expect("free");
        let neighbour = poll(pin!(locks.exclude(Extent::new(8, 8)))).expect("free");
        let (mut second, mut third) = (
            pin!(locks.share(Extent::new(4, 1))),
            pin!(locks.exclude(Extent::new(0, 8))),
        );
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        drop(first);
        assert!(poll(third.as_mut()).is_none());
        let shared = poll(second.as_mut()).expect("its turn");
        drop((shared, neighbour));
        assert!(poll(third.as_mut()).is_some());
    }

    #[test]
    fn those_who_share_do_not_wait_and_who_is_dropped_keeps_nobody() {
        let locks = Arc::new(ExtentLocks::default());
        let _one = poll(pin!(locks.share(Extent::new(0, 8)))).expect("free");
        {
            let mut waiting = pin!(locks.exclude(Extent::new(0, 8)));
            assert!(poll(waiting.as_mut()).is_none());
            assert!(poll(pin!(locks.share(Extent::new(0, 8)))).is_none());
        }
        assert!(poll(pin!(locks.share(Extent::new(0, 8)))).is_some());
    }
}
