//! The open loop: when requests are meant to be made, whatever the device does.
//!
//! The times follow from rate and seed. They are gone through twice: once by the slots, which take one after the other as
//! they have room, and once by the clock, which tells how many are due. What is between the two waits for room, and is
//! known as a number: a device that has stopped for a day takes no memory here.

use crate::plan::Pace;
use block::Random;

/// The times of an open loop.
pub(super) struct Arrivals {
    /// The next one that nobody has taken.
    next: Times,
    /// The next one that is not yet due.
    coming: Times,
    taken: u64,
    due: u64,
    backlog_max: u64,
}

impl Arrivals {
    /// `None` if there is no rate to keep.
    pub(super) fn new(pace: Pace, seed: u64) -> Option<Arrivals> {
        let times = Times::of(pace, seed)?;
        Some(Arrivals { next: times.clone(), coming: times, taken: 0, due: 0, backlog_max: 0 })
    }

    /// The time of the next request, which is then the caller's.
    pub(super) fn take(&mut self) -> u64 {
        self.taken += 1;
        self.next.step()
    }

    /// What is due now, and waits for room. A request that was taken before it was due is not among it.
    pub(super) fn look(&mut self, now: u64) {
        while self.coming.at() <= now {
            self.coming.step();
            self.due += 1;
        }
        self.backlog_max = self.backlog_max.max(self.due.saturating_sub(self.taken));
    }

    pub(super) fn backlog_max(&self) -> u64 {
        self.backlog_max
    }
}

/// A row of times in nanoseconds.
#[derive(Clone)]
struct Times {
    number: f64,
    /// Of the next one. A day in nanoseconds takes 47 of the 53 bits.
    at: f64,
    mean: f64,
    /// Where distances come from that are not equal.
    random: Option<Random>,
}

impl Times {
    fn of(pace: Pace, seed: u64) -> Option<Times> {
        let mean = 1e9 / pace.per_second()?;
        let random = matches!(pace, Pace::Poisson { .. }).then(|| Random::new(!seed));
        let mut times = Times { number: 0.0, at: 0.0, mean, random };
        if times.random.is_some() {
            times.step(); // its first is as far from the start as the second from the first
        }
        Some(times)
    }

    fn at(&self) -> u64 {
        self.at as u64
    }

    /// The next time, and on to the one after it.
    fn step(&mut self) -> u64 {
        let at = self.at();
        self.number += 1.0;
        self.at = match &mut self.random {
            None => self.number * self.mean,
            // 1 minus a fraction is never 0, and has a logarithm.
            Some(random) => self.at - (1.0 - random.fraction()).ln() * self.mean,
        };
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_rate_does_not_drift() {
        let mut times = Times::of(Pace::Constant { per_second: 3.0 }, 1).expect("a rate");
        assert_eq!([0, 1, 2].map(|_| times.step()), [0, 333_333_333, 666_666_666]);
        let third: Vec<u64> = (0..3_000_000).map(|_| times.step()).collect();
        assert_eq!(third.last(), Some(&1_000_000_666_666_666));
    }

    #[test]
    fn poisson_distances_are_exponential() {
        let mut times = Times::of(Pace::Poisson { per_second: 1000.0 }, 7).expect("a rate");
        let at: Vec<u64> = (0..100_001).map(|_| times.step()).collect();
        let distances: Vec<u64> = at.windows(2).map(|two| two[1] - two[0]).collect();
        let mean = distances.iter().sum::<u64>() as f64 / 100_000.0;
        assert!((990_000.0..1_010_000.0).contains(&mean), "{mean} ns, not 1 ms");
        // e^-1 of them are longer than the mean, e^-3 longer than three times the mean.
        let longer = |ns: u64| distances.iter().filter(|distance| **distance > ns).count();
        assert!((36_300..37_300).contains(&longer(1_000_000)), "{}", longer(1_000_000));
        assert!((4_750..5_200).contains(&longer(3_000_000)), "{}", longer(3_000_000));
    }

    #[test]
    fn what_is_due_and_not_taken_is_the_backlog() {
        let mut arrivals = Arrivals::new(Pace::Constant { per_second: 1000.0 }, 1).expect("a rate");
        assert_eq!([arrivals.take(), arrivals.take()], [0, 1_000_000]);
        arrivals.look(500_000);
        assert_eq!(arrivals.backlog_max(), 0);
        arrivals.look(9_500_000);
        assert_eq!(arrivals.backlog_max(), 8);
        assert_eq!((0..8).map(|_| arrivals.take()).last(), Some(9_000_000));
        arrivals.look(10_500_000);
        assert_eq!(arrivals.backlog_max(), 8, "the most, not the last");
    }
}
