//! Keepalive: the timers of a connection, used by both the target and the initiator (RFC 7143 sections 11.18
//! and 11.19).
//!
//! Any received data shows that the peer is alive. A connection is pinged only when it is idle, and closed
//! only if it remains silent: a peer that is busy sending need not answer pings.

use std::time::{Duration, Instant};

/// When to ping the peer, and when to consider it dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopPolicy {
    /// Silence after which a NOP is sent.
    pub interval: Duration,
    /// Further silence after which the connection is closed.
    pub timeout: Duration,
    /// Time after the login during which a silent connection is not closed: boot firmware does not answer
    /// NOP-In until the operating system has taken over.
    pub grace: Duration,
}

impl NopPolicy {
    /// A target's policy: an initiator that is silent for twice the interval, such as a sleeping laptop,
    /// counts as dead. The grace time after a login is eight times the interval, two minutes at the usual 15
    /// s, which boot firmware needs.
    pub const fn of_target(interval: Duration) -> NopPolicy {
        NopPolicy {
            interval,
            timeout: interval,
            grace: interval.saturating_mul(8),
        }
    }

    /// An initiator's policy, as in open-iscsi: five seconds for both interval and timeout.
    pub const OF_INITIATOR: NopPolicy = NopPolicy {
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(5),
        grace: Duration::ZERO,
    };
}

/// The keepalive state of a connection.
#[derive(Debug)]
pub(crate) struct Keepalive {
    since: Instant,
    last_received: Instant,
    /// Time of the ping that was sent after the last reception, if any.
    asked: Option<Instant>,
    is_closed: bool,
}

/// The action that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// No action.
    Nothing,
    /// Send a ping.
    Ping,
    /// Close the connection. Returned once.
    Close,
}

impl Keepalive {
    pub(crate) fn new(now: Instant) -> Keepalive {
        Keepalive {
            since: now,
            last_received: now,
            asked: None,
            is_closed: false,
        }
    }

    /// Notes that data has arrived.
    pub(crate) fn note_received(&mut self, now: Instant) {
        self.last_received = now;
        self.asked = None;
    }

    /// Time of the last reception.
    pub(crate) fn last_received(&self) -> Instant {
        self.last_received
    }

    /// Returns the action due now.
    pub(crate) fn due(&mut self, now: Instant, policy: &NopPolicy) -> Due {
        match self.deadline(policy) {
            Some(deadline) if now >= deadline && self.asked.is_some() => {
                self.is_closed = true;
                Due::Close
            }
            Some(deadline) if now >= deadline => {
                self.asked = Some(now);
                Due::Ping
            }
            Some(_) | None => Due::Nothing,
        }
    }

    /// Time of the next action. `None`: never, or beyond the range of the clock.
    pub(crate) fn deadline(&self, policy: &NopPolicy) -> Option<Instant> {
        match self.asked {
            _ if self.is_closed => None,
            Some(asked) => {
                let in_time = asked.checked_add(policy.timeout)?;
                Some(in_time.max(self.since.checked_add(policy.grace)?))
            }
            None => self.last_received.checked_add(policy.interval),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: NopPolicy = NopPolicy::of_target(Duration::from_secs(10));

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn silence_is_asked_about_and_then_given_up_once_the_grace_is_over() {
        let start = Instant::now();
        let mut life = Keepalive::new(start);
        assert_eq!(life.due(after(start, 9), &POLICY), Due::Nothing);
        assert_eq!(life.due(after(start, 10), &POLICY), Due::Ping);
        assert_eq!(life.due(after(start, 79), &POLICY), Due::Nothing);
        assert_eq!(life.due(after(start, 80), &POLICY), Due::Close);
        assert_eq!(life.due(after(start, 999), &POLICY), Due::Nothing);
    }

    /// Otherwise the session of a dead initiator, and its reservation, would exclude other initiators for two
    /// minutes.
    #[test]
    fn a_short_interval_shortens_the_grace_after_the_login() {
        let policy = NopPolicy::of_target(Duration::from_secs(1));
        let start = Instant::now();
        let mut life = Keepalive::new(start);
        assert_eq!(life.due(after(start, 1), &policy), Due::Ping);
        assert_eq!(life.due(after(start, 7), &policy), Due::Nothing);
        assert_eq!(life.due(after(start, 8), &policy), Due::Close);
    }

    #[test]
    fn any_sign_of_life_will_do() {
        let start = Instant::now();
        let mut life = Keepalive::new(start);
        for second in (0..10_000).step_by(15) {
            life.note_received(after(start, second));
            assert_ne!(life.due(after(start, second + 14), &POLICY), Due::Close);
        }
    }
}
