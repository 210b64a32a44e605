//! A timeout for what begins in a call without a clock.

use std::time::{Duration, Instant};

/// A timeout that starts with the first call that brings the time: a driver that reports a function as done
/// does not pass the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeout {
    limit: Duration,
    until: Option<Instant>,
}

impl Timeout {
    pub(super) fn new(limit: Duration) -> Timeout {
        Timeout { limit, until: None }
    }

    /// Whether it has expired. A limit beyond the range of the clock never expires.
    pub(super) fn has_expired(&mut self, now: Instant) -> bool {
        match self.until {
            Some(until) => now >= until,
            None => {
                self.until = now.checked_add(self.limit);
                false
            }
        }
    }

    /// When to check: immediately (at a time that has passed) if it has not started.
    pub(super) fn deadline(&self, passed: Instant) -> Instant {
        self.until.unwrap_or(passed)
    }
}
