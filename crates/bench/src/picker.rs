//! Which request comes next.

use crate::Workload;
use crate::random::Random;
use crate::workload::Places;

/// What to do, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) kind: Kind,
    /// Counted in requests from the start of the span.
    pub(crate) place: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// The order of one device's requests.
pub(crate) struct Picker {
    random: Random,
    places: u64,
    read_percent: u64,
    random_percent: u64,
    /// Where a request that follows the one before it goes.
    following: u64,
}

impl Picker {
    /// The picker of device number `index` of `devices`. Each has its own order, and their sequential parts
    /// start evenly spread over the span, so that they do not read what another has just brought into a cache.
    pub(crate) fn new(workload: &Workload, places: Places, index: usize, devices: usize) -> Picker {
        let spread = u128::from(places.count) * index as u128 / devices.max(1) as u128;
        Picker {
            random: Random::new(workload.seed.wrapping_add((index as u64) << 32)),
            places: places.count,
            read_percent: u64::from(workload.read.get()),
            random_percent: u64::from(workload.random.get()),
            following: spread as u64,
        }
    }

    pub(crate) fn next(&mut self) -> Pick {
        let kind = if self.chance(self.read_percent) { Kind::Read } else { Kind::Write };
        let place =
            if self.chance(self.random_percent) { self.random.below(self.places) } else { self.following };
        self.following = self.after(place);
        Pick { kind, place }
    }

    /// The place after this one, the first after the last.
    pub(crate) fn after(&self, place: u64) -> u64 {
        if place + 1 < self.places { place + 1 } else { 0 }
    }

    fn chance(&mut self, percent: u64) -> bool {
        match percent {
            0 => false,
            100 => true,
            _ => self.random.below(100) < percent,
        }
    }
}

#[cfg(test)]
mod tests {
    use block::Blocks;

    use super::*;
    use crate::Percent;
    use crate::workload::tests::reads_of_4k;

    fn picker(read: u8, random: u8, index: usize) -> Picker {
        let (read, random) = (Percent::new(read).expect("a share"), Percent::new(random).expect("a share"));
        let workload = Workload { read, random, ..reads_of_4k() };
        Picker::new(&workload, Places { count: 100, blocks: Blocks(8) }, index, 4)
    }

    #[test]
    fn sequential_requests_follow_each_other_and_start_again_at_the_end() {
        let mut picker = picker(100, 0, 0);
        let places: Vec<u64> = (0..201).map(|_| picker.next().place).collect();
        assert!((0..201).all(|i| places[i as usize] == i % 100));
    }

    #[test]
    fn sequential_devices_start_spread_over_the_span() {
        assert_eq!([0, 1, 2, 3].map(|index| picker(100, 0, index).next().place), [0, 25, 50, 75]);
    }

    #[test]
    fn shares_are_kept() {
        let mut picker = picker(70, 30, 0);
        let picks: Vec<Pick> = (0..10_000).map(|_| picker.next()).collect();
        let reads = picks.iter().filter(|pick| pick.kind == Kind::Read).count();
        assert!((6_800..7_200).contains(&reads), "{reads}");
        let followed = picks.windows(2).filter(|two| two[1].place == (two[0].place + 1) % 100).count();
        assert!((6_800..7_300).contains(&followed), "{followed}");
    }

    #[test]
    fn a_seed_gives_the_same_order_again() {
        let (mut one, mut two) = (picker(50, 50, 1), picker(50, 50, 1));
        assert!((0..1000).all(|_| one.next() == two.next()));
    }
}
