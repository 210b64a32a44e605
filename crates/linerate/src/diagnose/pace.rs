//! How long everything may take: as long as makes it known well enough, and bounded whatever a target does.

use std::time::Duration;

use super::load::Times;

/// Of one diagnosis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Rounds of every load, each with a turn of the ladder before it.
    pub(super) rounds: u32,
    /// What a turn of the ladder takes, if all of it can be asked in that time.
    pub(super) turn: Duration,
    /// What one rung of it may take altogether.
    pub(super) share: Duration,
    /// How long an answer may take that has to do with a disk.
    pub(super) patience: Duration,
    /// What all rounds of all loads take together, unless the way is long or the disk slow.
    loads: Duration,
    /// When no other round begins.
    pub(super) most: Duration,
    warm_up: Duration,
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Fewer than this make no interval of the median to speak of.
const ROUNDS_MIN: u32 = 3;

impl Pace {
    /// Ten to fifteen seconds on a LAN.
    const QUICK: Pace = Pace {
        rounds: 4,
        turn: ms(700),
        share: ms(1200),
        patience: ms(5000),
        loads: ms(5000),
        most: ms(45_000),
        warm_up: ms(100),
    };

    /// Some forty seconds.
    const FULL: Pace = Pace {
        rounds: 6,
        turn: ms(1800),
        share: ms(3000),
        patience: ms(10_000),
        loads: ms(20_000),
        most: ms(120_000),
        warm_up: ms(250),
    };

    pub(super) fn new(quick: bool) -> Pace {
        if quick { Pace::QUICK } else { Pace::FULL }
    }

    /// What an answer may take that comes without a disk, on a way of this length: twice TCP's first retransmission
    /// timeout (RFC 6298: one second), so that a single loss is not taken for a way that is closed.
    pub(super) fn patience_without_disk(round_trip: Duration) -> Duration {
        (ms(2000) + 20 * round_trip).min(ms(8000))
    }

    /// How long each round of each of so many loads takes, and how many of them there are. `request` is what one request
    /// takes at least, alone.
    ///
    /// A connection that starts from ten segments doubles them with each round trip (RFC 5681, RFC 6928), and the
    /// windows of both ends grow behind that: twenty round trips fill anything.
    pub(super) fn rounds(&self, loads: usize, round_trip: Duration, request: Duration) -> (u32, Times) {
        let each = self.loads / (self.rounds * loads.max(1) as u32);
        let counted = each.clamp(ms(300), ms(1500)).max(10 * round_trip).max((4 * request).min(ms(6000)));
        let warm_up = self.warm_up.max((20 * round_trip).min(ms(2000))).max(request.min(ms(1000)));
        let times = Times { warm_up, counted };
        // Rounds that are long are few.
        let all = (warm_up + counted) * loads.max(1) as u32;
        let fitting = (3 * self.loads).as_secs_f64() / all.as_secs_f64();
        ((fitting as u32).clamp(ROUNDS_MIN, self.rounds), times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(quick: bool, loads: usize, round_trip: Duration, request: Duration) -> f64 {
        let pace = Pace::new(quick);
        let (rounds, times) = pace.rounds(loads, round_trip, request);
        assert!((ROUNDS_MIN..=pace.rounds).contains(&rounds));
        let all = (times.warm_up + times.counted) * rounds * loads as u32 + pace.turn * (rounds + 1);
        all.as_secs_f64()
    }

    #[test]
    fn a_quick_look_at_a_lan_takes_some_ten_seconds_and_a_full_one_forty() {
        let (round_trip, request) = (Duration::from_micros(200), Duration::from_micros(300));
        assert!((7.0..13.0).contains(&seconds(true, 3, round_trip, request)));
        assert!((30.0..45.0).contains(&seconds(false, 3, round_trip, request)));
        assert!((30.0..60.0).contains(&seconds(false, 6, round_trip, request)));
    }

    #[test]
    fn long_ways_and_slow_disks_take_longer_and_not_for_ever() {
        assert!(seconds(true, 3, ms(50), ms(50)) < 30.0);
        assert!(seconds(false, 6, ms(50), ms(50)) < 90.0);
        assert!(seconds(true, 3, ms(1), ms(5000)) < 90.0, "{}", seconds(true, 3, ms(1), ms(5000)));
    }
}
