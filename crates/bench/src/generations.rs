//! What was written where: the memory of a run that verifies its data.

/// The generation each place is in, and which places a request is at.
///
/// A read beside a write of the same place may return either, and two writes may end in either order; so each
/// request under way has its place for itself, and what a read must return is always exactly known.
pub(crate) struct Generations {
    of: Vec<u32>,
    busy: Vec<bool>,
}

impl Generations {
    pub(crate) fn new(places: u64) -> Generations {
        let places = usize::try_from(places).unwrap_or(usize::MAX);
        Generations { of: vec![UNKNOWN; places], busy: vec![false; places] }
    }

    /// Takes `wanted`, or the next place after it that is free.
    pub(crate) fn take(&mut self, wanted: u64) -> u64 {
        let wanted = wanted as usize % self.busy.len();
        let (before, after) = self.busy.split_at(wanted);
        let free = after.iter().chain(before).position(|busy| !busy);
        // Workload::check_verifiable has seen to it that half of the places are always free.
        let place = (wanted + free.unwrap_or(0)) % self.busy.len();
        self.busy[place] = true;
        place as u64
    }

    /// The generation that a read of a place must return; `None` before anything was written there.
    pub(crate) fn expected(&self, place: u64) -> Option<u64> {
        let generation = self.of[place as usize];
        (generation != UNKNOWN).then_some(u64::from(generation))
    }

    /// The generation for the next write of a place.
    pub(crate) fn next(&self, place: u64) -> u64 {
        u64::from(self.of[place as usize].checked_add(1).unwrap_or(UNKNOWN + 1))
    }

    /// The write of a place ended well.
    pub(crate) fn wrote(&mut self, place: u64, generation: u64) {
        self.of[place as usize] = generation as u32;
    }

    /// The write of a place failed: it may hold the old generation, the new one, or both in parts.
    pub(crate) fn forget(&mut self, place: u64) {
        self.of[place as usize] = UNKNOWN;
    }

    pub(crate) fn release(&mut self, place: u64) {
        self.busy[place as usize] = false;
    }
}

/// Nothing was written, or nobody knows what.
const UNKNOWN: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_taken_gives_way_to_the_next_free_one() {
        let mut generations = Generations::new(4);
        assert_eq!([3, 3, 0].map(|wanted| generations.take(wanted)), [3, 0, 1]);
        generations.release(3);
        assert_eq!(generations.take(3), 3);
    }

    #[test]
    fn a_failed_write_leaves_nothing_to_expect() {
        let mut generations = Generations::new(4);
        generations.wrote(2, generations.next(2));
        assert_eq!(generations.expected(2), Some(1));
        generations.forget(2);
        assert_eq!(generations.expected(2), None);
    }
}
