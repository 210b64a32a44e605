//! Timers of tasks: sleeping, and timeouts.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use derive_more::{Display, Error};

use crate::executor::{self, Core};
use crate::timers::Key;

/// Returns a future that resolves after `duration`, at the next turn of the world.
pub fn sleep(duration: Duration) -> Sleep {
    // If the deadline is beyond the range of the clock, wait for a year.
    let now = executor::now();
    sleep_until(
        now.checked_add(duration)
            .unwrap_or_else(|| now + Duration::from_secs(365 * 86_400)),
    )
}

/// Returns a future that resolves at `deadline`, or immediately if the deadline has passed.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        timer: None,
    }
}

/// A wait for a point in time. It sets a timer only when it is polled, and cancels the timer when it is
/// dropped.
pub struct Sleep {
    deadline: Instant,
    timer: Option<(Rc<Core>, Key)>,
}

impl Sleep {
    /// The time at which the wait ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let pending = match &self.timer {
            Some((core, key)) => core.timers.borrow_mut().renew(*key, cx.waker()),
            None => {
                let core = executor::current();
                let pending = core.now() < self.deadline;
                if pending {
                    let key = core
                        .timers
                        .borrow_mut()
                        .set(self.deadline, cx.waker().clone());
                    self.timer = Some((core, key));
                }
                pending
            }
        };
        if pending {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((core, key)) = self.timer.take() {
            let waker = core.timers.borrow_mut().cancel(key);
            drop(waker); // after the borrow: the waker may hold the last reference to its task
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .finish()
    }
}

/// The error of [`timeout`]: the time limit expired before the future was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
#[display("the time given was over first")]
pub struct Elapsed;

/// Waits for `future`, but not longer than `duration`; then the future is dropped. A future that is ready at
/// its first poll costs neither a timer nor a clock reading. If the future is ready in the same poll in which
/// the time expires, its output is returned.
pub fn timeout<F: Future>(
    duration: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    limited(future, move || sleep(duration))
}

/// Like [`timeout`], but with a point in time as the limit.
pub fn timeout_at<F: Future>(
    deadline: Instant,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    limited(future, move || sleep_until(deadline))
}

async fn limited<F: Future>(
    future: F,
    limit: impl FnOnce() -> Sleep,
) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    let (mut limit, mut sleep) = (Some(limit), None);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        if let Some(limit) = limit.take() {
            sleep = Some(limit());
        }
        match &mut sleep {
            Some(sleep) => Pin::new(sleep).poll(cx).map(|()| Err(Elapsed)),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Alone, block_on, now, spawn};
    use std::cell::RefCell;

    #[test]
    fn sleeps_end_in_the_order_of_their_deadlines() {
        let order = Rc::new(RefCell::new(Vec::new()));
        block_on(Alone::virtual_time(), async {
            let tasks: Vec<_> = [30u64, 10, 20]
                .map(|ms| {
                    let order = Rc::clone(&order);
                    spawn(async move {
                        sleep(Duration::from_millis(ms)).await;
                        order.borrow_mut().push(ms);
                    })
                })
                .into();
            for task in tasks {
                task.await;
            }
        });
        assert_eq!(*order.borrow(), [10, 20, 30]);
    }

    #[test]
    fn half_a_minute_takes_no_time_where_time_is_virtual() {
        block_on(Alone::virtual_time(), async {
            let start = now();
            sleep(Duration::from_secs(30)).await;
            assert_eq!(now() - start, Duration::from_secs(30));
        });
    }

    #[test]
    fn a_timeout_drops_what_it_waited_for() {
        block_on(Alone::virtual_time(), async {
            let held = Rc::new(());
            let inside = Rc::clone(&held);
            let hung = async move {
                let _inside = inside;
                std::future::pending::<()>().await
            };
            assert_eq!(timeout(Duration::from_secs(5), hung).await, Err(Elapsed));
            assert_eq!(Rc::strong_count(&held), 1);
        });
    }

    #[test]
    fn a_timeout_that_is_not_needed_leaves_no_timer() {
        block_on(Alone::virtual_time(), async {
            assert_eq!(timeout(Duration::ZERO, async { 7 }).await, Ok(7));
            assert_eq!(
                timeout(Duration::from_secs(9), sleep(Duration::from_secs(1))).await,
                Ok(())
            );
            assert!(executor::current().timers.borrow().next().is_none());
        });
    }

    #[test]
    fn the_longest_sleep_does_not_overflow() {
        block_on(Alone::virtual_time(), async {
            assert_eq!(
                timeout(Duration::from_secs(1), sleep(Duration::MAX)).await,
                Err(Elapsed)
            );
        });
    }
}
