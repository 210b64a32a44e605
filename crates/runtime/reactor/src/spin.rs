//! How long to busy-poll for events before sleeping.
//!
//! Busy-polling for 50 µs before sleeping triples the number of round trips if a reactor has a CPU to itself.
//! It costs up to two thirds of them if its peer needs that CPU (measured on a VM with 2 cores). So the limit
//! adapts to the waits:
//!
//! - the event arrived within the limit: polling pays, so the limit grows;
//! - the event arrived much later or not at all: polling does not pay, so the limit is halved, down to zero:
//!   an idle reactor uses no CPU;
//! - polling was unsuccessful, but the event arrived as soon as the thread slept: its sender was waiting for
//!   this CPU. Then the next waits do not poll: a few at first, since a briefly paused virtual machine looks
//!   the same, and twice as many each time it happens again, up to 256.

use std::time::Duration;

/// The adaptive spin limit. A pure value: the world that uses it measures and reports.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    limit: Duration,
    allowance: Duration,
    /// Remaining waits without busy-polling.
    crowded: u32,
    /// Spins to skip after the next idle spin.
    crowded_next: u32,
}

/// The first limit above zero.
const FIRST: Duration = Duration::from_micros(10);
/// Shorter spins are no better than a sleep of the same length.
const SHORTEST: Duration = Duration::from_micros(3);
/// Waits without busy-polling after the peer was first found to need the CPU. Each costs a wake-up,
/// which is 40 to 50 µs on a virtual machine: a wrong guess costs as much as three spins.
const CROWDED_WAITS_FIRST: u32 = 4;
/// Maximum number of waits: the cost of one unsuccessful spin, 50 µs, is then spread over some milliseconds.
const CROWDED_WAITS_MAX: u32 = 256;

impl Spin {
    /// A fixed limit: polls until there is an event, and never sleeps. For a CPU without other work.
    pub const ALWAYS: Duration = Duration::MAX;

    /// Busy-polls for at most `limit`; zero disables it.
    pub fn new(limit: Duration) -> Spin {
        Spin { limit, allowance: Duration::ZERO, crowded: 0, crowded_next: CROWDED_WAITS_FIRST }
    }

    /// The busy-poll time before the next sleep.
    pub fn allowance(&self) -> Duration {
        if self.limit == Spin::ALWAYS {
            return Spin::ALWAYS;
        }
        if self.crowded > 0 { Duration::ZERO } else { self.allowance }
    }

    /// An event was found while busy-polling.
    pub fn found(&mut self) {
        self.crowded_next = CROWDED_WAITS_FIRST;
        self.lengthen();
    }

    /// Polled for `looked` without an event, then slept for `slept` until one arrived.
    pub fn slept(&mut self, looked: Duration, slept: Duration) {
        let soon = looked + slept <= self.limit;
        match (looked.is_zero(), soon) {
            (true, true) if self.crowded > 0 => self.crowded -= 1,
            (true, true) => self.lengthen(),
            (false, _) if looked >= self.limit / 2 && slept <= self.limit / 2 => {
                self.crowded = self.crowded_next;
                self.crowded_next = (self.crowded_next * 2).min(CROWDED_WAITS_MAX);
                self.allowance = Duration::ZERO;
            }
            (false, true) => self.lengthen(),
            (_, false) => self.idle(),
        }
    }

    /// Slept without an event: no work is outstanding.
    pub fn idle(&mut self) {
        self.crowded = self.crowded.saturating_sub(1);
        self.allowance /= 2;
        if self.allowance < SHORTEST {
            self.allowance = Duration::ZERO;
        }
    }

    fn lengthen(&mut self) {
        self.allowance = self.allowance.saturating_mul(2).max(FIRST).min(self.limit);
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
    fn who_always_looks_finds_for_as_long_as_it_likes() {
        let mut spin = Spin::new(Spin::ALWAYS);
        for _ in 0..200 {
            spin.found();
        }
        assert_eq!(spin.allowance(), Spin::ALWAYS);
    }

    #[test]
    fn a_peer_that_waited_for_this_cpu_gets_it() {
        let mut spin = busy();
        for _ in 0..10 {
            waits_without_looking(&mut spin);
        }
        assert_eq!(waits_without_looking(&mut spin), CROWDED_WAITS_MAX, "and later it is tried again");
    }

    #[test]
    fn a_pause_of_the_machine_is_no_peer() {
        let mut spin = busy();
        for _ in 0..10 {
            assert_eq!(waits_without_looking(&mut spin), CROWDED_WAITS_FIRST);
            spin.found();
        }
    }

    /// An idle spin up to the limit; counts the waits until the next attempt.
    fn waits_without_looking(spin: &mut Spin) -> u32 {
        while spin.allowance() < LIMIT / 2 {
            spin.slept(spin.allowance(), 5 * US);
        }
        spin.slept(spin.allowance(), 5 * US);
        let mut waits = 0;
        while spin.allowance().is_zero() && waits < 2 * CROWDED_WAITS_MAX {
            spin.slept(Duration::ZERO, 5 * US);
            waits += 1;
        }
        waits - 1 // the last one is the first that pays
    }
}
