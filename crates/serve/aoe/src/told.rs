//! Which lost writes a station has been told of: a loss is told once to each, and told again to one that asks again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reactor::MacAddress;

/// For so long a flush may be sent again whose answer was lost.
const REPEATED: Duration = Duration::from_secs(60);
/// The departed stations that are remembered at a slot.
const DEPARTED_MAX: usize = 4096;

/// What one station has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The lost writes that it knows of, or that were lost before it came.
    losses: u64,
    /// The flush that was told last, and when.
    by: Option<(u32, Instant)>,
}

impl Told {
    /// Of a station that comes when so many writes were lost.
    pub(crate) fn since(losses: u64) -> Told {
        Told { losses, by: None }
    }

    /// Whether this flush must be told, which counts as done.
    pub(crate) fn tell(&mut self, now: Instant, tag: u32, losses: u64) -> bool {
        if self.losses != losses {
            (self.losses, self.by) = (losses, Some((tag, now)));
            return true;
        }
        let is_repeated =
            |(told, at): (u32, Instant)| told == tag && now.saturating_duration_since(at) <= REPEATED;
        self.by.is_some_and(is_repeated)
    }
}

/// What the stations that a slot has forgotten had been told.
#[derive(Default)]
pub(crate) struct Departed {
    stations: BTreeMap<MacAddress, Told>,
    /// The lowest number of losses that a forgotten station had been told of. An unknown station may be that one.
    least: Option<u64>,
}

impl Departed {
    pub(crate) fn note(&mut self, station: MacAddress, told: Told) {
        self.stations.insert(station, told);
        if self.stations.len() > DEPARTED_MAX
            && let Some((_, told)) = self.stations.pop_first()
        {
            self.least = Some(self.least.map_or(told.losses, |least| least.min(told.losses)));
        }
    }

    /// What a station has been told that comes when so many writes were lost.
    pub(crate) fn take(&mut self, station: MacAddress, losses: u64) -> Told {
        let known = self.stations.remove(&station);
        known.unwrap_or_else(|| Told::since(self.least.unwrap_or(losses)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(number: u32) -> MacAddress {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddress([2, 0, a, b, c, d])
    }

    #[test]
    fn a_loss_is_told_once_and_again_to_a_copy() {
        let (mut told, now) = (Told::since(3), Instant::now());
        assert!(!told.tell(now, 1, 3));
        assert!(told.tell(now, 2, 4));
        assert!(told.tell(now + REPEATED, 2, 4), "its answer may be lost");
        assert!(!told.tell(now, 3, 4));
        assert!(!told.tell(now + 2 * REPEATED, 2, 4), "another flush with this tag");
    }

    #[test]
    fn a_station_that_comes_back_knows_what_it_knew() {
        let mut departed = Departed::default();
        departed.note(station(1), Told::since(3));
        assert_eq!(departed.take(station(2), 5), Told::since(5), "a new one");
        assert_eq!(departed.take(station(1), 5), Told::since(3));
        for number in 0..=DEPARTED_MAX as u32 {
            departed.note(station(number), Told::since(4));
        }
        assert_eq!(departed.stations.len(), DEPARTED_MAX);
        assert_eq!(departed.take(station(0), 5), Told::since(4), "it may have been there");
    }
}
