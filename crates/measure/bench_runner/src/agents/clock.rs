//! An estimate of the clock of another machine.
//!
//! ```text
//!   here   ──sent────────────────heard──▶
//!               \               /
//!   there  ──────theirs────────────────▶      theirs is between sent and heard: in the middle, with an
//!                                             error of half of the round trip
//! ```
//!
//! Of several round trips the shortest is used: the delay of longer ones may be in one direction only. Both
//! clocks are monotonic ones, which differ by up to some 50 µs a second: they are compared anew before each
//! run.

use std::time::{Duration, Instant};

/// A round trip of a time query.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    pub(super) sent: Instant,
    /// Since the other clock's zero.
    pub(super) theirs: Duration,
    pub(super) heard: Instant,
}

/// The estimated offset of the other clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Our time when it was zero.
    zero: Instant,
    /// By which our time for one of its times may be wrong, in either direction.
    pub(super) error: Duration,
}

impl Clock {
    /// By the shortest of these trips. `None` without any, or if they tell a time that cannot be.
    pub(super) fn compared(trips: &[RoundTrip]) -> Option<Clock> {
        let best = trips.iter().min_by_key(|trip| trip.round())?;
        let error = best.round() / 2;
        let zero = (best.sent + error).checked_sub(best.theirs)?;
        Some(Clock { zero, error })
    }

    /// Its time at a moment of ours; zero if that was before its zero.
    pub(super) fn there(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.zero)
    }

    /// Our time when it was `at` there. `None` if no clock goes so far.
    pub(super) fn here(&self, at: Duration) -> Option<Instant> {
        self.zero.checked_add(at)
    }
}

impl RoundTrip {
    fn round(&self) -> Duration {
        self.heard.saturating_duration_since(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    #[test]
    fn a_time_that_cannot_be_is_not_believed() {
        let now = Instant::now();
        let lie = RoundTrip { sent: now, theirs: Duration::MAX, heard: now + us(10) };
        assert_eq!(Clock::compared(&[lie]), None);
        assert_eq!(Clock::compared(&[]), None);
    }

    proptest! {
        /// Whatever the ways take, the truth lies within the error that is admitted.
        #[test]
        fn the_error_is_not_larger_than_it_says(
            ways in prop::collection::vec((0u64..9000, 0u64..9000), 1..16)
        ) {
            let zero = Instant::now() + us(123_456_789);
            let trips = ways.iter().zip(1u64..).map(|(&(to, from), turn)| {
                let sent = zero + us(turn * 20_000);
                RoundTrip { sent, theirs: us(turn * 20_000 + to), heard: sent + us(to + from) }
            });
            let clock = Clock::compared(&trips.collect::<Vec<_>>()).expect("trips");
            let at = zero + us(1_000_000);
            prop_assert!(clock.there(at).abs_diff(us(1_000_000)) <= clock.error);
            let shortest = ways.iter().map(|(to, from)| us(to + from)).min().expect("trips");
            prop_assert_eq!(clock.error, shortest / 2);
            let back = clock.here(clock.there(at)).expect("a time");
            prop_assert_eq!(back, at);
        }
    }
}
