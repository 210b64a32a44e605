//! How much a path carries: round trips (Jacobson and Karels, as RFC 6298 has it) and a window by additive increase
//! and multiplicative decrease (RFC 5681), in frames.

use std::time::Duration;

use crate::ack::ACK_DELAY;

/// Before the first round trip is known (OpenAoE's driver begins with the same).
const RTO_INITIAL: Duration = Duration::from_millis(250);
/// A machine that is busy answers some milliseconds late: sending again earlier costs more than it gains.
const RTO_MIN: Duration = Duration::from_millis(5);
const RTO_MAX: Duration = Duration::from_secs(2);

/// Frames under way at the beginning (RFC 6928).
const WINDOW_INITIAL: u32 = 10;
const WINDOW_MIN: u32 = 2;
/// An acknowledgement tells of so many frames.
pub(crate) const WINDOW_MAX: u32 = crate::ack::ACK_SPAN as u32;

/// Round trips of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrips {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
}

impl RoundTrips {
    /// A measurement. Every frame has a number of its own, so it is never that of another transmission.
    pub(crate) fn sample(&mut self, trip: Duration, ack_delay: Duration) {
        let trip = trip.saturating_sub(ack_delay.min(ACK_DELAY)).max(Duration::from_micros(1));
        self.latest = trip;
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(trip), trip / 2),
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(trip)) / 4;
                self.smoothed = Some((smoothed * 7 + trip) / 8);
            }
        }
    }

    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// How long an acknowledgement is waited for.
    pub(crate) fn timeout(&self) -> Duration {
        self.smoothed.map_or(RTO_INITIAL, |smoothed| {
            (smoothed + (self.variation * 4).max(ACK_DELAY) + ACK_DELAY).clamp(RTO_MIN, RTO_MAX)
        })
    }

    /// The same after so many times without an answer.
    pub(crate) fn backed_off(&self, times: u32) -> Duration {
        (self.timeout() * (1 << times.min(10))).min(RTO_MAX)
    }

    /// A frame is lost when one that was sent so much later has arrived (RFC 9002 section 6.1.2).
    pub(crate) fn reordering(&self) -> Duration {
        let longest = self.smoothed.unwrap_or(RTO_INITIAL).max(self.latest);
        (longest * 9 / 8).max(Duration::from_millis(1))
    }
}

/// The window of a path.
#[derive(Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    /// Frames acknowledged since the window grew last, in congestion avoidance.
    acknowledged: u32,
    /// Losses of frames below this number belong to a congestion that has been answered.
    answered_below: u64,
    /// Window and threshold before the last decrease.
    before: Option<(u32, u32)>,
}

impl Congestion {
    pub(crate) fn new() -> Congestion {
        Congestion {
            window: WINDOW_INITIAL,
            threshold: WINDOW_MAX,
            acknowledged: 0,
            answered_below: 0,
            before: None,
        }
    }

    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// Frames were acknowledged while so many were under way.
    pub(crate) fn on_ack(&mut self, frames: u32, in_flight: u32) {
        // A window that is not used says nothing of the path.
        if in_flight * 2 < self.window {
            return;
        }
        if self.window < self.threshold {
            self.window = (self.window + frames).min(self.threshold);
        } else {
            self.acknowledged += frames;
            while self.acknowledged >= self.window {
                self.acknowledged -= self.window;
                self.window = (self.window + 1).min(WINDOW_MAX);
            }
        }
    }

    /// A frame was lost; `next` is the number of the next one. A decrease is made once a round trip.
    pub(crate) fn on_loss(&mut self, number: u64, next: u64) {
        if number < self.answered_below {
            return;
        }
        self.before = Some((self.window, self.threshold));
        self.threshold = (self.window / 2).max(WINDOW_MIN);
        (self.window, self.acknowledged, self.answered_below) = (self.threshold, 0, next);
    }

    /// Nothing is acknowledged any more.
    pub(crate) fn collapse(&mut self, next: u64) {
        self.threshold = (self.window / 2).max(WINDOW_MIN);
        (self.window, self.acknowledged, self.answered_below, self.before) = (WINDOW_MIN, 0, next, None);
    }

    /// What counted as lost was late: the last decrease is taken back.
    pub(crate) fn undo(&mut self) {
        if let Some((window, threshold)) = self.before.take() {
            (self.window, self.threshold) = (self.window.max(window), self.threshold.max(threshold));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_by_one_a_round_trip_and_is_halved_once_a_round_trip() {
        let mut congestion = Congestion::new();
        congestion.on_ack(10, 10);
        assert_eq!(congestion.window(), 20, "slow start doubles");
        congestion.on_loss(3, 30);
        congestion.on_loss(29, 30);
        assert_eq!(congestion.window(), 10, "the second loss is of the same round trip");
        congestion.on_ack(10, 10);
        assert_eq!(congestion.window(), 11);
        congestion.on_ack(11, 2);
        assert_eq!(congestion.window(), 11, "the window was not used");
        congestion.undo();
        assert_eq!(congestion.window(), 20, "the frame was late, not lost");
        congestion.collapse(50);
        assert_eq!(congestion.window(), WINDOW_MIN);
    }

    #[test]
    fn a_timeout_follows_the_round_trips_and_doubles() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.timeout(), RTO_INITIAL);
        (0..100).for_each(|_| trips.sample(Duration::from_millis(40), Duration::ZERO));
        assert!(trips.timeout() < Duration::from_millis(50), "{:?}", trips.timeout());
        assert!(trips.backed_off(3) > Duration::from_millis(300));
        assert_eq!(trips.backed_off(60), RTO_MAX);
        trips.sample(Duration::from_micros(50), Duration::from_secs(9));
        assert!(trips.timeout() >= RTO_MIN, "an impossible delay of the peer changes little");
    }
}
