//! A clock to read and to wait on, handed to layers that need time to pass: this crate knows none.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Lets time pass. The program's implementation is the reactor's clock, that of tests a virtual one.
pub trait Sleeper: Send + Sync {
    /// What the clock shows.
    fn now(&self) -> Instant;

    /// Ends after `duration`.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Ends at `end`, or at once if that has passed.
    fn sleep_until(&self, end: Instant) -> Pin<Box<dyn Future<Output = ()>>> {
        self.sleep(end.saturating_duration_since(self.now()))
    }
}

/// `duration` after `start`. Beyond what a clock can count is for ever: a year, of which nobody sees the end.
pub(crate) fn later(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration).unwrap_or_else(|| start + Duration::from_secs(365 * 86_400))
}
