//! The clock and timer of the layers that need one: this crate has none.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// A clock with a timer. The program implements it by the reactor's clock, tests by a virtual one.
pub trait Sleeper: Send + Sync {
    /// The current time.
    fn now(&self) -> Instant;

    /// Ends after `duration`.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Ends at `end`, or immediately if that has passed.
    fn sleep_until(&self, end: Instant) -> Pin<Box<dyn Future<Output = ()>>> {
        self.sleep(end.saturating_duration_since(self.now()))
    }
}

/// `duration` after `start`, or a year after it if the sum exceeds the clock's range.
pub(crate) fn later(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration).unwrap_or_else(|| start + Duration::from_secs(365 * 86_400))
}
