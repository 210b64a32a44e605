//! How far something is that takes long, how fast, and for how long yet.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::scrub::Scrub;

/// How far something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is done, in stripes.
    pub done: u64,
    /// Of so many.
    pub total: u64,
    /// In bytes of each member a second, over the last ten seconds or so; 0 until it is known.
    pub bytes_per_s: u64,
    /// At that rate.
    pub seconds_left: Option<u64>,
}

impl Progress {
    /// Of 100.
    pub fn percent(&self) -> u64 {
        100 * self.done / self.total.max(1)
    }
}

/// A rate is that of the time since the sample before the last one.
const SAMPLE: Duration = Duration::from_secs(5);

/// Measures how fast something is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    earlier: (Instant, u64),
    later: (Instant, u64),
    now: (Instant, u64),
    total: u64,
    stripe_bytes: u64,
}

impl Pace {
    /// `stripe_bytes`: of a member.
    pub(super) fn new(now: Instant, done: u64, total: u64, stripe_bytes: u64) -> Pace {
        let start = (now, done);
        Pace { earlier: start, later: start, now: start, total, stripe_bytes }
    }

    pub(super) fn done(&mut self, now: Instant, done: u64) {
        self.now = (now, done);
        if now.saturating_duration_since(self.later.0) >= SAMPLE {
            (self.earlier, self.later) = (self.later, self.now);
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let (done, total) = (self.now.1, self.total);
        let seconds = self.now.0.saturating_duration_since(self.earlier.0).as_secs_f64();
        let moved = done.saturating_sub(self.earlier.1);
        let rate = if seconds > 0.0 { moved as f64 / seconds } else { 0.0 };
        let left = (rate > 0.0).then(|| (total.saturating_sub(done) as f64 / rate).ceil() as u64);
        Progress { done, total, bytes_per_s: (rate * self.stripe_bytes as f64) as u64, seconds_left: left }
    }
}

/// What a set does for itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Working {
    /// The member that is rebuilt; `None` for what is synchronised or zeroed.
    pub(super) member: Option<usize>,
    pub(super) pace: Pace,
}

impl Working {
    pub(super) fn progress(&self) -> Progress {
        self.pace.progress()
    }
}

/// A scrub beside users.
#[derive(Clone, Debug)]
pub(super) struct Scrubbing {
    pub(super) repairs: bool,
    pub(super) found: Scrub,
    pub(super) pace: Pace,
    pub(super) has_ended: bool,
}

/// A scrub of a set in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Whether it writes what does not fit anew.
    pub repairs: bool,
    /// Whether all has been looked at.
    pub has_ended: bool,
    /// How far it is.
    pub progress: Progress,
    /// What it has found.
    pub found: Scrub,
}

impl Scrubbing {
    pub(super) fn status(&self) -> ScrubStatus {
        let Scrubbing { repairs, found, pace, has_ended } = self;
        ScrubStatus {
            repairs: *repairs,
            has_ended: *has_ended,
            progress: pace.progress(),
            found: found.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_seconds() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = Pace::new(start, 100, 1000, 1 << 20);
        assert_eq!(pace.progress(), Progress { done: 100, total: 1000, bytes_per_s: 0, seconds_left: None });
        (1..=10).for_each(|second| pace.done(at(second), 100 + 10 * second));
        let Progress { bytes_per_s, seconds_left, .. } = pace.progress();
        assert_eq!((bytes_per_s, seconds_left), (10 << 20, Some(80)));
        // It becomes slower, and what was fast is forgotten.
        (11..=30).for_each(|second| pace.done(at(second), 200 + (second - 10)));
        assert_eq!(pace.progress().bytes_per_s, 1 << 20);
    }
}
