//! Detects whether the cluster still accepts requests of this client, and wakes the waiters of requests that
//! it no longer accepts.
//!
//! Every result is checked when it arrives, including results of abandoned requests. If a result means that
//! this client may no longer write, the image is fenced permanently: a later write could overwrite data of
//! the client that has the lock now. The library lets some requests wait for a lock that it cannot get. So
//! setting the fence also ends the wait for all outstanding requests. These requests keep their memory.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The fence of one image.
#[derive(Debug, Default)]
pub(super) struct Fence {
    is_set: AtomicBool,
    /// Whether the image should have the exclusive lock.
    is_locked: bool,
    image: String,
    waiters: Mutex<Waiters>,
}

#[derive(Debug, Default)]
struct Waiters {
    entered: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Fence {
    pub(super) fn new(image: String, is_locked: bool) -> Arc<Fence> {
        Arc::new(Fence {
            image,
            is_locked,
            ..Fence::default()
        })
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Converts a result to an error. Sets the fence if the result means that this client may no longer
    /// write.
    pub(super) fn error(&self, result: c_int) -> io::Error {
        let errno = -result;
        let is_lost = errno == libc::ESHUTDOWN || (self.is_locked && errno == libc::EROFS);
        if !is_lost {
            return io::Error::from_raw_os_error(errno);
        }
        self.set(errno);
        shut_out()
    }

    /// Sets the fence, after which no more requests may be sent.
    pub(super) fn set(&self, errno: c_int) {
        if self.is_set.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::error!(
            image = self.image,
            errno,
            "the exclusive lock is lost, or the cluster has blocklisted this client; no more requests are \
             sent"
        );
        let wakers = std::mem::take(&mut self.waiters().wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Returns the result of `work`, or the fence's error as soon as the fence is set.
    pub(super) async fn unless_set<T>(
        &self,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let mut work = pin!(work);
        let mut entry = Entry {
            fence: self,
            number: None,
        };
        poll_fn(|cx| {
            // Register before checking, so that a fence set in between wakes this waiter.
            if let Poll::Ready(ended) = work.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            entry.wake(cx.waker());
            if self.is_set() {
                Poll::Ready(Err(shut_out()))
            } else {
                Poll::Pending
            }
        })
        .await
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiter's entry in the list. Dropping this removes the entry.
struct Entry<'a> {
    fence: &'a Fence,
    number: Option<u64>,
}

impl Entry<'_> {
    fn wake(&mut self, waker: &Waker) {
        let mut waiters = self.fence.waiters();
        let number = *self.number.get_or_insert_with(|| {
            waiters.entered += 1;
            waiters.entered
        });
        if !waiters
            .wakers
            .get(&number)
            .is_some_and(|known| known.will_wake(waker))
        {
            waiters.wakers.insert(number, waker.clone());
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.fence.waiters().wakers.remove(&number);
        }
    }
}

pub(super) fn shut_out() -> io::Error {
    io::Error::from_raw_os_error(libc::ESHUTDOWN)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_fence_ends_the_wait_of_what_is_under_way() {
        let fence = Fence::new("rbd/disk".to_owned(), true);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut waits = Box::pin(fence.unless_set(pending::<io::Result<()>>()));
        assert!(
            waits.as_mut().poll(&mut cx).is_pending() && waits.as_mut().poll(&mut cx).is_pending()
        );
        assert_eq!(fence.waiters().wakers.len(), 1);
        assert_eq!(fence.error(-libc::EIO).raw_os_error(), Some(libc::EIO));
        assert!(!fence.is_set() && woken.0.load(Ordering::Relaxed) == 0);
        // The result of an abandoned request.
        assert_eq!(
            fence.error(-libc::ESHUTDOWN).raw_os_error(),
            Some(libc::ESHUTDOWN)
        );
        assert!(fence.is_set() && woken.0.load(Ordering::Relaxed) == 1);
        let Poll::Ready(Err(error)) = waits.as_mut().poll(&mut cx) else {
            panic!("it waits")
        };
        assert_eq!(error.raw_os_error(), Some(libc::ESHUTDOWN));
    }

    #[test]
    fn one_that_ends_leaves_the_list_and_keeps_its_result() {
        let fence = Fence::new("rbd/disk".to_owned(), true);
        let mut cx = Context::from_waker(Waker::noop());
        let mut waits = Box::pin(fence.unless_set(pending::<io::Result<()>>()));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        drop(waits);
        assert!(fence.waiters().wakers.is_empty());
        fence.set(libc::ESHUTDOWN);
        let ended = Box::pin(fence.unless_set(async { Ok(7) }))
            .as_mut()
            .poll(&mut cx);
        assert!(
            matches!(ended, Poll::Ready(Ok(7))),
            "it was carried out before"
        );
    }

    #[test]
    fn read_only_is_a_lost_lock_of_who_had_one() {
        let reader = Fence::new("rbd/disk@monday".to_owned(), false);
        assert_eq!(reader.error(-libc::EROFS).raw_os_error(), Some(libc::EROFS));
        assert!(!reader.is_set());
        let writer = Fence::new("rbd/disk".to_owned(), true);
        assert_eq!(
            writer.error(-libc::EROFS).raw_os_error(),
            Some(libc::ESHUTDOWN)
        );
        assert!(writer.is_set());
    }
}
