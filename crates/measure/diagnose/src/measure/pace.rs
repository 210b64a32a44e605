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
    /// When no other round begins.
    pub(super) most: Duration,
    without_disk: Duration,
    /// What all rounds of all loads take together, unless the way is long or the disk slow.
    loads: Duration,
    warm_up: Duration,
    /// The shortest that a round may be.
    counted_min: Duration,
}

/// What a diagnosis takes, if nobody says otherwise.
const FULL_S: f64 = 40.0;
/// What it takes if it is to be quick.
const QUICK_S: f64 = 12.0;
/// Fewer than this make no interval of the median to speak of.
const ROUNDS_MIN: u32 = 3;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Pace {
    /// For a diagnosis that takes some forty seconds, some twelve, or about as long as is said.
    pub(super) fn new(quick: bool, seconds: Option<f64>) -> Pace {
        let seconds = seconds.unwrap_or(if quick { QUICK_S } else { FULL_S });
        let share = |share: f64| Duration::from_secs_f64(seconds * share);
        Pace {
            rounds: if seconds < FULL_S / 2.0 { 4 } else { 6 },
            turn: share(0.045),
            share: share(0.1),
            patience: share(0.4).clamp(ms(1000), ms(10_000)),
            without_disk: share(0.2).clamp(ms(500), ms(2000)),
            most: share(3.0) + ms(10_000),
            loads: share(0.5),
            warm_up: share(0.008).clamp(ms(10), ms(250)),
            counted_min: share(0.025).min(ms(300)),
        }
    }

    /// What an answer may take that comes without a disk, on a way of this length: twice TCP's first retransmission
    /// timeout (RFC 6298: one second), so that a single loss is not taken for a way that is closed.
    pub(super) fn patience_without_disk(&self, round_trip: Duration) -> Duration {
        (self.without_disk + 20 * round_trip).min(ms(8000))
    }

    /// How long each round of each of so many loads takes, and how many of them there are. `request` is what one request
    /// takes at least, alone.
    ///
    /// A connection that starts from ten segments doubles them with each round trip (RFC 5681, RFC 6928), and the
    /// windows of both ends grow behind that: twenty round trips fill anything.
    pub(super) fn rounds(&self, loads: usize, round_trip: Duration, request: Duration) -> (u32, Times) {
        let loads = loads.max(1) as u32;
        let each = (self.loads / (self.rounds * loads)).clamp(self.counted_min, ms(1500));
        let counted = each.max(10 * round_trip).max(4 * request).min(ms(6000).max(each));
        let warm_up = self.warm_up.max(20 * round_trip).max(request).min(ms(2000));
        // Rounds that are long are few.
        let fitting = (4 * self.loads).as_secs_f64() / ((warm_up + counted) * loads).as_secs_f64();
        ((fitting as u32).clamp(ROUNDS_MIN, self.rounds), Times { warm_up, counted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(pace: Pace, loads: usize, round_trip: Duration, request: Duration) -> f64 {
        let (rounds, times) = pace.rounds(loads, round_trip, request);
        assert!((ROUNDS_MIN..=pace.rounds).contains(&rounds));
        let all = (times.warm_up + times.counted) * rounds * loads as u32 + pace.turn * (rounds + 1);
        all.as_secs_f64()
    }

    #[test]
    fn it_takes_as_long_as_it_says_on_a_lan() {
        let (round_trip, request) = (Duration::from_micros(200), Duration::from_micros(300));
        let lan = |quick, said, loads| seconds(Pace::new(quick, said), loads, round_trip, request);
        assert!((8.0..13.0).contains(&lan(true, None, 3)), "{}", lan(true, None, 3));
        assert!((30.0..42.0).contains(&lan(false, None, 3)), "{}", lan(false, None, 3));
        assert!((30.0..50.0).contains(&lan(false, None, 6)), "{}", lan(false, None, 6));
        assert!(lan(false, Some(1.0), 6) < 1.5, "{}", lan(false, Some(1.0), 6));
    }

    #[test]
    fn long_ways_and_slow_disks_take_longer_and_not_for_ever() {
        let (quick, full) = (Pace::new(true, None), Pace::new(false, None));
        assert!(seconds(quick, 3, ms(50), ms(50)) < 25.0);
        assert!(seconds(full, 6, ms(50), ms(50)) < 75.0);
        assert!(seconds(quick, 3, ms(1), ms(5000)) < 80.0);
    }
}
