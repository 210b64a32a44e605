//! Time limit of a response, over a connection on which responses queue.
//!
//! If the limit counted from the start of the request, requests on a slow link would fail although the link
//! works: 16 reads of 1 MiB take 168 s at 100 kB/s. The limit therefore counts from the last progress.
//! Progress is data of the request or of an earlier one on the same connection, or the response to an earlier
//! one. Later requests do not count. Otherwise, a request that the server has lost would wait for as long as
//! the server responds to others.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Progress extends the wait to at most this many times the limit. Otherwise, a peer that sends a byte from
/// time to time could extend it forever.
pub const LIMITS_MAX: u32 = 10;

/// The work that a connection must complete before it responds to a request. Any change of this work is
/// progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Earlier outstanding requests.
    pub requests: usize,
    /// Bytes moved for the earlier requests and for the request itself. Only changes of this number are
    /// significant.
    pub bytes: u64,
}

/// Notifies a requester that its request is late, while the response is still outstanding.
#[derive(Clone, Default)]
pub struct Late(Rc<(Cell<bool>, Cell<Option<Waker>>)>);

impl Late {
    /// Marks the request as late.
    pub fn tell(&self) {
        let (is_late, waker) = &*self.0;
        is_late.set(true);
        waker.take().into_iter().for_each(Waker::wake);
    }

    /// Resolves when the request is late. Only one requester may wait.
    pub(crate) async fn told(&self) {
        let (is_late, waker) = &*self.0;
        poll_fn(|cx| {
            waker.set(Some(cx.waker().clone()));
            if is_late.get() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// The wait of a request before it is sent. The requests for which it waits also have a limit, which counts
/// from their last progress. Until that limit has passed, this request is not late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// When the request was submitted.
    pub(crate) asked: Instant,
    /// When the request becomes late.
    pub(crate) deadline: Instant,
    limit: Duration,
}

impl Wait {
    pub(crate) fn new(asked: Instant, limit: Duration) -> Wait {
        Wait {
            asked,
            deadline: asked + limit,
            limit,
        }
    }

    /// Waits for other requests to end. While `are_awaited` is true, the wait continues past the deadline. A
    /// change of `are_awaited` must wake `ended`. The end of the other requests counts as progress if
    /// `answers` has increased since the wait began. Returns `None` if they do not end in time.
    pub(crate) async fn behind(
        &mut self,
        ended: impl Future<Output = ()>,
        are_awaited: impl Fn() -> bool,
        answers: impl Fn() -> u64,
    ) -> Option<()> {
        let mut ended = pin!(ended);
        let latest = self.asked + self.limit.saturating_mul(LIMITS_MAX);
        debug_assert!(self.asked <= self.deadline && self.deadline <= latest);
        let (mut answers_before, mut until, mut is_past) = (None, self.deadline, false);
        loop {
            let ends = poll_fn(|cx| match ended.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Some(())),
                Poll::Pending if is_past && !are_awaited() => Poll::Ready(None),
                Poll::Pending => {
                    answers_before.get_or_insert_with(&answers);
                    Poll::Pending
                }
            });
            match reactor::timeout_at(until, ends).await {
                Ok(ended) => {
                    ended?;
                    break;
                }
                Err(_) if is_past => return None,
                Err(_) => (until, is_past) = (latest, true),
            }
        }
        if answers_before.is_some_and(|before| before != answers()) {
            let extended = (reactor::now() + self.limit).min(latest);
            debug_assert!(
                extended >= self.deadline,
                "progress does not shorten a wait"
            );
            self.deadline = extended;
        }
        Some(())
    }
}

/// The wait for one response.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    begun: Instant,
    limit: Duration,
    moved: Instant,
    ahead: Option<Ahead>,
}

impl Patience {
    /// Creates the wait of a request that was sent at the time `begun`. No progress since then is known.
    pub fn new(begun: Instant, limit: Duration) -> Patience {
        Patience {
            begun,
            limit,
            moved: begun,
            ahead: None,
        }
    }

    /// Records the work ahead of the request at this time.
    pub fn note(&mut self, now: Instant, ahead: Ahead) {
        debug_assert!(now >= self.moved, "progress is noted in order");
        let before = self.ahead.replace(ahead);
        if before.is_some_and(|before| before != ahead) {
            self.moved = now;
        }
    }

    /// Records that an earlier request has ended without a response. The next [`Patience::note`] then finds
    /// fewer requests, which does not count as progress.
    pub fn forget(&mut self) {
        self.ahead = None;
    }

    /// The end of the wait, if there is no further progress.
    pub fn until(&self) -> Instant {
        let latest = self.begun + self.limit.saturating_mul(LIMITS_MAX);
        (self.moved + self.limit).min(latest)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use super::*;

    /// Regression: the second wait began with a deadline that could not be extended. It looped forever, and
    /// occupied its core.
    #[test]
    fn a_second_wait_ends_with_the_last_extension_of_the_first() {
        let second = Duration::from_secs(1);
        reactor::block_on(reactor::Alone::virtual_time(), async {
            let (asked, answers) = (reactor::now(), Cell::new(0));
            let mut wait = Wait::new(asked, second);
            let first = async {
                reactor::sleep(second * 19 / 2).await;
                answers.set(1);
            };
            assert_eq!(
                wait.behind(first, || true, || answers.get()).await,
                Some(())
            );
            assert_eq!(wait.deadline, asked + second * 10);
            assert_eq!(
                wait.behind(pending(), || true, || answers.get()).await,
                None
            );
            assert_eq!(reactor::now(), asked + second * 10);
        });
    }

    #[test]
    fn a_wait_counts_from_the_last_progress_and_has_an_end() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut patience = Patience::new(begun, second * 30);
        let mut ahead = Ahead {
            requests: 5,
            bytes: 0,
        };
        patience.note(begun + second * 8, ahead);
        patience.note(begun + second * 20, ahead);
        assert_eq!(patience.until(), begun + second * 30, "nothing moves");
        ahead.bytes += 1;
        patience.note(begun + second * 21, ahead);
        assert_eq!(patience.until(), begun + second * 51);
        ahead.requests -= 1;
        patience.note(begun + second * 50, ahead);
        assert_eq!(patience.until(), begun + second * 80);
        for seconds in 51..400 {
            ahead.bytes += 1;
            patience.note(begun + second * seconds, ahead);
        }
        assert_eq!(patience.until(), begun + second * 300);
    }
}
