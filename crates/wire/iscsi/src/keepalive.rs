//! Is the peer there? A clock for each connection, the same in both halves (RFC 7143 sections 11.18 and 11.19).
//!
//! Anything that arrives is a sign of life. Only a connection that is silent is asked, and only one that stays
//! silent is given up: a peer that is busy sending has no need to answer pings.

use std::time::{Duration, Instant};

/// When to ask whether the peer is there, and when to believe that it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopPolicy {
    /// Silence after which a NOP is sent.
    pub interval: Duration,
    /// Further silence after which the connection is closed.
    pub timeout: Duration,
    /// Time after the login within which no connection is closed for its silence: boot firmware answers no NOP-In
    /// until the operating system has taken over.
    pub grace: Duration,
}

impl NopPolicy {
    /// A target's: an initiator that is silent for twice the interval is gone, as laptops are that sleep. After a login it
    /// has eight times the interval, two minutes at the usual 15 s, which is what boot firmware needs.
    pub const fn of_target(interval: Duration) -> NopPolicy {
        NopPolicy { interval, timeout: interval, grace: interval.saturating_mul(8) }
    }

    /// An initiator's: as open-iscsi has it, five seconds and five.
    pub const OF_INITIATOR: NopPolicy = NopPolicy {
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(5),
        grace: Duration::ZERO,
    };
}

/// What is known of a connection's life.
#[derive(Debug)]
pub(crate) struct Keepalive {
    since: Instant,
    last_received: Instant,
    /// When the peer was asked, if it was, since it was last heard.
    asked: Option<Instant>,
    is_closed: bool,
}

/// What a connection's clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// All is well.
    Nothing,
    /// Ask.
    Ping,
    /// Nobody is there. Said once.
    Close,
}

impl Keepalive {
    pub(crate) fn new(now: Instant) -> Keepalive {
        Keepalive { since: now, last_received: now, asked: None, is_closed: false }
    }

    /// Something has arrived.
    pub(crate) fn note_received(&mut self, now: Instant) {
        self.last_received = now;
        self.asked = None;
    }

    /// When it was last heard of.
    pub(crate) fn last_received(&self) -> Instant {
        self.last_received
    }

    /// What to do now.
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

    /// When there will be something to do. `None` is never, or further off than the clock goes.
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

    /// Its session, and the reservation that goes with it, would be kept from others for two minutes.
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
