//! A time limit for what begins when nobody tells the time.

use std::time::{Duration, Instant};

/// How long something may still take. It runs from the first time that the clock speaks: a driver that reports a
/// function as done does not say when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeout {
    limit: Duration,
    until: Option<Instant>,
}

impl Timeout {
    pub(super) fn new(limit: Duration) -> Timeout {
        Timeout { limit, until: None }
    }

    /// Whether it is at an end. A limit further off than the clock goes never is.
    pub(super) fn has_expired(&mut self, now: Instant) -> bool {
        match self.until {
            Some(until) => now >= until,
            None => {
                self.until = now.checked_add(self.limit);
                false
            }
        }
    }

    /// When to look again: at once, that is at a time that has passed, if it does not run yet.
    pub(super) fn deadline(&self, passed: Instant) -> Instant {
        self.until.unwrap_or(passed)
    }
}
