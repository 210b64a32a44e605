//! When a connection that was lost is tried again.

use std::time::Duration;

use block::Random;

/// Between two attempts at first, at most.
const FIRST: Duration = Duration::from_millis(50);
/// Between two attempts, at most: a server that is back is found within this time.
const LONGEST: Duration = Duration::from_secs(5);

/// Delays that double, each shortened at random, so that the clients of a restarted server do not come together.
#[derive(Clone, Debug)]
pub struct Backoff {
    longest: Duration,
    random: Random,
}

impl Backoff {
    /// With this random seed.
    pub fn new(seed: u64) -> Backoff {
        Backoff { longest: FIRST, random: Random::new(seed) }
    }

    /// The connection was made: the next loss begins anew.
    pub fn reset(&mut self) {
        self.longest = FIRST;
    }

    /// How long to wait before the next attempt: between half of the current limit and all of it.
    pub fn delay(&mut self) -> Duration {
        let longest = self.longest;
        self.longest = (longest * 2).min(LONGEST);
        let half = longest / 2;
        half + half.mul_f64(self.random.fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit_and_differ_between_clients() {
        let (mut one, mut other) = (Backoff::new(1), Backoff::new(99));
        let delays: Vec<Duration> = (0..20).map(|_| one.delay()).collect();
        assert!(delays[0] <= FIRST && delays[0] >= FIRST / 2);
        assert!(delays[19] <= LONGEST && delays[19] >= LONGEST / 2);
        assert!((0..20).any(|at| other.delay() != delays[at]));
        one.reset();
        assert!(one.delay() <= FIRST);
    }
}
