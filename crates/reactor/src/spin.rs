//! How long to look for events before going to sleep.
//!
//! Looking for 50 µs before sleeping is worth a factor of three in round trips where a reactor has a CPU to
//! itself, and costs up to two thirds where its peer needs that CPU (`reference/crates.md`, section 1). So the
//! spin is learnt from what waiting turns out to be like:
//!
//! - the event came within the limit: looking pays, look longer next time;
//! - it came much later, or there was none: looking does not pay, look half as long, soon not at all: an idle
//!   reactor uses no CPU;
//! - looking was in vain, yet the event came at once when the thread slept: whoever was to cause it waited for
//!   this very CPU. Then no looking for the next [`CROWDED_WAITS`] waits.

use std::time::Duration;

/// The learnt length of the spin. A pure value: the world that uses it measures and tells.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    limit: Duration,
    allowance: Duration,
    crowded: u32,
}

/// The first step up from not looking at all.
const FIRST: Duration = Duration::from_micros(10);
/// Shorter spins than this find nothing that a sleep of the same length would not.
const SHORTEST: Duration = Duration::from_micros(3);
/// Waits without looking after the CPU was found to be wanted by the peer: the price of one spin in vain, 50 µs,
/// is then spread over some milliseconds.
pub const CROWDED_WAITS: u32 = 256;

impl Spin {
    /// As a limit: looks until there is something, and never sleeps. For who has a CPU to give away.
    pub const ALWAYS: Duration = Duration::MAX;

    /// Never looks longer than `limit`; zero never looks.
    pub fn new(limit: Duration) -> Spin {
        Spin { limit, allowance: Duration::ZERO, crowded: 0 }
    }

    /// How long to look before sleeping this time.
    pub fn allowance(&self) -> Duration {
        if self.limit == Spin::ALWAYS {
            return Spin::ALWAYS;
        }
        if self.crowded > 0 { Duration::ZERO } else { self.allowance }
    }

    /// An event was found while looking.
    pub fn found(&mut self) {
        self.lengthen();
    }

    /// Looked for `looked` in vain, then slept for `slept` until an event came.
    pub fn slept(&mut self, looked: Duration, slept: Duration) {
        let soon = looked + slept <= self.limit;
        match (looked.is_zero(), soon) {
            (true, true) if self.crowded > 0 => self.crowded -= 1,
            (true, true) => self.lengthen(),
            (false, _) if looked >= self.limit / 2 && slept <= self.limit / 2 => {
                self.crowded = CROWDED_WAITS;
                self.allowance = Duration::ZERO;
            }
            (false, true) => self.lengthen(),
            (_, false) => self.idle(),
        }
    }

    /// Slept without an event: there is no work.
    pub fn idle(&mut self) {
        self.crowded = self.crowded.saturating_sub(1);
        self.allowance /= 2;
        if self.allowance < SHORTEST {
            self.allowance = Duration::ZERO;
        }
    }

    fn lengthen(&mut self) {
        self.allowance = (self.allowance * 2).max(FIRST).min(self.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);
    const US: Duration = Duration::from_micros(1);

    fn busy() -> Spin {
        let mut spin = Spin::new(LIMIT);
        for _ in 0..8 {
            spin.slept(Duration::ZERO, 20 * US);
        }
        spin
    }

    #[test]
    fn a_fresh_reactor_does_not_look() {
        assert_eq!(Spin::new(LIMIT).allowance(), Duration::ZERO);
    }

    #[test]
    fn events_that_come_soon_lengthen_the_spin_up_to_its_limit() {
        assert_eq!(busy().allowance(), LIMIT);
    }

    #[test]
    fn a_limit_of_zero_never_looks() {
        let mut spin = Spin::new(Duration::ZERO);
        spin.slept(Duration::ZERO, Duration::ZERO);
        spin.found();
        assert_eq!(spin.allowance(), Duration::ZERO);
    }

    #[test]
    fn whoever_always_looks_learns_nothing() {
        let mut spin = Spin::new(Spin::ALWAYS);
        spin.idle();
        spin.slept(1000 * US, 5 * US);
        assert_eq!(spin.allowance(), Spin::ALWAYS);
    }

    #[test]
    fn an_idle_reactor_stops_looking_after_a_few_waits() {
        let mut spin = busy();
        for _ in 0..5 {
            spin.idle();
        }
        assert_eq!(spin.allowance(), Duration::ZERO);
    }

    #[test]
    fn rare_events_do_not_lengthen_the_spin() {
        let mut spin = busy();
        for _ in 0..5 {
            let looked = spin.allowance();
            spin.slept(looked, 1000 * US);
        }
        assert_eq!(spin.allowance(), Duration::ZERO);
    }

    #[test]
    fn a_peer_that_waited_for_this_cpu_gets_it() {
        let mut spin = busy();
        spin.slept(LIMIT, 5 * US);
        for _ in 0..CROWDED_WAITS {
            assert_eq!(spin.allowance(), Duration::ZERO);
            spin.slept(Duration::ZERO, 5 * US);
        }
        spin.slept(Duration::ZERO, 5 * US);
        assert!(spin.allowance() > Duration::ZERO, "and later it is tried again");
    }
}
