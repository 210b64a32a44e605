//! Determines the time to busy-poll for events before sleeping.
//!
//! If a reactor has a CPU to itself, busy-polling for 50 µs before sleeping triples the number of round trips
//! per second. If its peer needs that CPU, busy-polling reduces the number by up to two thirds (measured on a
//! VM with 2 cores). So the limit adapts to the outcome of each wait:
//!
//! - the event arrived within the limit: polling pays, so the limit grows;
//! - the event arrived much later or not at all: polling does not pay, so the limit is halved, down to zero:
//!   an idle reactor uses no CPU;
//! - polling was unsuccessful, but the event arrived as soon as the thread slept: its sender was waiting for
//!   this CPU. The next waits then do not poll. The first time, these are only 4 waits, because a briefly
//!   paused virtual machine shows the same pattern; their number doubles with each repetition, up to 256.

use std::time::Duration;

/// The adaptive spin limit. It reads no clock: the world that uses it measures each wait and reports the
/// outcome.
#[derive(Clone, Copy, Debug)]
pub struct Spin {
    limit: Duration,
    allowance: Duration,
    /// Remaining waits without busy-polling.
    crowded: u32,
    /// Number of waits without busy-polling after the next unsuccessful poll that indicates contention for
    /// the CPU.
    crowded_next: u32,
}

/// The allowance with which polling starts again from zero.
const FIRST: Duration = Duration::from_micros(10);
/// A shorter allowance is rounded down to zero: such a short spin is no better than a sleep.
const SHORTEST: Duration = Duration::from_micros(3);
/// Waits without busy-polling after the peer was first found to need the CPU. Each costs a wake-up,
/// which is 40 to 50 µs on a virtual machine: a wrong guess costs as much as three spins.
const CROWDED_WAITS_FIRST: u32 = 4;
/// Maximum number of waits without busy-polling. The cost of one unsuccessful spin, 50 µs, is then spread
/// over several milliseconds.
const CROWDED_WAITS_MAX: u32 = 256;

impl Spin {
    /// A limit with which the thread polls until there is an event, and never sleeps. For a CPU without other
    /// work.
    pub const ALWAYS: Duration = Duration::MAX;

    /// Busy-polls for at most `limit`; zero disables it.
    pub fn new(limit: Duration) -> Spin {
        Spin {
            limit,
            allowance: Duration::ZERO,
            crowded: 0,
            crowded_next: CROWDED_WAITS_FIRST,
        }
    }

    /// The busy-poll time before the next sleep.
    pub fn allowance(&self) -> Duration {
        if self.limit == Spin::ALWAYS {
            return Spin::ALWAYS;
        }
        if self.crowded > 0 {
            Duration::ZERO
        } else {
            self.allowance
        }
    }

    /// Reports that busy-polling found an event.
    pub fn found(&mut self) {
        self.crowded_next = CROWDED_WAITS_FIRST;
        self.lengthen();
    }

    /// Reports that the thread polled for `looked` without an event, then slept for `slept` until one
    /// arrived.
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

    /// Reports that no event arrived within the limit: no work is outstanding.
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
        assert_eq!(
            waits_without_looking(&mut spin),
            CROWDED_WAITS_MAX,
            "and later it is tried again"
        );
    }

    #[test]
    fn a_pause_of_the_machine_is_no_peer() {
        let mut spin = busy();
        for _ in 0..10 {
            assert_eq!(waits_without_looking(&mut spin), CROWDED_WAITS_FIRST);
            spin.found();
        }
    }

    /// Makes one unsuccessful spin at the limit, and returns the number of waits before the next spin.
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
        waits - 1 // the last wait polls again
    }
}
